//! Gives every VolumeSnapshot its content, says in its status what the content says, and lets it go when the bytes are
//! gone.
//!
//! The decisions are [`sheaf_planner::volume_snapshot`]; what becomes of a content that lost its snapshot is
//! [`crate::volume_snapshot_content`]. The bytes are the business of the node that has the volume: its agent acts on the
//! content alone.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::volume_snapshot::{self, Claim, Reason, Seen, Step};
use sheaf_resources::kinds::{
    persistent_volume,
    persistent_volume_claim::DataSource,
    storage_class::PROVISIONER,
    volume_snapshot::{
        ANNOTATIONS_OF_CONTENT, AS_SOURCE_PROTECTION, BOUND_PROTECTION, VolumeSnapshot, VolumeSnapshotStatus,
    },
    volume_snapshot_class::VolumeSnapshotClass,
    volume_snapshot_content::{
        BOUND_PROTECTION as CONTENT_PROTECTION, DATA_FINALIZER, NODE_ANNOTATION, VolumeSnapshotContent,
    },
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    persistent_volume_claim::{is_bound, is_in_time, is_of, is_pending_copy_of, on_node},
    references::References,
    telling::{How, tell},
    volume_room,
};

pub const NAME: &str = "volume-snapshot";
const COMPONENT: &str = "snapshot-controller";
/// More than any snapshot takes.
const MOST_STEPS: usize = 12;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let snapshots = Snapshots { context, references: Arc::default(), waiting: Arc::default() };
    reconciling::run_side_by_side(snapshots, client, crate::SIDE_BY_SIDE).await;
}

/// What a snapshot depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Content(String),
    Class(String),
    Claim(Place),
}

#[derive(Clone)]
struct Snapshots {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
    /// Snapshots that wait for a node, or for volumes to be made of them.
    waiting: Arc<Mutex<BTreeSet<Place>>>,
}

impl Reconciler for Snapshots {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VolumeSnapshot>(),
            memory.of::<VolumeSnapshotContent>(),
            memory.of::<VolumeSnapshotClass>(),
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<Node>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let name = || metadata.name.clone().unwrap_or_default();
        match (watch, place_of(metadata)) {
            (0, place) => place.into_iter().collect(),
            (1, _) => self.references.lock().to(&Thing::Content(name())),
            (2, _) => self.references.lock().to(&Thing::Class(name())),
            (3, Some(claim)) => {
                let mut keys = self.references.lock().to(&Thing::Claim(claim.clone()));
                keys.extend(self.waiting.lock().iter().filter(|place| place.0 == claim.0).cloned());
                keys
            }
            (_, _) => self.waiting.lock().iter().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.lock().remove(place);
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let snapshot: Option<Object<VolumeSnapshot>> = eyes.find(&place.0, &place.1).await?;
            let Some(snapshot) = snapshot else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let look = self.look(&eyes, place, &snapshot).await?;
            let now = self.context.world.clock.now().as_second();
            let step = volume_snapshot::next_step(&look.seen(&snapshot.typed, now));
            // Before the last look, so that whatever comes or goes during it wakes us.
            if let Step::Wait(Reason::InUse | Reason::NoNode) = step {
                self.waiting.lock().insert(place.clone());
            }
            match step {
                Step::Rest => return Ok(Next::rest()),
                // Most of them rest on what is absent, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::Wait(reason) => {
                    if matches!(reason, Reason::UnboundClaim(_) | Reason::NoNode) {
                        let words = reason.words();
                        let words = ("Normal", "SnapshotPending", words.as_str());
                        tell(&self.context, COMPONENT, &snapshot, words, How::Once).await;
                    }
                    return Ok(Next::rest());
                }
                step => self.act(&eyes, &step, &snapshot, &look).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

struct Look {
    content: Option<Object<VolumeSnapshotContent>>,
    class: Option<Object<VolumeSnapshotClass>>,
    claim: Claim,
    volume: Option<Object<PersistentVolume>>,
    kept_on: String,
    in_use: bool,
}

impl Look {
    fn seen<'a>(&'a self, snapshot: &'a VolumeSnapshot, now_secs: i64) -> Seen<'a> {
        Seen {
            snapshot,
            content: self.content.as_ref().map(|content| &*content.typed),
            class: self.class.as_ref().map(|class| &*class.typed),
            claim: &self.claim,
            kept_on: &self.kept_on,
            in_use: self.in_use,
            now_secs,
        }
    }
}

impl Snapshots {
    async fn look(
        &self,
        eyes: &Eyes,
        place: &Place,
        snapshot: &Object<VolumeSnapshot>,
    ) -> Result<Look, ReconcileError> {
        let spec = &snapshot.typed.spec;
        let content_name = volume_snapshot::wanted_content(&snapshot.typed);
        let class_name = spec.volume_snapshot_class_name.clone().unwrap_or_default();
        let claim_name = spec.source.persistent_volume_claim_name.clone().unwrap_or_default();
        let things = [
            Thing::Content(content_name.clone()),
            Thing::Class(class_name.clone()),
            Thing::Claim((place.0.clone(), claim_name.clone())),
        ];
        self.references.lock().set(place, BTreeSet::from(things));
        let content: Option<Object<VolumeSnapshotContent>> = eyes.find("", &content_name).await?;
        let mut look = Look {
            content,
            class: None,
            claim: Claim::Missing,
            volume: None,
            kept_on: String::new(),
            in_use: false,
        };
        if snapshot.is_being_deleted() {
            look.in_use = is_being_copied(eyes, snapshot).await?;
            return Ok(look);
        }
        match &look.content {
            // All that is to be known of it the content says.
            Some(content) if !volume_snapshot::node_of(&content.typed).is_empty() => {}
            Some(content) => look.kept_on = kept_on(eyes, content).await?,
            None => {
                look.class = eyes.find("", &class_name).await?;
                (look.claim, look.volume) = look_at_claim(eyes, snapshot, &claim_name).await?;
            }
        }
        Ok(look)
    }

    async fn act(
        &self,
        eyes: &Eyes,
        step: &Step,
        snapshot: &Object<VolumeSnapshot>,
        look: &Look,
    ) -> Result<(), ReconcileError> {
        match (step, &look.content) {
            (Step::Rest | Step::Wait(_), _) => {}
            (Step::Protect, _) => {
                let mut finalizers = snapshot.metadata().finalizers.clone().unwrap_or_default();
                for finalizer in [AS_SOURCE_PROTECTION, BOUND_PROTECTION] {
                    if !snapshot.has_finalizer(finalizer) {
                        finalizers.push(finalizer.into());
                    }
                }
                snapshot.merge(json!({"metadata": {"finalizers": finalizers}})).await?;
            }
            (Step::PlaceVolume { .. }, _) => {
                let Some(volume) = &look.volume else { return Ok(()) };
                // Somebody may have taken the room since it was looked for.
                let _promising = self.context.promising.lock().await;
                if let Some(node) = volume_room::node_for(eyes, &volume.typed).await? {
                    volume.merge(json!({"spec": {"nodeAffinity": on_node(&node)}})).await?;
                }
            }
            (Step::CreateContent { name, node }, _) => {
                let Some(content) = content_to_create(snapshot, look, name, node) else { return Ok(()) };
                eyes.create::<VolumeSnapshotContent>("", content).await?;
                let words = format!("the snapshot is taken by node {node}");
                tell(&self.context, COMPONENT, snapshot, ("Normal", "CreatingSnapshot", &words), How::Once)
                    .await;
            }
            (Step::AdoptContent { node }, Some(content)) => {
                let mut finalizers = content.metadata().finalizers.clone().unwrap_or_default();
                for finalizer in [CONTENT_PROTECTION, DATA_FINALIZER] {
                    if !content.has_finalizer(finalizer) {
                        finalizers.push(finalizer.into());
                    }
                }
                let change = json!({
                    "metadata": {"finalizers": finalizers, "annotations": {NODE_ANNOTATION: node}},
                    "spec": {"volumeSnapshotRef": {"uid": snapshot.uid()}},
                });
                content.merge(change).await?;
            }
            (Step::WriteStatus(status), _) => self.write_status(snapshot, status).await?,
            (Step::DeleteContent, Some(content)) => content.delete().await?,
            (Step::ReleaseContent, Some(content)) => content.remove_finalizer(CONTENT_PROTECTION).await?,
            (Step::Unprotect, _) => {
                let held = snapshot.metadata().finalizers.iter().flatten();
                let ours = [AS_SOURCE_PROTECTION, BOUND_PROTECTION];
                let kept: Vec<&String> = held.filter(|held| !ours.contains(&held.as_str())).collect();
                snapshot.merge(json!({"metadata": {"finalizers": kept}})).await?;
            }
            // It went while we were deciding.
            (Step::AdoptContent { .. } | Step::DeleteContent | Step::ReleaseContent, None) => {}
        }
        Ok(())
    }

    async fn write_status(
        &self,
        snapshot: &Object<VolumeSnapshot>,
        status: &VolumeSnapshotStatus,
    ) -> Result<(), ReconcileError> {
        snapshot.write_status(json!(status)).await?;
        if let Some(why) = status.error.as_ref().and_then(|error| error.message.as_deref()) {
            let words = ("Warning", "SnapshotCreationFailed", why);
            tell(&self.context, COMPONENT, snapshot, words, How::Once).await;
        } else if status.ready_to_use == Some(true) {
            let words = ("Normal", "SnapshotReady", "volumes can be made of the snapshot");
            tell(&self.context, COMPONENT, snapshot, words, How::Once).await;
        }
        Ok(())
    }
}

/// Whether a claim that is not bound yet is to be a copy of the snapshot.
async fn is_being_copied(eyes: &Eyes, snapshot: &Object<VolumeSnapshot>) -> Result<bool, ReconcileError> {
    let namespace = snapshot.metadata().namespace.as_deref().unwrap_or_default();
    let claims: Vec<Arc<PersistentVolumeClaim>> = eyes.list(namespace).await?;
    let source = DataSource::Snapshot(snapshot.name().to_owned());
    Ok(claims.iter().any(|claim| is_pending_copy_of(claim, &source, snapshot.metadata())))
}

/// What there is of a claim, and its volume.
async fn look_at_claim(
    eyes: &Eyes,
    snapshot: &Object<VolumeSnapshot>,
    name: &str,
) -> Result<(Claim, Option<Object<PersistentVolume>>), ReconcileError> {
    let namespace = snapshot.metadata().namespace.as_deref().unwrap_or_default();
    let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(namespace, name).await?;
    let Some(claim) = claim else { return Ok((Claim::Missing, None)) };
    if !is_in_time(snapshot.metadata(), claim.metadata()) {
        return Ok((Claim::Going, None));
    }
    let volume = claim.typed.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    let volume: Option<Object<PersistentVolume>> = eyes.find("", &volume).await?;
    let Some(volume) = volume.filter(|volume| is_bound(&claim.typed) && is_of(volume, &claim)) else {
        return Ok((Claim::Unbound, None));
    };
    let csi = volume.typed.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    if csi.is_none_or(|csi| csi.driver != PROVISIONER) {
        return Ok((Claim::Foreign, None));
    }
    let found = match persistent_volume::node_of(&volume.typed) {
        Some(node) => Claim::On { node: node.to_owned() },
        None => Claim::Nowhere { node: volume_room::node_for(eyes, &volume.typed).await? },
    };
    Ok((found, Some(volume)))
}

/// The node of another content of the same bytes: one that was retained, for example.
async fn kept_on(eyes: &Eyes, content: &Object<VolumeSnapshotContent>) -> Result<String, ReconcileError> {
    let Some(handle) = &content.typed.spec.source.snapshot_handle else { return Ok(String::new()) };
    let contents: Vec<Arc<VolumeSnapshotContent>> = eyes.list("").await?;
    let same = |other: &&Arc<VolumeSnapshotContent>| {
        other.status.as_ref().and_then(|status| status.snapshot_handle.as_ref()) == Some(handle)
    };
    let mut nodes = contents.iter().filter(same).map(|other| volume_snapshot::node_of(other));
    Ok(nodes.find(|node| !node.is_empty()).unwrap_or_default().to_owned())
}

fn content_to_create(
    snapshot: &Object<VolumeSnapshot>,
    look: &Look,
    name: &str,
    node: &str,
) -> Option<Value> {
    let (class, volume) = (&look.class.as_ref()?.typed, look.volume.as_ref()?);
    let spec = volume.typed.spec.as_ref()?;
    let said = |key: &&str| Some(((*key).to_owned(), snapshot.annotation(key)));
    let said = ANNOTATIONS_OF_CONTENT.iter().filter_map(said).filter(|(_, value)| !value.is_empty());
    let mut annotations: Map<String, Value> = said.map(|(key, value)| (key, value.into())).collect();
    annotations.insert(NODE_ANNOTATION.into(), node.into());
    Some(json!({
        "metadata": {
            "name": name, "annotations": annotations, "finalizers": [CONTENT_PROTECTION, DATA_FINALIZER],
        },
        "spec": {
            "deletionPolicy": class.deletion_policy,
            "driver": PROVISIONER,
            "source": {"volumeHandle": spec.csi.as_ref()?.volume_handle},
            "sourceVolumeMode": spec.volume_mode,
            "volumeSnapshotClassName": snapshot.typed.spec.volume_snapshot_class_name,
            "volumeSnapshotRef": {
                "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
                "namespace": snapshot.metadata().namespace, "name": snapshot.name(), "uid": snapshot.uid(),
            },
        },
    }))
}
