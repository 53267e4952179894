//! A web server that answers as a test tells it to, also wrongly.

use std::{collections::BTreeMap, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// Stops when dropped.
pub struct WebServer {
    pub port: u16,
    /// Of a server with TLS: the certificate, as PEM.
    pub certificate: Option<String>,
    _serving: AbortOnDropHandle<()>,
}

/// The whole answer to a request for a path, byte by byte.
pub type Answers = BTreeMap<&'static str, Vec<u8>>;

/// The whole answer to a request, of which it is given everything but the body.
pub type Answering = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

fn by_path(answers: Answers) -> Answering {
    Arc::new(move |request| {
        let path = request.split(' ').nth(1).unwrap();
        let missing = answer("404 Not Found", "Content-Length: 0\r\n", b"");
        answers.get(path).cloned().unwrap_or(missing)
    })
}

pub fn ok(body: &[u8]) -> Vec<u8> {
    answer("200 OK", &format!("Content-Length: {}\r\n", body.len()), body)
}

pub fn redirect(location: &str) -> Vec<u8> {
    answer("302 Found", &format!("Location: {location}\r\nContent-Length: 0\r\n"), b"")
}

pub fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

impl WebServer {
    pub async fn start(answers: Answers) -> WebServer {
        WebServer::serve(by_path(answers), None, None).await
    }

    pub async fn answering(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> WebServer {
        WebServer::serve(Arc::new(answer), None, None).await
    }

    /// With a certificate for `localhost` that nobody trusts unless told to.
    pub async fn start_with_tls(answers: Answers) -> WebServer {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key.into())
            .unwrap();
        WebServer::serve(by_path(answers), Some(TlsAcceptor::from(Arc::new(config))), Some(made.cert.pem()))
            .await
    }

    async fn serve(answers: Answering, tls: Option<TlsAcceptor>, certificate: Option<String>) -> WebServer {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                match &tls {
                    None => respond(stream, &answers).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            respond(stream, &answers).await;
                        }
                    }
                }
            }
        });
        WebServer { port, certificate, _serving: AbortOnDropHandle::new(serving) }
    }
}

async fn respond(mut stream: impl AsyncRead + AsyncWrite + Unpin, answers: &Answering) {
    let Some(request) = read_request(&mut stream).await else { return };
    // Whoever asked may have heard enough.
    let _ = stream.write_all(&answers(&request)).await;
    let _ = stream.shutdown().await;
}

/// All of a request up to its body.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8(request).unwrap())
}
