//! JSON patch (RFC 6902), through the `json-patch` crate, one operation at a time.
//!
//! The original's library differs from the RFC in ways that clients lean on, so we differ
//! too: `replace` also sets a key that is absent, `test` and `copy` find null where nothing
//! is, and the whole document can be replaced or tested but not added, moved or copied.
//! Its negative array indices are deliberately absent: nothing but chance ever used them.

use json_patch::{
    AddOperation, CopyOperation, MoveOperation, PatchOperation, RemoveOperation, ReplaceOperation,
    TestOperation,
    jsonptr::{Pointer, PointerBuf},
};
use serde_json::Value;

use super::{PatchError, json_kind};

pub const MAX_OPERATIONS: usize = 10_000;

/// What all copies of one patch may add together: a few operations that each copy the
/// last one's result would otherwise double the document until memory is gone.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// A patch, read once and applied as often as a lost compare-and-swap demands.
#[derive(Clone, Debug)]
pub struct JsonPatch(Vec<Operation>);

#[derive(Clone, Debug)]
struct Operation {
    op: String,
    path: String,
    from: String,
    value: Value,
}

impl JsonPatch {
    /// Looks only at the shape. An operation that does not exist or lacks its path is
    /// found out when it is applied, as in the original.
    pub fn read(patch: &Value) -> Result<Self, PatchError> {
        let malformed = |value: &Value, what: &str| {
            PatchError::Malformed(format!(
                "error decoding patch: json: cannot unmarshal {} into Go {what}",
                json_kind(value)
            ))
        };
        let Value::Array(operations) = patch else {
            return Err(malformed(patch, "value of type []handlers.jsonPatchOp"));
        };
        if operations.len() > MAX_OPERATIONS {
            return Err(PatchError::TooLarge(format!(
                "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            )));
        }
        let text = |operation: &Value, field: &str| match operation.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(malformed(other, &format!("struct field jsonPatchOp.{field} of type string"))),
        };
        let operations: Result<Vec<_>, _> = operations
            .iter()
            .map(|operation| {
                if !operation.is_object() {
                    return Err(malformed(operation, "value of type handlers.jsonPatchOp"));
                }
                Ok(Operation {
                    op: text(operation, "op")?,
                    path: text(operation, "path")?,
                    from: text(operation, "from")?,
                    value: operation.get("value").cloned().unwrap_or_default(),
                })
            })
            .collect();
        operations.map(JsonPatch)
    }

    pub fn apply(&self, mut document: Value) -> Result<Value, PatchError> {
        let mut copied_bytes = 0;
        for operation in &self.0 {
            operation.apply(&mut document, &mut copied_bytes).map_err(PatchError::DoesNotApply)?;
        }
        Ok(document)
    }
}

impl Operation {
    fn apply(&self, document: &mut Value, copied_bytes: &mut usize) -> Result<(), String> {
        let path = pointer(&self.op, &self.path)?;
        let value = self.value.clone();
        let step = match self.op.as_str() {
            "add" => PatchOperation::Add(AddOperation { path: below_root(path)?, value }),
            "remove" => PatchOperation::Remove(RemoveOperation { path }),
            "replace" if is_absent_key(document, &path) => PatchOperation::Add(AddOperation { path, value }),
            "replace" if path.is_root() && !value.is_object() && !value.is_array() => {
                return Err("replace operation value must be object or array".to_owned());
            }
            "replace" => PatchOperation::Replace(ReplaceOperation { path, value }),
            "test" if value.is_null() && is_absent_key(document, &path) => return Ok(()),
            "test" => PatchOperation::Test(TestOperation { path, value }),
            "move" => PatchOperation::Move(MoveOperation {
                from: below_root(pointer("move", &self.from)?)?,
                path: below_root(path)?,
            }),
            "copy" => {
                let from = below_root(pointer("copy", &self.from)?)?;
                if is_absent_key(document, &from) {
                    let step = AddOperation { path: below_root(path)?, value: Value::Null };
                    return apply_one(document, PatchOperation::Add(step));
                }
                if let Some(source) = document.pointer(from.as_str()) {
                    *copied_bytes += source.to_string().len();
                }
                if *copied_bytes > MAX_COPIED_BYTES {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is \
                         {copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}"
                    ));
                }
                PatchOperation::Copy(CopyOperation { from, path: below_root(path)? })
            }
            other => return Err(format!("Unexpected kind: {other}")),
        };
        apply_one(document, step)
    }
}

/// Whether the path names a key that an object which is there does not have.
fn is_absent_key(document: &Value, path: &Pointer) -> bool {
    let Some((parent, key)) = path.split_back() else { return false };
    match document.pointer(parent.as_str()) {
        Some(Value::Object(parent)) => !parent.contains_key(key.decoded().as_ref()),
        _ => false,
    }
}

fn apply_one(document: &mut Value, step: PatchOperation) -> Result<(), String> {
    json_patch::patch_unsafe(document, &[step]).map_err(|error| error.to_string())
}

fn pointer(op: &str, path: &str) -> Result<PointerBuf, String> {
    PointerBuf::parse(path)
        .map_err(|_| format!("{op} operation does not apply: doc is missing path: \"{path}\": missing value"))
}

fn below_root(path: PointerBuf) -> Result<PointerBuf, String> {
    if path.is_root() {
        Err("the whole document cannot be added, moved or copied".to_owned())
    } else {
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(document: Value, patch: Value) -> Result<Value, PatchError> {
        JsonPatch::read(&patch)?.apply(document)
    }

    #[test]
    fn operations_happen_in_order() {
        let patch = json!([
            {"op": "test", "path": "/a", "value": 1},
            {"op": "replace", "path": "/a", "value": 2},
            {"op": "add", "path": "/list/-", "value": "z"},
            {"op": "add", "path": "/list/0", "value": "a"},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "move", "from": "/list/1", "path": "/moved"},
            {"op": "remove", "path": "/a"},
            {"op": "add", "path": "/x~1y", "value": true},
        ]);
        assert_eq!(
            patched(json!({"a": 1, "list": ["m"]}), patch).unwrap(),
            json!({"b": 2, "list": ["a", "z"], "moved": "m", "x/y": true})
        );
    }

    #[test]
    fn replace_also_sets_an_absent_key_but_not_under_an_absent_parent() {
        let replace = |path: &str| json!([{"op": "replace", "path": path, "value": 1}]);
        assert_eq!(patched(json!({}), replace("/a")).unwrap(), json!({"a": 1}));
        assert!(matches!(patched(json!({}), replace("/a/b")), Err(PatchError::DoesNotApply(_))));
        assert!(matches!(patched(json!({"l": []}), replace("/l/0")), Err(PatchError::DoesNotApply(_))));
    }

    #[test]
    fn a_test_finds_null_where_nothing_is() {
        let test = |value: Value| json!([{"op": "test", "path": "/a", "value": value}]);
        assert!(patched(json!({}), test(Value::Null)).is_ok());
        assert!(matches!(patched(json!({}), test(json!(1))), Err(PatchError::DoesNotApply(_))));
        assert!(matches!(patched(json!({"a": 2}), test(json!(1))), Err(PatchError::DoesNotApply(_))));
    }

    #[test]
    fn what_is_no_patch_is_a_bad_request() {
        for (patch, words) in [
            (
                json!({}),
                "error decoding patch: json: cannot unmarshal object into Go value of type \
                 []handlers.jsonPatchOp",
            ),
            (
                json!([{"op": "add", "path": 7}]),
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of \
                 type string",
            ),
        ] {
            assert_eq!(patched(json!({}), patch).unwrap_err(), PatchError::Malformed(words.to_owned()));
        }
    }

    #[test]
    fn what_does_not_fit_the_document_is_invalid() {
        for patch in [
            json!([{"op": "remove", "path": "/gone"}]),
            json!([{"op": "add", "path": "/gone/a", "value": 1}]),
            json!([{"op": "add", "path": "no-slash", "value": 1}]),
            json!([{"op": "add", "path": "", "value": {}}]),
            json!([{"op": "copy", "from": "", "path": "/a"}]),
            json!([{"op": "move", "from": "/gone", "path": "/a"}]),
            json!([{"op": "frob", "path": "/a"}]),
            json!([{"op": "replace", "path": "", "value": 7}]),
            json!([{}]),
        ] {
            assert!(matches!(patched(json!({}), patch.clone()), Err(PatchError::DoesNotApply(_))), "{patch}");
        }
    }

    #[test]
    fn ten_thousand_operations_are_the_most() {
        let operation = json!({"op": "test", "path": "/a", "value": 1});
        let many = |count: usize| Value::Array(vec![operation.clone(); count]);
        assert!(patched(json!({"a": 1}), many(MAX_OPERATIONS)).is_ok());
        assert_eq!(
            patched(json!({"a": 1}), many(MAX_OPERATIONS + 1)).unwrap_err(),
            PatchError::TooLarge(
                "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()
            )
        );
    }

    #[test]
    fn copies_of_copies_stop_before_memory_does() {
        let doubling: Vec<Value> =
            (0..64).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
        let refused = patched(json!({"a": ["0123456789"]}), Value::Array(doubling)).unwrap_err();
        assert!(refused.to_string().starts_with("Unable to complete the copy"), "{refused}");
    }

    fn a_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3i64).prop_map(Value::from), Just(json!("s"))];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_patch_makes_it_panic(
            document in a_value(),
            operations in prop::collection::vec(
                (prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", ""]),
                 "(/([ab]|-?[0-2]|-|~1|~)){0,3}|x", "(/[ab01]){0,3}", a_value()),
                0..4),
        ) {
            let patch: Vec<Value> = operations
                .into_iter()
                .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
                .collect();
            let _ = patched(document, Value::Array(patch));
        }

        #[test]
        fn a_difference_applied_gives_the_other_document(before in a_value(), after in a_value()) {
            // Below a root that stays, since a document never becomes a scalar.
            let (before, after) = (json!({"root": before}), json!({"root": after}));
            let patch = serde_json::to_value(json_patch::diff(&before, &after)).unwrap();
            prop_assert_eq!(patched(before, patch).unwrap(), after);
        }
    }
}
