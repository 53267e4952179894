//! Server-side apply.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::{
    house::{Answer, House, MAPS, version},
    owning::{fields, owners},
};

const APPLY: &str = "application/apply-patch+yaml";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";

async fn apply(house: &House, uri: &str, query: &str, configuration: Value) -> Answer {
    let uri = format!("{uri}?{query}");
    house.send(Method::PATCH, &uri, &[("content-type", APPLY)], configuration.to_string()).await
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
}

fn things() -> Value {
    let schema = |color: &str| {
        json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                color: {"type": "string"}, "replicas": {"type": "integer"},
                "size": {"type": "integer", "default": 3},
                "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                    "items": {"type": "object", "required": ["port"],
                        "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "args": {"type": "array", "items": {"type": "string"}},
                "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            }},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": schema("color"),
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}},
                {"name": "v1beta1", "served": true, "storage": false, "schema": schema("color"), "subresources": {"status": {}}},
            ],
        },
    })
}

fn thing(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn applying_makes_what_is_not_there_and_merges_into_what_is() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let made = apply(&house, &uri, "fieldManager=me", map(json!({"x": "1", "y": "1"}))).await;
    assert_eq!(made.code, 201);
    let made = made.ok();
    assert_eq!(
        made["metadata"]["managedFields"],
        json!([{"manager": "me", "operation": "Apply", "apiVersion": "v1", "time": "2030-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}, "f:y": {}}}}])
    );
    house.patch(&uri, "merge-patch", json!({"data": {"z": "of another"}})).await.ok();
    let left_out = apply(&house, &uri, "fieldManager=me", map(json!({"x": "2"}))).await;
    assert_eq!(left_out.code, 200);
    assert_eq!(left_out.ok()["data"], json!({"x": "2", "z": "of another"}));
}

#[tokio::test(start_paused = true)]
async fn the_same_configuration_again_takes_no_version() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let made = apply(&house, &uri, "fieldManager=me", map(json!({"x": "1"}))).await.ok();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(apply(&house, &uri, "fieldManager=me", map(json!({"x": "1"}))).await.ok(), made);
    // Somebody else who wants the same owns it, too.
    let shared = apply(&house, &uri, "fieldManager=you", map(json!({"x": "1"}))).await.ok();
    assert_eq!(owners(&shared), ["you Apply", "me Apply"]);
    assert!(version(&shared) > version(&made));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_names_who_and_what_and_force_settles_it() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    apply(&house, &uri, "fieldManager=me", map(json!({"x": "1", "y": "1"}))).await.ok();
    let one = apply(&house, &uri, "fieldManager=you", map(json!({"x": "2"}))).await;
    assert_eq!(one.refusal(), (409, "Conflict"));
    assert_eq!(one.message(), r#"Apply failed with 1 conflict: conflict with "me": .data.x"#);
    assert_eq!(
        one.body["details"],
        json!({"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".data.x"}]})
    );
    let headers = [("content-type", "application/merge-patch+json"), ("user-agent", "editor/1")];
    house.send(Method::PATCH, &uri, &headers, r#"{"data":{"x":"3"}}"#).await.ok();
    let two = apply(&house, &uri, "fieldManager=you", map(json!({"x": "2", "y": "2"}))).await;
    assert_eq!(
        two.message(),
        "Apply failed with 2 conflicts: conflicts with \"editor\" using v1:\n- .data.x\nconflicts with \"me\":\n- .data.y"
    );
    let forced =
        apply(&house, &uri, "fieldManager=you&force=true", map(json!({"x": "2", "y": "2"}))).await.ok();
    assert_eq!(forced["data"], json!({"x": "2", "y": "2"}));
    assert_eq!(owners(&forced), ["you Apply"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_configuration_is_refused_in_the_originals_words() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let nobody = apply(&house, &uri, "", map(json!({}))).await;
    assert_eq!(nobody.refusal(), (422, "Invalid"));
    assert_eq!(
        nobody.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let by = "fieldManager=me";
    let mut other = map(json!({}));
    other["kind"] = "Secret".into();
    let refused = apply(&house, &uri, by, other).await;
    assert_eq!(
        (refused.refusal(), refused.message()),
        ((400, "BadRequest"), "invalid object type: /v1, Kind=Secret")
    );
    let refused = apply(&house, &uri, by, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(refused.message(), "invalid object type: /, Kind=");
    let mut owned = map(json!({}));
    owned["metadata"]["managedFields"] = json!([]);
    let refused = apply(&house, &uri, by, owned).await;
    assert_eq!((refused.refusal().0, refused.message()), (400, "metadata.managedFields must be nil"));
    let mut typo = map(json!({"x": "1"}));
    typo["dta"] = json!({});
    let refused = apply(&house, &uri, by, typo).await;
    assert_eq!(refused.code, 500);
    assert_eq!(refused.body.get("reason"), None);
    assert_eq!(
        refused.message(),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .dta: field not declared in schema"
    );
    let refused = apply(&house, &uri, by, map(json!({"x": 1}))).await;
    assert_eq!(
        refused.message(),
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .data.x: expected string, got &value.valueUnstructured{Value:1}"
    );
    let refused = apply(&house, &format!("{MAPS}/b"), by, map(json!({}))).await;
    assert_eq!(refused.message(), "the name of the object (a) does not match the name on the URL (b)");
    let mut elsewhere = map(json!({}));
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    assert_eq!(apply(&house, &uri, by, elsewhere).await.refusal(), (400, "BadRequest"));
    let cbor = [("content-type", "application/apply-patch+cbor")];
    let refused = house.send(Method::PATCH, &format!("{uri}?{by}"), &cbor, "x").await;
    assert_eq!(refused.refusal(), (415, "UnsupportedMediaType"));
    assert_eq!(house.get(&uri).await.refusal(), (404, "NotFound"), "nothing of all that made anything");
}

#[tokio::test(start_paused = true)]
async fn yaml_is_read_and_repeated_fields_are_judged_as_asked() {
    let house = House::new().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '1', x: '2'}\n";
    let send = async |query: &str| {
        let uri = format!("{MAPS}/a?fieldManager=me&{query}");
        house.send(Method::PATCH, &uri, &[("content-type", APPLY)], yaml).await
    };
    let strict = send("fieldValidation=Strict").await;
    assert_eq!(strict.refusal(), (400, "BadRequest"));
    assert!(strict.message().starts_with("error strict decoding YAML: "), "{}", strict.message());
    let warned = send("fieldValidation=Warn").await;
    assert_eq!(warned.warnings, [r#"299 - "duplicate field \"data.x\"""#]);
    assert_eq!(warned.ok()["data"]["x"], "2");
    assert_eq!(send("fieldValidation=Ignore").await.warnings, Vec::<String>::new());
    let broken = house
        .send(Method::PATCH, &format!("{MAPS}/a?fieldManager=me"), &[("content-type", APPLY)], "{a: [")
        .await;
    assert!(broken.message().starts_with("error decoding YAML: "), "{}", broken.message());
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_what_would_come_of_it() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let before = house.store.revision().await.unwrap();
    let imagined = apply(&house, &uri, "fieldManager=me&dryRun=All", map(json!({"x": "1"}))).await;
    assert_eq!(imagined.code, 201);
    assert_eq!(owners(&imagined.body), ["me Apply"]);
    assert_eq!(house.store.revision().await.unwrap(), before);
    let made = house.config_map("a", json!({"x": "1"})).await;
    let imagined = apply(&house, &uri, "fieldManager=me&dryRun=All", map(json!({"y": "1"}))).await.ok();
    assert_eq!(imagined["data"], json!({"x": "1", "y": "1"}));
    let refused = apply(&house, &uri, "fieldManager=me&dryRun=All", map(json!({"x": "2"}))).await;
    assert_eq!(refused.refusal(), (409, "Conflict"));
    assert_eq!(house.get(&uri).await.ok(), made);
}

#[tokio::test(start_paused = true)]
async fn what_was_there_before_owners_were_kept_belongs_to_somebody() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let mut object = house.config_map("a", json!({"x": "1"})).await;
    object["metadata"]["managedFields"] = json!([]);
    house.put(&uri, object).await.ok();
    let refused = apply(&house, &uri, "fieldManager=me", map(json!({"x": "2"}))).await;
    assert_eq!(
        refused.message(),
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.x"#
    );
    let applied = apply(&house, &uri, "fieldManager=me", map(json!({"y": "1"}))).await.ok();
    assert_eq!(owners(&applied), ["me Apply", "before-first-apply Update"]);
}

#[tokio::test(start_paused = true)]
async fn lists_merge_as_the_definition_says() {
    let house = House::new().await;
    house.establish(things()).await;
    let uri = format!("{THINGS}/t");
    let one = json!({"color": "red", "ports": [{"port": 1, "name": "x"}, {"port": 2}], "tags": ["a"], "args": ["1"], "selector": {"a": "b"}});
    let made = apply(&house, &uri, "fieldManager=one", thing("v1", one)).await;
    assert_eq!(made.code, 201);
    assert_eq!(made.body["spec"]["size"], 3);
    let two = json!({"ports": [{"port": 3}, {"port": 1}], "tags": ["b"]});
    let both = apply(&house, &uri, "fieldManager=two", thing("v1", two)).await.ok();
    assert_eq!(both["spec"]["ports"], json!([{"port": 3}, {"port": 1, "name": "x"}, {"port": 2}]));
    assert_eq!(both["spec"]["tags"], json!(["a", "b"]));
    let refused =
        apply(&house, &uri, "fieldManager=two", thing("v1", json!({"args": ["2"], "selector": {"c": "d"}})))
            .await;
    assert_eq!(
        refused.message(),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.args\n- .spec.selector"
    );
    // Each takes back only its own; a default is nobody's and does not fight.
    let left =
        apply(&house, &uri, "fieldManager=one", thing("v1", json!({"ports": [{"port": 2}]}))).await.ok();
    assert_eq!(
        left["spec"],
        json!({"ports": [{"port": 3}, {"port": 1}, {"port": 2}], "tags": ["b"], "size": 3})
    );
    let sized = apply(&house, &uri, "fieldManager=two", thing("v1", json!({"size": 5}))).await.ok();
    assert_eq!(sized["spec"], json!({"ports": [{"port": 2}], "size": 5}));
    let unsized_again = apply(&house, &uri, "fieldManager=two", thing("v1", json!({}))).await.ok();
    assert_eq!(unsized_again["spec"]["size"], 3, "the default comes back");
    let twice =
        apply(&house, &uri, "fieldManager=one", thing("v1", json!({"ports": [{"port": 1}, {"port": 1}]})))
            .await;
    assert_eq!(
        twice.message(),
        "failed to create typed patch object (/t; example.com/v1, Kind=Thing): .spec.ports: duplicate entries for key [port=1]"
    );
}

#[tokio::test(start_paused = true)]
async fn a_null_asks_for_nothing_to_be_there() {
    let house = House::new().await;
    house.establish(things()).await;
    let uri = format!("{THINGS}/t");
    house.post(THINGS, thing("v1", json!({"color": "red", "size": 9}))).await.ok();
    let nulls =
        apply(&house, &uri, "fieldManager=me&force=true", thing("v1", json!({"color": null, "size": null})))
            .await
            .ok();
    assert_eq!(nulls["spec"], json!({"size": 3}), "a default takes the place of a null");
    let made = house.config_map("a", json!({"x": "1"})).await;
    let mut nulls = map(json!({"y": "1"}));
    nulls["immutable"] = Value::Null;
    let applied = apply(&house, &format!("{MAPS}/a"), "fieldManager=me", nulls).await.ok();
    assert_eq!(applied.get("immutable"), None);
    assert_eq!(applied["data"]["x"], made["data"]["x"]);
}

#[tokio::test(start_paused = true)]
async fn versions_of_a_kind_share_what_is_applied() {
    let house = House::new().await;
    house.establish(things()).await;
    let beta = "/apis/example.com/v1beta1/namespaces/default/things/t";
    let made =
        apply(&house, beta, "fieldManager=me", thing("v1beta1", json!({"color": "red", "tags": ["a"]})))
            .await;
    assert_eq!(made.body["apiVersion"], "example.com/v1beta1");
    assert_eq!(made.body["metadata"]["managedFields"][0]["apiVersion"], "example.com/v1beta1");
    let uri = format!("{THINGS}/t");
    let refused = apply(&house, &uri, "fieldManager=you", thing("v1", json!({"color": "blue"}))).await;
    assert_eq!(refused.message(), r#"Apply failed with 1 conflict: conflict with "me": .spec.color"#);
    // The same manager in another version takes its own place.
    let applied = apply(&house, &uri, "fieldManager=me", thing("v1", json!({"color": "green"}))).await.ok();
    assert_eq!(owners(&applied), ["me Apply"]);
    assert_eq!(applied["metadata"]["managedFields"][0]["apiVersion"], "example.com/v1");
    assert_eq!(applied["spec"].get("tags"), None);
    let wrong = apply(&house, &uri, "fieldManager=me", thing("v1beta1", json!({}))).await;
    assert_eq!(wrong.message(), "invalid object type: example.com/v1beta1, Kind=Thing");
}

#[tokio::test(start_paused = true)]
async fn status_and_scale_are_applied_on_their_own() {
    let house = House::new().await;
    house.establish(things()).await;
    let uri = format!("{THINGS}/t");
    let status = |status: Value| json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "status": status, "spec": {"color": "odd"}});
    let gone = apply(&house, &format!("{uri}/status"), "fieldManager=agent", status(json!({}))).await;
    assert_eq!(gone.refusal(), (404, "NotFound"), "a status needs an object to be of");
    apply(&house, &uri, "fieldManager=me", thing("v1", json!({"color": "red", "replicas": 1}))).await.ok();
    let said = apply(&house, &format!("{uri}/status"), "fieldManager=agent", status(json!({"ready": true})))
        .await
        .ok();
    assert_eq!((&said["spec"]["color"], &said["status"]), (&json!("red"), &json!({"ready": true})));
    assert_eq!(owners(&said), ["agent Apply status", "me Apply"]);
    assert_eq!(fields(&said, "agent Apply status"), json!({"f:status": {"f:ready": {}}}));

    let scale = |replicas: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t", "namespace": "default"}, "spec": {"replicas": replicas}});
    let refused = apply(&house, &format!("{uri}/scale"), "fieldManager=scaler", scale(3)).await;
    assert_eq!(refused.message(), r#"Apply failed with 1 conflict: conflict with "me": .spec.replicas"#);
    let scaled =
        apply(&house, &format!("{uri}/scale"), "fieldManager=scaler&force=true", scale(3)).await.ok();
    assert_eq!((&scaled["kind"], &scaled["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let object = house.get(&uri).await.ok();
    assert_eq!(fields(&object, "scaler Apply scale"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&object, "me Apply"), json!({"f:spec": {"f:color": {}}}));
    let wrong = apply(&house, &format!("{uri}/scale"), "fieldManager=scaler", thing("v1", json!({}))).await;
    assert_eq!(wrong.message(), "invalid object type: example.com/v1, Kind=Thing");

    let headers = [("content-type", "application/merge-patch+json"), ("user-agent", "hand/1")];
    house.send(Method::PATCH, &format!("{uri}/scale"), &headers, r#"{"spec":{"replicas":5}}"#).await.ok();
    let object = house.get(&uri).await.ok();
    assert_eq!(object["spec"]["replicas"], 5);
    assert_eq!(fields(&object, "hand Update scale"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(fields(&object, "scaler Apply scale"), Value::Null);
}

#[tokio::test(start_paused = true)]
async fn nulls_that_nobody_applies_stay() {
    let house = House::new().await;
    let mut definition = things();
    let empty = json!({"type": "string", "nullable": true, "default": null});
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["empty"] =
        empty.clone();
    house.establish(definition).await;
    let uri = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let found = |definition: &Value| {
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["empty"]
            .clone()
    };
    assert_eq!(found(&house.get(uri).await.ok()), empty);
    let labelled = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "labels": {"a": "b"}}});
    let applied = apply(&house, uri, "fieldManager=me", labelled).await.ok();
    assert_eq!((&applied["metadata"]["labels"]["a"], found(&applied)), (&json!("b"), empty));
}

#[tokio::test(start_paused = true)]
async fn applying_a_scale_changes_nothing_but_the_replicas() {
    let house = House::new().await;
    house.establish(things()).await;
    let uri = format!("{THINGS}/t");
    let made = house.post(THINGS, thing("v1", json!({"replicas": 1}))).await.ok();
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2},
        "metadata": {"name": "t", "namespace": "default", "uid": made["metadata"]["uid"], "labels": {"a": "b"},
            "annotations": {"a": "b"}, "finalizers": ["x.io/hold"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"}]}});
    apply(&house, &format!("{uri}/scale"), "fieldManager=scaler&force=true", scale).await.ok();
    let object = house.get(&uri).await.ok();
    assert_eq!(object["spec"]["replicas"], 2);
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        assert_eq!(object["metadata"][field], Value::Null, "{field}");
    }
    assert_eq!(fields(&object, "scaler Apply scale"), json!({"f:spec": {"f:replicas": {}}}));
}

#[tokio::test(start_paused = true)]
async fn machines_are_applied_field_by_field_and_their_lists_as_a_whole() {
    let house = House::new().await;
    let uri = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/vm";
    let vm = |spec: Value| json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm"}, "spec": spec});
    let domain = |sockets: i64| json!({"cpu": {"sockets": sockets}, "devices": {"disks": []}, "memory": {"guest": "64Mi"}});
    let made = apply(
        &house,
        uri,
        "fieldManager=me",
        vm(json!({"runStrategy": "Halted", "template": {"spec": {"domain": domain(1)}}})),
    )
    .await;
    assert_eq!(made.code, 201, "{:#}", made.body);
    assert_eq!(
        fields(&made.body, "me Apply")["f:spec"]["f:template"]["f:spec"]["f:domain"],
        json!({"f:cpu": {"f:sockets": {}}, "f:devices": {"f:disks": {}}, "f:memory": {"f:guest": {}}})
    );
    let other = apply(&house, uri, "fieldManager=power", vm(json!({"runStrategy": "Always"}))).await;
    assert_eq!(other.message(), r#"Apply failed with 1 conflict: conflict with "me": .spec.runStrategy"#);
}

#[tokio::test(start_paused = true)]
async fn applying_needs_the_right_to_create_where_there_is_nothing() {
    let house = House::new().await;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "patcher"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "patcher"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "patcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "paul"}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.ok();
    house.config_map("a", json!({"x": "1"})).await;
    let paul = sheaf_apiserver::identity::User { name: "paul".into(), ..Default::default() };
    let house = House { user: paul, ..house };
    apply(&house, &format!("{MAPS}/a"), "fieldManager=p", map(json!({"y": "1"}))).await.ok();
    let mut other = map(json!({}));
    other["metadata"]["name"] = "b".into();
    let refused = apply(&house, &format!("{MAPS}/b"), "fieldManager=p", other).await;
    assert_eq!(refused.refusal(), (403, "Forbidden"));
}
