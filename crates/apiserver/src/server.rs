//! The listener: TLS, HTTP/1.1 and HTTP/2, and a stop that lets requests finish.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use rustls::ServerConfig;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;

use crate::{ApiServer, dispatch::Peer, heard_out::HeardOut, identity::PeerCertificate};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long open requests may take to end once the server is told to stop.
const GRACE: Duration = Duration::from_secs(3);
const MAX_CONNECTIONS: usize = 8192;
const PING_EVERY: Duration = Duration::from_secs(30);
/// A short rest when the system is out of descriptors: spinning would not free any.
const ACCEPT_REST: Duration = Duration::from_millis(50);
const TELL_EVERY: Duration = Duration::from_secs(10);

/// For who typed `http://`: a closed connection would tell them nothing.
const NOT_PLAIN_HTTP: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Connection: close\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Serves until `stopped` resolves, then lets open requests end.
pub async fn serve(
    server: ApiServer,
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    stopped: impl Future<Output = ()>,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut stopped = std::pin::pin!(stopped);
    let mut told: Option<Instant> = None;
    loop {
        let (stream, address) = tokio::select! {
            biased;
            () = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(why) => {
                    // Out of descriptors, every try fails: saying so once in a while is enough.
                    if told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
                        told = Some(Instant::now());
                        tracing::warn!(%why, "connections cannot be accepted; trying again");
                    }
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                }
            },
        };
        let Ok(permit) = connections.clone().try_acquire_owned() else {
            // Closing at once tells a client more than a hanging handshake would.
            continue;
        };
        let (server, acceptor, watcher) = (server.clone(), acceptor.clone(), graceful.watcher());
        tokio::spawn(async move {
            serve_connection(server, acceptor, stream, address, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    server.stop();
    // Streams have left their connections, and end by themselves once the server stops.
    let _ = timeout(GRACE, async { tokio::join!(graceful.shutdown(), server.streams_ended()) }).await;
    Ok(())
}

async fn serve_connection(
    server: ApiServer,
    acceptor: TlsAcceptor,
    mut stream: TcpStream,
    address: SocketAddr,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    match timeout(HANDSHAKE_TIMEOUT, speaks_plain_http(&stream)).await {
        Ok(Ok(false)) => {}
        Ok(Ok(true)) => {
            let _ = timeout(HANDSHAKE_TIMEOUT, stream.write_all(NOT_PLAIN_HTTP)).await;
            return;
        }
        Ok(Err(_)) | Err(_) => return,
    }
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return tracing::debug!(%address, %why, "a TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "a TLS handshake took too long"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(|der| Arc::new(PeerCertificate::from_der(der)));
    let peer = Peer { certificate, identity: None, address: Some(address) };
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (server, peer) = (server.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(server.handle(HeardOut::of(request), &peer).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(250)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(why) = watcher.watch(connection.into_owned()).await {
        tracing::debug!(%address, %why, "a connection ended early");
    }
}

/// Whether the first byte is a letter, as every HTTP method begins; TLS begins with 22.
async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    Ok(stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase())
}
