//! How much memory a QEMU needs beside its guest's.
//!
//! The sum is a ceiling for the cgroup, not a reservation: it must be so generous that a
//! guest is never killed while its host has memory, and so finite that a QEMU gone mad
//! does not take the host along. The page cache of a machine's disks counts too, but is
//! given back before anything is killed.
//!
//! Measured with QEMU 7.2 under TCG, resident beside the guest's own memory after it had
//! booted and filled most of that:
//!
//! | guest | CPUs | qcow2 disks | beside it | page tables |
//! |---|---|---|---|---|
//! | 256 MiB | 1 | 0 | 116 MiB | 0.8 MiB |
//! | 1 GiB | 1 | 0 | 116 MiB | 1.6 MiB |
//! | 1 GiB | 4 | 0 | 123 MiB | 1.6 MiB |
//! | 1 GiB | 2 | 8 | 129 MiB | 1.9 MiB |
//! | 128 MiB | 1 | 2, of 41 layers each | 417 MiB | 3.1 MiB |
//!
//! Translated code is part of these numbers as far as there was any; the formula counts
//! the whole cache. A qcow2 layer's metadata cache grows with use, to 32 MiB and a
//! little, and the formula counts all of it.

use crate::machine::{Accelerator, Format, Machine};

/// QEMU itself: code, heap, firmware, screen, device models. Twice what was measured.
const PROCESS_MIB: u64 = 256;
/// One virtual processor: its thread's stack and tables.
const CPU_MIB: u64 = 8;
/// One disk: requests in flight.
const DISK_MIB: u64 = 8;
/// One qcow2 layer: its metadata cache.
const QCOW2_MIB: u64 = 40;
/// One NIC: its queues, and with user-mode networking every connection's buffers.
const NIC_MIB: u64 = 16;
/// Page tables and the kernel's other memory, which cgroups count: this part of the guest's.
const KERNEL_PART: u64 = 128;

/// The most memory that the processes of this machine may use together.
pub fn memory_limit_mib(machine: &Machine) -> u64 {
    let translations = match machine.accelerator {
        Accelerator::Kvm => 0,
        Accelerator::Tcg => translation_cache_mib(machine),
    };
    let qcow2_layers = launched_layers(machine, Format::Qcow2);
    of_guest_mib(machine.memory_mib)
        + PROCESS_MIB
        + CPU_MIB * u64::from(machine.cpu.max_count())
        + DISK_MIB * machine.disks.len() as u64
        + QCOW2_MIB * qcow2_layers
        + NIC_MIB * machine.nics.len() as u64
        + translations
}

/// The same for one that runs and got more since it was launched: memory for its guest, and layers of disks by snapshots
/// and by plugging disks in.
pub fn running_limit_mib(machine: &Machine, added_mib: u64, layers: Layers) -> u64 {
    let more = |now: u64, format| now.saturating_sub(launched_layers(machine, format));
    memory_limit_mib(machine)
        + of_guest_mib(added_mib)
        + QCOW2_MIB * more(layers.qcow2, Format::Qcow2)
        + DISK_MIB * more(layers.raw, Format::Raw)
}

/// How many layers a machine's disks have, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    pub qcow2: u64,
    pub raw: u64,
}

fn launched_layers(machine: &Machine, format: Format) -> u64 {
    let layers = machine.disks.iter().flat_map(|disk| &disk.layers);
    layers.filter(|layer| layer.format == format).count() as u64
}

/// So much of a guest's memory, and what the kernel needs to keep it.
pub fn of_guest_mib(mib: u64) -> u64 {
    mib + mib / KERNEL_PART
}

/// How much translated code TCG may keep. Left alone QEMU takes a gigabyte, whatever the
/// guest; a guest smaller than its own translations would be a strange economy.
pub fn translation_cache_mib(machine: &Machine) -> u64 {
    (machine.memory_mib / 4).clamp(64, 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_came_while_it_ran_count_like_those_it_was_launched_with() {
        let machine = Machine::workshop("a".parse().unwrap());
        let launched = memory_limit_mib(&machine);
        let limit = |added_mib, qcow2, raw| running_limit_mib(&machine, added_mib, Layers { qcow2, raw });
        assert_eq!(limit(0, 0, 0), launched);
        assert_eq!(limit(0, 80, 1), launched + 80 * QCOW2_MIB + DISK_MIB);
        assert_eq!(limit(1024, 1, 0), launched + QCOW2_MIB + of_guest_mib(1024));
    }
}
