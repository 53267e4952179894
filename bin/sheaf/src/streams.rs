//! The node's stream port: where it listens and what is behind it.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use sheaf_agent::{
    metrics::MachineMetrics,
    stream_port::{AddressesOf, BindError, ImageSink, SoftReboots, StreamPort, StreamPortConfig},
    support_bundle::BundleShelf,
};
use sheaf_hypervisor::Hypervisor;

use crate::node::Node;

/// Where other systems' agents listen, so that firewalls know it. The Node object says which port it became.
const USUAL_PORT: u16 = 10250;

/// What streams lead to.
pub struct Behind {
    pub hypervisor: Arc<Hypervisor>,
    pub addresses_of: AddressesOf,
    pub images: Arc<dyn ImageSink>,
    pub soft_reboots: Arc<SoftReboots>,
    pub metrics: Arc<MachineMetrics>,
    pub bundles: Arc<BundleShelf>,
}

/// Opens the port at the address by which others reach this node; at any port when the usual one is taken, as on a host
/// with several nodes.
pub async fn open(node: &Node, behind: &Behind) -> Result<(StreamPort, u16), BindError> {
    let advertised = node.config.advertise;
    let everywhere = match advertised {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let config = |listen| StreamPortConfig {
        listen,
        tls: node.certificates.agent_server_config(),
        hypervisor: behind.hypervisor.clone(),
        addresses_of: behind.addresses_of.clone(),
        images: behind.images.clone(),
        soft_reboots: behind.soft_reboots.clone(),
        metrics: behind.metrics.clone(),
        bundles: behind.bundles.clone(),
    };
    for listen in [SocketAddr::new(advertised, USUAL_PORT), SocketAddr::new(advertised, 0)] {
        match StreamPort::bind(config(listen)).await {
            Ok(open) => return Ok(open),
            Err(why) => tracing::debug!(%why, "trying another port for streams"),
        }
    }
    // The address is one that only others know this host by.
    StreamPort::bind(config(SocketAddr::new(everywhere, 0))).await
}
