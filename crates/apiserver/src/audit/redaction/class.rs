//! How secret kinds are.

use crate::request::ResourceRequest;

/// From harmless to secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Open,
    Machine,
    /// Nothing but these fields (dots go one level down), and the harmless part of the metadata.
    Closed(&'static [&'static str]),
}

const SECRET: &[&str] = &["type", "immutable"];
const USER: &[&str] = &["username", "enabled", "mustChangePassword", "principalIds", "groups"];
const TOKEN: &[&str] = &["authProvider", "enabled", "expiresAt", "isDerived", "ttl", "userId"];
const TOKEN_REVIEW: &[&str] = &["spec.audiences", "status.authenticated", "status.audiences", "status.user"];
const TOKEN_REQUEST: &[&str] =
    &["spec.audiences", "spec.boundObjectRef", "spec.expirationSeconds", "status.expirationTimestamp"];
/// A setting may hold credentials of a backup target, a certificate's key, a token in a URL.
const SETTING: &[&str] = &[];
const NOTHING: &[&str] = &[];

impl Class {
    /// By what a request is for.
    pub fn of(request: &ResourceRequest) -> Self {
        match (request.group.as_str(), request.resource.as_str(), request.subresource.as_str()) {
            ("", "secrets", _) => Class::Closed(SECRET),
            ("", "serviceaccounts", "token") => Class::Closed(TOKEN_REQUEST),
            ("authentication.k8s.io", "tokenreviews", _) => Class::Closed(TOKEN_REVIEW),
            ("management.cattle.io", "users", _) => Class::Closed(USER),
            ("management.cattle.io", "tokens", _) => Class::Closed(TOKEN),
            ("harvesterhci.io", "settings", _) => Class::Closed(SETTING),
            (group, _, _) if is_in(group, "cattle.io") => Class::Closed(NOTHING),
            (group, _, _) if is_in(group, "kubevirt.io") || is_in(group, "harvesterhci.io") => Class::Machine,
            _ => Class::Open,
        }
    }

    /// By what a body says it is: it may have been sent to where it does not belong.
    pub fn of_kind(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        match kind.strip_suffix("List").unwrap_or(kind) {
            "Secret" => Class::Closed(SECRET),
            "TokenRequest" => Class::Closed(TOKEN_REQUEST),
            "TokenReview" => Class::Closed(TOKEN_REVIEW),
            "User" => Class::Closed(USER),
            "Token" => Class::Closed(TOKEN),
            "Setting" => Class::Closed(SETTING),
            // A kubeconfig.
            "Config" => Class::Closed(NOTHING),
            _ if is_in(group, "cattle.io") => Class::Closed(NOTHING),
            kind if kind.starts_with("VirtualMachine") => Class::Machine,
            _ if is_in(group, "kubevirt.io") || is_in(group, "harvesterhci.io") => Class::Machine,
            _ => Class::Open,
        }
    }

    /// The more secret of the two. Of two closed ones that differ, neither's fields are harmless.
    pub fn and(self, other: Class) -> Class {
        match (self, other) {
            (Class::Closed(one), Class::Closed(two)) if one != two => Class::Closed(NOTHING),
            (one, two) => one.max(two),
        }
    }
}

fn is_in(group: &str, domain: &str) -> bool {
    group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
