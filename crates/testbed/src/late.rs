//! A client that hears of the changes of one resource late, and notes what it removes. Lists and single objects come at
//! once, as from an API server that one watch of many falls behind.

use std::{convert::Infallible, sync::Arc, time::Duration};

use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;

/// The paths of what was deleted.
pub type Removed = Arc<Mutex<Vec<String>>>;

/// `client`, for which every change of `plural` comes `late` after it was due.
pub fn hears_late(client: kube::Client, plural: &'static str, late: Duration) -> (kube::Client, Removed) {
    let removed = Removed::default();
    let of_client = removed.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, removed) = (client.clone(), of_client.clone());
        async move {
            if request.method() == Method::DELETE {
                removed.lock().push(request.uri().path().to_owned());
            }
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            let is_late = is_watch && request.uri().path().ends_with(&format!("/{plural}"));
            let answer = client.send(request).await.expect("a client in this process always answers");
            let late = if is_late { late } else { Duration::ZERO };
            let slowly = |body: Body| {
                let frames = BodyStream::new(body).then(move |frame| async move {
                    tokio::time::sleep(late).await;
                    frame
                });
                StreamBody::new(frames).boxed_unsync()
            };
            Ok::<_, Infallible>(answer.map(slowly))
        }
    });
    (kube::Client::new(service, "default"), removed)
}
