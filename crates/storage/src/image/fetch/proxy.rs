//! Which proxy stands before a server, and the way through it.
//!
//! What operators write is what they write everywhere (`HTTP_PROXY`, `NO_PROXY`): a host in `no_proxy` is asked
//! directly, be it by name, by domain, by address or by network. A proxy is reached over http, also where what is fetched
//! through it is https: the tunnel is then encrypted from end to end, and the proxy sees the host's name alone.
//!
//! The proxy's own address is not judged: it is the operator's to choose, and may well be this node.

use std::{fmt, net::IpAddr};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;
use ipnet::IpNet;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use url::Url;

use super::{ANSWER, CONNECT, FetchError};

/// The answer to a request for a tunnel is a line and a few headers.
const MOST_ANSWER: usize = 16 << 10;

/// Empty where there is none.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    pub http: String,
    pub https: String,
    /// Separated by commas.
    pub no_proxy: String,
}

impl fmt::Debug for Proxies {
    /// Without what may be a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |url: &str| Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        f.debug_struct("Proxies")
            .field("http", &shown(&self.http))
            .field("https", &shown(&self.https))
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

#[derive(Debug)]
pub struct Proxy {
    /// `host:port`.
    at: String,
    pub login: Option<HeaderValue>,
}

impl Proxies {
    /// The proxy to ask for a URL, if it is not asked directly.
    pub fn of(&self, url: &Url) -> Result<Option<Proxy>, FetchError> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http };
        if proxy.is_empty() || self.leaves_out(url) {
            return Ok(None);
        }
        Proxy::parse(proxy).map(Some)
    }

    fn leaves_out(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let port = url.port_or_known_default();
        self.no_proxy.split(',').map(|entry| entry.trim().to_ascii_lowercase()).any(|entry| {
            // A network has colons of its own where it is one of IPv6.
            if let (Ok(network), Some(address)) = (entry.parse::<IpNet>(), address) {
                return network.contains(&address);
            }
            if let (Ok(one), Some(address)) = (entry.trim_matches(['[', ']']).parse::<IpAddr>(), address) {
                return one == address;
            }
            let (name, only) = match entry.rsplit_once(':') {
                Some((name, digits)) => match digits.parse::<u16>() {
                    Ok(only) => (name, Some(only)),
                    Err(_) => (entry.as_str(), None),
                },
                None => (entry.as_str(), None),
            };
            if name.is_empty() || only.is_some() && only != port {
                return false;
            }
            let domain = name.trim_start_matches("*.").trim_start_matches('.');
            let below = || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
            // A domain that begins with a dot means what is below it; one that does not means itself, too.
            name == "*" || below() || domain.len() == name.len() && host == domain
        })
    }
}

impl Proxy {
    fn parse(text: &str) -> Result<Proxy, FetchError> {
        let unusable = |why: &str| FetchError::Proxy { proxy: "in the setting".into(), why: why.to_owned() };
        let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&with_scheme).map_err(|why| unusable(&why.to_string()))?;
        let host = url.host_str().ok_or_else(|| unusable("it names no host"))?;
        if url.scheme() != "http" {
            return Err(unusable("only those that are reached over http are supported"));
        }
        let login = (!url.username().is_empty()).then(|| {
            let said = |text: &str| String::from_utf8_lossy(&percent_decoded(text)).into_owned();
            let both = format!("{}:{}", said(url.username()), said(url.password().unwrap_or_default()));
            let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(both)));
            if let Ok(value) = &mut value {
                value.set_sensitive(true);
            }
            value
        });
        let login = login.transpose().map_err(|why| unusable(&why.to_string()))?;
        Ok(Proxy { at: format!("{host}:{}", url.port_or_known_default().unwrap_or(80)), login })
    }

    pub async fn connect(&self) -> Result<TcpStream, FetchError> {
        match timeout(CONNECT, TcpStream::connect(&self.at)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(source)) => Err(FetchError::Connect { host: format!("the proxy {}", self.at), source }),
            Err(_) => Err(FetchError::Silent { host: format!("the proxy {}", self.at), after: CONNECT }),
        }
    }

    /// Has the proxy connect to the host of a URL; from then on the stream is one to that host.
    pub async fn tunnel(
        &self,
        mut stream: TcpStream,
        url: &Url,
        host: &str,
    ) -> Result<TcpStream, FetchError> {
        let refused = |why: String| FetchError::Proxy { proxy: self.at.clone(), why };
        let target = format!("{host}:{}", url.port_or_known_default().unwrap_or(443));
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(login) = &self.login {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(login.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        let asking = async {
            stream.write_all(&request).await?;
            let mut answer = Vec::new();
            // Byte by byte: what comes behind the answer is the server's already.
            while !answer.ends_with(b"\r\n\r\n") && answer.len() < MOST_ANSWER {
                answer.push(stream.read_u8().await?);
            }
            Ok::<_, std::io::Error>(answer)
        };
        let answer = match timeout(ANSWER, asking).await {
            Ok(answer) => answer.map_err(|why| refused(why.to_string()))?,
            Err(_) => {
                return Err(FetchError::Silent { host: format!("the proxy {}", self.at), after: ANSWER });
            }
        };
        let answer = String::from_utf8_lossy(&answer);
        let line = answer.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some(code) if line.starts_with("HTTP/1.") && code.starts_with('2') => Ok(stream),
            _ => Err(refused(format!(
                "asked for {target} it answered {:?}",
                line.chars().take(100).collect::<String>()
            ))),
        }
    }
}

fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(behind.first()), hex(behind.get(1))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                decoded.push(*first);
                rest = behind;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_direct(no_proxy: &str, url: &str) -> bool {
        let proxies = Proxies {
            http: "http://proxy:3128".into(),
            https: "http://proxy:3128".into(),
            no_proxy: no_proxy.into(),
        };
        proxies.of(&Url::parse(url).unwrap()).unwrap().is_none()
    }

    #[test]
    fn who_is_left_out_is_asked_directly() {
        for (no_proxy, url) in [
            ("*", "http://example.org/"),
            ("example.org", "http://example.org/"),
            ("example.org", "http://deep.example.org/"),
            (" a.b , .example.org", "https://deep.example.org/"),
            ("*.example.org", "https://deep.example.org/"),
            ("example.org:8080", "http://example.org:8080/"),
            ("10.0.0.0/8", "http://10.1.2.3/"),
            ("10.1.2.3", "http://10.1.2.3/"),
            ("fd00::/8", "http://[fd00::7]/"),
            ("EXAMPLE.org", "http://example.ORG/"),
        ] {
            assert!(is_direct(no_proxy, url), "{no_proxy} {url}");
        }
        for (no_proxy, url) in [
            ("", "http://example.org/"),
            ("example.org", "http://badexample.org/"),
            (".example.org", "http://example.org/"),
            ("example.org:8080", "http://example.org/"),
            ("10.0.0.0/8", "http://11.1.2.3/"),
            ("10.0.0.0/8", "http://10.example.org/"),
        ] {
            assert!(!is_direct(no_proxy, url), "{no_proxy} {url}");
        }
    }

    #[test]
    fn each_scheme_has_its_own_proxy_and_a_login_goes_along() {
        let proxies = Proxies { http: "me:p%40ss@proxy".into(), ..Proxies::default() };
        let proxy = proxies.of(&Url::parse("http://a/").unwrap()).unwrap().unwrap();
        assert_eq!(proxy.at, "proxy:80");
        assert_eq!(proxy.login.unwrap(), &format!("Basic {}", STANDARD.encode("me:p@ss")));
        assert!(proxies.of(&Url::parse("https://a/").unwrap()).unwrap().is_none());
        assert!(!format!("{proxies:?}").contains("p%40ss"));
        for bad in ["https://proxy", "socks5://proxy", "http://"] {
            let proxies = Proxies { http: bad.into(), ..Proxies::default() };
            assert!(
                matches!(proxies.of(&Url::parse("http://a/").unwrap()), Err(FetchError::Proxy { .. })),
                "{bad}"
            );
        }
    }
}
