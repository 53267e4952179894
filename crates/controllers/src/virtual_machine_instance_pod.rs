//! Keeps one Pod per instance that is on a node, for clients that look for a machine through its pod.
//!
//! What it says is [`pod::launcher_of`]; nothing runs in it and nobody else may write it, so this controller
//! acts in the cluster's own name. Garbage collection does not touch what nobody may delete: a pod
//! whose instance is gone is removed here.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_resources::kinds::{pod, virtual_machine_instance::VirtualMachineInstance};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
};

pub const NAME: &str = "virtual-machine-instance-pod";
const DOMAIN_LABEL: &str = "kubevirt.io/domain";
/// A label's value is no longer than this; an instance of a longer name, which no VirtualMachine has, goes without a
/// pod.
const LONGEST_LABEL: usize = 63;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run_side_by_side(Pods { context }, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Pods {
    context: Context,
}

impl Reconciler for Pods {
    /// The instance.
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<VirtualMachineInstance>(), memory.of::<Pod>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        if watch == 0 {
            return place_of(metadata).into_iter().collect();
        }
        let domain = metadata.labels.as_ref().and_then(|labels| labels.get(DOMAIN_LABEL));
        metadata.namespace.clone().zip(domain.cloned()).into_iter().collect()
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        if place.1.len() > LONGEST_LABEL {
            return Ok(Next::rest());
        }
        let mut eyes = self.context.eyes();
        let (mut wanted, mut standing, mut others) = look(&eyes, place).await?;
        let is_missing = wanted.is_some() && standing.is_none();
        if is_missing || !others.is_empty() || standing.as_ref().is_some_and(Object::is_written_over) {
            // What is known of the instance may only be late.
            eyes = eyes.fresh();
            (wanted, standing, others) = look(&eyes, place).await?;
        }
        for pod in others {
            pod.delete().await?;
        }
        let Some(mut wanted) = wanted else { return Ok(Next::rest()) };
        // The server gives every object an identity of its own.
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
        }
        match standing {
            None => {
                eyes.create::<Pod>(&place.0, wanted).await?;
            }
            Some(standing) => {
                let mut changed = standing.whole()?;
                if says(&changed, &wanted)? {
                    return Ok(Next::rest());
                }
                for part in ["spec", "status"] {
                    changed.data[part] = wanted[part].clone();
                }
                let metadata = wanted["metadata"].clone();
                changed.metadata.labels = serde_json::from_value(metadata["labels"].clone())?;
                changed.metadata.annotations = serde_json::from_value(metadata["annotations"].clone())?;
                standing.write(&changed).await?;
            }
        }
        Ok(Next::rest())
    }
}

/// The pod an instance should have, the one of that name that it has, and others that claim to be its own.
type Looked = (Option<Value>, Option<Object<Pod>>, Vec<Object<Pod>>);

async fn look(eyes: &Eyes, place: &Place) -> Result<Looked, ReconcileError> {
    let instance: Option<Object<VirtualMachineInstance>> = eyes.find(&place.0, &place.1).await?;
    let wanted = instance.and_then(|instance| pod::launcher_of(&instance.typed));
    let name = wanted.as_ref().and_then(|pod| pod["metadata"]["name"].as_str());
    let (mut standing, mut others) = (None, Vec::new());
    let of_instance = |pod: &&Arc<Pod>| {
        let domain = pod.metadata.labels.as_ref().and_then(|labels| labels.get(DOMAIN_LABEL));
        domain == Some(&place.1)
    };
    // One that is not remembered yet wakes us when it is; only the one that is wanted must not be made twice.
    let pods = eyes.remembered().list::<Pod>(&place.0).await?;
    let own = pods.iter().filter(of_instance).filter_map(|pod| pod.metadata.name.as_deref());
    for found in own.chain(name).collect::<BTreeSet<_>>() {
        let Some(pod) = eyes.find::<Pod>(&place.0, found).await? else { continue };
        if Some(found) == name {
            standing = Some(pod);
        } else {
            others.push(pod);
        }
    }
    Ok((wanted, standing, others))
}

/// Whether a pod says what it should.
fn says(pod: &kube::api::DynamicObject, wanted: &Value) -> Result<bool, ReconcileError> {
    let metadata = serde_json::to_value(&pod.metadata)?;
    let same = |part: &str| metadata[part] == wanted["metadata"][part];
    Ok(same("labels")
        && same("annotations")
        && ["spec", "status"].iter().all(|part| pod.data[*part] == wanted[*part]))
}
