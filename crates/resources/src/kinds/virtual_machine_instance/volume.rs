//! What a disk is backed by: a claim, or a seed for cloud-init.

use crate::{not_yet::NotYetAtAll, wire::wire_type};

wire_type! {
    /// What a disk is backed by: a name and one source.
    Volume = "io.kubevirt.v1.Volume" {
        /// The name of the disk it backs.
        name: String,
        /// A claim in the machine's namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimSource>,
        /// A cloud-init seed in the NoCloud form.
        cloud_init_no_cloud: Option<CloudInitSource>,
        /// A cloud-init seed in the ConfigDrive form.
        cloud_init_config_drive: Option<CloudInitSource>,
        /// Not served yet.
        config_map: NotYetAtAll,
        /// Not served yet.
        container_disk: NotYetAtAll,
        /// Not served yet.
        data_volume: NotYetAtAll,
        /// Not served yet.
        #[serde(rename = "downwardAPI")]
        downward_api: NotYetAtAll,
        /// Not served yet.
        downward_metrics: NotYetAtAll,
        /// Not served yet.
        empty_disk: NotYetAtAll,
        /// Not served yet.
        ephemeral: NotYetAtAll,
        /// Not served yet.
        host_disk: NotYetAtAll,
        /// Not served yet.
        memory_dump: NotYetAtAll,
        /// Not served yet.
        secret: NotYetAtAll,
        /// Not served yet.
        service_account: NotYetAtAll,
        /// Not served yet.
        sysprep: NotYetAtAll,
    }
}

wire_type! {
    /// A claim in the machine's namespace.
    PersistentVolumeClaimSource = "io.kubevirt.v1.PersistentVolumeClaimVolumeSource" {
        /// The claim's name.
        claim_name: String,
        /// Whether the guest may only read it.
        read_only: bool,
        /// Whether it may be unplugged while the machine runs.
        hotpluggable: bool,
    }
}

wire_type! {
    /// What cloud-init finds: user data and network data, each from one place.
    CloudInitSource = "io.kubevirt.v1.CloudInitSource" {
        /// User data as it is.
        user_data: String,
        /// User data in base64.
        user_data_base64: String,
        /// A Secret whose key `userdata` has the user data.
        secret_ref: Option<SecretName>,
        /// Network data as it is.
        network_data: String,
        /// Network data in base64.
        network_data_base64: String,
        /// A Secret whose key `networkdata` has the network data.
        network_data_secret_ref: Option<SecretName>,
    }
}

wire_type! {
    /// A Secret in the machine's namespace. It may appear after the machine.
    SecretName = "io.kubevirt.v1.LocalSecretReference" {
        /// The Secret's name.
        name: String,
    }
}

impl Volume {
    /// Whether it may be plugged in and pulled out while its machine runs.
    pub fn is_hotpluggable(&self) -> bool {
        self.persistent_volume_claim.as_ref().is_some_and(|claim| claim.hotpluggable)
    }

    pub fn cloud_init(&self) -> Option<&CloudInitSource> {
        self.cloud_init_no_cloud.as_ref().or(self.cloud_init_config_drive.as_ref())
    }

    /// The Secrets it needs before the machine can start.
    pub fn secret_names(&self) -> impl Iterator<Item = &str> {
        let seed = self.cloud_init();
        let references =
            seed.into_iter().flat_map(|seed| [&seed.secret_ref, &seed.network_data_secret_ref]).flatten();
        references.map(|secret| secret.name.as_str())
    }
}
