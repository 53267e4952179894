//! Where on the PCI bus things go. Guests remember: a NIC's name in the guest is made of
//! its place, so a place never depends on devices of another kind.
//!
//! ```text
//!   00:01    screen
//!   00:02-03 ports of the NICs, 8 to a slot     bus numbers follow the ports, in this
//!   00:04-07 ports of the virtio disks          order, so adding disks never renames
//!   00:08    spare ports for hot-plug           a NIC
//!   00:17    memory that comes and goes
//!   00:18    SCSI controller
//!   00:19    channels (guest agent)
//!   00:1a    balloon
//!   00:1b    random numbers
//!   00:1c    USB controller
//!   00:1d    second SATA controller, when the built-in one's six ports are full
//!   00:1e    virtio tablet
//!   00:1f    what q35 itself has there, its SATA controller included
//! ```
//!
//! What is never unplugged sits on the root bus: every port in between costs the firmware
//! and the guest time at boot.

use serde_json::{Value, json};

pub const NIC_PORTS: usize = 16;
pub const DISK_PORTS: usize = 32;
pub const SPARE_PORTS: usize = 8;
/// Six on q35's own controller, six on a second one.
pub const SATA_PORTS: usize = 12;
/// Those of one xHCI controller that we ask for; one is the tablet's.
pub const USB_PORTS: usize = 8;

pub const SCREEN: &str = "0x1";
pub const MEMORY: &str = "0x17";
pub const SCSI: &str = "0x18";
pub const CHANNELS: &str = "0x19";
pub const BALLOON: &str = "0x1a";
pub const RNG: &str = "0x1b";
pub const USB: &str = "0x1c";
pub const SECOND_SATA: &str = "0x1d";
pub const TABLET: &str = "0x1e";

const FIRST_NIC_SLOT: usize = 0x2;
const FIRST_DISK_SLOT: usize = 0x4;
const SPARE_SLOT: usize = 0x8;

/// The port that the `index`th NIC is behind.
pub fn nic_port(index: usize) -> String {
    format!("port-nic-{index}")
}

/// The port that the `index`th virtio disk is behind.
pub fn disk_port(index: usize) -> String {
    format!("port-disk-{index}")
}

/// A port that nothing is behind at start.
pub fn spare_port(index: usize) -> String {
    format!("port-spare-{index}")
}

/// The ports of a machine with so many NICs and virtio disks, spare ones included.
pub fn ports(nics: usize, disks: usize) -> Vec<Value> {
    let nics = (0..nics).map(|index| port(nic_port(index), FIRST_NIC_SLOT, index, 1));
    let disks = (0..disks).map(|index| port(disk_port(index), FIRST_DISK_SLOT, index, 1 + NIC_PORTS));
    let spares =
        (0..SPARE_PORTS).map(|index| port(spare_port(index), SPARE_SLOT, index, 1 + NIC_PORTS + DISK_PORTS));
    nics.chain(disks).chain(spares).collect()
}

fn port(id: String, first_slot: usize, index: usize, first_chassis: usize) -> Value {
    let (slot, function) = (first_slot + index / 8, index % 8);
    let mut port = json!({
        "driver": "pcie-root-port",
        "id": id,
        "bus": "pcie.0",
        "addr": format!("{slot:#x}.{function:#x}"),
        "chassis": first_chassis + index,
    });
    if function == 0 {
        port["multifunction"] = true.into();
    }
    port
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_full_machine_has_every_port_once() {
        let ports = ports(NIC_PORTS, DISK_PORTS);
        for key in ["addr", "chassis", "id"] {
            let distinct: BTreeSet<String> = ports.iter().map(|port| port[key].to_string()).collect();
            assert_eq!(distinct.len(), ports.len(), "{key} repeats");
        }
    }

    #[test]
    fn more_disks_move_no_nic_and_more_nics_move_no_disk() {
        let find = |ports: Vec<Value>, id: &str| ports.into_iter().find(|port| port["id"] == id).unwrap();
        assert_eq!(find(ports(2, 0), "port-nic-1"), find(ports(2, 9), "port-nic-1"));
        assert_eq!(find(ports(0, 3), "port-disk-2"), find(ports(9, 3), "port-disk-2"));
    }
}
