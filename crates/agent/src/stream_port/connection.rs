//! One connection: TLS, whose certificate it is, and its requests.

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::OwnedSemaphorePermit, time::timeout};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    Shared,
    answer::{self, Answer, Refusal},
    bundle, image,
    machine::Line,
    route::{self, Target},
};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request under way may take to be answered once the port is told to stop.
const GRACE: Duration = Duration::from_secs(1);

pub async fn serve(
    shared: Arc<Shared>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    permit: Arc<OwnedSemaphorePermit>,
) {
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return tracing::debug!(%why, "a TLS handshake at the stream port failed"),
        Err(_) => return tracing::debug!("a TLS handshake at the stream port took too long"),
    };
    let is_api_server = is_api_server(&stream);
    let stop = shared.stop.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (shared, permit) = (shared.clone(), permit.clone());
        async move {
            let answer = match is_api_server {
                true => answer(&shared, request, permit).await,
                false => Err(Refusal::Forbidden("only the API server is answered here".into())),
            };
            Ok::<_, Infallible>(answer.unwrap_or_else(|why| answer::refused(&why)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => Some(ended),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            timeout(GRACE, connection).await.ok()
        }
    };
    if let Some(Err(why)) = ended {
        tracing::debug!(%why, "a connection to the stream port ended early");
    }
}

/// TLS made sure that the authority signed the certificate; whose it is is looked at here.
fn is_api_server(stream: &TlsStream<TcpStream>) -> bool {
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    certificate.and_then(|der| sheaf_pki::common_name(der)).as_deref() == Some(sheaf_pki::APISERVER_USER)
}

async fn answer(
    shared: &Arc<Shared>,
    mut request: Request<Incoming>,
    permit: Arc<OwnedSemaphorePermit>,
) -> Result<Answer, Refusal> {
    let uri = request.uri();
    match route::target(request.method(), uri.path(), uri.query().unwrap_or_default())? {
        Target::Machine { id, ask } => {
            let line = Line::of(&mut request, permit);
            shared.answer_machine(&id, ask, line).await
        }
        Target::Upload { image, checksum, offset } => {
            image::upload(shared.images.as_ref(), &image, (checksum, offset), request).await
        }
        Target::HowFar { image } => image::how_far(shared.images.as_ref(), &image).await,
        Target::Download { image } => image::download(shared.images.as_ref(), &image, &request).await,
        Target::Bundle { uid } => bundle::download(&shared.bundles, &uid, &request).await,
    }
}
