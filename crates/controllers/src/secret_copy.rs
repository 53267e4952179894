//! Copies Secrets that belong to machines, so that a copy of a machine has its own.
//!
//! Secrets are asked for one by one and remembered nowhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Client,
    api::{DynamicObject, PostParams},
};
use serde_json::json;
use sheaf_client::{
    api::{self, FIELD_MANAGER, built_in, objects},
    reconciling::ReconcileError,
};
use sheaf_resources::kinds::secret::SERVICE_ACCOUNT_TOKEN;

/// Makes the Secret `to`, which goes with its owner, with what `from` has, unless there is one. Answers whether there was
/// anything to copy.
pub(crate) async fn copy(
    client: &Client,
    namespace: &str,
    (from, to): (&str, &str),
    owner: &OwnerReference,
) -> Result<bool, ReconcileError> {
    let resource = built_in("", "v1", "Secret", "secrets");
    let secrets = objects(client, &resource, namespace);
    let Some(source) = secrets.get_opt(from).await? else { return Ok(false) };
    // A token speaks for its account, and only the one that was asked for does.
    let sort = source.data["type"].as_str().filter(|sort| *sort != SERVICE_ACCOUNT_TOKEN).unwrap_or("Opaque");
    let mut copy = DynamicObject::new(to, &resource)
        .within(namespace)
        .data(json!({"type": sort, "data": source.data["data"]}));
    copy.metadata.owner_references = Some(vec![owner.clone()]);
    let writing = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    match secrets.create(&writing, &copy).await {
        Err(why) if api::is_already_exists(&why) => Ok(true),
        made => Ok(made.map(|_| true)?),
    }
}
