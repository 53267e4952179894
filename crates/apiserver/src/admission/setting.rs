//! Settings that name other objects: what they name is there.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        cluster_network,
        setting::{RWX_NETWORK, STORAGE_NETWORK, VM_MIGRATION_NETWORK, VOLUME_SNAPSHOT_CLASS, networks},
        volume_snapshot,
    },
};

use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::Call,
    status::ApiError,
};

impl ApiServer {
    pub(super) fn admit_setting(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let value = new["value"].as_str().unwrap_or_default();
        if value.is_empty() || old.is_some_and(|old| old["value"] == value) {
            return Ok(());
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let (group, plural, named) = match name {
            STORAGE_NETWORK | VM_MIGRATION_NETWORK | RWX_NETWORK => {
                match networks::cluster_network_of(value) {
                    Some(network) if network != cluster_network::MANAGEMENT => {
                        ("network.harvesterhci.io", "clusternetworks", network)
                    }
                    _ => return Ok(()),
                }
            }
            VOLUME_SNAPSHOT_CLASS => (volume_snapshot::GROUP, "volumesnapshotclasses", value.to_owned()),
            _ => return Ok(()),
        };
        if self.cache.get(&Resource::new(group, plural), &place("", &named)).is_some() {
            return Ok(());
        }
        let why = format!("{plural}.{group} {named:?} not found");
        let error = FieldError::invalid(&FieldPath::new("value"), named, why);
        Err(ApiError::invalid(&call.served.kind.group, &call.served.kind.kind, name, &[error]))
    }
}
