//! A client whose line is cut at one of its writes: before the server heard of it, or after it was done and before the
//! answer came. Whoever uses it is then stuck, as a process is that is about to be killed.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Method, Request};
use kube::client::Body;
use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    BeforeWrite,
    AfterWrite,
}

/// Tells when the line was cut.
#[derive(Clone, Debug, Default)]
pub struct Line {
    writes: Arc<AtomicUsize>,
    cut: Arc<Notify>,
}

impl Line {
    /// Waits until the line was cut; for ever when it never is.
    pub async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// How many writes went over the line.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
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
                true => line.writes.fetch_add(1, Ordering::Relaxed),
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
