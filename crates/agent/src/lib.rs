//! A node's hands, one module per kind: what one host does of what the objects say.
//!
//! The agent asks the public Kubernetes API as its own node and nothing else, so it sees and writes what a node
//! may. It is the only writer of its node's status. It keeps no memory that the host or the API does not
//! hold: killed at any point, the next one looks at both and carries on.
//!
//! Deliberately absent: deciding what should run where. A controller binds, the agent obeys.

mod disk_space;
pub mod host;
pub mod links;
mod load_balancer;
mod merge;
pub mod metrics;
pub mod node;
pub mod persistent_volume;
pub mod ports;
pub mod step;
pub mod stream_port;
pub mod support_bundle;
pub mod virtual_machine_image;
pub mod virtual_machine_instance;
pub mod virtualisation;
pub mod volume_layers;
pub mod volume_snapshot_content;
mod workshop;

use std::sync::Arc;

use kube::Client;
use sheaf_client::reconciling;
use sheaf_world::World;

use crate::{
    host::HostView,
    metrics::{Sampler, TapOf},
    node::NodeKeeper,
    persistent_volume::VolumeKeeper,
    virtual_machine_image::ImageKeeper,
    virtual_machine_instance::{Abilities, Hands, Tools},
    virtualisation::Virtualisation,
    volume_snapshot_content::SnapshotTaker,
};

/// What an agent must be told, since neither the host nor the API can.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name, in the API and in its certificate.
    pub name: String,
    /// The address at which others reach this node.
    pub address: String,
    /// Where its stream port listens, if it has one.
    pub stream_port: Option<u16>,
    /// What it calls itself in the version column.
    pub version: String,
    pub host: HostView,
    pub virtualisation: Virtualisation,
    /// Whether images may be fetched from this host itself and its link.
    pub allow_local_images: bool,
}

/// Runs the agent until dropped, which leaves all machines running. `client` is the node's own; on a host that has no
/// abilities it keeps its Node object and runs nothing.
pub async fn run(
    client: Client,
    world: World,
    settings: Settings,
    tools: Tools,
    abilities: Option<Abilities>,
) {
    let node = NodeKeeper::new(client.clone(), world.clone(), settings.clone()).keep();
    // Also where there is nothing to run machines with: such a host needs help most.
    let at_hand = tools.clone();
    let bundles = support_bundle::run(client.clone(), world.clone(), &settings, &at_hand);
    let names = tools.ports.network().config().names.clone();
    let links = links::run(client.clone(), world.clone(), settings.name.clone(), names);
    let Some(abilities) = abilities else {
        return tokio::select! {
            biased;
            () = node => {}
            () = bundles => {}
            () = links => {}
        };
    };
    let sweep = virtual_machine_image::sweep::run(client.clone(), tools.storage.clone());
    let (ports, has_taps) = (tools.ports.clone(), abilities.taps);
    let answers = async {
        match has_taps {
            true => ports.serve().await,
            false => std::future::pending().await,
        }
    };
    let taps = tools.ports.clone();
    let tap_of: TapOf = Arc::new(move |id, nic| taps.tap_of(id, nic).to_string());
    let sampler = Sampler {
        hypervisor: tools.hypervisor.clone(),
        notes: tools.notes.clone(),
        tap_of: has_taps.then_some(tap_of),
        world: world.clone(),
        metrics: tools.metrics.clone(),
    };
    let hands = Arc::new(Hands::new(client.clone(), world, &settings.name, tools, abilities));
    let images = ImageKeeper::new(hands.clone(), settings.allow_local_images);
    let volumes = VolumeKeeper { hands: hands.clone() };
    let snapshots = SnapshotTaker { hands: hands.clone() };
    tokio::select! {
        biased;
        () = node => {}
        () = bundles => {}
        () = links => {}
        () = reconciling::run(images, client.clone()) => {}
        () = reconciling::run(volumes, client.clone()) => {}
        () = reconciling::run(snapshots, client) => {}
        () = volume_layers::run(hands.clone()) => {}
        () = disk_space::run(hands.clone()) => {}
        () = load_balancer::run(hands.clone()) => {}
        () = sweep => {}
        () = answers => {}
        () = sampler.run() => {}
        () = virtual_machine_instance::run(hands) => {}
    }
}
