//! What is said over the WebSocket, both ways.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// A subscription that says only that something changed, not what.
pub const ONLY_THAT: &str = "resource.changes";
/// How seldom it says so, unless its client wants another time, and the least it can want.
const SELDOM: Duration = Duration::from_secs(5);
const LEAST: Duration = Duration::from_millis(100);

/// What a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Wish {
    pub stop: bool,
    pub resource_type: String,
    pub resource_version: String,
    pub namespace: String,
    pub id: String,
    pub selector: String,
    pub mode: String,
    pub debounce_ms: u64,
}

impl Wish {
    /// What makes a subscription another one.
    pub fn key(&self) -> String {
        let Wish { resource_type, namespace, id, selector, mode, .. } = self;
        [resource_type, namespace, id, selector, mode].map(String::as_str).join("/")
    }

    /// Where it goes on from; empty is from everything there is.
    pub fn version(&self) -> &str {
        match self.resource_version.as_str() {
            "-1" | "0" => "",
            version => version,
        }
    }

    /// How long it is silent after it said that something changed; `None` if it says what.
    pub fn debounce(&self) -> Option<Duration> {
        let asked = if self.debounce_ms == 0 { SELDOM } else { Duration::from_millis(self.debounce_ms) };
        (self.mode == ONLY_THAT).then_some(asked.max(LEAST))
    }

    /// An event of this subscription.
    pub fn event(&self, name: &str) -> Value {
        let mut event = json!({"name": name, "resourceType": self.resource_type});
        let fields = [
            ("namespace", &self.namespace),
            ("id", &self.id),
            ("selector", &self.selector),
            ("mode", &self.mode),
        ];
        for (field, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            event[field] = value.as_str().into();
        }
        event
    }

    pub fn error(&self, why: &str) -> Value {
        let mut event = self.event("resource.error");
        event["data"] = json!({"error": why});
        event
    }
}

/// That the server is there.
pub fn ping(version: &str) -> Value {
    json!({"name": "ping", "data": {"version": version}})
}

/// What an event of a watch is called here; `None` for one that is only about the watch.
pub fn name_of(watched: &str) -> Option<&'static str> {
    match watched {
        "ADDED" => Some("resource.create"),
        "MODIFIED" => Some("resource.change"),
        "DELETED" => Some("resource.remove"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(text: &str) -> Wish {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_wish_is_read_and_its_events_name_it() {
        let one = wish(r#"{"resourceType":"node","id":"n1","resourceVersion":"-1","unknown":1}"#);
        assert_eq!(
            one.event("resource.start"),
            json!({"name": "resource.start", "resourceType": "node", "id": "n1"})
        );
        assert_eq!(one.version(), "");
        assert_ne!(one.key(), wish(r#"{"resourceType":"node","namespace":"n1"}"#).key());
        assert_eq!(one.key(), wish(r#"{"resourceType":"node","id":"n1","stop":true}"#).key());
        assert_eq!(one.error("why")["data"]["error"], "why");
    }

    #[test]
    fn who_wants_to_know_only_that_something_changed_is_told_seldom() {
        assert_eq!(wish("{}").debounce(), None);
        let often = wish(r#"{"mode":"resource.changes","debounceMs":1}"#);
        assert_eq!(often.debounce(), Some(LEAST));
        assert_eq!(wish(r#"{"mode":"resource.changes"}"#).debounce(), Some(SELDOM));
    }
}
