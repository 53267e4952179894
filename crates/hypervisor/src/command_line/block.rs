//! The block graph: for every layer of a disk a node for its file and a node for its
//! format, each naming the one below it.
//!
//! ```text
//!   disk-root-1       qcow2, what the guest writes to
//!     |    \ backing
//!     |     disk-root-0       raw, read-only
//!     |       |
//!     |     disk-root-0-file  /dev/fdset/12
//!   disk-root-1-file  /dev/fdset/13
//! ```
//!
//! `backing` is always said, `null` included: left out, QEMU would follow the string in
//! the image's header, which may be anything.
//!
//! QEMU cuts nobody's name short but refuses what is longer than 31 bytes, and clients call disks by the whole name of
//! a claim. A disk's name that leaves no room for a layer's number stands for itself as a number made of it.

use serde_json::{Value, json};

use crate::machine::{Aio, Cache, DeviceName, Disk, Format, Layer, LayerStorage};

/// What the name of a layer's second node ends with.
const SECOND: char = 'b';
/// What `disk-`, the number of a layer and `-file` leave of 31 bytes.
const LONGEST_NAME: usize = 14;

/// The node that the `layer`th layer of a disk is, counted from the bottom.
pub fn node_name(disk: &Disk, layer: usize) -> String {
    let number = disk.layers.get(layer).and_then(|layer| layer.number);
    format!("{}{}", prefix(&disk.name), number.map_or(layer as u64, u64::from))
}

/// The node that a layer is which has a number of its own.
pub fn numbered_node_name(disk: &DeviceName, number: u32) -> String {
    format!("{}{number}", prefix(disk))
}

/// The same for a second node of that layer, which QEMU has while it goes over from one to the other.
pub fn second_node_name(disk: &DeviceName, number: u32) -> String {
    format!("{}{SECOND}", numbered_node_name(disk, number))
}

/// The number of the layer that a node of this disk is, and whether it is its file; none for other disks' nodes.
pub fn layer_of_node(disk: &DeviceName, node: &str) -> Option<(u32, bool)> {
    let rest = node.strip_prefix(&prefix(disk))?;
    let (number, is_file) = match rest.strip_suffix("-file") {
        Some(number) => (number, true),
        None => (rest, false),
    };
    let number = number.strip_suffix(SECOND).unwrap_or(number);
    let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).map(|number| (number, is_file))
}

/// What the names of all nodes of a disk begin with.
fn prefix(disk: &DeviceName) -> String {
    let name = disk.as_str();
    match name.len() {
        ..=LONGEST_NAME => format!("disk-{name}-"),
        // No name has a dot in it, so this is nobody else's.
        _ => format!("disk-.{:013x}-", fnv_1a(name.as_bytes()) >> 12),
    }
}

fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The node that the guest's device is connected to.
pub fn top_node(disk: &Disk) -> Option<String> {
    disk.layers.len().checked_sub(1).map(|top| node_name(disk, top))
}

/// A disk's nodes in the order in which QEMU can make them. `set_of` says which set of descriptors a layer is in, counted
/// from the bottom.
pub fn nodes(disk: &Disk, set_of: impl Fn(usize) -> u64) -> Vec<Value> {
    let mut nodes = Vec::new();
    let mut below = Value::Null;
    for (index, layer) in disk.layers.iter().enumerate() {
        let name = node_name(disk, index);
        let file = format!("{name}-file");
        nodes.push(file_node(&file, disk, layer, set_of(index)));
        nodes.push(format_node(&name, disk, layer, &file, &below));
        below = name.into();
    }
    nodes
}

/// The node of a layer's file.
pub fn file_node(name: &str, disk: &Disk, layer: &Layer, set: u64) -> Value {
    json!({
        "driver": match layer.storage {
            LayerStorage::File => "file",
            LayerStorage::BlockDevice => "host_device",
        },
        "node-name": name,
        "filename": format!("/dev/fdset/{set}"),
        "read-only": layer.read_only,
        "discard": "unmap",
        "cache": cache(disk),
        "aio": match disk.aio {
            Aio::Threads => "threads",
            Aio::Native => "native",
            Aio::IoUring => "io_uring",
        },
    })
}

/// The node of a layer's format, on the node of its file and that of the layer below.
pub fn format_node(name: &str, disk: &Disk, layer: &Layer, file: &str, below: &Value) -> Value {
    let mut node = json!({
        "driver": match layer.format {
            Format::Raw => "raw",
            Format::Qcow2 => "qcow2",
        },
        "node-name": name,
        "read-only": layer.read_only,
        "discard": "unmap",
        "cache": cache(disk),
        "file": file,
    });
    if layer.format == Format::Qcow2 {
        node["backing"] = below.clone();
    }
    node
}

fn cache(disk: &Disk) -> Value {
    json!({ "direct": disk.cache == Cache::None, "no-flush": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_longer_than_qemu_takes_and_no_two_disks_share_one() {
        let claim: DeviceName = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f".parse().unwrap();
        let other: DeviceName = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e60".parse().unwrap();
        let name = numbered_node_name(&claim, 99_999);
        assert!(name.len() + "-file".len() <= 31, "{name}");
        assert_ne!(name, numbered_node_name(&other, 99_999));
        assert_eq!(numbered_node_name(&"root".parse().unwrap(), 3), "disk-root-3");
    }

    #[test]
    fn a_node_is_known_as_its_own_disks_and_as_no_others() {
        let name = |text: &str| text.parse::<DeviceName>().unwrap();
        assert_eq!(layer_of_node(&name("a"), "disk-a-12"), Some((12, false)));
        assert_eq!(layer_of_node(&name("a"), "disk-a-12-file"), Some((12, true)));
        for other in ["disk-a-b-1", "disk-a-1-2", "disk-a-", "disk-a-+1", "disk-ab-1", "disk-a-1-file-file"] {
            assert_eq!(layer_of_node(&name("a"), other), None, "{other}");
        }
        assert_eq!(layer_of_node(&name("a-1"), "disk-a-1-2"), Some((2, false)));
    }
}
