//! What appliers and others do to each other's fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::schema::Schema;

/// A kind with one of everything: declared fields, a free map, lists of every sort, something atomic.
pub(super) fn schema() -> Schema {
    Schema::parse(&json!({"type": "object", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"},
        "metadata": {"type": "object", "properties": {
            "name": {"type": "string"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }},
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"}, "paused": {"type": "boolean"},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"},
                    "protocol": {"type": "string", "default": "TCP"}, "name": {"type": "string"}}}},
            "args": {"type": "array", "items": {"type": "string"}},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "template": {"type": "object", "properties": {"image": {"type": "string"}, "tag": {"type": "string"}}},
        }},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}))
    .unwrap()
}

pub(super) struct One(pub(super) Schema);

impl Versions for One {
    fn shape(&self, api_version: &str) -> Option<Shape<'_>> {
        (api_version == "v1").then(|| Shape::of(&self.0))
    }

    fn convert(&self, object: &Value, _: &str) -> Value {
        object.clone()
    }
}

/// An object and the people who write it.
struct Story {
    versions: One,
    object: Value,
    hour: u32,
}

pub(super) fn manager(name: &str, operation: Operation) -> Manager {
    Manager { operation, name: name.into(), api_version: "v1".into(), subresource: String::new() }
}

pub(super) fn owned_by(mut object: Value, owners: Option<Value>) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("managedFields");
    if let Some(owners) = owners {
        metadata.insert("managedFields".into(), owners);
    }
    object
}

pub(super) fn whole(mut spec: Value) -> Value {
    spec["apiVersion"] = "v1".into();
    spec["kind"] = "Thing".into();
    spec["metadata"]["name"] = "one".into();
    spec
}

impl Story {
    fn begin() -> Story {
        Story { versions: One(schema()), object: whole(json!({})), hour: 0 }
    }

    fn now(&mut self) -> String {
        self.hour += 1;
        format!("2026-01-01T{:02}:00:00Z", self.hour)
    }

    fn try_apply(&mut self, name: &str, configuration: Value, force: bool) -> Result<bool, Vec<String>> {
        let (now, manager) = (self.now(), manager(name, Operation::Apply));
        let configuration = whole(configuration);
        let outcome = applied(
            &self.versions,
            &self.object,
            &configuration,
            &manager,
            &FieldSet::default(),
            force,
            &now,
        );
        match outcome {
            Ok(applied) => {
                let is_same = self.object == applied;
                self.object = applied;
                Ok(is_same)
            }
            Err(ApplyError::Conflicts(conflicts)) => Err(conflicts
                .named()
                .into_iter()
                .map(|conflict| format!("{} {}", conflict.manager.name, conflict.field))
                .collect()),
            Err(why) => Err(vec![why.to_string()]),
        }
    }

    #[track_caller]
    fn apply(&mut self, name: &str, configuration: Value) {
        self.try_apply(name, configuration, false).unwrap();
    }

    fn update(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut new = self.object.clone();
        change(&mut new);
        let now = self.now();
        let manager = manager(name, Operation::Update);
        let owners =
            updated(&self.versions, &self.object, &new, &manager, &FieldSet::default(), &now).unwrap();
        self.object = owned_by(new, owners);
    }

    fn fields(&self, name: &str) -> Value {
        let entries = self.object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let found = entries.into_iter().find(|entry| entry["manager"] == name);
        found.map_or(Value::Null, |entry| entry["fieldsV1"].clone())
    }
}

#[test]
fn what_is_applied_is_there_and_owned_and_identity_is_nobodys() {
    let mut story = Story::begin();
    story.apply(
        "a",
        json!({"metadata": {"labels": {"x": "1"}}, "spec": {"replicas": 1, "selector": {"k": "v"},
        "ports": [{"port": 80, "name": "web"}], "args": ["-v"]}}),
    );
    assert_eq!(
        story.fields("a"),
        json!({"f:metadata": {"f:labels": {"f:x": {}}},
            "f:spec": {"f:replicas": {}, "f:selector": {}, "f:args": {},
                "f:ports": {r#"k:{"port":80,"protocol":"TCP"}"#: {".": {}, "f:port": {}, "f:name": {}}}}})
    );
    assert_eq!(story.object["spec"]["ports"], json!([{"port": 80, "name": "web"}]));
}

#[test]
fn two_managers_own_different_fields_of_one_object_and_of_one_list() {
    let mut story = Story::begin();
    story.apply("a", json!({"spec": {"replicas": 1, "ports": [{"port": 80}, {"port": 443}]}}));
    story.apply("b", json!({"spec": {"paused": true, "ports": [{"port": 8080}]}}));
    assert_eq!(story.object["spec"]["ports"], json!([{"port": 80}, {"port": 443}, {"port": 8080}]));
    // Each takes back only its own.
    story.apply("a", json!({"spec": {"ports": [{"port": 443}]}}));
    assert_eq!(story.object["spec"], json!({"paused": true, "ports": [{"port": 443}, {"port": 8080}]}));
    story.apply("b", json!({}));
    assert_eq!(story.object["spec"], json!({"ports": [{"port": 443}]}));
    assert_eq!(story.fields("b"), Value::Null, "who owns nothing is forgotten");
    story.apply("a", json!({}));
    assert_eq!(story.object, whole(json!({})), "an object goes with its last field");
}

#[test]
fn who_wants_another_value_is_refused_unless_by_force() {
    let mut story = Story::begin();
    story.apply("a", json!({"spec": {"replicas": 1, "paused": true}}));
    let before = story.object.clone();
    let conflicts =
        story.try_apply("b", json!({"spec": {"replicas": 2, "paused": false}}), false).unwrap_err();
    assert_eq!(conflicts, ["a .spec.paused", "a .spec.replicas"]);
    assert_eq!(story.object, before);
    story.try_apply("b", json!({"spec": {"replicas": 2}}), true).unwrap();
    assert_eq!(story.object["spec"], json!({"replicas": 2, "paused": true}));
    assert_eq!(story.fields("a"), json!({"f:spec": {"f:paused": {}}}));
    // Who wants the same value owns it, too, and it goes only when both gave it up.
    story.apply("a", json!({"spec": {"replicas": 2, "paused": true}}));
    story.apply("b", json!({}));
    assert_eq!(story.object["spec"]["replicas"], 2);
    story.apply("a", json!({"spec": {"paused": true}}));
    assert_eq!(story.object["spec"], json!({"paused": true}));
}

#[test]
fn who_updates_takes_what_changes_and_loses_what_goes() {
    let mut story = Story::begin();
    story.apply("a", json!({"metadata": {"labels": {"x": "1", "y": "1"}}, "spec": {"replicas": 1}}));
    story.update("editor", |object| {
        object["spec"]["replicas"] = 5.into();
        object["metadata"]["labels"].as_object_mut().unwrap().remove("x");
        object["metadata"]["labels"]["z"] = "1".into();
    });
    assert_eq!(story.fields("a"), json!({"f:metadata": {"f:labels": {"f:y": {}}}}));
    assert_eq!(
        story.fields("editor"),
        json!({"f:metadata": {"f:labels": {"f:z": {}}}, "f:spec": {"f:replicas": {}}})
    );
    // The applier is at odds with the editor now, and says what it still owns without being.
    let wants = json!({"metadata": {"labels": {"x": "1", "y": "1"}}, "spec": {"replicas": 1}});
    assert_eq!(story.try_apply("a", wants, false).unwrap_err(), ["editor .spec.replicas"]);
    story.apply("a", json!({"metadata": {"labels": {"y": "2"}}}));
    assert_eq!(story.object["spec"]["replicas"], 5, "what another took stays when it is left out");
    assert_eq!(story.object["metadata"]["labels"], json!({"y": "2", "z": "1"}));
}

#[test]
fn a_list_without_keys_and_an_atomic_map_have_one_owner() {
    let mut story = Story::begin();
    story.apply("a", json!({"spec": {"args": ["1"], "selector": {"k": "v"}}}));
    let conflicts =
        story.try_apply("b", json!({"spec": {"args": ["1", "2"], "selector": {"k": "w"}}}), false);
    assert_eq!(conflicts.unwrap_err(), ["a .spec.args", "a .spec.selector"]);
    story.try_apply("b", json!({"spec": {"selector": {"l": "w"}}}), true).unwrap();
    assert_eq!(story.object["spec"]["selector"], json!({"l": "w"}), "replaced as a whole");
}

#[test]
fn sets_are_shared_element_by_element() {
    let mut story = Story::begin();
    story.apply("a", json!({"metadata": {"finalizers": ["x", "y"]}}));
    story.apply("b", json!({"metadata": {"finalizers": ["y", "z"]}}));
    assert_eq!(story.object["metadata"]["finalizers"], json!(["x", "y", "z"]));
    story.apply("a", json!({}));
    assert_eq!(story.object["metadata"]["finalizers"], json!(["y", "z"]));
}

#[test]
fn elements_keep_the_order_that_is_asked_for_and_others_their_place() {
    let mut story = Story::begin();
    story.apply("a", json!({"metadata": {"finalizers": ["1", "2", "3"]}}));
    story.apply("b", json!({"metadata": {"finalizers": ["3", "9", "1"]}}));
    assert_eq!(story.object["metadata"]["finalizers"], json!(["2", "3", "9", "1"]));
}

#[test]
fn the_same_again_changes_nothing_not_even_a_time() {
    let mut story = Story::begin();
    let wants = json!({"spec": {"replicas": 1, "ports": [{"port": 80}]}});
    story.apply("a", wants.clone());
    let before = story.object.clone();
    assert_eq!(story.try_apply("a", wants, false), Ok(true));
    assert_eq!(story.object, before);
}

#[test]
fn what_was_there_before_anybody_applied_belongs_to_somebody_else() {
    let mut story = Story::begin();
    story.object["spec"] = json!({"replicas": 3, "args": ["x"]});
    let conflicts = story.try_apply("a", json!({"spec": {"replicas": 1}}), false).unwrap_err();
    assert_eq!(conflicts, ["before-first-apply .spec.replicas"]);
    story.apply("a", json!({"spec": {"replicas": 3}}));
    assert_eq!(
        story.fields("before-first-apply"),
        json!({"f:spec": {".": {}, "f:args": {}, "f:replicas": {}}})
    );
}

#[test]
fn where_nothing_is_declared_every_member_is_owned() {
    let mut story = Story::begin();
    story.apply("a", json!({"status": {"anything": {"deep": 1}}}));
    assert_eq!(
        story.fields("a"),
        json!({"f:status": {"f:anything": {".": {}, "f:deep": {}}}}),
        "where nothing is declared, every member is one"
    );
}

#[test]
fn an_element_without_its_key_or_there_twice_is_refused() {
    let mut story = Story::begin();
    let before = story.object.clone();
    let why =
        story.try_apply("a", json!({"spec": {"ports": [{"name": "x"}, {"name": "y"}]}}), false).unwrap_err();
    assert!(why[0].contains(r#"duplicate entries for key [protocol="TCP"]"#), "{why:?}");
    let twice = json!({"spec": {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]}});
    let why = story.try_apply("a", twice, false).unwrap_err();
    assert!(why[0].contains("duplicate entries for key"), "{why:?}");
    assert_eq!(story.object, before);
}

#[test]
fn what_somebody_created_and_a_version_that_is_gone_are_told_apart() {
    let versions = One(schema());
    let new = whole(json!({"spec": {"replicas": 1}}));
    let by = manager("kubectl-create", Operation::Update);
    let owners = created(&versions, &new, &by, &FieldSet::default(), "2026-01-01T00:00:00Z").unwrap();
    let made = owned_by(new, owners);
    assert_eq!(
        made["metadata"]["managedFields"],
        json!([{"manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {".": {}, "f:replicas": {}}}}])
    );
    let mut story = Story { versions, object: made, hour: 1 };
    story.object["metadata"]["managedFields"][0]["apiVersion"] = "v0".into();
    story.apply("a", json!({"spec": {"replicas": 2}}));
    assert_eq!(story.fields("kubectl-create"), Value::Null);
}

#[test]
fn those_who_updated_long_ago_get_one_name() {
    let mut story = Story::begin();
    for n in 0..14 {
        story
            .update(&format!("m{n:02}"), |object| object["metadata"]["labels"][format!("l{n}")] = "x".into());
    }
    let entries = story.object["metadata"]["managedFields"].as_array().unwrap().clone();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    assert_eq!(entries[0]["fieldsV1"]["f:metadata"]["f:labels"].as_object().unwrap().len(), 6);
}

/// What the original's own library makes of the same writes: see `tests/clients/apply-vectors`.
#[test]
fn every_story_of_the_original_comes_out_the_same() {
    for (number, line) in include_str!("vectors.txt").lines().enumerate() {
        let steps: Vec<Value> = serde_json::from_str(line).unwrap();
        let mut story = Story::begin();
        for (at, step) in steps.iter().enumerate() {
            let place = format!("story {number}, step {at}: {step}");
            let name = step["manager"].as_str().unwrap();
            let before = story.object.clone();
            if step["op"] == "apply" {
                // The library knows no owner of what was there before; the API server does, and so do we.
                if at > 0 && Managers::read(&before).unwrap().0.is_empty() {
                    break;
                }
                let outcome = story.try_apply(name, step["given"].clone(), step["force"] == true);
                if let Some(expected) = step.get("conflicts") {
                    let mut found = outcome.expect_err(&place);
                    found.sort();
                    assert_eq!(json!(found), *expected, "{place}\nbefore {before}");
                    assert_eq!(story.object, before, "{place}");
                    continue;
                }
                outcome.unwrap_or_else(|why| panic!("{place}: {why:?}"));
            } else {
                let mut given = step["given"].clone();
                let managers = Managers::read(&before).unwrap();
                managers.write(&mut given);
                story.update(name, |object| *object = given);
            }
            let managers = Managers::read(&story.object).unwrap();
            let managers: BTreeMap<&str, Value> = managers
                .0
                .iter()
                .map(|(manager, owned)| (manager.name.as_str(), owned.fields.to_json()))
                .collect();
            let expected = step.get("managers").cloned().unwrap_or_else(|| json!({}));
            assert_eq!(json!(managers), expected, "{place}\nbefore {before}");
            let mut object = story.object.clone();
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            assert_eq!(
                without_nulls(object),
                without_nulls(step["object"].clone()),
                "{place}\nbefore {before}"
            );
        }
    }
}

/// An object or list that lost all it had is null in the original until it is decoded.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| (name, without_nulls(value)))
                .filter(|(_, value)| !value.is_null())
                .collect(),
        ),
        other => other,
    }
}

/// Each of these took the square of its length, which is minutes at this one.
#[test]
fn long_lists_are_checked_and_merged_in_time_that_grows_with_their_length() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"set": {"type": "array",
        "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}))
    .unwrap();
    let shape = Shape::of(&schema);
    let list = |from: usize| {
        let elements: Vec<String> = (from..from + 100_000).map(|n| format!("element-{n:09}")).collect();
        json!({"set": elements})
    };
    let (live, asked) = (list(0), list(1_000_000));
    assert_eq!(check(&asked, shape), Ok(()));
    let merged = merge(&live, &asked, shape).unwrap();
    assert_eq!(merged["set"].as_array().unwrap().len(), 200_000);
}

#[test]
fn many_managers_of_little_are_quick_to_compare_with_a_change_of_much() {
    let wide: FieldSet = {
        let mut set = FieldSet::default();
        (0..50_000).for_each(|n| set.insert(&[Step::field(&format!("k{n}"))]));
        set
    };
    let mut left = 0;
    for n in 0..5_000 {
        let mut narrow = FieldSet::default();
        narrow.insert(&[Step::field(&format!("k{n}"))]);
        narrow.insert(&[Step::field("other")]);
        assert!(!wide.intersection(&narrow).is_empty());
        left += narrow.difference(&wide).ways().len();
    }
    assert_eq!(left, 5_000);
}
