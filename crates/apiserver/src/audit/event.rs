//! A line of the log: one `audit.k8s.io/v1` Event as JSON.
//!
//! Written field by field, since this is on the way of every request.

use std::io::Write as _;

use serde_json::Value;
use sheaf_world::{Clock, Timestamp};

use super::policy::Level;
use crate::{identity::User, request::ResourceRequest};

/// When in the life of a request a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// For what goes on for long: it has begun.
    ResponseStarted,
    ResponseComplete,
    Panic,
}

impl Stage {
    fn as_str(self) -> &'static str {
        match self {
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is no more to say than a code.
    Code(u16),
    /// A `Status`, cleaned of what must not be said.
    Status(Value),
}

/// Everything a line can say.
pub struct Event<'a> {
    pub level: Level,
    pub id: &'a str,
    pub stage: Stage,
    pub uri: &'a str,
    pub verb: &'a str,
    pub user: Option<&'a User>,
    pub impersonated: Option<&'a User>,
    pub source_ips: &'a [String],
    pub agent: &'a str,
    pub object: Option<&'a ResourceRequest>,
    pub outcome: Option<&'a Outcome>,
    pub sent: Option<&'a Value>,
    pub answered: Option<&'a Value>,
    pub received: Timestamp,
    pub now: Timestamp,
    pub annotations: &'a [(&'a str, &'a str)],
}

impl Event<'_> {
    /// The line, with its end.
    pub fn line(&self) -> Vec<u8> {
        let mut line = Line(Vec::with_capacity(1024));
        line.raw(r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":""#);
        line.raw(self.level.as_str());
        line.raw(r#"","auditID":"#);
        line.text(self.id);
        line.raw(r#","stage":""#);
        line.raw(self.stage.as_str());
        line.raw(r#"","requestURI":"#);
        line.text(self.uri);
        line.raw(r#","verb":"#);
        line.text(self.verb);
        line.raw(r#","user":"#);
        match self.user {
            Some(user) => line.user(user),
            None => line.raw("{}"),
        }
        if let Some(user) = self.impersonated {
            line.raw(r#","impersonatedUser":"#);
            line.user(user);
        }
        if !self.source_ips.is_empty() {
            line.raw(r#","sourceIPs":"#);
            line.list(self.source_ips);
        }
        if !self.agent.is_empty() {
            line.raw(r#","userAgent":"#);
            line.text(self.agent);
        }
        if let Some(object) = self.object {
            line.raw(r#","objectRef":{"resource":"#);
            line.text(&object.resource);
            for (field, value) in [
                (r#","namespace":"#, &object.namespace),
                (r#","name":"#, &object.name),
                (r#","apiGroup":"#, &object.group),
                (r#","apiVersion":"#, &object.version),
                (r#","subresource":"#, &object.subresource),
            ] {
                if !value.is_empty() {
                    line.raw(field);
                    line.text(value);
                }
            }
            line.raw("}");
        }
        match self.outcome {
            Some(Outcome::Code(code)) => {
                // Writing to a Vec cannot fail.
                let _ = write!(line.0, r#","responseStatus":{{"metadata":{{}},"code":{code}}}"#);
            }
            Some(Outcome::Status(status)) => {
                line.raw(r#","responseStatus":"#);
                line.value(status);
            }
            None => {}
        }
        for (field, value) in [(r#","requestObject":"#, self.sent), (r#","responseObject":"#, self.answered)]
        {
            if let Some(value) = value {
                line.raw(field);
                line.value(value);
            }
        }
        line.raw(r#","requestReceivedTimestamp":"#);
        line.time(self.received);
        line.raw(r#","stageTimestamp":"#);
        line.time(self.now);
        for (n, (key, value)) in self.annotations.iter().enumerate() {
            line.raw(if n == 0 { r#","annotations":{"# } else { "," });
            line.text(key);
            line.raw(":");
            line.text(value);
        }
        line.raw(if self.annotations.is_empty() { "}\n" } else { "}}\n" });
        line.0
    }
}

/// Says that lines are missing here, in the form of all others.
pub fn missing(clock: &Clock, lines: u64) -> Vec<u8> {
    let now = clock.now();
    let server = User { name: "system:apiserver".into(), ..User::default() };
    let lines = lines.to_string();
    Event {
        level: Level::Metadata,
        id: "",
        stage: Stage::ResponseComplete,
        uri: "",
        verb: "",
        user: Some(&server),
        impersonated: None,
        source_ips: &[],
        agent: "",
        object: None,
        outcome: None,
        sent: None,
        answered: None,
        received: now,
        now,
        annotations: &[("sheaf.io/missing-events", &lines)],
    }
    .line()
}

struct Line(Vec<u8>);

impl Line {
    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    fn text(&mut self, text: &str) {
        // Writing to a Vec cannot fail, and neither can text as JSON.
        let _ = serde_json::to_writer(&mut self.0, text);
    }

    fn value(&mut self, value: &Value) {
        let _ = serde_json::to_writer(&mut self.0, value);
    }

    fn list(&mut self, texts: &[String]) {
        let _ = serde_json::to_writer(&mut self.0, texts);
    }

    fn user(&mut self, user: &User) {
        self.raw(r#"{"username":"#);
        self.text(&user.name);
        if !user.uid.is_empty() {
            self.raw(r#","uid":"#);
            self.text(&user.uid);
        }
        if !user.groups.is_empty() {
            self.raw(r#","groups":"#);
            self.list(&user.groups);
        }
        if !user.extra.is_empty() {
            self.raw(r#","extra":"#);
            let _ = serde_json::to_writer(&mut self.0, &user.extra);
        }
        self.raw("}");
    }

    /// With microseconds, as the original writes `MicroTime`.
    fn time(&mut self, time: Timestamp) {
        let _ = write!(self.0, "\"{}\"", time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sheaf_world::World;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_is_the_originals_event() {
        let clock = World::seeded(1).clock;
        let user = User { name: "jo".into(), groups: vec!["a\"b".into()], ..User::default() };
        let object = ResourceRequest {
            verb: crate::request::Verb::Update,
            group: "apps".into(),
            version: "v1".into(),
            resource: "deployments".into(),
            subresource: "status".into(),
            namespace: "ns".into(),
            name: "x".into(),
        };
        let event = Event {
            level: Level::Request,
            id: "i",
            stage: Stage::ResponseComplete,
            uri: "/x?y",
            verb: "update",
            user: Some(&user),
            impersonated: Some(&User { name: "other".into(), uid: "u".into(), ..User::default() }),
            source_ips: &["10.0.0.1".to_owned()],
            agent: "kubectl",
            object: Some(&object),
            outcome: Some(&Outcome::Code(200)),
            sent: Some(&json!({"a": "line\nbreak"})),
            answered: None,
            received: clock.now(),
            now: clock.now(),
            annotations: &[("a", "b"), ("c", "d")],
        };
        let line = String::from_utf8(event.line()).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(
            serde_json::from_str::<Value>(&line).unwrap(),
            json!({
                "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Request", "auditID": "i",
                "stage": "ResponseComplete", "requestURI": "/x?y", "verb": "update",
                "user": {"username": "jo", "groups": ["a\"b"]},
                "impersonatedUser": {"username": "other", "uid": "u"},
                "sourceIPs": ["10.0.0.1"], "userAgent": "kubectl",
                "objectRef": {
                    "resource": "deployments", "namespace": "ns", "name": "x", "apiGroup": "apps",
                    "apiVersion": "v1", "subresource": "status",
                },
                "responseStatus": {"metadata": {}, "code": 200}, "requestObject": {"a": "line\nbreak"},
                "requestReceivedTimestamp": "2030-01-01T00:00:00.000000Z",
                "stageTimestamp": "2030-01-01T00:00:00.000000Z",
                "annotations": {"a": "b", "c": "d"},
            })
        );
        let notice: Value = serde_json::from_slice(&missing(&clock, 7)).unwrap();
        assert_eq!(notice["annotations"], json!({"sheaf.io/missing-events": "7"}));
    }
}
