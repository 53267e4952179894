//! What somebody may do, asked of the same authorizer as for any other request.

use std::{collections::BTreeSet, sync::Arc};

use sheaf_resources::{
    kind::{Kind, Verbs},
    rbac::{Attributes, namespace_to_authorize},
};

use crate::{
    ApiServer,
    identity::User,
    request::{ResourceRequest, Verb},
};

/// One thing that somebody may be allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    pub verb: Verb,
    pub group: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
}

impl Right {
    pub const fn to(verb: Verb, group: &'static str, resource: &'static str) -> Self {
        Right { verb, group, resource, subresource: "" }
    }

    pub const fn of_subresource(self, subresource: &'static str) -> Self {
        Right { subresource, ..self }
    }

    /// The request that it is the right to.
    pub fn request(&self, namespace: &str, name: &str) -> ResourceRequest {
        ResourceRequest {
            verb: self.verb,
            group: self.group.into(),
            version: String::new(),
            resource: self.resource.into(),
            subresource: self.subresource.into(),
            namespace: namespace.into(),
            // What is made has no name yet, and what is listed is no object.
            name: match self.verb {
                Verb::Create | Verb::List if self.subresource.is_empty() => String::new(),
                _ => name.into(),
            },
        }
    }
}

/// Where a verb is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Everywhere,
    /// In these namespaces, in order.
    Namespaces(Vec<String>),
    /// Of these objects of a kind without namespaces, in order.
    Names(Vec<String>),
}

impl Reach {
    pub fn is_nowhere(&self) -> bool {
        match self {
            Reach::Everywhere => false,
            Reach::Namespaces(places) | Reach::Names(places) => places.is_empty(),
        }
    }
}

/// What one user may do.
#[derive(Clone)]
pub struct Rights {
    server: ApiServer,
    pub user: Arc<User>,
}

impl Rights {
    pub fn new(server: &ApiServer, user: &Arc<User>) -> Self {
        Rights { server: server.clone(), user: user.clone() }
    }

    /// Whether what its user came in with still holds: for what goes on after the request that it came with.
    pub fn are_still_somebodys(&self) -> bool {
        self.server.authenticator.is_still(&self.user)
    }

    pub fn may(&self, request: &ResourceRequest) -> bool {
        let attributes = Attributes {
            verb: request.verb.as_str(),
            group: &request.group,
            resource: &request.resource,
            subresource: &request.subresource,
            namespace: namespace_to_authorize(
                &request.group,
                &request.resource,
                &request.namespace,
                &request.name,
            ),
            name: &request.name,
            ..Attributes::default()
        };
        self.server.authorizer.authorize(&self.user, &attributes).is_allowed()
    }

    /// Whether somebody may do something to an object, and the kind takes it from them at all.
    pub fn may_to(&self, verb: Verb, kind: &Kind, namespace: &str, name: &str) -> bool {
        let takes = match kind.verbs {
            Verbs::All | Verbs::NoCollection => true,
            Verbs::ReadOnly => verb.only_reads() || self.user.is_of_the_cluster(),
            Verbs::CreateOnly => verb == Verb::Create,
        };
        takes && self.may(&request(verb, kind, namespace, name))
    }

    /// Where somebody may do something with objects of a kind.
    pub fn reach(&self, verb: Verb, kind: &Kind) -> Reach {
        if self.may_to(verb, kind, "", "") {
            return Reach::Everywhere;
        }
        if kind.namespaced() {
            let allowed = |namespace: &String| self.may_to(verb, kind, namespace, "");
            return Reach::Namespaces(
                self.server.authorizer.namespaces_of(&self.user).into_iter().filter(allowed).collect(),
            );
        }
        let names = match (kind.group.as_str(), kind.plural.as_str()) {
            ("", "namespaces") => self.server.authorizer.namespaces_of(&self.user),
            _ => Vec::new(),
        };
        let names: BTreeSet<String> = names.into_iter().chain(self.names_in_rules(kind)).collect();
        // What may be read one by one may be shown together.
        let each = if verb == Verb::List { Verb::Get } else { verb };
        Reach::Names(names.into_iter().filter(|name| self.may_to(each, kind, "", name)).collect())
    }

    /// The names that rules about a kind without namespaces say.
    fn names_in_rules(&self, kind: &Kind) -> BTreeSet<String> {
        let rules = self.server.authorizer.rules_for(&self.user, "");
        let is_about = |all: &[String], one: &str| all.iter().any(|item| item == "*" || item == one);
        let about = rules.iter().filter(|rule| {
            is_about(&rule.api_groups, &kind.group) && is_about(&rule.resources, &kind.plural)
        });
        about.flat_map(|rule| rule.resource_names.iter().cloned()).collect()
    }
}

/// A request for objects of a kind.
pub fn request(verb: Verb, kind: &Kind, namespace: &str, name: &str) -> ResourceRequest {
    ResourceRequest {
        verb,
        group: kind.group.clone(),
        version: kind.version.clone(),
        resource: kind.plural.clone(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}
