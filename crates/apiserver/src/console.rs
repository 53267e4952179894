//! `/dashboard/`: the files of the web console, for anybody who asks. What they show comes from the API, as whoever signs in.
//!
//! A page of ours may hold a session that can do everything, so nothing may get into it from elsewhere: no script but those
//! files, nothing inline, nothing loaded from another origin, and no frame around it.

use http::{HeaderMap, HeaderName, HeaderValue, Method, header, request::Parts};
use sha2::{Digest, Sha256};

use crate::{
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

const ROOT: &str = "/dashboard/";

/// Images may be data: the pointer over a machine's screen is one.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; \
     connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const MISSING: &str = "This sheaf was built without its web console. To build one with it: make build (it needs Node.js 18 or \
     newer). Everything else works: sheaf --help, kubectl, the API.\n";

/// What is asked of the console at `path`, if anything.
pub(crate) fn answer(parts: &Parts, path: &str) -> Option<Result<ApiResponse, ApiError>> {
    let only_reads = matches!(parts.method, Method::GET | Method::HEAD);
    let file = match path {
        "/" if only_reads && wants_a_page(&parts.headers) => return Some(Ok(found_at(ROOT))),
        "/dashboard" => "",
        path => path.strip_prefix(ROOT)?,
    };
    Some(match only_reads {
        true if path == "/dashboard" => Ok(found_at(ROOT)),
        true => Ok(serve(&parts.headers, file)),
        false => Err(ApiError::method_not_allowed()),
    })
}

/// A browser, and not kubectl, which asks the same place for something else.
fn wants_a_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|one| one.trim().starts_with("text/html"))
}

fn serve(headers: &HeaderMap, path: &str) -> ApiResponse {
    let Some(file) = sheaf_console::find(path) else {
        let why = if sheaf_console::is_there() { "there is no such file\n" } else { MISSING };
        let mut response = respond::text(success::NO_SUCH_PAGE, why);
        guard(response.headers_mut());
        return response;
    };
    let (body, encoding) = packed(file, headers);
    let mut response = respond::bytes_of_type(success::OK, file.content_type(), body);
    let etag = (!file.never_changes()).then(|| format!("\"{}\"", digest(file.plain)));
    if etag.as_deref().is_some_and(|etag| is_known(headers, etag)) {
        response = respond::nothing(success::NOT_MODIFIED);
    } else if let Some(encoding) = encoding {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    let said = response.headers_mut();
    guard(said);
    let kept = if file.never_changes() { "public, max-age=31536000, immutable" } else { "no-cache" };
    said.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    said.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(&etag).ok()) {
        said.insert(header::ETAG, etag);
    }
    response
}

fn guard(headers: &mut HeaderMap) {
    let all: [(HeaderName, &str); 6] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn packed(file: &sheaf_console::File, headers: &HeaderMap) -> (&'static [u8], Option<&'static str>) {
    let accepted =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let takes = |encoding: &str| {
        accepted.split(',').any(|one| {
            let (name, weight) = one.split_once(';').unwrap_or((one, ""));
            name.trim() == encoding && !matches!(weight.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
        })
    };
    match (file.brotli.filter(|_| takes("br")), file.gzip.filter(|_| takes("gzip"))) {
        (Some(bytes), _) => (bytes, Some("br")),
        (None, Some(bytes)) => (bytes, Some("gzip")),
        (None, None) => (file.plain, None),
    }
}

fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag)
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

fn found_at(place: &'static str) -> ApiResponse {
    let mut response = respond::nothing(success::FOUND);
    guard(response.headers_mut());
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(place));
    response
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn asked(method: Method, path: &str, headers: &[(&str, &str)]) -> Option<Result<ApiResponse, ApiError>> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(&request.body(()).unwrap().into_parts().0, path)
    }

    #[test]
    fn a_browser_is_led_to_the_console_and_kubectl_is_not() {
        let html = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
        let led = asked(Method::GET, "/", &[html]).unwrap().unwrap();
        assert_eq!(
            (led.status().as_u16(), &led.headers()[header::LOCATION]),
            (302, &HeaderValue::from_static(ROOT))
        );
        assert!(asked(Method::GET, "/", &[("accept", "application/json")]).is_none());
        assert!(asked(Method::GET, "/", &[]).is_none());
        assert!(asked(Method::POST, "/", &[html]).is_none());
        assert!(asked(Method::GET, "/api/v1", &[html]).is_none());
        assert!(asked(Method::GET, "/dashboards", &[html]).is_none());
        assert_eq!(asked(Method::GET, "/dashboard", &[]).unwrap().unwrap().status().as_u16(), 302);
    }

    #[test]
    fn nothing_is_sent_to_it_and_no_page_goes_out_unguarded() {
        for path in ["/dashboard", "/dashboard/", "/dashboard/vms"] {
            assert_eq!(asked(Method::POST, path, &[]).unwrap().err().unwrap().code().as_u16(), 405, "{path}");
        }
        for path in ["/dashboard/", "/dashboard/vms", "/dashboard/assets/none.js"] {
            let response = asked(Method::GET, path, &[]).unwrap().unwrap();
            let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
            assert!(
                policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
                "{path}"
            );
            assert!(!policy.contains("unsafe"), "{path}");
            assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
        assert_eq!(
            asked(Method::GET, "/dashboard/assets/none.js", &[]).unwrap().unwrap().status().as_u16(),
            404
        );
    }

    #[test]
    fn a_file_comes_packed_as_its_reader_can_unpack_it() {
        let file = sheaf_console::File {
            path: "assets/a.js",
            plain: b"plain",
            brotli: Some(b"br"),
            gzip: Some(b"gz"),
        };
        let accepts = |said: &'static str| {
            packed(&file, &HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(said))]))
                .1
        };
        assert_eq!(accepts("gzip, deflate, br, zstd"), Some("br"));
        assert_eq!(accepts("gzip;q=0.5, br;q=0"), Some("gzip"));
        assert_eq!(accepts("identity"), None);
    }
}
