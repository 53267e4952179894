//! Replays what the original's own bookkeeping made of writes to real kinds: see `tests/clients/apply-vectors`.

use serde_json::{Value, json};

use super::{tests::owned_by, *};
use crate::{
    kinds,
    schema::{Schema, SchemaType},
};

struct One {
    api_version: String,
    schema: std::sync::Arc<Schema>,
}

impl Versions for One {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        (api_version == self.api_version).then(|| Shape::of(&self.schema))
    }

    fn convert(&self, object: &Value, _: &str) -> Value {
        object.clone()
    }
}

/// The schema of the custom resource in the recordings, as its definition has it.
fn custom() -> Schema {
    Schema::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "paused": {"type": "boolean"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
            "args": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "template": {"type": "object", "properties": {"image": {"type": "string"}, "tag": {"type": "string"}}},
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
    .unwrap()
}

fn versions_of(api_version: &str, kind: &str) -> One {
    let built_in = kinds::built_in();
    let row = built_in.iter().find(|row| row.api_version() == api_version && row.kind == kind);
    let schema = row.map_or_else(|| custom().into(), |row| row.schema.get());
    assert!(schema.is(&SchemaType::Object));
    One { api_version: api_version.into(), schema }
}

/// What an object says: the original shows much of its structures even when it is empty.
fn said(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| (name, said(value)));
            let says = |value: &Value| {
                !value.is_null()
                    && value != ""
                    && value.as_object().is_none_or(|members| !members.is_empty())
                    && value.as_array().is_none_or(|elements| !elements.is_empty())
            };
            Value::Object(members.filter(|(_, value)| says(value)).collect())
        }
        Value::Array(elements) => elements.into_iter().map(said).collect(),
        scalar => scalar,
    }
}

fn not_reached(subresource: &str, kind: &str) -> FieldSet {
    let has_status = ["Namespace", "Node", "PersistentVolumeClaim", "Pod", "Thing"].contains(&kind);
    let field = match subresource {
        "status" => "spec",
        _ if has_status => "status",
        _ => return FieldSet::default(),
    };
    [[Step::field(field)].as_slice()].into_iter().collect()
}

#[test]
fn every_write_to_a_real_kind_is_kept_track_of_as_in_the_original() {
    let mut refused = 0;
    for (number, line) in include_str!("writes.txt").lines().enumerate() {
        let story: Value = serde_json::from_str(line).unwrap();
        let (api_version, kind) = (story["apiVersion"].as_str().unwrap(), story["kind"].as_str().unwrap());
        let versions = versions_of(api_version, kind);
        let mut live: Option<Value> = None;
        for (at, write) in story["writes"].as_array().unwrap().iter().enumerate() {
            let place = format!("story {number} of {kind}, write {at}: {write:#}\nlive {live:#?}");
            let text = |name: &str| write[name].as_str().unwrap_or_default().to_owned();
            let (subresource, now) = (text("subresource"), format!("2026-01-01T{at:02}:00:00Z"));
            let operation = if text("op") == "apply" { Operation::Apply } else { Operation::Update };
            let manager =
                Manager { operation, name: text("manager"), api_version: api_version.into(), subresource };
            let not_reached = not_reached(&manager.subresource, kind);
            let given = write["given"].clone();
            let outcome = match (text("op").as_str(), &live) {
                ("apply", live) => {
                    let live = live.clone().unwrap_or_else(|| nothing(&given));
                    let force = write["force"] == true;
                    applied(&versions, &live, &given, &manager, &not_reached, force, &now)
                }
                (_, None) => {
                    let owners = created(&versions, &given, &manager, &not_reached, &now);
                    owners.map(|owners| owned_by(given, owners))
                }
                (_, Some(live)) => {
                    let mut new = given;
                    new["metadata"]["uid"] = "the-uid".into();
                    match text("managed").as_str() {
                        "kept" => {
                            new["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone()
                        }
                        "reset" => new["metadata"]["managedFields"] = json!([{}]),
                        "empty" => new["metadata"]["managedFields"] = json!([]),
                        "nonsense" => {
                            new["metadata"]["managedFields"] =
                                json!([{"manager": "x", "operation": "Guess", "apiVersion": "v1"}]);
                        }
                        _ => {}
                    }
                    let owners = updated(&versions, live, &new, &manager, &not_reached, &now);
                    owners.map(|owners| owned_by(new, owners))
                }
            };
            if let Some(message) = write.get("message") {
                let Err(ApplyError::Conflicts(conflicts)) = outcome else { panic!("{place}: {outcome:?}") };
                assert_eq!(conflicts.to_string(), *message, "{place}");
                let mut told: Vec<String> =
                    conflicts.named().into_iter().map(|conflict| conflict.field).collect();
                let mut expected: Vec<String> = write["causes"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|cause| cause["field"].as_str().unwrap().to_owned())
                    .collect();
                told.sort();
                expected.sort();
                assert_eq!(told, expected, "{place}");
                refused += 1;
                continue;
            }
            let mut object = outcome.unwrap_or_else(|why| panic!("{place}: {why}"));
            let entries = object["metadata"].as_object_mut().unwrap().remove("managedFields");
            assert_eq!(entries.unwrap_or_default(), write["managedFields"], "{place}");
            object["metadata"].as_object_mut().unwrap().remove("uid");
            assert_eq!(said(object.clone()), said(write["object"].clone()), "{place}");
            let mut object = write["object"].clone();
            object["metadata"]["uid"] = "the-uid".into();
            if write["managedFields"].is_array() {
                object["metadata"]["managedFields"] = write["managedFields"].clone();
            }
            live = Some(object);
        }
    }
    assert!(refused > 20, "{refused} refusals are not many");
}
