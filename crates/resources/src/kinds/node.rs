//! core/v1 Node: a machine of the cluster. Its spec is the operators', its status its agent's.

use k8s_openapi::api::core::v1::Node;
use serde_json::Value;

use super::{age_column, name_column, text};
use crate::kind::{Column, Kind};

/// In a node's `capacity`, what the disk of its volumes has; in `allocatable`, what of it volumes may come to fill.
pub const VOLUME_STORAGE: &str = "sheaf.io/volume-storage";
/// On a node: the sizes of all volumes on it, written by a controller for people to read.
pub const PROMISED_ANNOTATION: &str = "sheaf.io/volume-storage-promised";
/// A condition of ours: whether machines are on networks of the node, and load balancers can be.
pub const TAPS_CONDITION: &str = "TapsUsable";
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

pub fn kind() -> Kind {
    Kind::of_type::<Node>("nodes")
        .cluster_scoped()
        .short(&["no"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("Status", |node, _| status(node).into()),
            Column::computed("Roles", |node, _| roles(node).into()),
            age_column(),
            Column::computed("Version", |node, _| node["status"]["nodeInfo"]["kubeletVersion"].clone()),
            Column::computed("Internal-IP", |node, _| address(node, "InternalIP")).wide(),
            Column::computed("External-IP", |node, _| address(node, "ExternalIP")).wide(),
            Column::computed("OS-Image", |node, _| info(node, "osImage")).wide(),
            Column::computed("Kernel-Version", |node, _| info(node, "kernelVersion")).wide(),
            Column::computed("Container-Runtime", |node, _| info(node, "containerRuntimeVersion")).wide(),
        ])
        .selectable(&["spec.unschedulable"])
}

fn status(node: &Value) -> String {
    let ready = node["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "Ready");
    let mut words = vec![match ready.map(|c| text(&c["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }];
    if node["spec"]["unschedulable"] == true {
        words.push("SchedulingDisabled");
    }
    words.join(",")
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix(ROLE_PREFIX))
        .filter(|r| !r.is_empty())
        .collect();
    roles.sort_unstable();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn address(node: &Value, sort: &str) -> Value {
    let found = node["status"]["addresses"].as_array().into_iter().flatten().find(|a| a["type"] == sort);
    found.map_or_else(|| "<none>".into(), |a| a["address"].clone())
}

fn info(node: &Value, field: &str) -> Value {
    match text(&node["status"]["nodeInfo"][field]) {
        "" => "<unknown>".into(),
        value => value.into(),
    }
}
