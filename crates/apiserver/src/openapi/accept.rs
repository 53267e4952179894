//! Which form of a document the client wants, from its Accept header.

use http::{HeaderMap, header};

/// A form a document comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    Json,
    Protobuf,
}

const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The name it had before `@` was found not to be allowed in one. client-go still asks by it.
const PROTOBUF_AS_IT_WAS: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

impl Form {
    pub fn content_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::Protobuf => PROTOBUF,
        }
    }

    fn named(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json" | "application/*" | "*/*" => Some(Form::Json),
            PROTOBUF | PROTOBUF_AS_IT_WAS => Some(Form::Protobuf),
            _ => None,
        }
    }
}

/// The form the client likes best of those there are; none fits when this is none.
pub fn choose(headers: &HeaderMap, there_are: &[Form]) -> Option<Form> {
    let mut clauses: Vec<(f32, &str)> = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            (quality, media_type)
        })
        .filter(|(_, media_type)| !media_type.is_empty())
        .collect();
    if clauses.is_empty() {
        return Some(Form::Json);
    }
    // Stable: among equals the one named first.
    clauses.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    clauses.iter().filter_map(|(_, media_type)| Form::named(media_type)).find(|form| there_are.contains(form))
}

/// Whether the client has the document already, by its If-None-Match header.
pub fn has_already(headers: &HeaderMap, etag: &str) -> bool {
    headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|known| known.trim())
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &str) -> Option<Form> {
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
        choose(&headers, &[Form::Json, Form::Protobuf])
    }

    #[test]
    fn the_client_gets_what_it_likes_best() {
        assert_eq!(choose(&HeaderMap::new(), &[Form::Json]), Some(Form::Json));
        assert_eq!(chosen("application/json, */*"), Some(Form::Json));
        assert_eq!(chosen(PROTOBUF_AS_IT_WAS), Some(Form::Protobuf));
        assert_eq!(chosen(&format!("application/json;q=0.5, {PROTOBUF}")), Some(Form::Protobuf));
        assert_eq!(chosen("text/html, application/*;q=0.1"), Some(Form::Json));
        assert_eq!(chosen("text/html"), None);
    }
}
