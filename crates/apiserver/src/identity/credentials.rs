//! What a request presents in its headers: a bearer token, or nothing. What a browser adds by itself is
//! [`session_cookie`](super::session_cookie)'s, and counts only where nothing is presented here.
//!
//! The token stands in `Authorization`, or, for browsers, which cannot set that header on a WebSocket, among
//! the subprotocols as `base64url.bearer.authorization.k8s.io.<token in base64url>`. HTTP Basic is not
//! accepted, and neither is anything else: a header that cannot be understood refuses the request instead of
//! making it anonymous.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderValue,
    header::{AUTHORIZATION, COOKIE, SEC_WEBSOCKET_PROTOCOL},
};
use zeroize::Zeroizing;

const SUBPROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadCredential {
    #[error("more than one credential was presented")]
    Several,
    #[error("only bearer tokens are accepted in the Authorization header")]
    NotBearer,
    #[error("the bearer token is empty or has a space in it")]
    Malformed,
    #[error("the bearer token among the WebSocket subprotocols is not base64url")]
    BadSubprotocol,
    #[error("a bearer token as a WebSocket subprotocol needs a second subprotocol to speak")]
    LoneSubprotocol,
    #[error("the session cookie holds no API token")]
    BadCookie,
}

/// The bearer token of a request, or `None` when it presents nothing.
pub fn bearer_token(headers: &HeaderMap) -> Result<Option<Zeroizing<String>>, BadCredential> {
    let from_header = authorization(headers)?;
    let from_subprotocol = subprotocol(headers)?;
    match (from_header, from_subprotocol) {
        (Some(_), Some(_)) => Err(BadCredential::Several),
        (token, None) | (None, token) => Ok(token),
    }
}

/// Left in a request's extensions: it carries a credential that its sender put there, not one that a browser
/// adds to whatever page asks.
#[derive(Clone, Copy, Debug)]
pub struct Explicit;

/// Whether a bearer token is presented, good or not.
pub fn is_presented(headers: &HeaderMap) -> bool {
    headers.contains_key(AUTHORIZATION)
        || subprotocols(headers).any(|protocol| protocol.starts_with(SUBPROTOCOL_PREFIX))
}

/// Takes the credential out of the headers, so that nothing behind the door (an agent, a guest, a log) sees it.
pub fn strip(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    headers.remove(COOKIE);
    let offered: Vec<String> = subprotocols(headers).map(str::to_owned).collect();
    if offered.iter().any(|protocol| protocol.starts_with(SUBPROTOCOL_PREFIX)) {
        let others: Vec<&str> =
            offered.iter().map(String::as_str).filter(|one| !one.starts_with(SUBPROTOCOL_PREFIX)).collect();
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
        if let Ok(value) = HeaderValue::from_str(&others.join(", "))
            && !others.is_empty()
        {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, value);
        }
    }
}

fn authorization(headers: &HeaderMap) -> Result<Option<Zeroizing<String>>, BadCredential> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(BadCredential::Several);
    }
    let text = value.to_str().map_err(|_| BadCredential::Malformed)?.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(BadCredential::NotBearer);
    }
    well_formed(token.trim()).map(Some)
}

fn subprotocol(headers: &HeaderMap) -> Result<Option<Zeroizing<String>>, BadCredential> {
    let (tokens, others): (Vec<&str>, Vec<&str>) =
        subprotocols(headers).partition(|protocol| protocol.starts_with(SUBPROTOCOL_PREFIX));
    let encoded = match tokens.as_slice() {
        [] => return Ok(None),
        [protocol] => &protocol[SUBPROTOCOL_PREFIX.len()..],
        _ => return Err(BadCredential::Several),
    };
    // The token's own subprotocol is never answered, so there must be one that can be.
    if others.is_empty() {
        return Err(BadCredential::LoneSubprotocol);
    }
    let decoded = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| BadCredential::BadSubprotocol)?;
    let token = Zeroizing::new(String::from_utf8(decoded).map_err(|_| BadCredential::BadSubprotocol)?);
    well_formed(&token).map(Some)
}

/// Every subprotocol offered. A value that is not text is none of ours and not looked at.
fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty())
}

fn well_formed(token: &str) -> Result<Zeroizing<String>, BadCredential> {
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(BadCredential::Malformed);
    }
    Ok(Zeroizing::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(list: &[(http::HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn token(list: &[(http::HeaderName, &str)]) -> Result<Option<String>, BadCredential> {
        bearer_token(&headers(list)).map(|token| token.map(|token| token.to_string()))
    }

    #[test]
    fn no_header_is_no_credential() {
        assert_eq!(token(&[]), Ok(None));
        assert_eq!(token(&[(SEC_WEBSOCKET_PROTOCOL, "v5.channel.k8s.io")]), Ok(None));
    }

    #[test]
    fn the_scheme_may_be_written_in_any_case() {
        assert_eq!(token(&[(AUTHORIZATION, "Bearer abc")]), Ok(Some("abc".into())));
        assert_eq!(token(&[(AUTHORIZATION, " bEARER   abc ")]), Ok(Some("abc".into())));
    }

    #[test]
    fn what_is_presented_and_not_understood_is_refused_not_ignored() {
        for (value, why) in [
            ("Basic YWRtaW46YWRtaW4=", BadCredential::NotBearer),
            ("Negotiate abc", BadCredential::NotBearer),
            ("abc", BadCredential::NotBearer),
            ("", BadCredential::NotBearer),
            ("Bearer", BadCredential::Malformed),
            ("Bearer ", BadCredential::Malformed),
            ("Bearer a b", BadCredential::Malformed),
        ] {
            assert_eq!(token(&[(AUTHORIZATION, value)]), Err(why), "{value:?}");
        }
        let mut two = headers(&[(AUTHORIZATION, "Bearer a")]);
        two.append(AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert_eq!(bearer_token(&two).unwrap_err(), BadCredential::Several);
    }

    #[test]
    fn a_browser_may_send_its_token_as_a_subprotocol() {
        let offered = format!("{SUBPROTOCOL_PREFIX}{}, v4.channel.k8s.io", URL_SAFE_NO_PAD.encode("abc"));
        assert_eq!(token(&[(SEC_WEBSOCKET_PROTOCOL, &offered)]), Ok(Some("abc".into())));

        let mut stripped = headers(&[(SEC_WEBSOCKET_PROTOCOL, &offered), (AUTHORIZATION, "Bearer x")]);
        strip(&mut stripped);
        assert_eq!(stripped, headers(&[(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io")]));
    }

    #[test]
    fn a_bad_subprotocol_token_is_refused() {
        let good = format!("{SUBPROTOCOL_PREFIX}{}", URL_SAFE_NO_PAD.encode("abc"));
        for (offered, why) in [
            (good.clone(), BadCredential::LoneSubprotocol),
            (format!("{good}, {good}, x"), BadCredential::Several),
            (format!("{SUBPROTOCOL_PREFIX}a b, x"), BadCredential::BadSubprotocol),
            (format!("{SUBPROTOCOL_PREFIX}YWJj=, x"), BadCredential::BadSubprotocol),
            (format!("{SUBPROTOCOL_PREFIX}, x"), BadCredential::Malformed),
        ] {
            assert_eq!(token(&[(SEC_WEBSOCKET_PROTOCOL, &offered)]), Err(why), "{offered}");
        }
        let both = headers(&[(SEC_WEBSOCKET_PROTOCOL, &format!("{good}, x")), (AUTHORIZATION, "Bearer abc")]);
        assert_eq!(bearer_token(&both).unwrap_err(), BadCredential::Several);
    }

    proptest! {
        #[test]
        fn reading_credentials_never_panics(
            authorization in proptest::collection::vec(any::<u8>(), 0..60),
            protocol in "(base64url\\.bearer\\.authorization\\.k8s\\.io\\.)?[ -~]{0,40}",
        ) {
            let mut map = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&authorization) {
                map.insert(AUTHORIZATION, value);
            }
            if let Ok(value) = HeaderValue::from_str(&protocol) {
                map.insert(SEC_WEBSOCKET_PROTOCOL, value);
            }
            let _ = bearer_token(&map);
            strip(&mut map);
            prop_assert_eq!(bearer_token(&map).unwrap(), None);
        }
    }
}
