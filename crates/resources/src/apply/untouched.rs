//! The owners of an object after a write that moves nothing from one to another: as they were, but for a time.
//!
//! Most writes are so: a controller writes anew what it wrote before. Such owners need not be made sets of fields and
//! written again, which takes several times as long as all the rest of a small write. What changed is looked for in
//! them as they are.

use serde_json::{Map, Value};

use super::{
    engine::unowned,
    field_set::{FieldSet, ITSELF},
    managers::{MOST_UPDATE_MANAGERS, Manager, Operation, order},
    step::Step,
    typed::Comparison,
};

/// The owners after `manager` made `changes`; `None` where that takes a closer look. `entries` are as they were
/// written here.
pub(super) fn owners(
    entries: &[Value],
    changes: &Comparison,
    manager: &Manager,
    now: &str,
) -> Option<Vec<Value>> {
    let given = changes.added.clone().union(&changes.modified).difference(unowned());
    if ![&given, &changes.removed].into_iter().all(is_found_by_text) {
        return None;
    }
    let mut own = None;
    let mut updates = 0;
    let touched = [&given, &changes.removed];
    for (index, entry) in entries.iter().enumerate() {
        // What is said in another version is compared in that version.
        if entry["fieldsType"] != "FieldsV1" || entry["apiVersion"] != manager.api_version.as_str() {
            return None;
        }
        let operation = Operation::read(entry["operation"].as_str()?)?;
        updates += usize::from(operation == Operation::Update);
        let fields = entry["fieldsV1"].as_object().filter(|fields| !fields.is_empty())?;
        let is_own = operation == manager.operation
            && entry["manager"] == manager.name.as_str()
            && entry["subresource"].as_str().unwrap_or_default() == manager.subresource;
        if has_any(fields, &changes.removed) || touched.iter().any(|set| has_more_below(fields, set)) {
            return None;
        }
        match is_own {
            true if own.is_none() && has_all(fields, &given) => own = Some(index),
            false if !has_any(fields, &given) => {}
            _ => return None,
        }
    }
    if updates > MOST_UPDATE_MANAGERS || (own.is_none() && !given.is_empty()) {
        return None;
    }
    let mut entries = entries.to_vec();
    if let Some(own) = own.filter(|_| !given.is_empty()) {
        entries[own]["time"] = now.into();
        entries.sort_by(order);
    }
    Some(entries)
}

/// Whether each step of a set can be written in only one way. A number can be written in several.
fn is_found_by_text(set: &FieldSet) -> bool {
    let is_plain = |value: &Value| value.is_string() || value.is_boolean();
    set.nodes().all(|(step, _, below)| {
        let is_plain = match step {
            Step::Field(_) => true,
            Step::Key(values) => values.iter().all(|(_, value)| is_plain(&value.0)),
            Step::Value(value) => is_plain(&value.0),
            Step::Index(_) => false,
        };
        is_plain && is_found_by_text(below)
    })
}

/// Where a step leads in fields as they are written, and whether it is a member there.
fn at<'a>(fields: &'a Map<String, Value>, step: &Step) -> Option<(bool, &'a Map<String, Value>)> {
    let below = fields.get(&step.written())?.as_object()?;
    Some((below.is_empty() || below.contains_key(ITSELF), below))
}

fn has_all(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.nodes().all(|(step, is_member, below)| {
        at(fields, step)
            .is_some_and(|(is_theirs, fields)| (is_theirs || !is_member) && has_all(fields, below))
    })
}

/// Whether fields are owned below a member of the set, which may have come to be owned as a whole since.
fn has_more_below(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.nodes().any(|(step, is_member, below)| {
        at(fields, step).is_some_and(|(_, fields)| {
            (is_member && fields.keys().any(|name| name != ITSELF)) || has_more_below(fields, below)
        })
    })
}

fn has_any(fields: &Map<String, Value>, set: &FieldSet) -> bool {
    set.nodes().any(|(step, is_member, below)| {
        at(fields, step).is_some_and(|(is_theirs, fields)| (is_theirs && is_member) || has_any(fields, below))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-03T00:00:00Z";

    fn manager(name: &str, subresource: &str) -> Manager {
        Manager {
            operation: Operation::Update,
            name: name.into(),
            api_version: "v1".into(),
            subresource: subresource.into(),
        }
    }

    fn entry(name: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": name, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn modified(fields: Value) -> Comparison {
        Comparison { modified: FieldSet::from_json(&fields).unwrap(), ..Comparison::default() }
    }

    fn entries() -> Vec<Value> {
        vec![
            entry("other", "Apply", json!({"f:spec": {"f:a": {}}})),
            entry("own", "Update", json!({"f:status": {".": {}, "f:x": {}, "f:y": {}}})),
            entry("user", "Update", json!({"f:spec": {"f:b": {}, r#"v:1"#: {}}})),
        ]
    }

    #[test]
    fn who_writes_its_own_anew_gets_a_time_and_moves_last() {
        let changes = modified(json!({"f:status": {"f:x": {}}, "f:metadata": {"f:generation": {}}}));
        let owners = owners(&entries(), &changes, &manager("own", ""), NOW).unwrap();
        let [other, own, user] = entries().try_into().unwrap();
        let mut own: Value = own;
        own["time"] = NOW.into();
        assert_eq!(owners, [other, user, own]);
    }

    #[test]
    fn a_write_of_nothing_moves_nobody() {
        for name in ["own", "nobody"] {
            let changes = modified(json!({"f:metadata": {"f:resourceVersion": {}}}));
            assert_eq!(owners(&entries(), &changes, &manager(name, ""), NOW), Some(entries()));
        }
    }

    #[test]
    fn whatever_moves_a_field_takes_a_closer_look() {
        let own = manager("own", "");
        let refused = |entries: &[Value], changes: &Comparison, manager: &Manager| {
            assert_eq!(owners(entries, changes, manager, NOW), None, "{changes:?}");
        };
        let x = modified(json!({"f:status": {"f:x": {}}}));
        refused(&entries(), &modified(json!({"f:status": {"f:z": {}}})), &own);
        refused(&entries(), &modified(json!({"f:status": {"f:x": {"f:below": {}}}})), &own);
        refused(&entries(), &modified(json!({"f:spec": {"f:a": {}}})), &own);
        refused(&entries(), &modified(json!({"f:spec": {"v:1.0": {}}})), &own);
        refused(&entries(), &x, &manager("own", "status"));
        refused(&entries(), &x, &Manager { operation: Operation::Apply, ..own.clone() });
        let removed = FieldSet::from_json(&json!({"f:spec": {"f:b": {}}})).unwrap();
        refused(&entries(), &Comparison { removed, ..x.clone() }, &own);
        let mut once_in_parts = entries();
        once_in_parts[2]["fieldsV1"] = json!({"f:status": {"f:x": {"f:part": {}}}});
        refused(&once_in_parts, &x, &own);
        let mut two_versions = entries();
        two_versions[0]["apiVersion"] = "v2".into();
        refused(&two_versions, &x, &own);
        let mut nonsense = entries();
        nonsense[2]["operation"] = "Guess".into();
        refused(&nonsense, &x, &own);
        let mut empty = entries();
        empty[2]["fieldsV1"] = json!({});
        refused(&empty, &x, &own);
        let mut crowd = entries();
        crowd.extend(
            (0..MOST_UPDATE_MANAGERS)
                .map(|number| entry(&format!("m{number}"), "Update", json!({"f:q": {}}))),
        );
        refused(&crowd, &x, &own);
    }
}
