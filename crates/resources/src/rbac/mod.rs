//! Who may do what: roles, bindings, and the questions asked of them.
//!
//! The types are views: they read what matters of an object, take null for empty, and
//! ignore the rest, so an object that passed admission always reads. They are never
//! written back whole; the object is the truth.
//!
//! Deliberately absent: members of `system:masters` are let through before anybody asks
//! here, and a node's own objects are judged elsewhere.

mod controllers;
mod defaults;
mod escalation;
mod evaluate;
mod policy;
mod reconcile;
mod validation;
mod virtual_machines;

pub use controllers::controller_user;
pub use defaults::{cluster_role_bindings, cluster_roles};
pub use escalation::{
    Uncovered, breakdown, compact, confirm_no_escalation, covers, full_authority, rules_review,
};
pub use evaluate::{
    Attributes, Who, forbidden_message, name_to_authorize, namespace_to_authorize, rule_allows, subject_is,
};
pub use policy::{Grant, Policy, RbacKind};
pub use reconcile::{Reconciled, reconcile_binding, reconcile_role};
pub(crate) use validation::judged;
pub use validation::{
    Problem, binding_problems, changed_binding_problems, default_binding, role_ref_change_problem,
    rules_problems,
};
pub use virtual_machines::AUTHENTICATED_ROLE;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub const GROUP: &str = "rbac.authorization.k8s.io";

/// Everybody with this group is let through everywhere.
pub const MASTERS_GROUP: &str = "system:masters";

/// A permission: some verbs on some resources, or on some paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// A Role or a ClusterRole.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Role {
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_is_empty")]
    pub rules: Vec<PolicyRule>,
    /// Only a ClusterRole has one.
    pub aggregation_rule: Option<AggregationRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AggregationRule {
    /// `metav1.LabelSelector`s; a role is chosen when any of them matches it.
    #[serde(deserialize_with = "null_is_empty")]
    pub cluster_role_selectors: Vec<Value>,
}

/// A RoleBinding or a ClusterRoleBinding.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    pub metadata: Metadata,
    #[serde(deserialize_with = "null_is_empty")]
    pub subjects: Vec<Subject>,
    pub role_ref: RoleRef,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    pub kind: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    pub name: String,
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The user that a service account is.
pub fn service_account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The groups that a service account of this namespace is in, besides those of every
/// authenticated user.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
