//! What is done with nodes: whether machines are placed there.
//!
//! Deliberately absent: maintenance mode itself, which moves machines to other nodes, and what goes with it; CPU managers, since
//! processors are not pinned; power actions, for which nobody holds the switch. `maintenancePossible` answers why not.

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
];

pub struct Nodes;

#[async_trait]
impl ResourceActions for Nodes {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, _look: &Look, node: &Value) -> Vec<&'static str> {
        let cordon = if node["spec"]["unschedulable"] == true { "uncordon" } else { "cordon" };
        vec![cordon, "maintenancePossible"]
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        match call.name {
            "cordon" => cordon(call, true).await,
            "uncordon" => cordon(call, false).await,
            "maintenancePossible" => {
                let why = "machines cannot be moved to another node while they run, so none can be emptied";
                Err(ApiError::refused(Named { group: "", resource: "nodes" }, call.object_name, why))
            }
            other => Err(ApiError::invalid_action(other)),
        }
    }
}

async fn cordon(call: &ActionCall<'_>, unschedulable: bool) -> Result<Outcome, ApiError> {
    let patch = json!({"spec": {"unschedulable": unschedulable}});
    let errand = Errand::new(Verb::Patch, ("", "v1", "nodes"), "", call.object_name).with(MERGE_PATCH, patch);
    call.errands.ask(&errand).await?;
    Ok(Outcome::Done)
}
