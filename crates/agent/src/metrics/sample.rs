//! What one machine had used at one moment. Counters begin with its process.

use sheaf_hypervisor::qmp::numbers::{DiskNumbers, MemoryNumbers};
use tokio::time::Instant;

use super::process::ProcessNumbers;

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub at: Instant,
    pub process: ProcessNumbers,
    pub cpus: Vec<CpuNumbers>,
    /// What the guest was given at its start.
    pub memory_bytes: u64,
    /// None of a machine without a balloon, or whose monitor did not answer.
    pub guest: Option<GuestMemory>,
    /// None of a machine whose monitor did not answer.
    pub disks: Option<Vec<DiskNumbers>>,
    /// Those that are on a tap; user-mode networking counts nothing.
    pub nics: Vec<NicNumbers>,
}

/// One virtual processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuNumbers {
    pub index: u32,
    /// How long it ran, and how long it could have and the host had something else to do.
    pub run_nanos: u64,
    pub delay_nanos: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestMemory {
    /// What the balloon leaves to the guest.
    pub actual_bytes: u64,
    pub said: MemoryNumbers,
}

/// One NIC, in the guest's words: received is what came in to the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicNumbers {
    pub name: String,
    pub received: Traffic,
    pub transmitted: Traffic,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub bytes: u64,
    pub packets: u64,
    pub errors: u64,
    pub dropped: u64,
}

impl GuestMemory {
    /// What the guest could not give up without swapping.
    pub fn used_bytes(&self) -> Option<u64> {
        Some(self.said.stat_total_memory?.saturating_sub(self.said.stat_available_memory?))
    }
}
