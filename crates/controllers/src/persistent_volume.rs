//! Releases volumes whose claim is gone, deletes those that go with it, and lets go of what nobody holds.
//!
//! The decisions are [`sheaf_planner::claim`], and all but that of resting are made on what the API itself says, since
//! each rests on a claim that is absent. The bytes of a volume are its node's to remove; only where there
//! are none, because it was never on a node, is that settled here.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::claim::{self, Reclaim, SeenVolume, VolumeStep};
use sheaf_resources::kinds::persistent_volume::{DATA_FINALIZER, PROTECTION_FINALIZER};

use crate::{Context, object::Object};

pub const NAME: &str = "persistent-volume";
/// More than any volume takes.
const MOST_STEPS: usize = 8;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run_side_by_side(Volumes { context }, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Volumes {
    context: Context,
}

impl Reconciler for Volumes {
    /// The volume's name.
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<PersistentVolume>(), memory.of::<PersistentVolumeClaim>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        match watch {
            0 => metadata.name.clone().into_iter().collect(),
            _ => metadata.uid.as_deref().map(claim::volume_name).into_iter().collect(),
        }
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let volume: Option<Object<PersistentVolume>> = eyes.find("", name).await?;
            let Some(volume) = volume else { return Ok(Next::rest()) };
            let spec = volume.typed.spec.clone().unwrap_or_default();
            let claim = spec.claim_ref.clone().unwrap_or_default();
            let holder: Option<Object<PersistentVolumeClaim>> = eyes
                .find(
                    claim.namespace.as_deref().unwrap_or_default(),
                    claim.name.as_deref().unwrap_or_default(),
                )
                .await?;
            let phase = volume.typed.status.as_ref().and_then(|status| status.phase.as_deref());
            let reclaim = spec.persistent_volume_reclaim_policy.as_deref();
            let seen = SeenVolume {
                claim_uid: claim.uid.as_deref().unwrap_or_default(),
                holder_uid: holder.as_ref().map(Object::uid),
                reclaim: if reclaim == Some("Delete") { Reclaim::Delete } else { Reclaim::Retain },
                released: phase == Some("Released"),
                being_deleted: volume.is_being_deleted(),
                protected: volume.has_finalizer(PROTECTION_FINALIZER),
                keeps_data: volume.has_finalizer(DATA_FINALIZER),
                placed: spec.node_affinity.is_some(),
            };
            match claim::next_volume_step(&seen) {
                VolumeStep::Rest => return Ok(Next::rest()),
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                VolumeStep::MarkReleased => volume.merge_status(json!({"phase": "Released"})).await?,
                VolumeStep::DeleteVolume => volume.delete().await?,
                VolumeStep::Unprotect => volume.remove_finalizer(PROTECTION_FINALIZER).await?,
                VolumeStep::ForgetData => volume.remove_finalizer(DATA_FINALIZER).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}
