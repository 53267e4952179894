//! What the nodes' disks have room for, as the controllers see it.
//!
//! Whoever promises room (makes a volume, makes one larger, or puts one on a node) holds [`Context::promising`] from looking
//! to writing, and what it wrote is remembered before the next one looks. So one set of controllers never promises the
//! last room twice, and what it has not heard of yet (a volume that went) only makes it promise less. Two sets of
//! controllers on one cluster may promise it twice, if they do so within the moment it takes to hear of each other.
//!
//! [`Context::promising`]: crate::Context::promising

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use sheaf_client::reconciling::ReconcileError;
use sheaf_planner::{
    placement,
    volume_room::{Rooms, size_of},
};
use sheaf_resources::kinds::{
    setting::{OVERCOMMIT_CONFIG, Setting},
    virtual_machine::admission::Overcommit,
};

use crate::object::{Eyes, Object};

/// Who waits for room looks again this often, and says no sooner that the numbers are others now.
pub(crate) const LOOK_FOR_ROOM_EVERY: Duration = Duration::from_secs(30);

pub(crate) async fn look(eyes: &Eyes) -> Result<Rooms, ReconcileError> {
    let eyes = eyes.remembered();
    let nodes: Vec<Arc<Node>> = eyes.list("").await?;
    let volumes: Vec<Arc<PersistentVolume>> = eyes.list("").await?;
    let setting: Option<Object<Setting>> = eyes.find("", OVERCOMMIT_CONFIG).await?;
    let overcommit = setting.map_or_else(Overcommit::default, |one| Overcommit::parse(one.typed.effective()));
    let (nodes, volumes) = (nodes.iter().map(|node| &**node), volumes.iter().map(|volume| &**volume));
    Ok(Rooms::of(nodes, volumes, overcommit.storage_percent))
}

/// A node for a volume that is nowhere yet: one with room for it. It was promised already, so where there is no room it
/// is still kept.
pub(crate) async fn node_for(
    eyes: &Eyes,
    volume: &PersistentVolume,
) -> Result<Option<String>, ReconcileError> {
    let nodes: Vec<Arc<Node>> = eyes.list("").await?;
    let rooms = look(eyes).await?;
    let asked = size_of(volume).unwrap_or(0);
    let has_room = |node: &&Arc<Node>| {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        rooms.left_on(name).is_none_or(|left| asked <= left)
    };
    let roomy: Vec<Arc<Node>> = nodes.iter().filter(has_room).cloned().collect();
    let node = placement::any_node(&roomy).or_else(|| placement::any_node(&nodes));
    Ok(node.map(str::to_owned))
}
