//! `/v1/userpreferences`: what a dashboard remembers of somebody.
//!
//! Everybody has one set of their own and sees no other. It is a ConfigMap in a namespace of its own, which names its user as
//! owner: it goes when they go, and does not serve another one of the name.

use http::Method;
use serde_json::{Map, Value, json};
use sheaf_resources::field_error::{FieldError, FieldPath};

use super::Asked;
use crate::{
    ApiServer,
    cache::{Resource, place},
    identity::objects::{is_made_for, made_for, text},
    negotiate::Format,
    request::Verb,
    respond::{self, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named, success},
    steve::errand::{Errand, JSON},
};

pub const NAMESPACE: &str = "cattle-user-preferences";
const PATH: &str = "/v1/userpreferences";
const NAMED: Named<'static> = Named { group: "", resource: "userpreferences" };
const MOST_BYTES: usize = 64 * 1024;
const MOST_KEYS: usize = 256;

impl ApiServer {
    pub(super) async fn answer_preferences(&self, asked: &Asked<'_>) -> Result<ApiResponse, ApiError> {
        self.reach(Freshness::Latest).await?;
        let (name, own) = (asked.place.name.as_str(), asked.user.name.as_str());
        if !name.is_empty() && name != own {
            return Err(ApiError::not_found(NAMED, name));
        }
        match (&asked.parts.method, name) {
            (&Method::GET | &Method::HEAD, "") => {
                let page = json!({
                    "type": "collection", "resourceType": "userpreference", "links": {"self": asked.link(PATH)},
                    "createTypes": {}, "actions": {}, "count": 1, "data": [self.shown_preferences(asked)],
                });
                Ok(respond::value(success::OK, Format::Json, &page))
            }
            (&Method::GET | &Method::HEAD, _) => Ok(self.preferences_answer(asked)),
            (&Method::PUT, _) => {
                let data = data(own, &asked.body["data"])?;
                self.keep_preferences(asked, data).await?;
                Ok(self.preferences_answer(asked))
            }
            (&Method::DELETE, _) => {
                self.keep_preferences(asked, Map::new()).await?;
                Ok(respond::nothing(success::NO_CONTENT))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn preferences_answer(&self, asked: &Asked<'_>) -> ApiResponse {
        respond::value(success::OK, Format::Json, &self.shown_preferences(asked))
    }

    fn shown_preferences(&self, asked: &Asked<'_>) -> Value {
        let own = &asked.user.name;
        let itself = asked.link(&format!("{PATH}/{own}"));
        let kept =
            self.oneself(asked).and_then(|user| self.kept(own).filter(|kept| is_made_for(kept, &user)));
        let data = kept.and_then(|kept| kept.get("data").cloned()).unwrap_or_else(|| json!({}));
        json!({
            "id": own, "type": "userpreference", "data": data, "actions": {},
            "links": {"self": itself, "update": itself, "remove": itself},
        })
    }

    fn kept(&self, name: &str) -> Option<Value> {
        let there = place(NAMESPACE, &map_of(name));
        Some(self.cache.get(&Resource::new("", "configmaps"), &there)?.to_value())
    }

    async fn keep_preferences(&self, asked: &Asked<'_>, data: Map<String, Value>) -> Result<(), ApiError> {
        let own = asked.user.name.as_str();
        let Some(user) = self.oneself(asked) else {
            return Err(ApiError::refused(NAMED, own, "only local users have preferences, and this is none"));
        };
        let kept = self.kept(own);
        let mut object = kept.clone().unwrap_or_else(|| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": map_of(own), "namespace": NAMESPACE}})
        });
        object["data"] = data.into();
        object["metadata"]["ownerReferences"] = json!(made_for(&user));
        let (verb, name) = match kept {
            Some(_) => (Verb::Update, text(&object, "/metadata/name").to_owned()),
            None => (Verb::Create, String::new()),
        };
        let errand = Errand::new(verb, ("", "v1", "configmaps"), NAMESPACE, &name).with(JSON, object);
        asked.errands.as_server().ask(&errand).await?;
        self.reach(Freshness::Latest).await
    }
}

/// Every namespace has ConfigMaps of the cluster's, and somebody may be called like one.
fn map_of(user: &str) -> String {
    format!("of-{user}")
}

/// Texts by name, and not too many.
fn data(user: &str, said: &Value) -> Result<Map<String, Value>, ApiError> {
    let path = FieldPath::new("data");
    let invalid = |error| ApiError::invalid("", "UserPreference", user, &[error]);
    let Some(said) = said.as_object() else {
        return Err(invalid(FieldError::required(&path, "an object of texts")));
    };
    let mut data = Map::new();
    let mut bytes = 0;
    for (key, value) in said {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(_) | Value::Number(_) => value.to_string(),
            Value::Null => continue,
            Value::Array(_) | Value::Object(_) => {
                return Err(invalid(FieldError::type_invalid(
                    &path.key(key),
                    value.clone(),
                    "must be a text",
                )));
            }
        };
        bytes += key.len() + text.len();
        data.insert(key.clone(), text.into());
    }
    if bytes > MOST_BYTES {
        return Err(invalid(FieldError::too_long(&path, MOST_BYTES as u64)));
    }
    if data.len() > MOST_KEYS {
        return Err(invalid(FieldError::too_many(&path, data.len() as u64, MOST_KEYS as u64)));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferences_are_texts_and_not_too_many() {
        let kept = data("jo", &json!({"theme": "dark", "rows": 10, "seen": true, "gone": null})).unwrap();
        assert_eq!(Value::from(kept), json!({"theme": "dark", "rows": "10", "seen": "true"}));
        assert!(data("jo", &json!({"a": {"b": 1}})).is_err());
        assert!(data("jo", &json!(null)).is_err());
        assert!(data("jo", &json!({"a": "x".repeat(MOST_BYTES)})).is_err());
        let many: Map<String, Value> = (0..=MOST_KEYS).map(|n| (n.to_string(), "x".into())).collect();
        assert!(data("jo", &many.into()).is_err());
    }
}
