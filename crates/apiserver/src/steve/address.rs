//! What a request of the facade is for, read from its path and query alone.
//!
//! ```text
//!   /v1[/harvester]/TYPE                         a collection
//!   /v1[/harvester]/TYPE/NAMESPACE               of one namespace
//!   /v1[/harvester]/TYPE/[NAMESPACE/]NAME        an object      ?action=... ?link=...
//!   /v1[/harvester]/TYPE/[NAMESPACE/]NAME/LINK
//! ```
//!
//! Whether a segment is a namespace or a name is for whoever knows the kind to say.

use crate::request::{Query, percent_decode};

/// Where Harvester's clients find what is everybody else's at `/v1`.
const HARVESTER: &str = "harvester";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `/v1` or `/v1/harvester`: links that are answered begin the same way.
    pub root: &'static str,
    /// The type, in lower case; empty for the root itself.
    pub noun: String,
    /// What follows it.
    pub rest: Vec<String>,
    pub action: Option<String>,
    pub link: Option<String>,
}

/// `None` if the path is not one of the facade's.
pub fn read(path: &str, query: &Query) -> Option<Address> {
    let rest = path.strip_prefix("/v1")?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    let mut segments: Vec<String> =
        rest.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect::<Option<_>>()?;
    let root = match segments.first().map(String::as_str) {
        Some(HARVESTER) => {
            segments.remove(0);
            "/v1/harvester"
        }
        _ => "/v1",
    };
    let noun = if segments.is_empty() { String::new() } else { segments.remove(0).to_lowercase() };
    let owned = |key: &str| query.get(key).map(str::to_owned);
    Some(Address { root, noun, rest: segments, action: owned("action"), link: owned("link") })
}

/// What of a kind's an address names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    pub link: String,
}

impl Address {
    /// Reads the rest as a kind of that scope has it; `None` if it has too many parts, or one that nothing is called.
    pub fn named(&self, namespaced: bool) -> Option<Named> {
        let is_no_name = |part: &String| part.contains(['/', '%']) || part == "." || part == "..";
        if self.rest.iter().any(is_no_name) {
            return None;
        }
        let of_query = self.link.clone().unwrap_or_default();
        let named = |namespace: &str, name: &str, link: &str| Named {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            link: if link.is_empty() { of_query.clone() } else { link.to_owned() },
        };
        let parts: Vec<&str> = self.rest.iter().map(String::as_str).collect();
        Some(match (namespaced, parts.as_slice()) {
            (_, []) => named("", "", ""),
            (true, [namespace]) => named(namespace, "", ""),
            (true, [namespace, name]) => named(namespace, name, ""),
            (true, [namespace, name, link]) => named(namespace, name, link),
            (false, [name]) => named("", name, ""),
            (false, [name, link]) => named("", name, link),
            (true | false, _) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uri: &str) -> Option<Address> {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        read(path, &Query::parse(Some(query)))
    }

    fn named(uri: &str, namespaced: bool) -> Option<(String, String, String)> {
        at(uri)?.named(namespaced).map(|named| (named.namespace, named.name, named.link))
    }

    fn parts(namespace: &str, name: &str, link: &str) -> Option<(String, String, String)> {
        Some((namespace.into(), name.into(), link.into()))
    }

    #[test]
    fn both_roots_mean_the_same_and_are_kept_apart() {
        let one = at("/v1/Secrets/a/b").unwrap();
        let other = at("/v1/harvester/secrets/a/b/").unwrap();
        assert_eq!((one.root, other.root), ("/v1", "/v1/harvester"));
        assert_eq!((&one.noun, &one.rest), (&other.noun, &other.rest));
        assert_eq!(at("/v1").unwrap().noun, "");
        assert_eq!(at("/v1x/secrets"), None);
        assert_eq!(at("/v3/users"), None);
    }

    #[test]
    fn a_segment_is_a_namespace_or_a_name_as_the_scope_says() {
        assert_eq!(named("/v1/secrets", true), parts("", "", ""));
        assert_eq!(named("/v1/secrets/a", true), parts("a", "", ""));
        assert_eq!(named("/v1/nodes/a", false), parts("", "a", ""));
        assert_eq!(named("/v1/images/a/b/download", true), parts("a", "b", "download"));
        assert_eq!(named("/v1/clusters/local?link=machineTypes", false), parts("", "local", "machineTypes"));
        assert_eq!(named("/v1/nodes/a/b/c", false), None);
    }

    #[test]
    fn an_escape_is_no_way_around() {
        for uri in ["/v1/secrets/a%2Fb/c", "/v1/secrets/../c", "/v1/secrets/a/%2e%2e", "/v1/secrets/a/%25"] {
            assert_eq!(named(uri, true), None, "{uri}");
        }
        assert_eq!(at("/v1/secrets/%zz"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_path_makes_the_reader_panic(path in "/v1/.{0,60}", query in ".{0,40}") {
            if let Some(address) = read(&path, &Query::parse(Some(&query))) {
                let _ = (address.named(true), address.named(false));
            }
        }
    }
}
