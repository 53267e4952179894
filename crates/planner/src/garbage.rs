//! Decides what becomes of an object whose owners go, and of one that goes before what it
//! owns.
//!
//! ```text
//!   the object as a dependent             the object as an owner, deletion asked for
//!
//!   some owner lives ---> forget the      foregroundDeletion set      orphan set
//!        |                dead ones             |                        |
//!        | none lives                           v                        v
//!        v                                WaitForDependents        OrphanDependents
//!   Delete, the way its                         | none blocks            | none refers
//!   finalizers say; Foreground                  v                        v
//!   when an owner waits for it            RemoveFinalizer          RemoveFinalizer
//!   and it owns things itself
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - Going is a one-way trip: an object that is being deleted is never judged by its owners.
//! - Every delete carries the uid and resource version that were looked at, so that an
//!   object which changed its owners meanwhile is not deleted for those it had.
//! - Owners live in the dependent's own namespace or in none. A reference across namespaces
//!   is to nobody; a cluster-wide object cannot belong to a namespaced one, and is left
//!   alone for good.

use std::fmt;

pub const FOREGROUND: &str = "foregroundDeletion";
pub const ORPHAN: &str = "orphan";

/// The object in question, as just read.
#[derive(Clone, Debug, Default)]
pub struct Item {
    pub uid: String,
    pub resource_version: String,
    /// It has a deletion timestamp.
    pub being_deleted: bool,
    pub finalizers: Vec<String>,
    pub owners: Vec<Owner>,
    pub dependents: Vec<Dependent>,
}

/// One owner reference, and what was found of whom it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: String,
    pub blocks_deletion: bool,
    pub found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there and nothing says that its dependents must go.
    Solid,
    /// Nobody of that name with that uid.
    Absent,
    /// It is being deleted in the foreground.
    WaitingForDependents,
    /// Its kind is not served, now or yet.
    UnknownKind,
    /// Its kind lives in namespaces, and the dependent in none.
    Impossible,
}

/// An object that refers to the item as its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependent {
    pub uid: String,
    /// Its reference says that the item must not be gone before it.
    pub blocks_deletion: bool,
    /// It is itself being deleted in the foreground.
    pub waiting_for_dependents: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Cannot tell yet; ask again in a while.
    AskAgain,
    Delete {
        propagation: Propagation,
        uid: String,
        resource_version: String,
    },
    /// Remove the references to these owners from the item.
    RemoveOwnerReferences {
        uids: Vec<String>,
    },
    /// Set `blockOwnerDeletion` of all the item's references to false.
    UnblockOwnerReferences,
    /// Remove the reference to the item from each of these.
    OrphanDependents {
        uids: Vec<String>,
    },
    /// These must go first; look at each of them.
    WaitForDependents {
        uids: Vec<String>,
    },
    RemoveFinalizer {
        finalizer: &'static str,
    },
}

pub fn next_step(item: &Item) -> Step {
    match (item.being_deleted, item.has(FOREGROUND), item.has(ORPHAN)) {
        (true, true, _) => let_dependents_go_first(item),
        (true, false, true) => let_dependents_stay(item),
        (true, false, false) => Step::Nothing,
        (false, _, _) => judge_by_owners(item),
    }
}

fn let_dependents_go_first(item: &Item) -> Step {
    let blocking = || item.dependents.iter().filter(|dependent| dependent.blocks_deletion);
    if blocking().next().is_none() {
        return Step::RemoveFinalizer { finalizer: FOREGROUND };
    }
    // One that waits for its own dependents is on its way already.
    let uids = blocking().filter(|dependent| !dependent.waiting_for_dependents);
    Step::WaitForDependents { uids: uids.map(|dependent| dependent.uid.clone()).collect() }
}

fn let_dependents_stay(item: &Item) -> Step {
    match item.dependents.as_slice() {
        [] => Step::RemoveFinalizer { finalizer: ORPHAN },
        dependents => Step::OrphanDependents {
            uids: dependents.iter().map(|dependent| dependent.uid.clone()).collect(),
        },
    }
}

fn judge_by_owners(item: &Item) -> Step {
    let any = |found: Found| item.owners.iter().any(|owner| owner.found == found);
    if item.owners.is_empty() || any(Found::Impossible) {
        return Step::Nothing;
    }
    if any(Found::UnknownKind) {
        return Step::AskAgain;
    }
    if any(Found::Solid) {
        // An owner that waits is as good as gone: left in place, the reference would hold
        // that owner up for ever, since the item has reason to stay.
        let dead = item.owners.iter().filter(|owner| owner.found != Found::Solid);
        let uids: Vec<String> = dead.map(|owner| owner.uid.clone()).collect();
        return if uids.is_empty() { Step::Nothing } else { Step::RemoveOwnerReferences { uids } };
    }
    if any(Found::WaitingForDependents) && !item.dependents.is_empty() {
        let in_a_ring = item.dependents.iter().any(|dependent| dependent.waiting_for_dependents);
        // Owner waits for item waits for dependent, and the dependent may be the owner. So
        // the item stops holding its owners up.
        if in_a_ring && item.owners.iter().any(|owner| owner.blocks_deletion) {
            return Step::UnblockOwnerReferences;
        }
        return item.delete(Propagation::Foreground);
    }
    if item.has(ORPHAN) {
        item.delete(Propagation::Orphan)
    } else if item.has(FOREGROUND) {
        item.delete(Propagation::Foreground)
    } else {
        item.delete(Propagation::Background)
    }
}

impl Item {
    fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|name| name == finalizer)
    }

    fn delete(&self, propagation: Propagation) -> Step {
        Step::Delete { propagation, uid: self.uid.clone(), resource_version: self.resource_version.clone() }
    }
}

/// What an owner reference says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// Where the owner's kind lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
    Unknown,
}

/// The object of the referenced kind and name that was found, looked up in the dependent's
/// namespace when the kind has namespaces.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    pub uid: &'a str,
    pub being_deleted: bool,
    pub finalizers: &'a [String],
}

/// Classifies an owner. `namespace` is the dependent's, empty for a cluster-wide one.
pub fn classify(reference: &Reference, scope: Scope, namespace: &str, live: Option<Live<'_>>) -> Found {
    match (scope, live) {
        (Scope::Unknown, _) => Found::UnknownKind,
        (Scope::Namespaced, _) if namespace.is_empty() => Found::Impossible,
        (_, Some(owner)) if owner.uid == reference.uid => {
            let waits = owner.being_deleted && owner.finalizers.iter().any(|name| name == FOREGROUND);
            if waits { Found::WaitingForDependents } else { Found::Solid }
        }
        // Another of the same name is not the one that was meant.
        (_, Some(_) | None) => Found::Absent,
    }
}

/// Reason and message of the warning event on a dependent whose owner exists, but in
/// another namespace.
pub fn misplaced_owner_event(reference: &Reference, namespace: &str) -> (&'static str, String) {
    let Reference { api_version, kind, name, uid } = reference;
    let owner = format!("[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]");
    ("OwnerRefInvalidNamespace", format!("ownerRef {owner} does not exist in namespace \"{namespace}\""))
}

impl fmt::Display for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        })
    }
}

#[cfg(test)]
#[path = "garbage_tests.rs"]
mod tests;
