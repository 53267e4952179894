//! Says in every quota of Harvester's what the snapshots of its namespace take.
//!
//! Nothing is decided by it: whoever takes a snapshot is counted anew, by [`sheaf_planner::snapshot_usage`] too. So it may be
//! some moments late.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::snapshot_usage::Seen;
use sheaf_resources::kinds::{
    harvester_resource_quota::{DEFAULT_NAME, ResourceQuota},
    virtual_machine::VirtualMachine,
    virtual_machine_backup::VirtualMachineBackup,
    volume_snapshot::VolumeSnapshot,
};

use crate::{
    Context,
    object::{Eyes, Object},
};

pub const NAME: &str = "harvester-resource-quota";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Quotas { context }, client).await;
}

struct Quotas {
    context: Context,
}

impl Reconciler for Quotas {
    /// The namespace.
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<ResourceQuota>(),
            memory.of::<VirtualMachineBackup>(),
            memory.of::<VolumeSnapshot>(),
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<VirtualMachine>(),
        ]
    }

    fn keys(&self, _watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        metadata.namespace.clone().into_iter().collect()
    }

    async fn reconcile(&mut self, namespace: &String) -> Result<Next<String>, ReconcileError> {
        let eyes = self.context.eyes();
        // Few namespaces have one, and the others cost a look at what is remembered.
        let quota: Option<Object<ResourceQuota>> = eyes.find(namespace, DEFAULT_NAME).await?;
        let Some(quota) = quota.filter(|quota| !quota.is_being_deleted()) else { return Ok(Next::rest()) };
        let usage = look(&eyes, namespace).await?.usage();
        if usage != quota.typed.status.snapshot_limit_status {
            quota.write_status(json!({"snapshotLimitStatus": usage})).await?;
        }
        Ok(Next::rest())
    }
}

async fn look(eyes: &Eyes, namespace: &str) -> Result<Seen, ReconcileError> {
    let backups: Vec<Arc<VirtualMachineBackup>> = eyes.list(namespace).await?;
    let snapshots: Vec<Arc<VolumeSnapshot>> = eyes.list(namespace).await?;
    let claims: Vec<Arc<PersistentVolumeClaim>> = eyes.list(namespace).await?;
    let machines: Vec<Arc<VirtualMachine>> = eyes.list(namespace).await?;
    Ok(Seen::of(
        backups.iter().map(|backup| &**backup),
        snapshots.iter().map(|snapshot| &**snapshot),
        claims.iter().map(|claim| &**claim),
        machines.iter().map(|vm| &**vm),
    ))
}
