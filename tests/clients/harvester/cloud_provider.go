package main

import (
	"sync"
	"time"

	"github.com/harvester/harvester/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// cloudProvider: how a guest cluster's nodes come to know which machines they are, as harvester-cloud-provider finds
// out with the rights that it has.
func cloudProvider(s *story) {
	asAdministrator := s.config
	image, network := s.args[0], s.args[1]
	s.becomesGuestCluster()
	asGuest := s.config
	s.healthOfCache()
	instances := s.cachesInstances()

	s.use(asAdministrator)
	s.placeHosts()
	s.driverCreates("cloud-node", image, network, "#cloud-config\n")
	s.becomesRunning("cloud-node")
	s.isReached("cloud-node")

	s.use(asGuest)
	instances.seen(s, "the cache sees the instance run, with its addresses", "cloud-node",
		func(instance *kubevirtv1.VirtualMachineInstance) bool {
			return instance.Status.Phase == kubevirtv1.Running && len(instance.Status.Interfaces) == 2
		})
	s.nodeName("cloud-node")
	uid := s.instanceMetadata("cloud-node", network)
	s.instanceShutdown("cloud-node", false)

	s.use(asAdministrator)
	s.driverStops("cloud-node")
	s.use(asGuest)
	s.instanceShutdown("cloud-node", true)
	instances.gone(s, "the cache sees the instance go", "cloud-node")
	machine, err := s.machine("cloud-node")
	s.works(err, "a machine that is off exists")
	s.same(uid, machine.UID, "and is who it was")
	instances.Lock()
	s.so(len(instances.bare) == 0, "at no version did it run without interfaces", instances.bare)
	instances.Unlock()
	s.use(asAdministrator)
	s.driverRemoves("cloud-node", false)
	s.use(asGuest)
	_, err = s.machine("cloud-node")
	s.so(isGone(err), "one that is gone is NotFound, and its node goes with it", err)
}

func (s *story) healthOfCache() {
	err := s.kubernetes.Discovery().RESTClient().Get().AbsPath("/version").Timeout(15 * time.Second).Do(s.ctx).Error()
	s.works(err, "/version answers, which is what a cache waits for")
}

// A cache that lists afresh, in pages of 500, and then watches.
type instances struct {
	sync.Mutex
	by map[string]*kubevirtv1.VirtualMachineInstance
	// What the node driver would have panicked at, had it looked at that very moment: a watch sees them all.
	bare []string
}

func (s *story) cachesInstances() *instances {
	all := &instances{by: map[string]*kubevirtv1.VirtualMachineInstance{}}
	client := s.harvester.KubevirtV1().VirtualMachineInstances(s.namespace)
	informer := cache.NewSharedInformer(&cache.ListWatch{
		ListFunc: func(options metav1.ListOptions) (runtime.Object, error) {
			// Lasso asks for what is so now, never for whatever is at hand.
			options.ResourceVersion, options.Limit = "", 500
			return client.List(s.ctx, options)
		},
		WatchFunc: func(options metav1.ListOptions) (watch.Interface, error) {
			options.AllowWatchBookmarks = true
			return client.Watch(s.ctx, options)
		},
	}, &kubevirtv1.VirtualMachineInstance{}, 0)
	set := func(object any) {
		instance := object.(*kubevirtv1.VirtualMachineInstance)
		all.Lock()
		defer all.Unlock()
		all.by[instance.Name] = instance
		if instance.Status.Phase == kubevirtv1.Running && len(instance.Status.Interfaces) == 0 {
			all.bare = append(all.bare, instance.ResourceVersion)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, object any) { set(object) },
		DeleteFunc: func(object any) {
			if unknown, isUnknown := object.(cache.DeletedFinalStateUnknown); isUnknown {
				object = unknown.Obj
			}
			all.Lock()
			defer all.Unlock()
			delete(all.by, object.(*kubevirtv1.VirtualMachineInstance).Name)
		},
	})
	s.must(err, "watch instances")
	go informer.Run(s.ctx.Done())
	s.within(time.Minute, "instances are listed and watched", func() (bool, any) { return informer.HasSynced(), nil })
	return all
}

func (i *instances) look(name string) *kubevirtv1.VirtualMachineInstance {
	i.Lock()
	defer i.Unlock()
	return i.by[name]
}

func (i *instances) seen(s *story, claim, name string, is func(*kubevirtv1.VirtualMachineInstance) bool) {
	s.within(time.Minute, claim, func() (bool, any) {
		found := i.look(name)
		return found != nil && is(found), found
	})
}

func (i *instances) gone(s *story, claim, name string) {
	s.within(time.Minute, claim, func() (bool, any) { found := i.look(name); return found == nil, found })
}

// The node's name is what the guest's agent says; without an agent, an error has the instance's name taken for it.
func (s *story) nodeName(name string) {
	instance, err := s.instance(name)
	s.must(err, "read instance %s", name)
	s.same(nodeDriverName, instance.Labels[builder.LabelKeyVirtualMachineCreator], "the instance says who made it")
	s.so(instance.Annotations != nil, "and has annotations, without which it is passed over", instance.ObjectMeta)
	var info kubevirtv1.VirtualMachineInstanceGuestAgentInfo
	err = s.subresources.Get().Namespace(s.namespace).Resource("virtualmachineinstances").Name(name).
		SubResource("guestosinfo").Do(s.ctx).Into(&info)
	if err == nil {
		s.so(info.Hostname != "", "the guest says who it is", info)
		return
	}
	say("the guest has no agent, and asking it is an error: " + err.Error())
}

// Whoever runs the hosts says where they are.
func (s *story) placeHosts() {
	client := s.kubernetes.CoreV1().Nodes()
	hosts, err := client.List(s.ctx, metav1.ListOptions{})
	s.must(err, "list nodes")
	where := []byte(`{"metadata":{"labels":{"topology.kubernetes.io/region":"north","topology.kubernetes.io/zone":"left"}}}`)
	for _, host := range hosts.Items {
		_, err := client.Patch(s.ctx, host.Name, types.MergePatchType, where, metav1.PatchOptions{})
		s.must(err, "label node %s", host.Name)
	}
}

func (s *story) instanceMetadata(name, network string) any {
	machine, err := s.machine(name)
	s.works(err, "the machine may be read")
	s.so(machine.UID != "", "its uid makes the node's providerID", machine.ObjectMeta)
	instance, err := s.instance(name)
	s.works(err, "and so may its instance")
	s.same("north", instance.Annotations[corev1.LabelTopologyRegion], "the instance says in which region it runs")
	s.same("left", instance.Annotations[corev1.LabelTopologyZone], "and in which zone")
	first := ""
	for _, one := range instance.Spec.Networks {
		if one.Multus != nil && first == "" {
			s.same(network, one.Multus.NetworkName, "its first network is the one it was given")
			first = one.Name
		}
	}
	var addresses []string
	for _, nic := range instance.Status.Interfaces {
		if nic.Name == first {
			addresses = append(nic.IPs, nic.IP)
		}
	}
	s.so(len(addresses) > 0 && isIPv4(addresses[0]), "and the node's address is found by that network's name", instance.Status.Interfaces)
	return machine.UID
}

func (s *story) instanceShutdown(name string, wanted bool) {
	s.within(time.Minute, map[bool]string{true: "it is shut down", false: "it is not shut down"}[wanted], func() (bool, any) {
		machine, err := s.machine(name)
		s.must(err, "read machine %s", name)
		return machine.Status.Ready != wanted, machine.Status
	})
}
