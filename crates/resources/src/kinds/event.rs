//! Event, in both groups: `v1` and `events.k8s.io/v1` show the same stored objects under
//! different field names.

use k8s_openapi::api::{core::v1::Event as CoreEvent, events::v1::Event};
use serde_json::{Map, Value, json};

use super::text;
use crate::{
    age,
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Conversion, Kind},
};

/// `(v1 name, events.k8s.io name)` of each field that is called differently.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub fn core_kind() -> Kind {
    Kind::of_type::<CoreEvent>("events")
        .short(&["ev"])
        .columns(columns())
        .selectable(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ])
        .behaving(Behaviour { validate, create_on_update: true, ..Behaviour::PLAIN })
}

pub fn events_kind() -> Kind {
    let mut kind = Kind::of_type::<Event>("events")
        .short(&["ev"])
        .columns(columns())
        .selectable(&[
            "reason",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "reportingController",
            "type",
        ])
        .behaving(Behaviour { validate, create_on_update: true, ..Behaviour::PLAIN });
    kind.stored_under = (String::new(), "events".into());
    kind.stored_version = "v1".into();
    kind.conversion = Some(Conversion { from_stored, into_stored });
    kind
}

fn from_stored(event: &mut Value) {
    rename(event, RENAMED.map(|(core, new)| (core, new)));
    event["apiVersion"] = "events.k8s.io/v1".into();
}

fn into_stored(event: &mut Value) {
    rename(event, RENAMED.map(|(core, new)| (new, core)));
    event["apiVersion"] = "v1".into();
}

fn rename(event: &mut Value, names: [(&str, &str); 7]) {
    let Some(fields) = event.as_object_mut() else { return };
    let moved: Map<String, Value> =
        names.iter().filter_map(|(from, to)| Some((to.to_string(), fields.remove(*from)?))).collect();
    fields.extend(moved);
}

/// Columns read the stored (`v1`) names; tables are made before conversion.
fn columns() -> Vec<Column> {
    vec![
        Column::computed("Last Seen", |event, now| {
            let seen = ["lastTimestamp", "firstTimestamp"].iter().map(|f| &event[*f]).find(|v| v.is_string());
            let seen = event["series"]["lastObservedTime"].as_str().map(Value::from).or(seen.cloned());
            age::of_timestamp(&seen.unwrap_or_else(|| event["eventTime"].clone()), now)
        }),
        Column::computed("Type", |event, _| event["type"].clone()),
        Column::computed("Reason", |event, _| event["reason"].clone()),
        Column::computed("Object", |event, _| {
            let object = &event["involvedObject"];
            format!("{}/{}", text(&object["kind"]).to_ascii_lowercase(), text(&object["name"])).into()
        }),
        Column::computed("Subobject", |event, _| event["involvedObject"]["fieldPath"].clone()).wide(),
        Column::computed("Source", |event, _| {
            let component = match text(&event["source"]["component"]) {
                "" => text(&event["reportingComponent"]),
                component => component,
            };
            let host = match text(&event["source"]["host"]) {
                "" => text(&event["reportingInstance"]),
                host => host,
            };
            if host.is_empty() { component.into() } else { format!("{component}, {host}").into() }
        })
        .wide(),
        Column::computed("Message", |event, _| text(&event["message"]).trim().into()),
        Column::computed("First Seen", |event, now| {
            let first = if event["firstTimestamp"].is_string() {
                &event["firstTimestamp"]
            } else {
                &event["eventTime"]
            };
            age::of_timestamp(first, now)
        })
        .wide(),
        Column::computed("Count", |event, _| {
            let count = event["series"]["count"].as_i64().or(event["count"].as_i64());
            json!(count.unwrap_or(1))
        })
        .integer()
        .wide(),
        Column::computed("Name", |event, _| event["metadata"]["name"].clone()).wide().format("name"),
    ]
}

/// Runs on the stored form.
fn validate(event: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let about = text(&event["involvedObject"]["namespace"]);
    let namespace = text(&event["metadata"]["namespace"]);
    // Events about cluster-scoped objects live in `default`.
    let fits =
        if about.is_empty() { matches!(namespace, "default" | "kube-system") } else { about == namespace };
    if fits {
        return Vec::new();
    }
    vec![FieldError::invalid(
        &FieldPath::new("involvedObject").child("namespace"),
        about,
        "does not match event.namespace",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_groups_tell_the_same_event() {
        let stored = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "x"}, "message": "m", "count": 3});
        let mut shown = stored.clone();
        from_stored(&mut shown);
        assert_eq!(
            shown,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "x"}, "note": "m", "deprecatedCount": 3})
        );
        into_stored(&mut shown);
        assert_eq!(shown, stored);
    }

    #[test]
    fn an_event_lives_where_its_object_does() {
        let event = |ns: &str, about: &str| json!({"metadata": {"namespace": ns}, "involvedObject": {"namespace": about}});
        assert!(validate(&event("a", "a"), None).is_empty());
        assert!(validate(&event("default", ""), None).is_empty());
        assert_eq!(validate(&event("a", "b"), None).len(), 1);
        assert_eq!(validate(&event("a", ""), None).len(), 1);
    }
}
