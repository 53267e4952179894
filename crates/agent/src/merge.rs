//! What a merge patch must say to turn one document into another.

use serde_json::{Map, Value};

/// Empty when there is nothing to change. What the old one has and the new one has not is
/// removed by a null.
pub fn merge_patch(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    for (field, value) in new {
        match old.get(field) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(field.clone(), merge_patch(before, value))),
            None => drop(patch.insert(field.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_says_what_changed_and_nothing_else() {
        let old = json!({"a": 1, "b": {"c": 2, "d": [1]}, "e": 3});
        let new = json!({"a": 1, "b": {"d": [2]}, "f": {"g": 4}});
        let expected = json!({"b": {"c": null, "d": [2]}, "e": null, "f": {"g": 4}});
        assert_eq!(merge_patch(&old, &new), expected);
        assert_eq!(merge_patch(&new, &new), json!({}));
    }
}
