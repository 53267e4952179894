//! What is plugged into a running machine, as QEMU itself tells it: devices, the block nodes behind them, the descriptors it
//! holds for those. Whoever plugs something in and is killed in between finds here how far they came.
//!
//! A disk is known by the id of its device and by what QEMU was told about its descriptors. Descriptors are the first that
//! it is given of a disk and the last that is taken from it, so nothing of a disk is without a name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{command_line::block, descriptors, machine::DeviceName};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugged {
    pub disks: BTreeMap<DeviceName, PluggedDisk>,
    pub nics: BTreeMap<DeviceName, PluggedNic>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluggedDisk {
    /// The driver of its device, such as `scsi-hd`; none while there is no device.
    pub driver: Option<String>,
    /// What is in the device. Always something, but for a CD-ROM drive.
    pub medium: Option<Medium>,
    /// Of a drive with a tray.
    pub tray_is_open: bool,
    /// In the order in which they can be removed.
    pub nodes: Vec<String>,
    /// The sets of descriptors that are of this disk. While a machine is paused QEMU keeps those that were taken back.
    pub sets: Vec<u64>,
    /// What was said to be its source.
    pub source: Option<String>,
}

/// What a device reads and writes now. Another node than the one it began with, once layers were put on top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Medium {
    pub node: String,
    pub bytes: u64,
    pub read_only: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluggedNic {
    /// The guest's end is there.
    pub device: bool,
    /// The host's end is.
    pub backend: bool,
}

/// QEMU's answers to what [`super::Monitor::plugged`] asks.
pub(super) struct Answers {
    /// `qom-list /machine/peripheral`
    pub devices: Value,
    /// `query-block`
    pub block: Value,
    /// `query-named-block-nodes`
    pub nodes: Value,
    /// `query-fdsets`
    pub sets: Value,
    /// `info network`, for people.
    pub network: String,
}

impl Plugged {
    pub(super) fn read(answers: &Answers) -> Plugged {
        let mut plugged = Plugged::default();
        for device in list(&answers.devices) {
            let id = text(&device["name"]);
            let driver = text(&device["type"]).strip_prefix("child<").and_then(|kind| kind.strip_suffix('>'));
            if let Some(name) = named(id, "disk-") {
                plugged.disks.entry(name).or_default().driver = driver.map(str::to_owned);
            } else if let Some(name) = named(id, "nic-") {
                plugged.nics.entry(name).or_default().device = true;
            }
        }
        // The bridge between USB and a CD-ROM drive is no disk.
        plugged.disks.retain(|_, disk| disk.driver.as_deref() != Some("usb-bot"));
        let opened: BTreeSet<&str> = list(&answers.nodes).iter().map(|node| text(&node["file"])).collect();
        for set in list(&answers.sets) {
            let told =
                list(&set["fds"]).iter().find_map(|held| descriptors::read_told(text(&held["opaque"])));
            let (Some((disk, source)), Some(number)) = (told, set["fdset-id"].as_u64()) else { continue };
            let disk = plugged.disks.entry(disk).or_default();
            disk.sets.push(number);
            // One that nothing was opened from may be of a disk that was here before.
            if disk.source.is_none() || opened.contains(format!("/dev/fdset/{number}").as_str()) {
                disk.source = source.map(str::to_owned);
            }
        }
        for drive in list(&answers.block) {
            // Either the id itself or a path in QEMU's object tree that holds it.
            let id = text(&drive["qdev"]).split('/').find_map(|part| named(part, "disk-"));
            let Some(disk) = id.and_then(|id| plugged.disks.get_mut(&id)) else { continue };
            disk.tray_is_open = drive["tray_open"] == true;
            disk.medium = drive["inserted"].is_object().then(|| Medium {
                node: text(&drive["inserted"]["node-name"]).to_owned(),
                bytes: drive["inserted"]["image"]["virtual-size"].as_u64().unwrap_or(0),
                read_only: drive["inserted"]["ro"] == true,
            });
        }
        for (name, disk) in &mut plugged.disks {
            let nodes = list(&answers.nodes).iter().map(|node| text(&node["node-name"]));
            let mut own: Vec<_> =
                nodes.filter_map(|node| Some((block::layer_of_node(name, node)?, node))).collect();
            // From the top down, and each before its file.
            own.sort_by_key(|((layer, is_file), _)| (std::cmp::Reverse(*layer), *is_file));
            disk.nodes = own.into_iter().map(|(_, node)| node.to_owned()).collect();
        }
        for line in answers.network.lines() {
            let id = line.trim_start_matches([' ', '\\']).split(':').next().unwrap_or_default();
            if let Some(name) = named(id, "net-") {
                plugged.nics.entry(name).or_default().backend = true;
            }
        }
        plugged
    }
}

fn named(id: &str, prefix: &str) -> Option<DeviceName> {
    id.strip_prefix(prefix)?.parse().ok()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers() -> Answers {
        Answers {
            devices: json!([
                {"name": "type", "type": "string"}, {"name": "scsi", "type": "child<virtio-scsi-pci>"},
                {"name": "disk-data", "type": "child<scsi-hd>"}, {"name": "disk-root", "type": "child<virtio-blk-pci>"},
                {"name": "disk-disc", "type": "child<ide-cd>"}, {"name": "nic-default", "type": "child<virtio-net-pci>"},
            ]),
            block: json!([
                {"qdev": "disk-data", "device": "", "removable": false,
                    "inserted": {"node-name": "disk-data-2", "image": {"virtual-size": 4096}}},
                {"qdev": "/machine/peripheral/disk-root/virtio-backend",
                    "inserted": {"node-name": "disk-root-0", "image": {"virtual-size": 8192}}},
                {"qdev": "disk-disc", "removable": true, "tray_open": true},
            ]),
            nodes: json!([
                {"node-name": "disk-data-0-file"}, {"node-name": "disk-data-0"}, {"node-name": "disk-data-2-file"},
                {"node-name": "disk-data-2"}, {"node-name": "disk-root-0"}, {"node-name": "disk-root-0-file"},
                {"node-name": "firmware-code"}, {"node-name": "disk-half-0-file"},
            ]),
            sets: json!([
                {"fdset-id": 7, "fds": [{"fd": 7, "opaque": "disk-data-0@one"}]},
                {"fdset-id": 12, "fds": [{"fd": 20, "opaque": "disk-half-0@two"}]},
                {"fdset-id": 3, "fds": [{"fd": 3, "opaque": "firmware-code"}]},
                {"fdset-id": 4, "fds": [{"fd": 4}]},
            ]),
            network: "nic-default: index=0,type=nic,model=virtio-net-pci\r\n \\ net-default: index=0,type=tap,fd=9\r\n\
                      net-late: index=0,type=tap,fd=10\r\n"
                .into(),
        }
    }

    #[test]
    fn a_disk_is_found_with_all_that_is_held_for_it_in_the_order_in_which_it_goes() {
        let plugged = Plugged::read(&answers());
        let data = &plugged.disks[&"data".parse().unwrap()];
        assert_eq!(data.nodes, ["disk-data-2", "disk-data-2-file", "disk-data-0", "disk-data-0-file"]);
        assert_eq!(data.medium, Some(Medium { node: "disk-data-2".into(), bytes: 4096, read_only: false }));
        assert_eq!((data.sets.as_slice(), data.source.as_deref()), ([7].as_slice(), Some("one")));
        let root = &plugged.disks[&"root".parse().unwrap()];
        assert_eq!(root.driver.as_deref(), Some("virtio-blk-pci"));
        assert_eq!(root.medium.as_ref().unwrap().bytes, 8192);
    }

    #[test]
    fn what_was_plugged_in_half_way_is_found_without_a_device() {
        let plugged = Plugged::read(&answers());
        let half = &plugged.disks[&"half".parse().unwrap()];
        assert_eq!((half.driver.as_ref(), half.sets.as_slice()), (None, [12].as_slice()));
        assert_eq!(half.nodes, ["disk-half-0-file"]);
        let late = &plugged.nics[&"late".parse().unwrap()];
        assert_eq!(*late, PluggedNic { device: false, backend: true });
        assert_eq!(plugged.nics[&"default".parse().unwrap()], PluggedNic { device: true, backend: true });
    }

    #[test]
    fn the_source_of_a_disk_is_that_of_what_it_has_open() {
        let mut answers = answers();
        answers.nodes[0]["file"] = json!("/dev/fdset/9");
        answers.sets = json!([
            {"fdset-id": 7, "fds": [{"fd": 7, "opaque": "disk-data-0@before"}]},
            {"fdset-id": 9, "fds": [{"fd": 9, "opaque": "disk-data-0@now"}]},
            {"fdset-id": 11, "fds": [{"fd": 11, "opaque": "disk-data-0@after"}]},
        ]);
        let data = &Plugged::read(&answers).disks[&"data".parse().unwrap()];
        assert_eq!((data.source.as_deref(), data.sets.len()), (Some("now"), 3));
    }

    #[test]
    fn an_empty_drive_is_a_drive() {
        let plugged = Plugged::read(&answers());
        let disc = &plugged.disks[&"disc".parse().unwrap()];
        assert_eq!((disc.driver.as_deref(), disc.tray_is_open, &disc.medium), (Some("ide-cd"), true, &None));
    }
}
