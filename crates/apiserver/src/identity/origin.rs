//! Whether a request was made by a page of ours.
//!
//! A browser sends what it holds for a host along with whatever page asks, and lets any page open a WebSocket
//! to any host. So a page of another origin is refused, unless the request carries a credential that no foreign
//! page could have made the browser send.

use http::{header, request::Parts};

use super::credentials::Explicit;

/// Whether a stream may be opened, as far as its origin goes.
pub fn may_open(parts: &Parts) -> bool {
    let Some(origin) = parts.headers.get(header::ORIGIN) else { return true };
    parts.extensions.get::<Explicit>().is_some() || is_own(origin.as_bytes(), host(parts))
}

/// The host a request is for: in HTTP/2 it stands in the address.
pub fn host(parts: &Parts) -> Option<&str> {
    let said = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    said.or_else(|| parts.uri.authority().map(|authority| authority.as_str()))
}

/// The same, if it is a name or an address and perhaps a port: nothing that would make a link lead elsewhere than it says.
pub fn host_for_links(parts: &Parts) -> Option<&str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    host(parts).filter(|host| !host.is_empty() && host.bytes().all(is_plain))
}

pub(super) fn is_own(origin: &[u8], host: Option<&str>) -> bool {
    let (Ok(origin), Some(host)) = (std::str::from_utf8(origin), host) else { return false };
    let Some(authority) = origin.strip_prefix("https://") else { return false };
    without_default_port(authority).eq_ignore_ascii_case(without_default_port(host))
}

fn without_default_port(authority: &str) -> &str {
    authority.strip_suffix(":443").unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn opened(host: &str, origin: Option<&str>, explicit: bool) -> bool {
        let mut request = Request::builder().uri("/x").header(header::HOST, host);
        if let Some(origin) = origin {
            request = request.header(header::ORIGIN, origin);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        if explicit {
            parts.extensions.insert(Explicit);
        }
        may_open(&parts)
    }

    #[test]
    fn only_what_can_stand_in_an_address_is_said_again() {
        let said = |host: &str| {
            let parts =
                Request::builder().uri("/x").header(header::HOST, host).body(()).unwrap().into_parts().0;
            host_for_links(&parts).map(str::to_owned)
        };
        for plain in ["sheaf.example", "sheaf.example:6443", "[fe80::1]:6443", "10.0.0.1"] {
            assert_eq!(said(plain).as_deref(), Some(plain));
        }
        for odd in ["", "a/b", "jo@evil.example", "a b", "a?b", "a#b"] {
            assert_eq!(said(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_foreign_page_opens_no_stream_with_what_the_browser_adds_by_itself() {
        let opened = |origin| opened("sheaf.example:6443", Some(origin), false);
        assert!(!opened("https://evil.example"));
        assert!(!opened("https://sheaf.example"));
        assert!(!opened("http://sheaf.example:6443"));
        assert!(!opened("null"));
        assert!(opened("https://Sheaf.example:6443"));
    }

    #[test]
    fn who_brings_a_credential_of_their_own_may_come_from_anywhere() {
        assert!(opened("sheaf.example:6443", Some("https://evil.example"), true));
        assert!(opened("sheaf.example:6443", None, false), "no browser, no origin");
    }

    #[test]
    fn the_default_port_need_not_be_said() {
        assert!(opened("sheaf.example", Some("https://sheaf.example:443"), false));
    }

    #[test]
    fn the_address_says_the_host_where_no_header_does() {
        let request = Request::builder().uri("https://sheaf.example/x");
        let request = request.header(header::ORIGIN, "https://sheaf.example");
        assert!(may_open(&request.body(()).unwrap().into_parts().0));
    }
}
