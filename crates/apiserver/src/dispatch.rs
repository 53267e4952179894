//! From a request to its answer: who asks, may they, and which part of the server knows.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header, request::Parts};
use http_body_util::Full;
use serde_json::json;
use sheaf_resources::{
    kind::{Kind, Verbs},
    rbac::{self, Attributes},
    selector::FieldSelector,
};
use tokio::time::Instant;

use crate::{
    ApiServer, KUBERNETES_VERSION,
    audit::{Trail, reading},
    authorization::{self, Decision},
    body, console, discovery,
    fairness::queues::Seat,
    identity::{ANONYMOUS, PeerCertificate, Rejected, User, credentials, session_cookie},
    intake::Taken,
    machines,
    metrics::RequestLabels,
    negotiate,
    openapi::Answer,
    rancher,
    registry::Catalogue,
    request::{Query, ResourceRequest, Target, Verb, target},
    respond::{self, ApiResponse, Warnings},
    rest::Call,
    status::{ApiError, success},
    steve,
    subresources::refused,
    support_bundle, virtual_machine_image,
};

/// Requests that are not watches are given up after this.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Posting here makes a new key for secrets at rest; see [`crate::encryption`].
pub const ROTATE_KEY: &str = "/sheaf/encryption-key/rotate";

/// Who is at the other end of a connection.
#[derive(Clone, Default)]
pub struct Peer {
    pub certificate: Option<Arc<PeerCertificate>>,
    /// Set for callers inside this process only, who need no credential.
    pub identity: Option<Arc<User>>,
    pub address: Option<SocketAddr>,
}

impl ApiServer {
    /// Answers one request.
    pub async fn handle<B>(&self, request: Request<B>, peer: &Peer) -> ApiResponse
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        let began = Instant::now();
        let _in_flight = self.metrics.request_began();
        let (mut parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query());
        let target = Arc::new(target(&parts.method, parts.uri.path(), &query));
        let labels = self.labels(&target);
        let mut trail = Trail::begin(&self.audit, &parts, &target, peer);
        let answer = self.answer(&mut parts, body, &query, &target, peer, &mut trail);
        let long = match &*target {
            Target::Resource(request) => request.verb == Verb::Watch,
            Target::Path(path) => {
                virtual_machine_image::asked(path, &query).is_some_and(|image| image.is_long())
            }
        };
        let answer = match long {
            true => answer.await,
            false => match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(ApiError::timeout("the request did not finish in time; look before trying again"))
                }
            },
        };
        let (response, error) = match answer {
            Ok(response) => (response, None),
            Err(why) => (told(&why, &target, &query), Some(why)),
        };
        let mut response = trail.finish(self, response, error.as_ref()).await;
        // What somebody uploaded is handed out from the same origin as the console, and must not pass for a script of it.
        let plain = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, plain);
        let labels = RequestLabels { code: response.status().as_u16().into(), ..labels };
        self.metrics.request_ended(labels, began.elapsed());
        response
    }

    async fn answer<B>(
        &self,
        parts: &mut Parts,
        body: B,
        query: &Query,
        target: &Target,
        peer: &Peer,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        if let Target::Path(path) = target
            && let Some(answer) = console::answer(parts, path)
        {
            return answer;
        }
        if let Target::Path(path) = target
            && rancher::is_public(path)
        {
            // Nobody has said who they are yet: nothing is read that is not a login.
            let login = match rancher::is_login(&parts.method, path, query) {
                true => Some(self.intake.take_login(body).await?),
                false => None,
            };
            return self
                .answer_public(parts, path, query, peer, login.as_ref().map(|taken| &taken.body))
                .await;
        }
        let user = self.identify(parts, target, peer, trail)?;
        if let Target::Path(path) = target
            && let Some(place) = rancher::place(path)
        {
            return self.answer_rancher(parts, body, query, &place, &user, peer, trail).await;
        }
        match target {
            Target::Resource(request) => self.answer_request(parts, body, query, request, &user, trail).await,
            Target::Path(path) => {
                if let Some(image) = virtual_machine_image::asked(path, query) {
                    return self.answer_image(parts, body, query, &image, &user, trail).await;
                }
                if let Some(bundle) = support_bundle::asked(path) {
                    return self.answer_bundle(parts, query, &bundle, &user, trail).await;
                }
                if reading::is_asked(path) {
                    return self.answer_audit(parts, query, &user, trail).await;
                }
                if let Some(address) = steve::address::read(path, query) {
                    // Boxed, because what it does may be a whole request again, and stacks are short.
                    return Box::pin(self.answer_steve(parts, body, query, &address, &user, trail)).await;
                }
                self.authorize_path(&user, parts.method.as_str(), path, trail)?;
                let _seat = self.seat_for_path(&user, trail.in_process, path).await?;
                self.answer_path(parts, query, path).await
            }
        }
    }

    /// Does what somebody who is known asks of objects: may they, is there room, and then it.
    pub(crate) async fn answer_request<B>(
        &self,
        parts: &mut Parts,
        body: B,
        query: &Query,
        request: &ResourceRequest,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        if request.group == machines::GROUP {
            return self.answer_machines(parts, body, query, request, user, trail).await;
        }
        // Nothing is read from who may not.
        self.authorize_and_note(user, request, query, trail)?;
        if request.verb.only_reads() {
            return self.answer_allowed(parts, Bytes::new(), query, request, user, trail).await;
        }
        let (body, _room) = self.take_body(user, body, trail).await?;
        self.answer_allowed(parts, body, query, request, user, trail).await
    }

    /// The same, with a body that is made of what has its room already.
    pub(crate) async fn answer_with_body(
        &self,
        parts: &mut Parts,
        body: Bytes,
        query: &Query,
        request: &ResourceRequest,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        if request.group == machines::GROUP {
            return self.answer_machines(parts, Full::new(body), query, request, user, trail).await;
        }
        self.authorize_and_note(user, request, query, trail)?;
        self.answer_allowed(parts, body, query, request, user, trail).await
    }

    /// The body of somebody who is known, and the room it takes until that is dropped.
    pub(crate) async fn take_body<'a, B>(
        &'a self,
        user: &'a User,
        body: B,
        trail: &Trail,
    ) -> Result<(Bytes, Option<Taken<'a>>), ApiError>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: fmt::Display,
    {
        // Our own controllers are few and honest, and must not wait for those who are not.
        if trail.in_process {
            return Ok((body::read(body, body::MAX_BODY).await?, None));
        }
        let is_node = user.node_name().is_some();
        let intake = if is_node { &self.intake_of_nodes } else { &self.intake };
        let taken = intake.take(&user.name, body).await?;
        Ok((taken.body.clone(), Some(taken)))
    }

    async fn answer_allowed(
        &self,
        parts: &mut Parts,
        body: Bytes,
        query: &Query,
        request: &ResourceRequest,
        user: &Arc<User>,
        trail: &mut Trail,
    ) -> Result<ApiResponse, ApiError> {
        if request.verb.only_reads() {
            let seat = self.seat_for(user, trail.in_process, request, query, 0).await?;
            return self.answer_resource(parts, Bytes::new(), query, request, user, seat.as_ref()).await;
        }
        // What is sent to where nobody serves anything is of no kind that says what is secret in it.
        if self.serves(request) {
            trail.brought(&parts.headers, &body);
        }
        let seat = self.seat_for(user, trail.in_process, request, query, body.len()).await?;
        self.answer_resource(parts, body, query, request, user, seat.as_ref()).await
    }

    /// Authenticates, and impersonates when that is asked for and allowed.
    fn identify(
        &self,
        parts: &mut Parts,
        target: &Target,
        peer: &Peer,
        trail: &mut Trail,
    ) -> Result<Arc<User>, ApiError> {
        let user = match &peer.identity {
            Some(user) => user.clone(),
            None => match self.authenticator.authenticate(peer.certificate.as_deref(), &parts.headers) {
                Ok(user) => user,
                // It must not keep its browser from what everybody sees.
                Err(Rejected::Cookie(_)) if self.is_for_everybody(&parts.method, target) => User::anonymous(),
                Err(why) => {
                    tracing::debug!(%why, "a credential was refused");
                    return Err(ApiError::unauthorized());
                }
            },
        };
        if peer.identity.is_none() && peer.certificate.is_some() {
            // A browser that was given a certificate shows it for whatever page asks, as it sends cookies. Programs say
            // nothing of pages.
            trail.known(&user);
            session_cookie::is_not_foreign(parts).map_err(|why| ApiError::cross_site(&why))?;
        } else if peer.identity.is_some() || credentials::is_presented(&parts.headers) {
            parts.extensions.insert(credentials::Explicit);
        } else if user.name != ANONYMOUS
            && let Ok(Some(session)) = session_cookie::token(&parts.headers)
        {
            trail.known(&user);
            session_cookie::check(parts, &session).map_err(|why| ApiError::cross_site(&why))?;
        }
        credentials::strip(&mut parts.headers);
        trail.known(&user);
        let user = self.impersonate(user, &mut parts.headers)?;
        trail.acts_as(&user);
        Ok(user)
    }

    /// Whether it is shown to who has not said who they are.
    fn is_for_everybody(&self, method: &Method, target: &Target) -> bool {
        let Target::Path(path) = target else { return false };
        if rancher::is_for_everybody(method, path) {
            return true;
        }
        let verb = method.as_str().to_ascii_lowercase();
        let attributes = Attributes { verb: &verb, path: Some(path), ..Attributes::default() };
        self.authorizer.authorize(&User::anonymous(), &attributes).is_allowed()
    }

    /// Whether somebody may do what they ask for; the audit has the answer.
    pub(crate) fn authorize_and_note(
        &self,
        user: &User,
        request: &ResourceRequest,
        query: &Query,
        trail: &mut Trail,
    ) -> Result<(), ApiError> {
        self.with_attributes(request, query, |attributes| self.must_be_allowed(user, attributes, Some(trail)))
    }

    /// Whether they may do something else that follows from it.
    pub(crate) fn authorize_resource(
        &self,
        user: &User,
        request: &ResourceRequest,
        query: &Query,
    ) -> Result<(), ApiError> {
        self.with_attributes(request, query, |attributes| self.must_be_allowed(user, attributes, None))
    }

    fn with_attributes<T>(
        &self,
        request: &ResourceRequest,
        query: &Query,
        ask: impl FnOnce(&Attributes<'_>) -> T,
    ) -> T {
        let verb = request.verb.as_str();
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default()).unwrap_or_default();
        let attributes = Attributes {
            verb,
            group: &request.group,
            resource: &request.resource,
            subresource: &request.subresource,
            namespace: rbac::namespace_to_authorize(
                &request.group,
                &request.resource,
                &request.namespace,
                &request.name,
            ),
            name: rbac::name_to_authorize(verb, &request.name, &fields),
            bound_to: match request.verb {
                Verb::List | Verb::Watch => fields.required_value("status.nodeName").unwrap_or_default(),
                _ => "",
            },
            path: None,
        };
        ask(&attributes)
    }

    fn must_be_allowed(
        &self,
        user: &User,
        attributes: &Attributes<'_>,
        trail: Option<&mut Trail>,
    ) -> Result<(), ApiError> {
        let decision = self.authorizer.authorize(user, attributes);
        if let Some(trail) = trail {
            trail.decided(&decision);
        }
        match decision {
            Decision::Allow { .. } => Ok(()),
            Decision::Deny { reason } => Err(refused(authorization::forbidden(user, attributes, &reason))),
        }
    }

    pub(crate) fn authorize_path(
        &self,
        user: &User,
        method: &str,
        path: &str,
        trail: &mut Trail,
    ) -> Result<(), ApiError> {
        let verb = method.to_ascii_lowercase();
        let attributes = Attributes { verb: &verb, path: Some(path), ..Attributes::default() };
        self.must_be_allowed(user, &attributes, Some(trail))
    }

    pub(crate) async fn answer_resource(
        &self,
        parts: &Parts,
        body: Bytes,
        query: &Query,
        request: &ResourceRequest,
        user: &Arc<User>,
        seat: Option<&Seat>,
    ) -> Result<ApiResponse, ApiError> {
        let catalogue = self.registry.catalogue();
        let Some(served) = catalogue.find(&request.group, &request.version, &request.resource) else {
            return Ok(no_such_page());
        };
        let kind = &served.kind;
        for segment in [&request.namespace, &request.name] {
            if segment.contains(['/', '%']) || segment == "." || segment == ".." {
                return Err(ApiError::bad_request(format!("{segment:?} is not a name")));
            }
        }
        let warnings = Warnings::default();
        let headers = &parts.headers;
        let call = Call { served, request, query, headers, body, user, seat, warnings: &warnings };
        // A namespaced resource is addressed in a namespace, except to read all of them at once.
        let across = request.name.is_empty() && matches!(request.verb, Verb::List | Verb::Watch);
        if kind.namespaced() && request.namespace.is_empty() && request.name.is_empty() && !across {
            return Err(ApiError::method_not_allowed());
        }
        if kind.namespaced() == request.namespace.is_empty() && !(kind.namespaced() && across) {
            return Ok(no_such_page());
        }
        let mut response = match (kind.verbs, request.subresource.as_str()) {
            (Verbs::CreateOnly, "") if request.verb == Verb::Create => self.review(&call)?,
            (Verbs::CreateOnly, _) => return Err(ApiError::method_not_allowed()),
            (Verbs::NoCollection, "") if request.verb == Verb::DeleteCollection => {
                return Err(ApiError::method_not_allowed());
            }
            (Verbs::ReadOnly, _) if !request.verb.only_reads() && !user.is_of_the_cluster() => {
                return Err(ApiError::method_not_allowed());
            }
            (Verbs::All | Verbs::NoCollection | Verbs::ReadOnly, "") => self.answer_main(&call).await?,
            (Verbs::All | Verbs::NoCollection | Verbs::ReadOnly, _) => self.answer_subresource(&call).await?,
        };
        warnings.add(kind.deprecation.clone());
        warnings.write(response.headers_mut());
        Ok(response)
    }

    async fn answer_main(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        match call.request.verb {
            Verb::Get => self.get(call).await,
            Verb::List => self.list(call).await,
            Verb::Watch => self.watch(call).await,
            Verb::Create if call.request.name.is_empty() => self.create(call).await,
            Verb::Create => Err(ApiError::method_not_allowed()),
            Verb::Update if !call.request.name.is_empty() => self.update(call).await,
            Verb::Patch if !call.request.name.is_empty() => self.patch(call).await,
            Verb::Update | Verb::Patch => Err(ApiError::method_not_allowed()),
            Verb::Delete => self.delete(call).await,
            Verb::DeleteCollection => self.delete_collection(call).await,
        }
    }

    async fn answer_path(&self, parts: &Parts, query: &Query, path: &str) -> Result<ApiResponse, ApiError> {
        if let Some(response) = self.health(path, query).await {
            return Ok(response);
        }
        if path == ROTATE_KEY {
            if parts.method != Method::POST {
                return Err(ApiError::method_not_allowed());
            }
            let resealed = self.rotate_encryption_key().await?;
            return Ok(respond::value(success::OK, negotiate::Format::Json, &json!({"resealed": resealed})));
        }
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let path = path.trim_end_matches('/');
        let catalogue = self.registry.catalogue();
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let aggregated = negotiate::wants_aggregated_discovery(&parts.headers);
        let document = match segments.as_slice() {
            [] => Some(json!({"paths": root_paths(&catalogue)})),
            ["version"] => Some(version()),
            ["metrics"] => return Ok(respond::text(success::OK, self.metrics_page())),
            ["api" | "apis"] if aggregated => {
                return Ok(respond::bytes_of_type(
                    success::OK,
                    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    discovery::aggregated(&catalogue, segments == ["api"]),
                ));
            }
            ["api"] => Some(discovery::core_versions(&self.config.address)),
            ["apis"] => Some(discovery::group_list(&catalogue)),
            ["api", version] => discovery::resource_list(&catalogue, "", version),
            ["apis", group] => discovery::group(&catalogue, group),
            ["apis", group, version] => discovery::resource_list(&catalogue, group, version),
            [".well-known", "openid-configuration"] => Some(self.token_issuer.discovery()),
            ["openid", "v1", "jwks"] => {
                let keys = self.token_issuer.jwks().to_string();
                return Ok(respond::bytes_of_type(success::OK, "application/jwk-set+json", keys));
            }
            ["openapi", rest @ ..] => return self.answer_openapi(parts, query, rest, &catalogue),
            _ => None,
        };
        match document {
            Some(document) => Ok(respond::value(success::OK, negotiate::format(&parts.headers)?, &document)),
            None => Ok(no_such_page()),
        }
    }
}

impl ApiServer {
    fn answer_openapi(
        &self,
        parts: &Parts,
        query: &Query,
        segments: &[&str],
        catalogue: &Catalogue,
    ) -> Result<ApiResponse, ApiError> {
        let kinds: Vec<&Kind> = catalogue.all().map(|served| &served.kind).collect();
        let hash = query.get("hash");
        match self.openapi.answer(&kinds, catalogue.generation, segments, hash, &parts.headers) {
            Answer::Document { content_type, etag, body, immutable } => {
                let mut response = respond::bytes_of_type(success::OK, content_type, body);
                respond::cacheable(response.headers_mut(), &etag, immutable);
                Ok(response)
            }
            Answer::NotModified { etag } => {
                let mut response = respond::text(success::NOT_MODIFIED, "");
                respond::cacheable(response.headers_mut(), &etag, false);
                Ok(response)
            }
            Answer::Moved { location } => Ok(respond::moved(&location)),
            Answer::NotFound => Ok(no_such_page()),
            Answer::NotAcceptable => Err(ApiError::not_acceptable("application/json")),
        }
    }
}

/// Why not, in the words of the API that was asked.
fn told(why: &ApiError, target: &Target, query: &Query) -> ApiResponse {
    match target {
        Target::Path(path) if rancher::answers(path) => rancher::error(path, why),
        Target::Path(path) if virtual_machine_image::asked(path, query).is_none() => {
            match steve::address::read(path, query) {
                Some(address) => steve::refusal::told(why, &address),
                None => respond::error(why),
            }
        }
        Target::Path(_) | Target::Resource(_) => respond::error(why),
    }
}

pub(crate) fn no_such_page() -> ApiResponse {
    respond::text(success::NO_SUCH_PAGE, "404 page not found\n")
}

fn version() -> serde_json::Value {
    let mut numbers = KUBERNETES_VERSION.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next(), "minor": numbers.next(), "gitVersion": KUBERNETES_VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}

fn root_paths(catalogue: &Catalogue) -> Vec<String> {
    let mut paths: Vec<String> = [
        "/api",
        "/api/v1",
        "/apis",
        reading::PATH,
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
    ]
    .map(String::from)
    .into();
    for served in catalogue.all().filter(|served| !served.kind.group.is_empty()) {
        paths.push(format!("/apis/{}", served.kind.group));
        paths.push(format!("/apis/{}/{}", served.kind.group, served.kind.version));
    }
    paths.push(format!("/apis/{}", machines::GROUP));
    paths.extend(machines::VERSIONS.iter().map(|version| format!("/apis/{}/{version}", machines::GROUP)));
    paths.sort();
    paths.dedup();
    paths
}

impl ApiServer {
    /// Labels of bounded variety: a resource nobody serves must not become a time series.
    fn labels(&self, target: &Target) -> RequestLabels {
        let (verb, group, resource) = match target {
            Target::Resource(request) if machines::listing::is_listed(request) => {
                (request.verb.in_metrics(), request.group.clone(), request.resource.clone())
            }
            Target::Resource(request) if self.serves(request) => {
                (request.verb.in_metrics(), request.group.clone(), request.resource.clone())
            }
            Target::Resource(request) => (request.verb.in_metrics(), String::new(), String::new()),
            Target::Path(_) => ("path", String::new(), String::new()),
        };
        RequestLabels { verb, group, resource, code: 0 }
    }

    fn serves(&self, request: &ResourceRequest) -> bool {
        self.registry.catalogue().find(&request.group, &request.version, &request.resource).is_some()
    }
}
