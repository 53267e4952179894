package main

import (
	"strings"
	"time"

	"github.com/harvester/harvester/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// What the node driver gives each wait: 120 looks, five seconds apart.
const driverBudget = 10 * time.Minute

// Longer user data goes into a Secret.
const mostInline = 2048

// nodeDriver: from the checks before a machine is made to its end, as docker-machine-driver-harvester goes.
func nodeDriver(s *story) {
	image, network := s.args[0], s.args[1]
	key := s.keyPair("node-key")
	s.preCreateCheck("pool-node-1", image, network, key)

	// A short cloud-init is in the machine itself.
	s.driverCreates("pool-node-1", image, network, "#cloud-config\n")
	s.becomesRunning("pool-node-1")
	first := s.isReached("pool-node-1")
	s.driverStops("pool-node-1")
	s.works(s.does("pool-node-1", "start"), "start is taken without body and content type")
	s.becomesRunning("pool-node-1")
	s.same(first, s.isReached("pool-node-1"), "and the address is the one it had before")
	s.driverRestarts("pool-node-1")
	s.driverRemoves("pool-node-1", false)

	// A long one is in a Secret that is made after the machine, and belongs to it.
	s.driverCreates("pool-node-2", image, network, "#cloud-config\n# "+strings.Repeat("long ", mostInline/4)+"\n")
	s.becomesRunning("pool-node-2")
	s.isReached("pool-node-2")
	s.driverRemoves("pool-node-2", true)
	s.within(time.Minute, "the Secret goes with its machine", func() (bool, any) {
		_, err := s.kubernetes.CoreV1().Secrets(s.namespace).Get(s.ctx, "pool-node-2-cloudinit", metav1.GetOptions{})
		return isGone(err), err
	})
	puts := s.wire.types("PUT", "/virtualmachines/pool-node-1/stop")
	s.so(len(puts) == 1 && puts[0] == "", "what has no body says no content type", puts)
}

func (s *story) preCreateCheck(name, image, network, key string) {
	harvester := s.harvester.HarvesterhciV1beta1()
	version, err := harvester.Settings().Get(s.ctx, "server-version", metav1.GetOptions{})
	s.works(err, "the setting server-version is there")
	s.so(version.Value != "" && !strings.HasPrefix(version.Value, "v0.1.0"), "and is a version the driver works with", version.Value)
	_, err = s.machine(name)
	s.so(isGone(err), "there is no machine of that name yet", err)
	keyPair, err := harvester.KeyPairs(s.namespace).Get(s.ctx, key, metav1.GetOptions{})
	s.works(err, "the key pair is there")
	validated := ""
	for _, condition := range keyPair.Status.Conditions {
		if condition.Type == "validated" {
			validated = string(condition.Status)
		}
	}
	s.so(validated == "True" && keyPair.Spec.PublicKey != "", "and was found to be one", keyPair.Status)
	s.classOf(image)
	namespace, nad := s.named(network)
	_, err = s.harvester.K8sCniCncfIoV1().NetworkAttachmentDefinitions(namespace).Get(s.ctx, nad, metav1.GetOptions{})
	s.works(err, "the network is there")
	_, err = s.kubernetes.StorageV1().StorageClasses().Get(s.ctx, "harvester-longhorn", metav1.GetOptions{})
	s.works(err, "the storage class is there")
}

func (s *story) driverCreates(name, image, network, userData string) {
	class := s.classOf(image)
	cloudInit := builder.CloudInitSource{CloudInitType: builder.CloudInitTypeNoCloud, UserData: userData}
	if len(userData) > mostInline {
		secret := name + "-cloudinit"
		cloudInit = builder.CloudInitSource{CloudInitType: builder.CloudInitTypeNoCloud,
			UserDataSecretName: secret, NetworkDataSecretName: secret}
	}
	wanted, err := builder.NewVMBuilder(nodeDriverName).
		Namespace(s.namespace).Name(name).CPU(1).Memory("256Mi").Affinity(nil).EvictionStrategy(true).
		Labels(map[string]string{
			"harvesterhci.io/machineSetName": s.namespace + "-pool",
			guestClusterLabel:                "guest", "nodepool.harvesterhci.io/name": "pool",
		}).
		CloudInitDisk(builder.CloudInitDiskName, builder.DiskBusVirtio, false, 0, cloudInit).
		PVCDisk("disk-0", builder.DiskBusVirtio, false, false, 1, "64Mi", "", diskOf(image, class)).
		PVCDisk("disk-1", builder.DiskBusVirtio, false, false, 0, "16Mi", "", &builder.PersistentVolumeClaimOption{
			VolumeMode: corev1.PersistentVolumeBlock, AccessMode: corev1.ReadWriteMany, StorageClassName: harvesterLonghorn(),
		}).
		NetworkInterface("nic-0", "virtio", "", builder.NetworkInterfaceTypeBridge, network).
		NetworkInterface("nic-1", "virtio", "", builder.NetworkInterfaceTypeBridge, network).
		SSHKey(s.namespace + "/node-key").
		RunStrategy(kubevirtv1.RunStrategyRerunOnFailure).
		VM()
	s.must(err, "put a machine together")
	created, err := s.harvester.KubevirtV1().VirtualMachines(s.namespace).Create(s.ctx, wanted, metav1.CreateOptions{})
	s.works(err, "machine "+name+" is created")
	s.so(created.UID != "", "and has a uid to be referred to", created.ObjectMeta)
	if len(userData) > mostInline {
		// However long that takes: the machine waits for it, and is not given up.
		time.Sleep(3 * time.Second)
		instance, err := s.instance(name)
		s.must(err, "read instance %s", name)
		s.so(instance.Status.Phase != kubevirtv1.Failed && instance.Status.Phase != kubevirtv1.Running,
			"without its cloud-init it waits", instance.Status.Phase)
		_, err = s.kubernetes.CoreV1().Secrets(s.namespace).Create(s.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-cloudinit", Namespace: s.namespace, OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: name, UID: created.UID,
			}}},
			Data: map[string][]byte{"userdata": []byte(userData), "networkdata": []byte("")},
		}, metav1.CreateOptions{})
		s.works(err, "its cloud-init is confided to a Secret after it")
		s.same([]string{protobuf}, s.wire.types("POST", "/secrets"), "in protobuf")
	}
}

func harvesterLonghorn() *string {
	name := "harvester-longhorn"
	return &name
}

// What the driver makes of a machine and its instance, without ever panicking at what it finds on the way.
func (s *story) becomesRunning(name string) {
	s.within(driverBudget, "machine "+name+" comes to run", func() (bool, any) {
		_, err := s.machine(name)
		s.must(err, "read machine %s", name)
		instance, err := s.instance(name)
		if isGone(err) {
			return false, "no instance"
		}
		s.must(err, "read instance %s", name)
		if instance.Status.Phase == kubevirtv1.Failed {
			panic(notSo("the driver gives machine " + name + " up: its instance is Failed"))
		}
		if instance.Status.Phase != kubevirtv1.Running {
			return false, instance.Status
		}
		// From the very first time it is seen to run.
		s.firstAddress(instance)
		return true, nil
	})
}

func (s *story) isReached(name string) (address string) {
	s.within(driverBudget, "and has an IPv4 address", func() (bool, any) {
		instance, err := s.instance(name)
		s.must(err, "read instance %s", name)
		address = s.firstAddress(instance)
		return isIPv4(address), instance.Status.Interfaces
	})
	instance, err := s.instance(name)
	s.must(err, "read instance %s", name)
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	var wanted, found []string
	for _, nic := range machine.Spec.Template.Spec.Domain.Devices.Interfaces {
		wanted = append(wanted, nic.Name)
	}
	for _, nic := range instance.Status.Interfaces {
		found = append(found, nic.Name)
	}
	s.same(wanted, found, "its interfaces are told in the order that they were asked for")
	s.same("guest", instance.Labels[guestClusterLabel], "the labels of its template are on the instance")
	return address
}

func (s *story) driverStops(name string) {
	s.works(s.does(name, "stop"), "stop is taken without body and content type")
	s.within(driverBudget, "after a stop there is no instance", func() (bool, any) {
		instance, err := s.instance(name)
		if err == nil {
			return false, instance.Status.Phase
		}
		return isGone(err), err
	})
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	s.same(kubevirtv1.RunStrategyRerunOnFailure, *machine.Spec.RunStrategy, "and the run strategy is what it was")
}

func (s *story) driverRestarts(name string) {
	before, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.works(s.does(name, "restart"), "restart is taken")
	s.within(driverBudget, "after a restart the instance is another one", func() (bool, any) {
		now, err := s.instance(name)
		return err == nil && now.UID != before.UID, err
	})
	s.becomesRunning(name)
	s.isReached(name)
}

// One GET, one PUT, one DELETE and no second try, as the driver has it.
func (s *story) driverRemoves(name string, all bool) {
	client := s.harvester.KubevirtV1().VirtualMachines(s.namespace)
	s.settles(name)
	if all {
		// Rancher says so first, when a whole cluster goes.
		machine, err := s.machine(name)
		s.must(err, "read machine %s", name)
		s.panics(machine.Annotations != nil, "assignment to entry in nil map: the VirtualMachine has no annotations")
		machine.Annotations[removeAllAnnotation] = "true"
		_, err = client.Update(s.ctx, machine, metav1.UpdateOptions{})
		s.works(err, "all claims of "+name+" are to go with it")
		s.guestClaim(name + "-of-the-cluster")
	}
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	claims := claimsOf(machine, func(claim *kubevirtv1.PersistentVolumeClaimVolumeSource) bool {
		return all || !claim.Hotpluggable
	})
	if machine.Annotations[removeAllAnnotation] == "true" {
		of, err := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).
			List(s.ctx, metav1.ListOptions{LabelSelector: guestClusterLabel + "=guest"})
		s.works(err, "the claims of the guest cluster are found by their label")
		s.same(1, len(of.Items), "all of them and no other")
		for _, claim := range of.Items {
			claims = append(claims, claim.Name)
		}
	}
	s.so(len(claims) >= 2, "the machine has claims", claims)
	s.removed(machine, claims)
	_, err = client.Update(s.ctx, machine, metav1.UpdateOptions{})
	s.works(err, "the machine's claims are to go with it, at the first try")
	foreground := metav1.DeletePropagationForeground
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}), "it is deleted")
	s.within(driverBudget, "and is gone", func() (bool, any) {
		_, err := s.machine(name)
		return isGone(err), err
	})
	_, err = s.instance(name)
	s.so(isGone(err), "its instance went before it", err)
	for _, claim := range claims {
		s.within(time.Minute, "and so is claim "+claim, func() (bool, any) {
			_, err := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).Get(s.ctx, claim, metav1.GetOptions{})
			return isGone(err), err
		})
	}
}

// A claim of the guest cluster that no machine names, as its CSI driver makes them.
func (s *story) guestClaim(name string) {
	claim := emptyClaim(name, "16Mi")
	claim.Labels = map[string]string{guestClusterLabel: "guest"}
	_, err := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).Create(s.ctx, claim, metav1.CreateOptions{})
	s.must(err, "create claim %s", name)
}
