//! What a node may touch: its own, and nothing else.

use serde_json::json;

use super::*;
use crate::identity::shelf::Shelf;

fn node(name: &str) -> User {
    User { name: user_name(name), groups: vec!["system:nodes".into()], ..User::default() }
}

fn asked<'a>(verb: &'a str, resource: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes { verb, resource, name, ..Attributes::default() }
}

fn lease<'a>(verb: &'a str, namespace: &'a str, name: &'a str) -> Attributes<'a> {
    Attributes { group: LEASES, namespace, ..asked(verb, "leases", name) }
}

fn allowed(asked: Attributes<'_>) -> bool {
    opinion("n1", &asked, &Shelf::default()) == Opinion::Allow
}

fn reason(asked: Attributes<'_>) -> String {
    match opinion("n1", &asked, &Shelf::default()) {
        Opinion::None { reason } => reason,
        Opinion::Allow => panic!("{asked:?} is allowed"),
    }
}

fn write(old: Option<&Value>, new: Option<&Value>, name: &str) -> Result<(), String> {
    let operation = match (old, new) {
        (None, _) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
        (Some(_), None) => Operation::Delete,
    };
    let written =
        Written { operation, group: "", resource: "nodes", subresource: "", namespace: "", name, old, new };
    admit(&node("n1"), &written).map_err(|refusal| refusal.to_string())
}

#[test]
fn a_node_sees_and_keeps_its_own_object_and_lease() {
    for verb in ["get", "list", "watch", "update", "patch"] {
        assert!(allowed(asked(verb, "nodes", "n1")), "{verb}");
    }
    for verb in ["update", "patch"] {
        assert!(allowed(Attributes { subresource: "status", ..asked(verb, "nodes", "n1") }), "{verb}");
    }
    for verb in ["get", "update", "patch", "delete"] {
        assert!(allowed(lease(verb, "kube-node-lease", "n1")), "{verb}");
    }
    assert!(allowed(asked("create", "nodes", "")));
    assert!(allowed(lease("create", "kube-node-lease", "")));
    assert!(allowed(Attributes { namespace: "default", ..asked("create", "events", "") }));
    let ask = Attributes { group: "authorization.k8s.io", ..asked("create", "selfsubjectaccessreviews", "") };
    assert!(allowed(ask));
}

#[test]
fn a_node_does_not_see_another_nodes_object_and_is_told_so() {
    assert_eq!(reason(asked("get", "nodes", "n2")), "node 'n1' cannot read 'n2', only its own Node object");
    assert_eq!(
        reason(asked("list", "nodes", "")),
        "node 'n1' cannot read all nodes, only its own Node object"
    );
    assert_eq!(
        reason(lease("get", "kube-node-lease", "n2")),
        "can only access node lease with the same name as the requesting node"
    );
    assert_eq!(
        reason(lease("get", "default", "n1")),
        "can only access leases in the \"kube-node-lease\" system namespace"
    );
    assert_eq!(
        reason(lease("list", "kube-node-lease", "")),
        "can only get, create, update, patch, or delete a node lease"
    );
}

#[test]
fn a_node_may_do_nothing_else() {
    for (verb, resource, name) in [
        ("delete", "nodes", "n1"),
        ("deletecollection", "nodes", ""),
        ("update", "nodes", "n2"),
        ("get", "secrets", "x"),
        ("list", "secrets", ""),
        ("create", "pods", ""),
        ("impersonate", "users", "admin"),
        ("get", "events", "e"),
    ] {
        assert!(!allowed(asked(verb, resource, name)), "{verb} {resource} {name}");
    }
    assert!(!allowed(Attributes { subresource: "status", ..asked("patch", "nodes", "n2") }));
    assert!(!allowed(Attributes { subresource: "proxy", ..asked("get", "nodes", "n1") }));
    assert!(!allowed(Attributes { verb: "get", path: Some("/metrics"), ..Attributes::default() }));
}

#[test]
fn no_role_lets_a_node_write_another_nodes_objects() {
    let other = json!({ "metadata": { "name": "n2" } });
    let refused = "nodes \"n2\" is forbidden: node \"n1\" is not allowed to modify node \"n2\"";
    assert_eq!(write(None, Some(&other), "n2").unwrap_err(), refused);
    assert_eq!(write(Some(&other), Some(&other), "n2").unwrap_err(), refused);
    assert_eq!(write(Some(&other), None, "n2").unwrap_err(), refused);

    let lease = |namespace, name| {
        let written = Written {
            operation: Operation::Update,
            group: LEASES,
            resource: "leases",
            subresource: "",
            namespace,
            name,
            old: None,
            new: None,
        };
        admit(&node("n1"), &written)
    };
    assert!(lease("kube-node-lease", "n1").is_ok());
    assert!(lease("kube-node-lease", "n2").is_err());
    assert!(lease("kube-system", "n1").is_err());
}

#[test]
fn a_node_registers_with_taints_but_not_with_labels_that_draw_work_to_it() {
    let plain = json!({
        "metadata": { "name": "n1", "labels": {
            "kubernetes.io/hostname": "n1", "kubernetes.io/arch": "amd64", "node.kubernetes.io/x": "y",
            "topology.kubernetes.io/zone": "a", "harvesterhci.io/anything": "z", "bare": "w",
        } },
        "spec": { "taints": [{ "key": "fresh", "effect": "NoSchedule" }] },
    });
    write(None, Some(&plain), "n1").unwrap();

    let steering = json!({ "metadata": { "name": "n1", "labels": {
        "node-role.kubernetes.io/control-plane": "", "a.node-restriction.kubernetes.io/b": "", "x.k8s.io/y": "",
    } } });
    assert_eq!(
        write(None, Some(&steering), "n1").unwrap_err(),
        "nodes \"n1\" is forbidden: node \"n1\" is not allowed to set the following labels: \
         a.node-restriction.kubernetes.io/b, node-role.kubernetes.io/control-plane, x.k8s.io/y"
    );
    let owned = json!({ "metadata": { "name": "n1", "ownerReferences": [{ "uid": "gone" }] } });
    assert!(write(None, Some(&owned), "n1").is_err());
}

#[test]
fn a_node_changes_neither_its_taints_nor_its_wishes_nor_its_restricted_labels() {
    let old = json!({
        "metadata": { "name": "n1", "labels": { "node-restriction.kubernetes.io/rack": "1" }, "finalizers": [] },
        "spec": { "taints": [{ "key": "t" }], "unschedulable": true },
    });
    let with = |pointer: &str, value: Value| {
        let mut new = old.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[field] = value;
        write(Some(&old), Some(&new), "n1")
    };
    let said = |result: Result<(), String>| {
        result.unwrap_err().strip_prefix("nodes \"n1\" is forbidden: ").unwrap().to_owned()
    };
    assert_eq!(said(with("/spec/taints", json!([]))), "node \"n1\" is not allowed to modify taints");
    assert_eq!(
        said(with("/spec/unschedulable", json!(false))),
        "node \"n1\" is not allowed to modify its spec"
    );
    assert_eq!(
        said(with("/metadata/labels", json!({}))),
        "is not allowed to modify labels: node-restriction.kubernetes.io/rack"
    );
    assert_eq!(
        said(with("/metadata/ownerReferences", json!([{ "uid": "gone" }]))),
        "node \"n1\" is not allowed to modify ownerReferences"
    );
    assert!(with("/metadata/finalizers", json!(["stay"])).is_err());

    with("/status", json!({ "conditions": [] })).unwrap();
    with("/metadata/annotations", json!({ "a": "b" })).unwrap();
    with("/metadata/finalizers", Value::Null).unwrap();
}

fn report(group: &str, old: Option<&Value>, new: Option<&Value>) -> Result<(), String> {
    let operation = match (old, new) {
        (None, _) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
        (Some(_), None) => Operation::Delete,
    };
    let (resource, namespace) = ("events", "default");
    let written = Written { operation, group, resource, subresource: "", namespace, name: "e", old, new };
    admit(&node("n1"), &written).map_err(|refusal| refusal.to_string())
}

fn event(host: &str, instance: &str) -> Value {
    json!({
        "metadata": { "name": "e" }, "source": { "component": "agent", "host": host },
        "reportingInstance": instance, "involvedObject": { "kind": "Pod", "name": "p" },
    })
}

#[test]
fn a_node_reports_events_as_itself_and_about_itself_if_about_a_node() {
    for group in ["", EVENTS] {
        for mine in [event("n1", ""), event("", "n1"), event("n1", "n1")] {
            report(group, None, Some(&mine)).unwrap();
        }
        for other in [event("n2", ""), event("", "n2"), event("n1", "n2"), event("n2", "n1"), event("", "")] {
            let why = report(group, None, Some(&other)).unwrap_err();
            assert!(why.contains("node \"n1\" can only report events as itself"), "{why}");
        }
        let mut about = event("n1", "n1");
        about["involvedObject"] = json!({ "kind": "Node", "name": "n1" });
        report(group, None, Some(&about)).unwrap();
        about["involvedObject"]["name"] = json!("n2");
        let why = report(group, None, Some(&about)).unwrap_err();
        assert!(why.ends_with("node \"n1\" is not allowed to report events about node \"n2\""), "{why}");
    }
}

#[test]
fn a_node_touches_only_events_that_it_reported_and_holds_none_of_them_back() {
    let (mine, other) = (event("n1", "n1"), event("n2", "n2"));
    let mut again = mine.clone();
    again["count"] = json!(2);
    report("", Some(&mine), Some(&again)).unwrap();
    report("", Some(&mine), None).unwrap();
    for new in [Some(&other), Some(&mine), None] {
        let why = report("", Some(&other), new).unwrap_err();
        assert!(why.ends_with("is not allowed to touch an event that it did not report"), "{why}");
    }
    // Nor is one handed to somebody else.
    assert!(report("", Some(&mine), Some(&other)).is_err());
    for (field, value) in [("finalizers", json!(["a/b"])), ("ownerReferences", json!([{ "uid": "u" }]))] {
        let mut held = mine.clone();
        held["metadata"][field] = value;
        let why = report("", Some(&mine), Some(&held)).unwrap_err();
        assert!(why.ends_with(&format!("is not allowed to modify {field} of an event")), "{why}");
        assert!(report("", None, Some(&held)).is_err());
        // Whoever did put it there: it is not the node's to take away, and does not stop its reports.
        assert!(report("", Some(&held), Some(&mine)).is_err());
        report("", Some(&held), Some(&held)).unwrap();
    }
}

#[test]
fn who_is_not_a_node_is_not_held_to_this() {
    let other = json!({ "metadata": { "name": "n2" } });
    let written = Written {
        operation: Operation::Update,
        group: "",
        resource: "nodes",
        subresource: "",
        namespace: "",
        name: "n2",
        old: Some(&other),
        new: Some(&other),
    };
    assert!(admit(&User { name: "system:node:n1".into(), ..User::default() }, &written).is_ok());
    assert_eq!(written_name("", Some(&other)), "n2");
    assert_eq!(written_name("n1", Some(&other)), "n1");
}
