//! Objects live in namespaces that exist and are not on their way out.

use std::sync::Arc;

use serde_json::Value;
use sheaf_store::{Expect, Revision};

use crate::{
    ApiServer,
    cache::{Resource, object::CachedObject, place},
    rest::{Call, options::Freshness},
    status::{ApiError, Named},
};

impl ApiServer {
    /// That the namespace of a request still is as the cache has it, and open: for the transaction that writes
    /// into it.
    pub(crate) fn namespace_as_seen(&self, call: &Call<'_>) -> Option<Expect> {
        if call.request.namespace.is_empty() {
            return None;
        }
        let namespaces = Resource::new("", "namespaces");
        let place = place("", &call.request.namespace);
        let key = namespaces.store_key(&place);
        Some(match self.cache.get(&namespaces, &place) {
            Some(seen) if !is_terminating(&seen.to_value()) => {
                Expect::ModifiedAt { key, revision: Revision(seen.revision) }
            }
            // It went, or began to, after it was looked at: the write fails, and the next look says why.
            _ => Expect::ModifiedAt { key, revision: Revision(u64::MAX) },
        })
    }

    /// The namespace of a request that makes something whose name for people is nobody else's there. It is written as it
    /// is together with that: of two who found a name free at one moment, through whichever server, the second finds
    /// the namespace changed and looks again. To be asked before it is looked whether the name is free.
    pub(crate) fn namespace_of_names(&self, call: &Call<'_>) -> Option<Arc<CachedObject>> {
        let kind = &call.served.kind;
        if (kind.group.as_str(), kind.plural.as_str()) != ("harvesterhci.io", "virtualmachineimages") {
            return None;
        }
        self.cache.get(&Resource::new("", "namespaces"), &place("", &call.request.namespace))
    }

    pub(super) async fn admit_into_namespace(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        let namespace = &call.request.namespace;
        if namespace.is_empty() {
            return Ok(());
        }
        let resource = Resource::new("", "namespaces");
        let place = place("", namespace);
        let mut found = self.cache.get(&resource, &place);
        if found.is_none() {
            // Perhaps it was made a moment ago, through another server.
            self.reach(Freshness::Latest).await?;
            found = self.cache.get(&resource, &place);
        }
        let Some(found) = found else {
            return Err(ApiError::not_found(Named { group: "", resource: "namespaces" }, namespace));
        };
        if is_terminating(&found.to_value()) {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            return Err(ApiError::namespace_terminating(call.named(), name, namespace));
        }
        Ok(())
    }

    /// Whether everything in the namespace of a request goes anyway.
    pub(super) fn is_being_emptied(&self, call: &Call<'_>) -> bool {
        let found = self.cache.get(&Resource::new("", "namespaces"), &place("", &call.request.namespace));
        found.is_some_and(|namespace| is_terminating(&namespace.to_value()))
    }
}

fn is_terminating(namespace: &Value) -> bool {
    namespace["status"]["phase"] == "Terminating"
}
