//! One machine, one claim: how small and how large they may be in their namespace.

use serde_json::Value;
use sheaf_resources::kinds::limit_range;

use crate::{ApiServer, cache::Resource, rest::Call, status::ApiError};

impl ApiServer {
    /// Gives a new machine what the ranges of its namespace say it has by default.
    pub(super) fn complete_size_of_instance(&self, call: &Call<'_>, new: &mut Value) {
        self.ranges(call).iter().for_each(|range| limit_range::complete_instance(range, new));
    }

    /// Refuses one that is out of them, complete as it will be.
    pub(super) fn admit_size_of_instance(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        let ranges = self.ranges(call);
        if ranges.is_empty() {
            return Ok(());
        }
        // One that cannot be read is refused for that.
        let Ok(spec) = serde_json::from_value(new["spec"].clone()) else { return Ok(()) };
        let problems = ranges.iter().flat_map(|range| limit_range::check_instance(range, &spec)).collect();
        refused(call, new, problems)
    }

    pub(super) fn admit_size_of_claim(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let size = |claim: &Value| claim["spec"]["resources"]["requests"]["storage"].clone();
        if old.is_some_and(|old| size(old) == size(new)) {
            return Ok(());
        }
        let ranges = self.ranges(call);
        let problems = ranges.iter().flat_map(|range| limit_range::check_claim(range, new)).collect();
        refused(call, new, problems)
    }

    fn ranges(&self, call: &Call<'_>) -> Vec<Value> {
        let ranges = self.inside(&Resource::new("", "limitranges"), &call.request.namespace);
        ranges.iter().map(|range| range.to_value()).collect()
    }
}

fn refused(call: &Call<'_>, new: &Value, problems: Vec<String>) -> Result<(), ApiError> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    match problems.as_slice() {
        [] => Ok(()),
        [only] => Err(ApiError::refused(call.named(), name, only)),
        several => Err(ApiError::refused(call.named(), name, format!("[{}]", several.join(", ")))),
    }
}
