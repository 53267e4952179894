//! Binds claims: makes the volume of each, grows it with its claim, and lets go of claims nobody uses.
//!
//! The decisions are [`sheaf_planner::claim`]; what becomes of the volume afterwards is
//! [`crate::persistent_volume`]. A volume is an object here and nothing else: its bytes are made by the node whose
//! machine first uses it. A copy of an image is on the image's node from the beginning, since nobody else has
//! the bytes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
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
use sheaf_planner::claim::{self, Binding, Class, Reason, Reclaim, Seen, Source, Step, Volume};
use sheaf_resources::{
    kinds::{
        persistent_volume::{
            BACKEND_ATTRIBUTE, CLAIM_ANNOTATION, DATA_FINALIZER, GROWN_ANNOTATION, IMAGE_UID_ATTRIBUTE,
            LOCAL_BACKEND, PROTECTION_FINALIZER as VOLUME_PROTECTION,
        },
        persistent_volume_claim::{
            self, IMAGE_ANNOTATION, PROTECTION_FINALIZER, PROVISIONER_ANNOTATION, RESIZE_PENDING,
            requested_by,
        },
        storage_class::{IMAGE_PARAMETER, PROVISIONER},
        virtual_machine::VirtualMachine,
        virtual_machine_image::{IMPORTED, NODE_ANNOTATION, VirtualMachineImage},
        virtual_machine_instance::VirtualMachineInstance,
    },
    quantity,
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    telling::{How, tell},
};

pub const NAME: &str = "persistent-volume-claim";
const COMPONENT: &str = "persistentvolume-controller";
/// More than any claim takes.
const MOST_STEPS: usize = 12;
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let claims = Claims { context, references: Arc::default(), waiting: Arc::default() };
    reconciling::run_side_by_side(claims, client, crate::SIDE_BY_SIDE).await;
}

/// What a claim depends on, beside machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Class(String),
    Image(Place),
}

#[derive(Clone)]
struct Claims {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
    /// Claims that wait for a machine to come, or to go.
    waiting: Arc<Mutex<BTreeSet<Place>>>,
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
            memory.of::<VirtualMachine>(),
            memory.of::<VirtualMachineInstance>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        match watch {
            0 => place_of(metadata).into_iter().collect(),
            1 => {
                let claim = metadata.annotations.as_ref().and_then(|all| all.get(CLAIM_ANNOTATION));
                let place = claim.and_then(|claim| claim.split_once('/'));
                place.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).into_iter().collect()
            }
            2 => self.references.lock().to(&Thing::Class(metadata.name.clone().unwrap_or_default())),
            3 => place_of(metadata)
                .map(|image| self.references.lock().to(&Thing::Image(image)))
                .unwrap_or_default(),
            _ => {
                let here = |place: &&Place| Some(&place.0) == metadata.namespace.as_ref();
                self.waiting.lock().iter().filter(here).cloned().collect()
            }
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.lock().remove(place);
        let mut eyes = self.context.eyes();
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
                Step::Wait(_) | Step::CreateVolume { .. } | Step::BindVolume | Step::ReleaseClaim
                    if !eyes.are_fresh() =>
                {
                    // Before that look, so that whatever comes or goes during it wakes us.
                    if let Step::Wait(Reason::InUse | Reason::NoConsumer) = step {
                        self.waiting.lock().insert(place.clone());
                    }
                    eyes = eyes.fresh();
                }
                Step::Wait(reason) => {
                    if matches!(reason, Reason::InUse | Reason::NoConsumer) {
                        self.waiting.lock().insert(place.clone());
                    }
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
    image: Option<Object<VirtualMachineImage>>,
    reclaim_policy: String,
}

impl Claims {
    async fn look(
        &mut self,
        eyes: &Eyes,
        place: &Place,
        claim: &Object<PersistentVolumeClaim>,
    ) -> Result<Look, ReconcileError> {
        let (spec, status) = (claim.typed.spec.clone().unwrap_or_default(), claim.typed.status.as_ref());
        let class_name = spec.storage_class_name.clone().unwrap_or_default();
        let class: Option<Object<StorageClass>> = eyes.find("", &class_name).await?;
        let image = image_of(claim, class.as_ref());
        let mut things = BTreeSet::from([Thing::Class(class_name)]);
        things.extend(image.clone().map(Thing::Image));
        self.references.lock().set(place, things);
        let (source, image) = match image {
            None => (Source::Empty, None),
            Some(image) if !is_named(claim, &image) => (Source::UnnamedImage, None),
            Some((namespace, name)) => {
                let image: Option<Object<VirtualMachineImage>> = eyes.find(&namespace, &name).await?;
                (source_of(image.as_ref()), image)
            }
        };
        let volume: Option<Object<PersistentVolume>> =
            eyes.find("", &claim::volume_name(claim.uid())).await?;
        let class = class.as_ref().map(|class| &class.typed);
        let reclaim_policy =
            class.as_ref().and_then(|class| class.reclaim_policy.clone()).unwrap_or_else(|| "Delete".into());
        let patient = class.as_ref().and_then(|class| class.volume_binding_mode.as_deref())
            == Some("WaitForFirstConsumer");
        let capacity = status.and_then(|status| status.capacity.as_ref()?.get("storage"));
        let mut conditions = status.iter().flat_map(|status| status.conditions.iter().flatten());
        let bound = status.and_then(|status| status.phase.as_deref()) == Some("Bound");
        let in_use = (claim.is_being_deleted() || (patient && !bound)) && self.is_in_use(eyes, place).await?;
        let seen = Seen {
            uid: claim.uid().to_owned(),
            being_deleted: claim.is_being_deleted(),
            bound,
            volume_name: spec.volume_name.clone().unwrap_or_default(),
            requested_bytes: requested_by(&spec).unwrap_or(0),
            resize_pending: conditions.any(|condition| condition.type_ == RESIZE_PENDING),
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
        Ok(Look { seen, volume, image, reclaim_policy })
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
                let message = "waiting for a virtual machine that uses the volume to be started (again): its node \
                               then makes the volume larger";
                conditions.push(json!({
                    "type": RESIZE_PENDING, "status": "True", "message": message,
                    "lastTransitionTime": self.context.world.clock.rfc3339(),
                }));
                status["conditions"] = conditions.into();
                claim.write_status(status).await?;
                let words = ("Normal", RESIZE_PENDING, message);
                tell(&self.context, COMPONENT, claim, words, How::Now).await;
            }
            Step::ReleaseClaim => claim.remove_finalizer(PROTECTION_FINALIZER).await?,
        }
        Ok(())
    }
}

/// The image a claim is a copy of: what it says itself, else what its class is for.
pub(crate) fn image_of(
    claim: &Object<PersistentVolumeClaim>,
    class: Option<&Object<StorageClass>>,
) -> Option<Place> {
    let parameters = class.and_then(|class| class.typed.parameters.as_ref());
    let of_class =
        parameters.and_then(|parameters| parameters.get(IMAGE_PARAMETER)).map_or("", String::as_str);
    let (namespace, name) = persistent_volume_claim::image_of(claim.annotation(IMAGE_ANNOTATION), of_class)?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// Whether the image of another namespace was named by somebody: who may do so is asked at the door, and it is asked
/// of names alone. A class says nothing of who made the claim, and may come after it.
fn is_named(claim: &Object<PersistentVolumeClaim>, (namespace, name): &Place) -> bool {
    claim.metadata().namespace.as_ref() == Some(namespace)
        || claim.annotation(IMAGE_ANNOTATION) == format!("{namespace}/{name}")
}

pub(crate) fn source_of(image: Option<&Object<VirtualMachineImage>>) -> Source {
    let Some(image) = image.filter(|image| !image.is_being_deleted()) else { return Source::MissingImage };
    if image.typed.is_imported() && !image.annotation(NODE_ANNOTATION).is_empty() {
        return Source::Image { virtual_size: image.typed.status.virtual_size };
    }
    match image.typed.condition(IMPORTED) {
        Some(condition) if condition.status == "False" => Source::FailedImage,
        Some(_) | None => Source::ArrivingImage,
    }
}

fn is_resize_pending(condition: &Value) -> bool {
    condition["type"] == RESIZE_PENDING
}

fn in_planner_words(volume: &PersistentVolume) -> Volume {
    let grown = volume.metadata.annotations.as_ref().and_then(|all| all.get(GROWN_ANNOTATION));
    let spec = volume.spec.as_ref();
    let capacity = spec.and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    let claim = spec.and_then(|spec| spec.claim_ref.as_ref());
    Volume {
        claim_uid: claim.and_then(|claim| claim.uid.clone()).unwrap_or_default(),
        bound: volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        capacity_bytes: capacity.and_then(|capacity| quantity::value(&capacity.0)).unwrap_or(0),
        placed: spec.is_some_and(|spec| spec.node_affinity.is_some()),
        grown_bytes: grown.and_then(|bytes| bytes.parse().ok()).unwrap_or(0),
    }
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
    if let Some(image) = &look.image {
        attributes.insert(IMAGE_UID_ATTRIBUTE, image.uid());
    }
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
    if let Some(image) = &look.image {
        volume["spec"]["nodeAffinity"] = on_node(image.annotation(NODE_ANNOTATION));
    }
    Ok(volume)
}

/// The affinity of a volume whose bytes are on one node.
pub(crate) fn on_node(node: &str) -> Value {
    let expression = json!({"key": HOSTNAME_LABEL, "operator": "In", "values": [node]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
}
