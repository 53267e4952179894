//! What a virtual machine is made of: the part of KubeVirt's VirtualMachineInstanceSpec
//! that Sheaf acts on, and marks where the rest would be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, Toleration};

use super::{access_credential::AccessCredential, domain::Domain, network::Network, volume::Volume};
use crate::{
    not_yet::{NotYet, NotYetAtAll},
    wire::wire_type,
};

wire_type! {
    /// A virtual machine as it should run.
    VirtualMachineInstanceSpec = "io.kubevirt.v1.VirtualMachineInstanceSpec" {
        /// The virtual hardware.
        domain: Domain,
        /// What the disks of the domain are backed by, matched by name.
        volumes: Vec<Volume>,
        /// What the interfaces of the domain are connected to, matched by name.
        networks: Vec<Network>,
        /// Labels a node must have to run this machine.
        node_selector: BTreeMap<String, String>,
        /// Which nodes, and which machines beside it, suit this machine.
        affinity: Option<Affinity>,
        /// Taints of nodes that do not keep this machine away.
        tolerations: Vec<Toleration>,
        /// What happens when its node is emptied: LiveMigrate, LiveMigrateIfPossible, External or None.
        eviction_strategy: Option<String>,
        /// `Paused` starts the machine with its processors stopped.
        start_strategy: Option<String>,
        /// How long the guest may take to shut down before its power is cut.
        termination_grace_period_seconds: Option<i64>,
        /// The guest's host name; the machine's name when left out.
        hostname: String,
        /// Keys and passwords that are brought into the guest.
        access_credentials: Vec<AccessCredential>,
        /// `amd64` or `arm64`; the cluster's own when left out.
        architecture: String,
        /// Not served yet.
        subdomain: NotYet,
        /// Not served yet.
        priority_class_name: NotYet,
        /// Not served yet.
        scheduler_name: NotYet,
        /// Not served yet.
        topology_spread_constraints: NotYet,
        /// Not served yet.
        liveness_probe: NotYetAtAll,
        /// Not served yet.
        readiness_probe: NotYetAtAll,
        /// Not served yet.
        dns_policy: NotYet,
        /// Not served yet.
        dns_config: NotYet,
        /// Not served yet.
        resource_claims: NotYet,
    }
}

/// `spec.startStrategy` of a machine that waits for somebody to unpause it.
pub const START_PAUSED: &str = "Paused";

/// What `spec.evictionStrategy` may be.
pub const EVICTION_STRATEGIES: [&str; 4] = ["LiveMigrate", "LiveMigrateIfPossible", "External", "None"];

impl VirtualMachineInstanceSpec {
    /// The claims its volumes name, in their order.
    pub fn claim_names(&self) -> impl Iterator<Item = &str> {
        let claims = self.volumes.iter().filter_map(|volume| volume.persistent_volume_claim.as_ref());
        claims.map(|claim| claim.claim_name.as_str())
    }

    pub fn starts_paused(&self) -> bool {
        self.start_strategy.as_deref() == Some(START_PAUSED)
    }
}
