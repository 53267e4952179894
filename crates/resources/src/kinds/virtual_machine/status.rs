//! How a virtual machine stands, field by field as KubeVirt's clients read it. Its
//! controller writes it; the subresources add requests.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::virtual_machine_instance::{
    devices::Disk, status::Condition, volume::PersistentVolumeClaimSource,
};
use super::run_strategy::RunStrategy;
use crate::wire::wire_type;

wire_type! {
    /// How a virtual machine stands.
    VirtualMachineStatus = "io.kubevirt.v1.VirtualMachineStatus" {
        /// Whether there is an instance.
        created: bool,
        /// Whether the instance is ready.
        ready: bool,
        /// In one word, for people.
        printable_status: String,
        /// Ready, Failure, RestartRequired, and those of the instance.
        conditions: Vec<Condition>,
        /// What was asked for through the subresources and is not done yet, first in, first out.
        state_change_requests: Vec<StateChangeRequest>,
        /// Volumes that were asked for or asked away while it runs.
        volume_requests: Vec<VolumeRequest>,
        /// Which volumes can be snapshotted.
        volume_snapshot_statuses: Vec<VolumeSnapshotStatus>,
        /// There while it fails to come up.
        start_failure: Option<StartFailure>,
        /// The generation that the instance was made from.
        observed_generation: i64,
        /// The generation that was last seen.
        desired_generation: i64,
        /// The run strategy it was last run by.
        run_strategy: Option<RunStrategy>,
        /// The snapshot that is being taken.
        snapshot_in_progress: Option<String>,
        /// The restore that is under way.
        restore_in_progress: Option<String>,
    }
}

wire_type! {
    /// A start or a stop that was asked for.
    StateChangeRequest = "io.kubevirt.v1.VirtualMachineStateChangeRequest" {
        /// Start or Stop.
        action: String,
        /// `paused: "true"` starts it paused.
        data: BTreeMap<String, String>,
        /// The instance to be stopped.
        uid: Option<String>,
    }
}

pub const START: &str = "Start";
pub const STOP: &str = "Stop";

impl StateChangeRequest {
    pub fn start(paused: bool) -> Self {
        let data = if paused { BTreeMap::from([("paused".into(), "true".into())]) } else { BTreeMap::new() };
        StateChangeRequest { action: START.into(), data, uid: None }
    }

    pub fn stop(uid: &str) -> Self {
        StateChangeRequest { action: STOP.into(), data: BTreeMap::new(), uid: Some(uid.into()) }
    }

    pub fn is_start(&self) -> bool {
        self.action == START
    }

    pub fn starts_paused(&self) -> bool {
        self.is_start() && self.data.get("paused").is_some_and(|value| value == "true")
    }

    /// Whether it asks for this very instance to stop. A request about another is over.
    pub fn stops(&self, uid: &str) -> bool {
        self.action == STOP && self.uid.as_deref() == Some(uid)
    }
}

wire_type! {
    /// There while a machine fails to come up.
    StartFailure = "io.kubevirt.v1.VirtualMachineStartFailure" {
        /// How often in a row.
        consecutive_fail_count: i32,
        /// The last instance that failed.
        #[serde(rename = "lastFailedVMIUID")]
        last_failed_vmi_uid: String,
        /// When it is tried again.
        retry_after_timestamp: Option<Time>,
    }
}

wire_type! {
    /// A volume that was asked for or asked away.
    VolumeRequest = "io.kubevirt.v1.VirtualMachineVolumeRequest" {
        /// Plug one in.
        add_volume_options: Option<AddVolumeOptions>,
        /// Unplug one.
        remove_volume_options: Option<RemoveVolumeOptions>,
    }
}

wire_type! {
    /// Plug a volume in.
    AddVolumeOptions = "io.kubevirt.v1.AddVolumeOptions" {
        /// The name of the disk and the volume.
        name: String,
        /// The disk as the guest sees it.
        disk: Option<Disk>,
        /// What it is backed by.
        volume_source: Option<HotplugVolumeSource>,
        /// `All` changes nothing.
        dry_run: Vec<String>,
    }
}

wire_type! {
    /// What a plugged-in disk is backed by.
    HotplugVolumeSource = "io.kubevirt.v1.HotplugVolumeSource" {
        /// A claim in the machine's namespace.
        persistent_volume_claim: Option<PersistentVolumeClaimSource>,
    }
}

wire_type! {
    /// Unplug a volume.
    RemoveVolumeOptions = "io.kubevirt.v1.RemoveVolumeOptions" {
        /// The name of the disk and the volume.
        name: String,
        /// `All` changes nothing.
        dry_run: Vec<String>,
    }
}

wire_type! {
    /// Whether a volume can be snapshotted.
    VolumeSnapshotStatus = "io.kubevirt.v1.VolumeSnapshotStatus" {
        /// The name of the volume.
        name: String,
        /// Whether it can.
        enabled: bool,
        /// Why not.
        reason: String,
    }
}

impl VirtualMachineStatus {
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }
}
