//! Asks a web server for an image.
//!
//! Each connection is made here and not by a client library, because of one rule that has to
//! hold for every one of them, redirects included: the address that is connected to was
//! judged ([`super::address`]), not the name, which can mean something else a moment later.
//!
//! Deliberately absent for now: proxies, passwords in the URL, compressed transfers, and going on where
//! an attempt broke off. The caller tries again.

use std::{
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::Stream;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
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

use super::{Checksum, address::is_refused};
use crate::storage::on_a_thread;

const MOST_REDIRECTS: usize = 10;
const CONNECT: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(60);
/// Without a single byte; how long all of it takes is nobody's business.
const SILENCE: Duration = Duration::from_secs(60);

/// Where an image is, and what is asked of it.
#[derive(Clone, Debug)]
pub struct Source {
    /// `http` or `https`.
    pub url: String,
    pub checksum: Option<Checksum>,
    /// Also fetch from this host itself and from its link.
    pub allow_local: bool,
    pub most_bytes: Option<u64>,
    /// Certificates (PEM) to trust beside those that the host trusts.
    pub additional_ca: Option<String>,
}

impl Source {
    pub fn of(url: impl Into<String>) -> Source {
        Source { url: url.into(), checksum: None, allow_local: false, most_bytes: None, additional_ca: None }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error("{url:?} is not a URL: {why}")]
    NotAUrl { url: String, why: String },
    #[error("only http and https are fetched, not {scheme}")]
    Scheme { scheme: String },
    #[error("a URL with a user or a password in it is not supported")]
    Credentials,
    #[error("{host} has no address")]
    NoAddress {
        host: String,
        #[source]
        source: Option<io::Error>,
    },
    #[error(
        "{host} is {address}, which is this node itself or on its own link only; nothing is fetched from there"
    )]
    LocalAddress { host: String, address: String },
    #[error("cannot connect to {host}")]
    Connect {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("the certificates to trust cannot be read: {why}")]
    Trust { why: String },
    #[error("{host} cannot be verified by TLS")]
    Tls {
        host: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    #[error("{host} did not answer properly")]
    Http {
        host: String,
        #[source]
        source: hyper::Error,
    },
    #[error("{host} said nothing for {} seconds", .after.as_secs())]
    Silent { host: String, after: Duration },
    #[error("{host} answered {status}")]
    Refused { host: String, status: String },
    #[error("{host} sends it compressed ({encoding}), which was not asked for")]
    Encoded { host: String, encoding: String },
    #[error("there were more than {MOST_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("{host} redirects from https to http, and without a checksum nothing would vouch for the image")]
    Downgrade { host: String },
}

pub struct Fetched {
    /// As the server announced it.
    pub length: Option<u64>,
    pub body: Pin<Box<dyn Stream<Item = Result<Bytes, FetchError>> + Send>>,
}

/// Follows redirects until there is a body, and hands it over unread.
pub async fn get(source: &Source) -> Result<Fetched, FetchError> {
    let allow_local = source.allow_local;
    get_from(source, &move |address| allow_local || !is_refused(address)).await
}

/// Whether something may be fetched from an address.
type Judge = dyn Fn(IpAddr) -> bool + Sync;

async fn get_from(source: &Source, may: &Judge) -> Result<Fetched, FetchError> {
    let mut url = parse(&source.url)?;
    for _ in 0..=MOST_REDIRECTS {
        let host = url.host_str().unwrap_or_default().to_owned();
        let (response, connection) = ask(&url, source, may).await?;
        let status = response.status();
        if status.is_redirection()
            && let Some(location) = response.headers().get(header::LOCATION)
        {
            let next = redirected(&url, location.as_bytes())?;
            if url.scheme() == "https" && next.scheme() == "http" && source.checksum.is_none() {
                return Err(FetchError::Downgrade { host });
            }
            url = next;
            continue;
        }
        if !status.is_success() {
            return Err(FetchError::Refused { host, status: status.to_string() });
        }
        return body_of(host, response, connection);
    }
    Err(FetchError::TooManyRedirects)
}

fn parse(text: &str) -> Result<Url, FetchError> {
    let not_a_url = |why: &str| FetchError::NotAUrl { url: text.to_owned(), why: why.to_owned() };
    check(Url::parse(text).map_err(|why| not_a_url(&why.to_string()))?)
}

fn redirected(from: &Url, location: &[u8]) -> Result<Url, FetchError> {
    let location = String::from_utf8_lossy(location);
    let next = from
        .join(&location)
        .map_err(|why| FetchError::NotAUrl { url: location.into_owned(), why: why.to_string() })?;
    check(next)
}

fn check(url: Url) -> Result<Url, FetchError> {
    if !["http", "https"].contains(&url.scheme()) {
        return Err(FetchError::Scheme { scheme: url.scheme().to_owned() });
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(FetchError::Credentials);
    }
    Ok(url)
}

type Connection = AbortOnDropHandle<()>;

async fn ask(
    url: &Url,
    source: &Source,
    may: &Judge,
) -> Result<(Response<Incoming>, Connection), FetchError> {
    let host = url.host_str().unwrap_or_default().to_owned();
    let stream = connect(url, &host, may).await?;
    if url.scheme() == "http" {
        return exchange(url, host, stream).await;
    }
    let failed = |source: Box<dyn Error + Send + Sync>| FetchError::Tls { host: host.clone(), source };
    let name = server_name(url).map_err(|why| failed(why.into()))?;
    let connector = connector(source.additional_ca.clone()).await?;
    let stream = timeout(CONNECT, connector.connect(name, stream))
        .await
        .map_err(|_| FetchError::Silent { host: host.clone(), after: CONNECT })?
        .map_err(|why| failed(why.into()))?;
    exchange(url, host, stream).await
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

async fn exchange(
    url: &Url,
    host: String,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<(Response<Incoming>, Connection), FetchError> {
    let failed = |source| FetchError::Http { host: host.clone(), source };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // What goes wrong on it reaches the body, too, and is told there.
    let connection = AbortOnDropHandle::new(tokio::spawn(async {
        let _ = connection.await;
    }));
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.clone(),
    };
    let not_a_url = |why: http::Error| FetchError::NotAUrl { url: url.to_string(), why: why.to_string() };
    let request = Request::get(&url[Position::BeforePath..Position::AfterQuery])
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("sheaf/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Empty::<Bytes>::new())
        .map_err(not_a_url)?;
    let response = timeout(ANSWER, sender.send_request(request))
        .await
        .map_err(|_| FetchError::Silent { host: host.clone(), after: ANSWER })?
        .map_err(failed)?;
    Ok((response, connection))
}

fn body_of(
    host: String,
    response: Response<Incoming>,
    connection: Connection,
) -> Result<Fetched, FetchError> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    let encoding = header(header::CONTENT_ENCODING).unwrap_or("identity");
    if !encoding.eq_ignore_ascii_case("identity") {
        return Err(FetchError::Encoded { host, encoding: encoding.to_owned() });
    }
    let length = header(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let state = Some((host, response.into_body(), connection));
    let body = futures::stream::unfold(state, |state| async {
        let (host, mut body, connection) = state?;
        loop {
            return match timeout(SILENCE, body.frame()).await {
                Ok(None) => None,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Some((Ok(data), Some((host, body, connection)))),
                    // Trailers say nothing that concerns us.
                    Err(_) => continue,
                },
                Ok(Some(Err(source))) => Some((Err(FetchError::Http { host, source }), None)),
                Err(_) => Some((Err(FetchError::Silent { host, after: SILENCE }), None)),
            };
        }
    });
    Ok(Fetched { length, body: Box::pin(body) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_web_addresses_are_fetched() {
        for bad in ["", "image.qcow2", "file:///etc/shadow", "ftp://a/b", "http://", "http://u:p@a/b"] {
            parse(bad).unwrap_err();
        }
        parse("https://example.org:8443/a.qcow2?x=1").unwrap();
    }

    #[test]
    fn a_redirect_may_be_relative_but_not_to_another_kind_of_address() {
        let from = parse("https://example.org/a/b").unwrap();
        assert_eq!(redirected(&from, b"../c").unwrap().as_str(), "https://example.org/c");
        assert!(matches!(redirected(&from, b"file:///etc/shadow"), Err(FetchError::Scheme { .. })));
    }

    #[tokio::test]
    async fn loopback_is_refused_in_every_spelling() {
        for url in [
            "http://127.0.0.1:1/",
            "http://localhost:1/",
            "http://[::1]:1/",
            "http://2130706433:1/",
            "http://0x7f.1:1/",
        ] {
            let refused = get(&Source::of(url)).await;
            assert!(matches!(refused, Err(FetchError::LocalAddress { .. })), "{url}");
        }
    }

    #[tokio::test]
    async fn a_redirect_does_not_lead_to_the_node_itself_either() {
        let [outside, inside] =
            ["127.0.0.2:0", "127.0.0.1:0"].map(|at| std::net::TcpListener::bind(at).unwrap());
        let (first, inside) = (outside.local_addr().unwrap(), inside.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = outside.accept().unwrap();
            let _ = io::Read::read(&mut stream, &mut [0; 1024]).unwrap();
            let answer =
                format!("HTTP/1.1 302 Found\r\nlocation: http://{inside}/\r\ncontent-length: 0\r\n\r\n");
            io::Write::write_all(&mut stream, answer.as_bytes()).unwrap();
        });
        let source = Source::of(format!("http://{first}/"));
        let refused = get_from(&source, &move |address| address == first.ip()).await;
        let Err(FetchError::LocalAddress { address, .. }) = refused else { panic!("it was followed") };
        assert_eq!(address, "127.0.0.1");
        server.join().unwrap();
    }
}
