//! Samples in Prometheus' text form: the names, types and labels of KubeVirt's, so that dashboards for it work.
//!
//! What KubeVirt counts and is not here has no meaning or no source: time spent waiting for a disk per processor, dirty
//! rates and migrations, file systems in the guest. `kubevirt_vmi_info` comes from objects, so the API server writes it.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

use sheaf_hypervisor::qmp::numbers::{DiskNumbers, MemoryNumbers};

use super::{
    Owner,
    sample::{CpuNumbers, NicNumbers, Sample},
};

struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    of: Of,
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// What a family has one line of.
#[derive(Clone, Copy)]
enum Of {
    Machine(fn(&Sample) -> Option<Number>),
    /// What the guest itself says.
    Guest(fn(&MemoryNumbers) -> Option<u64>),
    Cpu(fn(&CpuNumbers) -> Number),
    /// As [`Of::Cpu`], with the state that KubeVirt shows beside it.
    CpuState(fn(&CpuNumbers) -> Number),
    Disk(fn(&DiskNumbers) -> Number),
    Nic(fn(&NicNumbers) -> u64),
    /// Both directions in one family.
    NicBothWays(fn(&NicNumbers) -> [(&'static str, u64); 2]),
}

#[derive(Clone, Copy)]
enum Number {
    Count(u64),
    /// Shown in seconds.
    Nanos(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Count(count) => write!(f, "{count}"),
            Number::Nanos(nanos) => write!(f, "{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000),
        }
    }
}

use Kind::{Counter, Gauge};
use Number::{Count, Nanos};

const fn family(name: &'static str, kind: Kind, help: &'static str, of: Of) -> Family {
    Family { name, kind, help, of }
}

const FAMILIES: &[Family] = &[
    family(
        "kubevirt_vmi_cpu_usage_seconds_total",
        Counter,
        "Processor time of a machine, its emulation included",
        Of::Machine(|sample| Some(Nanos(sample.process.user_nanos + sample.process.system_nanos))),
    ),
    family(
        "kubevirt_vmi_cpu_user_usage_seconds_total",
        Counter,
        "The part of it spent outside the host's kernel",
        Of::Machine(|sample| Some(Nanos(sample.process.user_nanos))),
    ),
    family(
        "kubevirt_vmi_cpu_system_usage_seconds_total",
        Counter,
        "The part of it spent in the host's kernel",
        Of::Machine(|sample| Some(Nanos(sample.process.system_nanos))),
    ),
    family(
        "kubevirt_vmi_vcpu_seconds_total",
        Counter,
        "Time for which each virtual processor ran",
        Of::CpuState(|cpu| Nanos(cpu.run_nanos)),
    ),
    family(
        "kubevirt_vmi_vcpu_delay_seconds_total",
        Counter,
        "Time for which each virtual processor could have run and had to wait for one of the host's",
        Of::Cpu(|cpu| Nanos(cpu.delay_nanos)),
    ),
    family(
        "kubevirt_vmi_memory_domain_bytes",
        Gauge,
        "Memory that the guest was given",
        Of::Machine(|sample| Some(Count(sample.memory_bytes))),
    ),
    family(
        "kubevirt_vmi_memory_resident_bytes",
        Gauge,
        "What the machine's process holds of the host's memory",
        Of::Machine(|sample| Some(Count(sample.process.resident_bytes))),
    ),
    family(
        "kubevirt_vmi_memory_actual_balloon_bytes",
        Gauge,
        "Memory that the balloon leaves to the guest",
        Of::Machine(|sample| sample.guest.map(|guest| Count(guest.actual_bytes))),
    ),
    family(
        "kubevirt_vmi_memory_available_bytes",
        Gauge,
        "All memory that the guest sees, as it says",
        Of::Guest(|said| said.stat_total_memory),
    ),
    family(
        "kubevirt_vmi_memory_unused_bytes",
        Gauge,
        "Memory that the guest uses for nothing at all, as it says",
        Of::Guest(|said| said.stat_free_memory),
    ),
    family(
        "kubevirt_vmi_memory_usable_bytes",
        Gauge,
        "Memory that the guest could give up without swapping, as it says",
        Of::Guest(|said| said.stat_available_memory),
    ),
    family(
        "kubevirt_vmi_memory_used_bytes",
        Gauge,
        "Memory that the guest could not give up without swapping, as it says",
        Of::Machine(|sample| sample.guest?.used_bytes().map(Count)),
    ),
    family(
        "kubevirt_vmi_memory_cached_bytes",
        Gauge,
        "Memory that the guest caches files in, as it says",
        Of::Guest(|said| said.stat_disk_caches),
    ),
    family(
        "kubevirt_vmi_memory_swap_in_traffic_bytes",
        Gauge,
        "What the guest has read back from its swap space, as it says",
        Of::Guest(|said| said.stat_swap_in),
    ),
    family(
        "kubevirt_vmi_memory_swap_out_traffic_bytes",
        Gauge,
        "What the guest has written to its swap space, as it says",
        Of::Guest(|said| said.stat_swap_out),
    ),
    family(
        "kubevirt_vmi_memory_pgmajfault_total",
        Counter,
        "Page faults in the guest that had to wait for a disk, as it says",
        Of::Guest(|said| said.stat_major_faults),
    ),
    family(
        "kubevirt_vmi_memory_pgminfault_total",
        Counter,
        "Page faults in the guest that did not, as it says",
        Of::Guest(|said| said.stat_minor_faults),
    ),
    family(
        "kubevirt_vmi_network_traffic_bytes_total",
        Counter,
        "Bytes that passed each interface, by direction; KubeVirt's older name",
        Of::NicBothWays(|nic| [("rx", nic.received.bytes), ("tx", nic.transmitted.bytes)]),
    ),
    family(
        "kubevirt_vmi_network_receive_bytes_total",
        Counter,
        "Bytes that reached the guest",
        Of::Nic(|nic| nic.received.bytes),
    ),
    family(
        "kubevirt_vmi_network_receive_packets_total",
        Counter,
        "Packets that reached the guest",
        Of::Nic(|nic| nic.received.packets),
    ),
    family(
        "kubevirt_vmi_network_receive_errors_total",
        Counter,
        "Packets that could not be handed to the guest",
        Of::Nic(|nic| nic.received.errors),
    ),
    family(
        "kubevirt_vmi_network_receive_packets_dropped_total",
        Counter,
        "Packets for the guest that were dropped",
        Of::Nic(|nic| nic.received.dropped),
    ),
    family(
        "kubevirt_vmi_network_transmit_bytes_total",
        Counter,
        "Bytes that the guest sent",
        Of::Nic(|nic| nic.transmitted.bytes),
    ),
    family(
        "kubevirt_vmi_network_transmit_packets_total",
        Counter,
        "Packets that the guest sent",
        Of::Nic(|nic| nic.transmitted.packets),
    ),
    family(
        "kubevirt_vmi_network_transmit_errors_total",
        Counter,
        "Packets of the guest that could not be taken",
        Of::Nic(|nic| nic.transmitted.errors),
    ),
    family(
        "kubevirt_vmi_network_transmit_packets_dropped_total",
        Counter,
        "Packets of the guest that were dropped",
        Of::Nic(|nic| nic.transmitted.dropped),
    ),
    family(
        "kubevirt_vmi_storage_read_traffic_bytes_total",
        Counter,
        "Bytes that the guest read",
        Of::Disk(|disk| Count(disk.read_bytes)),
    ),
    family(
        "kubevirt_vmi_storage_write_traffic_bytes_total",
        Counter,
        "Bytes that the guest wrote",
        Of::Disk(|disk| Count(disk.written_bytes)),
    ),
    family("kubevirt_vmi_storage_iops_read_total", Counter, "Reads", Of::Disk(|disk| Count(disk.reads))),
    family("kubevirt_vmi_storage_iops_write_total", Counter, "Writes", Of::Disk(|disk| Count(disk.writes))),
    family(
        "kubevirt_vmi_storage_read_times_seconds_total",
        Counter,
        "Time that reads took together",
        Of::Disk(|disk| Nanos(disk.read_nanos)),
    ),
    family(
        "kubevirt_vmi_storage_write_times_seconds_total",
        Counter,
        "Time that writes took together",
        Of::Disk(|disk| Nanos(disk.write_nanos)),
    ),
    family(
        "kubevirt_vmi_storage_flush_requests_total",
        Counter,
        "Flushes that the guest asked for",
        Of::Disk(|disk| Count(disk.flushes)),
    ),
    family(
        "kubevirt_vmi_storage_flush_times_seconds_total",
        Counter,
        "Time that flushes took together",
        Of::Disk(|disk| Nanos(disk.flush_nanos)),
    ),
];

/// Writes the families of which there is something to say.
pub fn write(text: &mut String, node: &str, machines: &BTreeMap<&Owner, &Sample>) {
    let node = escaped(node);
    let machines: Vec<(String, &Sample)> = machines
        .iter()
        .map(|(owner, sample)| {
            let (namespace, name) = (escaped(&owner.namespace), escaped(&owner.name));
            (format!(r#"node="{node}",namespace="{namespace}",name="{name}""#), *sample)
        })
        .collect();
    for family in FAMILIES {
        let mut lines = Lines { text, family, begun: false };
        for (labels, sample) in &machines {
            family.of.write(&mut lines, labels, sample);
        }
    }
}

/// The lines of one family, after its heading.
struct Lines<'a> {
    text: &'a mut String,
    family: &'a Family,
    begun: bool,
}

impl Lines<'_> {
    fn line(&mut self, labels: &str, more: fmt::Arguments<'_>, number: Number) {
        let Family { name, kind, help, .. } = self.family;
        // Writing to a String cannot fail.
        if !self.begun {
            self.begun = true;
            let kind = match kind {
                Counter => "counter",
                Gauge => "gauge",
            };
            let _ = writeln!(self.text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        }
        let _ = writeln!(self.text, "{name}{{{labels}{more}}} {number}");
    }
}

impl Of {
    fn write(self, lines: &mut Lines<'_>, labels: &str, sample: &Sample) {
        match self {
            Of::Machine(read) => {
                if let Some(number) = read(sample) {
                    lines.line(labels, format_args!(""), number);
                }
            }
            Of::Guest(read) => {
                if let Some(number) = sample.guest.and_then(|guest| read(&guest.said)) {
                    lines.line(labels, format_args!(""), Count(number));
                }
            }
            Of::Cpu(read) => {
                for cpu in &sample.cpus {
                    lines.line(labels, format_args!(r#",id="{}""#, cpu.index), read(cpu));
                }
            }
            Of::CpuState(read) => {
                for cpu in &sample.cpus {
                    lines.line(labels, format_args!(r#",id="{}",state="running""#, cpu.index), read(cpu));
                }
            }
            Of::Disk(read) => {
                for disk in sample.disks.iter().flatten() {
                    let drive = disk.device.strip_prefix("disk-").unwrap_or(&disk.device);
                    lines.line(labels, format_args!(r#",drive="{}""#, escaped(drive)), read(disk));
                }
            }
            Of::Nic(read) => {
                for nic in &sample.nics {
                    lines.line(
                        labels,
                        format_args!(r#",interface="{}""#, escaped(&nic.name)),
                        Count(read(nic)),
                    );
                }
            }
            Of::NicBothWays(read) => {
                for nic in &sample.nics {
                    for (direction, bytes) in read(nic) {
                        let more = format_args!(r#",interface="{}",type="{direction}""#, escaped(&nic.name));
                        lines.line(labels, more, Count(bytes));
                    }
                }
            }
        }
    }
}

/// A label's value between its quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}
