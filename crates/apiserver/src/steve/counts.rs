//! How many objects there are of each type, as far as its reader may list and watch them: `/v1/counts`.
//!
//! Told from where objects are and never from what is in them: no object is read for it. So nothing is said of states
//! and errors, which the original counts too; a collection says them of each of its objects.

use std::collections::BTreeMap;

use http::{Method, request::Parts};
use serde_json::{Map, Value, json};

use super::{
    address::Address,
    kinds::{self, id_of},
    object::Base,
    rights::{Reach, Rights},
};
use crate::{
    ApiServer,
    cache::table::Snapshot,
    negotiate::Format,
    registry::Served,
    request::Verb,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// The type, and the only object of it.
pub const COUNT: &str = "count";
pub const COUNTS: &str = "counts";

impl ApiServer {
    pub(super) fn answer_counts(
        &self,
        parts: &Parts,
        address: &Address,
        base: &Base,
        rights: &Rights,
    ) -> Result<ApiResponse, ApiError> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let counts = kinds::all(&self.registry.catalogue())
            .into_iter()
            .filter_map(|served| Some((id_of(&served.kind), self.count(&served, rights)?)));
        let object = into_wire(base, counts.collect());
        let answer = match address.rest.as_slice() {
            [] => json!({
                "type": "collection", "resourceType": COUNT, "createTypes": {}, "actions": {}, "count": 1,
                "links": {"self": format!("{}{}/{COUNTS}", base.server, base.root)}, "data": [object],
            }),
            [id] if id == COUNT => object,
            _ => return Err(ApiError::unknown("there is no such count")),
        };
        Ok(respond::value(success::OK, Format::Json, &answer))
    }

    /// How many objects of a kind its reader may list and watch; `None` if they may not.
    pub(super) fn count(&self, served: &Served, rights: &Rights) -> Option<Value> {
        let kind = &served.kind;
        if !kind.verbs.are_kept() {
            return None;
        }
        let (listed, watched) = (rights.reach(Verb::List, kind), rights.reach(Verb::Watch, kind));
        if listed.is_nowhere() || watched.is_nowhere() {
            return None;
        }
        let (snapshot, _) = self.cache.snapshot(&served.resource);
        Some(summed(&snapshot, &listed, kind.namespaced()))
    }
}

/// The object that has all counts.
pub fn into_wire(base: &Base, counts: BTreeMap<String, Value>) -> Value {
    json!({
        "id": COUNT, "type": COUNT, "counts": counts,
        "links": {"self": format!("{}{}/{COUNTS}/{COUNT}", base.server, base.root)},
    })
}

/// The count of what is within reach, in all and by namespace. What is none is left out, as clients know it.
fn summed(snapshot: &Snapshot, reach: &Reach, namespaced: bool) -> Value {
    let is_within = |namespace: &str, name: &str| match reach {
        Reach::Everywhere => true,
        Reach::Namespaces(all) => all.binary_search_by(|one| one.as_str().cmp(namespace)).is_ok(),
        Reach::Names(all) => all.binary_search_by(|one| one.as_str().cmp(name)).is_ok(),
    };
    let mut all = 0_usize;
    let mut by_namespace: BTreeMap<&str, usize> = BTreeMap::new();
    for place in snapshot.keys() {
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        if is_within(namespace, name) {
            all += 1;
            *by_namespace.entry(namespace).or_default() += 1;
        }
    }
    let summary = |count: usize| if count == 0 { json!({}) } else { json!({"count": count}) };
    let mut counted = json!({"summary": summary(all)});
    if namespaced && all > 0 {
        let each = by_namespace.into_iter().map(|(namespace, count)| (namespace.to_owned(), summary(count)));
        counted["namespaces"] = Value::Object(each.collect::<Map<String, Value>>());
    }
    counted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::object::{self, CachedObject};

    fn table(places: &[&str]) -> Snapshot {
        let object = |place: &&str| {
            let text = object::encode(&json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}}));
            let object = CachedObject::decode((*place).into(), 1, &text).unwrap();
            (object.place.clone(), Arc::new(object))
        };
        places.iter().map(object).collect()
    }

    #[test]
    fn what_is_within_reach_is_counted_in_all_and_by_namespace() {
        let table = table(&["a/one", "a/two", "b/one", "c/one"]);
        assert_eq!(
            summed(&table, &Reach::Everywhere, true),
            json!({"summary": {"count": 4},
                "namespaces": {"a": {"count": 2}, "b": {"count": 1}, "c": {"count": 1}}})
        );
        let some = Reach::Namespaces(vec!["a".into(), "c".into()]);
        assert_eq!(
            summed(&table, &some, true),
            json!({"summary": {"count": 3}, "namespaces": {"a": {"count": 2}, "c": {"count": 1}}})
        );
        let none = Reach::Namespaces(vec!["d".into()]);
        assert_eq!(summed(&table, &none, true), json!({"summary": {}}));
    }

    #[test]
    fn what_has_no_namespace_is_counted_by_name() {
        let table = table(&["/n1", "/n2"]);
        assert_eq!(summed(&table, &Reach::Everywhere, false), json!({"summary": {"count": 2}}));
        let one = Reach::Names(vec!["n2".into()]);
        assert_eq!(summed(&table, &one, false), json!({"summary": {"count": 1}}));
    }
}
