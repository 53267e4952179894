//! Who somebody is, once it is known: a name, groups, and what else the credential said.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

pub const ANONYMOUS: &str = "system:anonymous";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const AUTHENTICATED: &str = "system:authenticated";
/// May do everything, whatever the roles say. Only a certificate of the cluster's CA can carry it.
pub const MASTERS: &str = "system:masters";
pub const NODES: &str = "system:nodes";
pub const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// Everybody who came with an API token, as Rancher calls them.
pub const LOCAL_AUTHENTICATED: &str = "system:cattle:authenticated";

/// In `extra`: the name of the API token somebody came with, as Rancher calls it.
pub(crate) const REQUEST_TOKEN: &str = "requesttokenid";
/// In `extra`, with whatever value: this is a session of somebody who must choose a new password first.
pub(crate) const MUST_CHANGE_PASSWORD: &str = "mustchangepassword";

const NODE_PREFIX: &str = "system:node:";
/// Before the names of the cluster's own hands.
pub const OWN_PREFIX: &str = "system:sheaf:";
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who presented nothing.
    pub fn anonymous() -> Arc<User> {
        static ANYBODY: LazyLock<Arc<User>> = LazyLock::new(|| {
            Arc::new(User {
                name: ANONYMOUS.to_owned(),
                groups: vec![UNAUTHENTICATED.to_owned()],
                ..User::default()
            })
        });
        ANYBODY.clone()
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|held| held == group)
    }

    /// The node this user is, if it is one: both the name and the group must say so.
    pub fn node_name(&self) -> Option<&str> {
        let name = self.name.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())?;
        self.in_group(NODES).then_some(name)
    }

    /// Whether this is one of the cluster's own hands. The group is asked for too: a name alone can be on a
    /// certificate that somebody had signed.
    pub fn is_of_the_cluster(&self) -> bool {
        self.name.starts_with(OWN_PREFIX) && self.in_group(MASTERS)
    }

    /// Whether nothing is open to this user before a new password is chosen. Being in `extra`, it can be put on
    /// somebody by an impersonation but never taken off by one: who must change a password may not impersonate.
    pub fn must_change_password(&self) -> bool {
        self.extra.contains_key(MUST_CHANGE_PASSWORD)
    }

    /// The API token this user came with; empty when with something else.
    pub fn token_name(&self) -> &str {
        self.extra.get(REQUEST_TOKEN).and_then(|names| names.first()).map_or("", String::as_str)
    }

    /// As `UserInfo` in `authentication.k8s.io/v1`.
    pub fn into_wire(&self) -> Value {
        let mut info = Map::new();
        info.insert("username".to_owned(), json!(self.name));
        if !self.uid.is_empty() {
            info.insert("uid".to_owned(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".to_owned(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".to_owned(), json!(self.extra));
        }
        Value::Object(info)
    }
}

pub(crate) fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

pub(crate) fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS.to_owned(), format!("{SERVICE_ACCOUNTS}:{namespace}")]
}

/// Namespace and name of the service account a user name stands for. Anything that could not be one, `system:serviceaccount:a:b:c`
/// for instance, is an ordinary user name.
pub(crate) fn split_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let label = |part: &str| {
        part.bytes().all(|b| letter(b) || b == b'-')
            && part.bytes().next().is_some_and(letter)
            && part.bytes().last().is_some_and(letter)
    };
    (label(namespace) && name.split('.').all(label)).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_one_by_name_and_by_group_or_not_at_all() {
        let node = |name: &str, group: &str| User {
            name: name.to_owned(),
            groups: vec![group.to_owned()],
            ..User::default()
        };
        assert_eq!(node("system:node:n1", NODES).node_name(), Some("n1"));
        assert_eq!(node("system:node:n1", AUTHENTICATED).node_name(), None);
        assert_eq!(node("n1", NODES).node_name(), None);
        assert_eq!(node("system:node:", NODES).node_name(), None);
    }

    #[test]
    fn only_a_well_formed_name_is_a_service_account() {
        assert_eq!(split_service_account("system:serviceaccount:ns:sa.x"), Some(("ns", "sa.x")));
        for other in [
            "jo",
            "system:serviceaccount:",
            "system:serviceaccount:ns",
            "system:serviceaccount:ns:",
            "system:serviceaccount::sa",
            "system:serviceaccount:ns:a:b",
            "system:serviceaccount:NS:a",
        ] {
            assert_eq!(split_service_account(other), None, "{other}");
        }
    }
}
