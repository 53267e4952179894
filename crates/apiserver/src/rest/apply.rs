//! Server-side apply: saying what one wants of an object, and leaving the rest to others.

use serde_json::Value;
use sheaf_resources::apply::{self as engine, ApplyError, Operation, Shape};

use super::{
    Call, decode,
    options::{FieldValidation, WriteOptions},
    ownership::{set_owners, take_owners},
    patch::seen,
    update::{Part, version_of},
};
use crate::{
    ApiServer, body,
    request::Verb,
    respond::ApiResponse,
    status::{ApiError, success},
};

pub const MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// What somebody wants of an object.
pub(crate) struct Configuration {
    pub value: Value,
    pub force: bool,
}

impl ApiServer {
    pub(crate) async fn apply(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let part = Part::of(call)?;
        let options = WriteOptions::parse_apply(call.query)?;
        let kind = &call.served.kind;
        let size = call.body.len();
        let configuration =
            self.heavy(size, || read(call, &options, (&kind.group, &kind.version, &kind.kind)))?;
        loop {
            let change = |current: &Value| {
                self.heavy(size, || self.apply_to(call, &seen(call, current)?, &configuration))
            };
            match self.modify_settled(call, part, options.dry_run, change).await {
                Ok(written) => return self.written_response(call, &written, success::OK),
                Err(why) if why.is_not_found() && part == Part::Main && !self.is_there(call).await? => {}
                Err(why) => return Err(why),
            }
            let create = crate::request::ResourceRequest { verb: Verb::Create, ..call.request.clone() };
            self.authorize_resource(call.user, &create, call.query)?;
            let new = self.heavy(size, || self.apply_to_nothing(call, &configuration))?;
            match self.create_settled(call, new, options.dry_run, Operation::Apply).await {
                // Somebody was faster: then there is something to apply to.
                Err(why) if why.is_already_exists() => {}
                done => return self.written_response(call, &done?, success::CREATED),
            }
        }
    }

    async fn is_there(&self, call: &Call<'_>) -> Result<bool, ApiError> {
        Ok(self.read_fresh(call.served, &call.place(), call.named()).await?.is_some())
    }

    fn apply_to_nothing(&self, call: &Call<'_>, configuration: &Configuration) -> Result<Value, ApiError> {
        self.may_be_added(call)?;
        let metadata = &configuration.value["metadata"];
        if let Some(uid) = metadata["uid"].as_str().filter(|uid| !uid.is_empty()) {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(ApiError::conflict(call.named(), &call.request.name, why));
        }
        if metadata["name"].as_str().unwrap_or_default().is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                call.request.name
            )));
        }
        self.apply_to(call, &engine::nothing(&configuration.value), configuration)
    }

    /// The object that comes of it, in its stored version, with its owners.
    pub(crate) fn apply_to(
        &self,
        call: &Call<'_>,
        live: &Value,
        configuration: &Configuration,
    ) -> Result<Value, ApiError> {
        let merged = self.merged(call, live, &configuration.value, configuration.force);
        let mut merged = merged.map_err(|why| told(&configuration.value, why))?;
        let owners = take_owners(&mut merged);
        // Built-in kinds keep no nulls.
        if !call.served.kind.custom {
            engine::drop_nulls(&mut merged, Shape::of(call.served.kind.schema.look()));
        }
        let name = merged["metadata"]["name"].as_str().unwrap_or_default();
        if name != call.request.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                call.request.name
            )));
        }
        let version = version_of(&merged).to_owned();
        // What a kind does not have was refused already, and what it had is no fault of this request.
        let mut object = decode::accept(call, merged, Vec::new(), FieldValidation::Ignore)?;
        if !version.is_empty() {
            object["metadata"]["resourceVersion"] = version.into();
        }
        self.settle_namespace(call, &mut object)?;
        set_owners(&mut object, owners);
        Ok(object)
    }
}

/// Reads a configuration of the kind named by group, version and kind.
pub(crate) fn read(
    call: &Call<'_>,
    options: &WriteOptions,
    (group, version, kind): (&str, &str, &str),
) -> Result<Configuration, ApiError> {
    let document = body::yaml(&call.body)
        .map_err(|why| ApiError::bad_request(format!("error decoding YAML: {}", why.message())))?;
    let value = document.value;
    if !value.is_object() && !value.is_null() {
        return Err(ApiError::bad_request(
            "error decoding YAML: the configuration is no object of the kind it is applied to",
        ));
    }
    let found = type_of(&value);
    if found != format!("{group}/{version}, Kind={kind}") {
        return Err(ApiError::bad_request(format!("invalid object type: {found}")));
    }
    if value["metadata"]["managedFields"].is_array() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let repeated: Vec<String> =
        document.repeated.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    match options.field_validation {
        _ if repeated.is_empty() => {}
        FieldValidation::Ignore => {}
        FieldValidation::Warn => call.warnings.add(repeated),
        FieldValidation::Strict => {
            let why = repeated.join(", ");
            return Err(ApiError::bad_request(format!("error strict decoding YAML: {why}")));
        }
    }
    Ok(Configuration { value, force: options.force })
}

/// `apps/v1, Kind=Deployment`, as the original prints it.
fn type_of(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let api_version = text("apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={}", text("kind"))
}

pub(crate) fn told(configuration: &Value, why: ApplyError) -> ApiError {
    match why {
        ApplyError::Conflicts(conflicts) => ApiError::apply_conflict(&conflicts),
        ApplyError::NoConfiguration(why) => {
            let text = |name: &str| configuration["metadata"][name].as_str().unwrap_or_default();
            ApiError::unexplained(format!(
                "failed to create typed patch object ({}/{}; {}): {why}",
                text("namespace"),
                text("name"),
                type_of(configuration)
            ))
        }
        why @ (ApplyError::Misfit(_) | ApplyError::Unreadable(_) | ApplyError::NoSuchVersion(_)) => {
            ApiError::unexplained(why.to_string())
        }
    }
}
