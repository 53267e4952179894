//! The way to agents: who dials a node, and what is asked of its stream port.
//!
//! A node is found by its Node object and must prove that it is that very node. Every request has a connection of its
//! own: they are few, and a stream keeps its connection for itself anyway.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{body::Incoming, client::conn::http1, upgrade::Upgraded};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{sleep, timeout},
};
use tokio_rustls::TlsConnector;

use super::{VMI, instance::Place};
use crate::{
    ApiServer,
    cache::{Resource, place},
    status::{ApiError, Named, success},
};

/// How the agent is asked to hand its connection over.
const UPGRADE: &str = "sheaf-stream";
/// Also how long an agent that is just being started again is waited for.
const DIAL_PATIENCE: Duration = Duration::from_secs(5);
const DIAL_AGAIN: Duration = Duration::from_millis(100);
/// A node that lost its power is noticed after this, also on a stream where nothing moves.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Longer than an agent waits for a guest.
const ANSWER_PATIENCE: Duration = Duration::from_secs(40);
/// A screenshot is the longest answer.
const MAX_ANSWER: usize = 80 << 20;
/// A refusal is a sentence.
const MAX_SENTENCE: usize = 4096;

/// A connection to an agent, over whatever it is.
pub trait AgentConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> AgentConnection for T {}

/// Reaches the stream ports of nodes.
#[async_trait]
pub trait DialAgent: Send + Sync {
    /// A connection to the agent of `node` and of no other.
    async fn dial(&self, node: &str, address: SocketAddr) -> io::Result<Box<dyn AgentConnection>>;
}

/// Over TLS, both sides known to each other.
pub struct OverTls(TlsConnector);

impl OverTls {
    /// `config` carries the API server's own certificate and trusts the cluster's authority alone.
    pub fn new(config: Arc<ClientConfig>) -> Self {
        OverTls(TlsConnector::from(config))
    }
}

#[async_trait]
impl DialAgent for OverTls {
    async fn dial(&self, node: &str, address: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let name = ServerName::try_from(node.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok(Box::new(self.0.connect(name, stream).await?))
    }
}

/// For a server without nodes.
pub struct NoAgents;

#[async_trait]
impl DialAgent for NoAgents {
    async fn dial(&self, _node: &str, _address: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        Err(io::Error::other("this server has no way to nodes"))
    }
}

/// What an agent answered.
pub(super) struct Answer {
    pub content_type: Option<String>,
    pub body: Bytes,
}

impl ApiServer {
    /// Asks the agent of an instance's node; its refusals are told as the API tells them.
    pub(super) async fn ask_agent(&self, at: &Place, method: Method, what: &str) -> Result<Answer, ApiError> {
        let asking = async {
            let response = self.request(at, method, what, false).await?;
            let (parts, body) = response.into_parts();
            let content_type = parts.headers.get(header::CONTENT_TYPE);
            let content_type = content_type.and_then(|text| text.to_str().ok()).map(str::to_owned);
            if !parts.status.is_success() {
                return Err(refused(&at.node, (VMI, &at.name), parts.status, body).await);
            }
            let body =
                Limited::new(body, MAX_ANSWER).collect().await.map_err(|why| broken(&at.node, &*why))?;
            Ok(Answer { content_type, body: body.to_bytes() })
        };
        timeout(ANSWER_PATIENCE, asking).await.unwrap_or_else(|_| Err(silent(&at.node)))
    }

    /// A stream from the agent of an instance's node.
    pub(super) async fn stream_from_agent(
        &self,
        at: &Place,
        what: &str,
    ) -> Result<TokioIo<Upgraded>, ApiError> {
        let opening = async {
            let response = self.request(at, Method::GET, what, true).await?;
            if response.status() != success::HANDED_OVER {
                let code = response.status();
                return Err(refused(&at.node, (VMI, &at.name), code, response.into_body()).await);
            }
            let stream = hyper::upgrade::on(response).await.map_err(|why| broken(&at.node, &why))?;
            Ok(TokioIo::new(stream))
        };
        timeout(ANSWER_PATIENCE, opening).await.unwrap_or_else(|_| Err(silent(&at.node)))
    }

    async fn request(
        &self,
        at: &Place,
        method: Method,
        what: &str,
        stream: bool,
    ) -> Result<http::Response<Incoming>, ApiError> {
        let mut sender = self.connect_agent(&at.node).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("/v1/machines/{}/{what}", at.uid))
            .header(header::HOST, &at.node);
        if stream {
            request = request.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, UPGRADE);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        sender.send_request(request).await.map_err(|why| broken(&at.node, &why))
    }

    /// A connection to the agent of `node`, for one request.
    pub(crate) async fn connect_agent<B>(&self, node: &str) -> Result<http1::SendRequest<B>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let connection = self.dial_agent(node).await?;
        let (sender, driver) =
            http1::handshake(TokioIo::new(connection)).await.map_err(|why| broken(node, &why))?;
        tokio::spawn(async move {
            if let Err(why) = driver.with_upgrades().await {
                tracing::debug!(%why, "a connection to an agent ended early");
            }
        });
        Ok(sender)
    }

    /// A connection to the agent of `node`. Machines outlive their agent, so right after a restart the Node object
    /// still names the port of the agent that was: where nobody listens, it is looked up and tried again.
    async fn dial_agent(&self, node: &str) -> Result<Box<dyn AgentConnection>, ApiError> {
        let mut refused = None;
        let dialling = async {
            loop {
                let address = self.address_of_agent(node)?;
                match self.nodes.agents.dial(node, address).await {
                    Err(why) if is_of_a_restart(&why) => refused = Some(why),
                    dialled => return dialled.map_err(|why| broken(node, &why)),
                }
                sleep(DIAL_AGAIN).await;
            }
        };
        match (timeout(DIAL_PATIENCE, dialling).await, refused) {
            (Ok(dialled), _) => dialled,
            (Err(_), Some(why)) => Err(broken(node, &why)),
            (Err(_), None) => Err(silent(node)),
        }
    }

    /// Where a node's agent listens, as its Node object says.
    fn address_of_agent(&self, node: &str) -> Result<SocketAddr, ApiError> {
        let object = self.cache.get(&Resource::new("", "nodes"), &place("", node));
        let status = object.map(|object| object.to_value()["status"].take()).unwrap_or_default();
        let addresses = status["addresses"].as_array().into_iter().flatten();
        let address = addresses
            .filter(|one| one["type"] == "InternalIP")
            .find_map(|one| one["address"].as_str()?.parse::<IpAddr>().ok());
        let port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
        let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
        match (address, port) {
            (Some(address), Some(port)) => Ok(SocketAddr::new(address, port)),
            _ => Err(ApiError::internal(format!("node {node} does not say where its agent listens"))),
        }
    }
}

/// Nobody listens, or whoever did has just ended.
fn is_of_a_restart(why: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof};
    matches!(why.kind(), ConnectionRefused | ConnectionReset | ConnectionAborted | UnexpectedEof)
}

/// What the agent of `node` said against a request about one object.
pub(crate) async fn refused(
    node: &str,
    (what, name): (Named<'_>, &str),
    code: StatusCode,
    body: Incoming,
) -> ApiError {
    let sentence = match Limited::new(body, MAX_SENTENCE).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        Err(_) => format!("the agent of node {node} refused"),
    };
    ApiError::from_agent(code, what, name, &sentence)
}

pub(crate) fn broken(node: &str, why: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal(format!("the agent of node {node} cannot be asked: {why}"))
}

pub(crate) fn silent(node: &str) -> ApiError {
    ApiError::internal(format!("the agent of node {node} does not answer"))
}
