//! The guests that tests boot, built once per machine by the scripts of the same names and kept in the cache.
//!
//! A host that cannot build one says so, loudly, and the test that asked is left out: `None`. With
//! `SHEAF_REQUIRE_GUESTS` set that is a failure instead, for where leaving out is not an option.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// A kernel and an initramfs that say on the serial console what hardware they found, within seconds even under
/// emulation. It knows virtio alone.
#[derive(Debug, Clone)]
pub struct TinyGuest {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    /// A raw disk with both, that boots by BIOS. It is shared: put a layer over it.
    pub disk: PathBuf,
}

pub fn tiny() -> Option<TinyGuest> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY.get_or_init(|| build("build-tiny-guest")).as_deref().map(TinyGuest::in_directory)
}

/// The same with SATA, USB and the network cards of old; it takes twice as long to boot.
pub fn with_every_bus() -> Option<TinyGuest> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY.get_or_init(|| build("build-bus-guest")).as_deref().map(TinyGuest::in_directory)
}

impl TinyGuest {
    fn in_directory(directory: &Path) -> TinyGuest {
        TinyGuest {
            kernel: directory.join("vmlinuz"),
            initramfs: directory.join("initramfs"),
            disk: directory.join("disk.raw"),
        }
    }
}

/// A qcow2 image of a whole Debian with cloud-init, the guest agent and SSH, that boots by BIOS and UEFI. It is shared
/// with every other test: copy it, or put a layer over it.
pub fn debian() -> Option<PathBuf> {
    static IMAGE: OnceLock<Option<PathBuf>> = OnceLock::new();
    IMAGE.get_or_init(|| build("build-debian-guest")).clone()
}

/// What the script says it built.
fn build(script: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts")).join(script);
    let output = Command::new(path).output().unwrap_or_else(|why| panic!("cannot run {script}: {why}"));
    if output.status.success() {
        return Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(env::var_os("SHEAF_REQUIRE_GUESTS").is_none(), "{script} built no guest: {why}");
    eprintln!("\n##  SKIPPED: {script} built no guest, so what boots it is NOT TESTED\n##  {}\n", why.trim());
    None
}
