//! Binds claims: makes the volume of each, grows it with its claim, and lets go of claims nobody uses.
//!
//! The decisions are [`sheaf_planner::claim`]; what becomes of the volume afterwards is
//! [`crate::persistent_volume`]. A volume is an object here and nothing else: its bytes are made by the node whose
//! machine first uses it. A copy of an image, of a snapshot or of another volume is on the node of what it is a copy of,
//! since nobody else has the bytes; the last two are made there at once. Whether there is room for a volume is
//! [`sheaf_planner::volume_room`].

mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::{
    claim::{self, Binding, Class, Making, Reason, Reclaim, Seen, Step, Volume},
    volume_room::Wish,
};
use sheaf_resources::{
    kinds::{
        persistent_volume::{
            BACKEND_ATTRIBUTE, CLAIM_ANNOTATION, CLONE_ATTRIBUTE, DATA_FINALIZER, FAILED_ANNOTATION,
            GROWN_ANNOTATION, HOSTNAME_LABEL, LOCAL_BACKEND, MADE_ANNOTATION,
            PROTECTION_FINALIZER as VOLUME_PROTECTION, SNAPSHOT_ATTRIBUTE, node_of,
        },
        persistent_volume_claim::{
            DataSource, NO_ROOM, PROTECTION_FINALIZER, PROVISIONER_ANNOTATION, PROVISIONING_FAILED,
            RESIZE_ERROR, RESIZE_PENDING, requested_by,
        },
        setting::{OVERCOMMIT_CONFIG, Setting},
        storage_class::PROVISIONER,
        virtual_machine::VirtualMachine,
        virtual_machine_image::VirtualMachineImage,
        virtual_machine_instance::VirtualMachineInstance,
        volume_snapshot::VolumeSnapshot,
    },
    quantity,
};

use self::source::{Origin, Thing};
pub(crate) use self::source::{image_of, is_in_time, is_pending_copy_of, source_of};
use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    telling::{How, tell},
    volume_room::{self, LOOK_FOR_ROOM_EVERY},
};

pub const NAME: &str = "persistent-volume-claim";
const COMPONENT: &str = "persistentvolume-controller";
/// More than any claim takes.
const MOST_STEPS: usize = 12;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let claims = Claims {
        context,
        references: Arc::default(),
        waiting: Arc::default(),
        held: Arc::default(),
        short: Arc::default(),
    };
    reconciling::run_side_by_side(claims, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Claims {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
    /// Claims that wait for a machine to come.
    waiting: Arc<Mutex<BTreeSet<Place>>>,
    /// Claims that wait for all that needs them to go.
    held: Arc<Mutex<BTreeSet<Place>>>,
    /// Claims that wait for room.
    short: Arc<Mutex<BTreeSet<Place>>>,
}

impl Reconciler for Claims {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<PersistentVolume>(),
            memory.of::<StorageClass>(),
            memory.of::<VirtualMachineImage>(),
            memory.of::<VolumeSnapshot>(),
            memory.of::<VirtualMachine>(),
            memory.of::<VirtualMachineInstance>(),
            memory.of::<Node>(),
            memory.of::<Setting>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let here = |place: &&Place| Some(&place.0) == metadata.namespace.as_ref();
        let held = || self.held.lock().iter().filter(here).cloned().collect::<Vec<_>>();
        let short = || self.short.lock().iter().cloned().collect::<Vec<_>>();
        match watch {
            0 => {
                let Some(place) = place_of(metadata) else { return Vec::new() };
                let mut keys = self.references.lock().to(&Thing::Claim(place.clone()));
                keys.extend(held());
                keys.push(place);
                keys
            }
            1 => {
                let claim = metadata.annotations.as_ref().and_then(|all| all.get(CLAIM_ANNOTATION));
                let place = claim.and_then(|claim| claim.split_once('/'));
                let own = place.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).into_iter();
                // One that goes makes room for others.
                own.chain(short().into_iter().filter(|_| metadata.deletion_timestamp.is_some())).collect()
            }
            2 => self.references.lock().to(&Thing::Class(metadata.name.clone().unwrap_or_default())),
            3 => place_of(metadata)
                .map(|image| self.references.lock().to(&Thing::Image(image)))
                .unwrap_or_default(),
            4 => {
                let Some(place) = place_of(metadata) else { return Vec::new() };
                let mut keys = self.references.lock().to(&Thing::Snapshot(place));
                keys.extend(held());
                keys
            }
            7 => short(),
            8 if metadata.name.as_deref() == Some(OVERCOMMIT_CONFIG) => short(),
            8 => Vec::new(),
            _ => {
                let mut keys = held();
                keys.extend(self.waiting.lock().iter().filter(here).cloned());
                keys
            }
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.lock().remove(place);
        self.held.lock().remove(place);
        self.short.lock().remove(place);
        let mut eyes = self.context.eyes();
        let mut promising = None;
        for _ in 0..MOST_STEPS {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &place.1).await?;
            let Some(claim) = claim else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let look = self.look(&eyes, place, &claim).await?;
            let step = claim::next_step(&look.seen);
            match &step {
                Step::Rest => return Ok(Next::rest()),
                // All of them rest on what is absent, which may only be late.
                Step::Wait(_)
                | Step::CreateVolume { .. }
                | Step::NoteNoRoom { .. }
                | Step::BindVolume
                | Step::ReleaseClaim
                    if !eyes.are_fresh() =>
                {
                    // Before that look, so that whatever comes or goes during it wakes us.
                    self.note_waiting(place, &step);
                    eyes = eyes.fresh();
                }
                // Looked at once more when nobody else can take the room meanwhile.
                Step::CreateVolume { .. } | Step::GrowVolume { .. } if promising.is_none() => {
                    promising = Some(self.context.promising.clone().lock_owned().await);
                }
                Step::NoteNoRoom { .. } if self.just_told(&claim) => {
                    self.note_waiting(place, &step);
                    return Ok(Next::again_after(LOOK_FOR_ROOM_EVERY));
                }
                Step::Wait(Reason::NoRoom(_) | Reason::NoRoomToGrow(_)) => {
                    self.note_waiting(place, &step);
                    return Ok(Next::again_after(LOOK_FOR_ROOM_EVERY));
                }
                Step::Wait(reason) => {
                    self.note_waiting(place, &step);
                    let (word, message) = reason.words();
                    let sort = if word == "ProvisioningFailed" { "Warning" } else { "Normal" };
                    // A claim that cannot go yet says so by itself.
                    if *reason != Reason::InUse {
                        tell(&self.context, COMPONENT, &claim, (sort, word, &message), How::Once).await;
                    }
                    return Ok(Next::rest());
                }
                step => {
                    self.act(&eyes, step, &claim, &look).await?;
                    promising = None;
                }
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

/// A claim, and what its volume is made with.
struct Look {
    seen: Seen,
    volume: Option<Object<PersistentVolume>>,
    origin: Origin,
    reclaim_policy: String,
}

impl Claims {
    fn note_waiting(&self, place: &Place, step: &Step) {
        match step {
            Step::Wait(Reason::InUse) => self.held.lock().insert(place.clone()),
            Step::Wait(Reason::NoConsumer) => self.waiting.lock().insert(place.clone()),
            Step::Wait(Reason::NoRoom(_) | Reason::NoRoomToGrow(_)) | Step::NoteNoRoom { .. } => {
                self.short.lock().insert(place.clone())
            }
            _ => false,
        };
    }

    /// Whether the claim said a moment ago that there is no room. The numbers change with every volume that comes and goes,
    /// and a crowd that waits need not repeat them each time.
    fn just_told(&self, claim: &Object<PersistentVolumeClaim>) -> bool {
        let told = no_room_condition(&claim.typed).and_then(|condition| condition.last_probe_time.as_ref());
        let now = self.context.world.clock.now().as_second();
        told.is_some_and(|told| {
            let ago = u64::try_from(now - told.0.as_second()).unwrap_or(0);
            ago < LOOK_FOR_ROOM_EVERY.as_secs()
        })
    }

    /// Why what the claim asks for, beyond what its volume has, does not fit.
    async fn no_room(
        &self,
        eyes: &Eyes,
        claim: &PersistentVolumeClaim,
        volume: Option<&PersistentVolume>,
        origin: &Origin,
    ) -> Result<Option<String>, ReconcileError> {
        let bytes = claim.spec.as_ref().and_then(requested_by).unwrap_or(0);
        let wish = match volume {
            Some(volume) => {
                let held_bytes = sheaf_planner::volume_room::size_of(volume).unwrap_or(0);
                Wish { node: node_of(volume), bytes, held_bytes }
            }
            None => Wish { node: origin.node(), bytes, held_bytes: 0 },
        };
        if wish.bytes <= wish.held_bytes {
            return Ok(None);
        }
        Ok(volume_room::look(eyes).await?.check(&wish).err().map(|why| why.to_string()))
    }

    async fn look(
        &mut self,
        eyes: &Eyes,
        place: &Place,
        claim: &Object<PersistentVolumeClaim>,
    ) -> Result<Look, ReconcileError> {
        let (spec, status) = (claim.typed.spec.clone().unwrap_or_default(), claim.typed.status.as_ref());
        let class_name = spec.storage_class_name.clone().unwrap_or_default();
        let class: Option<Object<StorageClass>> = eyes.find("", &class_name).await?;
        let bound = is_bound(&claim.typed);
        let wanted = source::Wanted::of(place, claim, class.as_ref()).filter(|_| !bound);
        let mut things = BTreeSet::from([Thing::Class(class_name)]);
        things.extend(wanted.iter().map(source::Wanted::thing));
        self.references.lock().set(place, things);
        let (source, origin) = source::look_at(eyes, claim, wanted).await?;
        let volume: Option<Object<PersistentVolume>> =
            eyes.find("", &claim::volume_name(claim.uid())).await?;
        let no_room =
            self.no_room(eyes, &claim.typed, volume.as_ref().map(|volume| &*volume.typed), &origin).await?;
        let class = class.as_ref().map(|class| &class.typed);
        let reclaim_policy =
            class.as_ref().and_then(|class| class.reclaim_policy.clone()).unwrap_or_else(|| "Delete".into());
        let patient = class.as_ref().and_then(|class| class.volume_binding_mode.as_deref())
            == Some("WaitForFirstConsumer");
        let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
        let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        let asked = claim.is_being_deleted() || (patient && !bound);
        let in_use = asked
            && (self.is_in_use(eyes, place).await?
                || (claim.is_being_deleted() && is_being_copied(eyes, claim).await?));
        let seen = Seen {
            uid: claim.uid().to_owned(),
            being_deleted: claim.is_being_deleted(),
            bound,
            volume_name: spec.volume_name.clone().unwrap_or_default(),
            requested_bytes: requested_by(&spec).unwrap_or(0),
            resize_pending: conditions.any(|condition| condition.type_ == RESIZE_PENDING),
            no_room,
            told_no_room: no_room_condition(&claim.typed)
                .map(|condition| condition.message.clone().unwrap_or_default()),
            capacity_bytes: capacity.and_then(|capacity| quantity::value(&capacity.0)).unwrap_or(0),
            class: class.map(|class| Class {
                ours: class.provisioner == PROVISIONER,
                binding: if patient { Binding::WaitForFirstConsumer } else { Binding::Immediate },
                reclaim: if reclaim_policy == "Retain" { Reclaim::Retain } else { Reclaim::Delete },
                may_grow: class.allow_volume_expansion == Some(true),
            }),
            source,
            in_use,
            volume: volume.as_ref().map(|volume| in_planner_words(&volume.typed)),
        };
        Ok(Look { seen, volume, origin, reclaim_policy })
    }

    /// Whether a machine, or an instance that is not over, names the claim.
    async fn is_in_use(&self, eyes: &Eyes, (namespace, name): &Place) -> Result<bool, ReconcileError> {
        let instances: Vec<Arc<VirtualMachineInstance>> = eyes.list(namespace).await?;
        let mut live = instances.iter().filter(|instance| !instance.status.phase.is_final());
        if live.any(|instance| instance.spec.claim_names().any(|claim| claim == name)) {
            return Ok(true);
        }
        let machines: Vec<Arc<VirtualMachine>> = eyes.list(namespace).await?;
        let mut templates = machines.iter().filter_map(|vm| vm.spec.template.as_ref());
        Ok(templates.any(|template| template.spec.claim_names().any(|claim| claim == name)))
    }

    async fn act(
        &self,
        eyes: &Eyes,
        step: &Step,
        claim: &Object<PersistentVolumeClaim>,
        look: &Look,
    ) -> Result<(), ReconcileError> {
        match step {
            Step::Rest | Step::Wait(_) => {}
            Step::CreateVolume { name, bytes } => {
                let volume = volume_to_create(claim, look, name, *bytes)?;
                eyes.create::<PersistentVolume>("", volume).await?;
                let words = format!("Successfully provisioned volume {name}");
                let words = ("Normal", "ProvisioningSucceeded", words.as_str());
                tell(&self.context, COMPONENT, claim, words, How::Once).await;
            }
            Step::BindVolume => {
                if let Some(volume) = &look.volume {
                    volume.merge_status(json!({"phase": "Bound"})).await?;
                }
            }
            Step::NameVolume { name } => {
                let annotations = json!({
                    PROVISIONER_ANNOTATION: PROVISIONER, "pv.kubernetes.io/bind-completed": "yes",
                    "pv.kubernetes.io/bound-by-controller": "yes",
                });
                let change = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": name}});
                claim.merge(change).await?;
            }
            Step::BindClaim { bytes } => {
                let modes = claim.typed.spec.as_ref().and_then(|spec| spec.access_modes.clone());
                let bound = json!({
                    "phase": "Bound", "accessModes": modes, "capacity": {"storage": quantity::bytes(*bytes)},
                });
                claim.merge_status(bound).await?;
            }
            Step::GrowVolume { bytes } => {
                if let Some(volume) = &look.volume {
                    let capacity = json!({"storage": quantity::bytes(*bytes)});
                    volume.merge(json!({"spec": {"capacity": capacity}})).await?;
                }
            }
            Step::NoteCapacity { bytes } => {
                let mut status = claim.whole()?.data["status"].take();
                status["capacity"]["storage"] = json!(quantity::bytes(*bytes));
                if let Some(conditions) = status["conditions"].as_array_mut() {
                    conditions.retain(|condition| !is_resize_pending(condition));
                }
                claim.write_status(status).await?;
                let words = ("Normal", "VolumeResizeSuccessful", "the volume is as large as was asked for");
                tell(&self.context, COMPONENT, claim, words, How::Now).await;
            }
            Step::NoteResizePending => {
                let mut status = claim.whole()?.data["status"].take();
                let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
                let message = "waiting for the node of the volume to make it larger: at once under a virtual machine that \
                               runs, else when one that uses it is next started";
                conditions.push(json!({
                    "type": RESIZE_PENDING, "status": "True", "message": message,
                    "lastTransitionTime": self.context.world.clock.rfc3339(),
                }));
                status["conditions"] = conditions.into();
                claim.write_status(status).await?;
                let words = ("Normal", RESIZE_PENDING, message);
                tell(&self.context, COMPONENT, claim, words, How::Now).await;
            }
            Step::NoteNoRoom { reason } => {
                let (word, message) = reason.words();
                let mut status = claim.whole()?.data["status"].take();
                let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
                let kind = if is_bound(&claim.typed) { RESIZE_ERROR } else { PROVISIONING_FAILED };
                let now = self.context.world.clock.rfc3339();
                let since = conditions.iter().find(|condition| condition["type"] == kind);
                let since = since.map_or_else(|| json!(now), |since| since["lastTransitionTime"].clone());
                conditions.retain(|condition| !is_about_room(condition));
                conditions.push(json!({
                    "type": kind, "status": "True", "reason": NO_ROOM, "message": message,
                    "lastProbeTime": now, "lastTransitionTime": since,
                }));
                status["conditions"] = conditions.into();
                claim.write_status(status).await?;
                tell(&self.context, COMPONENT, claim, ("Warning", word, &message), How::Once).await;
            }
            Step::ForgetNoRoom => {
                let mut status = claim.whole()?.data["status"].take();
                if let Some(conditions) = status["conditions"].as_array_mut() {
                    conditions.retain(|condition| !is_about_room(condition));
                }
                claim.write_status(status).await?;
            }
            Step::ReleaseClaim => claim.remove_finalizer(PROTECTION_FINALIZER).await?,
        }
        Ok(())
    }
}

/// The condition of a claim that waits for room, for a volume or for a larger one.
pub(crate) fn no_room_condition(claim: &PersistentVolumeClaim) -> Option<&PersistentVolumeClaimCondition> {
    let mut conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| {
        [PROVISIONING_FAILED, RESIZE_ERROR].contains(&condition.type_.as_str())
            && condition.reason.as_deref() == Some(NO_ROOM)
    })
}

fn is_about_room(condition: &Value) -> bool {
    [PROVISIONING_FAILED, RESIZE_ERROR].iter().any(|kind| condition["type"] == *kind)
        && condition["reason"] == NO_ROOM
}

/// Whether a copy or a snapshot of the claim is still being made. One that cannot be made needs nothing of it.
async fn is_being_copied(eyes: &Eyes, claim: &Object<PersistentVolumeClaim>) -> Result<bool, ReconcileError> {
    let namespace = claim.metadata().namespace.as_deref().unwrap_or_default();
    let claims: Vec<Arc<PersistentVolumeClaim>> = eyes.list(namespace).await?;
    let source = DataSource::Claim(claim.name().to_owned());
    if claims.iter().any(|copy| is_pending_copy_of(copy, &source, claim.metadata())) {
        return Ok(true);
    }
    let snapshots: Vec<Arc<VolumeSnapshot>> = eyes.list(namespace).await?;
    Ok(snapshots.iter().any(|snapshot| {
        snapshot.spec.source.persistent_volume_claim_name.as_deref() == Some(claim.name())
            && snapshot.metadata.deletion_timestamp.is_none()
            && is_in_time(&snapshot.metadata, claim.metadata())
            && !snapshot.is_ready()
            && snapshot.error().is_none()
    }))
}

pub(crate) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Whether a volume is this very claim's: a name alone proves nothing.
pub(crate) fn is_of(volume: &Object<PersistentVolume>, claim: &Object<PersistentVolumeClaim>) -> bool {
    let holder = volume.typed.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    holder.and_then(|holder| holder.uid.as_deref()) == Some(claim.uid())
}

fn is_resize_pending(condition: &Value) -> bool {
    condition["type"] == RESIZE_PENDING
}

fn in_planner_words(volume: &PersistentVolume) -> Volume {
    let annotation = |key: &str| volume.metadata.annotations.as_ref().and_then(|all| all.get(key));
    let spec = volume.spec.as_ref();
    let capacity = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
    Volume {
        claim_uid: claim.and_then(|claim| claim.uid.clone()).unwrap_or_default(),
        bound: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        capacity_bytes: capacity.and_then(|capacity| quantity::value(&capacity.0)).unwrap_or(0),
        placed: spec.is_some_and(|spec| spec.node_affinity.is_some()),
        grown_bytes: annotation(GROWN_ANNOTATION).and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
        making: match (annotation(MADE_ANNOTATION), annotation(FAILED_ANNOTATION)) {
            _ if !is_copy(volume) => Making::Settled,
            (Some(made), _) if made == "true" => Making::Settled,
            (_, Some(why)) => Making::Failed(why.clone()),
            (_, None) => Making::Underway,
        },
    }
}

/// Whether a volume is a copy that is made at once.
fn is_copy(volume: &PersistentVolume) -> bool {
    let attributes = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()?.volume_attributes.as_ref());
    let has = |key: &str| attributes.is_some_and(|attributes| attributes.contains_key(key));
    has(SNAPSHOT_ATTRIBUTE) || has(CLONE_ATTRIBUTE)
}

fn volume_to_create(
    claim: &Object<PersistentVolumeClaim>,
    look: &Look,
    name: &str,
    bytes: i64,
) -> Result<Value, ReconcileError> {
    let (claimed, metadata) = (claim.whole()?, claim.metadata());
    let spec = &claimed.data["spec"];
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    let mut attributes = BTreeMap::from([(BACKEND_ATTRIBUTE, LOCAL_BACKEND)]);
    attributes.extend(look.origin.attribute());
    let mut volume = json!({
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": PROVISIONER,
                CLAIM_ANNOTATION: format!("{namespace}/{}", claim.name()),
            },
            "finalizers": [VOLUME_PROTECTION, DATA_FINALIZER],
        },
        "spec": {
            "accessModes": spec["accessModes"],
            "volumeMode": spec["volumeMode"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": look.reclaim_policy,
            "capacity": {"storage": quantity::bytes(bytes)},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace,
                "name": claim.name(), "uid": metadata.uid,
            },
            "csi": {"driver": PROVISIONER, "volumeHandle": name, "volumeAttributes": attributes},
        },
    });
    if let Some(node) = look.origin.node() {
        volume["spec"]["nodeAffinity"] = on_node(node);
    }
    Ok(volume)
}

/// The affinity of a volume whose bytes are on one node.
pub(crate) fn on_node(node: &str) -> Value {
    let expression = json!({"key": HOSTNAME_LABEL, "operator": "In", "values": [node]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
}
