//! Who owns which field of an object, as every write leaves it.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::house::{House, MAPS, version};

const NODES: &str = "/api/v1/nodes";

async fn send_as(house: &House, agent: &str, method: Method, uri: &str, media: &str, body: Value) -> Value {
    let headers = [("content-type", media), ("user-agent", agent)];
    house.send(method, uri, &headers, body.to_string()).await.ok()
}

/// `manager operation subresource` of every entry, in order.
pub fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            assert_eq!(entry["fieldsType"], "FieldsV1");
            assert!(entry["apiVersion"].is_string());
            [text(entry, "manager"), text(entry, "operation"), text(entry, "subresource")]
                .join(" ")
                .trim()
                .to_owned()
        })
        .collect()
}

pub fn fields(object: &Value, owner: &str) -> Value {
    let at = owners(object).iter().position(|candidate| candidate == owner);
    at.map_or(Value::Null, |at| object["metadata"]["managedFields"][at]["fieldsV1"].clone())
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test(start_paused = true)]
async fn who_creates_an_object_owns_it_by_the_name_of_the_program() {
    let house = House::new().await;
    let json = "application/json";
    let mut wanted = map("a", json!({"x": "1"}));
    wanted["metadata"]["labels"] = json!({"l": "1"});
    let made = send_as(&house, "tool/v1 (linux)", Method::POST, MAPS, json, wanted).await;
    assert_eq!(
        made["metadata"]["managedFields"],
        json!([{
            "manager": "tool", "operation": "Update", "apiVersion": "v1", "time": "2030-01-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {".": {}, "f:x": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}},
        }])
    );
    assert_eq!(house.get(&format!("{MAPS}/a")).await.ok(), made);
    let uri = format!("{MAPS}?fieldManager=me");
    let made = send_as(&house, "tool/v1", Method::POST, &uri, json, map("b", json!({"x": "1"}))).await;
    assert_eq!(owners(&made), ["me Update"]);
    let made = house.config_map("c", json!({"x": "1"})).await;
    assert_eq!(owners(&made), ["unknown Update"], "who does not say who it is");
    let made = house.config_map("d", json!({})).await;
    assert_eq!(owners(&made), Vec::<String>::new(), "an object without a field has no owner");
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_change_moves_what_changes_and_nothing_else() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let json = "application/json";
    let made =
        send_as(&house, "one", Method::POST, MAPS, json, map("a", json!({"x": "1", "y": "1", "z": "1"})))
            .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut put = made.clone();
    put["data"]["x"] = "2".into();
    let put = send_as(&house, "two", Method::PUT, &uri, json, put).await;
    assert_eq!(fields(&put, "one Update"), json!({"f:data": {".": {}, "f:y": {}, "f:z": {}}}));
    assert_eq!(fields(&put, "two Update"), json!({"f:data": {"f:x": {}}}));
    assert_eq!(put["metadata"]["managedFields"][0]["time"], "2030-01-01T00:00:00Z");
    assert_eq!(put["metadata"]["managedFields"][1]["time"], "2030-01-01T00:00:05Z");

    let merge = json!({"data": {"y": "2", "x": null}});
    let merged = send_as(&house, "three", Method::PATCH, &uri, "application/merge-patch+json", merge).await;
    assert_eq!(owners(&merged), ["one Update", "three Update"], "who owns nothing is forgotten");
    assert_eq!(fields(&merged, "three Update"), json!({"f:data": {"f:y": {}}}));

    let steps = json!([{"op": "add", "path": "/data/w", "value": "1"}]);
    let patched = send_as(&house, "four", Method::PATCH, &uri, "application/json-patch+json", steps).await;
    assert_eq!(fields(&patched, "four Update"), json!({"f:data": {"f:w": {}}}));

    let strategic = json!({"metadata": {"finalizers": ["x.io/y"]}});
    let media = "application/strategic-merge-patch+json";
    let patched = send_as(&house, "five", Method::PATCH, &uri, media, strategic).await;
    assert_eq!(
        fields(&patched, "five Update"),
        json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"x.io/y\"": {}}}})
    );
    assert_eq!(fields(&patched, "one Update"), json!({"f:data": {".": {}, "f:z": {}}}));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_changes_neither_time_nor_version() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let made =
        send_as(&house, "one", Method::POST, MAPS, "application/json", map("a", json!({"x": "1"}))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let same =
        send_as(&house, "two", Method::PUT, &uri, "application/json", map("a", json!({"x": "1"}))).await;
    assert_eq!(same, made);
    // What a client writes and the server does not let it is no change either.
    let created = json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}});
    let same = send_as(&house, "two", Method::PATCH, &uri, "application/merge-patch+json", created).await;
    assert_eq!(same, made);
}

#[tokio::test(start_paused = true)]
async fn owners_are_what_a_client_says_unless_that_is_nonsense() {
    let house = House::new().await;
    let uri = format!("{MAPS}/a");
    let made =
        send_as(&house, "one", Method::POST, MAPS, "application/json", map("a", json!({"x": "1"}))).await;
    let given = |entries: Value| {
        let mut object = made.clone();
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        object["metadata"]["managedFields"] = entries;
        object
    };
    let nonsense = given(json!([{"manager": "x", "operation": "Guess", "apiVersion": "v1"}]));
    let put = send_as(&house, "two", Method::PUT, &uri, "application/json", nonsense).await;
    assert_eq!(put, made, "as if it had not been said");
    let moved =
        given(json!([{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:data": {"f:x": {}}}}]));
    let put = send_as(&house, "two", Method::PUT, &uri, "application/json", moved).await;
    assert_eq!(owners(&put), ["x Apply"]);
    let wrong = given(json!("x"));
    assert_eq!(house.put(&uri, wrong).await.refusal(), (400, "BadRequest"));

    for reset in [json!([]), json!([{}])] {
        let put = send_as(&house, "two", Method::PUT, &uri, "application/json", given(reset)).await;
        assert_eq!(put["metadata"].get("managedFields"), None);
    }
    // From here on nobody keeps track, until somebody applies.
    let patch = json!({"data": {"x": "3"}});
    let put = send_as(&house, "three", Method::PATCH, &uri, "application/merge-patch+json", patch).await;
    assert_eq!(put["metadata"].get("managedFields"), None);
    assert!(version(&put) > version(&made));
}

#[tokio::test(start_paused = true)]
async fn the_spec_and_the_status_have_owners_of_their_own() {
    let house = House::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "spec": {"unschedulable": true}, "status": {"phase": "Running"}});
    let made = send_as(&house, "admin", Method::POST, NODES, "application/json", node).await;
    assert_eq!(fields(&made, "admin Update"), json!({"f:spec": {"f:unschedulable": {}}}));
    let status = json!({"status": {"capacity": {"cpu": "4"}}, "spec": {"unschedulable": false}});
    let uri = format!("{NODES}/n/status");
    let said = send_as(&house, "agent", Method::PATCH, &uri, "application/merge-patch+json", status).await;
    assert_eq!(said["spec"]["unschedulable"], true);
    assert_eq!(
        fields(&said, "agent Update status"),
        json!({"f:status": {"f:capacity": {".": {}, "f:cpu": {}}}})
    );
    assert_eq!(fields(&said, "admin Update"), json!({"f:spec": {"f:unschedulable": {}}}));
    // Who writes the whole object takes nothing of the status.
    let mut whole = said.clone();
    whole["status"]["capacity"]["cpu"] = "8".into();
    whole["metadata"]["labels"] = json!({"a": "b"});
    let put = send_as(&house, "editor", Method::PUT, &format!("{NODES}/n"), "application/json", whole).await;
    assert_eq!(put["status"]["capacity"]["cpu"], "4");
    assert_eq!(fields(&put, "editor Update"), json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}));
    assert_eq!(fields(&put, "agent Update status"), fields(&said, "agent Update status"));
}

#[tokio::test(start_paused = true)]
async fn what_the_server_adds_is_nobodys_and_what_it_made_is_its_own() {
    let house = House::new().await;
    let made = send_as(
        &house,
        "kubectl-create",
        Method::POST,
        "/api/v1/namespaces",
        "application/json",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
    )
    .await;
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        fields(&made, "kubectl-create Update"),
        json!({"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}})
    );
    let of_bootstrap = house.get("/api/v1/namespaces/kube-system").await.ok();
    assert_eq!(owners(&of_bootstrap), ["sheaf Update"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_two_groups_show_has_owners_in_the_words_of_each() {
    let house = House::new().await;
    let core = "/api/v1/namespaces/default/events";
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2030-01-01T00:00:00.000000Z", "reportingController": "c", "reportingInstance": "i",
        "action": "a", "reason": "r", "type": "Normal", "note": "n",
        "regarding": {"kind": "ConfigMap", "namespace": "default", "name": "x"}});
    let made = send_as(&house, "reporter", Method::POST, events, "application/json", event).await;
    assert_eq!(made["metadata"]["managedFields"][0]["apiVersion"], "events.k8s.io/v1");
    assert_eq!(fields(&made, "reporter Update")["f:note"], json!({}));
    let patch = json!({"message": "m"});
    let uri = format!("{core}/e");
    let patched = send_as(&house, "editor", Method::PATCH, &uri, "application/merge-patch+json", patch).await;
    assert_eq!(fields(&patched, "editor Update"), json!({"f:message": {}}));
    assert_eq!(fields(&patched, "reporter Update").get("f:note"), None, "it is the same field");
    assert_eq!(fields(&patched, "reporter Update")["f:reason"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_fits_only_without_its_owners_is_kept_without_them() {
    let house = House::new().await;
    let heaps = house.establish_heaps().await;
    // Many short values: the list of their owners is as large as they are.
    let heap = |name: &str, count: usize| -> Value {
        let fields = (0..count).map(|n| (format!("a-name-of-some-length-{n}"), Value::from("x")));
        let spec = Value::Object(fields.collect());
        json!({"apiVersion": "example.com/v1", "kind": "Heap", "metadata": {"name": name}, "spec": spec})
    };
    let fits = house.post(heaps, heap("a", 20_000)).await.ok();
    assert!(fits["metadata"]["managedFields"].is_array());
    let large = house.post(heaps, heap("b", 60_000)).await.ok();
    assert_eq!(large["metadata"].get("managedFields"), None);
    assert_eq!(large["spec"].as_object().unwrap().len(), 60_000);
    let mut larger = heap("a", 60_000);
    larger["metadata"]["resourceVersion"] = fits["metadata"]["resourceVersion"].clone();
    let larger = house.put(&format!("{heaps}/a"), larger).await.ok();
    assert_eq!(larger["metadata"].get("managedFields"), None);
    let by = format!("{heaps}/c?fieldManager=me");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let refused = house.send(Method::PATCH, &by, &headers, heap("c", 60_000).to_string()).await;
    assert_eq!(refused.refusal(), (413, "RequestEntityTooLarge"), "who applies is told");
}

#[tokio::test(start_paused = true)]
async fn owners_that_a_client_names_have_names_of_sane_length() {
    let house = House::new().await;
    let entry = |field: &str, value: Value| {
        let mut entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {}}, "time": "2030-01-01T00:00:00Z"});
        entry[field] = value;
        entry
    };
    let with = |entries: Vec<Value>| {
        let mut wanted = map("a", json!({"x": "1"}));
        wanted["metadata"]["managedFields"] = entries.into();
        wanted
    };
    for (field, value, why) in [
        (
            "manager",
            json!("m".repeat(129)),
            "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
        ),
        ("manager", json!("a\u{7}"), "invalid character U+0007 (at position 1)"),
        (
            "subresource",
            json!("s".repeat(257)),
            "managedFields[0].subresource: Too long: may not be more than 256 bytes",
        ),
    ] {
        let refused = house.post(MAPS, with(vec![entry(field, value)])).await;
        assert_eq!(refused.refusal(), (422, "Invalid"));
        assert!(refused.message().contains(why), "{}", refused.message());
    }
    let many = (0..1001).map(|n| entry("manager", format!("m{n}").into())).collect();
    assert_eq!(house.post(MAPS, with(many)).await.refusal(), (422, "Invalid"));
    house.post(MAPS, with(vec![entry("manager", "m".repeat(128).into())])).await.ok();
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_owner_is_a_time_also_in_custom_resources() {
    let house = House::new().await;
    house
        .establish(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        }))
        .await;
    let thing = |time: &str| {
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": {"a": 1}, "metadata": {"name": "t",
            "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]}})
    };
    let things = "/apis/example.com/v1/namespaces/default/things";
    let refused = house.post(things, thing("x")).await;
    assert_eq!(refused.refusal(), (400, "BadRequest"));
    assert!(refused.message().contains(r#"parsing time "x""#), "{}", refused.message());
    house.post(things, thing("2030-01-01T00:00:00Z")).await.ok();
}
