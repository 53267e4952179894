//! Which form the client wants its answer in, from the Accept header.
//!
//! JSON and YAML are spoken. Protobuf is understood in requests but never answered: every client that
//! asks for it also lists JSON.

use http::{HeaderMap, header};

use crate::status::ApiError;

const SPOKEN: &str = "application/json, application/yaml";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// What the objects are turned into first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Whole,
    Table,
    /// `PartialObjectMetadata`, or its list.
    Metadata,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Media {
    pub format: Format,
    pub shape: Shape,
}

/// Chooses among what the client accepts, by its own preference.
pub fn media(headers: &HeaderMap) -> Result<Media, ApiError> {
    choose(headers, |params| match (params.get("as"), params.get("g"), params.get("v")) {
        (None, _, _) => Some(Shape::Whole),
        (Some("Table"), Some("meta.k8s.io"), Some("v1")) => Some(Shape::Table),
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1")) => {
            Some(Shape::Metadata)
        }
        _ => None,
    })
}

/// For answers that come in one shape only.
pub fn format(headers: &HeaderMap) -> Result<Format, ApiError> {
    media(headers).map(|media| media.format)
}

/// Whether the client lists aggregated discovery (`apidiscovery.k8s.io/v2`) and prefers it to the plain form.
pub fn wants_aggregated_discovery(headers: &HeaderMap) -> bool {
    clauses(headers).into_iter().find(|clause| clause.is_json()).is_some_and(|clause| {
        let params = &clause.params;
        params.get("as") == Some("APIGroupDiscoveryList")
            && params.get("g") == Some("apidiscovery.k8s.io")
            && params.get("v") == Some("v2")
    })
}

fn choose(headers: &HeaderMap, shape: impl Fn(&Params) -> Option<Shape>) -> Result<Media, ApiError> {
    if !headers.contains_key(header::ACCEPT) {
        return Ok(Media { format: Format::Json, shape: Shape::Whole });
    }
    for clause in clauses(headers) {
        let format = match clause.media_type.as_str() {
            "application/json" | "*/*" | "application/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            _ => continue,
        };
        if let Some(shape) = shape(&clause.params) {
            return Ok(Media { format, shape });
        }
    }
    Err(ApiError::not_acceptable(SPOKEN))
}

struct Clause {
    media_type: String,
    params: Params,
    quality: f32,
}

impl Clause {
    fn is_json(&self) -> bool {
        matches!(self.media_type.as_str(), "application/json" | "*/*" | "application/*")
    }
}

struct Params(Vec<(String, String)>);

impl Params {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }
}

/// The clauses of all Accept headers, best first; equal ones in the order given.
fn clauses(headers: &HeaderMap) -> Vec<Clause> {
    let mut clauses: Vec<Clause> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default().to_ascii_lowercase();
            let params = parts
                .filter_map(|part| part.split_once('='))
                .map(|(key, value)| (key.trim().to_string(), value.trim().trim_matches('"').to_string()))
                .collect();
            let params = Params(params);
            let quality = params.get("q").and_then(|q| q.parse().ok()).unwrap_or(1.0);
            Clause { media_type, params, quality }
        })
        .filter(|clause| clause.quality > 0.0)
        .collect();
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    clauses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::ACCEPT, value.parse().unwrap())])
    }

    fn chosen(value: &str) -> Option<(Format, Shape)> {
        media(&accept(value)).ok().map(|m| (m.format, m.shape))
    }

    #[test]
    fn real_clients_get_what_they_ask_for() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(chosen(table), Some((Format::Json, Shape::Table)));
        assert_eq!(
            chosen("application/vnd.kubernetes.protobuf,application/json"),
            Some((Format::Json, Shape::Whole))
        );
        assert_eq!(chosen("application/json, */*"), Some((Format::Json, Shape::Whole)));
        assert_eq!(
            chosen("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Some((Format::Json, Shape::Metadata))
        );
        assert_eq!(chosen("application/yaml"), Some((Format::Yaml, Shape::Whole)));
        assert_eq!(
            chosen("text/html, application/json;q=0.8, */*;q=0.1"),
            Some((Format::Json, Shape::Whole))
        );
    }

    #[test]
    fn what_is_not_spoken_is_refused() {
        assert_eq!(chosen("application/vnd.kubernetes.protobuf"), None);
        assert_eq!(chosen("image/png"), None);
        assert_eq!(chosen("application/json;as=Elephant;g=meta.k8s.io;v=v1"), None);
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_prefer_it() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert!(wants_aggregated_discovery(&accept(kubectl)));
        assert!(!wants_aggregated_discovery(&accept("application/json")));
        let older =
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert!(!wants_aggregated_discovery(&accept(older)));
    }

    proptest::proptest! {
        #[test]
        fn no_header_makes_the_reader_panic(text in "[ -~]{0,80}") {
            let _ = media(&accept(&text));
            let _ = wants_aggregated_discovery(&accept(&text));
        }
    }
}
