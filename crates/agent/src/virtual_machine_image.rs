//! Fetches and keeps the images that are this node's to keep, and says how far it is.
//!
//! Which node that is, a controller decides and writes into the image. A download is a task beside
//! the loop; where it stands is asked of the storage, so the loop, a restart and a retry all look at
//! the same truth. An upload is brought in through the stream port.

pub mod sweep;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;
use sheaf_client::{
    api,
    reconciling::{Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::image::{self, Found, Step as Planned};
use sheaf_resources::kinds::virtual_machine_image::{DATA_FINALIZER, NODE_ANNOTATION, VirtualMachineImage};
use sheaf_storage::{Checksum, ImageId, ImageState, Source, Storage};
use sheaf_world::World;
use tokio::task::JoinHandle;

use crate::{
    merge::merge_patch,
    step::{AfterStep, Step},
    virtual_machine_instance::{found, with_causes},
};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether somebody brought an upload.
const UPLOAD_LOOK: Duration = Duration::from_secs(1);

pub struct ImageKeeper {
    pub client: Client,
    pub world: World,
    pub node: String,
    pub storage: Storage,
    /// Whether images may be fetched from this host itself and its link.
    pub allow_local: bool,
    pub after: AfterStep,
    fetches: BTreeMap<ImageId, Fetch>,
}

enum Fetch {
    UnderWay(JoinHandle<Result<(), String>>),
    /// It ended badly, at this time.
    Failed {
        at: i64,
        why: String,
    },
}

type Key = (String, String);

impl ImageKeeper {
    pub fn new(
        client: Client,
        world: World,
        node: &str,
        storage: Storage,
        allow_local: bool,
        after: AfterStep,
    ) -> Self {
        ImageKeeper {
            client,
            world,
            node: node.to_owned(),
            storage,
            allow_local,
            after,
            fetches: BTreeMap::new(),
        }
    }

    fn images(&self, namespace: &str) -> Api<VirtualMachineImage> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// What there is of an image's bytes.
    async fn found(&mut self, id: &ImageId) -> Result<Found, ReconcileError> {
        let now = i64::try_from(self.world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        if let Some(Fetch::UnderWay(task)) = self.fetches.get_mut(id)
            && task.is_finished()
        {
            let outcome = task.await.unwrap_or_else(|why| Err(why.to_string()));
            match outcome {
                Ok(()) => drop(self.fetches.remove(id)),
                Err(why) => drop(self.fetches.insert(id.clone(), Fetch::Failed { at: now, why })),
            }
        }
        let state = self.storage.image(id).await;
        let state = state.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        Ok(match (state, self.fetches.get(id)) {
            (ImageState::Complete(image), _) => Found::Complete {
                size: i64::try_from(image.size).unwrap_or(i64::MAX),
                virtual_size: i64::try_from(image.virtual_size).unwrap_or(i64::MAX),
            },
            (ImageState::Arriving { bytes, total }, _) => {
                Found::Arriving { progress: progress(bytes, total) }
            }
            (_, Some(Fetch::UnderWay(_))) => Found::Arriving { progress: 0 },
            (_, Some(Fetch::Failed { at, why })) => Found::Failed { at: *at, why: why.clone() },
            (ImageState::Failed { why }, None) => {
                // Noted, so that it is the same failure at the next look.
                self.fetches.insert(id.clone(), Fetch::Failed { at: now, why: why.clone() });
                Found::Failed { at: now, why }
            }
            (ImageState::Nothing, None) => Found::Nothing,
        })
    }

    fn fetch(&mut self, id: &ImageId, image: &VirtualMachineImage, url: String) {
        let mut source = Source { allow_local: self.allow_local, ..Source::of(url) };
        source.checksum = Checksum::parse(&image.spec.checksum);
        let (storage, image_id) = (self.storage.clone(), id.clone());
        let task = tokio::spawn(async move {
            storage.fetch_image(&image_id, source).await.map(drop).map_err(|why| with_causes(&why))
        });
        self.fetches.insert(id.clone(), Fetch::UnderWay(task));
    }

    /// Removes the bytes and lets the object go.
    async fn remove(&mut self, id: &ImageId, image: &VirtualMachineImage) -> Result<(), ReconcileError> {
        if let Some(Fetch::UnderWay(task)) = self.fetches.remove(id) {
            task.abort();
        }
        let deleted = self.storage.delete_image(id).await;
        deleted.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        self.patch(image, &api::without_finalizer(&image.metadata, DATA_FINALIZER)).await?;
        self.after.took(Step::Release);
        Ok(())
    }

    async fn patch(
        &self,
        image: &VirtualMachineImage,
        change: &serde_json::Value,
    ) -> Result<(), ReconcileError> {
        let namespace = image.metadata.namespace.as_deref().unwrap_or_default();
        let name = image.metadata.name.as_deref().unwrap_or_default();
        match api::merge(&api::objects(&self.client, &resource(), namespace), name, change).await {
            Err(why) if !api::is_not_found(&why) => Err(why.into()),
            _ => Ok(()),
        }
    }
}

fn resource() -> kube::core::ApiResource {
    api::built_in("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
}

fn progress(bytes: u64, total: Option<u64>) -> i64 {
    let Some(total) = total.filter(|total| *total > 0) else { return 0 };
    // 100 is said when it is complete and checked, not before.
    i64::try_from(bytes.saturating_mul(100) / total).unwrap_or(0).min(99)
}

impl Reconciler for ImageKeeper {
    type Key = Key;

    const NAME: &'static str = "image-keeper";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let node = metadata.annotations.as_ref().and_then(|annotations| annotations.get(NODE_ANNOTATION));
        let ours = node == Some(&self.node);
        let key = metadata.namespace.clone().zip(metadata.name.clone());
        key.filter(|_| ours).into_iter().collect()
    }

    async fn reconcile(&mut self, (namespace, name): &Key) -> Result<Next<Key>, ReconcileError> {
        let Some(image) = found(self.images(namespace).get(name).await)? else { return Ok(Next::rest()) };
        let annotations = image.metadata.annotations.as_ref();
        if annotations.and_then(|annotations| annotations.get(NODE_ANNOTATION)) != Some(&self.node) {
            return Ok(Next::rest());
        }
        let Some(id) = image.metadata.uid.as_deref().and_then(|uid| uid.parse::<ImageId>().ok()) else {
            return Ok(Next::rest());
        };
        if image.metadata.deletion_timestamp.is_some() {
            if image.metadata.finalizers.iter().flatten().any(|one| one == DATA_FINALIZER) {
                self.remove(&id, &image).await?;
            }
            return Ok(Next::rest());
        }
        let here = self.found(&id).await?;
        let now = (
            i64::try_from(self.world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX),
            self.world.clock.rfc3339(),
        );
        // The class is published by a controller, which sees that the image is complete.
        match image::next_step(&image, &here, true, (now.0, &now.1)) {
            Planned::WriteStatus(status) => {
                let (old, new) = (serde_json::to_value(&image.status)?, serde_json::to_value(&*status)?);
                let change = json!({
                    "metadata": {"resourceVersion": image.metadata.resource_version},
                    "status": merge_patch(&old, &new),
                });
                self.patch(&image, &change).await?;
                self.after.took(Step::WriteStatus);
                Ok(Next::again_after(Duration::ZERO))
            }
            Planned::Fetch { url } => {
                self.fetch(&id, &image, url);
                Ok(Next::again_after(SHOW_EVERY / 10))
            }
            Planned::Wait { until } => {
                let wait = u64::try_from(until - now.0).unwrap_or(0);
                Ok(Next::again_after(Duration::from_secs(wait.max(1))))
            }
            Planned::Rest if matches!(here, Found::Arriving { .. }) => Ok(Next::again_after(SHOW_EVERY)),
            Planned::Rest
                if image.spec.source_type == "upload" && !matches!(here, Found::Complete { .. }) =>
            {
                Ok(Next::again_after(UPLOAD_LOOK))
            }
            Planned::Rest | Planned::Publish { .. } => Ok(Next::rest()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_not_done_before_it_is_checked() {
        assert_eq!(progress(0, Some(10)), 0);
        assert_eq!(progress(5, Some(10)), 50);
        assert_eq!(progress(10, Some(10)), 99);
        assert_eq!(progress(5, None), 0);
    }
}
