//! What tests do to a cluster, in as few words as a person would use.

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

/// Speaks plain JSON and panics when refused, unless it is asked to [`try`](Kubectl::try_it).
#[derive(Clone)]
pub struct Kubectl(pub Client);

/// Code and body of an answer.
pub type Answer = (u16, Value);

impl Kubectl {
    pub async fn try_it(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let content =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .header("accept", "application/json")
            .body(kube::client::Body::from(body.map(ToString::to_string).unwrap_or_default().into_bytes()))
            .expect("a path is a path");
        let answer = self.0.send(request).await.expect("a server in this process answers");
        let code = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.expect("an answer is whole");
        let bytes = body.to_bytes();
        let value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        (code, value)
    }

    async fn must(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let (code, answer) = self.try_it(method.clone(), path, body).await;
        assert!(code < 300, "{method} {path}: {code} {answer}");
        answer
    }

    /// Creates an object where its kind lives; `path` is that of the collection.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.must(Method::POST, path, Some(object)).await
    }

    /// `None` when there is no such object.
    pub async fn get(&self, path: &str) -> Option<Value> {
        match self.try_it(Method::GET, path, None).await {
            (404, _) => None,
            (200, object) => Some(object),
            (code, why) => panic!("GET {path}: {code} {why}"),
        }
    }

    /// Names of all there is under a path, in order.
    pub async fn names(&self, path: &str) -> Vec<String> {
        let list = self.must(Method::GET, path, None).await;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub async fn patch(&self, path: &str, change: &Value) -> Value {
        self.must(Method::PATCH, path, Some(change)).await
    }

    /// Deletes with `Background`, `Foreground` or `Orphan`.
    pub async fn delete(&self, path: &str, propagation: &str) -> Value {
        self.must(Method::DELETE, path, Some(&json!({"propagationPolicy": propagation}))).await
    }
}
