//! What a node may do with what is bound to it: run its machines, keep their volumes, its images and its snapshots, hold the
//! addresses of its load balancers.
//!
//! - Of machines it sees those whose `status.nodeName` it is, and says how they stand. What they are, and where
//!   they run, is for others to say.
//! - Of Secrets it reads, one by one and by name, those that such a machine refers to. It never lists any: a node that
//!   was broken into has the secrets of its own machines and no others.
//! - Of support bundles it sees all, and says how those stand that it makes. While it makes one it reads, without their
//!   secrets, the objects that go into it. One that it finished it cannot begin again.
//! - Of uplinks it sees all configurations, and says of its own node alone how they fare and which links there are.
//! - Of volumes, images and contents of snapshots it sees all, for they say nothing secret, and changes its own: how they
//!   stand, and that their data is gone.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{
        link_monitor, load_balancer,
        persistent_volume::{self, HOSTNAME_LABEL},
        support_bundle,
        virtual_machine_image::{self, IMAGE_TYPE_LABEL},
        virtual_machine_instance::{
            FOREGROUND_FINALIZER, spec::VirtualMachineInstanceSpec, status::VirtualMachineInstanceStatus,
        },
        vlan_config, vlan_status, volume_snapshot, volume_snapshot_content,
    },
    object_meta,
    quote::quoted,
    rbac::Attributes,
};

use super::{Operation, Opinion, Written};
use crate::identity::{Directory, objects::text};

pub const GROUP: &str = "kubevirt.io";
pub const INSTANCES: &str = "virtualmachineinstances";
const HARVESTER: &str = "harvesterhci.io";
const BUNDLES: &str = "supportbundles";
const NETWORK: &str = "network.harvesterhci.io";

pub(super) fn opinion(node: &str, asked: &Attributes<'_>, seen: &dyn Directory) -> Opinion {
    let no = |reason: String| Opinion::None { reason };
    let reads = matches!(asked.verb, "get" | "list" | "watch");
    let writes = matches!(asked.verb, "update" | "patch");
    match (asked.group, asked.resource, asked.subresource) {
        (GROUP, INSTANCES, "") => match asked.verb {
            "list" | "watch" if asked.bound_to == node => Opinion::Allow,
            "list" | "watch" => no(format!(
                "node '{node}' can only list and watch instances that are bound to it: with field selector status.nodeName={node}"
            )),
            "get" => {
                let instance = seen.object(GROUP, INSTANCES, asked.namespace, asked.name);
                match instance.is_some_and(|instance| Bound::read(&instance).node == node) {
                    true => Opinion::Allow,
                    false => no(format!("node '{node}' can only get an instance that is bound to it")),
                }
            }
            // Whose it is stands in the object: admission's to check.
            "update" | "patch" => Opinion::Allow,
            _ => no(String::new()),
        },
        (load_balancer::GROUP, load_balancer::LOAD_BALANCERS, "") => match asked.verb {
            "list" | "watch" if asked.bound_to == node => Opinion::Allow,
            "list" | "watch" => no(format!(
                "node '{node}' can only list and watch load balancers that are bound to it: with field selector status.nodeName={node}"
            )),
            "get" => {
                let (group, plural) = (load_balancer::GROUP, load_balancer::LOAD_BALANCERS);
                let balancer = seen.object(group, plural, asked.namespace, asked.name);
                match balancer.is_some_and(|balancer| text(&balancer, "/status/nodeName") == node) {
                    true => Opinion::Allow,
                    false => no(format!("node '{node}' can only get a load balancer that is bound to it")),
                }
            }
            // Whose it is stands in the object: admission's to check.
            "update" | "patch" => Opinion::Allow,
            _ => no(String::new()),
        },
        ("", "secrets", "") => match asked.verb {
            "get" if seen.is_needed_on(node, asked.namespace, asked.name) => Opinion::Allow,
            "get" => no(format!(
                "no relationship found between node '{node}' and this object: no instance on it refers to it"
            )),
            "list" | "watch" => no(format!("node '{node}' can only get Secrets by name")),
            _ => no(String::new()),
        },
        (HARVESTER, BUNDLES, crate::support_bundle::CLUSTER) if asked.verb == "get" => {
            let bundle = seen.object(HARVESTER, BUNDLES, asked.namespace, asked.name);
            match bundle.is_some_and(|bundle| is_made_on(node, &bundle)) {
                true => Opinion::Allow,
                false => {
                    no(format!("node '{node}' can only read what goes into a support bundle that it makes"))
                }
            }
        }
        // As with instances, which of them it may write is admission's to check.
        (HARVESTER, BUNDLES, "")
        | ("", "persistentvolumes", "" | "status")
        | (HARVESTER, "virtualmachineimages", "")
        | (volume_snapshot::GROUP, "volumesnapshotcontents", "" | "status")
        | (NETWORK, link_monitor::LINK_MONITORS, "")
            if reads || writes =>
        {
            Opinion::Allow
        }
        (NETWORK, vlan_status::VLAN_STATUSES, "")
            if reads || writes || matches!(asked.verb, "create" | "delete") =>
        {
            Opinion::Allow
        }
        ("", "persistentvolumeclaims", "")
        | ("storage.k8s.io", "storageclasses", "")
        | (HARVESTER, "settings", "")
        | ("k8s.cni.cncf.io", "network-attachment-definitions", "")
        | (
            NETWORK,
            "clusternetworks" | "ippools" | "virtualmachinenetworkconfigs" | vlan_config::VLAN_CONFIGS,
            "",
        ) if reads => Opinion::Allow,
        _ => no(String::new()),
    }
}

/// What of an instance says who may see what.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// Empty while it is bound to none.
    pub node: String,
    /// The Secrets it refers to; none any more once it has ended.
    pub secrets: BTreeSet<String>,
}

impl Bound {
    pub fn read(instance: &Value) -> Self {
        let node = text(instance, "/status/nodeName").to_owned();
        let status: VirtualMachineInstanceStatus =
            serde_json::from_value(instance["status"].clone()).unwrap_or_default();
        if node.is_empty() || status.phase.is_final() {
            return Bound { node, secrets: BTreeSet::new() };
        }
        let spec = VirtualMachineInstanceSpec::deserialize_from(&instance["spec"]).unwrap_or_default();
        let secrets = spec.secret_names().into_iter().map(str::to_owned);
        Bound { secrets: secrets.collect(), node }
    }

    pub fn needs(&self, node: &str, secret: &str) -> bool {
        self.node == node && self.secrets.contains(secret)
    }
}

pub(super) fn admit(node: &str, written: &Written<'_>) -> Result<(), String> {
    match (written.group, written.resource) {
        (GROUP, INSTANCES) => {
            let is_bound = |instance: &Value| text(instance, "/status/nodeName") == node;
            admit_report(node, written, is_bound, FOREGROUND_FINALIZER)
        }
        ("", "persistentvolumes") => {
            admit_report(node, written, |volume| is_only_on(node, volume), persistent_volume::DATA_FINALIZER)
        }
        (HARVESTER, "virtualmachineimages") => {
            let is_kept = |image: &Value| {
                image["metadata"]["annotations"][virtual_machine_image::NODE_ANNOTATION] == node
            };
            admit_report(node, written, is_kept, virtual_machine_image::DATA_FINALIZER)
        }
        (HARVESTER, BUNDLES) => {
            let is_finished = |old: &Value| !is_made_on(node, old);
            if written.old.is_some_and(is_finished) {
                let me = quoted(node);
                return Err(format!("node {me} is not allowed to modify {BUNDLES} that it does not make"));
            }
            admit_report(node, written, |bundle| text(bundle, "/status/nodeName") == node, NO_FINALIZER)
        }
        (volume_snapshot::GROUP, "volumesnapshotcontents") => {
            let is_kept = |content: &Value| {
                content["metadata"]["annotations"][volume_snapshot_content::NODE_ANNOTATION] == node
            };
            admit_report(node, written, is_kept, volume_snapshot_content::DATA_FINALIZER)
        }
        (load_balancer::GROUP, load_balancer::LOAD_BALANCERS) => {
            let is_held = |balancer: &Value| text(balancer, "/status/nodeName") == node;
            // No finalizer is a node's to remove: it says in the status that it let go.
            admit_report(node, written, is_held, "")
        }
        (NETWORK, link_monitor::LINK_MONITORS) => admit_links(node, written),
        (NETWORK, vlan_status::VLAN_STATUSES) => {
            let is_own = |status: &Value| text(status, "/status/node") == node;
            match [written.old, written.new].into_iter().flatten().all(is_own) {
                true => Ok(()),
                false => Err(format!(
                    "node {} is not allowed to touch {} of other nodes",
                    quoted(node),
                    written.resource
                )),
            }
        }
        _ => Ok(()),
    }
}

/// A node says in a LinkMonitor which links it has itself.
fn admit_links(node: &str, written: &Written<'_>) -> Result<(), String> {
    admit_report(node, written, |_| true, NO_FINALIZER)?;
    let of_others = |monitor: Option<&Value>| {
        let mut status = monitor.map(|monitor| monitor["status"].clone()).unwrap_or_default();
        let links = status.get_mut("linkStatus").and_then(Value::as_object_mut);
        let is_empty = links.is_none_or(|links| {
            links.remove(node);
            links.is_empty()
        });
        if let Some(status) = status.as_object_mut().filter(|_| is_empty) {
            status.remove("linkStatus");
        }
        if status.as_object().is_some_and(serde_json::Map::is_empty) { Value::Null } else { status }
    };
    if of_others(written.old) != of_others(written.new) {
        let me = quoted(node);
        return Err(format!("node {me} is not allowed to say which links other nodes have"));
    }
    Ok(())
}

/// Whether a node is making this bundle.
fn is_made_on(node: &str, bundle: &Value) -> bool {
    text(bundle, "/status/nodeName") == node && text(bundle, "/status/state") == support_bundle::GENERATING
}

/// For kinds that a node has no mark on.
const NO_FINALIZER: &str = "";

/// A node says how its own objects stand and takes its own mark off them. All else in them is others' to say.
fn admit_report(
    node: &str,
    written: &Written<'_>,
    is_own: impl Fn(&Value) -> bool,
    finalizer: &str,
) -> Result<(), String> {
    let (me, resource) = (quoted(node), written.resource);
    let (Operation::Update, Some(new), Some(old)) = (written.operation, written.new, written.old) else {
        return Err(format!("node {me} is not allowed to create or delete {resource}"));
    };
    // Nor may it give away what is its own.
    if !is_own(old) || !is_own(new) {
        return Err(format!("node {me} is not allowed to modify {resource} that are not its own"));
    }
    let (before, after) = (object_meta::finalizers(old), object_meta::finalizers(new));
    let kept: Vec<&str> = before.iter().copied().filter(|one| *one != finalizer).collect();
    if after != before && after != kept {
        return Err(format!(
            "node {me} is not allowed to modify finalizers of {resource}, but for removing {finalizer}"
        ));
    }
    let mut named = new.clone();
    // What an image is to be attached as is the node's to say, where nobody did.
    if resource == "virtualmachineimages" && old["metadata"]["labels"][IMAGE_TYPE_LABEL].is_null() {
        let had_labels = old["metadata"].get("labels").is_some();
        if let Some(metadata) = named["metadata"].as_object_mut()
            && let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut)
        {
            labels.remove(IMAGE_TYPE_LABEL);
            if labels.is_empty() && !had_labels {
                metadata.remove("labels");
            }
        }
    }
    if wishes(resource, old) != wishes(resource, &named) {
        return Err(format!("node {me} is not allowed to modify more of {resource} than their status"));
    }
    Ok(())
}

/// All of an object that a report does not change.
fn wishes(resource: &str, object: &Value) -> Value {
    let mut rest = object.clone();
    rest["status"] = json!(null);
    for field in ["finalizers", "generation", "managedFields", "resourceVersion"] {
        rest["metadata"][field] = json!(null);
    }
    // How large a volume is on a node, and whether it is there at all, has no place in its status.
    if resource == "persistentvolumes" {
        let reported = [
            persistent_volume::GROWN_ANNOTATION,
            persistent_volume::MADE_ANNOTATION,
            persistent_volume::FAILED_ANNOTATION,
        ];
        let annotations = rest["metadata"]["annotations"].as_object_mut();
        let is_empty = annotations.is_none_or(|annotations| {
            annotations.retain(|key, _| !reported.contains(&key.as_str()));
            annotations.is_empty()
        });
        if is_empty {
            rest["metadata"]["annotations"] = json!(null);
        }
    }
    rest
}

/// Whether a volume can be on this node only.
fn is_only_on(node: &str, volume: &Value) -> bool {
    let terms = volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").and_then(Value::as_array);
    let here = |term: &Value| {
        let expressions = term["matchExpressions"].as_array();
        expressions.into_iter().flatten().any(|expression| {
            expression["key"] == HOSTNAME_LABEL
                && expression["operator"] == "In"
                && expression["values"] == json!([node])
        })
    };
    terms.is_some_and(|terms| !terms.is_empty() && terms.iter().all(here))
}
