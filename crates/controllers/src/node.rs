//! Says on every node how much of its disk is promised to volumes, for people to read beside what it has.
//!
//! Nothing is decided by it: whoever promises counts anew. So it may be some seconds late, and is, when many volumes come
//! at once: a node that is written wakes everybody who looks at nodes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_resources::{kinds::node::PROMISED_ANNOTATION, quantity};
use tokio::time::Instant;

use crate::{Context, object::Object, volume_room};

pub const NAME: &str = "node";
/// No node is written more often than this.
const WRITE_EVERY: Duration = Duration::from_secs(2);

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Nodes { context, written: BTreeMap::new() }, client).await;
}

struct Nodes {
    context: Context,
    /// When each was last written.
    written: BTreeMap<String, Instant>,
}

impl Reconciler for Nodes {
    /// The node's name.
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<Node>(), memory.of::<PersistentVolume>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        match watch {
            0 => metadata.name.clone().into_iter().collect(),
            // Where it is or was its metadata do not say.
            _ => self.written.keys().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let eyes = self.context.eyes();
        let Some(node) = eyes.find::<Node>("", name).await?.filter(|node| !node.is_being_deleted()) else {
            self.written.remove(name);
            return Ok(Next::rest());
        };
        let promised = volume_room::look(&eyes).await?.promised_on(name);
        let promised = quantity::bytes(promised).0;
        let written = self.written.get(name).map(Instant::elapsed);
        if node.annotation(PROMISED_ANNOTATION) == promised {
            self.written.entry(name.clone()).or_insert_with(Instant::now);
            return Ok(Next::rest());
        }
        if let Some(left) =
            written.and_then(|ago| WRITE_EVERY.checked_sub(ago)).filter(|left| !left.is_zero())
        {
            return Ok(Next::again_after(left));
        }
        self.written.insert(name.clone(), Instant::now());
        write(&node, &promised).await?;
        Ok(Next::rest())
    }
}

async fn write(node: &Object<Node>, promised: &str) -> Result<(), ReconcileError> {
    node.merge(json!({"metadata": {"annotations": {PROMISED_ANNOTATION: promised}}})).await
}
