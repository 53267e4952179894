//! Reading one object.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use sheaf_resources::{kind::Kind, schema};

use super::{
    Call,
    options::{Freshness, get_freshness},
    table,
};
use crate::{
    ApiServer,
    cache::object::CachedObject,
    negotiate::{self, Format, Shape},
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// How long a read waits for a version that has not arrived yet.
const WAIT_FOR_VERSION: Duration = Duration::from_secs(3);

impl ApiServer {
    pub(crate) async fn get(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let media = negotiate::media(call.headers)?;
        self.reach(get_freshness(call.query)?).await?;
        let object = self
            .cache
            .get(&call.served.resource, &call.place())
            .ok_or_else(|| ApiError::not_found(call.named(), &call.request.name))?;
        match media.shape {
            Shape::Whole => Ok(self.object_response(call, &object, success::OK, media.format)),
            Shape::Table => table::response(self, call, std::slice::from_ref(&object), None),
            Shape::Metadata => Ok(respond::metadata(success::OK, media.format, &object)),
        }
    }

    /// Waits until the cache is as fresh as asked.
    pub(crate) async fn reach(&self, freshness: Freshness) -> Result<(), ApiError> {
        match freshness {
            Freshness::Any => Ok(()),
            Freshness::Latest => self
                .cache
                .wait_until_current()
                .await
                .map(drop)
                .map_err(|why| ApiError::unavailable(why.to_string())),
            Freshness::NotOlderThan(version) | Freshness::Exactly(version) => {
                match tokio::time::timeout(WAIT_FOR_VERSION, self.cache.wait_for(version)).await {
                    Ok(done) => done.map_err(|why| ApiError::unavailable(why.to_string())),
                    Err(_) => Err(ApiError::too_large_resource_version(version, self.cache.applied())),
                }
            }
        }
    }

    /// One object in the version asked for.
    pub(crate) fn object_response(
        &self,
        call: &Call<'_>,
        object: &Arc<CachedObject>,
        code: http::StatusCode,
        format: Format,
    ) -> ApiResponse {
        match self.is_shown_as_stored(call) {
            true => respond::cached(code, format, &call.api_version(), object),
            false => respond::value(code, format, &shown(&call.served.kind, object)),
        }
    }

    /// Whether a stored object is an answer by itself, but for its head.
    pub(crate) fn is_shown_as_stored(&self, call: &Call<'_>) -> bool {
        let kind = &call.served.kind;
        kind.conversion.is_none() && (!kind.custom || kind.api_version() == kind.stored_version)
    }
}

/// An object in the version a kind serves, read and converted.
pub fn shown(kind: &Kind, object: &CachedObject) -> Value {
    seen_as(kind, object.to_value())
}

/// A stored object in the version a kind serves.
pub fn seen_as(kind: &Kind, mut value: Value) -> Value {
    if let Some(conversion) = &kind.conversion {
        (conversion.from_stored)(&mut value);
    }
    value["apiVersion"] = kind.api_version().into();
    if kind.custom && kind.api_version() != kind.stored_version {
        let schema = kind.schema.get();
        schema::prune(&mut value, &schema, true);
        // Too many defaults: shown without some, since what is there must stay readable.
        let _ = schema::apply_defaults(&mut value, &schema);
    }
    value
}
