//! How much the snapshots of a namespace, or of one of its machines, may take: `updateResourceQuota` and `deleteResourceQuota`.
//!
//! All of a namespace is in one object (`harvesterhci.io` ResourceQuota), which is made when something is first limited. 0 is no
//! limit, and taking a limit away leaves the object.

use serde_json::{Value, json};
use sheaf_resources::{kinds::harvester_resource_quota::DEFAULT_NAME, quantity};

use super::{Action, ActionCall, Input, Outcome};
use crate::{
    request::Verb,
    status::ApiError,
    steve::{
        errand::{Errand, JSON, MERGE_PATCH},
        rights::Right,
    },
};

pub const UPDATE: &str = "updateResourceQuota";
pub const DELETE: &str = "deleteResourceQuota";

const QUOTAS: (&str, &str, &str) = ("harvesterhci.io", "v1beta1", "resourcequotas");
const RIGHT: Right = Right::to(Verb::Update, QUOTAS.0, QUOTAS.2);

pub const ACTIONS: [Action; 2] = [
    Action {
        name: UPDATE,
        input: Some(Input {
            schema: "updateResourceQuotaInput",
            fields: &[("totalSnapshotSizeQuota", "string")],
        }),
        needs: &[RIGHT],
    },
    Action { name: DELETE, input: None, needs: &[RIGHT] },
];

/// Sets a limit, or takes it away. `limit` says where in `spec.snapshotLimit` the number of bytes goes, or what stands there
/// when there is none any more.
pub async fn act(
    call: &ActionCall<'_>,
    namespace: &str,
    limit: impl Fn(Option<i64>) -> Value,
) -> Result<Outcome, ApiError> {
    let bytes = match call.name {
        UPDATE => {
            let said = call.required("totalSnapshotSizeQuota")?;
            let bytes = quantity::value(said).filter(|bytes| *bytes >= 0);
            Some(bytes.ok_or_else(|| {
                let why = format!(
                    "totalSnapshotSizeQuota is {said:?}, which is not an amount of bytes such as 10Gi"
                );
                ApiError::unprocessable(why)
            })?)
        }
        _ => None,
    };
    let spec = json!({"snapshotLimit": limit(bytes)});
    let patch =
        Errand::new(Verb::Patch, QUOTAS, namespace, DEFAULT_NAME).with(MERGE_PATCH, json!({"spec": spec}));
    match call.errands.ask(&patch).await {
        Err(why) if why.is_not_found() && bytes.is_none() => Ok(Outcome::Done),
        Err(why) if why.is_not_found() => {
            let quota = json!({
                "apiVersion": "harvesterhci.io/v1beta1", "kind": "ResourceQuota",
                "metadata": {"name": DEFAULT_NAME}, "spec": spec,
            });
            match call.errands.ask(&Errand::new(Verb::Create, QUOTAS, namespace, "").with(JSON, quota)).await
            {
                // Somebody made it in between, and it is there to be changed.
                Err(why) if why.is_already_exists() => call.errands.ask(&patch).await,
                made => made,
            }?;
            Ok(Outcome::Done)
        }
        Err(why) => Err(why),
        Ok(_) => Ok(Outcome::Done),
    }
}
