//! Reading many objects.
//!
//! A list of now comes from the cache. The pages after the first, and lists at an exact
//! revision, come from the store's history, so that paging survives a restart and works on any
//! API server; when that history is gone the client is told to begin again.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use sheaf_store::{Range, Revision, StoreError};

use super::{
    Call,
    continuation::Continuation,
    get::shown,
    options::{Freshness, limit, list_freshness, timeout_seconds},
    selection::Selection,
    table,
};
use crate::{
    ApiServer,
    cache::{object::CachedObject, table::within},
    negotiate::{self, Format, Shape},
    respond::{self, ApiResponse, ItemHead},
    status::{ApiError, success},
};

/// Entries read from the store at a time when a page comes from history.
const HISTORY_PAGE: usize = 500;

/// One page, before it is written out.
pub struct Listed {
    pub objects: Vec<Arc<CachedObject>>,
    pub revision: u64,
    pub next: Option<Continuation>,
    /// How many follow, where that can be told without filtering them.
    pub remaining: Option<usize>,
}

impl ApiServer {
    pub(crate) async fn list(&self, call: &Call<'_>) -> Result<ApiResponse, ApiError> {
        let media = negotiate::media(call.headers)?;
        let selection = Selection::parse(call.query, &call.served.kind)?;
        let page = self.list_page(call, &selection).await?;
        match media.shape {
            Shape::Table => table::response(self, call, &page.objects, Some(&page)),
            Shape::Metadata => {
                let partial: Vec<_> =
                    page.objects.iter().map(|object| Arc::new(object.only_metadata())).collect();
                let page = Listed { objects: partial, ..page };
                match media.format {
                    Format::Json => Ok(encoded_list(
                        "PartialObjectMetadata",
                        "PartialObjectMetadataList",
                        "meta.k8s.io/v1",
                        true,
                        page,
                    )),
                    Format::Yaml => {
                        let items: Vec<Value> = page.objects.iter().map(|object| object.to_value()).collect();
                        let list = json!({
                            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                            "metadata": page.metadata(), "items": items,
                        });
                        Ok(respond::value(success::OK, Format::Yaml, &list))
                    }
                }
            }
            Shape::Whole => Ok(self.whole_list(call, page, media.format)),
        }
    }

    fn whole_list(&self, call: &Call<'_>, page: Listed, format: Format) -> ApiResponse {
        let kind = &call.served.kind;
        let api_version = call.api_version();
        if format == Format::Json && self.is_shown_as_stored(call) {
            return encoded_list(&kind.kind, &kind.list_kind, &api_version, kind.custom, page);
        }
        let items: Vec<Value> = page.objects.iter().map(|object| shown(kind, object)).collect();
        let list = json!({
            "kind": kind.list_kind, "apiVersion": api_version, "metadata": page.metadata(), "items": items,
        });
        respond::value(success::OK, format, &list)
    }

    /// The objects a list, or a delete of a collection, is about.
    pub(crate) async fn list_page(&self, call: &Call<'_>, selection: &Selection) -> Result<Listed, ApiError> {
        let limit = limit(call.query)?;
        // A list takes no time worth bounding, but what is no number is refused, as in the original.
        timeout_seconds(call.query)?;
        let namespace = &call.request.namespace;
        let freshness = list_freshness(call.query)?;
        if let Some(token) = call.query.get("continue") {
            if call.query.get("resourceVersion").is_some_and(|version| version != "0") {
                return Err(ApiError::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = Continuation::decode(token, namespace)?;
            if token.revision > 0 {
                let at = Some(token.revision);
                return self.list_from_history(call, selection, at, Some(token.after), limit).await;
            }
            self.reach(Freshness::Latest).await?;
            return Ok(self.list_from_cache(call, selection, Some(&token.after), limit));
        }
        self.reach(freshness).await?;
        match freshness {
            Freshness::Exactly(version) => {
                self.list_from_history(call, selection, Some(version), None, limit).await
            }
            _ => Ok(self.list_from_cache(call, selection, None, limit)),
        }
    }

    fn list_from_cache(
        &self,
        call: &Call<'_>,
        selection: &Selection,
        after: Option<&str>,
        limit: usize,
    ) -> Listed {
        let kind = &call.served.kind;
        let (snapshot, revision) = self.cache.snapshot(&call.served.resource);
        let everything = selection.is_everything();
        let mut matching = within(&snapshot, &call.request.namespace, after)
            .filter(|object| everything || selection.matches(kind, object));
        if limit == 0 {
            return Listed { objects: matching.cloned().collect(), revision, next: None, remaining: None };
        }
        let objects: Vec<_> = matching.by_ref().take(limit).cloned().collect();
        let more = matching.next().is_some();
        let next = objects.last().filter(|_| more).map(|last| Continuation::new(revision, &last.place));
        // One was taken to see whether there is more.
        let remaining = (next.is_some() && everything).then(|| matching.count() + 1);
        Listed { objects, revision, next, remaining }
    }

    async fn list_from_history(
        &self,
        call: &Call<'_>,
        selection: &Selection,
        at: Option<u64>,
        after: Option<String>,
        limit: usize,
    ) -> Result<Listed, ApiError> {
        let resource = &call.served.resource;
        let kind = &call.served.kind;
        let namespace = &call.request.namespace;
        let prefix = match namespace.is_empty() {
            true => resource.prefix(),
            false => format!("{}{namespace}/", resource.prefix()),
        };
        let continued = after.is_some();
        let mut after = after.map(|place| resource.store_key(&place));
        let mut objects = Vec::new();
        loop {
            let range = Range {
                prefix: prefix.clone().into(),
                after: after.clone(),
                limit: HISTORY_PAGE,
                at: at.map(Revision),
            };
            let page = match self.store.range(range).await {
                Ok(page) => page,
                Err(StoreError::Compacted { .. }) if continued => {
                    let from =
                        after.as_deref().and_then(crate::cache::parse_key).map_or("/", |(_, place)| place);
                    return Err(ApiError::continue_expired(Continuation::new(0, from).encode()));
                }
                Err(StoreError::Compacted { requested, .. }) => {
                    return Err(ApiError::expired(format!(
                        "The resourceVersion for the provided list is too old: {requested}."
                    )));
                }
                Err(why) => return Err(ApiError::from_store(&why, call.named(), "")),
            };
            for (n, entry) in page.entries.iter().enumerate() {
                let Some((_, place)) = crate::cache::parse_key(&entry.key) else { continue };
                let object = match self.cache.read(&entry.key, place, entry.modified.0, &entry.value) {
                    Ok(object) => self.cache.refined(resource, object),
                    // A list that leaves something out without saying so would be a lie.
                    Err(why) => {
                        tracing::error!(%why, "a page of history cannot be read");
                        return Err(ApiError::expired(
                            "the list at this version can no longer be read; list again",
                        ));
                    }
                };
                if !selection.matches(kind, &object) {
                    continue;
                }
                objects.push(Arc::new(object));
                let more = page.more || n + 1 < page.entries.len();
                if limit > 0 && objects.len() == limit && more {
                    let next = Some(Continuation::new(page.revision.0, place));
                    return Ok(Listed { objects, revision: page.revision.0, next, remaining: None });
                }
            }
            match page.entries.last() {
                Some(last) if page.more => after = Some(last.key.clone()),
                _ => return Ok(Listed { objects, revision: page.revision.0, next: None, remaining: None }),
            }
        }
    }
}

/// A list of objects as they are encoded.
fn encoded_list(kind: &str, list_kind: &str, api_version: &str, named: bool, page: Listed) -> ApiResponse {
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        json!(list_kind),
        json!(api_version),
        page.metadata()
    );
    let item_head = match named {
        true => ItemHead::Named(crate::cache::object::head(api_version, kind).into()),
        false => ItemHead::Bare,
    };
    respond::list(Bytes::from(head), item_head, page.objects)
}

impl Listed {
    pub fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(next) = &self.next {
            metadata["continue"] = next.encode().into();
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        metadata
    }
}
