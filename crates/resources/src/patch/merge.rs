//! JSON merge patch (RFC 7386): objects merge, null deletes, everything else replaces.
//!
//! One step beyond the RFC, because the original takes it: nulls inside objects inside a
//! list are dropped too. (It forgets to where the list takes the place of an object, and so
//! gives another result the second time; we do not.)

use serde_json::{Map, Value};

use super::{PatchError, json_kind};

pub fn apply(document: Value, patch: Value) -> Result<Value, PatchError> {
    match patch {
        Value::Object(patch) => Ok(merged(document, patch)),
        Value::Null => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        other => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_kind(&other)
        ))),
    }
}

fn merged(document: Value, patch: Map<String, Value>) -> Value {
    let mut object = match document {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    for (key, wanted) in patch {
        let value = match wanted {
            Value::Null => {
                object.remove(&key);
                continue;
            }
            Value::Object(wanted) => merged(object.remove(&key).unwrap_or_default(), wanted),
            other => without_nulls(other),
        };
        object.insert(key, value);
    }
    Value::Object(object)
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => Value::Object(
            object
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(key, value)| (key, without_nulls(value)))
                .collect(),
        ),
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (document, patch, wanted) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
            (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
        ] {
            assert_eq!(apply(document, patch).unwrap(), wanted);
        }
    }

    #[test]
    fn nulls_in_lists_of_objects_are_dropped() {
        assert_eq!(apply(json!({}), json!({"a": [{"b": null}, null]})).unwrap(), json!({"a": [{}, null]}));
    }

    #[test]
    fn what_is_no_object_is_a_bad_request() {
        assert_eq!(apply(json!({}), Value::Null).unwrap_err().to_string(), "Invalid JSON Patch");
        assert_eq!(
            apply(json!({}), json!([])).unwrap_err().to_string(),
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }

    fn an_object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3i64).prop_map(Value::from)];
        let value = leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[abc]", value, 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_crate_where_lists_hold_no_nulls(document in an_object(), patch in an_object()) {
            let mut wanted = document.clone();
            json_patch::merge(&mut wanted, &patch);
            prop_assert_eq!(without_nulls(apply(document, patch).unwrap()), without_nulls(wanted));
        }

        #[test]
        fn applying_twice_changes_nothing_more(document in an_object(), patch in an_object()) {
            let once = apply(document, patch.clone()).unwrap();
            prop_assert_eq!(apply(once.clone(), patch).unwrap(), once);
        }
    }
}
