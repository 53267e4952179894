//! What is done with namespaces: how much their snapshots may take together.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Action, ActionCall, Look, Outcome, ResourceActions, snapshot_quota};
use crate::status::ApiError;

pub struct Namespaces;

#[async_trait]
impl ResourceActions for Namespaces {
    fn of_object(&self) -> &'static [Action] {
        &snapshot_quota::ACTIONS
    }

    /// What is changed is inside the namespace.
    fn place_of_rights<'a>(&self, _namespace: &'a str, name: &'a str) -> (&'a str, &'a str) {
        (name, "")
    }

    fn fitting(&self, _look: &Look, namespace: &Value) -> Vec<&'static str> {
        match namespace["metadata"]["deletionTimestamp"].is_null() {
            true => vec![snapshot_quota::UPDATE, snapshot_quota::DELETE],
            false => Vec::new(),
        }
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        let limit = |bytes: Option<i64>| json!({"namespaceTotalSnapshotSizeQuota": bytes.unwrap_or(0)});
        snapshot_quota::act(call, call.object_name, limit).await?;
        // Answered with something, where other actions are answered with nothing: so clients know it.
        Ok(Outcome::Answer(json!({})))
    }
}
