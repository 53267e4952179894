//! One connection to a web server, directly or through a proxy, and one question over it.

use std::{error::Error, io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;
use url::{Host, Position, Url};

use super::{ANSWER, CONNECT, FetchError, Judge, Rest, Source, proxy::Proxy};
use crate::storage::on_a_thread;

pub type Connection = AbortOnDropHandle<()>;

/// Asks for a file, or for the rest of it. Redirects are left to the caller.
pub async fn ask(
    url: &Url,
    source: &Source,
    may: &Judge,
    rest: Option<&Rest>,
) -> Result<(Response<Incoming>, Connection), FetchError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let proxy = source.proxies.of(url)?;
    let stream = match &proxy {
        None => connect(url, &host, may).await?,
        Some(proxy) => {
            judge_by_name(url, &host, may).await?;
            proxy.connect().await?
        }
    };
    let request = request(url, rest, proxy.as_ref())?;
    if url.scheme() == "http" {
        return exchange(host, stream, request).await;
    }
    let stream = match &proxy {
        None => stream,
        Some(proxy) => proxy.tunnel(stream, url, &host).await?,
    };
    let failed = |source: Box<dyn Error + Send + Sync>| FetchError::Tls { host: host.clone(), source };
    let name = server_name(url).map_err(|why| failed(why.into()))?;
    let connector = connector(source.additional_ca.clone()).await?;
    let stream = timeout(CONNECT, connector.connect(name, stream))
        .await
        .map_err(|_| FetchError::Silent { host: host.clone(), after: CONNECT })?
        .map_err(|why| failed(why.into()))?;
    exchange(host, stream, request).await
}

/// What can be said of a host that a proxy looks up: what it is for this node. A name that only the proxy knows passes.
async fn judge_by_name(url: &Url, host: &str, may: &Judge) -> Result<(), FetchError> {
    let Ok(addresses) = addresses(url, host).await else { return Ok(()) };
    match addresses.iter().find(|address| !may(address.ip())) {
        Some(address) => {
            Err(FetchError::LocalAddress { host: host.to_owned(), address: address.ip().to_string() })
        }
        None => Ok(()),
    }
}

/// To the first address that takes us, of those that may.
async fn connect(url: &Url, host: &str, may: &Judge) -> Result<TcpStream, FetchError> {
    let addresses = addresses(url, host).await?;
    let mut outcome = FetchError::NoAddress { host: host.to_owned(), source: None };
    for address in addresses {
        if !may(address.ip()) {
            outcome = FetchError::LocalAddress { host: host.to_owned(), address: address.ip().to_string() };
            continue;
        }
        match timeout(CONNECT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(source)) => outcome = FetchError::Connect { host: host.to_owned(), source },
            Err(_) => outcome = FetchError::Silent { host: host.to_owned(), after: CONNECT },
        }
    }
    Err(outcome)
}

async fn addresses(url: &Url, host: &str) -> Result<Vec<SocketAddr>, FetchError> {
    let port = url.port_or_known_default().unwrap_or(80);
    let no_address = |source| FetchError::NoAddress { host: host.to_owned(), source };
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Ipv6(address)) => Ok(vec![(address, port).into()]),
        Some(Host::Domain(name)) => match timeout(CONNECT, tokio::net::lookup_host((name, port))).await {
            Ok(Ok(found)) => Ok(found.collect()),
            Ok(Err(why)) => Err(no_address(Some(why))),
            Err(_) => Err(no_address(Some(io::ErrorKind::TimedOut.into()))),
        },
        None => Err(no_address(None)),
    }
}

fn server_name(url: &Url) -> Result<ServerName<'static>, InvalidDnsNameError> {
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(ServerName::IpAddress(std::net::IpAddr::V4(address).into())),
        Some(Host::Ipv6(address)) => Ok(ServerName::IpAddress(std::net::IpAddr::V6(address).into())),
        Some(Host::Domain(name)) => ServerName::try_from(name.to_owned()),
        None => ServerName::try_from(String::new()),
    }
}

async fn connector(additional_ca: Option<String>) -> Result<TlsConnector, FetchError> {
    on_a_thread(move || {
        let trust = |why: String| FetchError::Trust { why };
        let mut roots = rustls::RootCertStore::empty();
        // A certificate of the host that cannot be read is one that is not trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for certificate in CertificateDer::pem_slice_iter(additional_ca.unwrap_or_default().as_bytes()) {
            let certificate = certificate.map_err(|why| trust(why.to_string()))?;
            roots.add(certificate).map_err(|why| trust(why.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| trust(why.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    })
    .await
}

fn request(
    url: &Url,
    rest: Option<&Rest>,
    proxy: Option<&Proxy>,
) -> Result<Request<Empty<Bytes>>, FetchError> {
    let host = url.host_str().unwrap_or_default();
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let through = proxy.filter(|_| url.scheme() == "http");
    // A proxy is told all of it, a server only what concerns it.
    let target = match through {
        Some(_) => &url[..Position::AfterQuery],
        None => &url[Position::BeforePath..Position::AfterQuery],
    };
    let mut request = Request::get(target)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("sheaf/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity");
    if let Some(login) = through.and_then(|proxy| proxy.login.as_ref()) {
        request = request.header(header::PROXY_AUTHORIZATION, login);
    }
    if let Some(rest) = rest {
        request = request.header(header::RANGE, format!("bytes={}-", rest.at));
        if let Some(mark) = &rest.mark {
            request = request.header(header::IF_RANGE, mark);
        }
    }
    let not_a_url = |why: http::Error| FetchError::NotAUrl { url: url.to_string(), why: why.to_string() };
    request.body(Empty::<Bytes>::new()).map_err(not_a_url)
}

async fn exchange(
    host: String,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Empty<Bytes>>,
) -> Result<(Response<Incoming>, Connection), FetchError> {
    let failed = |source| FetchError::Http { host: host.clone(), source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // What goes wrong on it reaches the body, too, and is told there.
    let connection = AbortOnDropHandle::new(tokio::spawn(async {
        let _ = connection.await;
    }));
    let response = timeout(ANSWER, sender.send_request(request))
        .await
        .map_err(|_| FetchError::Silent { host: host.clone(), after: ANSWER })?
        .map_err(failed)?;
    Ok((response, connection))
}
