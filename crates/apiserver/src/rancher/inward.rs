//! From here to the Kubernetes API: what somebody asks for in Rancher's words is done as they would do it by hand.
//!
//! A request goes through authorization, admission and validation as themselves; nothing of what they may not is done
//! because it was asked for elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt;
use serde_json::Value;
use sheaf_resources::rbac::Attributes;

use crate::{
    ApiServer,
    identity::{MASTERS, User},
    request::{Query, ResourceRequest, Verb},
    status::ApiError,
};

/// One verb on objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub verb: Verb,
    pub group: &'a str,
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub body: Option<&'a Value>,
}

impl<'a> Wanted<'a> {
    pub fn new(verb: Verb, group: &'a str, resource: &'a str) -> Self {
        Wanted { verb, group, resource, namespace: "", name: "", body: None }
    }

    pub fn in_namespace(self, namespace: &'a str) -> Self {
        Wanted { namespace, ..self }
    }

    pub fn named(self, name: &'a str) -> Self {
        Wanted { name, ..self }
    }

    pub fn with(self, body: &'a Value) -> Self {
        Wanted { body: Some(body), ..self }
    }
}

impl ApiServer {
    /// Whether roles let somebody do it. That a password must be changed first counts here, too.
    pub(super) fn may(&self, user: &User, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let asked = Attributes { verb, group, resource, name, ..Attributes::default() };
        self.authorizer.authorize(user, &asked).is_allowed()
    }

    /// Does it as `user`, and answers what the Kubernetes API answers.
    pub(super) async fn ask_as(
        &self,
        user: &Arc<User>,
        in_process: bool,
        wanted: &Wanted<'_>,
    ) -> Result<Value, ApiError> {
        self.ask_with(user, in_process, wanted, Query::default()).await
    }

    /// Finds out whether it would be done. Nothing is.
    pub(super) async fn try_as(
        &self,
        user: &Arc<User>,
        in_process: bool,
        wanted: &Wanted<'_>,
    ) -> Result<Value, ApiError> {
        self.ask_with(user, in_process, &wanted.named(""), Query::parse(Some("dryRun=All"))).await
    }

    async fn ask_with(
        &self,
        user: &Arc<User>,
        in_process: bool,
        wanted: &Wanted<'_>,
        query: Query,
    ) -> Result<Value, ApiError> {
        let version = {
            let catalogue = self.registry.catalogue();
            let stored = crate::cache::Resource::new(wanted.group, wanted.resource);
            let served = catalogue.stored(&stored);
            served.map(|served| served.kind.version.clone()).ok_or_else(|| {
                ApiError::internal(format!("{}.{} is not served", wanted.resource, wanted.group))
            })?
        };
        let request = ResourceRequest {
            verb: wanted.verb,
            group: wanted.group.into(),
            version,
            resource: wanted.resource.into(),
            subresource: String::new(),
            namespace: wanted.namespace.into(),
            name: wanted.name.into(),
        };
        self.authorize_resource(user, &request, &query)?;
        let body = wanted.body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let seat = self.seat_for(user, in_process, &request, &query, body.len()).await?;
        let parts = Request::builder()
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(())
            .map_err(ApiError::internal)?
            .into_parts()
            .0;
        let answer = self.answer_resource(&parts, body, &query, &request, user, seat.as_ref()).await?;
        let answer = answer.into_body().collect().await.map_err(ApiError::internal)?.to_bytes();
        serde_json::from_slice(&answer).map_err(ApiError::internal)
    }

    /// Does it as the server, for what is somebody's own. Whether it is must have been asked before.
    pub(super) async fn ask_as_server(&self, wanted: &Wanted<'_>) -> Result<Value, ApiError> {
        let server =
            User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() };
        self.ask_as(&Arc::new(server), true, wanted).await
    }
}
