//! Support bundles: made where no tenant has rights, by those who may see everything, and left as they were asked for.

use serde_json::Value;
use sheaf_resources::kinds::support_bundle::NAMESPACE;

use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::ApiError,
};

impl ApiServer {
    /// The words about namespaces and about the spec are Harvester's.
    pub(super) async fn admit_bundle(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if let Some(old) = old {
            return match old["spec"] == new["spec"] {
                true => Ok(()),
                false => Err(ApiError::bad_request(
                    "modifying the spec of an existing support bundle is not allowed",
                )),
            };
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        self.must_see_everything(call.user, name)?;
        if call.request.namespace != NAMESPACE {
            let why = format!("support bundles are made in the namespace {NAMESPACE}");
            return Err(ApiError::refused(call.named(), name, why));
        }
        self.reach(Freshness::Latest).await?;
        let named = new["spec"]["extraCollectionNamespaces"].as_array();
        for namespace in named.into_iter().flatten().filter_map(Value::as_str).filter(|name| !name.is_empty())
        {
            if self.cache.get(&Resource::new("", "namespaces"), &place("", namespace)).is_none() {
                return Err(ApiError::bad_request(format!("namespace {namespace} not found")));
            }
        }
        Ok(())
    }
}
