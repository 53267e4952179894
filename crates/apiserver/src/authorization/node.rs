//! What a node may do: see and keep its own Node object and its own Lease, report events as itself, look after
//! the machines that are [bound](self::bound) to it, and nothing else.
//!
//! Two halves. [`opinion`] decides by what the request line says; [`admit`] looks into the object, and also
//! holds where a role is broader than it should be: no binding lets one node write another's objects.

pub(crate) mod bound;

use std::collections::BTreeSet;

use serde_json::Value;
use sheaf_resources::{quote::quoted, rbac::Attributes};

use crate::identity::{Directory, Refusal, User, objects::text};

pub const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASES: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    Allow,
    /// Roles may still allow it.
    None {
        reason: String,
    },
}

pub(super) fn opinion(node: &str, asked: &Attributes<'_>, seen: &dyn Directory) -> Opinion {
    if asked.path.is_some() {
        return Opinion::None { reason: String::new() };
    }
    let no = |reason: &str| Opinion::None { reason: reason.to_owned() };
    let verb = asked.verb;
    match (asked.group, asked.resource, asked.subresource) {
        ("", "nodes", "") => match verb {
            // The name on the request line of a creation is empty; the object's is admission's to check.
            "create" => Opinion::Allow,
            "get" | "list" | "watch" | "update" | "patch" if asked.name == node => Opinion::Allow,
            "get" | "list" | "watch" if asked.name.is_empty() => {
                no(&format!("node '{node}' cannot read all nodes, only its own Node object"))
            }
            "get" | "list" | "watch" => {
                no(&format!("node '{node}' cannot read '{}', only its own Node object", asked.name))
            }
            "update" | "patch" => {
                no(&format!("node {} is not allowed to modify node {}", quoted(node), quoted(asked.name)))
            }
            _ => no(""),
        },
        ("", "nodes", "status") if matches!(verb, "update" | "patch") && asked.name == node => Opinion::Allow,
        (LEASES, "leases", "") => match verb {
            "get" | "create" | "update" | "patch" | "delete" => {
                if asked.namespace != LEASE_NAMESPACE {
                    no(&format!("can only access leases in the {} system namespace", quoted(LEASE_NAMESPACE)))
                } else if verb != "create" && asked.name != node {
                    no("can only access node lease with the same name as the requesting node")
                } else {
                    Opinion::Allow
                }
            }
            _ => no("can only get, create, update, patch, or delete a node lease"),
        },
        // Whose event it is stands in the object: admission's to check.
        ("" | EVENTS, "events", "") if matches!(verb, "create" | "patch" | "update") => Opinion::Allow,
        ("authorization.k8s.io", "selfsubjectaccessreviews", "") if verb == "create" => Opinion::Allow,
        _ => bound::opinion(node, asked, seen),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// A write that is about to happen. The objects are as they are stored, whichever group was asked: an event has
/// the fields of `v1`.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    /// The object's own name, also at creation.
    pub name: &'a str,
    pub old: Option<&'a Value>,
    pub new: Option<&'a Value>,
}

/// Refuses what a node may not write, whatever roles it has. Says nothing about users that are not nodes.
pub fn admit(user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let Some(node) = user.node_name() else { return Ok(()) };
    let judged = match (written.group, written.resource) {
        ("", "nodes") => admit_node(node, written),
        (LEASES, "leases") => admit_lease(node, written),
        ("" | EVENTS, "events") => admit_event(node, written),
        _ => bound::admit(node, written),
    };
    judged.map_err(|message| Refusal::Forbidden {
        group: written.group.to_owned(),
        resource: written.resource.to_owned(),
        name: written.name.to_owned(),
        message,
    })
}

fn admit_node(node: &str, written: &Written<'_>) -> Result<(), String> {
    let me = quoted(node);
    if written.name != node {
        return Err(format!("node {me} is not allowed to modify node {}", quoted(written.name)));
    }
    let nothing = Value::Null;
    let new = written.new.unwrap_or(&nothing);
    let old = written.old.unwrap_or(&nothing);
    let changed = |pointer: &str| filled(new.pointer(pointer)) != filled(old.pointer(pointer));
    match written.operation {
        // Its own object is its own to remove only as far as roles say so.
        Operation::Delete => Ok(()),
        Operation::Create => {
            if filled(new.pointer("/metadata/ownerReferences")).is_some() {
                return Err(format!("node {me} is not allowed to set ownerReferences"));
            }
            let labels = steering_labels(new, &nothing);
            if !labels.is_empty() {
                return Err(format!(
                    "node {me} is not allowed to set the following labels: {}",
                    listed(&labels)
                ));
            }
            Ok(())
        }
        Operation::Update => {
            if changed("/spec/taints") {
                return Err(format!("node {me} is not allowed to modify taints"));
            }
            // An owner could be one that is already gone: the node would have itself collected.
            if changed("/metadata/ownerReferences") {
                return Err(format!("node {me} is not allowed to modify ownerReferences"));
            }
            if changed("/metadata/finalizers") {
                return Err(format!("node {me} is not allowed to modify finalizers"));
            }
            // Cordoning, addresses and the rest of the wishes are for people and controllers; a node reports.
            if changed("/spec") {
                return Err(format!("node {me} is not allowed to modify its spec"));
            }
            let labels = steering_labels(new, old);
            if !labels.is_empty() {
                return Err(format!("is not allowed to modify labels: {}", listed(&labels)));
            }
            Ok(())
        }
    }
}

fn admit_lease(node: &str, written: &Written<'_>) -> Result<(), String> {
    if written.namespace != LEASE_NAMESPACE {
        return Err(format!("can only access leases in the {} system namespace", quoted(LEASE_NAMESPACE)));
    }
    if written.name != node {
        return Err("can only access node lease with the same name as the requesting node".to_owned());
    }
    Ok(())
}

/// An event is its reporter's own. A node that could change another's could make the cluster's history say
/// anything, or keep it for ever with a finalizer.
fn admit_event(node: &str, written: &Written<'_>) -> Result<(), String> {
    let me = quoted(node);
    if written.old.is_some_and(|old| !is_reported_by(node, old)) {
        return Err(format!("node {me} is not allowed to touch an event that it did not report"));
    }
    let Some(new) = written.new else { return Ok(()) };
    if !is_reported_by(node, new) {
        return Err(format!(
            "node {me} can only report events as itself: source.host and reportingInstance must be {me} where given, \
             and one of them must be"
        ));
    }
    let about = text(new, "/involvedObject/name");
    if text(new, "/involvedObject/kind") == "Node" && about != node {
        return Err(format!("node {me} is not allowed to report events about node {}", quoted(about)));
    }
    for field in ["finalizers", "ownerReferences"] {
        let of = |object: Option<&Value>| object.and_then(|object| object["metadata"].get(field)).cloned();
        let (new, old) = (of(written.new), of(written.old));
        if filled(new.as_ref()) != filled(old.as_ref()) {
            return Err(format!("node {me} is not allowed to modify {field} of an event"));
        }
    }
    Ok(())
}

/// Older reporters fill in the source, newer ones the instance, some both: none may name another.
fn is_reported_by(node: &str, event: &Value) -> bool {
    let named = ["/source/host", "/reportingInstance"].map(|field| text(event, field));
    named.contains(&node) && named.iter().all(|name| name.is_empty() || *name == node)
}

/// An absent, null or empty field all say the same.
fn filled(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    })
}

/// The changed labels by which a node could draw work to itself that is not meant for it.
fn steering_labels(new: &Value, old: &Value) -> BTreeSet<String> {
    let [new, old] = [new, old].map(|object| object.pointer("/metadata/labels").and_then(Value::as_object));
    let of =
        |labels: Option<&serde_json::Map<String, Value>>, key: &str| labels.and_then(|l| l.get(key).cloned());
    let keys = [new, old].into_iter().flatten().flat_map(|labels| labels.keys());
    keys.filter(|key| of(new, key) != of(old, key) && is_steering(key)).cloned().collect()
}

fn is_steering(label: &str) -> bool {
    let Some((domain, name)) = label.split_once('/') else { return false };
    let within =
        |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|d| d.ends_with('.'));
    if within("node-restriction.kubernetes.io") {
        return true;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return false;
    }
    let reported = within("kubelet.kubernetes.io") || within("node.kubernetes.io");
    let known = matches!(
        (domain, name),
        ("kubernetes.io", "hostname" | "os" | "arch")
            | ("beta.kubernetes.io", "os" | "arch" | "instance-type")
            | ("topology.kubernetes.io", "region" | "zone")
            | ("failure-domain.beta.kubernetes.io", "region" | "zone")
    );
    !(reported || known)
}

fn listed(labels: &BTreeSet<String>) -> String {
    labels.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The user name under which a node comes.
pub fn user_name(node: &str) -> String {
    format!("system:node:{node}")
}

/// The name of the object written: a creation has it in the body only.
pub fn written_name<'a>(request_name: &'a str, new: Option<&'a Value>) -> &'a str {
    if request_name.is_empty() {
        new.map(|new| text(new, "/metadata/name")).unwrap_or_default()
    } else {
        request_name
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
