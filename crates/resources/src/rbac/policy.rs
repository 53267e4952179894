//! All roles and bindings, read once and kept ready for the question of every request.
//!
//! A picture of what the watch said last; whoever holds it feeds it events and builds it
//! anew after a restart. A binding to a role that is not there grants nothing, and begins
//! to when the role comes.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::Value;

use super::{Attributes, Binding, PolicyRule, Role, RoleRef, Subject, Who, evaluate};
use crate::quote::quoted;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RbacKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

/// By namespace, then name; cluster-wide ones are under the empty namespace.
type ByPlace<T> = BTreeMap<String, BTreeMap<String, T>>;

#[derive(Clone, Debug, Default)]
pub struct Policy {
    roles: ByPlace<Role>,
    bindings: ByPlace<Binding>,
}

/// Why a request is allowed: prints as the reason in a SubjectAccessReview.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    pub binding: &'a Binding,
    pub subject: &'a Subject,
}

impl Policy {
    /// Takes in an object as it is now.
    pub fn put(&mut self, kind: RbacKind, object: &Value) -> Result<(), serde_json::Error> {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let role = Role::deserialize(object)?;
                let (namespace, name) = (role.metadata.namespace.clone(), role.metadata.name.clone());
                self.roles.entry(namespace).or_default().insert(name, role);
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let binding = Binding::deserialize(object)?;
                let (namespace, name) = (binding.metadata.namespace.clone(), binding.metadata.name.clone());
                self.bindings.entry(namespace).or_default().insert(name, binding);
            }
        }
        Ok(())
    }

    /// Lets go of an object that is no more.
    pub fn forget(&mut self, kind: RbacKind, namespace: &str, name: &str) {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => forget(&mut self.roles, namespace, name),
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                forget(&mut self.bindings, namespace, name)
            }
        }
    }

    /// What allows the request, if anything does.
    pub fn allows<'a>(&'a self, who: &Who<'_>, asked: &Attributes<'_>) -> Option<Grant<'a>> {
        // A path is nobody's namespace, whatever the request carried along.
        let namespace = if asked.path.is_some() { "" } else { asked.namespace };
        self.grants(who, namespace)
            .find(|(_, rules)| rules.iter().any(|rule| evaluate::rule_allows(rule, asked)))
            .map(|(grant, _)| grant)
    }

    /// Every rule that applies to somebody in a namespace, or cluster-wide when it is
    /// empty.
    pub fn rules_for(&self, who: &Who<'_>, namespace: &str) -> Vec<PolicyRule> {
        self.grants(who, namespace).flat_map(|(_, rules)| rules.iter().cloned()).collect()
    }

    /// The rules a reference stands for, seen from a binding in `namespace`.
    pub fn role_rules(&self, role_ref: &RoleRef, namespace: &str) -> Option<&[PolicyRule]> {
        let place = match role_ref.kind.as_str() {
            "ClusterRole" => "",
            "Role" if !namespace.is_empty() => namespace,
            _ => return None,
        };
        Some(&self.roles.get(place)?.get(&role_ref.name)?.rules)
    }

    fn grants<'a>(
        &'a self,
        who: &Who<'_>,
        namespace: &str,
    ) -> impl Iterator<Item = (Grant<'a>, &'a [PolicyRule])> {
        let cluster = self.bindings.get("").into_iter().flat_map(BTreeMap::values);
        let local = (!namespace.is_empty()).then(|| self.bindings.get(namespace)).flatten();
        cluster.chain(local.into_iter().flat_map(BTreeMap::values)).filter_map(|binding| {
            let place = &binding.metadata.namespace;
            let subject =
                binding.subjects.iter().find(|subject| evaluate::subject_is(subject, who, place))?;
            let rules = self.role_rules(&binding.role_ref, place)?;
            Some((Grant { binding, subject }, rules))
        })
    }
}

fn forget<T>(all: &mut ByPlace<T>, namespace: &str, name: &str) {
    if let Some(place) = all.get_mut(namespace) {
        place.remove(name);
        if place.is_empty() {
            all.remove(namespace);
        }
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Grant { binding, subject } = self;
        let (name, namespace) = (&binding.metadata.name, &binding.metadata.namespace);
        let (kind, name) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", name.clone()),
            _ => ("RoleBinding", format!("{name}/{namespace}")),
        };
        let to = match subject.kind.as_str() {
            "ServiceAccount" => {
                let home = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                format!("{}/{home}", subject.name)
            }
            _ => subject.name.clone(),
        };
        write!(
            f,
            "RBAC: allowed by {kind} {} of {} {} to {} {}",
            quoted(&name),
            binding.role_ref.kind,
            quoted(&binding.role_ref.name),
            subject.kind,
            quoted(&to)
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy() -> Policy {
        let mut policy = Policy::default();
        let pods = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let role = |name: &str| json!({"metadata": {"name": name, "namespace": "ci"}, "rules": pods});
        policy.put(RbacKind::Role, &role("reader")).unwrap();
        policy.put(RbacKind::ClusterRole, &json!({"metadata": {"name": "reader"}, "rules": pods})).unwrap();
        policy.put(RbacKind::ClusterRole, &json!({"metadata": {"name": "empty"}, "rules": null})).unwrap();
        for (name, kind) in [("a-local", "Role"), ("b-shared", "ClusterRole")] {
            let binding = json!({
                "metadata": {"name": name, "namespace": "ci"},
                "roleRef": {"kind": kind, "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "name": name}],
            });
            policy.put(RbacKind::RoleBinding, &binding).unwrap();
        }
        let everywhere = json!({
            "metadata": {"name": "everywhere"},
            "roleRef": {"kind": "ClusterRole", "name": "reader"},
            "subjects": [{"kind": "Group", "name": "ops"}],
        });
        policy.put(RbacKind::ClusterRoleBinding, &everywhere).unwrap();
        policy
    }

    fn get_pod(namespace: &str) -> Attributes<'_> {
        Attributes { verb: "get", resource: "pods", namespace, ..Attributes::default() }
    }

    #[test]
    fn a_role_binding_reaches_its_own_namespace_only() {
        let policy = policy();
        for name in ["system:serviceaccount:ci:a-local", "system:serviceaccount:ci:b-shared"] {
            let who = Who { name, groups: &[] };
            assert!(policy.allows(&who, &get_pod("ci")).is_some());
            assert!(policy.allows(&who, &get_pod("default")).is_none());
            assert!(policy.allows(&who, &get_pod("")).is_none());
        }
    }

    #[test]
    fn a_cluster_role_binding_reaches_everywhere() {
        let (policy, groups) = (policy(), ["ops".to_owned()]);
        let who = Who { name: "jane", groups: &groups };
        assert!(policy.allows(&who, &get_pod("ci")).is_some());
        assert!(policy.allows(&who, &get_pod("")).is_some());
        assert_eq!(policy.rules_for(&who, "ci").len(), 1);
    }

    #[test]
    fn the_reason_names_binding_role_and_subject() {
        let (policy, groups) = (policy(), ["ops".to_owned()]);
        let account = Who { name: "system:serviceaccount:ci:a-local", groups: &[] };
        assert_eq!(
            policy.allows(&account, &get_pod("ci")).unwrap().to_string(),
            "RBAC: allowed by RoleBinding \"a-local/ci\" of Role \"reader\" to ServiceAccount \"a-local/ci\""
        );
        assert_eq!(
            policy.allows(&Who { name: "jane", groups: &groups }, &get_pod("")).unwrap().to_string(),
            "RBAC: allowed by ClusterRoleBinding \"everywhere\" of ClusterRole \"reader\" to Group \"ops\""
        );
    }

    #[test]
    fn a_binding_without_its_role_grants_nothing_until_it_comes() {
        let (mut policy, groups) = (policy(), ["ops".to_owned()]);
        let who = Who { name: "jane", groups: &groups };
        policy.forget(RbacKind::ClusterRole, "", "reader");
        assert!(policy.allows(&who, &get_pod("ci")).is_none());
        let back = json!({"metadata": {"name": "reader"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
        policy.put(RbacKind::ClusterRole, &back).unwrap();
        assert!(policy.allows(&who, &get_pod("ci")).is_some());
        policy.forget(RbacKind::ClusterRoleBinding, "", "everywhere");
        assert!(policy.allows(&who, &get_pod("ci")).is_none());
    }

    #[test]
    fn a_cluster_wide_binding_cannot_name_a_namespaced_role() {
        let mut policy = policy();
        let binding = json!({
            "metadata": {"name": "odd"},
            "roleRef": {"kind": "Role", "name": "reader"},
            "subjects": [{"kind": "User", "name": "jane"}],
        });
        policy.put(RbacKind::ClusterRoleBinding, &binding).unwrap();
        assert!(policy.allows(&Who { name: "jane", groups: &[] }, &get_pod("ci")).is_none());
    }
}
