//! Removes the files of volumes that are no longer wanted.
//!
//! A volume's files are made when the first machine that uses it is made ready, and go when the
//! PersistentVolume does: it is kept by a finalizer until the node that has the files has
//! removed them. Nothing is removed that an object does not say is to go.

use std::time::Duration;

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{Api, Client};
use sheaf_client::{
    api,
    reconciling::{Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_resources::kinds::persistent_volume::{DATA_FINALIZER, PROTECTION_FINALIZER};
use sheaf_storage::{Storage, VolumeError, VolumeId};

use crate::{
    step::{AfterStep, Step},
    virtual_machine_instance::found,
};

const HOST_NAME_LABEL: &str = "kubernetes.io/hostname";
/// A machine that is just ending still has its disks open.
const IN_USE_WAIT: Duration = Duration::from_secs(2);

pub struct VolumeRemover {
    pub client: Client,
    pub node: String,
    pub storage: Storage,
    pub after: AfterStep,
}

impl Reconciler for VolumeRemover {
    type Key = String;

    const NAME: &'static str = "volume-remover";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(api::built_in("", "v1", "PersistentVolume", "persistentvolumes"))]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<String> {
        let ours = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == DATA_FINALIZER);
        let going = metadata.deletion_timestamp.is_some();
        metadata.name.clone().filter(|_| ours && going).into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let Some(volume) = found(volumes.get(name).await)? else { return Ok(Next::rest()) };
        let going = volume.metadata.deletion_timestamp.is_some();
        let finalizers = volume.metadata.finalizers.clone().unwrap_or_default();
        let has = |finalizer: &str| finalizers.iter().any(|one| one == finalizer);
        // While a claim holds it, its bytes are somebody's, whoever deleted the object.
        let is_held = has(PROTECTION_FINALIZER);
        if !going || is_held || !is_on(&volume, &self.node) || !has(DATA_FINALIZER) {
            return Ok(Next::rest());
        }
        let handle = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()).map(|csi| &csi.volume_handle);
        let id =
            handle.and_then(|handle| handle.strip_prefix("pvc-").unwrap_or(handle).parse::<VolumeId>().ok());
        if let Some(id) = id {
            match self.storage.delete_volume(&id).await {
                Ok(()) => {}
                Err(VolumeError::InUse { .. }) => return Ok(Next::again_after(IN_USE_WAIT)),
                Err(why) => return Err(ReconcileError::Unreadable(why.to_string())),
            }
        }
        let change = api::without_finalizer(&volume.metadata, DATA_FINALIZER);
        let resource = api::built_in("", "v1", "PersistentVolume", "persistentvolumes");
        match api::merge(&api::objects(&self.client, &resource, ""), name, &change).await {
            Err(why) if !api::is_not_found(&why) => return Err(why.into()),
            _ => self.after.took(Step::Release),
        }
        Ok(Next::rest())
    }
}

/// Whether a volume's files are on this node: its affinity names it.
fn is_on(volume: &PersistentVolume, node: &str) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let terms = affinity
        .and_then(|affinity| affinity.required.as_ref())
        .map(|required| &required.node_selector_terms);
    let expressions = terms.into_iter().flatten().flat_map(|term| term.match_expressions.iter().flatten());
    expressions
        .filter(|expression| expression.key == HOST_NAME_LABEL && expression.operator == "In")
        .any(|expression| expression.values.iter().flatten().any(|value| value == node))
}
