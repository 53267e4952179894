//! Empties namespaces that are being deleted, says in their status what is still in the way, and lets
//! them go.
//!
//! The decisions are [`sheaf_planner::namespace_deletion`]. What a namespace may hold is asked
//! anew each time, so objects of kinds defined meanwhile are found too. Dropped half-way, the next look begins
//! with what is left.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::{self, Next, ReconcileError, Reconciler},
    served::{Served, ServedResource},
    watching::Watched,
};
use sheaf_planner::namespace_deletion::{self, Content, Seen, Step};

use crate::Context;

pub const NAME: &str = "namespace";
/// Objects looked at at a time when counting what is left.
const PAGE: u32 = 500;

pub(crate) fn resource() -> ApiResource {
    built_in("", "v1", "Namespace", "namespaces")
}

/// For controllers that keep something in every namespace and watch namespaces (first) and that something
/// (second): the namespace either is about.
pub(crate) fn named_by(watch: usize, metadata: &ObjectMeta) -> Vec<String> {
    let name = if watch == 0 { &metadata.name } else { &metadata.namespace };
    name.clone().into_iter().collect()
}

/// Whether there is such a namespace and things can be made in it.
pub(crate) async fn is_active(client: &Client, name: &str) -> Result<bool, kube::Error> {
    let found = objects(client, &resource(), "").get_metadata_opt(name).await?;
    Ok(found.is_some_and(|found| found.metadata.deletion_timestamp.is_none()))
}

/// Whether a refused create leaves nothing to be done: somebody was faster, or the namespace is going or gone.
pub(crate) fn needs_none(why: &kube::Error) -> bool {
    api::is_already_exists(why) || api::is_not_found(why) || api::is_namespace_terminating(why)
}

pub(crate) async fn run(context: Context) {
    reconciling::run(Emptying { context: context.clone() }, context.client).await;
}

struct Emptying {
    context: Context,
}

impl Reconciler for Emptying {
    /// The namespace.
    type Key = String;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        match metadata.deletion_timestamp {
            Some(_) => metadata.name.clone().into_iter().collect(),
            None => Vec::new(),
        }
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let client = &self.context.client;
        let namespaces = objects(client, &resource(), "");
        let mut content = None;
        loop {
            let Some(namespace) = namespaces.get_opt(name).await? else { return Ok(Next::rest()) };
            let version = &namespace.metadata.resource_version;
            match namespace_deletion::next_step(&seen(&namespace), content.as_ref()) {
                Step::Nothing => return Ok(Next::rest()),
                Step::MarkTerminating => {
                    let change =
                        json!({"metadata": {"resourceVersion": version}, "status": {"phase": "Terminating"}});
                    api::merge_status(&namespaces, name, &change).await?;
                }
                Step::DeleteContent => content = Some(delete_content(client, name).await?),
                Step::Wait { retry_after } => {
                    self.tell(&namespace, content.as_ref()).await?;
                    return Ok(Next::again_after(retry_after));
                }
                Step::Finalize { finalizers } => {
                    let mut namespace = self.tell(&namespace, content.as_ref()).await?.unwrap_or(namespace);
                    namespace.data["spec"]["finalizers"] = json!(finalizers);
                    namespaces
                        .replace_subresource("finalize", name, &PostParams::default(), &namespace)
                        .await?;
                    return Ok(Next::rest());
                }
            }
        }
    }
}

impl Emptying {
    /// Writes what is in the way into the status, unless it says so already.
    async fn tell(
        &self,
        namespace: &DynamicObject,
        content: Option<&Content>,
    ) -> Result<Option<DynamicObject>, ReconcileError> {
        let Some(content) = content else { return Ok(None) };
        let existing = namespace.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let now = self.context.world.clock.rfc3339();
        let Some(conditions) = namespace_deletion::updated_conditions(&existing, content, &now) else {
            return Ok(None);
        };
        let change = json!({
            "metadata": {"resourceVersion": namespace.metadata.resource_version},
            "status": {"conditions": conditions},
        });
        let namespaces = objects(&self.context.client, &resource(), "");
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        Ok(Some(api::merge_status(&namespaces, name, &change).await?))
    }
}

fn seen(namespace: &DynamicObject) -> Seen {
    let texts = |value: &Value| {
        let all = value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    Seen {
        being_deleted: namespace.metadata.deletion_timestamp.is_some(),
        phase: namespace.data["status"]["phase"].as_str().unwrap_or_default().to_owned(),
        finalizers: texts(&namespace.data["spec"]["finalizers"]),
    }
}

/// Deletes everything that can be deleted and says what is left.
async fn delete_content(client: &Client, namespace: &str) -> Result<Content, ReconcileError> {
    let served = Served::discover(client).await?;
    let mut content = Content { undiscovered: served.undiscovered.clone(), ..Content::default() };
    let inside = |served: &&ServedResource| served.namespaced && served.can("delete") && served.can("list");
    for served in served.resources.values().filter(inside) {
        if let Err(why) = delete_all(client, served, namespace, &mut content).await
            // The kind itself is gone, and its objects with it.
            && !api::is_not_found(&why)
        {
            content.failures.push(why.to_string());
        }
    }
    Ok(content)
}

async fn delete_all(
    client: &Client,
    served: &ServedResource,
    namespace: &str,
    content: &mut Content,
) -> Result<(), kube::Error> {
    let all = objects(client, &served.resource, namespace);
    let mut page = ListParams::default().limit(PAGE);
    // Most namespaces hold nothing of most kinds.
    if all.list_metadata(&page).await?.items.is_empty() {
        return Ok(());
    }
    if served.can("deletecollection") {
        all.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
    }
    loop {
        let found = all.list_metadata(&page).await?;
        for object in &found.items {
            if !served.can("deletecollection") && object.metadata.deletion_timestamp.is_none() {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                all.delete(name, &DeleteParams::background()).await?;
            }
            let resource = (served.resource.plural.clone(), served.resource.group.clone());
            *content.remaining.entry(resource).or_default() += 1;
            for finalizer in object.metadata.finalizers.iter().flatten() {
                *content.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        match found.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}
