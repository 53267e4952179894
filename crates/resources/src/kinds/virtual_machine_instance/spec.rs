//! What a virtual machine is made of: the part of KubeVirt's VirtualMachineInstanceSpec
//! that Sheaf acts on, and marks where the rest would be.

use std::collections::{BTreeMap, BTreeSet};

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

    /// The Secrets it refers to.
    pub fn secret_names(&self) -> BTreeSet<&str> {
        let seeds = self.volumes.iter().flat_map(|volume| volume.secret_names());
        let credentials = self.access_credentials.iter().flat_map(|credential| {
            let keys = credential.ssh_public_key.as_ref().map(|keys| &keys.source);
            let passwords = credential.user_password.as_ref().map(|passwords| &passwords.source);
            keys.into_iter().chain(passwords).filter_map(|source| source.secret.as_ref())
        });
        seeds.chain(credentials.map(|secret| secret.secret_name.as_str())).collect()
    }

    /// Every Secret it refers to becomes the one that `named` says.
    pub fn rename_secrets(&mut self, named: &dyn Fn(&str) -> String) {
        for volume in &mut self.volumes {
            let seeds = [&mut volume.cloud_init_no_cloud, &mut volume.cloud_init_config_drive];
            for seed in seeds.into_iter().flatten() {
                for secret in [&mut seed.secret_ref, &mut seed.network_data_secret_ref].into_iter().flatten()
                {
                    secret.name = named(&secret.name);
                }
            }
        }
        for credential in &mut self.access_credentials {
            let keys = credential.ssh_public_key.as_mut().map(|keys| &mut keys.source);
            let passwords = credential.user_password.as_mut().map(|passwords| &mut passwords.source);
            for secret in keys.into_iter().chain(passwords).filter_map(|source| source.secret.as_mut()) {
                secret.secret_name = named(&secret.secret_name);
            }
        }
    }

    pub fn starts_paused(&self) -> bool {
        self.start_strategy.as_deref() == Some(START_PAUSED)
    }
}
