//! A node's hands, one module per kind: what one host does of what the objects say.
//!
//! The agent asks the public Kubernetes API as its own node and nothing else, so it sees and writes what a node
//! may. It is the only writer of its node's status. It keeps no memory that the host or the API does not
//! hold: killed at any point, the next one looks at both and carries on.
//!
//! Deliberately absent: deciding what should run where. A controller binds, the agent obeys.

pub mod host;
pub mod node;
pub mod virtualisation;

use kube::Client;
use sheaf_world::World;

use crate::{host::HostView, node::NodeKeeper, virtualisation::Virtualisation};

/// What an agent must be told, since neither the host nor the API can.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name, in the API and in its certificate.
    pub name: String,
    /// The address at which others reach this node.
    pub address: String,
    /// What it calls itself in the version column.
    pub version: String,
    pub host: HostView,
    pub virtualisation: Virtualisation,
}

/// Runs the agent until dropped. `client` is the node's own.
pub async fn run(client: Client, world: World, settings: Settings) {
    NodeKeeper::new(client, world, settings).keep().await;
}
