//! Chooses the node that fetches an image and keeps it, and publishes the class its disks are made by. What is made of
//! another image, or of a disk, is made where that is.
//!
//! The bytes are that node's business: its agent fetches them, says in the status how far it is, and takes the
//! image's finalizer off when they are gone. An image may go at any time: disks made of it have the bytes they need.
//! The class comes with the imported image and goes with it. Two images of one name in two namespaces want the
//! same class; the first has it, and the other says so.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::{
    api::{
        core::v1::{Node, PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::placement;
use sheaf_resources::kinds::{
    persistent_volume,
    storage_class::{IMAGE_PARAMETER, IMAGE_UID_PARAMETER, PROVISIONER},
    virtual_machine_image::{DATA_FINALIZER, NODE_ANNOTATION, VirtualMachineImage, storage_class_name},
};

use crate::{
    Context,
    object::{Object, Place, place_of},
    persistent_volume_claim::{is_bound, is_of, on_node},
    telling::{How, tell},
    volume_room,
};

pub const NAME: &str = "virtual-machine-image";
const COMPONENT: &str = "vmimage-controller";
/// How soon it is looked again for what an image waits for.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Images { context, waiting: BTreeSet::new() }, client).await;
}

struct Images {
    context: Context,
    /// Images that no node could be found for.
    waiting: BTreeSet<Place>,
}

impl Reconciler for Images {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<VirtualMachineImage>(), memory.of::<StorageClass>(), memory.of::<Node>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        match watch {
            // Who waits may wait for this one.
            0 => place_of(metadata).into_iter().chain(self.waiting.iter().cloned()).collect(),
            1 => {
                let image = metadata.annotations.as_ref().and_then(|all| all.get(IMAGE_PARAMETER));
                let place = image.and_then(|image| image.split_once('/'));
                place.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())).into_iter().collect()
            }
            _ => self.waiting.iter().cloned().collect(),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        self.waiting.remove(place);
        // Images change rarely and their classes rest on whether they are there: no look is worth saving.
        let eyes = self.context.eyes().fresh();
        let image: Option<Object<VirtualMachineImage>> = eyes.find(&place.0, &place.1).await?;
        let class: Option<Object<StorageClass>> = eyes.find("", &storage_class_name(&place.1)).await?;
        let of_this_name =
            |class: &&Object<StorageClass>| parameter(class, IMAGE_PARAMETER) == full_name(place);
        let (class, foreign) = match class {
            Some(class) if !of_this_name(&&class) => (None, true),
            class => (class, false),
        };
        let Some(image) =
            image.filter(|image| !image.is_being_deleted() || image.has_finalizer(DATA_FINALIZER))
        else {
            return self.withdraw(class).await;
        };
        if image.is_being_deleted() {
            // Nobody was asked to fetch it, so nobody has anything of it.
            if image.annotation(NODE_ANNOTATION).is_empty() {
                image.remove_finalizer(DATA_FINALIZER).await?;
            }
            return self.withdraw(class).await;
        }
        let image = if image.annotation(NODE_ANNOTATION).is_empty() || !image.has_finalizer(DATA_FINALIZER) {
            if self.assign(image).await? {
                return Ok(Next::rest());
            }
            self.waiting.insert(place.clone());
            // A claim that is not bound yet, of which nobody tells us.
            return Ok(Next::again_after(LOOK_AGAIN));
        } else {
            image
        };
        if !image.typed.is_imported() {
            return Ok(Next::rest());
        }
        match class {
            // Its own.
            Some(class) if parameter(&class, IMAGE_UID_PARAMETER) == image.uid() => Ok(Next::rest()),
            // That of an image that had the name before; what a class says never changes.
            Some(class) => {
                class.delete().await?;
                Ok(Next::wake(vec![place.clone()]))
            }
            None if foreign => {
                let words = "the storage class of this name belongs to another image: make disks of this one with the \
                             harvesterhci.io/imageId annotation";
                let words = ("Warning", "StorageClassTaken", words);
                tell(&self.context, COMPONENT, &image, words, How::Once).await;
                Ok(Next::rest())
            }
            None => {
                eyes.create::<StorageClass>("", class_of(place, &image)).await?;
                Ok(Next::rest())
            }
        }
    }
}

impl Images {
    /// Gives an image its node and its finalizer, in one write; answers whether there was a node.
    async fn assign(&self, image: Object<VirtualMachineImage>) -> Result<bool, ReconcileError> {
        let node = match image.annotation(NODE_ANNOTATION) {
            "" => self.choose(&image.typed).await?,
            node => Some(node.to_owned()),
        };
        let Some(node) = node else { return Ok(false) };
        let mut finalizers = image.metadata().finalizers.clone().unwrap_or_default();
        if !image.has_finalizer(DATA_FINALIZER) {
            finalizers.push(DATA_FINALIZER.into());
        }
        let metadata = json!({"annotations": {NODE_ANNOTATION: node}, "finalizers": finalizers});
        image.merge(json!({"metadata": metadata})).await?;
        Ok(true)
    }

    /// The node to bring an image to; none while there is none.
    async fn choose(&self, image: &VirtualMachineImage) -> Result<Option<String>, ReconcileError> {
        let eyes = self.context.eyes().fresh();
        if let Some((namespace, name)) = image.original() {
            let original: Option<Object<VirtualMachineImage>> = eyes.find(namespace, name).await?;
            if let Some(original) = original {
                let node = original.annotation(NODE_ANNOTATION);
                return Ok(Some(node.to_owned()).filter(|node| !node.is_empty()));
            }
        }
        if let Some((namespace, name)) = image.exported_claim() {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(namespace, name).await?;
            if let Some(claim) = claim {
                return self.place_disk(&claim).await;
            }
        }
        // What names something that is gone says so there, wherever that is.
        let nodes: Vec<Arc<Node>> = eyes.list("").await?;
        Ok(placement::any_node(&nodes).map(str::to_owned))
    }

    /// The node that has a claim's disk. One that nobody used yet is nowhere, and comes to be where the image is made.
    async fn place_disk(
        &self,
        claim: &Object<PersistentVolumeClaim>,
    ) -> Result<Option<String>, ReconcileError> {
        let eyes = self.context.eyes().fresh();
        let volume = claim.typed.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let volume: Option<Object<PersistentVolume>> = eyes.find("", &volume).await?;
        let Some(volume) = volume.filter(|volume| is_bound(&claim.typed) && is_of(volume, claim)) else {
            return Ok(None);
        };
        if let Some(node) = persistent_volume::node_of(&volume.typed) {
            return Ok(Some(node.to_owned()));
        }
        let _promising = self.context.promising.lock().await;
        let Some(node) = volume_room::node_for(&self.context.eyes(), &volume.typed).await? else {
            return Ok(None);
        };
        volume.merge(json!({"spec": {"nodeAffinity": on_node(&node)}})).await?;
        Ok(Some(node))
    }

    async fn withdraw(&self, class: Option<Object<StorageClass>>) -> Result<Next<Place>, ReconcileError> {
        if let Some(class) = class {
            class.delete().await?;
        }
        Ok(Next::rest())
    }
}

fn full_name((namespace, name): &Place) -> String {
    format!("{namespace}/{name}")
}

fn parameter<'a>(class: &'a Object<StorageClass>, name: &str) -> &'a str {
    class.typed.parameters.as_ref().and_then(|all| all.get(name)).map_or("", String::as_str)
}

/// The class that disks of an image are made by.
fn class_of(place: &Place, image: &Object<VirtualMachineImage>) -> Value {
    let mut parameters = image.typed.spec.storage_class_parameters.clone();
    parameters.insert("backingImage".into(), format!("{}-{}", place.0, place.1));
    parameters.insert(IMAGE_PARAMETER.into(), full_name(place));
    parameters.insert(IMAGE_UID_PARAMETER.into(), image.uid().to_owned());
    json!({
        "metadata": {"name": storage_class_name(&place.1), "annotations": {IMAGE_PARAMETER: full_name(place)}},
        "provisioner": PROVISIONER, "parameters": parameters, "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
    })
}
