//! What is done with nodes: whether machines are placed there.
//!
//! Deliberately absent: maintenance mode itself, which moves machines to other nodes; CPU managers, since processors are not
//! pinned; power actions, for which nobody holds the switch. `maintenancePossible` and `powerActionPossible` answer why not,
//! and `listUnhealthyVM` which machines would be in the way.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{Action, ActionCall, Look, Outcome, ResourceActions};
use crate::{
    request::Verb,
    status::{ApiError, Named},
    steve::{
        errand::{Errand, MERGE_PATCH},
        rights::Right,
    },
};

const UPDATE: Right = Right::to(Verb::Update, "", "nodes");
const GET: Right = Right::to(Verb::Get, "", "nodes");

static ACTIONS: &[Action] = &[
    Action { name: "cordon", input: None, needs: &[UPDATE] },
    Action { name: "uncordon", input: None, needs: &[UPDATE] },
    Action { name: "maintenancePossible", input: None, needs: &[GET] },
    Action { name: "powerActionPossible", input: None, needs: &[GET] },
    Action {
        name: "listUnhealthyVM",
        input: None,
        needs: &[GET, Right::to(Verb::List, "kubevirt.io", "virtualmachineinstances")],
    },
];

pub struct Nodes;

#[async_trait]
impl ResourceActions for Nodes {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, _look: &Look, node: &Value) -> Vec<&'static str> {
        let cordon = if node["spec"]["unschedulable"] == true { "uncordon" } else { "cordon" };
        vec![cordon, "maintenancePossible", "powerActionPossible", "listUnhealthyVM"]
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        match call.name {
            "cordon" => cordon(call, true).await,
            "uncordon" => cordon(call, false).await,
            "maintenancePossible" => {
                let why = "machines cannot be moved to another node while they run, so none can be emptied";
                Err(ApiError::refused(Named { group: "", resource: "nodes" }, call.object_name, why))
            }
            "powerActionPossible" => {
                Err(ApiError::failed_dependency("nobody here holds the switch of a node: there is no seeder"))
            }
            "listUnhealthyVM" => {
                let instances =
                    call.look.list("kubevirt.io", "virtualmachineinstances", "").unwrap_or_default();
                Ok(Outcome::Answer(unhealthy(call.object_name, &instances)))
            }
            other => Err(ApiError::invalid_action(other)),
        }
    }
}

/// The machines that could not be moved away from a node, and why: none of those that run there can be.
fn unhealthy(node: &str, instances: &[Value]) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is_there = |instance: &&Value| {
        let status = &instance["status"];
        status["nodeName"] == node && !["Succeeded", "Failed"].contains(&text(&status["phase"]).as_str())
    };
    let names = instances.iter().filter(is_there).map(|instance| {
        let metadata = &instance["metadata"];
        format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]))
    });
    let names: Vec<String> = names.collect();
    match names.is_empty() {
        true => json!([]),
        false => json!([{
            "message": "The following VMs cannot be migrated due to NodeSchedulingRequirementsNotMet condition",
            "vms": names,
        }]),
    }
}

async fn cordon(call: &ActionCall<'_>, unschedulable: bool) -> Result<Outcome, ApiError> {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    let errand = Errand::new(Verb::Patch, ("", "v1", "nodes"), "", call.object_name).with(MERGE_PATCH, patch);
    call.errands.ask(&errand).await?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_that_run_on_a_node_are_in_the_way_there() {
        let instance = |name: &str, node: &str, phase: &str| {
            json!({"metadata": {"namespace": "a", "name": name},
            "status": {"nodeName": node, "phase": phase}})
        };
        let all = [
            instance("one", "n1", "Running"),
            instance("two", "n1", "Failed"),
            instance("three", "n2", "Running"),
        ];
        assert_eq!(unhealthy("n1", &all)[0]["vms"], json!(["a/one"]));
        assert_eq!(unhealthy("n3", &all), json!([]));
    }
}
