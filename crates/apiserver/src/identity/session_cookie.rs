//! The session of a browser: cookie `R_SESS`, as Rancher's login hands it out.
//!
//! A browser sends a cookie along with whatever page asks, so the cookie alone is not somebody's wish. Beside it a
//! request that changes something must say a word in the header `X-API-CSRF`. The word is in a second cookie, `CSRF`,
//! which pages of ours can read and no other page can; it follows from the session, so that nobody who plants a
//! cookie of their own beside the session can choose it. Whatever it asks for, a request that comes from a page of
//! another origin is refused.
//!
//! The session cookie itself is for no script to read, never leaves TLS, and is not sent from other sites.

use std::fmt::Write;

use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{COOKIE, ORIGIN},
    request::Parts,
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{
    api_tokens,
    credentials::BadCredential,
    origin::{host, is_own},
};

pub const SESSION: &str = "R_SESS";
pub const WORD: &str = "CSRF";
pub const WORD_HEADER: HeaderName = HeaderName::from_static("x-api-csrf");
/// Browsers say with it what sort of page asks.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const WORD_BYTES: usize = 16;

/// Why a request with a good session is refused all the same.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CrossSite {
    #[error("the request comes from a page of another origin")]
    ForeignOrigin,
    #[error("Invalid CSRF token: header X-API-CSRF must say what cookie CSRF says")]
    WrongWord,
}

/// The token in the session cookie. Two cookies of the name are refused: one of them may have been planted.
pub fn token(headers: &HeaderMap) -> Result<Option<Zeroizing<String>>, BadCredential> {
    let mut found: Option<Zeroizing<String>> = None;
    for value in headers.get_all(COOKIE) {
        // What is not text holds no session of ours, but it may hide one.
        let text = value.to_str().map_err(|_| BadCredential::BadCookie)?;
        for (name, value) in text.split(';').filter_map(|pair| pair.trim().split_once('=')) {
            if name != SESSION || value.is_empty() {
                continue;
            }
            if found.is_some() {
                return Err(BadCredential::Several);
            }
            if !api_tokens::has_this_form(value) || value.contains(char::is_whitespace) {
                return Err(BadCredential::BadCookie);
            }
            found = Some(Zeroizing::new(value.to_owned()));
        }
    }
    Ok(found)
}

/// What a page must say to use the session.
pub fn word(token: &str) -> String {
    let digest = Sha256::new().chain_update(b"a page of ours\0").chain_update(token).finalize();
    digest.iter().take(WORD_BYTES).fold(String::new(), |mut word, byte| {
        let _ = write!(word, "{byte:02x}"); // A String takes everything.
        word
    })
}

/// Whether a request that lives on the session cookie was made by a page of ours.
pub fn check(parts: &Parts, token: &str) -> Result<(), CrossSite> {
    is_not_foreign(parts)?;
    if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let mut said = parts.headers.get_all(&WORD_HEADER).iter();
    match (said.next(), said.next()) {
        (Some(said), None) if bool::from(said.as_bytes().ct_eq(word(token).as_bytes())) => Ok(()),
        _ => Err(CrossSite::WrongWord),
    }
}

/// Whether no page of another origin asks, as far as the browser says.
pub fn is_not_foreign(parts: &Parts) -> Result<(), CrossSite> {
    let mut origins = parts.headers.get_all(ORIGIN).iter();
    if origins.any(|origin| !is_own(origin.as_bytes(), host(parts))) {
        return Err(CrossSite::ForeignOrigin);
    }
    let site = parts.headers.get(&FETCH_SITE).map(HeaderValue::as_bytes);
    match site {
        Some(b"cross-site" | b"same-site") => Err(CrossSite::ForeignOrigin),
        _ => Ok(()),
    }
}

/// The cookies that begin a session.
pub fn begin(token: &str) -> [String; 2] {
    [
        format!("{SESSION}={token}; Path=/; Secure; HttpOnly; SameSite=Strict"),
        format!("{WORD}={}; Path=/; Secure; SameSite=Strict", word(token)),
    ]
}

/// The cookies that end it.
pub fn end() -> [String; 2] {
    [
        format!("{SESSION}=; Path=/; Max-Age=0; Secure; HttpOnly; SameSite=Strict"),
        format!("{WORD}=; Path=/; Max-Age=0; Secure; SameSite=Strict"),
    ]
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "token-abcde:secret";

    fn cookies(values: &[&str]) -> Result<Option<String>, BadCredential> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(COOKIE, HeaderValue::from_str(value).unwrap());
        }
        token(&headers).map(|token| token.map(|token| token.to_string()))
    }

    fn asked(method: Method, headers: &[(&str, &str)]) -> Result<(), CrossSite> {
        let mut request = Request::builder().method(method).uri("/x").header("host", "sheaf.example");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0, TOKEN)
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        assert_eq!(cookies(&["a=b; R_SESS=token-abcde:secret; CSRF=x"]), Ok(Some(TOKEN.into())));
        assert_eq!(cookies(&["a=b", "R_SESS=token-abcde:secret"]), Ok(Some(TOKEN.into())));
        for none in [&[][..], &["a=b"], &["R_SESS="], &["XR_SESS=t:s"], &["r_sess=t:s"], &["R_SESS"]] {
            assert_eq!(cookies(none), Ok(None), "{none:?}");
        }
    }

    #[test]
    fn a_planted_second_session_is_refused_and_so_is_what_is_no_token() {
        assert_eq!(cookies(&["R_SESS=t:s; R_SESS=t:s"]), Err(BadCredential::Several));
        assert_eq!(cookies(&["R_SESS=t:s", "R_SESS=u:s"]), Err(BadCredential::Several));
        // A service account's token is for programs, which need no cookies.
        assert_eq!(cookies(&["R_SESS=a.b.c"]), Err(BadCredential::BadCookie));
    }

    #[test]
    fn what_changes_something_says_the_word_of_this_very_session() {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(asked(method.clone(), &[]), Err(CrossSite::WrongWord));
            assert_eq!(asked(method.clone(), &[("x-api-csrf", "")]), Err(CrossSite::WrongWord));
            // A planted cookie and a header that agrees with it are not enough.
            let planted = [("cookie", "CSRF=0123"), ("x-api-csrf", "0123")];
            assert_eq!(asked(method.clone(), &planted), Err(CrossSite::WrongWord));
            let of_another = word("token-abcde:other");
            assert_eq!(asked(method.clone(), &[("x-api-csrf", &of_another)]), Err(CrossSite::WrongWord));
            let twice =
                [("x-api-csrf", word(TOKEN).as_str()), ("x-api-csrf", "x")].map(|(n, v)| (n, v.to_owned()));
            let twice: Vec<(&str, &str)> = twice.iter().map(|(n, v)| (*n, v.as_str())).collect();
            assert_eq!(asked(method.clone(), &twice), Err(CrossSite::WrongWord));
            assert_eq!(asked(method, &[("x-api-csrf", &word(TOKEN))]), Ok(()));
        }
        assert_eq!(asked(Method::GET, &[]), Ok(()));
    }

    #[test]
    fn a_foreign_page_is_refused_even_with_the_word() {
        let word = word(TOKEN);
        for foreign in
            [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")]
        {
            assert_eq!(asked(Method::POST, &[foreign, ("x-api-csrf", &word)]), Err(CrossSite::ForeignOrigin));
            assert_eq!(asked(Method::GET, &[foreign]), Err(CrossSite::ForeignOrigin));
        }
        let own = [("origin", "https://sheaf.example"), ("sec-fetch-site", "same-origin")];
        assert_eq!(asked(Method::GET, &own), Ok(()));
    }

    #[test]
    fn the_word_tells_nothing_of_the_token_and_cookies_are_closed() {
        assert_eq!(word(TOKEN).len(), 2 * WORD_BYTES);
        let [session, word] = begin(TOKEN);
        for must in ["Secure", "HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(session.contains(must), "{session}");
        }
        assert!(word.contains("Secure") && word.contains("SameSite=Strict") && !word.contains("HttpOnly"));
        assert!(!word.contains("secret"));
    }

    proptest! {
        #[test]
        fn reading_cookies_never_panics(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut headers = HeaderMap::new();
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.insert(COOKIE, value);
            }
            let _ = token(&headers);
        }
    }
}
