//! What this host runs machines with, found out and put together for the agent.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use sheaf_agent::{
    metrics::MachineMetrics,
    ports::Ports,
    step::AfterStep,
    support_bundle::BundleShelf,
    virtual_machine_instance::{Abilities, Notes, Tools},
    virtualisation::{QEMU, Virtualisation},
};
use sheaf_client::objects::Objects;
use sheaf_hypervisor::{Hypervisor, HypervisorConfig, Launcher, UserIds, user_ids::Identity};
use sheaf_network::{Ipv4Net, Network, NetworkConfig, NetworkNames};
use sheaf_resources::kinds::ip_pool::{Cidr, DEFAULT_NETWORK, IPPool};
use sheaf_storage::{Storage, StorageConfig};
use tracing::{info, warn};

use crate::{deaths::Deaths, node::Node};

/// The hidden command under which this binary becomes QEMU.
const LAUNCHER: &str = "launch-machine";
/// The data directory whose node has the plain names of bridge and taps; others have names of their own.
const USUAL_DATA_DIR: &str = "/var/lib/sheaf";

#[derive(Debug, thiserror::Error)]
pub enum NoTools {
    #[error("this binary cannot be found again")]
    OwnBinary(#[source] io::Error),
    #[error("the place for notes about machines cannot be opened")]
    Notes(#[from] sheaf_agent::virtual_machine_instance::NoteError),
    #[error("the place for support bundles cannot be opened")]
    Bundles(#[from] sheaf_agent::support_bundle::ShelfError),
    #[error("the place for disks cannot be opened")]
    Storage(#[from] sheaf_storage::DiskError),
    #[error("the addresses of the machines' network cannot be read")]
    Addresses(#[source] Box<kube::Error>),
    #[error("the network of the machines cannot be as configured")]
    Network(#[from] sheaf_network::ConfigError),
}

/// Hands for the machines of this host. Touches nothing but the data directory.
pub async fn tools(node: &Node, vm_cidr: Cidr, metrics: Arc<MachineMetrics>) -> Result<Tools, NoTools> {
    let data_dir = &node.config.data_dir;
    let deaths = Deaths::new(node.config.die_after_step, node.config.die_as_told_in.clone());
    let mut hypervisor = hypervisor(data_dir)?;
    hypervisor.after_step = Arc::new(deaths.hook());
    let mut storage = StorageConfig::in_directory(data_dir);
    storage.after_step = sheaf_storage::AfterStep::call(deaths.hook());
    Ok(Tools {
        hypervisor: Arc::new(Hypervisor::new(hypervisor)),
        storage: Storage::open(storage).await?,
        ports: Arc::new(Ports::new(Arc::new(network(node, vm_cidr, &deaths)?))),
        notes: Notes::open(data_dir)?,
        metrics,
        soft_reboots: Arc::default(),
        after_step: AfterStep::call(deaths.hook()),
        bundles: Arc::new(BundleShelf::open(data_dir)?),
    })
}

/// How machines of a data directory are found and launched.
pub fn hypervisor(data_dir: &Path) -> Result<HypervisorConfig, NoTools> {
    let program = env::current_exe().map_err(NoTools::OwnBinary)?;
    Ok(HypervisorConfig::of_host(data_dir.to_owned(), Launcher { program, arguments: vec![LAUNCHER.into()] }))
}

/// What this host can do for machines; nothing where there is no QEMU to use. Takes about a second.
pub async fn examine(data_dir: &Path) -> (Virtualisation, Option<Abilities>) {
    let user_ids = UserIds::for_directory(data_dir);
    let identity = user_ids.choose(&Default::default()).flatten().map(|uid| Identity { uid, gid: uid });
    let virtualisation = Virtualisation::examine(Path::new(QEMU), identity).await;
    let Ok(capabilities) = virtualisation.qemu.clone() else { return (virtualisation, None) };
    for why in [&virtualisation.no_taps, &virtualisation.not_apart].into_iter().flatten() {
        warn!("{why}");
    }
    let direct_io = can_go_past_the_cache(data_dir);
    let (kvm, taps) = (virtualisation.kvm.is_usable(), virtualisation.no_taps.is_none());
    info!(qemu = %capabilities.version, kvm, taps, direct_io, "this node runs machines");
    (virtualisation, Some(Abilities { capabilities, kvm, taps, direct_io }))
}

fn network(node: &Node, vm_cidr: Cidr, deaths: &Deaths) -> Result<Network, NoTools> {
    let mut config = network_config(&node.config.data_dir, vm_cidr)?;
    config.guests_may_reach = node.config.listen.iter().map(|listen| listen.address.port()).collect();
    Ok(Network::new(config)?.after_step(sheaf_network::AfterStep::call(deaths.hook())))
}

/// The network of a data directory as far as its names go: enough to take it off the host.
pub fn bare_network(data_dir: &Path) -> Result<Network, NoTools> {
    Ok(Network::new(network_config(data_dir, Cidr::DEFAULT_NETWORK)?)?)
}

fn network_config(data_dir: &Path, vm_cidr: Cidr) -> Result<NetworkConfig, NoTools> {
    let names = match data_dir.to_string_lossy().as_ref() {
        USUAL_DATA_DIR => NetworkNames::plain(),
        other => NetworkNames::of_instance(other),
    };
    Ok(NetworkConfig::new(names, Ipv4Net::new_assert(vm_cidr.network, vm_cidr.prefix))?)
}

/// Whether files in the data directory can be read and written past the page cache: by trying.
fn can_go_past_the_cache(data_dir: &Path) -> bool {
    let path = data_dir.join(".direct-io");
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
    let mut options = fs::OpenOptions::new();
    let opened = options.create(true).truncate(true).write(true).custom_flags(direct).open(&path);
    let works = opened.and_then(|mut file| file.flush()).is_ok();
    _ = fs::remove_file(&path);
    works
}

/// The addresses of the default network, as they were settled by the first start of the cluster.
pub async fn settled_network(client: kube::Client, asked: Cidr) -> Result<Cidr, NoTools> {
    let (namespace, name) = DEFAULT_NETWORK.split_once('/').unwrap_or_default();
    let pools: Objects<IPPool> = Objects::namespaced(client, namespace);
    let pool = pools.get(name).await.map_err(|why| NoTools::Addresses(Box::new(why)))?;
    let settled = Cidr::parse(&pool.spec.ipv4_config.cidr).unwrap_or(asked);
    if settled != asked {
        warn!(%settled, %asked, "--vm-cidr is for the first start of a cluster; what was settled then stays");
    }
    Ok(settled)
}
