//! What is done with snapshots of volumes: `restore` makes a claim of one.

use async_trait::async_trait;
use serde_json::{Value, json};
use sheaf_resources::kinds::{
    persistent_volume_claim::IMAGE_ANNOTATION,
    virtual_machine_image::STORAGE_CLASS_ANNOTATION,
    volume_snapshot::{GROUP, STORAGE_PROVISIONER_ANNOTATION},
};

use super::{
    Action, ActionCall, Input, Look, Outcome, ResourceActions, persistent_volume_claim::create_claim,
};
use crate::{
    request::Verb,
    status::ApiError,
    steve::{errand::Errand, rights::Right},
};

const CLASSES: (&str, &str, &str) = ("storage.k8s.io", "v1", "storageclasses");

static ACTIONS: &[Action] = &[Action {
    name: "restore",
    input: Some(Input {
        schema: "restoreSnapshotInput",
        fields: &[("name", "string"), ("storageClassName", "string")],
    }),
    needs: &[Right::to(Verb::Create, "", "persistentvolumeclaims")],
}];

pub struct VolumeSnapshots;

#[async_trait]
impl ResourceActions for VolumeSnapshots {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, _look: &Look, snapshot: &Value) -> Vec<&'static str> {
        let is_ready = snapshot["status"]["readyToUse"] == true && !class_of(snapshot).is_empty();
        if is_ready { vec!["restore"] } else { Vec::new() }
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        let name = call.required("name")?;
        if self.fitting(call.look, call.object).is_empty() {
            let why = format!(
                "the snapshot {} is not ready to use, or does not say of which class its volume was",
                call.object_name
            );
            return Err(ApiError::unprocessable(why));
        }
        let annotations = &call.object["metadata"]["annotations"];
        let own = class_of(call.object);
        let class = Some(call.text("storageClassName")?).filter(|class| !class.is_empty()).unwrap_or(own);
        if class != own {
            if !text(&annotations[IMAGE_ANNOTATION]).is_empty() {
                let why = "a volume of an image keeps the storage class of its image";
                return Err(ApiError::unprocessable(why));
            }
            let found = call.errands.ask(&Errand::new(Verb::Get, CLASSES, "", class)).await?;
            let provisioner = text(&annotations[STORAGE_PROVISIONER_ANNOTATION]);
            if !provisioner.is_empty() && found["provisioner"] != provisioner {
                let why = format!("the storage class {class} is not of the provisioner {provisioner}");
                return Err(ApiError::unprocessable(why));
            }
        }
        let like = json!({
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
            "resources": {"requests": {"storage": call.object["status"]["restoreSize"]}},
        });
        let source = json!({"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": call.object_name});
        create_claim(call, name, &like, source, annotations).await
    }
}

/// The class of the volume that it is of.
fn class_of(snapshot: &Value) -> &str {
    text(&snapshot["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
