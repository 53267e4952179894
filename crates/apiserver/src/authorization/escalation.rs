//! Nobody grants what they do not hold.
//!
//! Who writes a role must hold every right in it, or the verb `escalate` on it. Who writes a binding must hold
//! every right of the role it refers to, or the verb `bind` on that role. Two kinds of ours hand out identities
//! instead of rights, and need the verb `impersonate` on whom they hand out: an API token for another user, a local user
//! whose name roles are bound to already, and a group that a local user is put into. `system:masters` is above all this.

use serde::Deserialize;
use serde_json::{Value, json};
use sheaf_resources::rbac::{
    Attributes, Binding, GROUP, PolicyRule, Role, RoleRef, Who, confirm_no_escalation, full_authority,
};

use super::{Authorizer, Decision, index::NoRules};
use crate::identity::{
    MASTERS, Refusal, User, api_tokens,
    objects::{text, texts},
};

/// An object that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    /// Of the request; empty for what is cluster-wide.
    pub namespace: &'a str,
    pub old: Option<&'a Value>,
    pub new: &'a Value,
}

/// Says nothing about other resources.
pub fn check(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    if user.in_group(MASTERS) || written.old.is_some_and(|old| only_collected(old, written.new)) {
        return Ok(());
    }
    match (written.group, written.resource) {
        (GROUP, "roles" | "clusterroles") => check_role(authorizer, user, written),
        (GROUP, "rolebindings" | "clusterrolebindings") => check_binding(authorizer, user, written),
        (api_tokens::GROUP, api_tokens::TOKENS) => check_token(authorizer, user, written),
        (api_tokens::GROUP, api_tokens::USERS) => {
            check_name(authorizer, user, written)?;
            check_groups(authorizer, user, written)
        }
        _ => Ok(()),
    }
}

fn check_role(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let role: Role = read(written.new)?;
    let escalate = Attributes {
        verb: "escalate",
        group: GROUP,
        resource: written.resource,
        namespace: written.namespace,
        // A creation has no name on its request line, so a right limited to names does not reach it.
        name: if written.old.is_some() { &role.metadata.name } else { "" },
        ..Attributes::default()
    };
    if authorizer.authorize(user, &escalate).is_allowed() {
        return Ok(());
    }
    let refuse = |message: String| forbidden(written, &role.metadata.name, message);
    confirm(authorizer, user, written.namespace, &role.rules).map_err(refuse)?;
    // An aggregation rule can gather anything, and taking one away keeps a role from being tightened.
    let gathers = |object: &Value| {
        object
            .pointer("/aggregationRule/clusterRoleSelectors")
            .and_then(Value::as_array)
            .is_some_and(|s| !s.is_empty())
    };
    if written.resource == "clusterroles" && (gathers(written.new) || written.old.is_some_and(gathers)) {
        confirm(authorizer, user, written.namespace, &full_authority()).map_err(|_| {
            refuse("must have cluster-admin privileges to use the aggregationRule".to_owned())
        })?;
    }
    Ok(())
}

fn check_binding(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let binding: Binding = read(written.new)?;
    let role = &binding.role_ref;
    if may_bind(authorizer, user, role, written.namespace) {
        return Ok(());
    }
    let rules = authorizer.referenced(role, written.namespace).map_err(|why| match why {
        NoRules::NotFound { role } => Refusal::NotFound {
            group: GROUP.to_owned(),
            resource: format!("{}s", role.kind.to_lowercase()),
            name: role.name,
        },
        NoRules::Unsupported { .. } => Refusal::BadRequest { message: why.to_string() },
    })?;
    confirm(authorizer, user, written.namespace, &rules)
        .map_err(|message| forbidden(written, &binding.metadata.name, message))
}

fn check_token(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let owner = text(written.new, "/userId");
    if owner == user.name {
        return Ok(());
    }
    may_impersonate(authorizer, user, "users", owner)?;
    // Whoever has the token is in all of the user's groups, which who only acts as the user is not.
    let owner = authorizer.directory.object(api_tokens::GROUP, api_tokens::USERS, "", owner);
    let groups = owner.map(|owner| texts(&owner, "/groups")).unwrap_or_default();
    groups.into_iter().try_for_each(|group| may_impersonate(authorizer, user, "groups", &group))
}

/// Whoever makes a user could be them: a name that has rights before its user is there is as good as those rights.
fn check_name(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let name = text(written.new, "/metadata/name");
    let is_named = |binding: &Value| {
        let subjects = binding["subjects"].as_array().into_iter().flatten();
        let mut users = subjects.filter(|subject| subject["kind"] == "User");
        users.any(|subject| subject["name"] == name)
    };
    let is_bound = || {
        ["clusterrolebindings", "rolebindings"].iter().any(|resource| {
            authorizer.directory.objects(GROUP, resource).iter().any(|binding| is_named(binding))
        })
    };
    match written.old.is_none() && is_bound() {
        true => may_impersonate(authorizer, user, "users", name),
        false => Ok(()),
    }
}

fn check_groups(authorizer: &Authorizer, user: &User, written: &Written<'_>) -> Result<(), Refusal> {
    let before = written.old.map(|old| texts(old, "/groups")).unwrap_or_default();
    let added = texts(written.new, "/groups").into_iter().filter(|group| !before.contains(group));
    added.into_iter().try_for_each(|group| may_impersonate(authorizer, user, "groups", &group))
}

fn may_impersonate(authorizer: &Authorizer, user: &User, resource: &str, name: &str) -> Result<(), Refusal> {
    let asked = Attributes { verb: "impersonate", resource, name, ..Attributes::default() };
    match authorizer.authorize(user, &asked) {
        Decision::Allow { .. } => Ok(()),
        Decision::Deny { reason } => Err(super::forbidden(user, &asked, &reason)),
    }
}

fn may_bind(authorizer: &Authorizer, user: &User, role: &RoleRef, namespace: &str) -> bool {
    let resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        _ => return false,
    };
    let bind = Attributes {
        verb: "bind",
        group: GROUP,
        resource,
        namespace,
        name: &role.name,
        ..Attributes::default()
    };
    authorizer.authorize(user, &bind).is_allowed()
}

fn confirm(
    authorizer: &Authorizer,
    user: &User,
    namespace: &str,
    wanted: &[PolicyRule],
) -> Result<(), String> {
    let who = Who { name: &user.name, groups: &user.groups };
    let held = authorizer.rules_for(user, namespace);
    confirm_no_escalation(&who, &held, wanted).map_err(|message| {
        match authorizer.unknown_for(user, namespace) {
            Some(unknown) => format!("{message}; resolution errors: [{unknown}]"),
            None => message,
        }
    })
}

/// Whether the write changes only what garbage collection needs: that must never wait for somebody's rights.
fn only_collected(old: &Value, new: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "selfLink"] {
                metadata.remove(field);
            }
        }
        object
    };
    let touched =
        |object: &Value| json!([object["metadata"]["ownerReferences"], object["metadata"]["finalizers"]]);
    touched(old) != touched(new) && stripped(old) == stripped(new)
}

fn read<'a, T: Deserialize<'a>>(object: &'a Value) -> Result<T, Refusal> {
    T::deserialize(object).map_err(|why| Refusal::BadRequest { message: why.to_string() })
}

fn forbidden(written: &Written<'_>, name: &str, message: String) -> Refusal {
    Refusal::Forbidden {
        group: GROUP.to_owned(),
        resource: written.resource.to_owned(),
        name: name.to_owned(),
        message,
    }
}

#[cfg(test)]
#[path = "escalation_tests.rs"]
mod tests;
