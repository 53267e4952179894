//! Says in the status of a definition whether its names are free and its kind is served, and takes the objects
//! of a definition along when it goes.
//!
//! ```text
//!   made ----> names accepted, established ----> deletion asked for: Terminating,
//!     \                                          its objects deleted, waited for,
//!      +-> a name is taken: says so              then the finalizer removed
//! ```
//!
//! What the status should be is [`status::next_status`]. The names that others hold are kept in memory, small,
//! and read anew before any is refused: memory may be stale, a refusal may not.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    api::{DeleteParams, DynamicObject, ListParams, PostParams},
    core::ApiResource,
};
use serde_json::{Value, json};
use sheaf_client::{
    api::{self, built_in, objects},
    objects::Objects,
    reconciling::{self, Next, ReconcileError, Reconciler},
    watching::Watched,
};
use sheaf_resources::kinds::{
    self,
    custom_resource_definition::{
        CLEANUP_FINALIZER, Names,
        status::{self, TakenNames},
    },
};

use crate::Context;

pub const NAME: &str = "custom-resource-definition";
/// Definitions are large; this many at a time.
const PAGE: u32 = 20;
/// Of objects only the metadata is read.
const INSTANCES_PAGE: u32 = 500;
/// How often to look whether the objects of a definition that goes are gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

fn resource() -> ApiResource {
    built_in("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
}

pub(crate) async fn run(context: Context) {
    let definitions = objects(&context.client, &resource(), "");
    reconciling::run(Definitions { context: context.clone(), definitions, known: None }, context.client)
        .await;
}

struct Definitions {
    context: Context,
    definitions: Objects<DynamicObject>,
    /// Of each definition only what its names depend on; `None` until first read.
    known: Option<BTreeMap<String, Value>>,
}

impl Reconciler for Definitions {
    /// The definition.
    type Key = String;

    const NAME: &'static str = NAME;

    fn watched(&self) -> Vec<Watched> {
        vec![Watched::all(resource())]
    }

    fn keys(&self, _watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        metadata.name.clone().into_iter().collect()
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let known = match self.known.take() {
            Some(known) => known,
            None => self.read_all().await?,
        };
        let known = self.known.insert(known);
        let Some(found) = self.definitions.get_opt(name).await? else {
            let gone = known.remove(name);
            return Ok(Next::wake(
                gone.map(|gone| self.refused_in(&gone["spec"]["group"])).unwrap_or_default(),
            ));
        };
        let definition = serde_json::to_value(&found)?;
        known.insert(name.clone(), essence(&definition));
        if found.metadata.deletion_timestamp.is_some() {
            return self.let_go(name, definition).await;
        }
        self.settle_names(name, definition).await
    }
}

impl Definitions {
    async fn read_all(&self) -> Result<BTreeMap<String, Value>, ReconcileError> {
        let mut all = BTreeMap::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = self.definitions.list(&params).await?;
            for found in page.items {
                let definition = serde_json::to_value(&found)?;
                all.insert(found.metadata.name.unwrap_or_default(), essence(&definition));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Definitions of a group that wait for a name.
    fn refused_in(&self, group: &Value) -> Vec<String> {
        let known = self.known.iter().flatten();
        let waiting = known.filter(|(_, definition)| {
            definition["spec"]["group"] == *group && !status::is_true(definition, "NamesAccepted")
        });
        waiting.map(|(name, _)| name.clone()).collect()
    }

    async fn settle_names(&mut self, name: &str, definition: Value) -> Result<Next<String>, ReconcileError> {
        let now = self.context.world.clock.rfc3339();
        let mut wanted = status::next_status(&definition, &self.taken(name, &definition), &now);
        if !status::is_true(&json!({"status": wanted}), "NamesAccepted") {
            // Perhaps whoever held the name is gone, and nobody told.
            self.known = Some(self.read_all().await?);
            wanted = status::next_status(&definition, &self.taken(name, &definition), &now);
        }
        if wanted == definition["status"] {
            return Ok(Next::rest());
        }
        let group = definition["spec"]["group"].clone();
        let names_change = wanted["acceptedNames"] != definition["status"]["acceptedNames"];
        self.write_status(name, definition, wanted).await?;
        // A name given up may be what another waits for.
        let mut waiting = if names_change { self.refused_in(&group) } else { Vec::new() };
        waiting.retain(|other| other != name);
        Ok(Next::wake(waiting))
    }

    fn taken(&self, name: &str, definition: &Value) -> TakenNames {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let mut taken =
            TakenNames::by_others(group, name, self.known.iter().flatten().map(|(_, known)| known));
        for kind in kinds::built_in().into_iter().filter(|kind| kind.group == group) {
            taken.take(&Names {
                plural: kind.plural,
                singular: kind.singular,
                short_names: kind.short_names,
                kind: kind.kind,
                list_kind: kind.list_kind,
                categories: Vec::new(),
            });
        }
        taken
    }

    async fn write_status(
        &mut self,
        name: &str,
        mut definition: Value,
        status: Value,
    ) -> Result<(), ReconcileError> {
        definition["status"] = status;
        let written =
            self.definitions.replace_subresource("status", name, &PostParams::default(), &definition).await?;
        // At once, not when the watch says so: the next definition may ask for the same names.
        if let Some(known) = &mut self.known {
            known.insert(name.to_owned(), essence(&serde_json::to_value(&written)?));
        }
        Ok(())
    }

    /// The definition is being deleted: its objects go first.
    async fn let_go(&mut self, name: &str, mut definition: Value) -> Result<Next<String>, ReconcileError> {
        let held = definition["metadata"]["finalizers"].as_array();
        if !held.is_some_and(|held| held.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)) {
            return Ok(Next::rest());
        }
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
        if !status::is_true(&definition, "Established") || kinds::is_built_in(&text(group), &text(plural)) {
            // Never served, so there is nothing of it. What Sheaf itself serves under that name is not its own,
            // whatever its status says.
            self.remove_finalizer(name, &definition).await?;
            return Ok(Next::rest());
        }
        if !status::is_true(&definition, "Terminating") {
            let wanted = self.terminating(
                &definition,
                ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"),
            );
            self.write_status(name, definition, wanted).await?;
            // Written, so look again with the version that has it.
            return Ok(Next::wake(vec![name.to_owned()]));
        }
        let Some(instances) = served_resource(&definition) else {
            return self.serve_again(name, &mut definition).await;
        };
        if self.delete_instances(&instances).await? {
            return Ok(Next::again_after(LOOK_AGAIN));
        }
        self.remove_finalizer(name, &definition).await?;
        Ok(Next::rest())
    }

    /// Asks every object of a resource to go; answers whether any is left.
    async fn delete_instances(&self, instances: &ApiResource) -> Result<bool, ReconcileError> {
        let everywhere = objects(&self.context.client, instances, "");
        let mut holding = BTreeSet::new();
        let mut params = ListParams::default().limit(INSTANCES_PAGE);
        loop {
            let page = everywhere.list_metadata(&params).await?;
            let staying =
                page.items.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
            holding.extend(staying.map(|object| object.metadata.namespace.unwrap_or_default()));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
        // One namespace at a time: nobody may delete across all of them.
        for namespace in &holding {
            let inside = objects(&self.context.client, instances, namespace);
            inside.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        }
        Ok(!everywhere.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty())
    }

    /// A definition that serves no version cannot be emptied through the API, so its stored version is served for
    /// as long as it takes to go.
    async fn serve_again(
        &mut self,
        name: &str,
        definition: &mut Value,
    ) -> Result<Next<String>, ReconcileError> {
        for version in definition["spec"]["versions"].as_array_mut().into_iter().flatten() {
            if version["storage"] == true {
                version["served"] = true.into();
            }
        }
        let definition: DynamicObject = serde_json::from_value(definition.take())?;
        self.definitions.replace(name, &PostParams::default(), &definition).await?;
        Ok(Next::wake(vec![name.to_owned()]))
    }

    async fn remove_finalizer(&mut self, name: &str, definition: &Value) -> Result<(), ReconcileError> {
        let held = definition["metadata"]["finalizers"].as_array().into_iter().flatten();
        let others: Vec<&Value> = held.filter(|finalizer| *finalizer != CLEANUP_FINALIZER).collect();
        let metadata =
            json!({"resourceVersion": definition["metadata"]["resourceVersion"], "finalizers": others});
        api::merge(&self.definitions, name, &json!({"metadata": metadata})).await?;
        Ok(())
    }

    /// The status with the condition that says how the going goes.
    fn terminating(&self, definition: &Value, (holds, reason, message): (&str, &str, &str)) -> Value {
        let mut wanted = definition["status"].clone();
        let mut conditions = wanted["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "Terminating");
        conditions.push(json!({
            "type": "Terminating", "status": holds, "reason": reason, "message": message,
            "lastTransitionTime": self.context.world.clock.rfc3339(),
        }));
        wanted["conditions"] = conditions.into();
        wanted
    }
}

/// What other definitions' names depend on.
fn essence(definition: &Value) -> Value {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let accepted: Vec<Value> = conditions
        .filter(|condition| condition["type"] == "NamesAccepted")
        .map(|condition| json!({"type": condition["type"], "status": condition["status"]}))
        .collect();
    json!({
        "metadata": {"name": definition["metadata"]["name"]},
        "spec": {"group": definition["spec"]["group"]},
        "status": {"acceptedNames": definition["status"]["acceptedNames"], "conditions": accepted},
    })
}

/// The resource as it is served: the stored version if that is, else any that is.
fn served_resource(definition: &Value) -> Option<ApiResource> {
    let spec = &definition["spec"];
    let names = &definition["status"]["acceptedNames"];
    let served =
        || spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true);
    let version = served().find(|version| version["storage"] == true).or_else(|| served().next())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(built_in(
        &text(&spec["group"]),
        &text(&version["name"]),
        &text(&names["kind"]),
        &text(&spec["names"]["plural"]),
    ))
}
