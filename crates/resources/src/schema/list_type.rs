//! Lists that are sets or maps: no two members, or no two members' keys, may be equal.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::trail::Trail;
use super::{Additional, Schema};
use crate::field_error::{FieldError, FieldPath};

/// Every second appearance of a member that must be unique.
pub(super) fn validate(value: &Value, schema: &Schema, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &Trail::Root, &mut Finder { base: path, errors: &mut errors });
    errors
}

struct Finder<'a> {
    base: &'a FieldPath,
    errors: &'a mut Vec<FieldError>,
}

fn walk(value: &Value, schema: &Schema, at: &Trail<'_>, finder: &mut Finder<'_>) {
    match value {
        Value::Object(map) => {
            let mut names: Vec<&String> = map.keys().collect();
            names.sort_unstable();
            for name in names {
                let Some(value) = map.get(name) else { continue };
                if let Some(inner) = schema.properties.get(name) {
                    walk(value, inner, &Trail::Field(at, name), finder);
                } else if let Some(Additional::Schema(inner)) = &schema.additional_properties {
                    walk(value, inner, &Trail::Entry(at, name), finder);
                }
            }
        }
        Value::Array(list) => {
            match schema.list_type() {
                Some("set") => repeated(list.iter().cloned(), at, finder),
                Some("map") => check_map(list, schema, at, finder),
                _ => {}
            }
            if let Some(items) = &schema.items {
                for (index, item) in list.iter().enumerate() {
                    walk(item, items, &Trail::Element(at, index), finder);
                }
            }
        }
        _ => {}
    }
}

fn check_map(list: &[Value], schema: &Schema, at: &Trail<'_>, finder: &mut Finder<'_>) {
    if let Some(index) = list.iter().position(|item| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        let here = Trail::Element(at, index).path(finder.base);
        finder.errors.push(FieldError::invalid(&here, list[index].clone(), detail));
        return;
    }
    let keys = list.iter().map(|item| {
        let of = |key: &str| item.get(key).map(|value| (key.to_owned(), value.clone()));
        Value::Object(schema.list_map_keys().iter().filter_map(|key| of(key)).collect::<Map<_, _>>())
    });
    repeated(keys, at, finder);
}

fn repeated(members: impl Iterator<Item = Value>, at: &Trail<'_>, finder: &mut Finder<'_>) {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, member) in members.enumerate() {
        let times = seen.entry(canonical(&member)).or_default();
        *times += 1;
        // Only the second appearance is told, however many follow.
        if *times == 2 {
            let here = Trail::Element(at, index).path(finder.base);
            finder.errors.push(FieldError::duplicate(&here, member));
        }
    }
}

/// JSON with sorted keys: equal values have equal texts.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<String> =
                map.iter().map(|(name, value)| format!("{name:?}:{}", canonical(value))).collect();
            fields.sort_unstable();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(list) => {
            let items: Vec<String> = list.iter().map(canonical).collect();
            format!("[{}]", items.join(","))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(list: Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"l": list}});
        let schema = Schema::parse(&schema).unwrap();
        validate(&json!({"l": value}), &schema, &FieldPath::root()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_set_has_no_equal_members() {
        let set = json!({"type": "array", "x-kubernetes-list-type": "set"});
        assert!(errors(set.clone(), json!(["a", "b", 1])).is_empty());
        assert_eq!(errors(set.clone(), json!(["a", "b", "a", "a"])), [r#"l[2]: Duplicate value: "a""#]);
        assert_eq!(
            errors(set, json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}])),
            [r#"l[1]: Duplicate value: {"a":1,"b":2}"#]
        );
    }

    #[test]
    fn a_map_list_has_no_equal_keys() {
        let map = json!({"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "port"]});
        assert!(errors(map.clone(), json!([{"name": "a", "port": 1}, {"name": "a", "port": 2}])).is_empty());
        assert_eq!(
            errors(map.clone(), json!([{"name": "a", "port": 1, "x": 1}, {"port": 1, "name": "a", "x": 2}])),
            [r#"l[1]: Duplicate value: {"name":"a","port":1}"#]
        );
        assert_eq!(errors(map.clone(), json!([{}, {}])), ["l[1]: Duplicate value: {}"]);
        assert_eq!(
            errors(map, json!(["x"])),
            [r#"l[0]: Invalid value: "x": must be an object for an array of list-type map"#]
        );
    }
}
