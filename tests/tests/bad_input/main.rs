//! Input that is wrong, hostile or half there: refused with the code and the reason of the original, and
//! nothing has changed afterwards.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod bodies;
mod connections;
mod names;
mod patches;
mod queries;
mod readers;

use std::{fmt, sync::OnceLock};

use serde_json::{Value, json};
use sheaf_tests::{
    http::{Answer, Connection},
    node::Node,
};

fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(Node::start)
}

/// A namespace with one config map, `there`, and a way to see that nothing in it changed.
struct Untouched {
    connection: Connection,
    path: String,
    before: Value,
}

impl Untouched {
    fn new(namespace: &str) -> Untouched {
        let mut connection = node().admin().connect(node());
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        connection.post("/api/v1/namespaces", &object).object();
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        connection.post(&path, &config_map("there")).object();
        let mut untouched = Untouched { connection, path, before: Value::Null };
        untouched.before = untouched.look();
        untouched
    }

    /// Everything that tests here try to make or change, without what controllers add in their own time.
    fn look(&mut self) -> Value {
        let all = self.connection.get(&format!("{}?labelSelector=made%3Dhere", self.path)).object();
        all["items"].clone()
    }

    fn one(&self) -> String {
        format!("{}/there", self.path)
    }

    /// Asks, and expects a refusal that names `reason` and says `message` somewhere.
    #[track_caller]
    fn refuses(&mut self, request: Request<'_>, code: u16, reason: &str, message: &str) {
        let answer = request.send(&mut self.connection);
        let told = answer.refusal();
        assert_eq!((told.0, told.1.as_str()), (code, reason), "{request:?}: {}", told.2);
        assert!(told.2.contains(message), "{request:?}: {:?} does not say {message:?}", told.2);
        // A connection whose body was not read to its end is closed.
        if answer.header("connection") == Some("close") {
            self.connection = node().admin().connect(node());
        }
        assert_eq!(self.look(), self.before, "{request:?} changed something");
    }
}

#[derive(Clone, Copy)]
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    media_type: &'a str,
    body: &'a [u8],
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]);
        write!(f, "{} {} {} {body:?}", self.method, self.path, self.media_type)
    }
}

impl Request<'_> {
    fn send(&self, connection: &mut Connection) -> Answer {
        let headers = [("content-type", self.media_type)];
        let headers = if self.media_type.is_empty() { &[][..] } else { &headers[..] };
        connection.ask(self.method, self.path, headers, self.body)
    }
}

fn post<'a>(path: &'a str, body: &'a [u8]) -> Request<'a> {
    Request { method: "POST", path, media_type: "application/json", body }
}

fn put<'a>(path: &'a str, body: &'a [u8]) -> Request<'a> {
    Request { method: "PUT", path, media_type: "application/json", body }
}

fn get(path: &str) -> Request<'_> {
    Request { method: "GET", path, media_type: "", body: b"" }
}

fn delete<'a>(path: &'a str, body: &'a [u8]) -> Request<'a> {
    Request { method: "DELETE", path, media_type: "application/json", body }
}

fn config_map(name: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"made": "here"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
}
