//! Strategic merge patches, directive by directive, and against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::patch::strategies::for_kind;

fn pod() -> &'static Fields {
    for_kind("", "Pod").unwrap()
}

fn patched(document: Value, patch: Value) -> Value {
    apply(document, patch, pod()).unwrap()
}

fn refusal(document: Value, patch: Value) -> PatchError {
    apply(document, patch, pod()).unwrap_err()
}

fn containers(list: Value) -> Value {
    json!({"spec": {"containers": list}})
}

#[test]
fn a_list_element_is_found_by_its_key_and_merged() {
    let document = containers(json!([{"name": "a", "image": "x", "tty": true}, {"name": "b", "image": "y"}]));
    assert_eq!(
        patched(document, containers(json!([{"name": "b", "image": "z"}]))),
        containers(json!([{"name": "a", "image": "x", "tty": true}, {"name": "b", "image": "z"}]))
    );
}

#[test]
fn a_new_element_stands_before_those_the_patch_does_not_name() {
    let document = containers(json!([{"name": "a"}, {"name": "b"}]));
    assert_eq!(
        patched(document, containers(json!([{"name": "c", "image": null}]))),
        containers(json!([{"name": "c"}, {"name": "a"}, {"name": "b"}]))
    );
}

#[test]
fn nested_lists_merge_too() {
    let document = containers(json!([{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y"}]}]));
    let patch = containers(
        json!([{"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "$patch": "delete"}]}]),
    );
    assert_eq!(
        patched(document, patch),
        containers(json!([{"name": "a", "env": [{"name": "X", "value": "2"}]}]))
    );
}

#[test]
fn delete_removes_every_element_with_the_key() {
    let document = containers(json!([{"name": "a"}, {"name": "b"}, {"name": "a"}]));
    assert_eq!(
        patched(document, containers(json!([{"$patch": "delete", "name": "a"}]))),
        containers(json!([{"name": "b"}]))
    );
}

#[test]
fn replace_takes_the_rest_of_the_list_as_it_is() {
    let document = containers(json!([{"name": "a", "image": "x"}, {"name": "b"}]));
    assert_eq!(
        patched(document, containers(json!([{"$patch": "replace"}, {"name": "a"}]))),
        containers(json!([{"name": "a"}]))
    );
}

#[test]
fn an_object_can_be_replaced_and_emptied() {
    let document = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeSelector": {"x": "y"}}});
    let patch = json!({
        "metadata": {"labels": {"$patch": "replace", "b": "2"}},
        "spec": {"nodeSelector": {"$patch": "delete"}},
    });
    assert_eq!(
        patched(document, patch),
        json!({"metadata": {"labels": {"b": "2"}}, "spec": {"nodeSelector": {}}})
    );
}

#[test]
fn null_deletes_and_an_absent_null_leaves_no_trace() {
    let document = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let patch = json!({"metadata": {"labels": {"a": null, "z": null}, "annotations": {"n": null, "k": "v"}}});
    assert_eq!(
        patched(document, patch),
        json!({"metadata": {"labels": {"b": "2"}, "annotations": {"k": "v"}}})
    );
}

#[test]
fn retained_keys_drop_the_other_choices() {
    let document = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"spec": {"volumes": [
        {"$retainKeys": ["name", "secret"], "name": "v", "secret": {"secretName": "s"}}
    ]}});
    assert_eq!(
        patched(document.clone(), patch),
        json!({"spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}})
    );
    let patch = json!({"spec": {"volumes": [{"$retainKeys": ["name"], "name": "v", "secret": {}}]}});
    assert_eq!(
        refusal(document, patch),
        PatchError::Malformed("invalid patch format of retainKeys".to_owned())
    );
}

#[test]
fn finalizers_are_a_set() {
    let document = json!({"metadata": {"finalizers": ["a", "b"]}});
    assert_eq!(
        patched(document.clone(), json!({"metadata": {"finalizers": ["b", "c"]}})),
        json!({"metadata": {"finalizers": ["a", "b", "c"]}})
    );
    assert_eq!(
        patched(document, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "x"]}})),
        json!({"metadata": {"finalizers": ["b"]}})
    );
}

#[test]
fn a_list_without_a_strategy_is_replaced() {
    let document = json!({"spec": {"tolerations": [{"key": "a"}, {"key": "b"}]}});
    assert_eq!(
        patched(document, json!({"spec": {"tolerations": [{"key": "c"}]}})),
        json!({"spec": {"tolerations": [{"key": "c"}]}})
    );
}

#[test]
fn an_order_list_decides_where_elements_stand() {
    let document = containers(json!([{"name": "a"}, {"name": "server"}, {"name": "b"}]));
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
        "containers": [{"name": "new", "image": "n"}],
    }});
    assert_eq!(
        patched(document, patch),
        containers(json!([{"name": "server"}, {"name": "b"}, {"name": "new", "image": "n"}, {"name": "a"}]))
    );
}

#[test]
fn an_order_list_must_hold_what_the_patch_names() {
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}],
        "containers": [{"name": "b"}],
    }});
    assert_eq!(
        refusal(containers(json!([{"name": "a"}])), patch).to_string(),
        "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n"
    );
}

#[test]
fn owner_references_are_found_by_uid() {
    let document =
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "a"}, {"uid": "2", "name": "b"}]}});
    let patch = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}});
    assert_eq!(
        patched(document, patch),
        json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "b"}]}})
    );
}

#[test]
fn errors_are_divided_and_worded_as_in_the_original() {
    let one = containers(json!([{"name": "a"}]));
    for (patch, error) in [
        (
            json!([]),
            PatchError::Malformed(
                "json: cannot unmarshal array into Go value of type map[string]interface {}".into(),
            ),
        ),
        (
            containers(json!([{"image": "x"}])),
            PatchError::CannotMerge("map: map[image:x] does not contain declared merge key: name".into()),
        ),
        (
            containers(json!([{"name": "a", "$patch": "merge"}])),
            PatchError::CannotMerge("merging lists cannot yet be specified in the patch".into()),
        ),
        (
            json!({"spec": {"$patch": "melt", "a": [1, true]}}),
            PatchError::CannotMerge("unknown patch type: melt in map: map[$patch:melt a:[1 true]]".into()),
        ),
        (
            containers(json!(["x"])),
            PatchError::CannotMerge("list element types are not identical: [[map[name:a]] [x]]".into()),
        ),
        (
            json!({"spec": {"$setElementOrder": []}}),
            PatchError::Malformed("invalid patch format of setElementOrder list".into()),
        ),
        (
            json!({"spec": {"$deleteFromPrimitiveList": []}}),
            PatchError::Malformed("invalid patch format of primitive list".into()),
        ),
    ] {
        assert_eq!(refusal(one.clone(), patch.clone()), error, "{patch}");
    }
    assert_eq!(
        refusal(json!({"metadata": {"finalizers": [["x"]]}}), json!({"metadata": {"finalizers": [["y"]]}})),
        PatchError::DoesNotApply("lists of lists are not supported".into())
    );
}

#[test]
fn no_directive_survives_inside_new_values() {
    let patch = containers(json!([{
        "name": "a", "$retainKeys": ["name"],
        "env": [{"name": "X", "$patch": "delete"}, {"name": "Y"}],
        "$setElementOrder/env": [{"name": "Y"}],
    }]));
    let wanted = containers(json!([{"name": "a", "env": [{"name": "Y"}]}]));
    assert_eq!(patched(json!({}), patch.clone()), wanted);
    assert_eq!(patched(containers(json!([])), patch), wanted);
}

#[test]
fn large_lists_merge_in_reasonable_time() {
    let list =
        |from: usize| -> Value { (from..from + 20_000).map(|n| json!({"name": n.to_string()})).collect() };
    let merged = patched(containers(list(0)), containers(list(10_000)));
    assert_eq!(merged["spec"]["containers"].as_array().unwrap().len(), 30_000);
}

/// A document with a list of each strategy, two levels deep.
fn a_document() -> impl Strategy<Value = Value> {
    let text = "[xyz]";
    let env = prop::collection::btree_map("[A-D]", prop::option::of(text), 0..4).prop_map(|env| {
        env.into_iter()
            .map(|(name, value)| match value {
                Some(value) => json!({"name": name, "value": value}),
                None => json!({"name": name}),
            })
            .collect::<Vec<_>>()
    });
    let container = (prop::option::of(text), prop::option::of(env.prop_shuffle()));
    let containers = prop::collection::btree_map("[a-e]", container, 0..5).prop_map(|containers| {
        containers
            .into_iter()
            .map(|(name, (image, env))| {
                let mut container = json!({"name": name});
                if let Some(image) = image {
                    container["image"] = json!(image);
                }
                if let Some(env) = env {
                    container["env"] = Value::Array(env);
                }
                container
            })
            .collect::<Vec<_>>()
    });
    let finalizers = prop::collection::btree_set("[a-e]", 0..5)
        .prop_map(|set| set.into_iter().map(Value::from).collect::<Vec<_>>());
    let labels = prop::collection::btree_map("[a-c]", text, 0..3);
    let tolerations = prop::collection::vec(text, 0..3);
    (
        prop::option::of(containers.prop_shuffle()),
        prop::option::of(finalizers.prop_shuffle()),
        prop::option::of(labels),
        prop::option::of(tolerations),
    )
        .prop_map(|(containers, finalizers, labels, tolerations)| {
            let mut metadata = Map::new();
            let mut spec = Map::new();
            finalizers.map(|list| metadata.insert("finalizers".to_owned(), list.into()));
            labels.map(|labels: BTreeMap<_, _>| metadata.insert("labels".to_owned(), json!(labels)));
            containers.map(|list| spec.insert("containers".to_owned(), list.into()));
            tolerations.map(|list| spec.insert("tolerations".to_owned(), json!(list)));
            json!({"metadata": metadata, "spec": spec})
        })
}

/// The patch a client would send, made in the dullest way.
fn difference(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    fields: &Fields,
) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, wanted) in after {
        let Some(present) = before.get(name) else {
            patch.insert(name.clone(), wanted.clone());
            continue;
        };
        if present == wanted {
            continue;
        }
        match (fields.field(name), present, wanted) {
            (Some(Field::MergeByKey { key, element, .. }), Value::Array(present), Value::Array(wanted)) => {
                let find =
                    |list: &[Value], item: &Value| list.iter().find(|other| other[key] == item[key]).cloned();
                let mut list = Vec::new();
                for item in wanted {
                    let Some(old) = find(present, item) else {
                        list.push(item.clone());
                        continue;
                    };
                    if old != *item {
                        let mut change =
                            difference(old.as_object().unwrap(), item.as_object().unwrap(), element);
                        change.insert(key.to_owned(), item[key].clone());
                        list.push(Value::Object(change));
                    }
                }
                for gone in present.iter().filter(|item| find(wanted, item).is_none()) {
                    list.push(json!({"$patch": "delete", key: gone[key]}));
                }
                let order: Vec<Value> = wanted.iter().map(|item| json!({key: item[key]})).collect();
                patch.insert(name.clone(), list.into());
                patch.insert(format!("$setElementOrder/{name}"), order.into());
            }
            (Some(Field::MergeSet), Value::Array(present), Value::Array(wanted)) => {
                let only = |a: &[Value], b: &[Value]| -> Value {
                    a.iter().filter(|item| !b.contains(item)).cloned().collect()
                };
                patch.insert(name.clone(), only(wanted, present));
                patch.insert(format!("$deleteFromPrimitiveList/{name}"), only(present, wanted));
                patch.insert(format!("$setElementOrder/{name}"), wanted.clone().into());
            }
            (field, Value::Object(present), Value::Object(wanted)) => {
                let fields = match field {
                    Some(Field::Object(fields)) => fields,
                    _ => &PLAIN,
                };
                patch.insert(name.clone(), Value::Object(difference(present, wanted, fields)));
            }
            _ => _ = patch.insert(name.clone(), wanted.clone()),
        }
    }
    patch
}

fn any_patch() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!("replace")),
        Just(json!("delete")),
        Just(json!("a")),
        Just(json!(1)),
        Just(json!([[]])),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "spec",
        "finalizers",
        "containers",
        "name",
        "env",
        "$patch",
        "$retainKeys",
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
        "$deleteFromPrimitiveList/containers",
        "$setElementOrder",
        "labels",
    ]);
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..4).prop_map(|map| {
                Value::Object(map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

fn holds_directive(value: &Value) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(name, value)| name.starts_with('$') || holds_directive(value))
        }
        Value::Array(list) => list.iter().any(holds_directive),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_difference_applied_gives_the_other_document(before in a_document(), after in a_document()) {
        let patch = difference(before.as_object().unwrap(), after.as_object().unwrap(), pod());
        prop_assert_eq!(apply(before, Value::Object(patch), pod()).unwrap(), after);
    }

    #[test]
    fn a_difference_applied_twice_gives_it_still(before in a_document(), after in a_document()) {
        let patch = Value::Object(difference(before.as_object().unwrap(), after.as_object().unwrap(), pod()));
        let once = apply(before, patch.clone(), pod()).unwrap();
        prop_assert_eq!(apply(once, patch, pod()).unwrap(), after);
    }

    #[test]
    fn no_patch_makes_it_panic_and_no_directive_is_left(document in a_document(), patch in any_patch()) {
        if let Ok(merged) = apply(document, patch, pod()) {
            prop_assert!(!holds_directive(&merged), "{merged}");
        }
    }
}
