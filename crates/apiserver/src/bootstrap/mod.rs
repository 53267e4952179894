//! What every cluster has from its first moment: its namespaces, the default roles, and what Harvester's clients
//! expect to find ([`harvester`]). Runs at every start and changes only what is missing, so a newer server brings
//! its new rules along and what people changed stays.

mod harvester;
mod templates;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{addon, namespace, setting::HARVESTER_VERSION, version::RUNNING_TAG},
    object_meta,
    rbac::{self, Reconciled},
};
use sheaf_store::StoreError;

use self::harvester::Wanted;
use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::users::PASSWORD_NAMESPACE,
    rancher,
    request::Verb,
    status::ApiError,
};

/// So many objects are made side by side.
const AT_ONCE: usize = 16;
const RBAC: &str = "rbac.authorization.k8s.io";

pub async fn ensure(server: &ApiServer) -> Result<(), StoreError> {
    ensure_all(server).await.map_err(|why| StoreError::Failed {
        reason: format!("what every cluster has could not be made: {why}"),
    })
}

impl ApiServer {
    /// Creates an object as the server itself, unless it is there.
    pub async fn ensure_object(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        object: Value,
    ) -> Result<(), StoreError> {
        if self.cache.get(&Resource::new(group, resource), &place(namespace, name_of(&object))).is_some() {
            return Ok(());
        }
        match self.write_as_server(Verb::Create, group, resource, namespace, object).await {
            // Another server on the same store was faster.
            Err(why) if why.is_already_exists() => Ok(()),
            done => done.map(drop).map_err(|why| StoreError::Failed { reason: why.to_string() }),
        }
    }
}

async fn ensure_all(server: &ApiServer) -> Result<(), ApiError> {
    let of_harvester = [
        namespace::HARVESTER_SYSTEM,
        namespace::HARVESTER_PUBLIC,
        addon::MONITORING_NAMESPACE,
        addon::LOGGING_NAMESPACE,
    ];
    let of_people = [PASSWORD_NAMESPACE, rancher::PREFERENCES_NAMESPACE];
    for name in namespace::SYSTEM.iter().chain(&of_harvester).chain(&of_people) {
        if find(server, "", "namespaces", name).is_none() {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            create(server, "", "namespaces", object).await?;
        }
    }
    for wanted in rbac::cluster_roles() {
        match find(server, RBAC, "clusterroles", name_of(&wanted)) {
            None => create(server, RBAC, "clusterroles", wanted).await?,
            Some(existing) => {
                if let Some(better) = rbac::reconcile_role(&existing, &wanted) {
                    update(server, "clusterroles", better).await?;
                }
            }
        }
    }
    for wanted in rbac::cluster_role_bindings() {
        match find(server, RBAC, "clusterrolebindings", name_of(&wanted)) {
            None => create(server, RBAC, "clusterrolebindings", wanted).await?,
            Some(existing) => match rbac::reconcile_binding(&existing, &wanted) {
                Reconciled::Nothing => {}
                Reconciled::Update(better) => update(server, "clusterrolebindings", better).await?,
                Reconciled::Recreate(_) => {
                    // Somebody pointed a default binding at another role; that is theirs to keep.
                    tracing::warn!(
                        name = name_of(&wanted),
                        "a default binding names another role; it is left as it is"
                    );
                }
            },
        }
    }
    // Together, so that many of them share one sync of the disk: none depends on another.
    stream::iter(harvester::objects(&server.config, &server.world.clock.rfc3339()))
        .map(|wanted| ensure_wanted(server, wanted))
        .buffered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    forget_former_versions(server).await?;
    for (template, version) in templates::all() {
        ensure_template(server, template, version).await?;
    }
    Ok(())
}

/// A template and its version. Once there, its versions are their owners', who never delete the last one: one without any is
/// one whose making was interrupted.
async fn ensure_template(server: &ApiServer, template: Value, mut version: Value) -> Result<(), ApiError> {
    let (group, namespace) = ("harvesterhci.io", namespace::HARVESTER_PUBLIC);
    let (templates, versions) = ("virtualmachinetemplates", "virtualmachinetemplateversions");
    let name = name_of(&template).to_owned();
    if find_in(server, group, templates, namespace, &name).is_none() {
        create_in(server, group, templates, namespace, template).await?;
    }
    // What was written is in the cache by now; what is not could not be.
    let Some(made) = find_in(server, group, templates, namespace, &name) else { return Ok(()) };
    let (all, _) = server.cache.snapshot(&Resource::new(group, versions));
    let is_owned = |version: &Value| {
        let mut owners = version["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| owner["uid"] == made["metadata"]["uid"])
    };
    if object_meta::is_being_deleted(&made) || all.values().any(|version| is_owned(&version.to_value())) {
        return Ok(());
    }
    // Left behind by a template of that name that somebody deleted.
    if find_in(server, group, versions, namespace, name_of(&version)).is_some() {
        let taken = name_of(&version).to_owned();
        version["metadata"] = json!({"generateName": format!("{taken}-"), "namespace": namespace});
    }
    create_in(server, group, versions, namespace, version).await
}

async fn ensure_wanted(server: &ApiServer, wanted: Wanted) -> Result<(), ApiError> {
    let namespace = wanted.value["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    match find_in(server, wanted.group, wanted.plural, &namespace, name_of(&wanted.value)) {
        None => create_in(server, wanted.group, wanted.plural, &namespace, wanted.value).await,
        Some(existing) => match harvester::renewed(&existing, &wanted) {
            Some(better) => update_in(server, wanted.group, wanted.plural, better).await,
            None => {
                harvester::compare(&existing, &wanted);
                Ok(())
            }
        },
    }
}

/// What an older release said of itself is no longer so.
async fn forget_former_versions(server: &ApiServer) -> Result<(), ApiError> {
    let (found, _) = server.cache.snapshot(&Resource::new("harvesterhci.io", "versions"));
    for mut former in found.values().map(|object| object.to_value()) {
        let tags = former["spec"]["tags"].as_array().cloned().unwrap_or_default();
        if name_of(&former) != HARVESTER_VERSION && tags.iter().any(|tag| tag == RUNNING_TAG) {
            let rest: Vec<Value> = tags.into_iter().filter(|tag| tag != RUNNING_TAG).collect();
            former["spec"]["tags"] = Value::Array(rest);
            let namespace = former["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            server.write_as_server(Verb::Update, "harvesterhci.io", "versions", &namespace, former).await?;
        }
    }
    Ok(())
}

fn find(server: &ApiServer, group: &str, resource: &str, name: &str) -> Option<Value> {
    find_in(server, group, resource, "", name)
}

fn find_in(server: &ApiServer, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
    server.cache.get(&Resource::new(group, resource), &place(namespace, name)).map(|object| object.to_value())
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

async fn create(server: &ApiServer, group: &str, resource: &str, object: Value) -> Result<(), ApiError> {
    create_in(server, group, resource, "", object).await
}

async fn create_in(
    server: &ApiServer,
    group: &str,
    resource: &str,
    namespace: &str,
    object: Value,
) -> Result<(), ApiError> {
    match server.write_as_server(Verb::Create, group, resource, namespace, object).await {
        // Another server on the same store was faster.
        Err(why) if why.is_already_exists() => Ok(()),
        // A namespace that somebody deleted before it could not be: it is made anew by the start after it went.
        Err(why) if why.is_namespace_terminating() => {
            tracing::warn!(namespace, resource, "not made now: its namespace is on its way out");
            Ok(())
        }
        done => done.map(drop),
    }
}

async fn update(server: &ApiServer, resource: &str, object: Value) -> Result<(), ApiError> {
    update_in(server, RBAC, resource, object).await
}

async fn update_in(server: &ApiServer, group: &str, resource: &str, object: Value) -> Result<(), ApiError> {
    match server.write_as_server(Verb::Update, group, resource, "", object).await {
        Err(why) if why.is_conflict() => Ok(()),
        done => done.map(drop),
    }
}
