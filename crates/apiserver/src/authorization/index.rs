//! All roles and bindings, arranged by who they are for.
//!
//! Built whole whenever one of them changed. What was worked out for one user is remembered beside it and goes
//! with it, so nothing outlives the objects it came from.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sheaf_resources::{
    quote::quoted,
    rbac::{Attributes, Binding, GROUP, Grant, PolicyRule, Role, RoleRef, rule_allows, service_account_user},
};

use crate::identity::{Directory, User, recent::Recent};

const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];
/// Users whose grants are remembered, twice this many at most.
const REMEMBERED: usize = 512;

pub(super) type Rules = Arc<[PolicyRule]>;

/// The numbers [`Directory::revision_of`] gave for the four resources.
pub(super) type Revisions = [u64; 4];

pub(super) struct Index {
    pub(super) revisions: Revisions,
    /// By namespace and name; cluster roles under the empty namespace.
    roles: BTreeMap<(String, String), Rules>,
    granted: Vec<Arc<Granted>>,
    /// Positions in `granted`, ascending.
    by_subject: BTreeMap<Whom, Vec<usize>>,
    resolved: Mutex<Recent<[u8; 32], Arc<Held>>>,
}

/// What one binding gives to one of its subjects.
struct Granted {
    /// Which binding, so that one that names a user twice counts once.
    binding: usize,
    /// Empty holds everywhere.
    namespace: String,
    rules: Result<Rules, NoRules>,
    reason: Arc<str>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    User(String),
    Group(String),
}

/// Why a reference to a role stands for nothing.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum NoRules {
    #[error("{}.{GROUP} {} not found", .role.kind.to_lowercase(), quoted(&.role.name))]
    NotFound { role: RoleRef },
    #[error("unsupported role reference kind: {}", quoted(.kind))]
    Unsupported { kind: String },
}

/// Everything one user holds.
#[derive(Default)]
pub(super) struct Held {
    everywhere: Vec<Arc<Granted>>,
    by_namespace: BTreeMap<String, Vec<Arc<Granted>>>,
}

pub(super) fn revisions(directory: &dyn Directory) -> Revisions {
    RESOURCES.map(|resource| directory.revision_of(GROUP, resource))
}

impl Index {
    pub(super) fn read(directory: &dyn Directory) -> Self {
        // The numbers first: what changes while the objects are read is then read again, never missed.
        let revisions = revisions(directory);
        let [cluster_roles, roles, cluster_bindings, bindings] =
            RESOURCES.map(|resource| directory.objects(GROUP, resource));
        let roles = cluster_roles.iter().chain(&roles).filter_map(|object| read::<Role>(object));
        let mut index = Index {
            revisions,
            roles: roles
                .map(|role| ((role.metadata.namespace, role.metadata.name), role.rules.into()))
                .collect(),
            granted: Vec::new(),
            by_subject: BTreeMap::new(),
            resolved: Mutex::new(Recent::new(REMEMBERED)),
        };
        let bindings = cluster_bindings.iter().chain(&bindings).filter_map(|object| read::<Binding>(object));
        for (number, binding) in bindings.enumerate() {
            index.add(number, &binding);
        }
        index
    }

    fn add(&mut self, number: usize, binding: &Binding) {
        let namespace = &binding.metadata.namespace;
        let rules = self.referenced(&binding.role_ref, namespace);
        for subject in &binding.subjects {
            let whom = match subject.kind.as_str() {
                "User" => Whom::User(subject.name.clone()),
                "Group" => Whom::Group(subject.name.clone()),
                "ServiceAccount" => {
                    let home = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                    if home.is_empty() {
                        continue;
                    }
                    Whom::User(service_account_user(home, &subject.name))
                }
                _ => continue,
            };
            let granted = Granted {
                binding: number,
                namespace: namespace.clone(),
                rules: rules.clone(),
                reason: Grant { binding, subject }.to_string().into(),
            };
            self.by_subject.entry(whom).or_default().push(self.granted.len());
            self.granted.push(Arc::new(granted));
        }
    }

    /// The rules a reference stands for, seen from a binding in `namespace`.
    pub(super) fn referenced(&self, role: &RoleRef, namespace: &str) -> Result<Rules, NoRules> {
        let place = match role.kind.as_str() {
            "ClusterRole" => "",
            "Role" if !namespace.is_empty() => namespace,
            kind => return Err(NoRules::Unsupported { kind: kind.to_owned() }),
        };
        let found = self.roles.get(&(place.to_owned(), role.name.clone()));
        found.cloned().ok_or_else(|| NoRules::NotFound { role: role.clone() })
    }

    pub(super) fn held_by(&self, user: &User) -> Arc<Held> {
        let key = subject_hash(user);
        if let Some(held) = self.resolved.lock().get(&key) {
            return held;
        }
        let held = Arc::new(self.resolve(user));
        self.resolved.lock().insert(key, held.clone());
        held
    }

    fn resolve(&self, user: &User) -> Held {
        let groups = user.groups.iter().map(|group| Whom::Group(group.clone()));
        let positions: BTreeSet<usize> = groups
            .chain([Whom::User(user.name.clone())])
            .filter_map(|whom| self.by_subject.get(&whom))
            .flatten()
            .copied()
            .collect();
        let mut held = Held::default();
        let mut last_binding = None;
        for granted in positions.into_iter().map(|position| &self.granted[position]) {
            // What one binding gives stands together.
            if last_binding.replace(granted.binding) == Some(granted.binding) {
                continue;
            }
            match granted.namespace.as_str() {
                "" => held.everywhere.push(granted.clone()),
                namespace => {
                    held.by_namespace.entry(namespace.to_owned()).or_default().push(granted.clone());
                }
            }
        }
        held
    }
}

impl Held {
    /// By what it is allowed; or, when it is not, what stood in the way of knowing better.
    pub(super) fn allows(&self, asked: &Attributes<'_>) -> Result<Arc<str>, String> {
        // A path is nobody's namespace, whatever the request carried along.
        let namespace = if asked.path.is_some() { "" } else { asked.namespace };
        for granted in self.granted_in(namespace) {
            if let Ok(rules) = &granted.rules
                && rules.iter().any(|rule| rule_allows(rule, asked))
            {
                return Ok(granted.reason.clone());
            }
        }
        Err(self.unknown_in(namespace).map(|why| format!("RBAC: {why}")).unwrap_or_default())
    }

    /// Every rule that holds in a namespace (or, without one, cluster-wide).
    pub(super) fn rules_in(&self, namespace: &str) -> Vec<PolicyRule> {
        self.granted_in(namespace)
            .filter_map(|granted| granted.rules.as_ref().ok())
            .flat_map(|rules| rules.iter().cloned())
            .collect()
    }

    /// The namespaces in which anything is held, in order.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.by_namespace.keys().map(String::as_str)
    }

    /// What could not be found out on the way, each thing once.
    pub(super) fn unknown_in(&self, namespace: &str) -> Option<String> {
        let mut said: Vec<String> = Vec::new();
        for why in self.granted_in(namespace).filter_map(|granted| granted.rules.as_ref().err()) {
            let why = why.to_string();
            if !said.contains(&why) {
                said.push(why);
            }
        }
        match said.as_slice() {
            [] => None,
            [only] => Some(only.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        }
    }

    fn granted_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<Granted>> {
        self.everywhere.iter().chain(self.by_namespace.get(namespace).into_iter().flatten())
    }
}

/// An object that cannot be read grants nothing. Admission lets none in, so one is worth a word.
fn read<'a, T: Deserialize<'a>>(object: &'a Value) -> Option<T> {
    T::deserialize(object)
        .map_err(|why| tracing::warn!(object = %object["metadata"]["name"], error = %why, "unreadable RBAC object"))
        .ok()
}

/// Name and groups, each with its length, so that no two users share one. What a credential adds beside them
/// grants nothing.
fn subject_hash(user: &User) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in std::iter::once(&user.name).chain(&user.groups) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}
