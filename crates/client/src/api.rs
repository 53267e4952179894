//! Requests every controller and agent makes, and what their refusals mean.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PropagationPolicy},
    core::{ApiResource, gvk::GroupVersionKind},
};
use serde_json::{Value, json};

use crate::objects::Objects;

/// Whose writes these are, for whoever looks at who wrote what.
pub const FIELD_MANAGER: &str = "sheaf";

/// Names a kind that every cluster serves.
pub fn built_in(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The objects of a resource in one namespace; an empty one stands for none, or all.
pub fn objects(client: &Client, resource: &ApiResource, namespace: &str) -> Objects<DynamicObject> {
    Objects::of(client, resource, namespace)
}

/// Changes what `change` says. It should carry the resourceVersion that was looked at, so that
/// nothing is written over what was not seen.
pub async fn merge(
    objects: &Objects<DynamicObject>,
    name: &str,
    change: &Value,
) -> Result<DynamicObject, kube::Error> {
    objects.patch(name, &patching(), &Patch::Merge(change)).await
}

/// The same for `status`.
pub async fn merge_status(
    objects: &Objects<DynamicObject>,
    name: &str,
    change: &Value,
) -> Result<DynamicObject, kube::Error> {
    objects.patch_status(name, &patching(), &Patch::Merge(change)).await
}

/// In our own name.
pub fn patching() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The change that takes a finalizer off an object as it was seen, and leaves the others.
pub fn without_finalizer(seen: &ObjectMeta, finalizer: &str) -> Value {
    let left: Vec<&String> = seen.finalizers.iter().flatten().filter(|held| *held != finalizer).collect();
    json!({"metadata": {"resourceVersion": seen.resource_version, "finalizers": left}})
}

/// Deletes this very object and no later one of the same name, provided that it is as it was seen. Answers the object
/// while something still holds it.
pub async fn delete_as_seen(
    objects: &Objects<DynamicObject>,
    seen: &ObjectMeta,
    propagation: PropagationPolicy,
) -> Result<Option<DynamicObject>, kube::Error> {
    let options = DeleteParams {
        propagation_policy: Some(propagation),
        preconditions: Some(kube::api::Preconditions {
            uid: seen.uid.clone(),
            resource_version: seen.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    let name = seen.name.as_deref().unwrap_or_default();
    match objects.delete(name, &options).await {
        Ok(held) => Ok(held),
        Err(why) if is_not_found(&why) => Ok(None),
        Err(why) => Err(why),
    }
}

pub fn is_not_found(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(status) if status.is_not_found() || status.code == 404)
}

pub fn is_already_exists(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(status) if status.is_already_exists())
}

/// Somebody was faster; look again.
pub fn is_conflict(why: &kube::Error) -> bool {
    matches!(why, kube::Error::Api(status) if status.is_conflict() && !status.is_already_exists())
}

/// The history between what was seen and now is gone; list again.
pub fn is_expired(code: u16) -> bool {
    code == 410
}

/// The namespace is on its way out, so nothing can be made in it, and nothing needs to be.
pub fn is_namespace_terminating(why: &kube::Error) -> bool {
    let kube::Error::Api(status) = why else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.is_forbidden() && causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}
