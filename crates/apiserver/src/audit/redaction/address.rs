//! Addresses of requests. What may stand in a query is what is known to; a token in one is common.

use http::Uri;

use super::REDACTED;
use crate::audit::reading;

/// Longer addresses are cut.
const LONGEST: usize = 4096;
const CUT: &str = "...TRUNCATED";

/// What clients of this API ask with, and none of it secret.
const HARMLESS: &[&str] = &[
    "action",
    "allowWatchBookmarks",
    "container",
    "continue",
    "dryRun",
    "exclude",
    "fieldManager",
    "fieldSelector",
    "fieldValidation",
    "follow",
    "force",
    "gracePeriodSeconds",
    "hash",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "includeObject",
    "labelSelector",
    "limit",
    "limitBytes",
    "link",
    "orphanDependents",
    "preserveSession",
    "pretty",
    "previous",
    "propagationPolicy",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "sinceSeconds",
    "sinceTime",
    "size",
    "tailLines",
    "timeout",
    "timeoutSeconds",
    "timestamps",
    "verbose",
    "watch",
];

/// And what the log itself is asked with. Elsewhere a code may be one that somebody signs in with.
const HARMLESS_OF_THE_LOG: &[&str] =
    &["code", "id", "name", "namespace", "resource", "since", "user", "verb"];

/// The address of a request as it was sent, with every parameter that is not known to be harmless hidden.
pub fn shown_uri(uri: &Uri) -> String {
    let mut shown = uri.path().to_owned();
    let of_the_log: &[&str] = if reading::is_address(uri.path()) { HARMLESS_OF_THE_LOG } else { &[] };
    if let Some(query) = uri.query() {
        for (n, pair) in query.split('&').enumerate() {
            shown.push(if n == 0 { '?' } else { '&' });
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            let is_harmless = name.is_empty() || HARMLESS.contains(&name) || of_the_log.contains(&name);
            shown.push_str(if is_harmless { pair } else { REDACTED });
        }
    }
    if shown.len() > LONGEST {
        let mut end = LONGEST;
        while !shown.is_char_boundary(end) {
            end -= 1;
        }
        shown.truncate(end);
        shown.push_str(CUT);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_shows_what_is_known_to_be_harmless_and_nothing_else() {
        let shown = |uri: &str| shown_uri(&uri.parse().unwrap());
        assert_eq!(
            shown("/api/v1/pods?watch=1&labelSelector=a%3Db"),
            "/api/v1/pods?watch=1&labelSelector=a%3Db"
        );
        assert_eq!(shown("/x?token=hunter2&limit=5"), "/x?redacted&limit=5");
        assert_eq!(shown("/x?hunter2"), "/x?redacted");
        assert_eq!(shown("/x?code=hunter2"), "/x?redacted");
        for path in ["/audit/events", "/k8s/clusters/local/audit/events"] {
            assert_eq!(shown(&format!("{path}?code=403&token=a")), format!("{path}?code=403&redacted"));
        }
        assert_eq!(shown("/x?%77atch=hunter2"), "/x?redacted");
        assert!(shown(&format!("/{}", "a".repeat(10_000))).len() < 5000);
    }
}
