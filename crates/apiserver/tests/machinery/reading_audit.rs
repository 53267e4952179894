//! The audit log through the API: who may, what they see, and that it is seen as it happens.

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyDataStream, Full};
use serde_json::{Value, json};
use sheaf_apiserver::{
    audit::{Level, Limits},
    dispatch::Peer,
    identity::MASTERS,
    respond::ApiBody,
};

use crate::{
    audit_log::{Audited, known, stranger},
    house::{House, MAPS},
};

const EVENTS: &str = "/audit/events";
const JSON: (&str, &str) = ("content-type", "application/json");

fn root() -> Peer {
    known("root", &[MASTERS])
}

/// Makes a map, and so a line.
async fn make(log: &Audited, name: &str) {
    let map = json!({"metadata": {"name": name}}).to_string();
    assert_eq!(log.ask(&root(), Method::POST, MAPS, &[JSON], map).await.code, 201);
}

async fn list(log: &Audited, query: &str) -> Value {
    log.house.server.flush_audit();
    let answer = log.ask(&root(), Method::GET, &format!("{EVENTS}?{query}"), &[], "").await;
    assert_eq!(answer.code, 200, "{}", answer.json());
    answer.json()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["objectRef"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn lines_are_read_as_they_are_written_the_newest_first() {
    let log = Audited::at(Level::Metadata).await;
    for name in ["a", "b", "c"] {
        make(&log, name).await;
    }
    let found = list(&log, "resource=configmaps&verb=create&namespace=default&limit=2").await;
    assert_eq!((found["kind"].as_str(), names(&found)), (Some("EventList"), vec!["c", "b"]));
    let line = log.events().into_iter().find(|event| event["objectRef"]["name"] == "c").unwrap();
    assert_eq!(found["items"][0], line);
    let next = found["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest =
        list(&log, &format!("resource=configmaps&verb=create&namespace=default&continue={next}")).await;
    assert_eq!((names(&rest), rest["metadata"].get("continue")), (vec!["a"], None));
}

#[tokio::test(start_paused = true)]
async fn the_log_is_for_those_who_may_and_who_may_not_is_told_why() {
    let log = Audited::at(Level::Metadata).await;
    for (peer, code) in [(known("jo", &["system:authenticated"]), 403), (stranger(), 403)] {
        let refused = log.ask(&peer, Method::GET, EVENTS, &[], "").await;
        assert_eq!(refused.code, code);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("cannot get path \"/audit/events\""), "{message}");
        assert!(message.contains("nonResourceURL"), "{message}");
        let event = log.events_of(&refused.id).remove(0);
        assert_eq!(event["responseStatus"]["code"], 403);
    }
    let role = json!({
        "metadata": {"name": "auditor"},
        "rules": [{"nonResourceURLs": ["/audit/events"], "verbs": ["get"]}],
    });
    let binding = json!({
        "metadata": {"name": "auditor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "jo"}],
    });
    for (resource, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let uri = format!("/apis/rbac.authorization.k8s.io/v1/{resource}");
        let made = log.ask(&root(), Method::POST, &uri, &[JSON], object.to_string()).await;
        assert_eq!(made.code, 201, "{}", made.json());
    }
    let jo = known("jo", &["system:authenticated"]);
    assert_eq!(log.ask(&jo, Method::GET, EVENTS, &[], "").await.code, 200);
    assert_eq!(log.ask(&jo, Method::DELETE, EVENTS, &[], "").await.code, 403);
    assert_eq!(log.ask(&root(), Method::POST, EVENTS, &[JSON], "{}").await.code, 405);
}

#[tokio::test(start_paused = true)]
async fn who_reads_the_log_is_in_it_with_what_they_looked_for() {
    let log = Audited::at(Level::RequestResponse).await;
    make(&log, "a").await;
    log.house.server.flush_audit();
    let read = log.ask(&root(), Method::GET, "/audit/events?user=root&code=2xx&token=x", &[], "").await;
    assert_eq!(read.code, 400);
    let read = log.ask(&root(), Method::GET, "/audit/events?user=root&code=2xx", &[], "").await;
    assert_eq!(read.code, 200);
    let events = log.events_of(&read.id);
    assert_eq!((events.len(), &events[0]["verb"]), (1, &json!("get")));
    assert_eq!(events[0]["requestURI"], "/audit/events?user=root&code=2xx");
    assert!(events[0].get("responseObject").is_none(), "the log is not in the log");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_switched_off_says_so_to_those_who_may() {
    let house = House::new().await;
    let answer = house.send(Method::GET, EVENTS, &[], "").await;
    assert_eq!(answer.code, 404);
    assert!(answer.body["message"].as_str().unwrap().contains("switched off"));
}

struct Watching {
    pieces: BodyDataStream<ApiBody>,
    buffer: Vec<u8>,
    id: String,
}

impl Watching {
    async fn begin(log: &Audited, query: &str) -> Self {
        let request = Request::get(format!("{EVENTS}?watch=true&{query}"));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let response = log.house.server.handle(request, &root()).await;
        assert_eq!(response.status().as_u16(), 200);
        let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
        Watching { pieces: BodyDataStream::new(response.into_body()), buffer: Vec::new(), id }
    }

    /// The next event that is no bookmark.
    async fn next(&mut self) -> Option<Value> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                if event["type"] != "BOOKMARK" {
                    return Some(event);
                }
            }
            self.buffer.extend_from_slice(&self.pieces.next().await?.unwrap());
        }
    }

    async fn next_name(&mut self) -> String {
        let event = self.next().await.unwrap();
        assert_eq!(event["type"], "ADDED", "{event}");
        event["object"]["objectRef"]["name"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_where_a_list_ended_and_misses_nothing_when_files_step_aside() {
    let log = Audited::new(Level::Metadata, Limits { file_bytes: 4000, files: 8 }).await;
    make(&log, "before").await;
    let found = list(&log, "resource=configmaps&verb=create").await;
    let place = found["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    make(&log, "m0").await;
    let mut watch =
        Watching::begin(&log, &format!("resource=configmaps&verb=create&resourceVersion={place}")).await;
    for n in 1..20 {
        make(&log, &format!("m{n}")).await;
        if n % 3 == 0 {
            log.house.server.flush_audit();
        }
    }
    log.house.server.flush_audit();
    assert!(log.files().len() > 3, "files stepped aside");
    for n in 0..20 {
        assert_eq!(watch.next_name().await, format!("m{n}"));
    }
    let stages = |log: &Audited| -> Vec<String> {
        log.events_of(&watch.id).iter().map(|event| event["stage"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stages(&log), ["ResponseStarted"]);
    log.house.server.stop();
    assert_eq!(watch.next().await, None);
    drop(watch.pieces);
    log.house.server.flush_audit();
    let ended = log.events_of(&watch.id);
    assert_eq!(ended.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_log_has_left_behind_says_so_and_ends() {
    let log = Audited::new(Level::Metadata, Limits { file_bytes: 2000, files: 2 }).await;
    make(&log, "a").await;
    log.house.server.flush_audit();
    let mut watch = Watching::begin(&log, "").await;
    let first = watch.pieces.next().await.unwrap().unwrap();
    assert!(first.starts_with(b"{\"type\":\"BOOKMARK\""), "it is heard that it is there");
    for n in 0..20 {
        make(&log, &format!("m{n}")).await;
        log.house.server.flush_audit();
    }
    let mut last = Value::Null;
    while let Some(event) = watch.next().await {
        last = event;
    }
    assert_eq!((&last["type"], &last["object"]["reason"]), (&json!("ERROR"), &json!("Expired")));
}

#[tokio::test(start_paused = true)]
async fn what_the_log_hides_is_hidden_from_those_who_read_it() {
    let log = Audited::at(Level::RequestResponse).await;
    let secret =
        json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2-hunter2"}}).to_string();
    let made = log.ask(&root(), Method::POST, "/api/v1/namespaces/default/secrets", &[JSON], secret).await;
    assert_eq!(made.code, 201);
    let found = list(&log, "resource=secrets").await;
    assert_eq!(names(&found), ["s"]);
    let text = found.to_string();
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyM"), "{text}");
}
