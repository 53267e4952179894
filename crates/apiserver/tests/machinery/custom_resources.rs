//! Custom resources: there when defined, and as defined.

use serde_json::{Value, json};

use crate::house::{DEFINITIONS, House, version};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [
                {
                    "name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer", "minimum": 1, "default": 3},
                            "replicas": {"type": "integer"}, "color": {"type": "string"}}},
                        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
                    }}},
                },
                {
                    "name": "v1beta1", "served": true, "storage": false,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                },
            ],
        },
    })
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_served_from_the_moment_its_definition_is_established() {
    let house = House::new().await;
    assert_eq!(house.get(WIDGETS).await.code, 404);
    house.establish(definition()).await;
    assert_eq!(house.get(WIDGETS).await.ok()["kind"], "WidgetList");
    let groups = house.get("/apis").await.ok();
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let resources = house.get("/apis/example.com/v1").await.ok();
    let names: Vec<_> =
        resources["resources"].as_array().unwrap().iter().map(|r| r["name"].clone()).collect();
    assert_eq!(names, ["widgets", "widgets/status", "widgets/scale"]);
    assert_eq!(house.get("/openapi/v3/apis/example.com/v1").await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn objects_are_defaulted_pruned_and_validated() {
    let house = House::new().await;
    house.establish(definition()).await;
    let made = house.post(WIDGETS, widget("a", json!({"color": "red", "taste": "sour"}))).await;
    assert_eq!(made.warnings, ["299 - \"unknown field \\\"spec.taste\\\"\""]);
    let made = made.ok();
    assert_eq!(made["spec"], json!({"color": "red", "size": 3}));
    assert_eq!(made["metadata"]["generation"], 1);
    let small = house.post(WIDGETS, widget("b", json!({"size": 0}))).await;
    assert_eq!(small.refusal(), (422, "Invalid"));
    assert!(
        small.message().contains("spec.size in body should be greater than or equal to 1"),
        "{}",
        small.message()
    );
    let text = house.post(WIDGETS, widget("c", json!({"size": "big"}))).await;
    assert!(text.message().contains("must be of type integer"), "{}", text.message());
    let items = house.get(WIDGETS).await.ok();
    assert_eq!(items["items"][0]["kind"], "Widget");
}

#[tokio::test(start_paused = true)]
async fn an_update_needs_a_version_and_counts_generations() {
    let house = House::new().await;
    house.establish(definition()).await;
    let made = house.post(WIDGETS, widget("a", json!({"size": 1}))).await.ok();
    let blind = house.put(&format!("{WIDGETS}/a"), widget("a", json!({"size": 2}))).await;
    assert_eq!(blind.refusal(), (422, "Invalid"));
    assert!(
        blind
            .message()
            .contains("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{}",
        blind.message()
    );
    let mut changed = made.clone();
    changed["spec"]["size"] = json!(2);
    changed["status"] = json!({"replicas": 7});
    let changed = house.put(&format!("{WIDGETS}/a"), changed).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    assert!(changed.get("status").is_none(), "status is written apart");
    let mut reported = changed.clone();
    reported["status"] = json!({"replicas": 7});
    reported["spec"]["size"] = json!(9);
    let reported = house.put(&format!("{WIDGETS}/a/status"), reported).await.ok();
    assert_eq!((&reported["status"]["replicas"], &reported["spec"]["size"]), (&json!(7), &json!(2)));
    assert_eq!(reported["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn scale_reads_and_writes_the_declared_numbers() {
    let house = House::new().await;
    house.establish(definition()).await;
    house.post(WIDGETS, widget("a", json!({"replicas": 2}))).await.ok();
    let scale = house.get(&format!("{WIDGETS}/a/scale")).await.ok();
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(2)));
    let patched = house
        .patch(&format!("{WIDGETS}/a/scale"), "merge-patch", json!({"spec": {"replicas": 5}}))
        .await
        .ok();
    assert_eq!(patched["spec"]["replicas"], 5);
    assert_eq!(house.get(&format!("{WIDGETS}/a")).await.ok()["spec"]["replicas"], 5);
    let negative =
        house.patch(&format!("{WIDGETS}/a/scale"), "merge-patch", json!({"spec": {"replicas": -1}})).await;
    assert_eq!(negative.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn every_served_version_shows_the_same_object() {
    let house = House::new().await;
    house.establish(definition()).await;
    let made = house.post(WIDGETS, widget("a", json!({"size": 2}))).await.ok();
    let beta = house.get("/apis/example.com/v1beta1/namespaces/default/widgets/a").await.ok();
    assert_eq!(beta["apiVersion"], "example.com/v1beta1");
    assert_eq!((&beta["spec"], &beta["metadata"]), (&made["spec"], &made["metadata"]));
    let listed = house.get("/apis/example.com/v1beta1/widgets").await.ok();
    assert_eq!(listed["items"][0]["apiVersion"], "example.com/v1beta1");
    let patched = house
        .patch(
            "/apis/example.com/v1beta1/namespaces/default/widgets/a",
            "merge-patch",
            json!({"spec": {"size": 4}}),
        )
        .await
        .ok();
    assert_eq!(patched["apiVersion"], "example.com/v1beta1");
    assert_eq!(house.get(&format!("{WIDGETS}/a")).await.ok()["spec"]["size"], 4);
}

#[tokio::test(start_paused = true)]
async fn a_changed_schema_is_seen_in_objects_that_were_there_before() {
    let house = House::new().await;
    let served = house.establish(definition()).await;
    let made = house.post(WIDGETS, widget("a", json!({"color": "red"}))).await.ok();
    let mut changed = served.clone();
    let properties =
        &mut changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    properties["shape"] = json!({"type": "string", "default": "round"});
    properties.as_object_mut().unwrap().remove("color");
    house.put(&format!("{DEFINITIONS}/widgets.example.com"), changed).await.ok();
    let read = house.get(&format!("{WIDGETS}/a")).await.ok();
    assert_eq!(read["spec"], json!({"size": 3, "shape": "round"}));
    assert_eq!(version(&read), version(&made), "the object itself did not change");
}

#[tokio::test(start_paused = true)]
async fn a_definition_on_its_way_out_takes_no_new_objects() {
    let house = House::new().await;
    house.establish(definition()).await;
    house.post(WIDGETS, widget("a", json!({}))).await.ok();
    let marked = house.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(house.post(WIDGETS, widget("b", json!({}))).await.refusal(), (405, "MethodNotAllowed"));
    house.delete(&format!("{WIDGETS}/a")).await.ok();
    house
        .patch(
            &format!("{DEFINITIONS}/widgets.example.com"),
            "merge-patch",
            json!({"metadata": {"finalizers": []}}),
        )
        .await
        .ok();
    assert_eq!(house.get(WIDGETS).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn strategic_merge_is_not_for_custom_resources() {
    let house = House::new().await;
    house.establish(definition()).await;
    house.post(WIDGETS, widget("a", json!({}))).await.ok();
    let refused = house.patch(&format!("{WIDGETS}/a"), "strategic-merge-patch", json!({})).await;
    assert_eq!(refused.refusal(), (415, "UnsupportedMediaType"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_definition_of_what_it_watches_and_misses_no_deletion() {
    let house = House::new().await;
    house.establish(definition()).await;
    house.post(WIDGETS, widget("a", json!({}))).await.ok();
    let mut watch = house.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.told().await, "ADDED a");
    house.delete(&format!("{DEFINITIONS}/widgets.example.com")).await.ok();
    house.delete(&format!("{WIDGETS}/a")).await.ok();
    let done = json!({"metadata": {"finalizers": []}});
    house.patch(&format!("{DEFINITIONS}/widgets.example.com"), "merge-patch", done).await.ok();
    assert_eq!(watch.told().await, "DELETED a");
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_when_the_definition_says_something_else_and_goes_on_when_it_does_not() {
    let house = House::new().await;
    let served = house.establish(definition()).await;
    let mut watch = house.watch(&format!("{WIDGETS}?watch=1")).await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    house.patch(&name, "merge-patch", json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    house.post(WIDGETS, widget("a", json!({}))).await.ok();
    assert_eq!(watch.told().await, "ADDED a");
    let mut versions = served["spec"]["versions"].clone();
    versions[0]["additionalPrinterColumns"] = json!([]);
    house.patch(&name, "merge-patch", json!({"spec": {"versions": versions}})).await.ok();
    assert_eq!(watch.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_format_nobody_checks_is_warned_of_once() {
    let house = House::new().await;
    let mut odd = definition();
    odd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]["format"] =
        "pantone".into();
    let made = house.post(DEFINITIONS, odd).await;
    assert_eq!(made.warnings, ["299 - \"unrecognized format \\\"pantone\\\"\""]);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let relabelled = house.patch(&format!("{DEFINITIONS}/widgets.example.com"), "merge-patch", label).await;
    assert!(relabelled.warnings.is_empty(), "{:?}", relabelled.warnings);
}

#[tokio::test(start_paused = true)]
async fn a_definition_never_takes_the_place_of_what_is_built_in() {
    let house = House::new().await;
    let mut own = definition();
    own["metadata"]["name"] = "users.management.cattle.io".into();
    own["spec"]["group"] = "management.cattle.io".into();
    own["spec"]["names"] = json!({"plural": "users", "kind": "Foo"});
    let refused = house.post(DEFINITIONS, own).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
    assert!(refused.message().contains("is served by Sheaf itself"), "{}", refused.message());
    // Nor by what somebody writes into the status of one that may be.
    let mut other = definition();
    other["metadata"]["name"] = "widgets.management.cattle.io".into();
    other["spec"]["group"] = "management.cattle.io".into();
    let mut served = house.establish(other).await;
    served["status"]["acceptedNames"]["plural"] = "users".into();
    served["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    house.put(&format!("{DEFINITIONS}/widgets.management.cattle.io/status"), served).await;
    let users = house.get("/apis/management.cattle.io/v3/users").await.ok();
    assert_eq!(users["kind"], "UserList");
    assert_eq!(house.get("/apis/management.cattle.io/v1/users").await.code, 404);
    let widgets = house.get("/apis/management.cattle.io/v1/namespaces/default/widgets").await.ok();
    assert_eq!(widgets["kind"], "WidgetList");
}

#[tokio::test(start_paused = true)]
async fn defaults_do_not_blow_an_object_up() {
    let house = House::new().await;
    let mut large = definition();
    large["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = json!({
        "type": "object",
        "additionalProperties": {"type": "object", "properties": {
            "x": {"type": "string", "default": "d".repeat(50_000)}}},
    });
    house.establish(large).await;
    let many: serde_json::Map<_, _> = (0..20_000).map(|n| (format!("k{n}"), json!({}))).collect();
    let refused = house.post(WIDGETS, widget("many", many.into())).await;
    assert_eq!(refused.refusal(), (413, "RequestEntityTooLarge"));
    assert!(refused.message().contains("defaults"), "{}", refused.message());
    let few = house.post(WIDGETS, widget("few", json!({"a": {}}))).await.ok();
    assert_eq!(few["spec"]["a"]["x"].as_str().unwrap().len(), 50_000);
}
