//! A server whose audit log can be read.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use sheaf_apiserver::{
    audit::{Level, Limits, Log, Recording},
    dispatch::Peer,
    identity::User,
};
use sheaf_world::World;

use crate::house::House;

/// A house and the directory with its log, which goes with it.
pub struct Audited {
    pub house: House,
    pub dir: PathBuf,
}

/// An answer and its id in the log.
pub struct Answered {
    pub code: u16,
    pub id: String,
    pub body: Bytes,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

impl Audited {
    pub async fn new(level: Level, limits: Limits) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("sheaf-audit-machinery-{}-{n}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let log = Log::open(&dir.join("audit.log"), limits, World::seeded(1).clock).unwrap();
        Audited { house: House::audited(Recording { level, log }).await, dir }
    }

    pub async fn at(level: Level) -> Self {
        Self::new(level, Limits::default()).await
    }

    /// As whoever `peer` says, or the headers do.
    pub async fn ask(
        &self,
        peer: &Peer,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answered {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.house.server.handle(request, peer).await;
        let id = response.headers().get("audit-id").map(|id| id.to_str().unwrap().to_owned());
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        Answered { code, id: id.unwrap_or_default(), body }
    }

    /// Every file of the log, the newest first.
    pub fn files(&self) -> Vec<String> {
        self.house.server.flush_audit();
        let mut names: Vec<PathBuf> = fs::read_dir(&self.dir).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        names.into_iter().map(|name| fs::read_to_string(name).unwrap()).collect()
    }

    pub fn events(&self) -> Vec<Value> {
        let files = self.files();
        files.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// What the log says of one request.
    pub fn events_of(&self, id: &str) -> Vec<Value> {
        self.events().into_iter().filter(|event| event["auditID"] == id).collect()
    }
}

impl Drop for Audited {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Somebody whom nothing is asked.
pub fn known(name: &str, groups: &[&str]) -> Peer {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let user = User { name: name.into(), groups, ..User::default() };
    Peer {
        identity: Some(Arc::new(user)),
        address: Some("192.0.2.7:4711".parse().unwrap()),
        ..Peer::default()
    }
}

/// Somebody who must say who they are.
pub fn stranger() -> Peer {
    Peer { address: Some("192.0.2.8:4712".parse().unwrap()), ..Peer::default() }
}
