//! Claims that a machine says are to be deleted: by their names, as clients write them, and bound to the claims that were
//! meant by the uid each had then.
//!
//! A claim that was deleted meanwhile and made anew under its name is another one, with somebody else's data on it. So a
//! name without a uid, or with another one's, has nothing deleted. The uids are the API server's to write, whatever a
//! client says; a controller may add one where there is none.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{EJECTED_CLAIMS_ANNOTATION, REMOVED_CLAIMS_ANNOTATION, VirtualMachine, names_in};

/// The uids of the claims that are noted to be deleted, by name: a JSON object.
pub const UIDS_ANNOTATION: &str = "sheaf.io/noted-claim-uids";

/// A claim that is to be deleted: that one, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedClaim {
    pub name: String,
    pub uid: String,
}

/// The uids that a machine's notes are bound to, by the names of the claims.
pub fn uids_of(vm: &VirtualMachine) -> BTreeMap<String, String> {
    parsed(vm.annotation(UIDS_ANNOTATION))
}

/// Binds the names that are new in `new`, and leaves those that were noted in `old` bound as they were. `uid_of` knows the
/// claims that are there. Of what `new` itself says, only what a controller adds counts.
pub fn bind(
    new: &mut Value,
    old: Option<&Value>,
    by_controller: bool,
    uid_of: &dyn Fn(&str) -> Option<String>,
) {
    let before = old.map(names).unwrap_or_default();
    let known = old.map(|old| parsed(annotation(old, UIDS_ANNOTATION))).unwrap_or_default();
    let said = parsed(annotation(new, UIDS_ANNOTATION));
    let mut bound = Map::new();
    for name in names(new) {
        let added = by_controller.then(|| said.get(&name).cloned()).flatten();
        let uid = match known.get(&name) {
            Some(uid) => Some(uid.clone()),
            None if before.contains(&name) => added,
            None => added.or_else(|| uid_of(&name)),
        };
        bound.extend(uid.map(|uid| (name, Value::from(uid))));
    }
    if !bound.is_empty() {
        if !new["metadata"]["annotations"].is_object() {
            new["metadata"]["annotations"] = Value::Object(Map::new());
        }
        new["metadata"]["annotations"][UIDS_ANNOTATION] = Value::Object(bound).to_string().into();
    } else if let Some(Value::Object(annotations)) = new.pointer_mut("/metadata/annotations") {
        annotations.remove(UIDS_ANNOTATION);
    }
}

fn names(vm: &Value) -> Vec<String> {
    let noted = [REMOVED_CLAIMS_ANNOTATION, EJECTED_CLAIMS_ANNOTATION];
    noted.into_iter().flat_map(|key| names_in(annotation(vm, key))).map(str::to_owned).collect()
}

fn annotation<'a>(vm: &'a Value, key: &str) -> &'a str {
    vm["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// What cannot be read binds nothing, and so has nothing deleted.
fn parsed(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vm(removed: &str, ejected: &str, uids: Value) -> Value {
        json!({"metadata": {"annotations": {REMOVED_CLAIMS_ANNOTATION: removed, EJECTED_CLAIMS_ANNOTATION: ejected,
            UIDS_ANNOTATION: uids.to_string()}}})
    }

    fn bound(mut new: Value, old: Option<&Value>, by_controller: bool, there: &[(&str, &str)]) -> Value {
        let there: BTreeMap<&str, &str> = there.iter().copied().collect();
        bind(&mut new, old, by_controller, &|name| there.get(name).map(|uid| (*uid).to_owned()));
        match new["metadata"]["annotations"].get(UIDS_ANNOTATION) {
            Some(text) => serde_json::from_str(text.as_str().unwrap()).unwrap(),
            None => Value::Null,
        }
    }

    #[test]
    fn a_name_is_bound_to_the_claim_that_has_it_when_it_is_noted() {
        let there = [("a", "1"), ("b", "2"), ("other", "3")];
        assert_eq!(bound(vm("a,gone", "b", json!({})), None, false, &there), json!({"a": "1", "b": "2"}));
        let mut bare = json!({"metadata": {"name": "vm"}});
        bind(&mut bare, None, false, &|_| Some("1".into()));
        assert_eq!(bare, json!({"metadata": {"name": "vm"}}));
    }

    #[test]
    fn a_name_that_is_noted_stays_bound_to_the_claim_it_was_bound_to() {
        let old = vm("a,late", "", json!({"a": "1"}));
        let there = [("a", "9"), ("late", "9"), ("b", "2")];
        assert_eq!(
            bound(vm("a,late", "b", json!({})), Some(&old), false, &there),
            json!({"a": "1", "b": "2"})
        );
        assert_eq!(bound(vm("", "b", json!({"a": "1"})), Some(&old), false, &there), json!({"b": "2"}));
        assert_eq!(bound(vm("", "", json!({"a": "1"})), Some(&old), false, &there), Value::Null);
        // Whoever takes it back and notes it again means the one that is there now.
        let without = vm("", "", json!({}));
        assert_eq!(bound(vm("a", "", json!({})), Some(&without), false, &there), json!({"a": "9"}));
    }

    #[test]
    fn nobody_but_a_controller_binds_a_name_and_it_only_where_there_was_nothing() {
        let old = vm("a,late", "", json!({"a": "1"}));
        let said = json!({"a": "5", "late": "6", "more": "7"});
        assert_eq!(bound(vm("a,late", "", said.clone()), Some(&old), false, &[]), json!({"a": "1"}));
        assert_eq!(bound(vm("a,late", "", said), Some(&old), true, &[]), json!({"a": "1", "late": "6"}));
        assert_eq!(bound(vm("x", "", json!({"x": "5"})), None, false, &[]), Value::Null);
        let unreadable =
            json!({"metadata": {"annotations": {REMOVED_CLAIMS_ANNOTATION: "a", UIDS_ANNOTATION: "{"}}});
        assert_eq!(bound(unreadable.clone(), Some(&unreadable), false, &[("a", "1")]), Value::Null);
    }
}
