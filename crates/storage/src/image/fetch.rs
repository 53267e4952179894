//! Asks a web server for an image, and asks again for the rest when it breaks off.
//!
//! Each connection is made here ([`connection`]) and not by a client library, because of one rule that has to
//! hold for every one of them, redirects included: the address that is connected to was
//! judged ([`super::address`]), not the name, which can mean something else a moment later. Through a proxy
//! ([`proxy`]) that can be said of what this node can look up itself, and of nothing else: an operator who has names
//! resolved elsewhere has to have them judged there, too.
//!
//! What breaks off is gone on with as long as it is sure to be the same file: the server says so with the mark it gave
//! at the beginning, or the checksum will tell. Whoever gives up here is tried again by the caller, from the beginning.
//!
//! Deliberately absent: passwords in the URL, and compressed transfers (not to be confused with files that are).

mod connection;
mod proxy;

use std::{error::Error, io, net::IpAddr, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use http::{HeaderMap, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{sleep, timeout};
use url::Url;

use self::connection::{Connection, ask};
pub use self::proxy::Proxies;
use super::{Checksum, address::is_refused};

const MOST_REDIRECTS: usize = 10;
const CONNECT: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(60);
/// Without a single byte; how long all of it takes is nobody's business.
const SILENCE: Duration = Duration::from_secs(60);
/// How often the rest is asked for without getting anywhere.
const MOST_RESUMES: u32 = 6;
/// Before the first time; twice as long before each next.
const RESUME_PAUSE: Duration = Duration::from_millis(200);
/// So many bytes are a way.
const SOME_WAY: u64 = 1 << 20;
/// How a server says that it sends a whole file, or the part that was asked for.
const WHOLE: u16 = 200;
const PART: u16 = 206;

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
    pub proxies: Proxies,
}

impl Source {
    pub fn of(url: impl Into<String>) -> Source {
        Source {
            url: url.into(),
            checksum: None,
            allow_local: false,
            most_bytes: None,
            additional_ca: None,
            proxies: Proxies::default(),
        }
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
        "nothing is fetched from {}, which is this node itself or on its own link only",
        with_address(host, address)
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
    #[error("{host} ended before its end")]
    EndedEarly { host: String },
    #[error("{host} answered {status}")]
    Refused { host: String, status: String },
    #[error("{host} sends it compressed ({encoding}), which was not asked for")]
    Encoded { host: String, encoding: String },
    #[error("there were more than {MOST_REDIRECTS} redirects")]
    TooManyRedirects,
    #[error("{host} redirects from https to http, and without a checksum nothing would vouch for the image")]
    Downgrade { host: String },
    #[error("the proxy {proxy} cannot be used: {why}")]
    Proxy { proxy: String, why: String },
    #[error("{host} broke off after {bytes} bytes and has not the same file any more: {why}")]
    Changed { host: String, bytes: u64, why: &'static str },
}

fn with_address(host: &str, address: &str) -> String {
    if host == address { host.to_owned() } else { format!("{host} ({address})") }
}

impl FetchError {
    /// Whether it may go better a moment later.
    fn may_pass(&self) -> bool {
        matches!(
            self,
            FetchError::NoAddress { .. }
                | FetchError::Connect { .. }
                | FetchError::Http { .. }
                | FetchError::Silent { .. }
                | FetchError::EndedEarly { .. }
        )
    }
}

pub struct Fetched {
    /// As the server announced it.
    pub length: Option<u64>,
    pub body: Pin<Box<dyn Stream<Item = Result<Bytes, FetchError>> + Send>>,
}

/// Follows redirects until there is a body, and hands it over unread.
pub async fn get(source: &Source) -> Result<Fetched, FetchError> {
    let allow_local = source.allow_local;
    get_from(source, Arc::new(move |address| allow_local || !is_refused(address))).await
}

/// Whether something may be fetched from an address.
type Judge = dyn Fn(IpAddr) -> bool + Send + Sync;

/// From where on a file is asked for, and the mark of the file that is meant.
#[derive(Clone, Debug)]
struct Rest {
    at: u64,
    mark: Option<String>,
}

async fn get_from(source: &Source, may: Arc<Judge>) -> Result<Fetched, FetchError> {
    let answer = follow(source, &*may, None).await?;
    if answer.response.status().as_u16() != WHOLE {
        let (host, status) = (answer.host, answer.response.status().to_string());
        return Err(FetchError::Refused { host, status });
    }
    let headers = answer.response.headers();
    let length = text(headers, header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let body = Body {
        source: source.clone(),
        may,
        mark: mark(headers),
        length,
        at: 0,
        from: 0,
        resumes: 0,
        host: answer.host,
        reading: Some((answer.response.into_body(), answer.connection)),
    };
    let body = futures::stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match body.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(body))),
            Ok(None) => None,
            Err(why) => Some((Err(why), None)),
        }
    });
    Ok(Fetched { length, body: Box::pin(body) })
}

/// An answer that is no redirect.
struct Answer {
    host: String,
    response: Response<Incoming>,
    connection: Connection,
}

async fn follow(source: &Source, may: &Judge, rest: Option<&Rest>) -> Result<Answer, FetchError> {
    let mut url = parse(&source.url)?;
    for _ in 0..=MOST_REDIRECTS {
        let host = url.host_str().unwrap_or_default().to_owned();
        let (response, connection) = ask(&url, source, may, rest).await?;
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
        let encoding = text(response.headers(), header::CONTENT_ENCODING).unwrap_or("identity").to_owned();
        if !encoding.eq_ignore_ascii_case("identity") {
            return Err(FetchError::Encoded { host, encoding });
        }
        return Ok(Answer { host, response, connection });
    }
    Err(FetchError::TooManyRedirects)
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// What the server tells files apart by, of what it can be asked about again.
fn mark(headers: &HeaderMap) -> Option<String> {
    let strong = text(headers, header::ETAG).filter(|tag| !tag.starts_with("W/"));
    strong.or(text(headers, header::LAST_MODIFIED)).map(str::to_owned)
}

/// A file as it is read, over as many connections as it takes.
struct Body {
    source: Source,
    may: Arc<Judge>,
    mark: Option<String>,
    length: Option<u64>,
    /// How many bytes were read, and how many of them before this connection.
    at: u64,
    from: u64,
    resumes: u32,
    host: String,
    reading: Option<(Incoming, Connection)>,
}

impl Body {
    async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let Some((body, _)) = &mut self.reading else {
                self.resume().await?;
                continue;
            };
            let host = self.host.clone();
            let why = match timeout(SILENCE, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.at += data.len() as u64;
                        return Ok(Some(data));
                    }
                    // Trailers say nothing that concerns us.
                    Err(_) => continue,
                },
                Ok(None) if self.length.is_none_or(|length| self.at >= length) => return Ok(None),
                Ok(None) => FetchError::EndedEarly { host },
                Ok(Some(Err(source))) => FetchError::Http { host, source },
                Err(_) => FetchError::Silent { host, after: SILENCE },
            };
            self.reading = None;
            if !self.may_resume() {
                return Err(why);
            }
            tracing::debug!(url = self.source.url, at = self.at, %why, "a fetch broke off; asking for the rest");
        }
    }

    /// Whether the rest is worth asking for, and sure to be of the same file.
    fn may_resume(&mut self) -> bool {
        if self.at >= self.from + SOME_WAY {
            self.resumes = 0;
        }
        self.resumes += 1;
        self.at > 0
            && self.length.is_some()
            && self.resumes <= MOST_RESUMES
            && (self.mark.is_some() || self.source.checksum.is_some())
    }

    async fn resume(&mut self) -> Result<(), FetchError> {
        self.from = self.at;
        let rest = Rest { at: self.at, mark: self.mark.clone() };
        loop {
            sleep(RESUME_PAUSE * 2u32.pow(self.resumes - 1)).await;
            // From the first address on: where it led to may have been for once only.
            let answer = match follow(&self.source, &*self.may, Some(&rest)).await {
                Ok(answer) => answer,
                Err(why) if why.may_pass() && self.may_resume() => continue,
                Err(why) => return Err(why),
            };
            let changed = |why| FetchError::Changed { host: answer.host.clone(), bytes: rest.at, why };
            let headers = answer.response.headers();
            if answer.response.status().as_u16() != PART {
                return Err(changed("it sends all of it anew"));
            }
            let range = text(headers, header::CONTENT_RANGE).and_then(parse_range);
            if range != Some((rest.at, self.length)) {
                return Err(changed("it sends another part than was asked for"));
            }
            if rest.mark.is_some() && mark(headers).is_some_and(|mark| Some(mark) != rest.mark) {
                return Err(changed("it is marked as another one"));
            }
            self.host.clone_from(&answer.host);
            self.reading = Some((answer.response.into_body(), answer.connection));
            return Ok(());
        }
    }
}

/// `bytes 100-199/200`: where a part begins, and how long the whole is.
fn parse_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, length) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, length.trim().parse().ok()))
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

    #[test]
    fn a_part_says_where_it_begins_and_how_long_the_whole_is() {
        assert_eq!(parse_range("bytes 100-199/200"), Some((100, Some(200))));
        assert_eq!(parse_range("bytes 0-9/*"), Some((0, None)));
        for bad in ["", "bytes */200", "items 0-9/10", "bytes 0/10", "bytes -1-9/10"] {
            assert_eq!(parse_range(bad), None, "{bad:?}");
        }
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
        let refused = get_from(&source, Arc::new(move |address| address == first.ip())).await;
        let Err(FetchError::LocalAddress { address, .. }) = refused else { panic!("it was followed") };
        assert_eq!(address, "127.0.0.1");
        server.join().unwrap();
    }
}
