//! Requests that follow from one of Steve's API or Rancher's: each goes through the door as its user would send it, and
//! leaves its line.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header, request::Parts};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::Value;
use sheaf_resources::path::{self, encoded};

use crate::{
    ApiServer,
    audit::{Behind, Trail},
    identity::{MASTERS, User},
    request::{Query, ResourceRequest, Target, Verb},
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

pub const JSON: &str = "application/json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";

/// Something to be asked of the API.
#[derive(Clone, Debug)]
pub struct Errand {
    pub request: ResourceRequest,
    /// As it stands in an address.
    pub query: String,
    pub media: &'static str,
    pub body: Option<Value>,
}

impl Errand {
    pub fn new(
        verb: Verb,
        (group, version, resource): (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Self {
        let request = ResourceRequest {
            verb,
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
            subresource: String::new(),
            namespace: namespace.into(),
            name: name.into(),
        };
        Errand { request, query: String::new(), media: JSON, body: None }
    }

    pub fn of_subresource(mut self, subresource: &str) -> Self {
        self.request.subresource = subresource.into();
        self
    }

    pub fn with(mut self, media: &'static str, body: Value) -> Self {
        (self.media, self.body) = (media, Some(body));
        self
    }

    pub fn asking(mut self, query: String) -> Self {
        self.query = query;
        self
    }

    fn uri(&self) -> String {
        let ResourceRequest { group, version, resource, subresource, namespace, name, .. } = &self.request;
        let mut uri = path::root(group, version);
        if !namespace.is_empty() {
            uri += &format!("/namespaces/{}", encoded(namespace));
        }
        uri += &format!("/{resource}");
        for part in [name, subresource] {
            if !part.is_empty() {
                uri += &format!("/{}", encoded(part));
            }
        }
        if !self.query.is_empty() {
            uri += &format!("?{}", self.query);
        }
        uri
    }
}

/// One user's errands.
#[derive(Clone)]
pub struct Errands {
    server: ApiServer,
    user: Arc<User>,
    behind: Behind,
}

impl Errands {
    pub fn new(server: &ApiServer, user: &Arc<User>, behind: Behind) -> Self {
        Errands { server: server.clone(), user: user.clone(), behind }
    }

    /// Asks, and gives back what was answered.
    pub async fn send(&self, errand: &Errand) -> Result<ApiResponse, ApiError> {
        let mut parts = self.parts(errand)?;
        let query = Query::parse(parts.uri.query());
        let target = Arc::new(Target::Resource(errand.request.clone()));
        let mut trail = Trail::following(&self.behind, &parts.method, &parts.uri, &target);
        let body = errand.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        // It is made of what somebody sent, which has its room.
        let asking =
            self.server.answer_with_body(&mut parts, body, &query, &errand.request, &self.user, &mut trail);
        // Boxed: it is a whole request within another.
        match Box::pin(asking).await {
            Ok(response) => Ok(trail.finish(&self.server, response, None).await),
            Err(why) => {
                trail.finish(&self.server, respond::error(&why), Some(&why)).await;
                Err(why)
            }
        }
    }

    /// Asks for an object; null where the answer says all by its code.
    pub async fn ask(&self, errand: &Errand) -> Result<Value, ApiError> {
        let response = self.send(errand).await?;
        if !response.status().is_success() {
            // The one answer without an error that is none either: nobody serves this.
            return Err(ApiError::unknown(format!("{} is not served", errand.request.resource)));
        }
        read(response).await
    }

    /// The same errands done as the server: for what is somebody's own, of which roles say nothing. Whether it is must
    /// have been asked before.
    pub fn as_server(&self) -> Self {
        let server =
            User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() };
        let server = Arc::new(server);
        Errands { server: self.server.clone(), behind: self.behind.acting_as(&server), user: server }
    }

    /// Leaves the line of something that was done in another way, because what it says is for nobody to read.
    pub async fn note(&self, errand: &Errand) -> Result<(), ApiError> {
        let parts = self.parts(errand)?;
        let target = Arc::new(Target::Resource(errand.request.clone()));
        let trail = Trail::following(&self.behind, &parts.method, &parts.uri, &target);
        trail.finish(&self.server, respond::nothing(success::OK), None).await;
        Ok(())
    }

    /// A few letters that make a name one's own.
    pub fn draw(&self) -> String {
        self.server.world.chance.name_suffix()
    }

    /// Bytes that nobody can guess.
    pub fn draw_bytes(&self) -> [u8; 32] {
        self.server.world.chance.bytes()
    }

    fn parts(&self, errand: &Errand) -> Result<Parts, ApiError> {
        let method = match errand.request.verb {
            Verb::Get | Verb::List | Verb::Watch => Method::GET,
            Verb::Create => Method::POST,
            Verb::Update => Method::PUT,
            Verb::Patch => Method::PATCH,
            Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        };
        let request = Request::builder().method(method).uri(errand.uri()).body(());
        let (mut parts, ()) = request.map_err(ApiError::internal)?.into_parts();
        parts.headers.insert(header::ACCEPT, HeaderValue::from_static(JSON));
        if errand.body.is_some() {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(errand.media));
        }
        // What is written belongs to the program that asked.
        if let Some(agent) = self.behind.agent() {
            parts.headers.insert(header::USER_AGENT, agent.clone());
        }
        Ok(parts)
    }
}

/// The JSON of an answer.
pub async fn read(response: ApiResponse) -> Result<Value, ApiError> {
    let body = response.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
    if body.is_empty() {
        return Ok(Value::Null);
    }
    // However deep it nests: it is the server's own.
    let mut reader = serde_json::Deserializer::from_slice(&body);
    reader.disable_recursion_limit();
    Value::deserialize(&mut reader).map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::target;

    proptest::proptest! {
        #[test]
        fn an_errand_is_read_as_it_was_meant(namespace in "[a-z]{1,5}", name in "[^/%]{1,12}") {
            proptest::prop_assume!(name != "." && name != "..");
            let errand = Errand::new(Verb::Get, ("x.io", "v1", "things"), &namespace, &name);
            let uri = errand.uri();
            proptest::prop_assert_eq!(
                target(&Method::GET, &uri, &Query::default()),
                Target::Resource(errand.request)
            );
        }
    }
}
