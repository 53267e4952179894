//! The audit log of a node, read whole by somebody who knows the secrets that must not be in it.

use std::fs;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

use crate::{node::Node, patience::until};

/// What a client says on a line of its own before a secret that it used.
const CONFIDED: &str = "secret: ";
/// Shorter ones could be in a log by chance.
const SHORTEST: usize = 12;

/// Secrets that went through the API, in whichever direction.
#[derive(Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// A secret that nobody had before.
    pub fn draw(&mut self) -> String {
        let secret = format!("Qx{:05}vK7zR2mN", self.0.len() * 7919 + 1);
        self.0.push(secret.clone());
        secret
    }

    pub fn add(&mut self, secret: &str) {
        assert!(secret.len() >= SHORTEST, "{secret:?} is no secret");
        self.0.push(secret.to_owned());
    }

    /// Adds what a client confided among the lines that it said.
    pub fn add_confided(&mut self, said: &str) {
        said.lines().filter_map(|line| line.strip_prefix(CONFIDED)).for_each(|secret| self.add(secret));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Every line of every file, once the node has written all that was done so far.
pub struct AuditLog {
    text: String,
    pub events: Vec<Value>,
}

impl AuditLog {
    pub fn of(node: &Node) -> AuditLog {
        // Lines are written in the order in which requests end: what was done before this one is there when it is.
        let id = "the-last-of-them";
        node.admin().connect(node).ask("GET", "/api/v1/namespaces/default", &[("audit-id", id)], b"");
        let directory = node.data_dir().join("audit");
        let read = || {
            let files = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
            files.map(|file| fs::read_to_string(file).unwrap()).collect::<String>()
        };
        let text = until("the end of the audit log", || Some(read()).filter(|text| text.contains(id)));
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        AuditLog { text, events }
    }

    /// No secret is in it, as it is or in base64.
    #[track_caller]
    pub fn assert_without(&self, secrets: &Secrets) {
        for secret in &secrets.0 {
            let once = encoded(secret);
            let twice = once.iter().flat_map(|text| encoded(text));
            for form in once.iter().cloned().chain(twice).chain([secret.clone()]) {
                let line = self.text.lines().find(|line| line.contains(&form));
                assert!(line.is_none(), "{secret} is in the log, as {form}: {}", line.unwrap_or_default());
            }
        }
    }

    /// Lines about requests with this verb for this resource (`secrets`, `serviceaccounts/token`), by a program whose name
    /// begins so, that were done.
    pub fn count(&self, program: &str, verb: &str, resource: &str) -> usize {
        let is = |event: &&Value| {
            event["verb"] == verb
                && is_about(event, resource)
                && event["userAgent"].as_str().unwrap_or_default().starts_with(program)
                && event["responseStatus"]["code"].as_u64().is_some_and(|code| code < 300)
        };
        self.events.iter().filter(is).count()
    }

    /// Lines that show what was sent (`requestObject`) or answered (`responseObject`), for this resource.
    pub fn shown(&self, field: &str, resource: &str) -> usize {
        self.events.iter().filter(|event| event[field].is_object() && is_about(event, resource)).count()
    }
}

fn is_about(event: &Value, resource: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let object = &event["objectRef"];
    object["resource"] == resource && object["subresource"].as_str().unwrap_or_default() == subresource
}

/// A text as it can stand in another one in base64, wherever in it it began.
fn encoded(text: &str) -> Vec<String> {
    let within = |skip: usize| {
        let padded = format!("{}{text}", "x".repeat(skip));
        let whole = STANDARD.encode(&padded);
        // What also depends on the neighbours is left off on both sides.
        let (from, to) = ((skip * 8).div_ceil(6), padded.len() * 8 / 6);
        whole[from..to].to_owned()
    };
    (0..3).map(within).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(text: String) -> AuditLog {
        AuditLog { text, events: Vec::new() }
    }

    #[test]
    fn a_secret_is_found_in_any_clothes() {
        let mut secrets = Secrets::default();
        let secret = secrets.draw();
        for before in ["", "a", "ab", "abc", "password: "] {
            let once = STANDARD.encode(format!("{before}{secret} and more"));
            let twice = STANDARD.encode(format!("{before}{once}!"));
            for text in [format!("{before}{secret}"), format!("{{\"data\":\"{once}\"}}"), twice] {
                let found = std::panic::catch_unwind(|| log(text.clone()).assert_without(&secrets));
                assert!(found.is_err(), "{text}");
            }
        }
        log("nothing of the kind".into()).assert_without(&secrets);
    }

    #[test]
    fn what_clients_confide_is_heard_among_what_they_say() {
        let mut secrets = Secrets::default();
        secrets.add_confided("ok: it is so\nsecret: abcdefghijklmnop\nready\n");
        assert_eq!(secrets.0, ["abcdefghijklmnop"]);
    }
}
