//! The numbers QEMU keeps about a running machine, for metrics.

use serde::Deserialize;
use serde_json::Value;

/// Memory as the guest's balloon driver reports it. A guest without one reports nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MemoryNumbers {
    pub stat_total_memory: Option<u64>,
    pub stat_free_memory: Option<u64>,
    pub stat_available_memory: Option<u64>,
    pub stat_disk_caches: Option<u64>,
    pub stat_swap_in: Option<u64>,
    pub stat_swap_out: Option<u64>,
    pub stat_major_faults: Option<u64>,
    pub stat_minor_faults: Option<u64>,
}

/// What went through one disk since the machine was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskNumbers {
    /// The device's id, `disk-<name>`.
    pub device: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_nanos: u64,
    pub write_nanos: u64,
    pub flush_nanos: u64,
}

/// One virtual processor and the thread that runs it: its CPU time is in
/// `/proc/<pid>/task/<thread>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CpuThread {
    pub cpu_index: u32,
    pub thread_id: i32,
}

/// Reads `query-blockstats`. The guest's devices have ids of ours; what has none (the
/// firmware's flash) is nobody's disk.
pub fn disks(answer: &Value) -> Vec<DiskNumbers> {
    let entries = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(disk).collect()
}

fn disk(entry: &Value) -> Option<DiskNumbers> {
    // Either the id itself or a path in QEMU's object tree that holds it.
    let path = entry["qdev"].as_str()?;
    let device = path.split('/').find(|part| part.starts_with("disk-"))?.to_owned();
    let number = |key: &str| entry["stats"][key].as_u64().unwrap_or(0);
    Some(DiskNumbers {
        device,
        read_bytes: number("rd_bytes"),
        written_bytes: number("wr_bytes"),
        reads: number("rd_operations"),
        writes: number("wr_operations"),
        flushes: number("flush_operations"),
        read_nanos: number("rd_total_time_ns"),
        write_nanos: number("wr_total_time_ns"),
        flush_nanos: number("flush_total_time_ns"),
    })
}
