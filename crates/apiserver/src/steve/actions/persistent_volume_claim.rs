//! What is done with claims, and so with the volumes behind them.
//!
//! | action | becomes |
//! |---|---|
//! | export | a VirtualMachineImage of what the volume holds at that moment |
//! | clone | a claim whose source is this one |
//! | snapshot | a VolumeSnapshot, which goes when its claim goes |
//!
//! Deliberately absent: `cancelExpand` (a growth that does not fit waits for room, and is not taken back) and `dataMigration`
//! (there is one place to be).

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sheaf_resources::kinds::{
    persistent_volume_claim::{IMAGE_ANNOTATION, PROVISIONER_ANNOTATION},
    virtual_machine_image::{EXPORT, STORAGE_CLASS_ANNOTATION},
    volume_snapshot::{self, STORAGE_PROVISIONER_ANNOTATION},
};

use super::{Action, ActionCall, Input, Look, Outcome, ResourceActions};
use crate::{
    request::Verb,
    status::ApiError,
    steve::{
        errand::{Errand, JSON},
        rights::Right,
    },
};

const CLAIMS: (&str, &str, &str) = ("", "v1", "persistentvolumeclaims");
const IMAGES: (&str, &str, &str) = ("harvesterhci.io", "v1beta1", "virtualmachineimages");
const SNAPSHOTS: (&str, &str, &str) = (volume_snapshot::GROUP, "v1", "volumesnapshots");

static ACTIONS: &[Action] = &[
    Action {
        name: "export",
        input: Some(Input {
            schema: "exportVolumeInput",
            fields: &[("displayName", "string"), ("namespace", "string"), ("storageClassName", "string")],
        }),
        // The image may be made in another namespace: whether it may is asked when it is made.
        needs: &[Right::to(Verb::Update, CLAIMS.0, CLAIMS.2)],
    },
    Action {
        name: "clone",
        input: Some(Input { schema: "cloneVolumeInput", fields: &[("name", "string")] }),
        needs: &[Right::to(Verb::Create, CLAIMS.0, CLAIMS.2)],
    },
    Action {
        name: "snapshot",
        input: Some(Input { schema: "snapshotVolumeInput", fields: &[("name", "string")] }),
        needs: &[Right::to(Verb::Create, SNAPSHOTS.0, SNAPSHOTS.2)],
    },
];

pub struct PersistentVolumeClaims;

#[async_trait]
impl ResourceActions for PersistentVolumeClaims {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, look: &Look, claim: &Value) -> Vec<&'static str> {
        let is_bound =
            claim["status"]["phase"] == "Bound" && claim["metadata"]["deletionTimestamp"].is_null();
        if !is_bound {
            return Vec::new();
        }
        let mut fitting = vec!["export", "clone"];
        fitting.extend(look.snapshot_class_of(claim).map(|_| "snapshot"));
        fitting
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        if !self.fitting(call.look, call.object).contains(&call.name) {
            let why =
                format!("the claim {} is not bound, or nobody does that with its volume", call.object_name);
            return Err(ApiError::unprocessable(why));
        }
        match call.name {
            "export" => export(call).await,
            "clone" => clone(call).await,
            "snapshot" => snapshot(call).await,
            other => Err(ApiError::invalid_action(other)),
        }
    }
}

async fn export(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let (display_name, namespace) = (call.required("displayName")?, call.required("namespace")?);
    let class = call.required("storageClassName")?;
    let image = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
        "metadata": {
            "generateName": "image-", "namespace": namespace, "annotations": {STORAGE_CLASS_ANNOTATION: class},
        },
        "spec": {
            "displayName": display_name, "sourceType": EXPORT,
            "pvcNamespace": call.namespace, "pvcName": call.object_name, "targetStorageClassName": class,
        },
    });
    let made = call.errands.ask(&Errand::new(Verb::Create, IMAGES, namespace, "").with(JSON, image)).await?;
    Ok(Outcome::Answer(made))
}

async fn clone(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let name = call.required("name")?;
    let source = json!({"kind": "PersistentVolumeClaim", "name": call.object_name});
    create_claim(call, name, &call.object["spec"], source, &call.object["metadata"]["annotations"]).await
}

async fn snapshot(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let name = call.required("name")?;
    let (metadata, spec) = (&call.object["metadata"], &call.object["spec"]);
    let annotations = &metadata["annotations"];
    let mut noted = Map::new();
    for (key, value) in [
        (STORAGE_CLASS_ANNOTATION, &spec["storageClassName"]),
        (STORAGE_PROVISIONER_ANNOTATION, &annotations[PROVISIONER_ANNOTATION]),
        (IMAGE_ANNOTATION, &annotations[IMAGE_ANNOTATION]),
    ] {
        if value.as_str().is_some_and(|value| !value.is_empty()) {
            noted.insert(key.into(), value.clone());
        }
    }
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {
            "name": name, "annotations": noted,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "name": call.object_name, "uid": metadata["uid"],
            }],
        },
        "spec": {
            "source": {"persistentVolumeClaimName": call.object_name},
            "volumeSnapshotClassName": call.look.snapshot_class_of(call.object),
        },
    });
    let errand = Errand::new(Verb::Create, SNAPSHOTS, call.namespace, "").with(JSON, snapshot);
    call.errands.ask(&errand).await?;
    Ok(Outcome::Done)
}

/// A claim like another one, whose contents come from `source`.
pub(super) async fn create_claim(
    call: &ActionCall<'_>,
    name: &str,
    like: &Value,
    source: Value,
    annotations: &Value,
) -> Result<Outcome, ApiError> {
    let mut noted = Map::new();
    if let Some(image) = annotations[IMAGE_ANNOTATION].as_str().filter(|image| !image.is_empty()) {
        noted.insert(IMAGE_ANNOTATION.into(), image.into());
    }
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": noted},
        "spec": {
            "accessModes": like["accessModes"], "volumeMode": like["volumeMode"], "resources": like["resources"],
            "storageClassName": like["storageClassName"], "dataSource": source,
        },
    });
    let errand = Errand::new(Verb::Create, CLAIMS, call.namespace, "").with(JSON, claim);
    call.errands.ask(&errand).await?;
    Ok(Outcome::Done)
}
