//! Changing an object: the loop every change goes through, whoever computes it.
//!
//! ```text
//!   read (cache first) -> change -> prepare -> admit -> validate -> compare-and-swap
//!     ^                                                                  |
//!     +-------------- read fresh, past the cache <---- somebody was faster
//! ```
//!
//! A refusal that rests on a cached read (a stale version, an object that is not there) is only given
//! after a fresh read said the same.

use std::sync::Arc;

use serde_json::{Value, json};
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kind::Kind,
    object_meta,
};
use sheaf_store::StoreError;

use super::{
    Call,
    attempt::Attempt,
    decode,
    options::WriteOptions,
    ownership::{is_same_but_for_times, set_owners, take_owners},
    write::Written,
};
use crate::{
    ApiServer,
    admission::Operation,
    cache::object::CachedObject,
    request::Verb,
    respond::ApiResponse,
    status::{ApiError, success},
};

/// What part of the object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but `status`, where that is a subresource of its own.
    Main,
    Status,
    /// `spec.finalizers` of a namespace.
    Finalize,
}

impl Part {
    pub fn of(call: &Call<'_>) -> Result<Self, ApiError> {
        match call.request.subresource.as_str() {
            "" => Ok(Part::Main),
            "status" => Ok(Part::Status),
            "finalize" => Ok(Part::Finalize),
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

impl ApiServer {
    pub(crate) async fn update(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let part = Part::of(call)?;
        let options = WriteOptions::parse(call.query, call.request.verb)?;
        let decoded = self.heavy(call.body.len(), || decode::object(call, &options))?;
        let mut object = decoded;
        self.settle_namespace(call, &mut object)?;
        match object["metadata"]["name"].as_str().unwrap_or_default() {
            "" => object["metadata"]["name"] = call.request.name.clone().into(),
            name if name == call.request.name => {}
            name => {
                return Err(ApiError::bad_request(format!(
                    "the name of the object ({name}) does not match the name on the URL ({})",
                    call.request.name
                )));
            }
        }
        match self.modify(call, part, options.dry_run, |_current| Ok(object.clone())).await {
            Ok(written) => self.written_response(call, &written, success::OK),
            Err(why) if why.is_not_found() && self.may_create_instead(call, part, &object)? => {
                let written = self.create_object(call, object, options.dry_run).await?;
                self.written_response(call, &written, success::CREATED)
            }
            Err(why) => Err(why),
        }
    }

    /// Whether a PUT of an object that is not there is meant to make it: for some kinds, when the client does not
    /// speak of an earlier version, and may create.
    fn may_create_instead(&self, call: &Call<'_>, part: Part, object: &Value) -> Result<bool, ApiError> {
        if !call.served.kind.behaviour.create_on_update
            || part != Part::Main
            || !version_of(object).is_empty()
            || object["metadata"]["uid"].as_str().is_some_and(|uid| !uid.is_empty())
        {
            return Ok(false);
        }
        let create = crate::request::ResourceRequest { verb: Verb::Create, ..call.request.clone() };
        self.authorize_resource(call.user, &create, call.query)?;
        Ok(true)
    }

    /// Applies `change` to the object named in the path. `change` sees the current object in its stored version
    /// (with its resourceVersion) and answers the wished one in the same version; it may be called several times.
    ///
    /// What it changes belongs to whoever asks.
    pub(crate) async fn modify(
        &self,
        call: &Call<'_>,
        part: Part,
        dry_run: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        let owned = |old: &Value| {
            let mut new = change(old)?;
            let owners = self.heavy(call.body.len(), || self.owners_after(call, old, &new));
            set_owners(&mut new, owners);
            Ok(new)
        };
        match self.modify_settled(call, part, dry_run, owned).await {
            // Who owns it is worth less than the change itself.
            Err(why) if why.is_too_large() => {
                let disowned = |old: &Value| {
                    let mut new = change(old)?;
                    set_owners(&mut new, None);
                    Ok(new)
                };
                self.modify_settled(call, part, dry_run, disowned).await
            }
            done => done,
        }
    }

    /// The same where `change` answers the owners too.
    pub(crate) async fn modify_settled(
        &self,
        call: &Call<'_>,
        part: Part,
        dry_run: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        let place = call.place();
        let name = &call.request.name;
        let mut current = self.cache.get(&call.served.resource, &place);
        let mut fresh = false;
        // Whenever somebody is faster, somebody got on: the loop ends, and the request's own time limit
        // ends it for the unluckiest.
        loop {
            let outcome = match &current {
                None => Err(Attempt::Refused(ApiError::not_found(call.named(), name))),
                Some(current) => self.modify_once(call, part, dry_run, &place, current, &change).await,
            };
            match outcome {
                // Only a fresh read may say no.
                Err(Attempt::Refused(_)) | Err(Attempt::Raced) if !fresh => {}
                Err(Attempt::Refused(why)) => return Err(why),
                Err(Attempt::Raced) => {}
                Ok(written) => return Ok(written),
            }
            current = self.read_fresh(call.served, &place, call.named()).await?;
            fresh = true;
        }
    }

    async fn modify_once(
        &self,
        call: &Call<'_>,
        part: Part,
        dry_run: bool,
        place: &str,
        current: &Arc<CachedObject>,
        change: &impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, Attempt> {
        let old = current.to_value();
        let mut new = change(&old)?;
        self.check_preconditions(call, &new, &old)?;
        let mut errors = object_meta::validate_update(&new, &old);
        if !call.served.kind.behaviour.unconditional_update && version_of(&new).is_empty() {
            let path = FieldPath::new("metadata").child("resourceVersion");
            errors.insert(0, FieldError::invalid(&path, 0, "must be specified for an update"));
        }
        if !errors.is_empty() {
            let kind = &call.served.kind;
            return Err(ApiError::invalid(&kind.group, &kind.kind, &call.request.name, &errors).into());
        }
        let owners = take_owners(&mut new);
        prepare(call, part, &mut new, &old);
        crate::quota::prepare(call, part, &mut new, &old)?;
        set_owners(&mut new, owners);
        self.admit(call, Operation::Update { new: &mut new, old: &old, part }).await?;
        count_generation(&call.served.kind, &mut new, &old);
        self.validate(call, &new, Some(&old))?;
        without_version(&mut new);
        let mut old = old;
        without_version(&mut old);
        if is_same_but_for_times(&new, &old) {
            return Ok(Written::Stored(current.clone()));
        }
        if dry_run {
            self.charge(call, Some(&old), Some(&new)).await?;
            new["metadata"]["resourceVersion"] = current.revision.to_string().into();
            return Ok(Written::Imagined(new));
        }
        if object_meta::is_being_deleted(&new) && self.pending_finalizers(call.served, &new) == 0 {
            let last = self.finish_deletion(call, place, current.revision, (&new, &old)).await?;
            return Ok(Written::Stored(last));
        }
        let charge = self.charge(call, Some(&old), Some(&new)).await?;
        let done = self.put_along(call.served, place, &new, Some(current.revision), charge.along).await;
        drop(charge.turn);
        let stored = done.map_err(|why| Attempt::of_store(call, &call.request.name, &why))?;
        let counted = self.settle_quota(call, Some(&old), &new).await;
        Ok(Written::Stored(counted.unwrap_or(stored)))
    }

    /// The last finalizer is gone: so is the object. Answers it as it last was.
    async fn finish_deletion(
        &self,
        call: &Call<'_>,
        place: &str,
        expected: u64,
        (last, old): (&Value, &Value),
    ) -> Result<Arc<CachedObject>, Attempt> {
        let of_store = |why: StoreError| Attempt::of_store(call, &call.request.name, &why);
        let charge = self.charge(call, Some(old), None).await?;
        let revision = self.remove(call.served, place, expected, charge.along).await.map_err(of_store)?;
        let text = crate::cache::object::encode(last);
        let object = CachedObject::decode(place.into(), revision, &text)
            .map_err(|why| of_store(StoreError::Failed { reason: why.to_string() }))?;
        Ok(Arc::new(object))
    }

    fn check_preconditions(&self, call: &Call<'_>, new: &Value, old: &Value) -> Result<(), Attempt> {
        let named = call.named();
        let name = &call.request.name;
        let uid = new["metadata"]["uid"].as_str().unwrap_or_default();
        let actual = old["metadata"]["uid"].as_str().unwrap_or_default();
        // Who sends a whole object means that one and no other; a patch only asks for the impossible.
        if call.request.verb == Verb::Update && !uid.is_empty() && uid != actual {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}");
            return Err(ApiError::conflict(named, name, why).into());
        }
        let version = version_of(new);
        if !version.is_empty() && version != version_of(old) {
            return Err(ApiError::stale(named, name).into());
        }
        Ok(())
    }
}

/// Lets the request change its part only.
fn prepare(call: &Call<'_>, part: Part, new: &mut Value, old: &Value) {
    let kind = &call.served.kind;
    match part {
        Part::Main => {
            if kind.status {
                carry_over(new, old, "status");
            }
            (kind.behaviour.prepare_update)(new, old);
        }
        Part::Status => {
            let mut whole = old.clone();
            match new.get("status") {
                Some(status) => whole["status"] = status.clone(),
                None => {
                    whole.as_object_mut().map(|fields| fields.remove("status"));
                }
            }
            if !kind.custom {
                // Built-in kinds let whoever reports status also label and annotate.
                whole["metadata"] = new["metadata"].clone();
            }
            *new = whole;
        }
        Part::Finalize => {
            let mut whole = old.clone();
            whole["spec"]["finalizers"] = new["spec"]["finalizers"].clone();
            *new = whole;
        }
    }
    object_meta::keep_server_owned(new, old);
}

/// Counts what is wanted anew, after admission gave its part: what comes out as it was is no new wish.
fn count_generation(kind: &Kind, new: &mut Value, old: &Value) {
    if kind.behaviour.generation && wanted_differs(new, old, kind.status) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

fn carry_over(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => {
            new.as_object_mut().map(|fields| fields.remove(field));
        }
    }
}

/// Whether anything but metadata, and status where it is apart, differs.
fn wanted_differs(new: &Value, old: &Value, status_apart: bool) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let counts = |key: &str| key != "metadata" && !(status_apart && key == "status") && key != "apiVersion";
    let fields = |of: &serde_json::Map<String, Value>| {
        of.iter().filter(|(key, _)| counts(key)).map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>()
    };
    fields(new) != fields(old)
}

pub fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

fn without_version(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
}
