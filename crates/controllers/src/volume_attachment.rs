//! Keeps one VolumeAttachment per volume of an instance that is on a node, for clients that ask where a volume is.
//!
//! Nobody else may write them, so this controller acts in the cluster's own name, and removes those whose
//! instance is gone itself. What one says never changes: an instance that is on another node has others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{core::v1::PersistentVolumeClaim, storage::v1::VolumeAttachment},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use parking_lot::Mutex;
use serde_json::Value;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_resources::kinds::{
    virtual_machine_instance::VirtualMachineInstance,
    volume_attachment::{INSTANCE_ANNOTATION, attachment_of},
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
};

pub const NAME: &str = "volume-attachment";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let attachments = Attachments { context, references: Arc::default() };
    reconciling::run_side_by_side(attachments, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Attachments {
    context: Context,
    /// Instances, and their claims.
    references: Arc<Mutex<References<Place, Place>>>,
}

impl Reconciler for Attachments {
    /// The instance.
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineInstance>(),
            memory.of::<VolumeAttachment>(),
            memory.of::<PersistentVolumeClaim>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        match (watch, place_of(metadata)) {
            (0, place) => place.into_iter().collect(),
            (2, Some(claim)) => self.references.lock().to(&claim),
            (_, _) => instance_of(metadata).into_iter().collect(),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        let (mut missing, mut others) = self.look(&eyes, place).await?;
        if !missing.is_empty() || !others.is_empty() {
            // What is known of the instance may only be late.
            eyes = eyes.fresh();
            (missing, others) = self.look(&eyes, place).await?;
        }
        for attachment in others {
            attachment.delete().await?;
        }
        for attachment in missing {
            eyes.create::<VolumeAttachment>("", attachment).await?;
        }
        Ok(Next::rest())
    }
}

/// The instance that an attachment is of.
fn instance_of(metadata: &ObjectMeta) -> Option<Place> {
    let (namespace, name) = metadata.annotations.as_ref()?.get(INSTANCE_ANNOTATION)?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

impl Attachments {
    /// The attachments an instance should have and has not, and those it has and should not.
    async fn look(
        &self,
        eyes: &Eyes,
        place: &Place,
    ) -> Result<(Vec<Value>, Vec<Object<VolumeAttachment>>), ReconcileError> {
        let instance: Option<Object<VirtualMachineInstance>> = eyes.find(&place.0, &place.1).await?;
        let on_node = |instance: &Object<VirtualMachineInstance>| {
            !instance.typed.status.node_name.is_empty() && !instance.typed.status.phase.is_final()
        };
        let instance = instance.filter(on_node);
        let claims: BTreeSet<Place> = instance
            .iter()
            .flat_map(|instance| instance.typed.spec.claim_names())
            .map(|name| (place.0.clone(), name.to_owned()))
            .collect();
        self.references.lock().set(place, claims.clone());
        let mut wanted = BTreeMap::new();
        for (namespace, name) in &claims {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(namespace, name).await?;
            let spec = claim.as_ref().and_then(|claim| claim.typed.spec.as_ref());
            let volume = spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
            let (Some(volume), Some(instance)) = (volume, &instance) else { continue };
            let node = &instance.typed.status.node_name;
            let attachment = attachment_of(volume, node, &format!("{}/{}", place.0, place.1));
            let name = attachment["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            wanted.insert(name, attachment);
        }
        // One that is not remembered yet wakes us when it is; only those that are wanted must not be made twice.
        let all = eyes.remembered().list::<VolumeAttachment>("").await?;
        let own = all.iter().filter(|attachment| instance_of(&attachment.metadata).as_ref() == Some(place));
        let own = own.filter_map(|attachment| attachment.metadata.name.clone());
        let mut others = Vec::new();
        for name in own.chain(wanted.keys().cloned()).collect::<BTreeSet<_>>() {
            let Some(found) = eyes.find::<VolumeAttachment>("", &name).await? else { continue };
            if wanted.remove(&name).is_none() {
                others.push(found);
            }
        }
        Ok((wanted.into_values().collect(), others))
    }
}
