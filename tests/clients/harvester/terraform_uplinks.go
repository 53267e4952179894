package main

import (
	"encoding/json"
	"time"

	networkv1 "github.com/harvester/harvester-network-controller/pkg/apis/network.harvesterhci.io/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// uplink: harvester_clusternetwork and harvester_vlanconfig. The nodes are read from an annotation. Its end is watched
// for after it was asked for, without a version, and waited for until it is seen. The NIC is one that no host has.
func (s *story) uplink(network, name string) {
	networks, configs := s.harvester.NetworkV1beta1().ClusterNetworks(), s.harvester.NetworkV1beta1().VlanConfigs()
	_, err := networks.Create(s.ctx, &networkv1.ClusterNetwork{ObjectMeta: metav1.ObjectMeta{Name: network}},
		metav1.CreateOptions{})
	s.works(err, "a cluster network is created")
	_, err = configs.Create(s.ctx, &networkv1.VlanConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkv1.VlanConfigSpec{
			ClusterNetwork: network,
			Uplink: networkv1.Uplink{
				NICs:        []string{"no-such-nic0"},
				LinkAttrs:   &networkv1.LinkAttrs{MTU: 1500, TxQLen: -1},
				BondOptions: &networkv1.BondOptions{Mode: networkv1.BondMoDeActiveBackup, Miimon: 100},
			},
		},
	}, metav1.CreateOptions{})
	s.works(err, "an uplink of it is configured")
	found, err := configs.Get(s.ctx, name, metav1.GetOptions{})
	s.must(err, "read VlanConfig %s", name)
	var nodes []string
	s.must(json.Unmarshal([]byte(found.Annotations["network.harvesterhci.io/matched-nodes"]), &nodes), "read its nodes")
	s.so(len(nodes) > 0, "it says which nodes it is for", found.Annotations)

	s.works(configs.Delete(s.ctx, name, metav1.DeleteOptions{}), "it is deleted")
	seconds := int64(deleteBudget / time.Second)
	events, err := configs.Watch(s.ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, TimeoutSeconds: &seconds})
	s.must(err, "watch VlanConfig %s", name)
	defer events.Stop()
	gone := false
	for event := range events.ResultChan() {
		if event.Type == watch.Deleted {
			gone = true
			break
		}
	}
	s.so(gone, "and who watches from then on sees it go", nil)
	s.works(networks.Delete(s.ctx, network, metav1.DeleteOptions{}), "the cluster network is deleted")
}
