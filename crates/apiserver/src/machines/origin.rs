//! Whether a WebSocket was opened by a page of ours.
//!
//! A browser sends what it holds for a host along with whatever page asks, and lets any page open a WebSocket
//! to any host. So a page of another origin is refused, unless the request carries a credential that no foreign
//! page could have made the browser send.

use http::{HeaderMap, header};

use crate::identity::credentials::Explicit;

/// Whether the stream may be opened, as far as its origin goes.
pub fn may_open(headers: &HeaderMap, explicit: Option<&Explicit>) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else { return true };
    explicit.is_some() || is_own(origin.as_bytes(), headers)
}

fn is_own(origin: &[u8], headers: &HeaderMap) -> bool {
    let (Ok(origin), Some(Ok(host))) =
        (std::str::from_utf8(origin), headers.get(header::HOST).map(|host| host.to_str()))
    else {
        return false;
    };
    let Some(authority) = origin.strip_prefix("https://") else { return false };
    without_default_port(authority).eq_ignore_ascii_case(without_default_port(host))
}

fn without_default_port(authority: &str) -> &str {
    authority.strip_suffix(":443").unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn opened(origin: Option<&str>, explicit: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("sheaf.example:6443"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        may_open(&headers, explicit.then_some(&Explicit))
    }

    #[test]
    fn a_foreign_page_opens_no_stream_with_what_the_browser_adds_by_itself() {
        assert!(!opened(Some("https://evil.example"), false));
        assert!(!opened(Some("https://sheaf.example"), false));
        assert!(!opened(Some("http://sheaf.example:6443"), false));
        assert!(!opened(Some("null"), false));
        assert!(opened(Some("https://Sheaf.example:6443"), false));
    }

    #[test]
    fn who_brings_a_credential_of_their_own_may_come_from_anywhere() {
        assert!(opened(Some("https://evil.example"), true));
        assert!(opened(None, false), "no browser, no origin");
    }

    #[test]
    fn the_default_port_need_not_be_said() {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("sheaf.example"));
        headers.insert(header::ORIGIN, HeaderValue::from_static("https://sheaf.example:443"));
        assert!(may_open(&headers, None));
    }
}
