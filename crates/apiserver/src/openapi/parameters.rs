//! The parameters of requests, and which request takes which.

use serde_json::{Map, Value, json};
use sheaf_resources::schema::Flavour;

/// A parameter beside the body.
#[derive(Debug)]
pub struct Parameter {
    pub name: &'static str,
    place: &'static str,
    data_type: &'static str,
    description: &'static str,
}

const fn query(name: &'static str, data_type: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "query", data_type, description }
}

const fn path(name: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "path", data_type: "string", description }
}

pub static NAME: Parameter = path("name", "The object's name.");
pub static NAMESPACE: Parameter = path("namespace", "The namespace the object is in.");
pub static PRETTY: Parameter = query("pretty", "string", "'true' asks for an answer laid out for reading.");

static ALLOW_WATCH_BOOKMARKS: Parameter = query(
    "allowWatchBookmarks",
    "boolean",
    "On a watch: also send BOOKMARK events, which carry nothing but the version reached.",
);
static CONTINUE: Parameter =
    query("continue", "string", "The token of the page before, to get the next page of the same list.");
static DRY_RUN: Parameter =
    query("dryRun", "string", "'All' runs every check and answers as if, but stores nothing.");
static FIELD_MANAGER: Parameter =
    query("fieldManager", "string", "Who makes this change, in at most 128 printable characters.");
static FIELD_SELECTOR: Parameter =
    query("fieldSelector", "string", "Only objects whose fields fit this selector; without it, all.");
static FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "What becomes of fields that are unknown or given twice: 'Ignore' drops them silently, 'Warn' (the \
     default) drops them with a warning, 'Strict' refuses the request.",
);
static FORCE: Parameter =
    query("force", "boolean", "On an apply: take fields that others own and want otherwise.");
static GRACE_PERIOD_SECONDS: Parameter =
    query("gracePeriodSeconds", "integer", "Seconds until the object is deleted for good; 0 is at once.");
static LABEL_SELECTOR: Parameter =
    query("labelSelector", "string", "Only objects whose labels fit this selector; without it, all.");
static LIMIT: Parameter =
    query("limit", "integer", "At most this many objects in one answer; the rest follows with 'continue'.");
static ORPHAN_DEPENDENTS: Parameter = query(
    "orphanDependents",
    "boolean",
    "Deprecated: use propagationPolicy. Whether objects owned by this one stay.",
);
static PROPAGATION_POLICY: Parameter = query(
    "propagationPolicy",
    "string",
    "What becomes of objects owned by this one: 'Orphan' lets them stay, 'Background' deletes them after \
     it, 'Foreground' before it.",
);
static RESOURCE_VERSION: Parameter =
    query("resourceVersion", "string", "The version to answer from: unset is the latest, '0' is any.");
static RESOURCE_VERSION_MATCH: Parameter = query(
    "resourceVersionMatch",
    "string",
    "How resourceVersion is meant on a list: 'Exact' or 'NotOlderThan'.",
);
static SEND_INITIAL_EVENTS: Parameter = query(
    "sendInitialEvents",
    "boolean",
    "On a watch: first send what is there, then a bookmark that says so, then changes.",
);
static TIMEOUT_SECONDS: Parameter =
    query("timeoutSeconds", "integer", "The list or watch ends after so many seconds.");
static WATCH: Parameter =
    query("watch", "boolean", "Instead of a list, a stream of changes from resourceVersion on.");

pub type Set = &'static [&'static Parameter];

pub static LIST: Set = &[
    &ALLOW_WATCH_BOOKMARKS,
    &CONTINUE,
    &FIELD_SELECTOR,
    &LABEL_SELECTOR,
    &LIMIT,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL_EVENTS,
    &TIMEOUT_SECONDS,
    &WATCH,
];
pub static READ: Set = &[&RESOURCE_VERSION];
pub static WRITE: Set = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION];
pub static PATCH: Set = &[&DRY_RUN, &FIELD_MANAGER, &FIELD_VALIDATION, &FORCE];
pub static DELETE: Set = &[&DRY_RUN, &GRACE_PERIOD_SECONDS, &ORPHAN_DEPENDENTS, &PROPAGATION_POLICY];
pub static DELETE_COLLECTION: Set = &[
    &CONTINUE,
    &DRY_RUN,
    &FIELD_SELECTOR,
    &GRACE_PERIOD_SECONDS,
    &LABEL_SELECTOR,
    &LIMIT,
    &ORPHAN_DEPENDENTS,
    &PROPAGATION_POLICY,
    &RESOURCE_VERSION,
    &RESOURCE_VERSION_MATCH,
    &SEND_INITIAL_EVENTS,
    &TIMEOUT_SECONDS,
];
static IN_PATHS: Set = &[&NAME, &NAMESPACE, &PRETTY];

impl Parameter {
    /// Where it is used. The v2 document, which has all groups in it, only names it there.
    pub fn used(&self, flavour: Flavour) -> Value {
        match flavour {
            Flavour::V2 => json!({"$ref": format!("#/parameters/{}", self.name)}),
            Flavour::V3 => self.written(flavour),
        }
    }

    fn written(&self, flavour: Flavour) -> Value {
        let mut out = json!({"name": self.name, "in": self.place, "description": self.description});
        if self.place == "path" {
            out["required"] = true.into();
        }
        match flavour {
            Flavour::V2 => {
                out["type"] = self.data_type.into();
                out["uniqueItems"] = true.into();
            }
            Flavour::V3 => out["schema"] = json!({"type": self.data_type, "uniqueItems": true}),
        }
        out
    }
}

/// All of them by name, for the head of the v2 document.
pub fn shared() -> Map<String, Value> {
    [LIST, READ, PATCH, DELETE, DELETE_COLLECTION, IN_PATHS]
        .into_iter()
        .flatten()
        .map(|parameter| (parameter.name.to_string(), parameter.written(Flavour::V2)))
        .collect()
}
