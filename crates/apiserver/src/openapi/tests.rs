//! What the documents promise to the clients that read them.

use std::{collections::BTreeSet, sync::Arc};

use http::header;
use sheaf_resources::kinds::{self, custom_resource_definition};

use super::*;

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

fn widget(color: &str) -> Kind {
    let schema = json!({
        "type": "object", "description": "A widget.", "required": ["spec"],
        "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "format": "int32", "minimum": 1, "default": 3},
                "color": {"type": "string", "description": color, "enum": ["red", "green"]},
                "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "parts": {"type": "array", "nullable": true, "items": {"type": "object"},
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            }},
            "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
        },
    });
    let definition = json!({
        "metadata": {"name": "widgets.example.io"},
        "spec": {
            "group": "example.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
            }],
        },
    });
    custom_resource_definition::served_kinds(&definition).unwrap().remove(0)
}

fn all_kinds() -> Vec<Kind> {
    let mut all = kinds::built_in();
    all.push(widget("What it looks like."));
    all
}

fn refs(kinds: &[Kind]) -> Vec<&Kind> {
    kinds.iter().collect()
}

fn accepting(media_type: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, media_type.parse().unwrap())])
}

fn body(answer: Answer) -> Bytes {
    match answer {
        Answer::Document { body, .. } => body,
        other => panic!("not a document: {other:?}"),
    }
}

fn document(kinds: &[Kind], segments: &[&str]) -> Value {
    let documents = Documents::default();
    let body = body(documents.answer(&refs(kinds), 1, segments, None, &HeaderMap::new()));
    serde_json::from_slice(&body).unwrap()
}

/// Every v3 document, by path.
fn every_v3(kinds: &[Kind]) -> Vec<(String, Value)> {
    GroupVersion::split(&refs(kinds))
        .into_iter()
        .map(|one| (one.path(), serde_json::from_slice(&document::v3(one)).unwrap()))
        .collect()
}

fn addresses(documents: &Documents, kinds: &[Kind], generation: u64) -> BTreeMap<String, String> {
    let index = body(documents.answer(&refs(kinds), generation, &["v3"], None, &HeaderMap::new()));
    let index: Value = serde_json::from_slice(&index).unwrap();
    let paths = index["paths"].as_object().unwrap().clone();
    paths.into_iter().map(|(path, at)| (path, at["serverRelativeURL"].as_str().unwrap().to_owned())).collect()
}

/// Compares with the file of that name. `UPDATE_GOLDEN=src/openapi/golden` writes it instead.
fn golden(name: &str, expected: &str, found: &Value) {
    let found = format!("{found:#}\n");
    if let Ok(folder) = std::env::var("UPDATE_GOLDEN") {
        return std::fs::write(format!("{folder}/{name}"), found).unwrap();
    }
    assert!(found == expected, "{name} differs; found:\n{found}");
}

/// Calls `look` on every object in a value.
fn visit(value: &Value, look: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            look(map);
            map.values().for_each(|inner| visit(inner, look));
        }
        Value::Array(list) => list.iter().for_each(|inner| visit(inner, look)),
        _ => {}
    }
}

#[test]
fn the_paths_of_config_maps_are_as_written_down() {
    let document = document(&all_kinds(), &["v3", "api", "v1"]);
    let paths = document["paths"].as_object().unwrap();
    let own: Value = paths
        .iter()
        .filter(|(path, _)| path.contains("/configmaps"))
        .map(|(path, item)| (path.clone(), item.clone()))
        .collect();
    golden("config_map_paths.json", include_str!("golden/config_map_paths.json"), &own);
}

#[test]
fn a_custom_resource_is_as_written_down() {
    let v3 = document(&all_kinds(), &["v3", "apis", "example.io", "v1"]);
    let v2 = document(&all_kinds(), &["v2"]);
    let patch = "/apis/example.io/v1/namespaces/{namespace}/widgets/{name}";
    let own = json!({
        "paths": v3["paths"].as_object().unwrap().keys().collect::<Vec<_>>(),
        "patch": v3["paths"][patch]["patch"],
        "v3": v3["components"]["schemas"]["io.example.v1.Widget"],
        "list": v3["components"]["schemas"]["io.example.v1.WidgetList"],
        "v2": v2["definitions"]["io.example.v1.Widget"],
        "v2 patch": v2["paths"][patch]["patch"],
    });
    golden("widget.json", include_str!("golden/widget.json"), &own);
}

#[test]
fn every_reference_leads_somewhere() {
    let kinds = all_kinds();
    let mut documents = every_v3(&kinds);
    documents.push(("v2".into(), document(&kinds, &["v2"])));
    for (path, document) in documents {
        let mut seen = 0;
        visit(&document, &mut |map| {
            let Some(target) = map.get("$ref").and_then(Value::as_str) else { return };
            seen += 1;
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{path}: {target}");
        });
        assert!(seen > 10, "{path} has {seen} references");
    }
}

/// How kubectl decides that the server validates fields, and so need not.
#[test]
fn every_kept_kind_takes_field_validation_on_every_patch() {
    let kinds = all_kinds();
    let documents: BTreeMap<String, Value> = every_v3(&kinds).into_iter().collect();
    for kind in kinds.iter().filter(|kind| kind.verbs.names().contains(&"patch")) {
        let about = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let group_version = GroupVersion { group: &kind.group, version: &kind.version, kinds: vec![] };
        let document = &documents[&group_version.path()];
        let patches: Vec<&Value> = document["paths"]
            .as_object()
            .unwrap()
            .values()
            .map(|item| &item["patch"])
            .filter(|patch| patch["x-kubernetes-group-version-kind"] == about)
            .collect();
        assert!(!patches.is_empty(), "{}", kind.kind);
        for patch in patches {
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|one| one["name"] == "fieldValidation" && one["in"] == "query"));
            let strategic = &patch["requestBody"]["content"]["application/strategic-merge-patch+json"];
            assert_eq!(strategic.is_null(), kind.custom, "{}", kind.kind);
        }
    }
}

/// How kubectl explain finds a type.
#[test]
fn every_kind_is_found_by_its_path_and_by_its_type() {
    let kinds = all_kinds();
    let documents: BTreeMap<String, Value> = every_v3(&kinds).into_iter().collect();
    for kind in &kinds {
        let root = GroupVersion { group: &kind.group, version: &kind.version, kinds: vec![] }.path();
        let document = &documents[&root];
        let scope = if kind.namespaced() { "namespaces/{namespace}/" } else { "" };
        let whole = &document["paths"][format!("/{root}/{scope}{}", kind.plural)];
        let method = if kind.verbs.names().contains(&"create") { "post" } else { "get" };
        let about = &whole[method]["x-kubernetes-group-version-kind"];
        assert_eq!(about["kind"], kind.kind);
        let types = document["components"]["schemas"].as_object().unwrap().values();
        let fitting = types.filter(|one| {
            one["x-kubernetes-group-version-kind"].as_array().is_some_and(|l| l.contains(about))
        });
        assert_eq!(fitting.count(), 1, "{}", kind.kind);
    }
}

#[test]
fn operations_have_names_of_their_own() {
    let mut seen = BTreeSet::new();
    visit(&document(&all_kinds(), &["v2"])["paths"], &mut |map| {
        if let Some(id) = map.get("operationId").and_then(Value::as_str) {
            assert!(seen.insert(id.to_owned()), "{id}");
        }
    });
    for id in [
        "listCoreV1ConfigMapForAllNamespaces",
        "deleteCoreV1CollectionNamespacedConfigMap",
        "replaceCoreV1NamespaceFinalize",
        "createCoreV1NamespacedServiceAccountToken",
        "readExampleIoV1NamespacedWidgetScale",
        "createAuthorizationV1SelfSubjectAccessReview",
        "getRbacAuthorizationV1APIResources",
    ] {
        assert!(seen.contains(id), "{id}");
    }
}

#[test]
fn questions_can_only_be_posted() {
    let document = document(&all_kinds(), &["v3", "apis", "authorization.k8s.io", "v1"]);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let methods: Vec<&String> = document["paths"][path].as_object().unwrap().keys().collect();
    assert_eq!(methods, ["parameters", "post"]);
    let types = document["components"]["schemas"].as_object().unwrap();
    assert!(!types.contains_key("io.k8s.api.authorization.v1.SelfSubjectAccessReviewList"));
}

#[test]
fn clients_learn_how_lists_are_patched() {
    let kinds = all_kinds();
    let v3 = document(&kinds, &["v3", "api", "v1"])["components"]["schemas"].take();
    let v2 = document(&kinds, &["v2"])["definitions"].take();
    for types in [v3, v2] {
        let meta = &types["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
        assert_eq!(meta["finalizers"]["x-kubernetes-patch-strategy"], "merge");
        assert_eq!(meta["ownerReferences"]["x-kubernetes-patch-merge-key"], "uid");
        let status = &types["io.k8s.api.core.v1.NodeStatus"]["properties"];
        assert_eq!(status["conditions"]["x-kubernetes-patch-merge-key"], "type");
        assert_eq!(status["addresses"]["x-kubernetes-list-map-keys"], json!(["type"]));
        let account = &types["io.k8s.api.core.v1.ServiceAccount"]["properties"];
        assert_eq!(account["imagePullSecrets"].get("x-kubernetes-patch-strategy"), None);
    }
}

#[test]
fn metadata_may_be_left_out() {
    let types = document(&all_kinds(), &["v3", "api", "v1"])["components"]["schemas"].take();
    assert_eq!(types["io.k8s.api.core.v1.ConfigMap"].get("required"), None);
    assert_eq!(types["io.k8s.api.core.v1.LocalObjectReference"].get("required"), None);
    assert_eq!(types["io.k8s.api.core.v1.Event"]["required"], json!(["involvedObject", "metadata"]));
}

/// kubectl refuses a whole document over any of these.
#[test]
fn v2_has_nothing_its_clients_fail_on() {
    fn check(schema: &Value) {
        for keyword in ["anyOf", "oneOf", "not", "nullable"] {
            assert_eq!(schema.get(keyword), None, "in {schema}");
        }
        assert!(schema["type"] != "array" || schema["items"].is_object(), "{schema}");
        assert!(schema.get("$ref").is_none() || schema.get("type").is_none(), "{schema}");
        let fields = schema["properties"].as_object().into_iter().flat_map(|fields| fields.values());
        fields
            .chain(["items", "additionalProperties"].iter().filter_map(|key| schema.get(key)))
            .for_each(check);
    }
    let document = document(&all_kinds(), &["v2"]);
    document["definitions"].as_object().unwrap().values().for_each(check);
}

#[test]
fn a_resource_that_keeps_everything_lists_nothing_in_v2() {
    let mut kind = widget("");
    kind.schema = SchemaSource::Custom(Arc::new(Schema::anything()));
    let kinds = [kind];
    let v2 = document(&kinds, &["v2"]);
    assert_eq!(v2["definitions"]["io.example.v1.Widget"].get("properties"), None);
    let v3 = document(&kinds, &["v3", "apis", "example.io", "v1"]);
    let own = &v3["components"]["schemas"]["io.example.v1.Widget"];
    assert_eq!(own["x-kubernetes-preserve-unknown-fields"], true);
    assert!(own["properties"]["metadata"]["allOf"].is_array());
}

#[test]
fn a_change_of_one_kind_moves_only_its_own_document() {
    let documents = Documents::default();
    let mut kinds = all_kinds();
    let before = addresses(&documents, &kinds, 1);
    *kinds.last_mut().unwrap() = widget("Another description.");
    let after = addresses(&documents, &kinds, 2);
    for (path, address) in &before {
        assert_eq!(after[path] == *address, path != "apis/example.io/v1", "{path}");
    }
    kinds.pop();
    let without = addresses(&documents, &kinds, 3);
    assert_eq!(without.len(), after.len() - 1);
    let gone =
        documents.answer(&refs(&kinds), 3, &["v3", "apis", "example.io", "v1"], None, &HeaderMap::new());
    assert_eq!(gone, Answer::NotFound);
}

#[test]
fn an_unchanged_kind_is_not_written_again() {
    let documents = Documents::default();
    let kinds = all_kinds();
    let before = addresses(&documents, &kinds, 1);
    documents.memory.lock().catch_up(&refs(&kinds), 2);
    assert!(documents.memory.lock().known.values().all(|known| known.hash.is_some()));
    assert_eq!(addresses(&documents, &kinds, 2), before);
}

#[test]
fn two_servers_give_the_same_documents() {
    let (one, other) = (Documents::default(), Documents::default());
    assert_eq!(addresses(&one, &all_kinds(), 1), addresses(&other, &all_kinds(), 7));
    for accept in ["application/json", PROTOBUF] {
        let ask = |documents: &Documents| {
            documents.answer(&refs(&all_kinds()), 1, &["v2"], None, &accepting(accept))
        };
        assert_eq!(ask(&one), ask(&other));
    }
}

#[test]
fn a_client_that_has_the_document_is_told_so() {
    let documents = Documents::default();
    let kinds = all_kinds();
    let kinds = refs(&kinds);
    for (segments, accept) in [
        (&["v3"][..], "*/*"),
        (&["v3", "api", "v1"], "application/json"),
        (&["v2"], "application/json"),
        (&["v2"], PROTOBUF),
    ] {
        let mut headers = accepting(accept);
        let Answer::Document { etag, .. } = documents.answer(&kinds, 1, segments, None, &headers) else {
            panic!("no document at {segments:?}");
        };
        headers.insert(header::IF_NONE_MATCH, format!("\"old\", W/{etag}").parse().unwrap());
        assert_eq!(documents.answer(&kinds, 1, segments, None, &headers), Answer::NotModified { etag });
    }
}

#[test]
fn an_address_with_a_hash_is_for_ever_or_moved() {
    let documents = Documents::default();
    let kinds = all_kinds();
    let address = addresses(&documents, &kinds, 1).remove("api/v1").unwrap();
    let (_, hash) = address.split_once("?hash=").unwrap();
    let ask = |hash| documents.answer(&refs(&kinds), 1, &["v3", "api", "v1"], hash, &HeaderMap::new());
    assert!(matches!(ask(Some(hash)), Answer::Document { immutable: true, .. }));
    assert!(matches!(ask(None), Answer::Document { immutable: false, .. }));
    assert_eq!(ask(Some("0123")), Answer::Moved { location: address.clone() });
}

#[test]
fn a_client_that_takes_no_form_of_it_is_told_so() {
    let documents = Documents::default();
    let kinds = all_kinds();
    for segments in [&["v2"][..], &["v3", "api", "v1"]] {
        let answer = documents.answer(&refs(&kinds), 1, segments, None, &accepting("text/html"));
        assert_eq!(answer, Answer::NotAcceptable);
    }
    assert_eq!(documents.answer(&refs(&kinds), 1, &["v1"], None, &HeaderMap::new()), Answer::NotFound);
}

#[test]
fn what_is_kept_is_bounded() {
    let documents = Documents::default();
    let kinds = all_kinds();
    let kinds = refs(&kinds);
    for _ in 0..2 {
        for group_version in GroupVersion::split(&kinds) {
            let path = group_version.path();
            let segments: Vec<&str> = ["v3"].into_iter().chain(path.split('/')).collect();
            documents.answer(&kinds, 1, &segments, None, &HeaderMap::new());
            documents.answer(&kinds, 1, &["v2"], None, &accepting(PROTOBUF));
            documents.answer(&kinds, 1, &["v2"], None, &HeaderMap::new());
            assert!(documents.memory.lock().kept_bytes() <= KEPT_BYTES);
        }
    }
    assert!(!documents.memory.lock().kept.is_empty());
}

/// The bytes of every length-delimited field with this number.
fn fields(message: &[u8], number: u64) -> Vec<&[u8]> {
    let mut rest = message;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let tag = varint(&mut rest);
        let length = match tag & 7 {
            0 => {
                varint(&mut rest);
                continue;
            }
            1 => 8,
            2 => varint(&mut rest) as usize,
            wire => panic!("wire type {wire}"),
        };
        let (field, after) = rest.split_at(length);
        rest = after;
        if tag >> 3 == number {
            found.push(field);
        }
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
    }
    panic!("a varint without end");
}

fn text(message: &[u8], number: u64) -> &str {
    fields(message, number).first().map_or("", |bytes| std::str::from_utf8(bytes).unwrap())
}

/// A schema read back from protobuf, as far as it is told here.
fn schema_of(message: &[u8]) -> Value {
    let mut out = json!({});
    for (name, number) in [("$ref", 1), ("format", 2), ("description", 4), ("pattern", 13)] {
        if !fields(message, number).is_empty() {
            out[name] = text(message, number).into();
        }
    }
    for holder in fields(message, 22) {
        out["type"] = text(holder, 1).into();
    }
    for holder in fields(message, 23) {
        out["items"] = schema_of(fields(holder, 1)[0]);
    }
    for holder in fields(message, 21) {
        out["additionalProperties"] = schema_of(fields(holder, 1)[0]);
    }
    for entry in fields(message, 25).into_iter().flat_map(|holder| fields(holder, 1)) {
        out["properties"][text(entry, 1)] = schema_of(fields(entry, 2)[0]);
    }
    for field in fields(message, 19) {
        let required = out.as_object_mut().unwrap().entry("required").or_insert_with(|| json!([]));
        required.as_array_mut().unwrap().push(std::str::from_utf8(field).unwrap().into());
    }
    for entry in fields(message, 31) {
        out[text(entry, 1)] = serde_json::from_str(text(fields(entry, 2)[0], 2)).unwrap();
    }
    out
}

fn without_limits(mut schema: Value) -> Value {
    fn drop_limits(schema: &mut Value) {
        let Value::Object(map) = schema else { return };
        for limit in ["default", "minimum", "enum"] {
            map.remove(limit);
        }
        for key in ["items", "additionalProperties"] {
            map.get_mut(key).into_iter().for_each(drop_limits);
        }
        if let Some(Value::Object(fields)) = map.get_mut("properties") {
            fields.values_mut().for_each(drop_limits);
        }
    }
    drop_limits(&mut schema);
    schema
}

#[test]
fn protobuf_tells_the_same_as_json() {
    let kinds = all_kinds();
    let documents = Documents::default();
    let message = body(documents.answer(&refs(&kinds), 1, &["v2"], None, &accepting(PROTOBUF)));
    let json = document(&kinds, &["v2"]);
    assert_eq!(text(&message, 1), "2.0");
    let definitions = fields(fields(&message, 9)[0], 1);
    assert_eq!(definitions.len(), json["definitions"].as_object().unwrap().len());
    for entry in definitions {
        let name = text(entry, 1);
        let told = schema_of(fields(entry, 2)[0]);
        assert_eq!(told, without_limits(json["definitions"][name].clone()), "{name}");
    }
    let paths = fields(fields(&message, 8)[0], 2);
    assert_eq!(paths.len(), json["paths"].as_object().unwrap().len());
    for entry in paths {
        let (name, item) = (text(entry, 1), fields(entry, 2)[0]);
        for (method, number) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
            let expected = &json["paths"][name][method];
            let Some(operation) = fields(item, number).pop() else {
                assert!(expected.is_null(), "{method} {name}");
                continue;
            };
            assert_eq!(text(operation, 5), expected["operationId"], "{method} {name}");
            let consumed: Vec<_> =
                fields(operation, 7).into_iter().map(|bytes| std::str::from_utf8(bytes).unwrap()).collect();
            assert_eq!(json!(consumed), expected["consumes"], "{method} {name}");
            let parameters = expected["parameters"].as_array().map_or(0, Vec::len);
            assert_eq!(fields(operation, 8).len(), parameters, "{method} {name}");
            for extension in fields(operation, 13) {
                let value: Value = serde_json::from_str(text(fields(extension, 2)[0], 2)).unwrap();
                assert_eq!(value, expected[text(extension, 1)], "{method} {name}");
            }
        }
    }
}
