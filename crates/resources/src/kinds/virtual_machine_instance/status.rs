//! How a running machine stands, field by field as KubeVirt's clients read it. Its node's
//! agent writes it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::domain::Machine;
use crate::wire::wire_type;

/// Where a machine is between being asked for and being over.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[schemars(inline)]
pub enum Phase {
    /// Nobody has looked at it yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    Pending,
    Scheduling,
    Scheduled,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub const ALL: [Phase; 8] = [
        Phase::Unset,
        Phase::Pending,
        Phase::Scheduling,
        Phase::Scheduled,
        Phase::Running,
        Phase::Succeeded,
        Phase::Failed,
        Phase::Unknown,
    ];

    /// It ran, or never will: nothing of it is left on its node.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Unset => "",
            Phase::Pending => "Pending",
            Phase::Scheduling => "Scheduling",
            Phase::Scheduled => "Scheduled",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
    }
}

wire_type! {
    /// How a running machine stands.
    VirtualMachineInstanceStatus = "io.kubevirt.v1.VirtualMachineInstanceStatus" {
        /// Pending, Scheduling, Scheduled, Running, Succeeded, Failed or Unknown.
        phase: Phase,
        /// When each phase began.
        phase_transition_timestamps: Vec<PhaseTransition>,
        /// The node it runs on.
        node_name: String,
        /// In one word why it failed.
        reason: String,
        /// Ready, Paused, AgentConnected, LiveMigratable, Synchronized and others.
        conditions: Vec<Condition>,
        /// Its network interfaces, in the order of the spec.
        interfaces: Vec<InterfaceStatus>,
        /// What the guest agent says about the guest.
        #[serde(rename = "guestOSInfo")]
        guest_os_info: GuestOsInfo,
        /// The migration that is under way, or the last one.
        migration_state: Option<MigrationState>,
        /// BlockMigration or LiveMigration.
        migration_method: String,
        /// How its disks are.
        volume_status: Vec<VolumeStatus>,
        /// The pod that stands for it, by uid, and that pod's node.
        active_pods: BTreeMap<String, String>,
        /// The node it is asked to leave.
        evacuation_node_name: String,
        /// Whether the guest's file systems are frozen.
        fs_freeze_status: String,
        /// What runs it.
        launcher_container_image_version: String,
        /// Guaranteed, Burstable or BestEffort.
        qos_class: Option<String>,
        /// The revision of the VirtualMachine that it was made from.
        virtual_machine_revision_name: String,
        /// The user id it runs as.
        runtime_user: u64,
        /// The main board as it was resolved when it started.
        machine: Option<Machine>,
        /// The processor as it is now.
        #[serde(rename = "currentCPUTopology")]
        current_cpu_topology: Option<CpuTopology>,
        /// The memory as it is now.
        memory: Option<MemoryStatus>,
    }
}

wire_type! {
    /// One thing that is so, is not so, or is not known.
    Condition = "io.kubevirt.v1.Condition" {
        /// What it is about.
        #[serde(rename = "type")]
        condition_type: String,
        /// True, False or Unknown.
        status: String,
        /// When somebody last looked.
        last_probe_time: Option<Time>,
        /// When the status last changed.
        last_transition_time: Option<Time>,
        /// In one word why.
        reason: String,
        /// In a sentence why.
        message: String,
    }
}

impl Condition {
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}

wire_type! {
    /// When a phase began.
    PhaseTransition = "io.kubevirt.v1.VirtualMachineInstancePhaseTransitionTimestamp" {
        /// The phase.
        phase: Phase,
        /// When it began.
        phase_transition_timestamp: Option<Time>,
    }
}

wire_type! {
    /// A network interface as it is.
    InterfaceStatus = "io.kubevirt.v1.VirtualMachineInstanceNetworkInterface" {
        /// The name of the network in the spec; empty for one that only the guest knows.
        name: String,
        /// Its hardware address.
        mac: String,
        /// Its first address.
        ip_address: String,
        /// All of its addresses.
        ip_addresses: Vec<String>,
        /// What the guest calls it.
        interface_name: String,
        /// What its node calls it.
        pod_interface_name: String,
        /// Who says so: domain, guest-agent, multus-status, in that order, with commas.
        info_source: String,
        /// How many queues it has.
        queue_count: i32,
        /// up or down.
        link_state: String,
    }
}

wire_type! {
    /// What the guest agent says about the guest.
    GuestOsInfo = "io.kubevirt.v1.VirtualMachineInstanceGuestOSInfo" {
        /// `Debian GNU/Linux`.
        name: String,
        /// `12 (bookworm)`.
        version: String,
        /// `Debian GNU/Linux 12 (bookworm)`.
        pretty_name: String,
        /// `12`.
        version_id: String,
        /// The kernel's release.
        kernel_release: String,
        /// The kernel's version.
        kernel_version: String,
        /// `x86_64`.
        machine: String,
        /// `debian`.
        id: String,
    }
}

wire_type! {
    /// A migration, under way or over.
    MigrationState = "io.kubevirt.v1.VirtualMachineInstanceMigrationState" {
        /// The VirtualMachineInstanceMigration it belongs to.
        migration_uid: String,
        /// When memory began to move.
        start_timestamp: Option<Time>,
        /// When it was over.
        end_timestamp: Option<Time>,
        /// Where it comes from.
        source_node: String,
        /// Where it goes.
        target_node: String,
        /// Whether it is over.
        completed: bool,
        /// Whether it went wrong.
        failed: bool,
        /// Whether somebody asked to stop it.
        abort_requested: bool,
        /// Succeeded, Failed or Aborting.
        abort_status: String,
        /// What went wrong.
        failure_reason: String,
        /// PreCopy or PostCopy.
        mode: String,
    }
}

wire_type! {
    /// A disk as it is.
    VolumeStatus = "io.kubevirt.v1.VolumeStatus" {
        /// The name of the volume in the spec.
        name: String,
        /// What the guest calls it, such as `vda`.
        target: String,
        /// Pending, Bound, AttachedToNode, MountedToPod, Ready, Detaching or UnMountedFromPod.
        phase: String,
        /// In one word why.
        reason: String,
        /// In a sentence why.
        message: String,
        /// The claim behind it.
        persistent_volume_claim_info: Option<ClaimInfo>,
        /// There while it can be unplugged.
        hotplug_volume: Option<HotplugVolumeStatus>,
        /// Bytes, of volumes that no claim says the size of.
        size: i64,
    }
}

wire_type! {
    /// The claim behind a disk.
    ClaimInfo = "io.kubevirt.v1.PersistentVolumeClaimInfo" {
        /// The claim's name.
        claim_name: String,
        /// How it may be attached.
        access_modes: Vec<String>,
        /// Block or Filesystem.
        volume_mode: Option<String>,
        /// How much there is.
        capacity: BTreeMap<String, Quantity>,
        /// How much was asked for.
        requests: BTreeMap<String, Quantity>,
        /// Whether all of it is set aside already.
        preallocated: bool,
    }
}

wire_type! {
    /// There while a disk can be unplugged.
    HotplugVolumeStatus = "io.kubevirt.v1.HotplugVolumeStatus" {
        /// The pod that stands for the attachment.
        attach_pod_name: String,
        /// That pod's uid.
        #[serde(rename = "attachPodUID")]
        attach_pod_uid: String,
    }
}

wire_type! {
    /// The processor as it is now.
    CpuTopology = "io.kubevirt.v1.CPUTopology" {
        /// Cores per socket.
        cores: u32,
        /// Sockets.
        sockets: u32,
        /// Threads per core.
        threads: u32,
    }
}

wire_type! {
    /// The memory as it is now.
    MemoryStatus = "io.kubevirt.v1.MemoryStatus" {
        /// What it started with.
        guest_at_boot: Option<Quantity>,
        /// What it has.
        guest_current: Option<Quantity>,
        /// What was asked for.
        guest_requested: Option<Quantity>,
    }
}

impl VirtualMachineInstanceStatus {
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }

    pub fn is(&self, condition_type: &str) -> bool {
        self.condition(condition_type).is_some_and(Condition::is_true)
    }

    pub fn has_been_running(&self) -> bool {
        self.phase_transition_timestamps.iter().any(|passed| passed.phase == Phase::Running)
    }

    pub fn is_migrating(&self) -> bool {
        self.migration_state
            .as_ref()
            .is_some_and(|migration| migration.start_timestamp.is_some() && migration.end_timestamp.is_none())
    }
}
