//! What a request asks for, read from its method, path and query alone.
//!
//! Paths under `/k8s/clusters/local` mean the same as bare ones.

use http::Method;

/// The prefix Harvester-issued kubeconfigs carry.
pub const CLUSTER_PREFIX: &str = "/k8s/clusters/local";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    pub fn only_reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    /// As metrics count it: dashboards for the original ask for these words.
    pub fn in_metrics(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        }
    }
}

/// A request for objects: `/api/v1/...` or `/apis/group/version/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRequest {
    pub verb: Verb,
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    /// Empty for cluster-scoped resources and for lists across all namespaces.
    pub namespace: String,
    pub name: String,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Resource(ResourceRequest),
    /// Everything else: discovery, health, version, OpenAPI. The path without prefix.
    Path(String),
}

/// Reads the target from method, path (already percent-decoded by segment) and query.
pub fn target(method: &Method, path: &str, query: &Query) -> Target {
    let path = strip_prefix(path);
    match resource_request(method, path, query) {
        Some(request) => Target::Resource(request),
        None => Target::Path(path.to_string()),
    }
}

fn strip_prefix(path: &str) -> &str {
    match path.strip_prefix(CLUSTER_PREFIX) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

fn resource_request(method: &Method, path: &str, query: &Query) -> Option<ResourceRequest> {
    let segments: Vec<String> =
        path.split('/').filter(|s| !s.is_empty()).map(percent_decode).collect::<Option<_>>()?;
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match segments.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        // `/namespaces/x/status` and `/finalize` are subresources of the namespace itself.
        ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, name, subresource) = match rest {
        [resource] => (*resource, "", String::new()),
        [resource, name] => (*resource, *name, String::new()),
        [resource, name, sub @ ..] => (*resource, *name, sub.join("/")),
        [] => return None,
    };
    let watching = query.flag("watch");
    let verb = match (method, name.is_empty()) {
        (&Method::GET | &Method::HEAD, _) if watching => Verb::Watch,
        (&Method::GET | &Method::HEAD, true) => Verb::List,
        (&Method::GET | &Method::HEAD, false) => Verb::Get,
        (&Method::POST, _) => Verb::Create,
        (&Method::PUT, _) => Verb::Update,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => return None,
    };
    Some(ResourceRequest {
        verb,
        group: group.into(),
        version: version.into(),
        resource: resource.into(),
        subresource,
        namespace: namespace.into(),
        name: name.into(),
    })
}

/// The query string, decoded once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(raw: Option<&str>) -> Self {
        let pairs = raw.unwrap_or_default().split('&').filter(|p| !p.is_empty()).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((percent_decode(&key.replace('+', " "))?, percent_decode(&value.replace('+', " "))?))
        });
        Query(pairs.collect())
    }

    /// The first value given for `key`, if any and not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str()).filter(|v| !v.is_empty())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Of everything that was given, in its order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn flag(&self, key: &str) -> bool {
        self.0.iter().find(|(k, _)| k == key).is_some_and(|(_, v)| is_yes(v))
    }
}

/// As the original reads booleans in a query: present counts as true unless it says `0` or, in whatever case, `false`.
pub(crate) fn is_yes(value: &str) -> bool {
    value != "0" && !value.eq_ignore_ascii_case("false")
}

/// `None` when the text is not valid percent-encoded UTF-8.
pub(crate) fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_string());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = (bytes.next()? as char).to_digit(16)?;
        let low = (bytes.next()? as char).to_digit(16)?;
        out.push((high * 16 + low) as u8);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, uri: &str) -> Target {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        target(&method, path, &Query::parse(Some(query)))
    }

    fn resource(method: Method, uri: &str) -> (Verb, String) {
        match read(method, uri) {
            Target::Resource(r) => (
                r.verb,
                format!(
                    "{}/{} {}:{} {}/{}",
                    r.group, r.version, r.resource, r.subresource, r.namespace, r.name
                ),
            ),
            Target::Path(path) => panic!("{path} is no resource"),
        }
    }

    #[test]
    fn paths_are_read_as_the_original_reads_them() {
        assert_eq!(resource(Method::GET, "/api/v1/namespaces"), (Verb::List, "/v1 namespaces: /".into()));
        assert_eq!(resource(Method::GET, "/api/v1/namespaces/a"), (Verb::Get, "/v1 namespaces: /a".into()));
        assert_eq!(
            resource(Method::PUT, "/api/v1/namespaces/a/finalize"),
            (Verb::Update, "/v1 namespaces:finalize /a".into())
        );
        assert_eq!(
            resource(Method::GET, "/api/v1/namespaces/a/secrets?watch=1"),
            (Verb::Watch, "/v1 secrets: a/".into())
        );
        assert_eq!(
            resource(Method::DELETE, "/apis/x.io/v1/namespaces/a/things/b/status"),
            (Verb::Delete, "x.io/v1 things:status a/b".into())
        );
        assert_eq!(
            resource(Method::DELETE, "/apis/x.io/v1/things"),
            (Verb::DeleteCollection, "x.io/v1 things: /".into())
        );
    }

    #[test]
    fn the_cluster_prefix_changes_nothing() {
        assert_eq!(
            read(Method::GET, "/k8s/clusters/local/api/v1/nodes/n"),
            read(Method::GET, "/api/v1/nodes/n")
        );
        assert_eq!(read(Method::GET, "/k8s/clusters/local"), Target::Path("/".into()));
        assert_eq!(read(Method::GET, "/k8s/clusters/localx"), Target::Path("/k8s/clusters/localx".into()));
    }

    #[test]
    fn what_is_no_resource_is_a_path() {
        for path in
            ["/", "/healthz", "/api", "/api/v1", "/apis", "/apis/x.io", "/apis/x.io/v1", "/openapi/v3/api/v1"]
        {
            assert_eq!(read(Method::GET, path), Target::Path(path.into()));
        }
    }

    #[test]
    fn an_escape_cannot_smuggle_a_path_separator_into_routing() {
        let (_, read) = resource(Method::GET, "/api/v1/namespaces/a/secrets/b%2Fc");
        assert_eq!(read, "/v1 secrets: a/b/c");
    }

    proptest::proptest! {
        #[test]
        fn no_path_or_query_makes_the_reader_panic(path in ".{0,80}", query in ".{0,80}") {
            let _ = target(&Method::GET, &path, &Query::parse(Some(&query)));
        }
    }
}
