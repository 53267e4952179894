//! What every write shares: validation, sealing, and the compare-and-swap itself.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use sheaf_resources::{object_meta, references};
use sheaf_store::{Expect, Revision, StoreError, Transaction, Write};

use super::Call;
use crate::{
    ApiServer,
    body::MAX_BODY,
    cache::{
        Resource,
        object::{self, CachedObject},
    },
    negotiate,
    registry::Served,
    respond::{self, ApiResponse},
    status::{ApiError, Named},
};

/// An object as a write left it.
pub enum Written {
    Stored(Arc<CachedObject>),
    /// A dry run: what would have been stored.
    Imagined(Value),
}

/// What a write depends on, and writes, beside its own object.
#[derive(Default)]
pub(crate) struct Along {
    pub expect: Vec<Expect>,
    pub writes: Vec<Write>,
}

impl Along {
    pub fn into_transaction(self) -> Transaction {
        Transaction { expect: self.expect, writes: self.writes }
    }

    /// The same, on one more condition.
    pub fn if_also(mut self, condition: Option<Expect>) -> Self {
        self.expect.extend(condition);
        self
    }

    /// The same, and a namespace is written as it was seen.
    pub fn rewriting(mut self, namespace: Option<Arc<CachedObject>>) -> Self {
        if let Some(namespace) = namespace {
            let key = Resource::new("", "namespaces").store_key(&namespace.place);
            self.put(key, namespace.revision, namespace.to_value());
        }
        self
    }
}

impl ApiServer {
    /// Everything that must hold of an object before it is stored.
    pub(crate) fn validate(&self, call: &Call<'_>, new: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        let mut errors = object_meta::validate(kind, new);
        if kind.custom {
            // Rules may take as long as reading a large body does, and so may looking at a large object, which a
            // small patch can be about. What compiling rules takes, nobody knows.
            let rules = kind.cost_of_rules().map_or(usize::MAX, |cost| cost.try_into().unwrap_or(usize::MAX));
            let weight = rules.saturating_add(extent(new));
            call.warnings.add(self.heavy(weight, || kind.judge(new, old, &mut errors)));
        }
        errors.extend((kind.behaviour.validate)(new, old));
        // Of a field that is wrong already, one cause is enough.
        let mut wrong = references::validate(kind, new, old);
        wrong.retain(|wrong| errors.iter().all(|error| error.field != wrong.field));
        errors.extend(wrong);
        if errors.is_empty() {
            call.warnings.add((kind.behaviour.warnings)(new, old));
            return Ok(());
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::invalid(&kind.group, &kind.kind, name, &errors))
    }

    /// Writes `object` at `place` if the place is as expected.
    pub(crate) async fn put(
        &self,
        served: &Served,
        place: &str,
        object: &Value,
        expected: Option<u64>,
    ) -> Result<Arc<CachedObject>, StoreError> {
        self.put_along(served, place, object, expected, Along::default()).await
    }

    /// The same, together with something else: all of it happens or nothing.
    pub(crate) async fn put_along(
        &self,
        served: &Served,
        place: &str,
        object: &Value,
        expected: Option<u64>,
        along: Along,
    ) -> Result<Arc<CachedObject>, StoreError> {
        let key = served.resource.store_key(place);
        let text = object::encode(object);
        if text.len() > MAX_BODY {
            return Err(StoreError::TooLarge { bytes: text.len(), limit: MAX_BODY });
        }
        let value: Bytes = match served.kind.behaviour.sealed {
            true => self.seal(&key, &text)?,
            false => text.clone().into(),
        };
        let mut transaction = along.into_transaction();
        transaction.expect.push(expectation(&key, expected));
        transaction.writes.push(Write::Put { key, value });
        let revision = self.store.commit(transaction).await?;
        let object = CachedObject::decode(place.into(), revision.0, &text)
            .map_err(|why| StoreError::Failed { reason: why.to_string() })?;
        Ok(Arc::new(object))
    }

    /// Removes the object at `place` if it is still as expected; answers the revision of its removal.
    pub(crate) async fn remove(
        &self,
        served: &Served,
        place: &str,
        expected: u64,
        along: Along,
    ) -> Result<u64, StoreError> {
        let key = served.resource.store_key(place);
        let mut transaction = along.into_transaction();
        transaction.expect.push(expectation(&key, Some(expected)));
        transaction.writes.push(Write::Delete { key });
        self.store.commit(transaction).await.map(|revision| revision.0)
    }

    /// The object as the store has it now, past any cache.
    pub(crate) async fn read_fresh(
        &self,
        served: &Served,
        place: &str,
        named: Named<'_>,
    ) -> Result<Option<Arc<CachedObject>>, ApiError> {
        let key = served.resource.store_key(place);
        let entry = self.store.get(&key).await.map_err(|why| ApiError::from_store(&why, named, place))?;
        let Some(entry) = entry else { return Ok(None) };
        let object =
            self.cache.read(&entry.key, place, entry.modified.0, &entry.value).map_err(ApiError::internal)?;
        Ok(Some(Arc::new(self.cache.refined(&served.resource, object))))
    }

    fn seal(&self, key: &Bytes, text: &[u8]) -> Result<Bytes, StoreError> {
        self.seals.seal(key, text).map_err(|reason| StoreError::Failed { reason })
    }

    /// The answer to a write.
    pub(crate) fn written_response(
        &self,
        call: &Call<'_>,
        written: &Written,
        code: http::StatusCode,
    ) -> Result<ApiResponse, ApiError> {
        let media = negotiate::media(call.headers)?;
        Ok(match written {
            Written::Stored(object) => match media.shape {
                negotiate::Shape::Table => {
                    super::table::response(self, call, std::slice::from_ref(object), None)?
                }
                negotiate::Shape::Metadata => respond::metadata(code, media.format, object),
                negotiate::Shape::Whole => self.object_response(call, object, code, media.format),
            },
            Written::Imagined(value) => {
                let mut value = value.clone();
                if let Some(conversion) = &call.served.kind.conversion {
                    (conversion.from_stored)(&mut value);
                }
                value["apiVersion"] = call.api_version().into();
                respond::value(code, media.format, &value)
            }
        })
    }
}

/// About how many bytes an object takes.
fn extent(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|item| 1 + extent(item)).sum(),
        Value::Object(map) => map.iter().map(|(name, value)| name.len() + 4 + extent(value)).sum(),
        _ => 4,
    }
}

fn expectation(key: &Bytes, expected: Option<u64>) -> Expect {
    match expected {
        None => Expect::Absent { key: key.clone() },
        Some(revision) => Expect::ModifiedAt { key: key.clone(), revision: Revision(revision) },
    }
}
