//! What Harvester's console asks about the cluster itself, and which is no object: `clusters/local` with its links, where
//! the console comes from, whether machines can be run, and whether there is somewhere to back up to.

use std::collections::BTreeMap;

use http::{Method, request::Parts};
use serde_json::{Value, json};
use sheaf_resources::quantity;

use super::{
    actions::Look,
    address::Address,
    object::Base,
    rights::{Rights, request},
};
use crate::{
    ApiServer,
    cache::Resource,
    negotiate,
    request::Verb,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// The only cluster there is.
const LOCAL: &str = "local";
/// The one kind of machine that QEMU makes here.
const MACHINE_TYPES: [&str; 1] = ["q35"];

const BACKUP_TARGET: &str = "backup-target";

/// Settings that say where the console comes from.
const UI_SOURCE: &str = "ui-source";
const UI_INDEX: &str = "ui-index";
const UI_PLUGIN_INDEX: &str = "ui-plugin-index";

/// Whether an address is one of these.
pub(super) fn is_asked(address: &Address) -> bool {
    let rest: Vec<&str> = address.rest.iter().map(String::as_str).collect();
    match address.noun.as_str() {
        "cluster" | "clusters" => matches!(rest.as_slice(), [LOCAL] | [LOCAL, _]),
        "ui-info" | "readyz" => rest.is_empty(),
        "backuptarget" => rest == ["healthz"],
        _ => false,
    }
}

impl ApiServer {
    pub(super) async fn answer_cluster(
        &self,
        parts: &Parts,
        address: &Address,
        base: &Base,
        rights: &Rights,
    ) -> Result<ApiResponse, ApiError> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        let link = address.rest.get(1).or(address.link.as_ref()).map(String::as_str).unwrap_or_default();
        let answer = match address.noun.as_str() {
            "ui-info" => self.ui_info(),
            "readyz" => self.readiness().await,
            "backuptarget" => return Err(self.backup_target_problem()),
            _ => self.of_cluster(link, base, rights)?,
        };
        Ok(respond::value(success::OK, negotiate::Format::Json, &answer))
    }

    fn of_cluster(&self, link: &str, base: &Base, rights: &Rights) -> Result<Value, ApiError> {
        match link {
            "" => {
                let own = format!("{}{}/clusters/{LOCAL}", base.server, base.root);
                let links = json!({
                    "self": own, "deviceCapacity": format!("{own}?link=deviceCapacity"),
                    "machineTypes": format!("{own}?link=machineTypes"),
                });
                Ok(json!({"id": LOCAL, "type": "cluster", "links": links, "actions": {}}))
            }
            "machineTypes" => Ok(json!(MACHINE_TYPES)),
            "deviceCapacity" => {
                let catalogue = self.registry.catalogue();
                let nodes = catalogue.stored(&Resource::new("", "nodes"));
                let nodes = nodes.ok_or_else(|| ApiError::unknown("there are no nodes"))?;
                // Told in the words of the API when it is not allowed.
                let list = request(Verb::List, &nodes.kind, "", "");
                self.authorize_resource(&rights.user, &list, &Default::default())?;
                let nodes = Look::new(self, rights).list("", "nodes", "").unwrap_or_default();
                Ok(json!(capacity(&nodes)))
            }
            other => Err(ApiError::unknown(format!("there is no link {other:?}"))),
        }
    }

    /// Whether machines can be run: the server is well, and a node is there to run them on.
    async fn readiness(&self) -> Value {
        let (nodes, _) = self.cache.snapshot(&Resource::new("", "nodes"));
        let problem = match self.problem().await {
            Some(problem) => Some(problem),
            None if !nodes.values().any(|node| is_ready(&node.to_value())) => {
                Some("no node is ready".to_owned())
            }
            None => None,
        };
        let mut answer = json!({"ready": problem.is_none(), "timestamp": self.world.clock.rfc3339()});
        if let Some(problem) = problem {
            answer["msg"] = problem.into();
        }
        answer
    }

    /// Why nothing can be backed up to the backup target: nobody named one, or nothing of ours reaches it.
    fn backup_target_problem(&self) -> ApiError {
        let setting = self.find("harvesterhci.io", "settings", "", BACKUP_TARGET).unwrap_or_default();
        let target: Value =
            serde_json::from_str(setting["value"].as_str().unwrap_or_default()).unwrap_or_default();
        match target["type"].as_str().unwrap_or_default() {
            "" => ApiError::unprocessable(format!("{BACKUP_TARGET} setting is not set")),
            sort => ApiError::unprocessable(format!(
                "can't connect to the backup target of the type {sort}: this version backs nothing up to outside of \
                 the cluster"
            )),
        }
    }

    /// Where the console comes from. Asked by the console itself before it knows anything else.
    fn ui_info(&self) -> Value {
        let effective = |name: &str| {
            let setting = self.find("harvesterhci.io", "settings", "", name).unwrap_or_default();
            let said =
                ["value", "default"].map(|field| setting[field].as_str().unwrap_or_default().to_owned());
            said.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
        };
        let source = match effective(UI_SOURCE).as_str() {
            // What is in the binary is served from the binary.
            "" | "auto" => "bundled".to_owned(),
            other => other.to_owned(),
        };
        json!({
            UI_SOURCE: source, UI_INDEX: effective(UI_INDEX), UI_PLUGIN_INDEX: effective(UI_PLUGIN_INDEX),
            "ui-plugin-bundled-version": "",
        })
    }
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// What all nodes have together, of everything that can be asked for.
fn capacity(nodes: &[Value]) -> BTreeMap<String, Value> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for node in nodes {
        for (resource, amount) in node["status"]["allocatable"].as_object().into_iter().flatten() {
            let amount = quantity::said(amount).and_then(|said| match resource.as_str() {
                "cpu" => quantity::milli(&said),
                _ => quantity::value(&said),
            });
            let sum = sums.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(amount.unwrap_or(0));
        }
    }
    let written = |resource: &str, sum: i64| match resource {
        "cpu" => quantity::cores(sum),
        _ => quantity::bytes(sum),
    };
    sums.into_iter().map(|(resource, sum)| (resource.clone(), json!(written(&resource, sum)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_have_is_added_up() {
        let node = |cpu: &str, memory: &str| json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}});
        let sum = capacity(&[node("1500m", "1Gi"), node("2", "512Mi"), json!({})]);
        assert_eq!(json!(sum), json!({"cpu": "3500m", "memory": "1536Mi", "pods": "220"}));
    }
}
