//! Support bundles through the door: the file of one that is ready, to those who may see the whole cluster, and the objects
//! that go into one, to the node that makes it.
//!
//! | below `/v1/harvester/supportbundles/{name}` | |
//! |---|---|
//! | `GET /download` | the file, as often as somebody asks: that it was sent is not that it arrived |
//! | `GET /cluster` | every object, without its secrets: see [`cluster`] |
//!
//! Bundles are in one namespace, so none is said. A bundle has something of every namespace: whoever makes or fetches one must
//! be allowed to list everything, whatever roles they have in that namespace. A node is allowed the objects for a bundle that
//! is bound to it and being made, and for no other. A bundle is there until its time has come or somebody deletes it.

mod cluster;

use std::{io, time::Duration};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header, request::Parts};
use http_body_util::{BodyDataStream, Empty};
use sheaf_resources::kinds::support_bundle::{ERROR, INITIALIZED, NAMESPACE, READY, SupportBundle};
use tokio::time::timeout;

use crate::{
    ApiServer,
    audit::Trail,
    cache::{Resource, place},
    identity::User,
    machines::agents,
    request::{Query, ResourceRequest, Verb},
    respond::{ApiBody, ApiResponse},
    rest::options::Freshness,
    status::{ApiError, Named},
};

const GROUP: &str = "harvesterhci.io";
const PLURAL: &str = "supportbundles";
/// The subresource that the objects for a bundle are.
pub(crate) const CLUSTER: &str = "cluster";
const BUNDLES: Named<'static> = Named { group: GROUP, resource: PLURAL };
/// For a node that is asked for a file that is there.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the agent says of a file that concerns the client as well.
const PASSED: [header::HeaderName; 4] =
    [header::CONTENT_LENGTH, header::CONTENT_RANGE, header::ACCEPT_RANGES, header::ETAG];

/// What a request asks of a bundle.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BundleRequest<'a> {
    name: &'a str,
    ask: Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Download,
    Cluster,
}

/// What a request for this path asks of a bundle, if that is what it is.
pub(crate) fn asked(path: &str) -> Option<BundleRequest<'_>> {
    let rest = path.strip_prefix("/v1/harvester/supportbundles/")?;
    let (name, what) = rest.trim_end_matches('/').split_once('/')?;
    let ask = match what {
        "download" => Ask::Download,
        CLUSTER => Ask::Cluster,
        _ => return None,
    };
    let is_plain = !name.is_empty() && !name.contains('%') && name != "." && name != "..";
    is_plain.then_some(BundleRequest { name, ask })
}

impl ApiServer {
    pub(crate) async fn answer_bundle(
        &self,
        parts: &Parts,
        query: &Query,
        bundle: &BundleRequest<'_>,
        user: &User,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        let request = ResourceRequest {
            verb: Verb::Get,
            group: GROUP.into(),
            version: "v1beta1".into(),
            resource: PLURAL.into(),
            subresource: if bundle.ask == Ask::Cluster { CLUSTER.into() } else { String::new() },
            namespace: NAMESPACE.into(),
            name: bundle.name.into(),
        };
        trail.about(&request);
        self.authorize_and_note(user, &request, query, trail)?;
        // A node that is allowed this was asked which bundle it makes; that it may not fetch any is what it may not get.
        if user.node_name().is_none() || bundle.ask == Ask::Download {
            self.must_see_everything(user, bundle.name)?;
        }
        if parts.method != Method::GET && !(bundle.ask == Ask::Download && parts.method == Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        self.reach(Freshness::Latest).await?;
        let found = self.cache.get(&Resource::new(GROUP, PLURAL), &place(NAMESPACE, bundle.name));
        let found = found.ok_or_else(|| ApiError::not_found(BUNDLES, bundle.name))?.to_value();
        let object: SupportBundle = serde_json::from_value(found).map_err(ApiError::internal)?;
        match bundle.ask {
            Ask::Cluster if object.is_being_made() => Ok(self.cluster_part(&object)),
            Ask::Cluster => Err(ApiError::conflict(BUNDLES, bundle.name, "it is not being made")),
            Ask::Download => self.download_bundle(&parts.headers, bundle.name, &object).await,
        }
    }

    /// Something of every namespace is for those who may list everything.
    pub(crate) fn must_see_everything(&self, user: &User, name: &str) -> Result<(), ApiError> {
        let everything = ResourceRequest {
            verb: Verb::List,
            group: "*".into(),
            version: "*".into(),
            resource: "*".into(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
        };
        self.authorize_resource(user, &everything, &Query::default()).map_err(|_| {
            let why = "something of every namespace is in it, so it is for those who may list everything";
            ApiError::refused(BUNDLES, name, why)
        })
    }

    async fn download_bundle(
        &self,
        headers: &HeaderMap,
        name: &str,
        bundle: &SupportBundle,
    ) -> Result<ApiResponse, ApiError> {
        let (Some(uid), node) = (bundle.metadata.uid.clone(), bundle.status.node_name.clone()) else {
            return Err(ApiError::not_found(BUNDLES, name));
        };
        if bundle.status.state != READY || bundle.metadata.deletion_timestamp.is_some() {
            return Err(ApiError::unprocessable(why_not_ready(bundle)));
        }
        let room = self.nodes.room_for_a_stream()?;
        let mut agent = self.connect_agent(&node).await?;
        let mut request = Request::get(format!("/v1/bundles/{uid}/download")).header(header::HOST, &node);
        for name in [header::RANGE, header::IF_RANGE] {
            if let Some(value) = headers.get(&name) {
                request = request.header(name, value);
            }
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(ApiError::internal)?;
        let answer = timeout(PATIENCE, agent.send_request(request)).await;
        let answer = answer.map_err(|_| agents::silent(&node))?;
        let answer = answer.map_err(|why| agents::broken(&node, &why))?;
        if !answer.status().is_success() {
            let (code, body) = (answer.status(), answer.into_body());
            return Err(agents::refused(&node, (BUNDLES, name), code, body).await);
        }
        let (said, body) = answer.into_parts();
        let pieces = BodyDataStream::new(body).map(move |piece| {
            // Given back when the body is dropped, at its end or before.
            let _room = &room;
            piece.map_err(io::Error::other)
        });
        let mut response = Response::new(ApiBody::Passed(Box::pin(pieces)));
        *response.status_mut() = said.status;
        let headers = response.headers_mut();
        for name in PASSED {
            if let Some(value) = said.headers.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zip"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
        let disposition = format!("attachment; filename={}", bundle.file_name());
        if let Ok(disposition) = HeaderValue::from_str(&disposition) {
            headers.insert(header::CONTENT_DISPOSITION, disposition);
        }
        Ok(response)
    }
}

fn why_not_ready(bundle: &SupportBundle) -> String {
    let status = &bundle.status;
    let condition = status.conditions.iter().find(|one| one.condition_type == INITIALIZED);
    let message = condition.map_or("", |condition| condition.message.as_str());
    match status.state.as_str() {
        ERROR => format!("support bundle is not ready: it could not be made: {message}"),
        READY => "support bundle is not ready: it is being deleted".to_owned(),
        "" => "support bundle is not ready: it waits for a node that is ready".to_owned(),
        _ => format!("support bundle is not ready: it is being made, {} % are done", status.progress),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_bundle_and_leads_nowhere_else() {
        let download = |name| Some(BundleRequest { name, ask: Ask::Download });
        assert_eq!(asked("/v1/harvester/supportbundles/b/download"), download("b"));
        assert_eq!(
            asked("/v1/harvester/supportbundles/b/cluster"),
            Some(BundleRequest { name: "b", ask: Ask::Cluster })
        );
        for path in [
            "/v1/harvester/supportbundles/../download",
            "/v1/harvester/supportbundles/./download",
            "/v1/harvester/supportbundles//download",
            "/v1/harvester/supportbundles/%2e%2e/download",
            "/v1/harvester/supportbundles/a/../b/download",
            "/v1/harvester/supportbundles/b/else",
            "/v1/harvester/supportbundles/b",
            "/v1/supportbundles/b/download",
        ] {
            assert_eq!(asked(path), None, "{path}");
        }
    }
}
