//! Lets the machines of guest clusters say where they run, also when an operator labels their node otherwise. The
//! decision is [`sheaf_planner::topology`].
//!
//! They are told first when they are bound ([`virtual_machine_instance`](super::virtual_machine_instance)); from then on
//! here. Nothing else of an instance is written.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::topology;
use sheaf_resources::kinds::virtual_machine_instance::VirtualMachineInstance;

use crate::{
    Context,
    object::{Object, Place, place_of},
};

pub const NAME: &str = "virtual-machine-instance-topology";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Topology { context }, client).await;
}

struct Topology {
    context: Context,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Instance(Place),
    Node(String),
}

impl Reconciler for Topology {
    type Key = Key;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<VirtualMachineInstance>(), memory.of::<Node>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Key> {
        match watch {
            // Most machines are nobody's node.
            0 if !topology::is_told(metadata.labels.as_ref()) => Vec::new(),
            0 => place_of(metadata).map(Key::Instance).into_iter().collect(),
            _ => metadata.name.clone().map(Key::Node).into_iter().collect(),
        }
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Next<Key>, ReconcileError> {
        match key {
            Key::Node(name) => self.on_node(name).await.map(Next::wake),
            Key::Instance(place) => self.tell(place).await.map(|()| Next::rest()),
        }
    }
}

impl Topology {
    async fn on_node(&self, node: &str) -> Result<Vec<Key>, ReconcileError> {
        let instances = self.context.eyes().list::<VirtualMachineInstance>("").await?;
        let told = instances.iter().filter(|instance| {
            instance.status.node_name == node && topology::is_told(instance.metadata.labels.as_ref())
        });
        Ok(told.filter_map(|instance| place_of(&instance.metadata)).map(Key::Instance).collect())
    }

    async fn tell(&self, place: &Place) -> Result<(), ReconcileError> {
        let eyes = self.context.eyes();
        let Some(seen) = eyes.find::<VirtualMachineInstance>(&place.0, &place.1).await? else {
            return Ok(());
        };
        if self.change_of(&seen, &eyes).await?.is_none() {
            return Ok(());
        }
        // What is remembered of the node may only be late.
        let eyes = eyes.fresh();
        let Some(instance) = eyes.find::<VirtualMachineInstance>(&place.0, &place.1).await? else {
            return Ok(());
        };
        match self.change_of(&instance, &eyes).await? {
            Some(annotations) => instance.merge(json!({"metadata": {"annotations": annotations}})).await,
            None => Ok(()),
        }
    }

    async fn change_of(
        &self,
        instance: &Object<VirtualMachineInstance>,
        eyes: &crate::object::Eyes,
    ) -> Result<Option<serde_json::Value>, ReconcileError> {
        let metadata = instance.metadata();
        let is_settled = instance.typed.status.node_name.is_empty() || instance.is_being_deleted();
        if is_settled || !topology::is_told(metadata.labels.as_ref()) {
            return Ok(None);
        }
        // A node that is gone says nothing new.
        let Some(node) = eyes.find::<Node>("", &instance.typed.status.node_name).await? else {
            return Ok(None);
        };
        let changes = topology::changes(node.metadata().labels.as_ref(), metadata.annotations.as_ref());
        Ok((!changes.is_empty()).then(|| json!(changes)))
    }
}
