//! Requests that are no objects: bytes sent as they are read, and connections that become WebSockets.
//!
//! `kube` sends bodies that are in memory and speaks the subprotocols of containers only. Here every request has a
//! connection of its own, over TLS as the kubeconfig says, with its certificate or its token. Programs that fetch a
//! token, and proxies, are not asked.

use std::{io, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::Body;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use secrecy::ExposeSecret;
use serde_json::Value;
use sheaf_world::Chance;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::derive_accept_key, protocol::Role},
};

/// A refusal is a sentence, in a Status.
const MAX_REFUSAL: usize = 64 * 1024;

/// Bytes both ways, in messages.
pub type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[source] Box<kube::Error>),
    #[error(
        "the kubeconfig signs in with a program or a name and a password, which is not known for streams: use a context with a token or a certificate (`sheaf login` makes one)"
    )]
    SignsInOtherwise,
    #[error("the kubeconfig's server {server} is not an https URL")]
    Server { server: String },
    #[error("cannot reach {server}")]
    Unreachable {
        server: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection to {server} broke off")]
    Broken {
        server: String,
        #[source]
        source: hyper::Error,
    },
    #[error("the request cannot be made")]
    Request(#[from] http::Error),
    /// In the server's own words.
    #[error("{message}")]
    Refused { code: u16, message: String },
    #[error("{server} did not answer as a WebSocket's end does")]
    NotAWebSocket { server: String },
}

/// The way to one server.
#[derive(Clone)]
pub struct Streams {
    server: Uri,
    tls: Arc<ClientConfig>,
    token: Option<HeaderValue>,
    /// In a way that only the client for objects knows.
    signs_in_otherwise: bool,
}

impl Streams {
    /// To the cluster of a configuration that was read already, the file of its token included.
    pub fn of(config: &kube::Config) -> Result<Streams, StreamError> {
        let unusable = |why| StreamError::Kubeconfig(Box::new(why));
        let mut tls = config.rustls_client_config().map_err(unusable)?;
        // A connection that is to be taken over speaks the older protocol.
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let auth = &config.auth_info;
        let mut token = None;
        if let Some(secret) = &auth.token {
            let text = format!("Bearer {}", secret.expose_secret());
            let mut value = HeaderValue::from_str(&text).map_err(http::Error::from)?;
            value.set_sensitive(true);
            token = Some(value);
        }
        let server = config.cluster_url.clone();
        if server.scheme_str() != Some("https") || server.host().is_none() {
            return Err(StreamError::Server { server: server.to_string() });
        }
        let signs_in_otherwise = token.is_none()
            && (auth.exec.is_some() || auth.auth_provider.is_some() || auth.username.is_some());
        Ok(Streams { server, tls: Arc::new(tls), token, signs_in_otherwise })
    }

    /// `https://ADDR:PORT`, as the kubeconfig names it.
    pub fn server(&self) -> &Uri {
        &self.server
    }

    /// Sends a request whose URI is a path below the server's.
    pub async fn send<B>(&self, mut request: Request<B>) -> Result<Response<Incoming>, StreamError>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        if self.signs_in_otherwise {
            return Err(StreamError::SignsInOtherwise);
        }
        let server = self.server.to_string();
        let broken = |source| StreamError::Broken { server: server.clone(), source };
        let connection = self
            .connect()
            .await
            .map_err(|source| StreamError::Unreachable { server: server.clone(), source })?;
        let (mut sender, driver) = http1::handshake(TokioIo::new(connection)).await.map_err(broken)?;
        tokio::spawn(async move {
            if let Err(why) = driver.with_upgrades().await {
                tracing::debug!(%why, "a connection ended early");
            }
        });
        let path = format!("{}{}", self.server.path().trim_end_matches('/'), request.uri());
        *request.uri_mut() = path.parse().map_err(http::Error::from)?;
        let host = self.server.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_str(host).map_err(http::Error::from)?);
        if let Some(token) = &self.token {
            headers.insert(header::AUTHORIZATION, token.clone());
        }
        let response = sender.send_request(request).await.map_err(broken)?;
        let code = response.status();
        if code.is_client_error() || code.is_server_error() {
            return Err(StreamError::Refused {
                code: code.as_u16(),
                message: sentence(code, response.into_body()).await,
            });
        }
        Ok(response)
    }

    /// Opens the stream at `path`, in a subprotocol that the server must agree to.
    pub async fn open(
        &self,
        path: &str,
        subprotocol: &'static str,
        chance: &Chance,
    ) -> Result<WebSocket, StreamError> {
        let key = STANDARD.encode(chance.bytes::<16>());
        let request = Request::get(path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, &key)
            .header(header::SEC_WEBSOCKET_PROTOCOL, subprotocol)
            .body(Empty::<Bytes>::new())?;
        let response = self.send(request).await?;
        let says = |name, wanted: &str| response.headers().get(name).is_some_and(|value| value == wanted);
        let agreed = says(header::SEC_WEBSOCKET_ACCEPT, &derive_accept_key(key.as_bytes()))
            && says(header::SEC_WEBSOCKET_PROTOCOL, subprotocol);
        let server = self.server.to_string();
        if !response.status().is_informational() || !agreed {
            return Err(StreamError::NotAWebSocket { server });
        }
        let taken_over = hyper::upgrade::on(response).await;
        let stream = taken_over.map_err(|source| StreamError::Broken { server, source })?;
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Client, None).await)
    }

    async fn connect(&self) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let host = self.server.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let stream = TcpStream::connect((host.as_str(), self.server.port_u16().unwrap_or(443))).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        TlsConnector::from(self.tls.clone()).connect(name, stream).await
    }
}

/// What a Status says, or the code where there is none.
async fn sentence(code: StatusCode, body: Incoming) -> String {
    let read =
        Limited::new(body, MAX_REFUSAL).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let status: Value = serde_json::from_slice(&read).unwrap_or_default();
    match status["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("the server answered {code}"),
    }
}
