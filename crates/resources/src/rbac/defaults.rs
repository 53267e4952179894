//! The roles and bindings that every cluster has from its first start.
//!
//! Names, labels and reach are those people know from Kubernetes, cut to the kinds that
//! are served here; kinds that come later bring their own `aggregate-to-*` roles and need
//! not be added. `admin`, `edit` and `view` hold no rules of their own: the aggregation
//! fills them in.

use serde_json::{Value, json};

use super::{GROUP, controllers, virtual_machines};

pub(super) const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
pub(super) const ALL: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const EVENTS: &str = "events.k8s.io";
pub(super) const STORAGE: &str = "storage.k8s.io";

pub fn cluster_roles() -> Vec<Value> {
    let mut roles = vec![
        role("cluster-admin", vec![on(&["*"], "*", &["*"]), paths(&["*"], &["*"])]),
        // To talk to the API at all: which groups, which versions, which schemas.
        role(
            "system:discovery",
            vec![paths(
                &["get"],
                &[
                    "/api",
                    "/api/*",
                    "/apis",
                    "/apis/*",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openapi/*",
                    "/readyz",
                    "/version",
                    "/version/",
                ],
            )],
        ),
        // To learn about oneself.
        role(
            "system:basic-user",
            vec![
                on(&["create"], AUTHORIZATION, &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                on(&["create"], AUTHENTICATION, &["selfsubjectreviews"]),
            ],
        ),
        // All that somebody without a name may see.
        role(
            "system:public-info-viewer",
            vec![paths(&["get"], &["/healthz", "/livez", "/readyz", "/version", "/version/"])],
        ),
        role(
            "system:monitoring",
            vec![paths(
                &["get"],
                &["/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/readyz", "/readyz/*"],
            )],
        ),
        role(
            "system:service-account-issuer-discovery",
            vec![paths(
                &["get"],
                &[
                    "/.well-known/openid-configuration",
                    "/.well-known/openid-configuration/",
                    "/openid/v1/jwks",
                    "/openid/v1/jwks/",
                ],
            )],
        ),
        // For a server that lets this one decide who its callers are and what they may.
        role(
            "system:auth-delegator",
            vec![
                on(&["create"], AUTHENTICATION, &["tokenreviews"]),
                on(&["create"], AUTHORIZATION, &["subjectaccessreviews"]),
            ],
        ),
        node(),
        aggregating("admin", "admin", &[]),
        aggregating("edit", "edit", &["admin"]),
        aggregating("view", "view", &["edit"]),
        aggregated("admin", aggregate_to_admin()),
        aggregated("edit", aggregate_to_edit()),
        aggregated("view", aggregate_to_view()),
    ];
    roles.extend(virtual_machines::cluster_roles());
    roles.extend(controllers::cluster_roles());
    roles
}

pub fn cluster_role_bindings() -> Vec<Value> {
    let mut bindings = vec![
        binding("cluster-admin", &["system:masters"]),
        binding("system:discovery", &["system:authenticated"]),
        binding("system:basic-user", &["system:authenticated"]),
        binding("system:public-info-viewer", &["system:authenticated", "system:unauthenticated"]),
        binding("system:monitoring", &["system:monitoring"]),
        binding("system:service-account-issuer-discovery", &["system:serviceaccounts"]),
        // Bound to nobody: a node's rights end at its own objects, which a role cannot say,
        // so they are granted elsewhere. The binding is here for whoever looks for it.
        binding("system:node", &[]),
    ];
    bindings.extend(virtual_machines::cluster_role_bindings());
    bindings.extend(controllers::cluster_role_bindings());
    bindings
}

/// More than a namespace's editor: who may grant rights in it.
fn aggregate_to_admin() -> Vec<Value> {
    vec![
        on(&["create"], AUTHORIZATION, &["localsubjectaccessreviews"]),
        on(ALL, GROUP, &["rolebindings", "roles"]),
    ]
}

/// Everything a user does in a namespace. Reading secrets is here and not with the
/// viewer: a service account's token in one would let the viewer become that account.
fn aggregate_to_edit() -> Vec<Value> {
    vec![
        on(READ, "", &["secrets"]),
        on(&["impersonate"], "", &["serviceaccounts"]),
        on(WRITE, "", &["configmaps", "events", "persistentvolumeclaims", "secrets", "serviceaccounts"]),
        on(WRITE, EVENTS, &["events"]),
        on(&["create"], "", &["serviceaccounts/token"]),
        on(ALL, COORDINATION, &["leases"]),
    ]
}

fn aggregate_to_view() -> Vec<Value> {
    vec![
        on(
            READ,
            "",
            &[
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "persistentvolumeclaims/status",
                "pods",
                "pods/log",
                "pods/status",
                "serviceaccounts",
            ],
        ),
        on(READ, EVENTS, &["events"]),
        // Within a namespace this is the namespace itself: how one learns where one may go.
        on(READ, "", &["namespaces", "namespaces/status"]),
    ]
}

fn node() -> Value {
    role(
        "system:node",
        vec![
            on(&["create"], AUTHENTICATION, &["tokenreviews"]),
            on(&["create"], AUTHORIZATION, &["localsubjectaccessreviews", "subjectaccessreviews"]),
            on(&["create", "get", "list", "patch", "update", "watch"], "", &["nodes"]),
            on(&["patch", "update"], "", &["nodes/status"]),
            on(&["create", "patch", "update"], "", &["events"]),
            on(&["create", "patch", "update"], EVENTS, &["events"]),
            on(READ, "", &["configmaps", "pods", "secrets"]),
            on(READ, "", &["persistentvolumeclaims"]),
            on(&["get", "list", "patch", "update", "watch"], "", &["persistentvolumes"]),
            on(&["get", "list", "patch", "update", "watch"], "kubevirt.io", &["virtualmachineinstances"]),
            on(&["get", "list", "patch", "update", "watch"], "harvesterhci.io", &["virtualmachineimages"]),
            on(READ, "harvesterhci.io", &["settings"]),
            on(
                &["get", "list", "patch", "update", "watch"],
                "loadbalancer.harvesterhci.io",
                &["loadbalancers"],
            ),
            on(READ, "k8s.cni.cncf.io", &["network-attachment-definitions"]),
            on(
                READ,
                "network.harvesterhci.io",
                &["clusternetworks", "ippools", "virtualmachinenetworkconfigs", "vlanconfigs"],
            ),
            on(&["get", "list", "patch", "update", "watch"], "network.harvesterhci.io", &["linkmonitors"]),
            on(
                &["create", "delete", "get", "list", "patch", "update", "watch"],
                "network.harvesterhci.io",
                &["vlanstatuses"],
            ),
            on(&["create", "delete", "get", "patch", "update"], COORDINATION, &["leases"]),
            on(READ, STORAGE, &["storageclasses"]),
        ],
    )
}

pub(super) fn on(verbs: &[&str], group: &str, resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [group], "resources": resources})
}

fn paths(verbs: &[&str], urls: &[&str]) -> Value {
    json!({"verbs": verbs, "nonResourceURLs": urls})
}

pub(super) fn role(name: &str, rules: Vec<Value>) -> Value {
    let mut role = object("ClusterRole", name);
    role["rules"] = Value::Array(rules);
    role
}

/// A role that gathers the rules of all that are labelled for it, and is itself labelled
/// for those in `into`.
fn aggregating(name: &str, gathers: &str, into: &[&str]) -> Value {
    let mut role = object("ClusterRole", name);
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {aggregation_label(gathers): "true"}}]});
    for target in into {
        role["metadata"]["labels"][aggregation_label(target)] = json!("true");
    }
    role
}

fn aggregated(into: &str, rules: Vec<Value>) -> Value {
    let mut part = role(&format!("system:aggregate-to-{into}"), rules);
    part["metadata"]["labels"][aggregation_label(into)] = json!("true");
    part
}

pub(super) fn aggregation_label(target: &str) -> String {
    format!("{GROUP}/aggregate-to-{target}")
}

/// Binds the role of the same name to groups.
pub(super) fn binding(name: &str, groups: &[&str]) -> Value {
    let mut binding = object("ClusterRoleBinding", name);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
    if !groups.is_empty() {
        let subject = |group: &&str| json!({"kind": "Group", "apiGroup": GROUP, "name": group});
        binding["subjects"] = groups.iter().map(subject).collect();
    }
    binding
}

/// Binds the role of the same name to the user of the same name.
pub(super) fn binding_of_user(name: &str) -> Value {
    let mut binding = binding(name, &[]);
    binding["subjects"] = json!([{"kind": "User", "apiGroup": GROUP, "name": name}]);
    binding
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kinds::cluster_role,
        rbac::{Attributes, Policy, RbacKind, Who},
    };

    fn policy() -> Policy {
        let mut policy = Policy::default();
        for role in cluster_roles() {
            policy.put(RbacKind::ClusterRole, &role).unwrap();
        }
        for binding in cluster_role_bindings() {
            policy.put(RbacKind::ClusterRoleBinding, &binding).unwrap();
        }
        policy
    }

    fn gets(groups: &[&str], path: &str) -> bool {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let asked = Attributes { verb: "get", path: Some(path), ..Attributes::default() };
        policy().allows(&Who { name: "x", groups: &groups }, &asked).is_some()
    }

    #[test]
    fn the_defaults_pass_their_own_validation() {
        for role in cluster_roles() {
            assert_eq!(cluster_role::problems(&role), vec![], "{role}");
        }
        for binding in cluster_role_bindings() {
            assert_eq!(super::super::changed_binding_problems(&binding, None, false), vec![], "{binding}");
        }
    }

    #[test]
    fn every_default_is_marked_and_kept_up_to_date() {
        for object in cluster_roles().into_iter().chain(cluster_role_bindings()) {
            assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
            assert_eq!(
                object["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"],
                "true"
            );
        }
    }

    #[test]
    fn every_binding_names_a_default_role() {
        let names: Vec<Value> =
            cluster_roles().into_iter().map(|role| role["metadata"]["name"].clone()).collect();
        for binding in cluster_role_bindings() {
            assert!(names.contains(&binding["roleRef"]["name"]), "{binding}");
        }
    }

    #[test]
    fn the_nameless_see_version_and_health_and_nothing_else() {
        let nameless = ["system:unauthenticated"];
        for path in ["/version", "/healthz", "/livez", "/readyz"] {
            assert!(gets(&nameless, path), "{path}");
        }
        for path in ["/api", "/apis/apps/v1", "/openapi/v2", "/metrics", "/"] {
            assert!(!gets(&nameless, path), "{path}");
        }
        let asked = Attributes { verb: "list", resource: "namespaces", ..Attributes::default() };
        let groups = ["system:unauthenticated".to_owned()];
        assert!(policy().allows(&Who { name: "system:anonymous", groups: &groups }, &asked).is_none());
    }

    #[test]
    fn whoever_has_signed_in_can_discover_the_api_and_ask_about_themselves() {
        assert!(gets(&["system:authenticated"], "/apis/apps/v1"));
        assert!(!gets(&["system:authenticated"], "/metrics"));
        let groups = ["system:authenticated".to_owned()];
        let asked = Attributes {
            verb: "create",
            group: AUTHORIZATION,
            resource: "selfsubjectaccessreviews",
            ..Attributes::default()
        };
        assert!(policy().allows(&Who { name: "jane", groups: &groups }, &asked).is_some());
    }

    #[test]
    fn a_node_has_nothing_by_this_table() {
        let groups = ["system:nodes".to_owned()];
        let asked =
            Attributes { verb: "get", resource: "secrets", namespace: "default", ..Attributes::default() };
        assert!(policy().allows(&Who { name: "system:node:a", groups: &groups }, &asked).is_none());
    }

    #[test]
    fn viewers_do_not_read_secrets() {
        assert!(!aggregate_to_view().iter().any(|rule| rule.to_string().contains("secrets")));
    }
}
