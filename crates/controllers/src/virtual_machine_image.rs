//! Chooses the node that fetches an image and keeps it, and publishes the class its disks are made by.
//!
//! The bytes are that node's business: its agent fetches them, says in the status how far it is, and takes the
//! image's finalizer off when they are gone. An image may go at any time: disks made of it have the bytes they need.
//! The class comes with the imported image and goes with it. Two images of one name in two namespaces want the
//! same class; the first has it, and the other says so.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{core::v1::Node, storage::v1::StorageClass},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::placement;
use sheaf_resources::kinds::{
    storage_class::{IMAGE_PARAMETER, IMAGE_UID_PARAMETER, PROVISIONER},
    virtual_machine_image::{DATA_FINALIZER, NODE_ANNOTATION, VirtualMachineImage, storage_class_name},
};

use crate::{
    Context,
    object::{Object, Place, place_of},
    telling::{How, tell},
};

pub const NAME: &str = "virtual-machine-image";
const COMPONENT: &str = "vmimage-controller";

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
            0 => place_of(metadata).into_iter().collect(),
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
            if !self.assign(image).await? {
                self.waiting.insert(place.clone());
            }
            return Ok(Next::rest());
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
        let nodes: Vec<Arc<Node>> = self.context.eyes().list("").await?;
        let chosen = placement::any_node(&nodes).unwrap_or_default();
        let node = [image.annotation(NODE_ANNOTATION), chosen].into_iter().find(|node| !node.is_empty());
        let Some(node) = node else { return Ok(false) };
        let mut finalizers = image.metadata().finalizers.clone().unwrap_or_default();
        if !image.has_finalizer(DATA_FINALIZER) {
            finalizers.push(DATA_FINALIZER.into());
        }
        let metadata = json!({"annotations": {NODE_ANNOTATION: node}, "finalizers": finalizers});
        image.merge(json!({"metadata": metadata})).await?;
        Ok(true)
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
