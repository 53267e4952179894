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

use serde_json::{Value, json};

use crate::{
    descriptors::{DescriptorName, Numbers},
    machine::{Aio, Cache, Disk, Format, Layer, LayerStorage},
};

/// The node that the `layer`th layer of a disk is, counted from the bottom.
pub fn node_name(disk: &Disk, layer: usize) -> String {
    format!("disk-{}-{layer}", disk.name)
}

/// The node that the guest's device is connected to.
pub fn top_node(disk: &Disk) -> Option<String> {
    disk.layers.len().checked_sub(1).map(|top| node_name(disk, top))
}

/// A disk's nodes in the order in which QEMU can make them.
pub fn nodes(disk: &Disk, numbers: &Numbers) -> Vec<Value> {
    let mut nodes = Vec::new();
    let mut below = Value::Null;
    for (index, layer) in disk.layers.iter().enumerate() {
        let name = node_name(disk, index);
        let file = format!("{name}-file");
        let descriptor = DescriptorName::Layer { disk: disk.name.clone(), layer: index };
        nodes.push(file_node(&file, disk, layer, numbers.of(&descriptor)));
        nodes.push(format_node(&name, disk, layer, &file, &below));
        below = name.into();
    }
    nodes
}

fn file_node(name: &str, disk: &Disk, layer: &Layer, set: u32) -> Value {
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

fn format_node(name: &str, disk: &Disk, layer: &Layer, file: &str, below: &Value) -> Value {
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
