//! What the node serves. **The place where store, API server and controllers go.**
//!
//! Until they are here, every request is answered with 503.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::{failure::Failure, node::Node};

/// Serves until `node.stop` is cancelled. Says that the node is ready once it answers.
pub async fn serve(node: &Node, listeners: Vec<TcpListener>) -> Result<(), Failure> {
    node.admin_password(false)?;
    let tls = TlsAcceptor::from(node.certificates.server_config());
    let connections = TaskTracker::new();
    for listener in listeners {
        let (tls, stop, tracker) = (tls.clone(), node.stop.clone(), connections.clone());
        connections.spawn(async move {
            loop {
                let accepted = tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    accepted = listener.accept() => accepted,
                };
                match accepted {
                    Ok((stream, _)) => {
                        let (tls, stop) = (tls.clone(), stop.clone());
                        tracker.spawn(async move {
                            tokio::select! {
                                biased;
                                () = stop.cancelled() => {}
                                () = answer(tls, stream) => {}
                            }
                        });
                    }
                    Err(why) => warn!(error = &why as &dyn std::error::Error, "cannot accept a connection"),
                }
            }
        });
    }
    node.announce_ready();
    connections.close();
    connections.wait().await;
    Ok(())
}

async fn answer(tls: TlsAcceptor, stream: TcpStream) {
    let stream = match tls.accept(stream).await {
        Ok(stream) => stream,
        Err(why) => return debug!(error = &why as &dyn std::error::Error, "no handshake"),
    };
    let not_yet = service_fn(async |_request| {
        let mut response = Response::new(Full::new(Bytes::from_static(b"no API is served yet\n")));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        Ok::<_, Infallible>(response)
    });
    let served =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), not_yet).await;
    if let Err(why) = served {
        debug!(error = %why, "connection ended early");
    }
}
