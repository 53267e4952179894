package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/harvester/harvester/pkg/builder"
	"github.com/harvester/harvester/pkg/util"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// planMachine: harvester_virtualmachine with a disk of an image, an empty one and a card in a network, and all of it
// read back.
func (s *story) planMachine(name, image, network, key, secret string) {
	class := s.classOf(image)
	pair, err := s.harvester.HarvesterhciV1beta1().KeyPairs(s.namespace).Get(s.ctx, key, metav1.GetOptions{})
	s.must(err, "read key pair %s", key)
	confided, err := s.kubernetes.CoreV1().Secrets(s.namespace).Get(s.ctx, secret, metav1.GetOptions{})
	s.must(err, "read Secret %s", secret)
	s.so(strings.Contains(string(confided.Data["userdata"]), pair.Spec.PublicKey), "the key is in the user data", len(confided.Data))

	of := s.builder(name, image, class).
		NetworkInterface("nic-1", "virtio", "", builder.NetworkInterfaceTypeBridge, network).
		CloudInitDisk(builder.CloudInitDiskName, builder.DiskBusVirtio, false, 0, builder.CloudInitSource{
			CloudInitType: builder.CloudInitTypeNoCloud, UserDataSecretName: secret}).
		SSHKey(s.namespace + "/" + key).
		RunStrategy(kubevirtv1.RunStrategyRerunOnFailure)
	secureBoot := false
	of.VirtualMachine.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{
		Bootloader: &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{SecureBoot: &secureBoot}}}
	wanted, err := of.VM()
	s.must(err, "put a machine together")
	created, err := s.harvester.KubevirtV1().VirtualMachines(s.namespace).Create(s.ctx, wanted, metav1.CreateOptions{})
	s.works(err, "machine "+name+" is created")
	s.panics(created.Spec.RunStrategy != nil, "VirtualMachine has no runStrategy")
	s.planReads(created, nil)
	s.isReady(name, "")
}

// builder is what the provider puts into every machine.
func (s *story) builder(name, image, class string) *builder.VMBuilder {
	return builder.NewVMBuilder(terraformName).
		Namespace(s.namespace).Name(name).Description("of a plan").
		Labels(map[string]string{"tag.harvesterhci.io/of": "plan"}).
		CPU(1).Memory("256Mi").HostName(name).EvictionStrategy(true).Affinity(nil).
		PVCDisk("rootdisk", builder.DiskBusVirtio, false, false, 1, "64Mi", name+"-root", autoDelete(diskOf(image, class))).
		PVCDisk("emptydisk", builder.DiskBusVirtio, false, false, 0, "16Mi", name+"-empty", &builder.PersistentVolumeClaimOption{
			VolumeMode: corev1.PersistentVolumeBlock, AccessMode: corev1.ReadWriteMany, StorageClassName: harvesterLonghorn()})
}

func autoDelete(of *builder.PersistentVolumeClaimOption) *builder.PersistentVolumeClaimOption {
	of.Annotations = map[string]string{"terraform-provider-harvester-auto-delete": "true"}
	return of
}

// What the provider reads of a machine and its instance. It guards none of the pointers.
func (s *story) planReads(machine *kubevirtv1.VirtualMachine, instance *kubevirtv1.VirtualMachineInstance) {
	s.panics(machine.Spec.Template != nil, "VirtualMachine has no template")
	template := machine.Spec.Template
	domain := template.Spec.Domain
	s.panics(domain.Machine != nil, "VirtualMachine has no domain.machine")
	s.panics(domain.CPU != nil, "VirtualMachine has no domain.cpu")
	s.so(domain.Machine.Type != "", "the machine's type is told", domain.Machine)
	s.so(domain.CPU.Cores >= 1, "and its processors", domain.CPU)
	s.so(!domain.Resources.Limits.Memory().IsZero(), "and its memory", domain.Resources)
	if firmware := domain.Firmware; firmware != nil && firmware.Bootloader != nil && firmware.Bootloader.EFI != nil {
		s.panics(firmware.Bootloader.EFI.SecureBoot != nil, "firmware.bootloader.efi has no secureBoot")
	}
	for _, annotation := range []string{builder.AnnotationKeyVirtualMachineSSHNames, builder.AnnotationKeyVirtualMachineWaitForLeaseInterfaceNames} {
		var names []string
		err := json.Unmarshal([]byte(template.ObjectMeta.Annotations[annotation]), &names)
		s.works(err, "annotation "+annotation+" of the template is a list")
	}
	s.panics(machine.Annotations != nil, "VirtualMachine has no annotations")
	entries, err := util.UnmarshalVolumeClaimTemplates(machine.Annotations[util.AnnotationVolumeClaimTemplates])
	s.works(err, "the templates of claims are readable")
	s.same(2, len(entries), "and there is one of each disk")
	s.same("of a plan", machine.Annotations[builder.AnnotationKeyDescription], "the description is there")
	for _, disk := range domain.Devices.Disks {
		s.panics(disk.Disk != nil || disk.CDRom != nil, "disk "+disk.Name+" is neither disk nor cd-rom")
	}
	for _, nic := range domain.Devices.Interfaces {
		s.so(nic.Bridge != nil || nic.Masquerade != nil, "interface "+nic.Name+" says how it is bound", nic)
	}
	if instance != nil {
		s.so(instance.Status.NodeName != "", "the instance says where it runs", instance.Status)
		for _, nic := range instance.Status.Interfaces {
			s.so(nic.Name != "", "and which of its interfaces is which", instance.Status.Interfaces)
		}
	}
}

// isReady waits as the provider does: for an instance that runs, and is not the one before.
func (s *story) isReady(name string, before types.UID) (uid types.UID) {
	s.within(machineBudget, "machine "+name+" becomes ready", func() (bool, any) {
		machine, err := s.machine(name)
		s.must(err, "read machine %s", name)
		instance, err := s.instance(name)
		if isGone(err) {
			return false, machine.Status
		}
		s.must(err, "read instance %s", name)
		if instance.Status.Phase != kubevirtv1.Running || instance.UID == before {
			return false, instance.Status
		}
		uid = instance.UID
		return true, nil
	})
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	instance, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.planReads(machine, instance)
	return uid
}

// planChanges: an update that says everything anew, with the same claims, and puts it in one PUT without a second try.
func (s *story) planChanges(name string) {
	before, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.planUpdates(name, func(machine *kubevirtv1.VirtualMachine) {
		machine.Labels["tag.harvesterhci.io/of"] = "another-plan"
	})
	s.same(before.UID, s.isReady(name, ""), "a change in place leaves the instance as it is")
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	s.same("another-plan", machine.Labels["tag.harvesterhci.io/of"], "and is there")
}

func (s *story) planChangesAndRestarts(name string) {
	before, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.planUpdates(name, func(machine *kubevirtv1.VirtualMachine) {
		machine.Spec.Template.Spec.Domain.CPU.Cores = 2
		machine.Spec.Template.Spec.Domain.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
	})
	s.works(s.does(name, "restart"), "a restart is taken")
	s.isReady(name, before.UID)
	now, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.same(2, now.Spec.Domain.CPU.Cores, "and what was changed is so")
}

func (s *story) planUpdates(name string, change func(*kubevirtv1.VirtualMachine)) {
	s.settles(name)
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	s.panics(machine.Annotations != nil, "assignment to entry in nil map: the VirtualMachine has no annotations")
	entries, err := util.UnmarshalVolumeClaimTemplates(machine.Annotations[util.AnnotationVolumeClaimTemplates])
	s.must(err, "read the templates of claims")
	spec := &machine.Spec.Template.Spec
	uuid := spec.Domain.Firmware.UUID
	networks, interfaces := spec.Networks, spec.Domain.Devices.Interfaces
	disks, volumes := spec.Domain.Devices.Disks, spec.Volumes
	spec.Networks, spec.Domain.Devices.Interfaces = []kubevirtv1.Network{}, []kubevirtv1.Interface{}
	spec.Domain.Devices.Disks, spec.Volumes = []kubevirtv1.Disk{}, []kubevirtv1.Volume{}
	spec.Domain.Devices.Inputs, spec.Domain.Devices.TPM = []kubevirtv1.Input{}, nil
	machine.Annotations[util.AnnotationVolumeClaimTemplates] = "[]"

	again := (&builder.VMBuilder{SSHNames: []string{}, WaitForLeaseInterfaceNames: []string{}}).Update(machine)
	for i, network := range networks {
		again.NetworkInterface(interfaces[i].Name, interfaces[i].Model, interfaces[i].MacAddress,
			builder.NetworkInterfaceTypeBridge, network.Multus.NetworkName)
	}
	for i, disk := range disks {
		claim := volumes[i].PersistentVolumeClaim
		if claim == nil {
			again.Disk(disk.Name, string(disk.Disk.Bus), false, 0).Volume(disk.Name, volumes[i])
			continue
		}
		for _, entry := range entries {
			if entry.Name == claim.ClaimName {
				size := entry.Spec.Resources.Requests[corev1.ResourceStorage]
				again.PVCDisk(disk.Name, string(disk.Disk.Bus), false, false, bootOrder(disk), size.String(), entry.Name,
					&builder.PersistentVolumeClaimOption{
						VolumeMode: *entry.Spec.VolumeMode, AccessMode: entry.Spec.AccessModes[0],
						StorageClassName: entry.Spec.StorageClassName, Annotations: entry.Annotations})
			}
		}
	}
	changed, err := again.VM()
	s.must(err, "put the machine together again")
	change(changed)
	_, err = s.harvester.KubevirtV1().VirtualMachines(s.namespace).Update(s.ctx, changed, metav1.UpdateOptions{})
	s.works(err, "machine "+name+" is changed at the first try")
	now, err := s.machine(name)
	s.must(err, "read machine %s", name)
	s.same(uuid, now.Spec.Template.Spec.Domain.Firmware.UUID, "and keeps who it is")
}

func bootOrder(disk kubevirtv1.Disk) uint {
	if disk.BootOrder == nil {
		return 0
	}
	return *disk.BootOrder
}

// planDestroys: the disk that is to go with it does, and the other stays.
func (s *story) planDestroys(name string) {
	s.settles(name)
	machine, err := s.machine(name)
	s.must(err, "read machine %s", name)
	s.removed(machine, []string{name + "-root"})
	client := s.harvester.KubevirtV1().VirtualMachines(s.namespace)
	_, err = client.Update(s.ctx, machine, metav1.UpdateOptions{})
	s.works(err, "what is to go with machine "+name+" is said at the first try")
	foreground := metav1.DeletePropagationForeground
	s.works(client.Delete(s.ctx, name, metav1.DeleteOptions{PropagationPolicy: &foreground}), "it is deleted")
	s.within(machineDeleteBudget, "and is gone", func() (bool, any) {
		_, err := s.machine(name)
		return isGone(err), err
	})
	claims := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	s.within(deleteBudget, "its root disk goes with it", func() (bool, any) {
		_, err := claims.Get(s.ctx, name+"-root", metav1.GetOptions{})
		return isGone(err), err
	})
	kept, err := claims.Get(s.ctx, name+"-empty", metav1.GetOptions{})
	s.so(err == nil && kept.DeletionTimestamp == nil, "and the other one stays", fmt.Sprint(err))
	s.volumeGoes(name + "-empty")
}

// offMachine: run strategy Halted is ready when there is no instance.
func (s *story) offMachine(name, image, network string) {
	wanted, err := s.builder(name, image, s.classOf(image)).
		NetworkInterface("nic-1", "virtio", "", builder.NetworkInterfaceTypeBridge, network).
		RunStrategy(kubevirtv1.RunStrategyHalted).VM()
	s.must(err, "put a machine together")
	created, err := s.harvester.KubevirtV1().VirtualMachines(s.namespace).Create(s.ctx, wanted, metav1.CreateOptions{})
	s.works(err, "a machine that is to be off is created")
	s.planReads(created, nil)
	_, err = s.instance(name)
	s.so(isGone(err), "and has no instance", err)
	s.planDestroys(name)
}
