//! What happened, line by line: every change that watches showed, every answer clients got, each with the moment.

use std::sync::Arc;

use futures::StreamExt;
use http::{Method, Request};
use kube::Client;
use parking_lot::Mutex;
use serde_json::Value;
use sheaf_world::Clock;

use crate::kubectl::{Answer, Kubectl};

/// Cheap to clone; all clones write to one trace.
#[derive(Clone)]
pub struct Trace {
    clock: Clock,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Trace {
    pub fn new(clock: Clock) -> Self {
        Trace { clock, lines: Arc::default() }
    }

    pub fn note(&self, what: &str) {
        self.lines.lock().push(format!("{} {what}", self.clock.rfc3339_micros()));
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// Follows a collection from its beginning until the server or the runtime ends.
    pub fn follow(&self, client: Client, path: String) {
        let trace = self.clone();
        tokio::spawn(async move {
            let request =
                Request::get(format!("{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1000000"));
            let request = request.body(kube::client::Body::empty()).expect("a path is a path");
            let answer = client.send(request).await.expect("a server in this process answers");
            trace.note(&format!("watch {path}: {}", answer.status()));
            let mut pieces = http_body_util::BodyStream::new(answer.into_body());
            while let Some(Ok(piece)) = pieces.next().await {
                let Ok(bytes) = piece.into_data() else { continue };
                for line in String::from_utf8_lossy(&bytes).lines() {
                    trace.note(&format!("watch {path}: {line}"));
                }
            }
            trace.note(&format!("watch {path}: over"));
        });
    }
}

/// A client whose answers are all noted.
#[derive(Clone)]
pub struct Traced {
    pub name: &'static str,
    pub kubectl: Kubectl,
    pub trace: Trace,
}

impl Traced {
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let answer = self.kubectl.try_it(method.clone(), path, body.as_ref()).await;
        self.trace.note(&format!("{}: {method} {path}: {} {}", self.name, answer.0, answer.1));
        answer
    }
}
