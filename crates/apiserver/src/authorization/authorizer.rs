//! Asks everyone who has a say, and remembers the rules for as long as they stay the same.

use std::sync::Arc;

use parking_lot::RwLock;
use sheaf_resources::rbac::{Attributes, PolicyRule, RoleRef};

use super::{
    index::{Held, Index, NoRules, Rules, revisions},
    node::{self, Opinion},
    password_change,
};
use crate::identity::{Directory, MASTERS, User};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// `reason` says by what, for reviews.
    Allow { reason: Arc<str> },
    /// `reason` is often empty: no rule allows it, and there is no more to say.
    Deny { reason: String },
}

impl Decision {
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow { .. })
    }
}

pub struct Authorizer {
    pub(super) directory: Arc<dyn Directory>,
    index: RwLock<Arc<Index>>,
    nothing_to_say: Arc<str>,
}

impl Authorizer {
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        let index = RwLock::new(Arc::new(Index::read(directory.as_ref())));
        Authorizer { directory, index, nothing_to_say: "".into() }
    }

    pub fn authorize(&self, user: &User, asked: &Attributes<'_>) -> Decision {
        if user.must_change_password() && !password_change::is_open_before(asked) {
            return Decision::Deny { reason: password_change::REASON.to_owned() };
        }
        let allow = || Decision::Allow { reason: self.nothing_to_say.clone() };
        if user.in_group(MASTERS) {
            return allow();
        }
        let of_node = match user.node_name().map(|name| node::opinion(name, asked, self.directory.as_ref())) {
            Some(Opinion::Allow) => return allow(),
            Some(Opinion::None { reason }) => reason,
            None => String::new(),
        };
        match self.held_by(user).allows(asked) {
            Ok(reason) => Decision::Allow { reason },
            Err(of_roles) => {
                let said: Vec<String> =
                    [of_node, of_roles].into_iter().filter(|reason| !reason.is_empty()).collect();
                Decision::Deny { reason: said.join("\n") }
            }
        }
    }

    /// Every rule that roles give the user in a namespace (or, with an empty one, cluster-wide).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<PolicyRule> {
        self.held_by(user).rules_in(namespace)
    }

    /// The namespaces in which roles give the user anything beside what they give everywhere, in order.
    pub fn namespaces_of(&self, user: &User) -> Vec<String> {
        self.held_by(user).namespaces().map(str::to_owned).collect()
    }

    /// What could not be found out about the user's rules: bindings to roles that are not there.
    pub fn unknown_for(&self, user: &User, namespace: &str) -> Option<String> {
        self.held_by(user).unknown_in(namespace)
    }

    /// The rules that a binding's `roleRef` stands for.
    pub(super) fn referenced(&self, role: &RoleRef, namespace: &str) -> Result<Rules, NoRules> {
        self.index().referenced(role, namespace)
    }

    fn held_by(&self, user: &User) -> Arc<Held> {
        self.index().held_by(user)
    }

    fn index(&self) -> Arc<Index> {
        let current = self.index.read().clone();
        if current.revisions == revisions(self.directory.as_ref()) {
            return current;
        }
        let mut slot = self.index.write();
        // Somebody else may have read it while this request waited.
        if slot.revisions != revisions(self.directory.as_ref()) {
            *slot = Arc::new(Index::read(self.directory.as_ref()));
        }
        slot.clone()
    }
}

#[cfg(test)]
#[path = "authorizer_tests.rs"]
mod tests;
