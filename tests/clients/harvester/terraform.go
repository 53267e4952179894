package main

import (
	"time"

	"github.com/harvester/harvester/pkg/builder"
)

// What the provider gives each kind of thing.
const (
	machineBudget        = 2 * time.Minute
	machineDeleteBudget  = 5 * time.Minute
	imageBudget          = 5 * time.Minute
	clusterNetworkBudget = time.Minute
	deleteBudget         = 5 * time.Minute
)

const terraformName = "terraform-provider-harvester"

// terraform: one of each resource that a plan for a machine has, made, changed and destroyed in the order that a plan
// does it, as terraform-provider-harvester goes.
func terraform(s *story) {
	key := s.keyPair("plan-key")
	s.setting("max-hotplug-ratio", "3")
	s.uplink("plan-net", "plan-uplink")
	tagged := s.network("plan-vlan", 100, builder.NetworkTypeVLAN)
	// Not every host can tag frames, so this is the one that machines are on.
	network := s.network("plan-network", 0, "UntaggedNetwork")
	image := s.uploadedImage("plan-image", s.args[0])
	s.storageClass("plan-class-" + s.namespace)
	secret := s.cloudInitSecret("plan-cloudinit", key)
	s.volume("plan-volume", "")
	s.volume("plan-volume-of-image", image)

	s.planMachine("plan-vm", image, network, key, secret)
	s.planChanges("plan-vm")
	s.planChangesAndRestarts("plan-vm")
	s.planDestroys("plan-vm")
	s.offMachine("plan-off", image, network)

	s.volumeGoes("plan-volume")
	s.volumeGoes("plan-volume-of-image")
	s.imageGoes(image)
	s.networkGoes(network)
	s.networkGoes(tagged)
	for _, kind := range []string{"secrets", "persistentvolumeclaims", "storageclasses"} {
		for _, sent := range s.wire.types("POST", "/"+kind) {
			s.so(sent == protobuf, "every body of "+kind+" was protobuf", sent)
		}
	}
}
