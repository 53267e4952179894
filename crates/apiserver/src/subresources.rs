//! Requests that are neither whole objects nor discovery: status, scale, tokens, reviews.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};
use sheaf_resources::{
    apply::Shape,
    field_error::{FieldError, FieldPath},
    patch,
    schema::{JsonPath, named_types},
};

use crate::{
    ApiServer, authorization, body,
    identity::{self, Refusal, User},
    negotiate,
    request::Verb,
    respond::{self, ApiResponse},
    rest::{
        Call,
        apply::{self, Configuration},
        get::seen_as,
        options::WriteOptions,
        update::{Part, version_of},
        write::Written,
    },
    status::{ApiError, Named, success},
};

impl ApiServer {
    pub(crate) async fn answer_subresource(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let kind = &call.served.kind;
        let verb = call.request.verb;
        match call.request.subresource.as_str() {
            "status" if kind.status => match verb {
                Verb::Get => self.get(call).await,
                Verb::Update => self.update(call).await,
                Verb::Patch => self.patch(call).await,
                _ => Err(ApiError::method_not_allowed()),
            },
            "scale" if kind.scale.is_some() => self.scale(call).await,
            name if kind.subresources.iter().any(|sub| sub.name == name) => match (name, verb) {
                ("finalize", Verb::Update) => self.update(call).await,
                ("token", Verb::Create) => self.token_request(call).await,
                ("log", Verb::Get) => self.log_of_pod(call).await,
                _ => Err(ApiError::method_not_allowed()),
            },
            _ => Ok(respond::text(success::NO_SUCH_PAGE, "404 page not found\n")),
        }
    }

    /// No pod has a log: a machine talks on its console.
    async fn log_of_pod(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        self.get(call).await?;
        Err(ApiError::bad_request(format!(
            "pod {} stands for a virtual machine and has no log: see the machine's serial console (virtctl console)",
            call.request.name
        )))
    }

    async fn token_request(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let request = match call.body.is_empty() {
            true => json!({}),
            false => body::decode(call.headers, &call.body)?.value,
        };
        self.reach(crate::rest::options::Freshness::Latest).await?;
        let directory = crate::identity_view::CachedDirectory::new(self.cache.clone());
        let answer = self
            .token_issuer
            .request(&directory, &call.request.namespace, &call.request.name, &request)
            .map_err(refused)?;
        Ok(respond::value(success::CREATED, negotiate::format(call.headers)?, &answer))
    }

    /// Answers a question about identity or access.
    pub(crate) fn review(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let question = body::decode(call.headers, &call.body)?.value;
        let answer = match call.served.kind.kind.as_str() {
            "TokenReview" => identity::reviews::token_review(&self.authenticator, &question),
            "SelfSubjectReview" => Ok(identity::reviews::self_subject_review(call.user)),
            "SelfSubjectAccessReview" => {
                authorization::reviews::self_subject_access_review(&self.authorizer, call.user, &question)
            }
            "SelfSubjectRulesReview" => {
                authorization::reviews::self_subject_rules_review(&self.authorizer, call.user, &question)
            }
            "SubjectAccessReview" => {
                authorization::reviews::subject_access_review(&self.authorizer, &question)
            }
            "LocalSubjectAccessReview" => authorization::reviews::local_subject_access_review(
                &self.authorizer,
                &call.request.namespace,
                &question,
            ),
            _ => return Err(ApiError::method_not_allowed()),
        };
        let answer = answer.map_err(refused)?;
        Ok(respond::value(success::CREATED, negotiate::format(call.headers)?, &answer))
    }

    pub(crate) fn impersonate(
        &self,
        user: Arc<User>,
        headers: &mut HeaderMap,
    ) -> Result<Arc<User>, ApiError> {
        identity::impersonation::impersonate(&self.authorizer, user, headers).map_err(refused)
    }

    async fn scale(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let format = negotiate::format(call.headers)?;
        let options = |call: &Call<'_>| WriteOptions::parse(call.query, call.request.verb);
        let written = match call.request.verb {
            Verb::Get => {
                self.reach(crate::rest::options::get_freshness(call.query)?).await?;
                let object = self.cache.get(&call.served.resource, &call.place());
                Written::Stored(object.ok_or_else(|| ApiError::not_found(call.named(), &call.request.name))?)
            }
            Verb::Update => {
                let options = options(call)?;
                let scale = body::decode(call.headers, &call.body)?.value;
                self.modify(call, Part::Main, options.dry_run, |current| set_replicas(call, current, &scale))
                    .await?
            }
            Verb::Patch if body::media_type(call.headers) == apply::MEDIA_TYPE => {
                self.apply_scale(call).await?
            }
            Verb::Patch => {
                let options = options(call)?;
                let change = body::json(&call.body)?.value;
                let media = body::media_type(call.headers);
                self.modify(call, Part::Main, options.dry_run, |current| {
                    let scale = scale_of(call, current);
                    let patched = match media.as_str() {
                        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                            patch::merge::apply(scale, change.clone())
                        }
                        "application/json-patch+json" => {
                            patch::json::JsonPatch::read(&change).and_then(|patch| patch.apply(scale))
                        }
                        _ => {
                            return Err(ApiError::unsupported_media_type(
                                "application/json-patch+json, application/merge-patch+json, \
                                 application/apply-patch+yaml",
                            ));
                        }
                    };
                    set_replicas(call, current, &patched.map_err(|why| crate::rest::patch::told(&why))?)
                })
                .await?
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        let object = match written {
            Written::Stored(object) => object.to_value(),
            Written::Imagined(object) => object,
        };
        Ok(respond::value(success::OK, format, &scale_of(call, &object)))
    }
}

impl ApiServer {
    /// Applies a Scale: its replicas become those of the object, and belong to whoever applies.
    async fn apply_scale(&self, call: &Call<'_>) -> Result<Written, ApiError> {
        let kind = &call.served.kind;
        let options = WriteOptions::parse_apply(call.query)?;
        let scale = apply::read(call, &options, ("autoscaling", "v1", "Scale"))?;
        sheaf_resources::apply::check(&scale.value, Shape::of(named_types::scale()))
            .map_err(|why| apply::told(&scale.value, why.into()))?;
        let Some(paths) = &kind.scale else { return Err(ApiError::method_not_allowed()) };
        let mut value = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind,
            "metadata": identity_of(&scale.value["metadata"]),
        });
        paths.spec_replicas.set(&mut value, replicas_of(call, &scale.value)?.into());
        let configuration = Configuration { value, force: scale.force };
        let change = |current: &Value| self.apply_to(call, &seen_as(kind, current.clone()), &configuration);
        self.modify_settled(call, Part::Main, options.dry_run, change).await
    }
}

/// Which object a Scale is of. What else its metadata says is not for the object: whoever may scale it may not label
/// it, hold it with finalizers, or give it owners.
fn identity_of(metadata: &Value) -> Value {
    let named = ["name", "namespace", "uid", "resourceVersion"].into_iter();
    named.filter_map(|field| Some((field, metadata.get(field)?.clone()))).collect()
}

/// The Scale of an object.
fn scale_of(call: &Call<'_>, object: &Value) -> Value {
    let Some(paths) = &call.served.kind.scale else { return Value::Null };
    let number = |path: &JsonPath| path.first(object).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": number(&paths.status_replicas)});
    if let Some(path) = &paths.label_selector {
        status["selector"] = path.first(object).cloned().unwrap_or_else(|| "".into());
    }
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": number(&paths.spec_replicas)},
        "status": status,
    })
}

fn set_replicas(call: &Call<'_>, current: &Value, scale: &Value) -> Result<Value, ApiError> {
    let kind = &call.served.kind;
    let Some(paths) = &kind.scale else { return Err(ApiError::method_not_allowed()) };
    let replicas = replicas_of(call, scale)?;
    let mut object = current.clone();
    paths.spec_replicas.set(&mut object, replicas.into());
    let version = version_of(scale);
    if !version.is_empty() {
        object["metadata"]["resourceVersion"] = version.into();
    }
    Ok(object)
}

fn replicas_of(call: &Call<'_>, scale: &Value) -> Result<i64, ApiError> {
    match &scale["spec"]["replicas"] {
        Value::Null => Ok(0),
        value => value.as_i64().filter(|n| (0..=i64::from(i32::MAX)).contains(n)).ok_or_else(|| {
            let path = FieldPath::new("spec").child("replicas");
            let error = FieldError::invalid(&path, value.clone(), "must be greater than or equal to 0");
            ApiError::invalid("autoscaling", "Scale", &call.request.name, &[error])
        }),
    }
}

/// What identity refused, in the API's words.
pub(crate) fn refused(why: Refusal) -> ApiError {
    let message = why.to_string();
    match why {
        Refusal::BadRequest { message } => ApiError::bad_request(message),
        Refusal::Invalid { group, kind, name, causes } => {
            let errors: Vec<FieldError> = causes
                .iter()
                .map(|cause| {
                    FieldError::invalid(
                        &FieldPath::new(&cause.field),
                        cause.value.clone(),
                        cause.detail.clone(),
                    )
                })
                .collect();
            ApiError::invalid(group, kind, &name, &errors)
        }
        Refusal::Forbidden { group, resource, name, .. } => {
            ApiError::forbidden(Named { group: &group, resource: &resource }, &name, message)
        }
        Refusal::NotFound { group, resource, name } => {
            ApiError::not_found(Named { group: &group, resource: &resource }, &name)
        }
        Refusal::Conflict { group, resource, name, message } => {
            ApiError::conflict(Named { group: &group, resource: &resource }, &name, message)
        }
    }
}
