//! A client whose line is cut at one of its writes: before the server heard of it, or after it was done and before the
//! answer came. Whoever uses it is then stuck, as a process is that is about to be killed.

use std::{convert::Infallible, sync::Arc};

use http::{Method, Request};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    BeforeWrite,
    AfterWrite,
}

/// Tells when the line was cut.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The kind of each write that went over the line.
    writes: Arc<Mutex<Vec<String>>>,
    cut: Arc<Notify>,
}

impl Line {
    /// Waits until the line was cut; for ever when it never is.
    pub async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// How many writes went over the line.
    pub fn writes(&self) -> usize {
        self.writes.lock().len()
    }

    /// The numbers of the writes that were the first of their kind.
    pub fn first_of_each_kind(&self) -> Vec<usize> {
        let writes = self.writes.lock();
        (0..writes.len()).filter(|nth| !writes[..*nth].contains(&writes[*nth])).collect()
    }

    /// Counts a write; answers its number.
    fn count(&self, method: &Method, path: &str) -> usize {
        let mut writes = self.writes.lock();
        writes.push(kind_of_write(method, path));
        writes.len() - 1
    }
}

/// What is done to what sort of thing, whichever object it is: `PUT apps/v1 deployments status`.
fn kind_of_write(method: &Method, path: &str) -> String {
    let mut segments = path.split('/').skip(1);
    let named_group = segments.next() == Some("apis");
    let version: Vec<&str> = segments.by_ref().take(if named_group { 2 } else { 1 }).collect();
    let rest: Vec<&str> = segments.collect();
    let (plural, subresource) = match rest[..] {
        // What is done to a namespace itself.
        ["namespaces"] | ["namespaces", _] => ("namespaces", ""),
        ["namespaces", _, subresource @ ("finalize" | "status")] => ("namespaces", subresource),
        ["namespaces", _, plural] | ["namespaces", _, plural, _] => (plural, ""),
        ["namespaces", _, plural, _, subresource] => (plural, subresource),
        [plural] | [plural, _] => (plural, ""),
        [plural, _, subresource] => (plural, subresource),
        _ => (path, ""),
    };
    format!("{method} {} {plural} {subresource}", version.join("/")).trim_end().to_owned()
}

/// `client`, cut at write number `nth` (from 0). From then on nothing is answered at all.
pub fn cut_at(client: kube::Client, nth: usize, cut: Cut) -> (kube::Client, Line) {
    let line = Line::default();
    let of_client = line.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, line) = (client.clone(), of_client.clone());
        async move {
            let is_write = request.method() != Method::GET;
            let number = match is_write {
                true => line.count(request.method(), request.uri().path()),
                false => line.writes(),
            };
            if number > nth {
                std::future::pending::<()>().await;
            }
            if is_write && number == nth && cut == Cut::BeforeWrite {
                line.cut.notify_one();
                std::future::pending::<()>().await;
            }
            let answer = client.send(request).await;
            if is_write && number == nth {
                line.cut.notify_one();
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(answer.expect("a client in this process always answers"))
        }
    });
    (kube::Client::new(service, "default"), line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_one_kind_differ_in_names_only() {
        let kind = |path: &str| kind_of_write(&Method::PUT, path);
        assert_eq!(kind("/api/v1/namespaces/a/secrets/b"), "PUT v1 secrets");
        assert_eq!(kind("/api/v1/namespaces/c/secrets/d"), "PUT v1 secrets");
        assert_eq!(kind("/apis/apps/v1/namespaces/a/things/b/status"), "PUT apps/v1 things status");
        assert_eq!(kind("/apis/apps/v1/things/b"), "PUT apps/v1 things");
        assert_eq!(kind("/api/v1/namespaces/a"), "PUT v1 namespaces");
        assert_eq!(kind("/api/v1/namespaces/a/finalize"), "PUT v1 namespaces finalize");
        assert_ne!(kind_of_write(&Method::POST, "/apis/apps/v1/things"), kind("/apis/apps/v1/things/b"));
    }
}
