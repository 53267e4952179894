//! The disks of a machine, and the layers of files each is made of.

use serde::{Deserialize, Serialize};

use super::DeviceName;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    pub name: DeviceName,
    pub bus: Bus,
    pub kind: DiskKind,
    /// From the bottom up: the last one is what the guest writes to. Empty only for a
    /// CD-ROM drive with no disc in it.
    pub layers: Vec<Layer>,
    /// Lower boots earlier; without one it is not booted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_index: Option<u32>,
    /// At most 20 bytes on virtio, 36 on SCSI and SATA: QEMU's limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// What SCSI says in its page 0x83, and thus `/dev/disk/by-id` in the guest. Long enough
    /// for the name of a claim, which a serial number is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_id: Option<String>,
    pub cache: Cache,
    pub aio: Aio,
    /// Whose bytes these are, in the caller's words: told again when QEMU is asked what is plugged in. Nothing else hangs
    /// on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Serve it from a thread of its own. Means something on virtio and SCSI; all SCSI
    /// disks share one controller and so one thread.
    pub io_thread: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Bus {
    Virtio,
    Scsi,
    Sata,
    Usb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DiskKind {
    Disk,
    Cdrom,
}

/// One file of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Layer {
    /// Which layer of its volume it is, where volumes number theirs: a number that no other layer of the volume ever had.
    /// Its place in the list changes when a layer below it goes; what QEMU calls it must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    pub format: Format,
    pub storage: LayerStorage,
    pub read_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Format {
    Raw,
    Qcow2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LayerStorage {
    File,
    BlockDevice,
}

/// Whether the host's page cache is in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cache {
    /// Through the page cache; a guest's flush still reaches the disk.
    WriteBack,
    /// Through the page cache, and the guest is told that there is none: every write is
    /// flushed before it is answered.
    WriteThrough,
    /// Past it (`O_DIRECT`). What shared storage needs.
    None,
}

/// How QEMU hands requests to the kernel. [`crate::Capabilities::best_aio`] chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Aio {
    Threads,
    /// Only with [`Cache::None`].
    Native,
    IoUring,
}
