//! Keeps one Pod per instance that is on a node, for clients that look for a machine through its pod.
//!
//! What it says is [`pod::launcher_of`]; nothing runs in it and nobody else may write it, so this controller is
//! the only one that acts in the cluster's own name. Garbage collection does not touch what nobody may delete: a pod
//! whose instance is gone is removed here.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;
use sheaf_client::{
    api,
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_resources::kinds::{pod, virtual_machine_instance::VirtualMachineInstance};

use crate::{
    Context,
    object::{self, Object, Place, place_of, resource_of},
};

pub const NAME: &str = "virtual-machine-instance-pod";
const DOMAIN_LABEL: &str = "kubevirt.io/domain";
/// A label's value is no longer than this; an instance of a longer name, which no VirtualMachine has, goes without a
/// pod.
const LONGEST_LABEL: usize = 63;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Pods { context }, client).await;
}

struct Pods {
    context: Context,
}

impl Reconciler for Pods {
    /// The instance.
    type Key = Place;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource_of::<VirtualMachineInstance>()), Watched::all(resource_of::<Pod>())]
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
        let client = &self.context.client;
        let instance: Option<Object<VirtualMachineInstance>> =
            object::find(client, &place.0, &place.1).await?;
        let wanted = instance.and_then(|instance| pod::launcher_of(&instance.typed));
        let pods = object::all_of::<Pod>(client, &place.0);
        let found = pods.list(&ListParams::default().labels(&format!("{DOMAIN_LABEL}={}", place.1))).await?;
        let name = wanted.as_ref().and_then(|pod| pod["metadata"]["name"].as_str()).map(str::to_owned);
        let mut standing = None;
        for pod in found.items {
            if pod.metadata.name == name {
                standing = Some(pod);
            } else {
                let propagation = kube::api::PropagationPolicy::Background;
                api::delete_as_seen(&pods, &pod.metadata, propagation).await?;
            }
        }
        let Some(mut wanted) = wanted else { return Ok(Next::rest()) };
        // The server gives every object an identity of its own.
        if let Some(metadata) = wanted["metadata"].as_object_mut() {
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
        }
        match standing {
            None => {
                object::create::<Pod>(client, &place.0, wanted).await?;
            }
            Some(standing) if says(&standing, &wanted)? => {}
            Some(mut standing) => {
                standing.types = Some(kube::core::TypeMeta::resource::<Pod>());
                for part in ["spec", "status"] {
                    standing.data[part] = wanted[part].clone();
                }
                let metadata = wanted["metadata"].clone();
                standing.metadata.labels = serde_json::from_value(metadata["labels"].clone())?;
                standing.metadata.annotations = serde_json::from_value(metadata["annotations"].clone())?;
                pods.replace(&name.unwrap_or_default(), &Default::default(), &standing).await?;
            }
        }
        Ok(Next::rest())
    }
}

/// Whether a pod says what it should.
fn says(pod: &DynamicObject, wanted: &Value) -> Result<bool, ReconcileError> {
    let metadata = serde_json::to_value(&pod.metadata)?;
    let same = |part: &str| metadata[part] == wanted["metadata"][part];
    Ok(same("labels")
        && same("annotations")
        && ["spec", "status"].iter().all(|part| pod.data[*part] == wanted[*part]))
}
