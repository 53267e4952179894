//! Making an object.

use serde_json::{Value, json};
use sheaf_resources::{apply::Operation, names, object_meta};
use sheaf_store::StoreError;

use super::{
    Call, decode,
    options::{Freshness, WriteOptions},
    ownership::{set_owners, take_owners},
    write::Written,
};
use crate::{
    ApiServer, admission,
    respond::ApiResponse,
    status::{ApiError, success},
};

/// Draws of a generated name before giving up.
const NAME_DRAWS: usize = 8;

impl ApiServer {
    pub(crate) async fn create(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        self.may_be_added(call)?;
        let options = WriteOptions::parse(call.query, call.request.verb)?;
        let decoded = self.heavy(call.body.len(), || decode::object(call, &options))?;
        let written = self.create_object(call, decoded, options.dry_run).await?;
        self.written_response(call, &written, success::CREATED)
    }

    /// Whether anything new may appear among the objects of a kind.
    pub(super) fn may_be_added(&self, call: &Call<'_>) -> Result<(), ApiError> {
        match call.served.terminating {
            false => Ok(()),
            true => Err(ApiError::method_not_allowed_because(
                "create not allowed while custom resource definition is terminating",
            )),
        }
    }

    /// Makes an object that is already decoded. All of it belongs to whoever asks.
    pub(crate) async fn create_object(
        &self,
        call: &Call<'_>,
        mut object: Value,
        dry_run: bool,
    ) -> Result<Written, ApiError> {
        self.settle_namespace(call, &mut object)?;
        wipe(&mut object);
        let owners = self.heavy(call.body.len(), || self.owners_of_new(call, &object));
        set_owners(&mut object, owners);
        self.create_settled(call, object, dry_run, Operation::Update).await
    }

    /// Makes an object that has its owners, by applying it or otherwise.
    pub(super) async fn create_settled(
        &self,
        call: &Call<'_>,
        mut object: Value,
        dry_run: bool,
        operation: Operation,
    ) -> Result<Written, ApiError> {
        self.settle_namespace(call, &mut object)?;
        wipe(&mut object);
        let metadata = &object["metadata"];
        if metadata["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        let generated = metadata["name"].as_str().unwrap_or_default().is_empty();
        let prefix = metadata["generateName"].as_str().unwrap_or_default().to_string();
        let draws = if generated && !prefix.is_empty() { NAME_DRAWS } else { 1 };
        self.complete_new(call, &mut object);
        let mut name = String::new();
        let mut drawn = 0;
        while drawn < draws {
            drawn += 1;
            if draws > 1 {
                object["metadata"]["name"] =
                    names::generated_name(&prefix, &self.world.chance.name_suffix()).into();
            }
            (call.served.kind.behaviour.default)(&mut object);
            // Before anybody looks whether a name is taken: see there.
            let names = self.namespace_of_names(call);
            self.admit(call, admission::Operation::Create { new: &mut object }).await?;
            self.validate(call, &object, None)?;
            name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
            let place = crate::cache::place(&call.request.namespace, &name);
            // The namespace must still be as it was when it was looked at: it may be on its way out by now, and
            // nothing may appear in it after it was found empty.
            let namespace = self.namespace_as_seen(call);
            let charge = self.charge(call, None, Some(&object)).await?;
            if dry_run {
                let taken = self.read_fresh(call.served, &place, call.named()).await?.is_some();
                if !taken {
                    return Ok(Written::Imagined(object));
                }
                continue;
            }
            let along = charge.along.if_also(namespace).rewriting(names);
            let own = call.served.resource.store_key(&place);
            let done = self.put_along(call.served, &place, &object, None, along).await;
            drop(charge.turn);
            match done {
                Ok(stored) => {
                    let counted = self.settle_quota(call, None, &object).await;
                    return Ok(Written::Stored(counted.unwrap_or(stored)));
                }
                Err(StoreError::Conflict { key, .. }) if key != own => {
                    self.reach(Freshness::Latest).await?;
                    drawn -= 1;
                }
                Err(StoreError::Conflict { .. }) => {}
                // Who owns it is worth less than the object itself, except to one who applies.
                Err(StoreError::TooLarge { .. })
                    if operation == Operation::Update && take_owners(&mut object).is_some() =>
                {
                    drawn -= 1;
                }
                Err(why) => return Err(ApiError::from_store(&why, call.named(), &name)),
            }
        }
        match draws {
            1 => Err(ApiError::already_exists(call.named(), &name)),
            _ => Err(ApiError::generated_name_taken(call.named(), &name)),
        }
    }

    /// The namespace in the body must be that of the path.
    pub(crate) fn settle_namespace(&self, call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
        let given = object["metadata"]["namespace"].as_str().unwrap_or_default();
        if !call.served.kind.namespaced() {
            return Ok(());
        }
        if !given.is_empty() && given != call.request.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        object["metadata"]["namespace"] = call.request.namespace.clone().into();
        Ok(())
    }

    /// What only the server says of a new object.
    fn complete_new(&self, call: &Call<'_>, object: &mut Value) {
        let kind = &call.served.kind;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        object["metadata"]["uid"] = self.world.chance.uuid().into();
        object["metadata"]["creationTimestamp"] = self.world.clock.rfc3339().into();
        if kind.behaviour.generation {
            object["metadata"]["generation"] = json!(1);
        }
        if kind.custom
            && kind.status
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
        }
        (kind.behaviour.prepare_create)(object);
        object_meta::tidy(object);
    }
}

/// What a client cannot say of an object that is not there yet.
fn wipe(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            metadata.remove(field);
        }
    }
}
