//! Takes, reports and removes the snapshots of volumes that are on this node.
//!
//! A controller makes a content for every VolumeSnapshot and says which node it concerns; this is the only writer of the
//! contents' status. The decision is [`planner::volume_snapshot_content`](sheaf_planner::volume_snapshot_content).

mod taking;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1::PersistentVolume, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::ListParams;
use serde_json::{Value, json};
use sheaf_client::{
    api,
    objects::Objects,
    reconciling::{Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_planner::volume_snapshot_content::{Seen, Step as Planned, next_step};
use sheaf_resources::kinds::{
    storage_class::PROVISIONER,
    volume_snapshot::{FREEZE_ANNOTATION, TOGETHER_ANNOTATION, TOGETHER_OF_ANNOTATION},
    volume_snapshot_content::{
        BOUND_PROTECTION, DATA_FINALIZER, NODE_ANNOTATION, VolumeSnapshotContent, handle_of,
    },
};
use sheaf_storage::{Backend, Snapshot, SnapshotId, VolumeError, VolumeId};

pub(crate) use self::taking::Wanted;
use crate::{
    step::Step,
    virtual_machine_instance::{Hands, Trouble, found, with_causes},
};

/// How soon it is looked again for what others must do.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(1);
/// How soon something that failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// What handles begin with.
const HANDLE_PREFIX: &str = "snap-";

pub struct SnapshotTaker {
    pub hands: Arc<Hands>,
}

fn resource() -> kube::core::ApiResource {
    api::built_in("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents")
}

/// The snapshot that a handle names.
pub(crate) fn snapshot_of_handle(handle: &str) -> Option<SnapshotId> {
    handle.strip_prefix(HANDLE_PREFIX)?.parse().ok()
}

/// The volume that a handle names.
pub(crate) fn volume_of_handle(handle: &str) -> Option<VolumeId> {
    handle.strip_prefix("pvc-").unwrap_or(handle).parse().ok()
}

/// A content and what it asks for.
struct Asked {
    content: VolumeSnapshotContent,
    handle: String,
    snapshot: SnapshotId,
    /// None for a snapshot that somebody else took.
    volume: Option<VolumeId>,
}

impl Asked {
    fn of(content: VolumeSnapshotContent) -> Option<Asked> {
        let source = &content.spec.source;
        let uid = content.spec.volume_snapshot_ref.uid.clone().unwrap_or_default();
        let handle = source.snapshot_handle.clone().unwrap_or_else(|| handle_of(&uid));
        let snapshot = snapshot_of_handle(&handle)?;
        let volume = match &source.volume_handle {
            Some(handle) => Some(volume_of_handle(handle)?),
            None => None,
        };
        Some(Asked { content, handle, snapshot, volume })
    }

    fn annotation(&self, name: &str) -> &str {
        annotation(&self.content.metadata, name)
    }

    fn is_ready(&self) -> bool {
        self.content.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true))
    }

    /// Whether two are to be of the same instant.
    fn belongs_to(&self, other: &Asked) -> bool {
        !self.annotation(TOGETHER_ANNOTATION).is_empty()
            && self.annotation(TOGETHER_ANNOTATION) == other.annotation(TOGETHER_ANNOTATION)
            && self.content.spec.volume_snapshot_ref.namespace
                == other.content.spec.volume_snapshot_ref.namespace
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, name: &str) -> &'a str {
    metadata.annotations.as_ref().and_then(|all| all.get(name)).map_or("", String::as_str)
}

impl SnapshotTaker {
    fn contents(&self) -> Objects<VolumeSnapshotContent> {
        Objects::all(self.hands.client.clone())
    }

    /// All that are to be of the same instant, this one included.
    async fn together(&self, asked: Asked) -> Result<Vec<Asked>, ReconcileError> {
        if asked.annotation(TOGETHER_ANNOTATION).is_empty() {
            return Ok(vec![asked]);
        }
        let all = self.contents().list(&ListParams::default()).await?;
        let here = |metadata: &ObjectMeta| annotation(metadata, NODE_ANNOTATION) == self.hands.node;
        let others = all
            .items
            .into_iter()
            .filter(|content| here(&content.metadata) && content.metadata.deletion_timestamp.is_none());
        Ok(others.filter_map(Asked::of).filter(|other| other.belongs_to(&asked)).collect())
    }

    async fn seen(&self, asked: &Asked, together: Option<(usize, usize)>) -> Result<Seen, ReconcileError> {
        let metadata = &asked.content.metadata;
        let has = |finalizer: &str| metadata.finalizers.iter().flatten().any(|one| one == finalizer);
        let on_disk = self.hands.storage.snapshot(&asked.snapshot).await;
        Ok(Seen {
            being_deleted: metadata.deletion_timestamp.is_some(),
            bound: has(BOUND_PROTECTION),
            keeps_data: has(DATA_FINALIZER),
            ready: asked.is_ready(),
            pre_provisioned: asked.volume.is_none(),
            on_disk: on_disk.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?.is_some(),
            together,
        })
    }

    /// Takes all of these, at one instant. Where some are taken already, that was it.
    async fn take(&self, together: &[Asked]) -> Result<(), Trouble> {
        let mut wanted = Vec::new();
        for asked in together {
            let Some(volume) = &asked.volume else { continue };
            if self.hands.storage.snapshot(&asked.snapshot).await?.is_none() {
                let handle = asked.content.spec.source.volume_handle.as_deref().unwrap_or_default();
                self.hands.ensure_made(volume, handle).await?;
            }
            wanted.push(Wanted { volume: volume.clone(), snapshot: asked.snapshot.clone() });
        }
        let freeze = together.iter().all(|asked| asked.annotation(FREEZE_ANNOTATION) != "false");
        let taken = self.hands.take_snapshots(&wanted, freeze).await?;
        let time = self.hands.world.clock.since_epoch();
        for (one, snapshot) in wanted.iter().zip(&taken.snapshots) {
            let asked = together.iter().find(|asked| asked.snapshot == one.snapshot);
            if let Some(asked) = asked.filter(|asked| !asked.is_ready()) {
                self.report(asked, snapshot, time).await?;
            }
        }
        tracing::info!(snapshots = wanted.len(), frozen = taken.frozen, "took snapshots");
        Ok(())
    }

    /// A snapshot that is there. Whoever took it may have died before its volume knew.
    async fn found(&self, asked: &Asked) -> Result<Option<Snapshot>, VolumeError> {
        match &asked.volume {
            Some(volume) => self.hands.storage.finish_snapshot(volume, &asked.snapshot).await.map(Some),
            None => self.hands.storage.snapshot(&asked.snapshot).await,
        }
    }

    async fn report(&self, asked: &Asked, snapshot: &Snapshot, time: Duration) -> Result<(), kube::Error> {
        // One that was ready before keeps its time.
        let known = asked.content.status.as_ref().and_then(|status| status.creation_time);
        let status = json!({
            "snapshotHandle": asked.handle,
            "creationTime": known.unwrap_or_else(|| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)),
            "restoreSize": i64::try_from(snapshot.virtual_size).unwrap_or(i64::MAX),
            "readyToUse": true,
            "error": null,
        });
        self.write_status(asked, status).await
    }

    async fn report_trouble(&self, asked: &Asked, why: &str) -> Result<(), kube::Error> {
        let status = asked.content.status.as_ref();
        let said = status.and_then(|status| status.error.as_ref()).and_then(|error| error.message.as_deref());
        if said == Some(why) && !asked.is_ready() {
            return Ok(());
        }
        let error = json!({"message": why, "time": self.hands.world.clock.rfc3339()});
        self.write_status(asked, json!({"readyToUse": false, "error": error})).await
    }

    async fn write_status(&self, asked: &Asked, status: Value) -> Result<(), kube::Error> {
        let name = asked.content.metadata.name.as_deref().unwrap_or_default();
        let objects = api::objects(&self.hands.client, &resource(), "");
        match api::merge_status(&objects, name, &json!({"status": status})).await {
            Err(why) if !api::is_not_found(&why) => Err(why),
            _ => {
                self.hands.after.took(Step::WriteStatus);
                Ok(())
            }
        }
    }

    async fn remove(&self, asked: &Asked) -> Result<(), ReconcileError> {
        let removed = self.hands.storage.delete_snapshot(&asked.snapshot).await;
        removed.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
        let name = asked.content.metadata.name.as_deref().unwrap_or_default();
        let change = api::without_finalizer(&asked.content.metadata, DATA_FINALIZER);
        match api::merge(&api::objects(&self.hands.client, &resource(), ""), name, &change).await {
            Err(why) if !api::is_not_found(&why) => Err(why.into()),
            _ => {
                self.hands.after.took(Step::Release);
                self.hands.layers_changed.notify_one();
                Ok(())
            }
        }
    }
}

impl Reconciler for SnapshotTaker {
    type Key = String;

    const NAME: &'static str = "snapshot-taker";

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _: usize, metadata: &ObjectMeta) -> Vec<String> {
        let is_ours = annotation(metadata, NODE_ANNOTATION) == self.hands.node;
        metadata.name.clone().filter(|_| is_ours).into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let Some(content) = found(self.contents().get(name).await)? else { return Ok(Next::rest()) };
        let is_ours = annotation(&content.metadata, NODE_ANNOTATION) == self.hands.node;
        if !is_ours || content.spec.driver != PROVISIONER {
            return Ok(Next::rest());
        }
        let Some(asked) = Asked::of(content) else { return Ok(Next::rest()) };
        let wanted: Option<usize> = asked.annotation(TOGETHER_OF_ANNOTATION).parse().ok();
        let (uid, seen) = (asked.content.metadata.uid.clone(), self.seen(&asked, None).await?);
        let together = match wanted {
            Some(_) if next_step(&seen) == Planned::Take => self.together(asked).await?,
            _ => vec![asked],
        };
        let Some(asked) = together.iter().find(|one| one.content.metadata.uid == uid) else {
            return Ok(Next::again_after(WAIT_FOR_OTHERS));
        };
        let seen = Seen { together: wanted.map(|wanted| (wanted, together.len())), ..seen };
        match next_step(&seen) {
            Planned::Rest => Ok(Next::rest()),
            Planned::WaitForOthers => Ok(Next::again_after(WAIT_FOR_OTHERS)),
            Planned::Take => match self.take(&together).await {
                Ok(()) => Ok(Next::rest()),
                Err(Trouble::Waiting(_)) => Ok(Next::again_after(WAIT_FOR_OTHERS)),
                Err(why) => {
                    tracing::warn!(content = name, %why, "a snapshot could not be taken; trying again");
                    for asked in together.iter().filter(|asked| !asked.is_ready()) {
                        self.report_trouble(asked, &why.to_string()).await?;
                    }
                    Ok(Next::again_after(TRY_AGAIN))
                }
            },
            Planned::Report => {
                let snapshot = self.found(asked).await;
                let snapshot = snapshot.map_err(|why| ReconcileError::Unreadable(with_causes(&why)))?;
                if let Some(snapshot) = snapshot {
                    self.report(asked, &snapshot, self.hands.world.clock.since_epoch()).await?;
                }
                Ok(Next::rest())
            }
            Planned::ReportLost => {
                let why = format!("the data of this snapshot is not on node {}", self.hands.node);
                self.report_trouble(asked, &why).await?;
                Ok(Next::rest())
            }
            Planned::Remove => {
                self.remove(asked).await?;
                Ok(Next::rest())
            }
        }
    }
}

impl Hands {
    /// Sees to it that a volume of this node is there, also when no machine ever used it.
    pub(crate) async fn ensure_made(&self, volume: &VolumeId, name: &str) -> Result<(), Trouble> {
        if self.storage.volume(volume).await?.is_some() {
            return Ok(());
        }
        let volumes: Objects<PersistentVolume> = Objects::all(self.client.clone());
        let Some(object) = found(volumes.get(name).await)? else {
            return Err(Trouble::Odd { what: format!("volume {name}"), why: "it does not exist".into() });
        };
        // It would be made anew, empty, under the name of what is about to go.
        if object.metadata.deletion_timestamp.is_some() {
            return Err(Trouble::Odd { what: format!("volume {name}"), why: "it is being deleted".into() });
        }
        let made = crate::persistent_volume::Made::of(&object)?;
        if made.is_copy() {
            return Err(Trouble::Waiting(format!("waiting for volume {name} to be copied")));
        }
        self.storage.create(volume, made.bytes, &made.origin()).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn asked(uid: &str, namespace: &str, together: Option<&str>) -> Asked {
        let mut annotations = BTreeMap::new();
        if let Some(together) = together {
            annotations.insert(TOGETHER_ANNOTATION.to_owned(), together.to_owned());
        }
        let content = serde_json::from_value(json!({
            "metadata": {"name": uid, "annotations": annotations},
            "spec": {"driver": PROVISIONER, "deletionPolicy": "Delete", "source": {"volumeHandle": "pvc-v"},
                "volumeSnapshotRef": {"name": "s", "namespace": namespace, "uid": uid}},
        }));
        Asked::of(content.unwrap()).unwrap()
    }

    #[test]
    fn a_handle_names_what_the_storage_knows() {
        let asked = asked("0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f", "default", None);
        assert_eq!(asked.handle, "snap-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f");
        assert_eq!(asked.snapshot.as_str(), "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f");
        assert_eq!(asked.volume.unwrap().as_str(), "v");
        for bad in ["", "snap-", "snap-../x", "snap-a/b", "0e9ad7f6"] {
            assert_eq!(snapshot_of_handle(bad), None, "{bad}");
        }
        assert_eq!(volume_of_handle("pvc-../../etc"), None);
    }

    #[test]
    fn only_those_of_one_namespace_and_one_word_belong_together() {
        let one = asked("a", "default", Some("backup-1"));
        assert!(asked("b", "default", Some("backup-1")).belongs_to(&one));
        assert!(!asked("b", "default", Some("backup-2")).belongs_to(&one));
        assert!(!asked("b", "tenant", Some("backup-1")).belongs_to(&one), "another's namespace");
        assert!(!asked("b", "default", None).belongs_to(&asked("a", "default", None)));
    }
}
