//! Lets go of contents whose VolumeSnapshot is gone, and deletes those that go with it.
//!
//! The decisions are [`sheaf_planner::volume_snapshot`], and all but that of resting are made on what the API itself says,
//! since each rests on a snapshot that is absent. A snapshot that goes as it should takes its content along itself
//! ([`crate::volume_snapshot`]); this is for one that somebody tore away. The bytes are the node's to remove.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::volume_snapshot::{self, ContentStep};
use sheaf_resources::kinds::{
    volume_snapshot::VolumeSnapshot,
    volume_snapshot_content::{BOUND_PROTECTION, VolumeSnapshotContent},
};

use crate::{
    Context,
    object::{Object, Place, place_of},
    references::References,
};

pub const NAME: &str = "volume-snapshot-content";
/// More than any content takes.
const MOST_STEPS: usize = 6;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let contents = Contents { context, references: Arc::default() };
    reconciling::run_side_by_side(contents, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Contents {
    context: Context,
    /// Contents, and the snapshot that each names.
    references: Arc<Mutex<References<String, Place>>>,
}

impl Reconciler for Contents {
    /// The content's name.
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<VolumeSnapshotContent>(), memory.of::<VolumeSnapshot>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        match (watch, place_of(metadata)) {
            (1, Some(snapshot)) => self.references.lock().to(&snapshot),
            (_, _) => metadata.name.clone().into_iter().collect(),
        }
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let content: Option<Object<VolumeSnapshotContent>> = eyes.find("", name).await?;
            let Some(content) = content else {
                self.references.lock().set(name, BTreeSet::new());
                return Ok(Next::rest());
            };
            let holder = content.typed.spec.volume_snapshot_ref.clone();
            let holder = (holder.namespace.unwrap_or_default(), holder.name.unwrap_or_default());
            self.references.lock().set(name, BTreeSet::from([holder.clone()]));
            let snapshot: Option<Object<VolumeSnapshot>> = eyes.find(&holder.0, &holder.1).await?;
            let step = volume_snapshot::next_content_step(&content.typed, snapshot.as_ref().map(Object::uid));
            match step {
                ContentStep::Rest => return Ok(Next::rest()),
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                ContentStep::DeleteContent => content.delete().await?,
                ContentStep::Release => content.remove_finalizer(BOUND_PROTECTION).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}
