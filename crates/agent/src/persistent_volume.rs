//! Makes the volumes that are copies, and removes the files of those that are no longer wanted.
//!
//! An ordinary volume's files are made when the first machine that uses it is made ready. A copy of another volume or of a
//! snapshot is made at once: what is copied is what was there when somebody asked, and the source may go. All of them
//! go when the PersistentVolume does: it is kept by a finalizer until the node that has the files has
//! removed them. Nothing is removed that an object does not say is to go.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};
use sheaf_client::{
    api,
    objects::Objects,
    reconciling::{Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_resources::{
    kinds::persistent_volume::{
        CLONE_ATTRIBUTE, DATA_FINALIZER, FAILED_ANNOTATION, IMAGE_UID_ATTRIBUTE, MADE_ANNOTATION,
        PROTECTION_FINALIZER, SNAPSHOT_ATTRIBUTE, node_of,
    },
    quantity,
};
use sheaf_storage::{Backend, ImageId, Origin, SnapshotId, VolumeError, VolumeId};

use crate::{
    step::Step,
    virtual_machine_instance::{Hands, Trouble, found},
    volume_snapshot_content::{Wanted, snapshot_of_handle, volume_of_handle},
};

/// A machine that is just ending still has its disks open.
const IN_USE_WAIT: Duration = Duration::from_secs(2);
/// How soon a copy that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);

pub struct VolumeKeeper {
    pub hands: Arc<Hands>,
}

/// How a volume's files are made, as its object says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub id: VolumeId,
    pub bytes: u64,
    image: Option<ImageId>,
    copy: Option<Copy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Copy {
    OfSnapshot(SnapshotId),
    /// By what the storage and by what the API knows it.
    OfVolume(VolumeId, String),
}

impl Made {
    pub fn of(volume: &PersistentVolume) -> Result<Made, Trouble> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let odd = |why: &str| Trouble::Odd { what: format!("volume {name}"), why: why.to_owned() };
        let spec = volume.spec.as_ref().ok_or_else(|| odd("it has no specification"))?;
        let csi = spec.csi.as_ref().ok_or_else(|| odd("it is none of Sheaf's"))?;
        let id = volume_of_handle(&csi.volume_handle).ok_or_else(|| odd("its handle names no volume"))?;
        let attribute = |key: &str| csi.volume_attributes.as_ref().and_then(|all| all.get(key));
        let image = attribute(IMAGE_UID_ATTRIBUTE).map(|uid| uid.parse()).transpose();
        let copy = match (attribute(SNAPSHOT_ATTRIBUTE), attribute(CLONE_ATTRIBUTE)) {
            (Some(handle), _) => {
                let snapshot = snapshot_of_handle(handle).ok_or_else(|| odd("it names no snapshot"))?;
                Some(Copy::OfSnapshot(snapshot))
            }
            (None, Some(handle)) => {
                let source = volume_of_handle(handle).ok_or_else(|| odd("it names no volume to copy"))?;
                Some(Copy::OfVolume(source, handle.clone()))
            }
            (None, None) => None,
        };
        let size = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let bytes = size.and_then(|size| u64::try_from(quantity::value(&size.0)?).ok());
        Ok(Made {
            id,
            bytes: bytes.ok_or_else(|| odd("it has no size"))?,
            image: image.map_err(|_| odd("it names no image"))?,
            copy,
        })
    }

    pub fn is_copy(&self) -> bool {
        self.copy.is_some()
    }

    /// What one that is no copy begins as.
    pub fn origin(&self) -> Origin {
        self.image.clone().map_or(Origin::Empty, Origin::Image)
    }

    /// The snapshot that only this copy is made of.
    fn hidden_snapshot(&self) -> Option<SnapshotId> {
        format!("copy-{}", self.id).parse().ok()
    }
}

impl VolumeKeeper {
    /// Makes a copy. What can never succeed is an [`VolumeError`] of that kind.
    async fn copy(&self, made: &Made) -> Result<(), Trouble> {
        let storage = &self.hands.storage;
        match (&made.copy, made.hidden_snapshot()) {
            (Some(Copy::OfSnapshot(snapshot)), _) => {
                storage.create(&made.id, made.bytes, &Origin::Snapshot(snapshot.clone())).await?;
            }
            (Some(Copy::OfVolume(source, handle)), Some(hidden)) => {
                if storage.volume(&made.id).await?.is_none() {
                    self.hands.ensure_made(source, handle).await?;
                    let wanted = Wanted { volume: source.clone(), snapshot: hidden.clone() };
                    self.hands.take_snapshots(&[wanted], true).await?;
                    storage.create(&made.id, made.bytes, &Origin::Snapshot(hidden.clone())).await?;
                }
                storage.delete_snapshot(&hidden).await?;
                self.hands.layers_changed.notify_one();
            }
            (Some(Copy::OfVolume(..)), None) | (None, _) => {}
        }
        Ok(())
    }

    async fn make(&self, volume: &PersistentVolume) -> Result<Next<String>, ReconcileError> {
        let is_settled = [MADE_ANNOTATION, FAILED_ANNOTATION].iter().any(|name| {
            volume.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(*name))
        });
        let made = match Made::of(volume) {
            Ok(made) if made.is_copy() && !is_settled => made,
            _ => return Ok(Next::rest()),
        };
        let said = match self.copy(&made).await {
            Ok(()) => json!({MADE_ANNOTATION: "true"}),
            Err(Trouble::Waiting(_)) => return Ok(Next::again_after(IN_USE_WAIT)),
            Err(Trouble::Volume(
                why @ (VolumeError::NoSuchSnapshot { .. }
                | VolumeError::SmallerThanSource { .. }
                | VolumeError::BadSize { .. }),
            )) => json!({FAILED_ANNOTATION: why.to_string()}),
            Err(why) => {
                tracing::warn!(volume = %made.id, %why, "a volume could not be copied; trying again");
                return Ok(Next::again_after(TRY_AGAIN));
            }
        };
        self.patch(volume, &json!({"metadata": {"annotations": said}})).await?;
        self.hands.after.took(Step::WriteStatus);
        Ok(Next::rest())
    }

    async fn remove(&self, volume: &PersistentVolume) -> Result<Next<String>, ReconcileError> {
        let finalizers = volume.metadata.finalizers.iter().flatten();
        let has = |finalizer: &str| finalizers.clone().any(|one| one == finalizer);
        // While a claim holds it, its bytes are somebody's, whoever deleted the object.
        if has(PROTECTION_FINALIZER) || !has(DATA_FINALIZER) {
            return Ok(Next::rest());
        }
        let unreadable = |why: VolumeError| ReconcileError::Unreadable(why.to_string());
        if let Ok(made) = Made::of(volume) {
            match self.hands.storage.delete(&made.id).await {
                Ok(()) => {}
                Err(VolumeError::InUse { .. }) => return Ok(Next::again_after(IN_USE_WAIT)),
                Err(why) => return Err(unreadable(why)),
            }
            if let Some(hidden) = made.hidden_snapshot().filter(|_| made.is_copy()) {
                self.hands.storage.delete_snapshot(&hidden).await.map_err(unreadable)?;
            }
            self.hands.layers_changed.notify_one();
        }
        self.patch(volume, &api::without_finalizer(&volume.metadata, DATA_FINALIZER)).await?;
        self.hands.after.took(Step::Release);
        Ok(Next::rest())
    }

    async fn patch(&self, volume: &PersistentVolume, change: &Value) -> Result<(), ReconcileError> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        match api::merge(&api::objects(&self.hands.client, &resource(), ""), name, change).await {
            Err(why) if !api::is_not_found(&why) => Err(why.into()),
            _ => Ok(()),
        }
    }
}

fn resource() -> kube::core::ApiResource {
    api::built_in("", "v1", "PersistentVolume", "persistentvolumes")
}

impl Reconciler for VolumeKeeper {
    type Key = String;

    const NAME: &'static str = "volume-keeper";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<String> {
        let ours = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == DATA_FINALIZER);
        let said = |name| metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name));
        let settled = said(MADE_ANNOTATION) || said(FAILED_ANNOTATION);
        let going = metadata.deletion_timestamp.is_some();
        metadata.name.clone().filter(|_| ours && (going || !settled)).into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let volumes: Objects<PersistentVolume> = Objects::all(self.hands.client.clone());
        let Some(volume) = found(volumes.get(name).await)? else { return Ok(Next::rest()) };
        if node_of(&volume) != Some(self.hands.node.as_str()) {
            return Ok(Next::rest());
        }
        match volume.metadata.deletion_timestamp.is_some() {
            true => self.remove(&volume).await,
            false => self.make(&volume).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(attributes: Value) -> PersistentVolume {
        let csi =
            json!({"driver": "driver.longhorn.io", "volumeHandle": "pvc-v", "volumeAttributes": attributes});
        serde_json::from_value(json!({
            "metadata": {"name": "pvc-v"}, "spec": {"capacity": {"storage": "1Gi"}, "csi": csi},
        }))
        .unwrap()
    }

    #[test]
    fn what_a_volume_begins_as_is_said_by_its_object() {
        let empty = Made::of(&volume(json!({}))).unwrap();
        assert_eq!((empty.bytes, empty.origin(), empty.is_copy()), (1 << 30, Origin::Empty, false));
        let image = Made::of(&volume(json!({IMAGE_UID_ATTRIBUTE: "i"}))).unwrap();
        assert_eq!(image.origin(), Origin::Image("i".parse().unwrap()));
        let restored = Made::of(&volume(json!({SNAPSHOT_ATTRIBUTE: "snap-s"}))).unwrap();
        assert_eq!(restored.copy, Some(Copy::OfSnapshot("s".parse().unwrap())));
        let clone = Made::of(&volume(json!({CLONE_ATTRIBUTE: "pvc-w"}))).unwrap();
        assert_eq!(clone.copy, Some(Copy::OfVolume("w".parse().unwrap(), "pvc-w".into())));
    }

    #[test]
    fn nothing_is_made_of_what_could_be_a_path() {
        for attributes in [
            json!({SNAPSHOT_ATTRIBUTE: "snap-../../x"}),
            json!({CLONE_ATTRIBUTE: "pvc-../x"}),
            json!({IMAGE_UID_ATTRIBUTE: "a/b"}),
        ] {
            Made::of(&volume(attributes)).unwrap_err();
        }
    }
}
