//! One object of the facade: read, made, changed, deleted, and what else is done with it.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, header, request::Parts};
use http_body_util::Full;
use serde_json::{Value, json};
use sheaf_resources::path;

use super::{
    Ask,
    actions::{self, ActionCall, Look, Outcome, ResourceActions},
    address::Named,
    errand::{self, JSON, MERGE_PATCH},
    kinds::id_of,
    object::{Chosen, Dresser, place_of, undressed},
    rights::request,
};
use crate::{
    ApiServer,
    audit::Trail,
    body,
    cache::Resource,
    negotiate,
    request::{Query, ResourceRequest, Verb},
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// What of a request's query is for the Kubernetes API.
const PASSED_ON: [&str; 7] = [
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "gracePeriodSeconds",
    "propagationPolicy",
    "resourceVersion",
];

impl ApiServer {
    pub(super) async fn answer_object<B>(
        &self,
        parts: &mut Parts,
        body: B,
        ask: &Ask<'_>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let verb = match (&parts.method, ask.named.name.is_empty()) {
            (&Method::GET | &Method::HEAD, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            _ => return Err(ApiError::method_not_allowed()),
        };
        let kind = &ask.served.kind;
        let mut asked = request(verb, kind, &ask.named.namespace, &ask.named.name);
        trail.about(&asked);
        // What was sent has its room until all is answered, and what is made of it is no second body.
        let (body, _room) = match verb {
            Verb::Create | Verb::Update | Verb::Patch => {
                let (sent, room) = self.take_body(ask.user, body, trail).await?;
                (self.as_the_api_takes_it(parts, ask, &mut asked, &sent)?, room)
            }
            Verb::Delete => {
                // Who may not delete it changes nothing of it either.
                self.authorize_and_note(ask.user, &asked, &Query::default(), trail)?;
                self.before_delete(ask, trail).await?;
                (Bytes::new(), None)
            }
            _ => (Bytes::new(), None),
        };
        trail.about(&asked);
        let format = negotiate::format(&parts.headers)?;
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
        let query = passed_on(ask.query);
        let asking = self.answer_with_body(parts, body, &query, &asked, ask.user, trail);
        let answer = Box::pin(asking).await?;
        let (code, warnings) =
            (answer.status(), answer.headers().get_all(header::WARNING).iter().cloned().collect::<Vec<_>>());
        if !code.is_success() {
            return Err(ApiError::unknown(format!("there is nothing of the type {:?} there", id_of(kind))));
        }
        let object = errand::read(answer).await?;
        // Gone: there is nothing to show any more.
        let mut response = match verb == Verb::Delete && object["kind"] == "Status" {
            true => respond::nothing(success::NO_CONTENT),
            false => respond::value(code, format, &self.dresser(ask).dressed(object)),
        };
        for warning in warnings {
            response.headers_mut().append(header::WARNING, warning);
        }
        Ok(response)
    }

    fn dresser(&self, ask: &Ask<'_>) -> Dresser {
        Dresser::new(self, &ask.served, &ask.base, &ask.rights, Chosen::read(ask.query))
    }

    /// A body without what the facade adds, and the request completed by what it says.
    fn as_the_api_takes_it(
        &self,
        parts: &mut Parts,
        ask: &Ask<'_>,
        asked: &mut ResourceRequest,
        sent: &Bytes,
    ) -> Result<Bytes, ApiError> {
        let kind = &ask.served.kind;
        let media = body::media_type(&parts.headers);
        if asked.verb == Verb::Patch {
            let is_patch = media == "application/apply-patch+yaml" || media.ends_with("-patch+json");
            if is_patch && media != STRATEGIC && media != MERGE_PATCH {
                return Ok(sent.clone());
            }
            // Who does not say in what way means the way that the kind has.
            let media = match media.as_str() {
                MERGE_PATCH => MERGE_PATCH,
                _ if kind.custom => MERGE_PATCH,
                _ => STRATEGIC,
            };
            let patch = self.heavy(sent.len(), || body::json(sent))?.value;
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            return Ok(undressed(patch).to_string().into());
        }
        let decoded = self.heavy(sent.len(), || body::decode(&parts.headers, sent))?;
        let mut object = undressed(decoded.value);
        if !object.is_object() {
            return Err(ApiError::unprocessable("the body is not an object"));
        }
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.clone().into();
        let (namespace, name) = place_of(&object);
        if asked.verb == Verb::Update
            && object["metadata"]["resourceVersion"].as_str().unwrap_or_default().is_empty()
        {
            return Err(ApiError::unprocessable("metadata.resourceVersion is required for update"));
        }
        if asked.verb == Verb::Create {
            if name.is_empty() && object["metadata"]["generateName"].as_str().unwrap_or_default().is_empty() {
                let first: String = id_of(kind).chars().take(1).collect();
                object["metadata"]["generateName"] = format!("{first}-").into();
            }
            if kind.namespaced() && asked.namespace.is_empty() {
                if namespace.is_empty() {
                    return Err(ApiError::unprocessable("metadata.namespace is required"));
                }
                if namespace.contains(['/', '%']) || namespace == "." || namespace == ".." {
                    return Err(ApiError::bad_request(format!("{namespace:?} is not a name")));
                }
                asked.namespace = namespace;
            }
        }
        parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        Ok(object.to_string().into())
    }

    async fn before_delete(&self, ask: &Ask<'_>, trail: &Trail) -> Result<(), ApiError> {
        let Some(actions) = actions::of(&ask.served.kind) else { return Ok(()) };
        let (errands, look) = (self.errands(ask, trail), Look::new(self, &ask.rights));
        let nothing = json!({});
        let call = ActionCall {
            name: "delete",
            errands: &errands,
            look: &look,
            object: &Value::Null,
            namespace: &ask.named.namespace,
            object_name: &ask.named.name,
            body: &nothing,
            query: ask.query,
        };
        actions.before_delete(&call).await
    }

    pub(super) async fn answer_action<B>(
        &self,
        parts: &mut Parts,
        body: B,
        ask: &Ask<'_>,
        name: &str,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let kind = &ask.served.kind;
        let (namespace, object_name) = (ask.named.namespace.as_str(), ask.named.name.as_str());
        // What is done is a part of the object, as roles and audit logs see it.
        trail.about(&ResourceRequest {
            subresource: name.to_owned(),
            ..request(Verb::Create, kind, namespace, object_name)
        });
        let (actions, action) = find(ask, name).ok_or_else(|| ApiError::invalid_action(name))?;
        let (sent, _room) = self.take_body(ask.user, body, trail).await?;
        trail.brought(&parts.headers, &sent);
        let sent = actions::read_body(&sent)?;
        let errands = self.errands(ask, trail);
        let object = match object_name {
            "" => Value::Null,
            _ => self.object_of(ask, trail).await?,
        };
        let (place, of) = actions.place_of_rights(namespace, object_name);
        for right in action.needs {
            self.authorize_and_note(ask.user, &right.request(place, of), &Query::default(), trail)?;
        }
        let look = Look::new(self, &ask.rights);
        let call = ActionCall {
            name,
            errands: &errands,
            look: &look,
            object: &object,
            namespace,
            object_name,
            body: &sent,
            query: ask.query,
        };
        Ok(answered(actions.act(&call).await?))
    }

    pub(super) async fn answer_link(
        &self,
        parts: &mut Parts,
        ask: &Ask<'_>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let link = ask.named.link.as_str();
        trail.about(&ResourceRequest {
            subresource: link.to_owned(),
            ..request(Verb::Get, &ask.served.kind, &ask.named.namespace, &ask.named.name)
        });
        let unknown = || ApiError::unknown(format!("there is no link {link:?}"));
        let actions = actions::of(&ask.served.kind).filter(|actions| actions.links().contains(&link));
        let actions = actions.ok_or_else(unknown)?;
        let errands = self.errands(ask, trail);
        let object = self.object_of(ask, trail).await?;
        let (look, nothing) = (Look::new(self, &ask.rights), json!({}));
        let call = ActionCall {
            name: link,
            errands: &errands,
            look: &look,
            object: &object,
            namespace: &ask.named.namespace,
            object_name: &ask.named.name,
            body: &nothing,
            query: ask.query,
        };
        match actions.follow(&call).await? {
            Outcome::Collection { group, plural, namespace, label: (label, value) } => {
                let served = self.registry.catalogue().stored(&Resource::new(group, plural)).cloned();
                let query = format!("labelSelector={}", path::encoded(&format!("{label}={value}")));
                let query = Query::parse(Some(&query));
                let collection = Ask {
                    served: served.ok_or_else(unknown)?,
                    named: Named { namespace, ..Named::default() },
                    query: &query,
                    base: ask.base.clone(),
                    rights: ask.rights.clone(),
                    user: ask.user,
                };
                self.answer_collection(parts, &collection, trail).await
            }
            outcome => Ok(answered(outcome)),
        }
    }

    /// The object that something is to be done with, as its user reads it.
    async fn object_of(&self, ask: &Ask<'_>, trail: &mut Trail) -> Result<Value, ApiError> {
        let get = request(Verb::Get, &ask.served.kind, &ask.named.namespace, &ask.named.name);
        let (mut parts, ()) = http::Request::new(()).into_parts();
        let (nothing, query) = (Full::new(Bytes::new()), Query::default());
        let asking = self.answer_request(&mut parts, nothing, &query, &get, ask.user, trail);
        let answer = Box::pin(asking).await?;
        if !answer.status().is_success() {
            return Err(ApiError::unknown("there is no such object"));
        }
        errand::read(answer).await
    }
}

fn find(ask: &Ask<'_>, name: &str) -> Option<(&'static dyn ResourceActions, &'static actions::Action)> {
    let actions = actions::of(&ask.served.kind)?;
    let table = if ask.named.name.is_empty() { actions.of_collection() } else { actions.of_object() };
    table.iter().find(|action| action.name == name).map(|action| (actions, action))
}

fn answered(outcome: Outcome) -> ApiResponse {
    match outcome {
        Outcome::Done => respond::nothing(success::NO_CONTENT),
        Outcome::Answer(value) => respond::value(success::OK, negotiate::Format::Json, &value),
        Outcome::Response(response) => *response,
        // Only a link leads to one, and is followed there.
        Outcome::Collection { .. } => respond::nothing(success::NO_CONTENT),
    }
}

/// The query of the request that the Kubernetes API gets.
fn passed_on(query: &Query) -> Query {
    let mut pairs = Vec::new();
    for key in PASSED_ON {
        pairs.extend(query.all(key).map(|value| format!("{key}={}", path::encoded(value))));
    }
    Query::parse(Some(&pairs.join("&")))
}
