package main

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/harvester/harvester/pkg/builder"
	"github.com/harvester/harvester/pkg/util"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

const (
	removeAllAnnotation = "harvesterhci.io/removeAllPersistentVolumeClaims"
	guestClusterLabel   = "guestcluster.harvesterhci.io/name"
	nodeDriverName      = "docker-machine-driver-harvester"
)

// The storage class that disks of an image are of, as both the node driver and the provider find it.
func (s *story) classOf(image string) string {
	namespace, name := s.named(image)
	found, err := s.harvester.HarvesterhciV1beta1().VirtualMachineImages(namespace).Get(s.ctx, name, metav1.GetOptions{})
	s.must(err, "read image %s", image)
	s.so(found.Status.StorageClassName != "", "image "+image+" says which storage class its disks are of", found.Status)
	return found.Status.StorageClassName
}

// A disk of an image, in Harvester's words.
func diskOf(image, class string) *builder.PersistentVolumeClaimOption {
	return &builder.PersistentVolumeClaimOption{
		ImageID:          image,
		VolumeMode:       corev1.PersistentVolumeBlock,
		AccessMode:       corev1.ReadWriteMany,
		StorageClassName: &class,
	}
}

func (s *story) machine(name string) (*kubevirtv1.VirtualMachine, error) {
	return s.harvester.KubevirtV1().VirtualMachines(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
}

func (s *story) instance(name string) (*kubevirtv1.VirtualMachineInstance, error) {
	return s.harvester.KubevirtV1().VirtualMachineInstances(s.namespace).Get(s.ctx, name, metav1.GetOptions{})
}

// settles waits until nobody has written a machine for a second. What the clients change in one GET and one PUT they
// change when a person plans again or a cluster shrinks, and not within milliseconds of a machine's first breath, while its
// status is still being told; they look every few seconds where this program looks all the time.
func (s *story) settles(name string) {
	version, since := "", time.Now()
	s.within(machineBudget, "machine "+name+" is left alone", func() (bool, any) {
		machine, err := s.machine(name)
		s.must(err, "read machine %s", name)
		if machine.ResourceVersion != version {
			version, since = machine.ResourceVersion, time.Now()
		}
		return time.Since(since) > time.Second, machine.Status
	})
}

// The claims of a machine's volumes that match.
func claimsOf(machine *kubevirtv1.VirtualMachine, want func(*kubevirtv1.PersistentVolumeClaimVolumeSource) bool) []string {
	var names []string
	for _, volume := range machine.Spec.Template.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil && want(claim) {
			names = append(names, claim.ClaimName)
		}
	}
	return names
}

// removed sets which claims go with a machine. Both clients write into the map as they find it.
func (s *story) removed(machine *kubevirtv1.VirtualMachine, claims []string) {
	s.panics(machine.Annotations != nil, "assignment to entry in nil map: the VirtualMachine has no annotations")
	machine.Annotations[util.RemovedPVCsAnnotationKey] = strings.Join(claims, ",")
}

// The address that the node driver takes: the first interface's first, which must be there.
func (s *story) firstAddress(instance *kubevirtv1.VirtualMachineInstance) string {
	s.panics(len(instance.Status.Interfaces) > 0,
		fmt.Sprintf("index out of range: phase %s with no status.interfaces", instance.Status.Phase))
	address, _, _ := strings.Cut(instance.Status.Interfaces[0].IP, "/")
	return address
}

func isIPv4(address string) bool {
	ip := net.ParseIP(address)
	return ip != nil && ip.To4() != nil
}

func isGone(err error) bool { return apierrors.IsNotFound(err) }
