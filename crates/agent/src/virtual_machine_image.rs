//! Fetches and keeps the images that are this node's to keep, and says how far it is.
//!
//! Which node that is, a controller decides and writes into the image. A download, a clone and an export are tasks beside
//! the loop; where one stands is asked of the storage, so the loop, a restart and a retry all look at
//! the same truth. An upload is brought in through the stream port.

mod export;
pub mod sweep;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;
use sheaf_client::{
    api,
    objects::Objects,
    reconciling::{Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::image::{self, Amount, Found, Step as Planned};
use sheaf_resources::kinds::{
    setting::{ADDITIONAL_CA, HTTP_PROXY, ProxySetting, Setting},
    virtual_machine_image::{
        DATA_FINALIZER, IMAGE_TYPE_LABEL, IMPORTED, NODE_ANNOTATION, UPLOAD, VirtualMachineImage,
    },
};
use sheaf_storage::{Checksum, ImageId, ImageState, Proxies, Source};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use self::export::Export;
use crate::{
    merge::merge_patch,
    persistent_volume::Made,
    step::Step,
    virtual_machine_instance::{Hands, Trouble, found, read_claim, with_causes},
};

/// How often progress is shown.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether one that arrives is here: that is shown at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked whether somebody brought an upload.
const UPLOAD_LOOK: Duration = Duration::from_secs(1);

pub struct ImageKeeper {
    hands: Arc<Hands>,
    /// Whether images may be fetched from this host itself and its link.
    allow_local: bool,
    tasks: BTreeMap<ImageId, Task>,
    /// When the progress of an image that arrives was shown.
    shown: BTreeMap<ImageId, Instant>,
}

/// What brings an image here.
enum Task {
    UnderWay {
        work: JoinHandle<Result<(), String>>,
        /// For work that puts away what it began; other work is dropped.
        stop: Option<CancellationToken>,
    },
    /// It ended badly, at this time.
    Failed { at: i64, why: String },
}

type Key = (String, String);

impl ImageKeeper {
    pub fn new(hands: Arc<Hands>, allow_local: bool) -> Self {
        ImageKeeper { hands, allow_local, tasks: BTreeMap::new(), shown: BTreeMap::new() }
    }

    fn images(&self, namespace: &str) -> Objects<VirtualMachineImage> {
        Objects::namespaced(self.hands.client.clone(), namespace)
    }

    /// What there is of an image's bytes.
    async fn found(&mut self, id: &ImageId) -> Result<Found, ReconcileError> {
        let now = i64::try_from(self.hands.world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        if let Some(Task::UnderWay { work, .. }) = self.tasks.get_mut(id)
            && work.is_finished()
        {
            let outcome = work.await.unwrap_or_else(|why| Err(why.to_string()));
            match outcome {
                Ok(()) => drop(self.tasks.remove(id)),
                Err(why) => drop(self.tasks.insert(id.clone(), Task::Failed { at: now, why })),
            }
        }
        let state = self.hands.storage.image(id).await;
        let state = state.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        Ok(match (state, self.tasks.get(id)) {
            (ImageState::Complete(image), _) => Found::Complete {
                size: i64::try_from(image.size).unwrap_or(i64::MAX),
                virtual_size: i64::try_from(image.virtual_size).unwrap_or(i64::MAX),
                is_disc: image.is_disc,
            },
            (ImageState::Arriving { bytes, total }, _) => Found::Arriving(amount(bytes, total)),
            (ImageState::Interrupted { bytes, total, why }, _) => {
                Found::Interrupted { amount: amount(bytes, total), why }
            }
            (_, Some(Task::UnderWay { .. })) => Found::Arriving(Amount::default()),
            (_, Some(Task::Failed { at, why })) => Found::Failed { at: *at, why: why.clone() },
            (ImageState::Failed { why }, None) => {
                // Noted, so that it is the same failure at the next look.
                self.tasks.insert(id.clone(), Task::Failed { at: now, why: why.clone() });
                Found::Failed { at: now, why }
            }
            (ImageState::Nothing, None) => Found::Nothing,
        })
    }

    async fn fetch(
        &mut self,
        id: &ImageId,
        image: &VirtualMachineImage,
        url: String,
    ) -> Result<(), ReconcileError> {
        let proxies = ProxySetting::read(&self.setting(HTTP_PROXY).await?);
        let additional_ca = self.setting(ADDITIONAL_CA).await?;
        let source = Source {
            allow_local: self.allow_local,
            checksum: Checksum::parse(&image.spec.checksum),
            additional_ca: Some(additional_ca).filter(|ca| !ca.is_empty()),
            proxies: Proxies {
                http: proxies.http_proxy,
                https: proxies.https_proxy,
                no_proxy: proxies.no_proxy,
            },
            ..Source::of(url)
        };
        let (storage, image_id) = (self.hands.storage.clone(), id.clone());
        self.begin(id, None, async move {
            storage.fetch_image(&image_id, source).await.map(drop).map_err(|why| with_causes(&why))
        });
        Ok(())
    }

    /// Makes an image of another one, once that is here.
    async fn clone_from(
        &mut self,
        id: &ImageId,
        (namespace, name): (&str, &str),
    ) -> Result<(), ReconcileError> {
        let original = found(self.images(namespace).get(name).await)?;
        if original.as_ref().is_some_and(|original| !original.is_imported() && !has_failed(original)) {
            return Ok(());
        }
        let (storage, image_id) = (self.hands.storage.clone(), id.clone());
        let (node, place) = (self.hands.node.clone(), format!("{namespace}/{name}"));
        self.begin(id, None, async move {
            let original = original.ok_or_else(|| format!("there is no image {place}"))?;
            if node_of(&original) != Some(&node) {
                return Err(format!("the image {place} is on another node than this one"));
            }
            let uid = original.metadata.uid.unwrap_or_default();
            let original: ImageId = uid.parse().map_err(|why| format!("{why}"))?;
            storage.clone_image(&image_id, &original).await.map(drop).map_err(|why| with_causes(&why))
        });
        Ok(())
    }

    /// Makes an image of the disk of a claim.
    async fn export_from(
        &mut self,
        id: &ImageId,
        (namespace, claim): (&str, &str),
    ) -> Result<(), ReconcileError> {
        let why = match read_claim(&self.hands.client, namespace, claim).await {
            Ok(claimed) if claimed.node.as_ref() == Some(&self.hands.node) => {
                self.begin_export(id, claimed.made, claimed.volume_name);
                return Ok(());
            }
            Ok(_) => format!("the disk of the claim {namespace}/{claim} is on another node than this one"),
            Err(Trouble::Api(why)) => return Err((*why).into()),
            Err(why) => why.to_string(),
        };
        self.begin(id, None, async move { Err(why) });
        Ok(())
    }

    fn begin_export(&mut self, id: &ImageId, disk: Made, volume: String) {
        let stop = CancellationToken::new();
        let export =
            Export { hands: self.hands.clone(), image: id.clone(), disk, volume, stop: stop.clone() };
        self.begin(id, Some(stop), export.run());
    }

    /// Does something beside the loop. What is under way already goes on.
    fn begin(
        &mut self,
        id: &ImageId,
        stop: Option<CancellationToken>,
        work: impl Future<Output = Result<(), String>> + Send + 'static,
    ) {
        if !matches!(self.tasks.get(id), Some(Task::UnderWay { .. })) {
            let work = tokio::spawn(work);
            self.tasks.insert(id.clone(), Task::UnderWay { work, stop });
        }
    }

    /// What holds of a setting of the cluster.
    async fn setting(&self, name: &str) -> Result<String, ReconcileError> {
        let settings: Objects<Setting> = Objects::all(self.hands.client.clone());
        let setting = found(settings.get(name).await)?;
        Ok(setting.map(|setting| setting.effective().to_owned()).unwrap_or_default())
    }

    /// Removes the bytes and lets the object go.
    async fn remove(
        &mut self,
        id: &ImageId,
        image: &VirtualMachineImage,
    ) -> Result<Next<Key>, ReconcileError> {
        self.shown.remove(id);
        match self.tasks.get(id) {
            Some(Task::UnderWay { work, stop: Some(stop) }) if !work.is_finished() => {
                stop.cancel();
                return Ok(Next::again_after(LOOK_EVERY));
            }
            Some(Task::UnderWay { work, .. }) => work.abort(),
            Some(Task::Failed { .. }) | None => {}
        }
        self.tasks.remove(id);
        let deleted = self.hands.storage.delete_image(id).await;
        deleted.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        if image.exported_claim().is_some() {
            let forgotten = export::forget(&self.hands, id).await;
            forgotten.map_err(|why| ReconcileError::Unreadable(why.to_string()))?;
        }
        self.patch(image, &api::without_finalizer(&image.metadata, DATA_FINALIZER)).await?;
        self.hands.after.took(Step::Release);
        Ok(Next::rest())
    }

    async fn patch(
        &self,
        image: &VirtualMachineImage,
        change: &serde_json::Value,
    ) -> Result<(), ReconcileError> {
        let namespace = image.metadata.namespace.as_deref().unwrap_or_default();
        let name = image.metadata.name.as_deref().unwrap_or_default();
        match api::merge(&api::objects(&self.hands.client, &resource(), namespace), name, change).await {
            Err(why) if !api::is_not_found(&why) => Err(why.into()),
            _ => Ok(()),
        }
    }
}

fn resource() -> kube::core::ApiResource {
    api::built_in("harvesterhci.io", "v1beta1", "VirtualMachineImage", "virtualmachineimages")
}

fn node_of(image: &VirtualMachineImage) -> Option<&String> {
    image.metadata.annotations.as_ref()?.get(NODE_ANNOTATION)
}

/// Whether nobody tries any more to bring it.
fn has_failed(image: &VirtualMachineImage) -> bool {
    image.condition(IMPORTED).is_some_and(|condition| condition.status == "False")
}

fn amount(bytes: u64, total: Option<u64>) -> Amount {
    let Some(total) = total.filter(|total| *total > 0) else { return Amount::default() };
    // 100 is said when it is complete and checked, not before.
    let progress = i64::try_from(bytes.saturating_mul(100) / total).unwrap_or(0).min(99);
    Amount { progress, total: i64::try_from(total).unwrap_or(i64::MAX) }
}

impl Reconciler for ImageKeeper {
    type Key = Key;

    const NAME: &'static str = "image-keeper";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let node = metadata.annotations.as_ref().and_then(|annotations| annotations.get(NODE_ANNOTATION));
        let ours = node == Some(&self.hands.node);
        let key = metadata.namespace.clone().zip(metadata.name.clone());
        key.filter(|_| ours).into_iter().collect()
    }

    async fn reconcile(&mut self, (namespace, name): &Key) -> Result<Next<Key>, ReconcileError> {
        let Some(image) = found(self.images(namespace).get(name).await)? else { return Ok(Next::rest()) };
        if node_of(&image) != Some(&self.hands.node) {
            return Ok(Next::rest());
        }
        let Some(id) = image.metadata.uid.as_deref().and_then(|uid| uid.parse::<ImageId>().ok()) else {
            return Ok(Next::rest());
        };
        if image.metadata.deletion_timestamp.is_some() {
            if image.metadata.finalizers.iter().flatten().any(|one| one == DATA_FINALIZER) {
                return self.remove(&id, &image).await;
            }
            return Ok(Next::rest());
        }
        let here = self.found(&id).await?;
        if !matches!(here, Found::Arriving(_)) {
            self.shown.remove(&id);
        } else if self.shown.get(&id).is_some_and(|at| at.elapsed() < SHOW_EVERY) {
            return Ok(Next::again_after(LOOK_EVERY));
        } else {
            self.shown.insert(id.clone(), Instant::now());
        }
        let now = (
            i64::try_from(self.hands.world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX),
            self.hands.world.clock.rfc3339(),
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
                self.hands.after.took(Step::WriteStatus);
                Ok(Next::again_after(Duration::ZERO))
            }
            Planned::Fetch { url } => {
                self.fetch(&id, &image, url).await?;
                Ok(Next::again_after(LOOK_EVERY))
            }
            Planned::Clone { namespace, name } => {
                self.clone_from(&id, (&namespace, &name)).await?;
                Ok(Next::again_after(SHOW_EVERY / 4))
            }
            Planned::Export { namespace, claim } => {
                self.export_from(&id, (&namespace, &claim)).await?;
                Ok(Next::again_after(SHOW_EVERY / 4))
            }
            Planned::Label { image_type } => {
                let change = json!({
                    "metadata": {
                        "resourceVersion": image.metadata.resource_version,
                        "labels": {IMAGE_TYPE_LABEL: image_type},
                    },
                });
                self.patch(&image, &change).await?;
                Ok(Next::again_after(Duration::ZERO))
            }
            Planned::Wait { until } => {
                let wait = u64::try_from(until - now.0).unwrap_or(0);
                Ok(Next::again_after(Duration::from_secs(wait.max(1))))
            }
            Planned::Rest if matches!(here, Found::Arriving(_)) => Ok(Next::again_after(LOOK_EVERY)),
            Planned::Rest if image.spec.source_type == UPLOAD && !matches!(here, Found::Complete { .. }) => {
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
        let of_ten = |progress| Amount { progress, total: 10 };
        assert_eq!(amount(0, Some(10)), of_ten(0));
        assert_eq!(amount(5, Some(10)), of_ten(50));
        assert_eq!(amount(10, Some(10)), of_ten(99));
        assert_eq!(amount(5, None), Amount::default());
    }
}
