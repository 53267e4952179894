package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/harvester/harvester/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const (
	// A publish that is not through by then is aborted, and tried again by the attacher.
	publishBudget = 15 * time.Second
	// The attacher and the resizer ask again for as long as it takes; this is when a person would ask.
	retryBudget  = 3 * time.Minute
	expandBudget = time.Minute
)

// csi: a volume's whole life, as harvester-csi-driver leads it with the rights that it has. Who watches looks into the guest at the
// lines that begin with "look:", and answers each.
func csi(s *story) {
	node := s.guestNode("csi-node", s.args[0])
	s.asks("look: " + s.namespace + " boots")
	s.becomesGuestCluster()
	// What the driver itself writes, it writes as JSON.
	config := rest.CopyConfig(s.config)
	config.ContentType = "application/json"
	var err error
	s.kubernetes, err = kubernetes.NewForConfig(config)
	s.must(err, "make a client of Kubernetes'")

	s.csiStarts(node)
	claim := s.createVolume("32Mi")
	s.publish(node, claim)
	s.nodePublish(node, claim)
	s.asks(fmt.Sprintf("look: %s %s is plugged in with %d bytes", s.namespace, claim, 32<<20))
	s.expand(claim, "48Mi")
	s.asks(fmt.Sprintf("look: %s %s is plugged in with %d bytes", s.namespace, claim, 48<<20))
	s.publishIsRepeated(node, claim)
	s.unpublish(node, claim)
	s.asks(fmt.Sprintf("look: %s %s is gone", s.namespace, claim))
	s.deleteVolume(claim)
}

// A machine that is a node of a guest cluster: what the node driver would have made.
func (s *story) guestNode(name, image string) string {
	wanted, err := builder.NewVMBuilder(nodeDriverName).Namespace(s.namespace).Name(name).CPU(1).Memory("256Mi").
		Affinity(nil).Labels(map[string]string{guestClusterLabel: "guest"}).
		PVCDisk("disk-0", builder.DiskBusVirtio, false, false, 1, "64Mi", "", diskOf(image, s.classOf(image))).
		NetworkInterface("nic-0", "virtio", "", builder.NetworkInterfaceTypeMasquerade, "").
		RunStrategy(kubevirtv1.RunStrategyRerunOnFailure).VM()
	s.must(err, "put a machine together")
	_, err = s.harvester.KubevirtV1().VirtualMachines(s.namespace).Create(s.ctx, wanted, metav1.CreateOptions{})
	s.must(err, "create machine %s", name)
	s.becomesRunning(name)
	s.isReached(name)
	return name
}

// What both of the driver's pods read before they do anything; the first is fatal when it cannot be read.
func (s *story) csiStarts(node string) {
	version, err := s.harvester.HarvesterhciV1beta1().Settings().Get(s.ctx, "server-version", metav1.GetOptions{})
	s.works(err, "the setting server-version is open to the driver's service account")
	s.so(isDeclarative(version.Value), "and says that disks are plugged in by the machine's spec", version.Value)
	instance, err := s.instance(node)
	s.works(err, "the node finds its instance by its name")
	all, err := s.harvester.KubevirtV1().VirtualMachineInstances(s.namespace).List(s.ctx, metav1.ListOptions{})
	s.works(err, "and among all")
	matches := 0
	for _, one := range all.Items {
		for _, nic := range one.Status.Interfaces {
			if nic.MAC != "" && nic.MAC == instance.Status.Interfaces[0].MAC {
				matches++
			}
		}
	}
	s.same(1, matches, "by its MAC address alone")

	err = s.subresources.Get().AbsPath("/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/networkfilesystems").Do(s.ctx).Error()
	s.so(err == nil || isGone(err), "shared file systems are listed, or there are none", err)
	_, err = s.harvester.LonghornV1beta2().Volumes("longhorn-system").List(s.ctx, metav1.ListOptions{})
	s.so(err == nil || isGone(err) || apierrors.IsForbidden(err), "Longhorn's volumes are listed, or there is no Longhorn", err)

	// On control planes the driver watches over its nodes.
	s.within(time.Minute, "the machine is Ready and says that it runs", func() (bool, any) {
		machine, err := s.machine(node)
		s.must(err, "read machine %s", node)
		for _, condition := range machine.Status.Conditions {
			if condition.Type == kubevirtv1.VirtualMachineReady {
				return condition.Status == corev1.ConditionTrue &&
					machine.Status.PrintableStatus == kubevirtv1.VirtualMachineStatusRunning, machine.Status
			}
		}
		return false, machine.Status
	})
}

// From v1.8 on, and for whatever is no version.
func isDeclarative(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "v%d.%d", &major, &minor); n < 2 {
		return true
	}
	return major > 1 || minor >= 8
}

func (s *story) createVolume(size string) string {
	class, err := s.kubernetes.StorageV1().StorageClasses().Get(s.ctx, "harvester-longhorn", metav1.GetOptions{})
	s.works(err, "the host's storage class may be read")
	s.so(class.Provisioner != "", "and says who provisions", class)
	name := "pvc-" + uuid.NewString()
	_, err = s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).
		Create(s.ctx, emptyClaim(name, size), metav1.CreateOptions{})
	s.works(err, "claim "+name+" is created")
	s.same([]string{"application/json"}, s.wire.types("POST", "/persistentvolumeclaims"), "in JSON")

	// Shared ones come without a class when none is configured, and the driver takes the pointer apart.
	shared := emptyClaim("shared-"+name[4:12], size)
	filesystem := corev1.PersistentVolumeFilesystem
	shared.Spec.StorageClassName, shared.Spec.VolumeMode = nil, &filesystem
	created, err := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).Create(s.ctx, shared, metav1.CreateOptions{})
	s.works(err, "a claim of no class is created")
	s.panics(created.Spec.StorageClassName != nil, "PersistentVolumeClaim has no storageClassName")
	s.works(s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace).Delete(s.ctx, shared.Name, metav1.DeleteOptions{}), "and deleted")
	return name
}

// One ControllerPublishVolume is aborted when it takes too long, and asked again; so is this.
func (s *story) publish(node, claim string) {
	claims := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	s.within(retryBudget, "the claim is bound, and its volume has a name", func() (bool, any) {
		found, err := claims.Get(s.ctx, claim, metav1.GetOptions{})
		s.must(err, "read claim %s", claim)
		s.panics(found.Spec.VolumeMode != nil, "PersistentVolumeClaim has no volumeMode")
		return found.Status.Phase == corev1.ClaimBound && found.Spec.VolumeName != "", found.Status
	})
	attachments, err := s.kubernetes.StorageV1().VolumeAttachments().List(s.ctx, metav1.ListOptions{})
	s.works(err, "attachments may be listed")
	for _, attachment := range attachments.Items {
		s.panics(attachment.Spec.Source.PersistentVolumeName != nil, "VolumeAttachment "+attachment.Name+" names no volume")
	}
	s.within(retryBudget, "the disk is added to the end of the machine's lists", func() (bool, any) {
		machine, err := s.machine(node)
		s.must(err, "read machine %s", node)
		return s.patched(machine, []map[string]any{
			{"op": "add", "path": "/spec/template/spec/volumes/-", "value": volumeOf(claim)},
			{"op": "add", "path": "/spec/template/spec/domain/devices/disks/-", "value": map[string]any{
				"name": claim, "disk": map[string]string{"bus": "scsi"}}},
		})
	})
	s.within(publishBudget, "it is in the machine's volumes, and hot-plugged in its instance's", func() (bool, any) {
		machine, err := s.machine(node)
		s.must(err, "read machine %s", node)
		status := s.statusOf(node, claim)
		return hasVolume(machine, claim) && status != nil && status.HotplugVolume != nil, status
	})
}

func volumeOf(claim string) map[string]any {
	return map[string]any{"name": claim, "persistentVolumeClaim": map[string]any{"claimName": claim, "hotpluggable": true}}
}

// The patch is for the machine as it was read. Whose version is old is told so, and reads again.
func (s *story) patched(machine *kubevirtv1.VirtualMachine, operations []map[string]any) (bool, any) {
	all := append([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": machine.ResourceVersion},
	}, operations...)
	body, err := json.Marshal(all)
	s.must(err, "write a patch")
	_, err = s.harvester.KubevirtV1().VirtualMachines(s.namespace).
		Patch(s.ctx, machine.Name, types.JSONPatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		s.must(err, "patch machine %s", machine.Name)
	}
	return err == nil, err
}

func hasVolume(machine *kubevirtv1.VirtualMachine, name string) bool {
	for _, volume := range machine.Spec.Template.Spec.Volumes {
		if volume.Name == name {
			return true
		}
	}
	return false
}

func (s *story) statusOf(node, volume string) *kubevirtv1.VolumeStatus {
	instance, err := s.instance(node)
	s.must(err, "read instance %s", node)
	for i := range instance.Status.VolumeStatus {
		if instance.Status.VolumeStatus[i].Name == volume {
			return &instance.Status.VolumeStatus[i]
		}
	}
	return nil
}

// What the node's half of the driver waits for before it looks for the disk.
func (s *story) nodePublish(node, claim string) {
	s.within(retryBudget, "its status is Ready and says which device it is", func() (bool, any) {
		status := s.statusOf(node, claim)
		return status != nil && status.HotplugVolume != nil && status.Phase == kubevirtv1.VolumeReady && status.Target != "", status
	})
}

func (s *story) expand(claim, size string) {
	claims := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	found, err := claims.Get(s.ctx, claim, metav1.GetOptions{})
	s.must(err, "read claim %s", claim)
	pods, err := s.kubernetes.CoreV1().Pods(s.namespace).List(s.ctx, metav1.ListOptions{})
	s.works(err, "pods may be listed")
	for _, pod := range pods.Items {
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil && volume.PersistentVolumeClaim.ClaimName == claim {
				say("a pod names the claim")
			}
		}
	}
	_, err = s.harvester.HarvesterhciV1beta1().Settings().Get(s.ctx, "csi-online-expand-validation", metav1.GetOptions{})
	s.works(err, "the setting csi-online-expand-validation is there")
	found.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
	_, err = claims.Update(s.ctx, found, metav1.UpdateOptions{})
	s.works(err, "the claim is asked to grow")
	s.within(expandBudget, "and grows", func() (bool, any) {
		found, err := claims.Get(s.ctx, claim, metav1.GetOptions{})
		s.must(err, "read claim %s", claim)
		capacity := found.Status.Capacity[corev1.ResourceStorage]
		return capacity.Cmp(resource.MustParse(size)) >= 0, found.Status
	})
}

// A publish that is asked again finds everything there and changes nothing.
func (s *story) publishIsRepeated(node, claim string) {
	machine, err := s.machine(node)
	s.must(err, "read machine %s", node)
	status := s.statusOf(node, claim)
	s.so(hasVolume(machine, claim) && status != nil && status.HotplugVolume != nil, "a repeated publish finds it plugged in", status)
}

func (s *story) unpublish(node, claim string) {
	s.within(retryBudget, "the disk is taken off the machine's lists", func() (bool, any) {
		machine, err := s.machine(node)
		s.must(err, "read machine %s", node)
		spec := machine.Spec.Template.Spec
		volumes, disks := []kubevirtv1.Volume{}, []kubevirtv1.Disk{}
		for _, volume := range spec.Volumes {
			if volume.Name != claim {
				volumes = append(volumes, volume)
			}
		}
		for _, disk := range spec.Domain.Devices.Disks {
			if disk.Name != claim {
				disks = append(disks, disk)
			}
		}
		return s.patched(machine, []map[string]any{
			{"op": "replace", "path": "/spec/template/spec/volumes", "value": volumes},
			{"op": "replace", "path": "/spec/template/spec/domain/devices/disks", "value": disks},
		})
	})
	s.within(retryBudget, "and is absent from the machine and its instance", func() (bool, any) {
		machine, err := s.machine(node)
		s.must(err, "read machine %s", node)
		status := s.statusOf(node, claim)
		return !hasVolume(machine, claim) && status == nil, status
	})
}

func (s *story) deleteVolume(claim string) {
	_, err := s.harvester.HarvesterhciV1beta1().VolumeRemoteRestores(s.namespace).Get(s.ctx, claim, metav1.GetOptions{})
	s.so(isGone(err), "it was never restored from elsewhere, which is NotFound and nothing else", err)
	claims := s.kubernetes.CoreV1().PersistentVolumeClaims(s.namespace)
	_, err = claims.Get(s.ctx, claim, metav1.GetOptions{})
	s.must(err, "read claim %s", claim)
	s.works(claims.Delete(s.ctx, claim, metav1.DeleteOptions{}), "the claim is deleted")
	s.within(retryBudget, "and is gone", func() (bool, any) {
		_, err := claims.Get(s.ctx, claim, metav1.GetOptions{})
		return isGone(err), err
	})
}
