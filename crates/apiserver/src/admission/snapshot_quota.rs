//! Snapshots within the limits of their namespace and their machine.
//!
//! Counted by [`sheaf_planner::snapshot_usage`] from what is there when one more is asked for. Two that are asked for at the
//! very same moment may both find room that is enough for one: so much a limit can be passed, once.

use serde::de::DeserializeOwned;
use serde_json::Value;
use sheaf_planner::snapshot_usage::{Seen, over_limit};
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        harvester_resource_quota::{DEFAULT_NAME, ResourceQuota},
        virtual_machine_backup::TYPE_SNAPSHOT,
    },
    rbac,
};

use super::machines;
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::ApiError,
};

const HARVESTER: &str = "harvesterhci.io";

impl ApiServer {
    /// All disks of a machine at once. Whether that is there was asked just before.
    pub(super) fn admit_size_of_backup(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        if new["spec"]["type"] != TYPE_SNAPSHOT {
            return Ok(());
        }
        let Some(limit) = self.snapshot_limit(&call.request.namespace) else { return Ok(()) };
        let at = FieldPath::new("spec").child("source").child("name");
        let machine = text(&new["spec"]["source"]["name"]);
        let seen = self.snapshots_of(&call.request.namespace);
        let more = seen.size_of_machine(machine);
        match over_limit(&limit.spec.snapshot_limit, &seen.usage(), Some(machine), more) {
            None => Ok(()),
            Some(why) => Err(invalid(call, new, FieldError::invalid(&at, machine, why))),
        }
    }

    /// One disk. Those of a backup were counted with it.
    pub(super) async fn admit_size_of_snapshot(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        if call.user.name.starts_with(&rbac::controller_user("")) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let Some(limit) = self.snapshot_limit(&call.request.namespace) else { return Ok(()) };
        let claim = text(&new["spec"]["source"]["persistentVolumeClaimName"]);
        let seen = self.snapshots_of(&call.request.namespace);
        let (machine, more) = (seen.machine_with(claim), seen.size_of_claim(claim));
        match over_limit(&limit.spec.snapshot_limit, &seen.usage(), machine, more) {
            None => Ok(()),
            Some(why) => {
                let at = FieldPath::new("spec").child("source").child("persistentVolumeClaimName");
                Err(invalid(call, new, FieldError::invalid(&at, claim, why)))
            }
        }
    }

    fn snapshot_limit(&self, namespace: &str) -> Option<ResourceQuota> {
        let quota =
            self.cache.get(&Resource::new(HARVESTER, "resourcequotas"), &place(namespace, DEFAULT_NAME))?;
        serde_json::from_value(quota.to_value()).ok()
    }

    fn snapshots_of(&self, namespace: &str) -> Seen {
        Seen::of(
            self.all_in(HARVESTER, "virtualmachinebackups", namespace).iter(),
            self.all_in("snapshot.storage.k8s.io", "volumesnapshots", namespace).iter(),
            self.all_in("", "persistentvolumeclaims", namespace).iter(),
            self.all_in(machines::GROUP, machines::MACHINES, namespace).iter(),
        )
    }

    fn all_in<T: DeserializeOwned>(&self, group: &str, plural: &str, namespace: &str) -> Vec<T> {
        let (snapshot, _) = self.cache.snapshot(&Resource::new(group, plural));
        // Those of other namespaces are not read at all: there may be any number of them.
        let is_own = |place: &str| place.split_once('/').is_some_and(|(of, _)| of == namespace);
        let own = snapshot.iter().filter(|(place, _)| is_own(place));
        own.filter_map(|(_, object)| serde_json::from_value(object.to_value()).ok()).collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn invalid(call: &Call<'_>, new: &Value, error: FieldError) -> ApiError {
    let kind = &call.served.kind;
    ApiError::invalid(&kind.group, &kind.kind, text(&new["metadata"]["name"]), &[error])
}
