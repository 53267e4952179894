package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var (
	loadBalancers = schema.GroupVersionResource{Group: "loadbalancer.harvesterhci.io", Version: "v1beta1", Resource: "loadbalancers"}
	ipPools       = schema.GroupVersionResource{Group: "loadbalancer.harvesterhci.io", Version: "v1beta1", Resource: "ippools"}
)

// loadBalancer: a Service of a guest cluster gets its address and gives it back, as harvester-cloud-provider goes. The
// types are not Harvester's here: they are in a module that this one does not depend on.
func loadBalancer(s *story) {
	asAdministrator, err := dynamic.NewForConfig(s.config)
	s.must(err, "make a dynamic client")
	pool := "pool-" + s.namespace
	_, err = asAdministrator.Resource(ipPools).Create(s.ctx, object("IPPool", pool, map[string]any{
		"ranges":   []any{map[string]any{"subnet": "192.0.2.0/24", "gateway": "192.0.2.1", "rangeStart": "192.0.2.10", "rangeEnd": "192.0.2.12"}},
		"selector": map[string]any{"scope": []any{map[string]any{"namespace": s.namespace, "project": "*", "guestCluster": "*"}}},
	}), metav1.CreateOptions{})
	s.works(err, "a pool of addresses is created")
	s.later(func(ctx context.Context) {
		_ = asAdministrator.Resource(ipPools).Delete(ctx, pool, metav1.DeleteOptions{})
	})

	s.becomesGuestCluster()
	client, err := dynamic.NewForConfig(s.config)
	s.must(err, "make a dynamic client")
	balancers := client.Resource(loadBalancers).Namespace(s.namespace)
	name := balancerName("guest", "default", "web", uuid.NewString())
	wanted := object("LoadBalancer", name, map[string]any{"ipam": "pool", "workloadType": "cluster"})
	wanted.SetAnnotations(map[string]string{
		"loadbalancer.harvesterhci.io/network": "", "loadbalancer.harvesterhci.io/project": "",
		"loadbalancer.harvesterhci.io/namespace": s.namespace, "loadbalancer.harvesterhci.io/cluster": "guest",
	})
	wanted.SetLabels(map[string]string{"cloudprovider.harvesterhci.io/cluster": "guest",
		"cloudprovider.harvesterhci.io/serviceNamespace": "default", "cloudprovider.harvesterhci.io/serviceName": "web"})
	_, err = balancers.Create(s.ctx, wanted, metav1.CreateOptions{})
	s.works(err, "a load balancer is created with the guest cluster's rights")
	address := ""
	// Ten looks, a second apart, and then it is deleted again.
	s.within(10*time.Second, "it is given an address", func() (bool, any) {
		found, err := balancers.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read load balancer %s", name)
		address, _, _ = unstructured.NestedString(found.Object, "status", "allocatedAddress", "ip")
		return address != "", found.Object["status"]
	})
	s.same("192.0.2.1", address[:9], "out of the pool")

	// Later syncs say, through the object itself, what address the Service has.
	s.within(time.Minute, "the Service's address is written", func() (bool, any) {
		found, err := balancers.Get(s.ctx, name, metav1.GetOptions{})
		s.must(err, "read load balancer %s", name)
		s.must(unstructured.SetNestedField(found.Object, address, "status", "address"), "set an address")
		_, err = balancers.Update(s.ctx, found, metav1.UpdateOptions{})
		return err == nil, err
	})
	found, err := balancers.Get(s.ctx, name, metav1.GetOptions{})
	s.must(err, "read load balancer %s", name)
	kept, _, _ := unstructured.NestedString(found.Object, "status", "address")
	s.same(address, kept, "and stays: without it the load balancer is taken for one that is not there, and never deleted")
	s.works(balancers.Delete(s.ctx, name, metav1.DeleteOptions{}), "it is deleted")
	s.within(time.Minute, "and is gone", func() (bool, any) {
		_, err := balancers.Get(s.ctx, name, metav1.GetOptions{})
		return isGone(err), err
	})
}

// The name that the cloud provider gives a Service's load balancer.
func balancerName(cluster, namespace, service, uid string) string {
	prefix := cluster + "-" + namespace + "-" + service + "-"
	sum := crc32.ChecksumIEEE([]byte(prefix + uid))
	if len(prefix) > 55 {
		prefix = prefix[:55]
	}
	return fmt.Sprintf("%s%08x", prefix, sum)
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec,
	}}
}
