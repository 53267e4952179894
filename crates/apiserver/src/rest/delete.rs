//! Removing objects: at once, or marked and left to their finalizers.

use std::sync::Arc;

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use sheaf_resources::object_meta::{self, FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use sheaf_store::StoreError;

use super::{
    Call,
    attempt::Attempt,
    options::{DeleteOptions, Propagation},
    ownership::take_owners,
    selection::Selection,
};
use crate::{
    ApiServer, body,
    cache::object::CachedObject,
    negotiate,
    registry::Served,
    respond::{self, ApiResponse},
    status::{ApiError, Named, success},
};

/// So many objects of a collection are deleted at a time.
const AT_ONCE: usize = 128;

/// What a delete led to.
enum Deleted {
    Gone(Arc<CachedObject>),
    /// Marked; finalizers hold it.
    Marked(Arc<CachedObject>),
}

impl ApiServer {
    pub(crate) async fn delete(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let options = self.delete_options(call)?;
        let format = negotiate::format(call.headers)?;
        match self.delete_object(call, &call.request.name, &options).await? {
            Deleted::Gone(object) => {
                let uid = object.to_value()["metadata"]["uid"].clone();
                let mut details =
                    json!({"name": call.request.name, "kind": call.served.kind.plural, "uid": uid});
                if !call.served.kind.group.is_empty() {
                    details["group"] = call.served.kind.group.clone().into();
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
                });
                Ok(respond::value(success::OK, format, &status))
            }
            Deleted::Marked(object) => Ok(self.object_response(call, &object, success::OK, format)),
        }
    }

    pub(crate) async fn delete_collection(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let options = self.delete_options(call)?;
        let selection = Selection::parse(call.query, &call.served.kind)?;
        let page = self.list_page(call, &selection).await?;
        // Together, so that many deletions share one sync of the disk.
        let items: Vec<Option<Value>> = stream::iter(page.objects.iter().cloned())
            .map(|object| self.delete_listed(call, object, &options))
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let items: Vec<Value> = items.into_iter().flatten().collect();
        let list = json!({
            "kind": call.served.kind.list_kind, "apiVersion": call.api_version(),
            "metadata": page.metadata(), "items": items,
        });
        Ok(respond::value(success::OK, negotiate::format(call.headers)?, &list))
    }

    /// One object of a collection; nothing when somebody else deleted it first, which is what was asked for.
    async fn delete_listed(
        &self,
        call: &Call<'_>,
        object: Arc<CachedObject>,
        options: &DeleteOptions,
    ) -> Result<Option<Value>, ApiError> {
        let request = crate::request::ResourceRequest {
            name: object.name().to_string(),
            namespace: object.namespace().to_string(),
            ..call.request.clone()
        };
        // While one of them waits, others are worked on in the same seats.
        let one = Call { request: &request, body: call.body.clone(), seat: None, ..*call };
        match self.delete_object(&one, object.name(), options).await {
            Ok(Deleted::Gone(object) | Deleted::Marked(object)) => {
                Ok(Some(super::get::shown(&call.served.kind, &object)))
            }
            Err(why) if why.is_not_found() => Ok(None),
            Err(why) => Err(why),
        }
    }

    fn delete_options(&self, call: &Call<'_>) -> Result<DeleteOptions, ApiError> {
        if call.body.is_empty() {
            return DeleteOptions::parse(call.query, None);
        }
        let document = body::decode(call.headers, &call.body)?;
        DeleteOptions::parse(call.query, Some(&document.value))
    }

    async fn delete_object(
        &self,
        call: &Call<'_>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        let place = call.place();
        let mut current = self.cache.get(&call.served.resource, &place);
        let mut fresh = false;
        loop {
            let outcome = match &current {
                None => Err(Attempt::Refused(ApiError::not_found(call.named(), name))),
                Some(current) => self.delete_once(call, &place, name, current, options).await,
            };
            match outcome {
                Ok(deleted) => return Ok(deleted),
                Err(Attempt::Refused(why)) if fresh => return Err(why),
                Err(_) => {}
            }
            current = self.read_fresh(call.served, &place, call.named()).await?;
            fresh = true;
        }
    }

    async fn delete_once(
        &self,
        call: &Call<'_>,
        place: &str,
        name: &str,
        current: &Arc<CachedObject>,
        options: &DeleteOptions,
    ) -> Result<Deleted, Attempt> {
        let old = current.to_value();
        check_preconditions(call, name, &old, options)?;
        self.admit(call, crate::admission::Operation::Delete { old: &old }).await?;
        let mut new = old.clone();
        set_finalizers(&mut new, options.propagation);
        if let Some(finalizer) = call.served.kind.behaviour.finalizer_on_delete
            && !object_meta::is_being_deleted(&old)
        {
            add_finalizer(&mut new, finalizer);
        }
        let held = self.pending_finalizers(call.served, &new) > 0;
        if !held {
            if !options.dry_run {
                let charge = self.charge(call, Some(&old), None).await?;
                self.remove(call.served, place, current.revision, charge.along)
                    .await
                    .map_err(|why| Attempt::of_store(call, name, &why))?;
            }
            return Ok(Deleted::Gone(current.clone()));
        }
        if !object_meta::is_being_deleted(&old) {
            new["metadata"]["deletionTimestamp"] = self.world.clock.rfc3339().into();
            new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
            if let Some(generation) = old["metadata"]["generation"].as_i64() {
                new["metadata"]["generation"] = json!(generation + 1);
            }
            if is_namespace(call.served) {
                new["status"]["phase"] = "Terminating".into();
            }
        }
        object_meta::tidy(&mut new);
        if new == old || options.dry_run {
            return Ok(Deleted::Marked(current.clone()));
        }
        let stored = match self.put(call.served, place, &new, Some(current.revision)).await {
            // The mark takes room of its own. Who owns it is worth less than that an object can be deleted.
            Err(StoreError::TooLarge { .. }) if take_owners(&mut new).is_some() => {
                self.put(call.served, place, &new, Some(current.revision)).await
            }
            done => done,
        };
        Ok(Deleted::Marked(stored.map_err(|why| Attempt::of_store(call, name, &why))?))
    }

    /// How many finalizers keep an object that is being deleted.
    pub(crate) fn pending_finalizers(&self, served: &Served, object: &Value) -> usize {
        let of_namespace = match is_namespace(served) {
            true => object["spec"]["finalizers"].as_array().map_or(0, Vec::len),
            false => 0,
        };
        object_meta::finalizers(object).len() + of_namespace
    }
}

fn is_namespace(served: &Served) -> bool {
    served.kind.group.is_empty() && served.kind.plural == "namespaces"
}

fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let differs = |wanted: &Option<String>, field: &str, label: &str, meaning: &str| {
        let actual = old["metadata"][field].as_str().unwrap_or_default();
        wanted.as_deref().filter(|wanted| *wanted != actual).map(|wanted| {
            let why = format!(
                "the {label} in the precondition ({wanted}) does not match the {label} in record ({actual}). {meaning}"
            );
            // The original names the kind here, not the resource.
            let kind = &call.served.kind;
            ApiError::conflict(Named { group: &kind.group, resource: &kind.kind }, name, why)
        })
    };
    let recreated = "The object might have been deleted and then recreated";
    let modified = "The object might have been modified";
    let failed = differs(&options.uid, "uid", "UID", recreated)
        .or_else(|| differs(&options.resource_version, "resourceVersion", "ResourceVersion", modified));
    failed.map_or(Ok(()), Err)
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> =
        object_meta::finalizers(object).into_iter().map(str::to_string).collect();
    if !finalizers.iter().any(|present| present == finalizer) {
        finalizers.push(finalizer.to_string());
    }
    object["metadata"]["finalizers"] = json!(finalizers);
}

/// The garbage collector's own finalizers say what happens to dependents.
fn set_finalizers(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<String> = object_meta::finalizers(object)
        .into_iter()
        .filter(|finalizer| !matches!(*finalizer, ORPHAN_FINALIZER | FOREGROUND_FINALIZER))
        .map(str::to_string)
        .collect();
    match propagation {
        Propagation::Orphan => finalizers.push(ORPHAN_FINALIZER.into()),
        Propagation::Foreground => finalizers.push(FOREGROUND_FINALIZER.into()),
        Propagation::Background => {}
    }
    object["metadata"]["finalizers"] = json!(finalizers);
}
