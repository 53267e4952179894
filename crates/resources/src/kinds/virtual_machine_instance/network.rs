//! What an interface is connected to: the default network, or one that a
//! NetworkAttachmentDefinition describes.

use crate::{not_yet::NotYet, wire::wire_type};

wire_type! {
    /// What an interface is connected to: a name and one source.
    Network = "io.kubevirt.v1.Network" {
        /// The name of the interface it connects.
        name: String,
        /// The default network of virtual machines.
        pod: Option<PodNetwork>,
        /// A network that a NetworkAttachmentDefinition describes.
        multus: Option<MultusNetwork>,
    }
}

wire_type! {
    /// The default network of virtual machines.
    PodNetwork = "io.kubevirt.v1.PodNetwork" {
        /// Not served yet.
        #[serde(rename = "vmNetworkCIDR")]
        vm_network_cidr: NotYet,
        /// Not served yet.
        #[serde(rename = "vmIPv6NetworkCIDR")]
        vm_ipv6_network_cidr: NotYet,
    }
}

wire_type! {
    /// A network that a NetworkAttachmentDefinition describes.
    MultusNetwork = "io.kubevirt.v1.MultusNetwork" {
        /// `namespace/name`, or a name in the machine's own namespace.
        network_name: String,
        /// Not served yet.
        default: NotYet,
    }
}

impl MultusNetwork {
    /// Namespace and name of the definition; `None` when the name has more parts than two.
    pub fn definition<'a>(&'a self, own_namespace: &'a str) -> Option<(&'a str, &'a str)> {
        match self.network_name.split_once('/') {
            None => Some((own_namespace, &self.network_name)),
            Some((_, name)) if name.contains('/') => None,
            Some((namespace, name)) => Some((namespace, name)),
        }
    }
}
