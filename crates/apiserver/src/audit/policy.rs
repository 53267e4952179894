//! How much is said, and which requests are not worth a line.
//!
//! A node with fifty idle machines makes thousands of requests an hour to itself: leases renewed, statuses written,
//! objects read. They say nothing about anybody and would push out what does, so they are left out at every level. Who is
//! turned away (401, 403) always has a line.

use crate::{
    identity::User,
    machines,
    request::{ResourceRequest, Target, Verb},
};

/// How much a line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Who, what, when, from where, and what came of it.
    #[default]
    Metadata,
    /// And what they sent.
    Request,
    /// And what they got.
    RequestResponse,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

/// What documentation of this server, its health and its numbers are found under.
const NOT_ABOUT_ANYBODY: &[&str] = &[
    "",
    "api",
    "apis",
    "dashboard",
    "healthz",
    "livez",
    "metrics",
    "openapi",
    "openid",
    "readyz",
    "version",
    ".well-known",
];

/// Whether a request that was answered, and not for want of a right refused, is left out.
pub fn is_left_out(target: &Target, user: Option<&User>) -> bool {
    match (target, user) {
        (Target::Path(path), _) => {
            let first = path.split('/').nth(1).unwrap_or_default();
            NOT_ABOUT_ANYBODY.contains(&first)
        }
        (Target::Resource(request), Some(user)) => is_routine(request, user),
        (Target::Resource(_), None) => false,
    }
}

/// Whether this is what the cluster's own hands do all day.
fn is_routine(request: &ResourceRequest, user: &User) -> bool {
    // Which version this is, and whether it is well.
    if request.group == machines::GROUP && request.namespace.is_empty() && request.verb.only_reads() {
        return true;
    }
    let renews = matches!(request.verb, Verb::Get | Verb::Update | Verb::Patch);
    let is = |group: &str, resource: &str| request.group == group && request.resource == resource;
    // The controllers of others elect leaders every two seconds.
    let is_lease = is("coordination.k8s.io", "leases") && renews;
    let node = user.node_name().is_some();
    if !node && !user.is_of_the_cluster() {
        return is_lease && user.name.starts_with("system:serviceaccount:");
    }
    // What a node reads of secrets is worth knowing, should it be somebody else's one day.
    let reads = request.verb.only_reads() && !(node && is("", "secrets"));
    // A node writes nothing of an instance but its status.
    let writes_status =
        request.subresource == "status" || (node && is("kubevirt.io", "virtualmachineinstances") && renews);
    let is_event =
        (is("", "events") || is("events.k8s.io", "events")) && request.verb != Verb::DeleteCollection;
    is_lease || reads || writes_status || is_event
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::{
        identity::{MASTERS, NODES},
        request::{Query, target},
    };

    fn user(name: &str, group: &str) -> User {
        User { name: name.into(), groups: vec![group.into()], ..User::default() }
    }

    fn left_out(user: &User, method: Method, uri: &str) -> bool {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        is_left_out(&target(&method, path, &Query::parse(Some(query))), Some(user))
    }

    #[test]
    fn an_idle_node_writes_nothing() {
        let (node, own) = (user("system:node:n1", NODES), user("system:sheaf:controllers", MASTERS));
        for user in [&node, &own] {
            for (method, uri) in [
                (Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
                (Method::PATCH, "/api/v1/nodes/n1/status"),
                (Method::GET, "/apis/kubevirt.io/v1/virtualmachineinstances?watch=1"),
                (Method::GET, "/api/v1/nodes/n1"),
                (Method::POST, "/api/v1/namespaces/default/events"),
            ] {
                assert!(left_out(user, method, uri), "{} {uri}", user.name);
            }
        }
        let instance = "/apis/kubevirt.io/v1/namespaces/a/virtualmachineinstances/b";
        assert!(left_out(&node, Method::PUT, instance));
        assert!(!left_out(&own, Method::PUT, instance));
    }

    #[test]
    fn what_the_cluster_changes_has_a_line_and_what_a_node_reads_of_secrets() {
        let (node, own) = (user("system:node:n1", NODES), user("system:sheaf:controllers", MASTERS));
        assert!(!left_out(&own, Method::POST, "/apis/kubevirt.io/v1/namespaces/a/virtualmachineinstances"));
        assert!(!left_out(&own, Method::DELETE, "/api/v1/namespaces/a"));
        assert!(!left_out(&node, Method::GET, "/api/v1/namespaces/a/secrets/s"));
    }

    #[test]
    fn people_have_a_line_for_all_they_read_and_write() {
        let admin = user("admin", MASTERS);
        for uri in [
            "/api/v1/namespaces/a/secrets/s",
            "/api/v1/nodes?watch=1",
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
        ] {
            assert!(!left_out(&admin, Method::GET, uri), "{uri}");
        }
        assert!(!left_out(&admin, Method::PATCH, "/api/v1/nodes/n1/status"));
        assert!(!left_out(&admin, Method::POST, "/sheaf/encryption-key/rotate"));
        assert!(!left_out(&admin, Method::POST, "/v3/users?action=changepassword"));
    }

    #[test]
    fn discovery_and_health_have_none() {
        let admin = user("admin", MASTERS);
        for uri in ["/", "/healthz", "/readyz/cache", "/api/v1", "/apis", "/openapi/v3/api/v1", "/metrics"] {
            assert!(left_out(&admin, Method::GET, uri), "{uri}");
        }
        let operator = user("system:serviceaccount:a:b", "x");
        assert!(left_out(&operator, Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"));
        assert!(!left_out(&operator, Method::DELETE, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"));
    }
}
