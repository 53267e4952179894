//! Removes the bytes of images that no object stands for any more.
//!
//! An image goes with its object, whose finalizer waits for that. A finalizer can be lost all the same: somebody who may
//! do everything takes it off, or the cluster's memory is restored from before the image. What is here is then
//! found by nobody else.
//!
//! What is on the disk is looked at first and the objects are listed after that, so an image that comes to be
//! meanwhile is in the list, or was not looked at. Where the list cannot be read nothing is removed. An image goes only when
//! two looks, an hour apart, found it to be nobody's: a node that comes up with an empty store beside its old disks
//! gives its operator time to put the store back. Volumes made of an image keep its bytes.

use std::{collections::BTreeSet, time::Duration};

use kube::{Client, api::ListParams};
use sheaf_client::objects::Objects;
use sheaf_resources::kinds::virtual_machine_image::VirtualMachineImage;
use sheaf_storage::{Backend, ImageId, Storage};

use super::export;
use crate::virtual_machine_instance::with_causes;

const SWEEP_EVERY: Duration = Duration::from_secs(3600);
const TRY_AGAIN: Duration = Duration::from_secs(30);

pub async fn run(client: Client, storage: Storage) {
    let mut suspects = BTreeSet::new();
    loop {
        let pause = match sweep(&client, &storage, &suspects).await {
            Ok(found) => {
                suspects = found;
                SWEEP_EVERY
            }
            Err(why) => {
                tracing::warn!(why, "could not look for images that nobody wants any more");
                TRY_AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Removes what was nobody's before and still is; answers what is nobody's since.
async fn sweep(
    client: &Client,
    storage: &Storage,
    suspects: &BTreeSet<ImageId>,
) -> Result<BTreeSet<ImageId>, String> {
    let mut here = storage.images().await.map_err(|why| with_causes(&why))?;
    // What an image was being made of when its node died.
    let hidden = storage.snapshots().await.map_err(|why| with_causes(&why))?;
    here.extend(hidden.iter().filter_map(export::image_of));
    if here.is_empty() {
        return Ok(BTreeSet::new());
    }
    let objects: Objects<VirtualMachineImage> = Objects::all(client.clone());
    let objects = objects.list(&ListParams::default()).await.map_err(|why| with_causes(&why))?;
    let wanted = objects.items.iter().filter_map(|image| image.metadata.uid.as_deref());
    let mut found = BTreeSet::new();
    for image in unwanted(here, &wanted.collect()) {
        if !suspects.contains(&image) {
            tracing::warn!(%image, "no object stands for this image; it is removed in an hour unless one does");
            found.insert(image);
            continue;
        }
        storage.delete_image(&image).await.map_err(|why| with_causes(&why))?;
        if let Some(hidden) = export::hidden_snapshot(&image) {
            storage.delete_snapshot(&hidden).await.map_err(|why| with_causes(&why))?;
        }
        tracing::info!(%image, "removed an image that no object stands for");
    }
    Ok(found)
}

fn unwanted(here: Vec<ImageId>, wanted: &BTreeSet<&str>) -> Vec<ImageId> {
    here.into_iter().filter(|image| !wanted.contains(image.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use serde_json::json;
    use sheaf_storage::{Origin, StorageConfig};

    use super::*;

    /// An API that answers every question alike.
    fn api(code: u16, answer: &serde_json::Value) -> Client {
        let answer = Bytes::from(answer.to_string());
        let service = tower::service_fn(move |_: Request<kube::client::Body>| {
            let body = Full::new(answer.clone());
            let answer =
                Response::builder().status(code).header("content-type", "application/json").body(body);
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn only_what_no_object_stands_for_is_removed_and_only_when_that_is_certain() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Storage::open(StorageConfig::in_directory(directory.path())).await.unwrap();
        let [kept, lost] = ["kept", "lost"].map(|id| id.parse::<ImageId>().unwrap());
        for image in [&kept, &lost] {
            let bytes = futures::stream::iter([Ok::<_, Infallible>(Bytes::from(vec![1; 4096]))]);
            storage.receive_image(image, bytes, None).await.unwrap();
        }
        let (volume, hidden) = ("disk".parse().unwrap(), export::hidden_snapshot(&lost).unwrap());
        storage.create(&volume, 4096, &Origin::Empty).await.unwrap();
        storage.begin_snapshot(&volume, &hidden).await.unwrap();
        storage.finish_snapshot(&volume, &hidden).await.unwrap();
        let refusal = json!({"kind": "Status", "status": "Failure", "code": 503, "message": "not now"});
        let nobody = BTreeSet::new();
        sweep(&api(503, &refusal), &storage, &nobody).await.unwrap_err();
        assert_eq!(storage.images().await.unwrap().len(), 2);
        let list = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImageList",
            "metadata": {}, "items": [{"metadata": {"name": "i", "namespace": "n", "uid": "kept"}, "spec": {}}]});
        // A store that is empty for now costs nothing: who comes back in time keeps all.
        let empty = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImageList",
            "metadata": {}, "items": []});
        let suspects = sweep(&api(200, &empty), &storage, &nobody).await.unwrap();
        assert_eq!(storage.images().await.unwrap().len(), 2);
        let suspects = sweep(&api(200, &list), &storage, &suspects).await.unwrap();
        assert_eq!(storage.images().await.unwrap(), [kept]);
        assert_eq!(storage.snapshots().await.unwrap(), []);
        assert!(suspects.is_empty());
    }
}
