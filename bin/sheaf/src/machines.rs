//! What this host runs machines with, found out and put together for the agent.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
};

use sheaf_agent::{
    ports::Ports,
    step::AfterStep,
    virtual_machine_instance::{Abilities, Notes, Tools},
    virtualisation::{QEMU, Virtualisation},
};
use sheaf_hypervisor::{Hypervisor, HypervisorConfig, Launcher, user_ids::Identity};
use sheaf_network::{Network, NetworkConfig, NetworkNames, user_mode};
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
    #[error("the place for disks cannot be opened")]
    Storage(#[from] sheaf_storage::DiskError),
    #[error("the network of the machines cannot be as configured")]
    Network(#[from] sheaf_network::ConfigError),
}

/// What there is to run machines with, and how: none where there is no QEMU to use.
pub async fn examine(node: &Node) -> Result<(Virtualisation, Option<Tools>), NoTools> {
    let data_dir = &node.config.data_dir;
    let deaths = Deaths::after(node.config.die_after_step);
    let launcher = Launcher {
        program: env::current_exe().map_err(NoTools::OwnBinary)?,
        arguments: vec![LAUNCHER.into()],
    };
    let mut hypervisor = HypervisorConfig::of_host(data_dir.clone(), launcher);
    hypervisor.after_step = Arc::new(deaths.hook());
    let identity = hypervisor.user_ids.choose(&Default::default()).flatten();
    let identity = identity.map(|uid| Identity { uid, gid: uid });
    let virtualisation = Virtualisation::examine(Path::new(QEMU), identity).await;
    let Ok(capabilities) = virtualisation.qemu.clone() else { return Ok((virtualisation, None)) };

    let taps = user_mode::can_make_taps();
    if let Err(why) = &taps {
        warn!("{why}");
    }
    let direct_io = can_go_past_the_cache(data_dir);
    info!(qemu = %capabilities.version, kvm = virtualisation.kvm.is_usable(), taps = taps.is_ok(), direct_io,
        "this node runs machines");
    let abilities =
        Abilities { capabilities, kvm: virtualisation.kvm.is_usable(), taps: taps.is_ok(), direct_io };
    let mut storage = StorageConfig::in_directory(data_dir);
    storage.after_step = sheaf_storage::AfterStep::call(deaths.hook());
    let tools = Tools {
        hypervisor: Arc::new(Hypervisor::new(hypervisor)),
        storage: Storage::open(storage).await?,
        ports: Arc::new(Ports::new(Arc::new(network(node, &deaths)?))),
        notes: Notes::open(data_dir)?,
        abilities,
        after_step: AfterStep::call(deaths.hook()),
    };
    Ok((virtualisation, Some(tools)))
}

fn network(node: &Node, deaths: &Deaths) -> Result<Network, NoTools> {
    let data_dir = node.config.data_dir.to_string_lossy();
    let names = match data_dir.as_ref() {
        USUAL_DATA_DIR => NetworkNames::plain(),
        other => NetworkNames::of_instance(other),
    };
    let mut config = NetworkConfig::new(
        names,
        sheaf_network::Ipv4Net::new_assert(std::net::Ipv4Addr::new(10, 52, 0, 0), 16),
    )?;
    config.guests_may_reach = node.config.listen.iter().map(|listen| listen.address.port()).collect();
    Ok(Network::new(config)?.after_step(sheaf_network::AfterStep::call(deaths.hook())))
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
