//! Who belongs to whom, as far as it was noticed.
//!
//! Only objects that refer to owners, or that wait for their dependents to go or stay, are remembered: most
//! objects do neither, and owners are looked at in the API when it matters. What is remembered may be a moment old; it
//! says where to look, never what to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sheaf_planner::garbage::{Dependent, FOREGROUND, ORPHAN};

use sheaf_client::served::ResourceName;

pub type Uid = Arc<str>;

/// One remembered object.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub resource: Arc<ResourceName>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    owners: Box<[OwnerEdge]>,
    /// It is being deleted in the foreground.
    waiting: bool,
    /// It is being deleted and its dependents are to stay.
    orphaning: bool,
    /// The list that last brought it.
    round: u32,
}

impl Node {
    pub fn round(&self) -> u32 {
        self.round
    }
}

#[derive(Clone, Debug, PartialEq)]
struct OwnerEdge {
    uid: Uid,
    blocks_deletion: bool,
    api_version: Arc<str>,
    kind: Arc<str>,
}

#[derive(Debug, Default)]
pub struct Graph {
    nodes: BTreeMap<Uid, Node>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// apiVersions and kinds are few and repeated in every edge.
    words: BTreeSet<Arc<str>>,
}

impl Graph {
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Takes note of an object as it is; answers who should be looked at because of it.
    pub fn see(&mut self, resource: &Arc<ResourceName>, metadata: &ObjectMeta, round: u32) -> Vec<Uid> {
        let Some(uid) = metadata.uid.as_deref() else { return Vec::new() };
        let Some(node) = self.read(resource, metadata, round) else { return self.forget(uid) };
        let uid: Uid = uid.into();
        let before = self.nodes.get(&uid).cloned();
        // Only the list differs: nothing to look at that was not looked at already.
        if let Some(before) = &before
            && (Node { round, ..before.clone() }) == node
        {
            self.nodes.insert(uid, node);
            return Vec::new();
        }
        // Owners that lost it, or whose way it is no longer in, may now go on.
        let mut wake: Vec<Uid> = match before {
            Some(before) => self.unlink(&uid, &before),
            None => Vec::new(),
        };
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        wake.retain(|owner| self.nodes.contains_key(owner));
        self.nodes.insert(uid.clone(), node);
        wake.push(uid);
        wake
    }

    /// The object is no more, or is nothing to remember any more; answers which remembered owners it had.
    pub fn forget(&mut self, uid: &str) -> Vec<Uid> {
        let Some((uid, node)) = self.nodes.remove_entry(uid) else { return Vec::new() };
        let mut owners = self.unlink(&uid, &node);
        owners.retain(|owner| self.nodes.contains_key(owner));
        owners
    }

    fn unlink(&mut self, uid: &Uid, node: &Node) -> Vec<Uid> {
        let mut owners = Vec::new();
        for owner in &node.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
            owners.push(owner.uid.clone());
        }
        owners
    }

    /// Those that refer to an object as their owner.
    pub fn dependents(&self, owner: &str) -> Vec<Uid> {
        self.dependents.get(owner).into_iter().flatten().cloned().collect()
    }

    /// The same as the planner wants to know them.
    pub fn in_planner_words(&self, owner: &str) -> Vec<Dependent> {
        let dependents = self.dependents.get(owner).into_iter().flatten();
        let known = dependents.filter_map(|uid| Some((uid, self.nodes.get(uid)?)));
        known
            .map(|(uid, node)| Dependent {
                uid: uid.to_string(),
                blocks_deletion: node.owners.iter().any(|edge| *edge.uid == *owner && edge.blocks_deletion),
                waiting_for_dependents: node.waiting,
            })
            .collect()
    }

    /// Objects of a resource that a complete list did not bring.
    pub fn unseen_since(&self, resource: &ResourceName, round: u32) -> Vec<Uid> {
        let of_resource = self.nodes.iter().filter(|(_, node)| *node.resource == *resource);
        of_resource.filter(|(_, node)| node.round != round).map(|(uid, _)| uid.clone()).collect()
    }

    /// Those that refer to an owner of some kind.
    pub fn dependents_of_kind(&self, kind: &str) -> Vec<Uid> {
        let refers = |node: &Node| node.owners.iter().any(|owner| *owner.kind == *kind);
        self.nodes.iter().filter(|(_, node)| refers(node)).map(|(uid, _)| uid.clone()).collect()
    }

    /// `None` when there is nothing to remember of it.
    fn read(&mut self, resource: &Arc<ResourceName>, metadata: &ObjectMeta, round: u32) -> Option<Node> {
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let being_deleted = metadata.deletion_timestamp.is_some();
        let held_by = |finalizer: &str| {
            being_deleted && metadata.finalizers.iter().flatten().any(|held| held == finalizer)
        };
        let (waiting, orphaning) = (held_by(FOREGROUND), held_by(ORPHAN));
        if owners.is_empty() && !waiting && !orphaning {
            return None;
        }
        let owners = owners.iter().map(|owner| OwnerEdge {
            uid: owner.uid.as_str().into(),
            blocks_deletion: owner.block_owner_deletion.unwrap_or(false),
            api_version: self.word(&owner.api_version),
            kind: self.word(&owner.kind),
        });
        Some(Node {
            owners: owners.collect(),
            resource: resource.clone(),
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            waiting,
            orphaning,
            round,
        })
    }

    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.words.get(text) {
            return known.clone();
        }
        let word: Arc<str> = text.into();
        self.words.insert(word.clone());
        word
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn widgets() -> Arc<ResourceName> {
        Arc::new(("example.com".to_owned(), "widgets".to_owned()))
    }

    fn object(uid: &str, owners: &[&str]) -> Value {
        let owners: Vec<Value> = owners
            .iter()
            .map(|owner| {
                json!({"apiVersion": "v1", "kind": "Secret", "name": owner, "uid": owner, "blockOwnerDeletion": true})
            })
            .collect();
        json!({"name": uid, "namespace": "a", "uid": uid, "ownerReferences": owners})
    }

    fn see(graph: &mut Graph, object: Value) -> Vec<String> {
        let metadata = serde_json::from_value(object).unwrap();
        graph.see(&widgets(), &metadata, 1).iter().map(ToString::to_string).collect()
    }

    fn foreground(mut object: Value) -> Value {
        object["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        object["finalizers"] = json!([FOREGROUND]);
        object
    }

    #[test]
    fn what_neither_belongs_nor_waits_takes_no_memory() {
        let mut graph = Graph::default();
        assert!(see(&mut graph, object("a", &[])).is_empty());
        assert_eq!(graph.nodes.len(), 0);
        see(&mut graph, object("a", &["o"]));
        assert_eq!(graph.nodes.len(), 1);
        see(&mut graph, object("a", &[]));
        assert_eq!((graph.nodes.len(), graph.dependents.len()), (0, 0));
    }

    #[test]
    fn a_change_that_concerns_nobody_wakes_nobody() {
        let mut graph = Graph::default();
        assert_eq!(see(&mut graph, object("a", &["o"])), ["a"]);
        let mut labelled = object("a", &["o"]);
        labelled["labels"] = json!({"a": "b"});
        assert!(see(&mut graph, labelled).is_empty());
    }

    #[test]
    fn an_owner_that_waits_is_woken_when_a_dependent_lets_go_or_goes() {
        let mut graph = Graph::default();
        see(&mut graph, foreground(object("o", &[])));
        see(&mut graph, object("a", &["o"]));
        see(&mut graph, object("b", &["o"]));
        assert!(graph.in_planner_words("o").iter().all(|dependent| dependent.blocks_deletion));
        assert_eq!(see(&mut graph, object("a", &["p"])), ["o", "a"]);
        assert_eq!(graph.forget("b"), vec![Uid::from("o")]);
        assert!(graph.in_planner_words("o").is_empty());
    }

    #[test]
    fn what_a_list_did_not_bring_is_found() {
        let mut graph = Graph::default();
        see(&mut graph, object("a", &["o"]));
        see(&mut graph, object("b", &["o"]));
        let metadata = serde_json::from_value(object("b", &["o"])).unwrap();
        assert!(graph.see(&widgets(), &metadata, 2).is_empty());
        assert_eq!(graph.unseen_since(&widgets(), 2), vec![Uid::from("a")]);
    }
}
