//! What the installed QEMU can do on this host, found out by asking it.

use std::{io, os::fd::AsFd, path::Path};

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    machine::{Aio, Cache},
    probe::{Probe, ProbeError},
    qmp::QmpError,
    user_ids::Identity,
};

/// The oldest QEMU that understands our command lines.
pub const OLDEST: Version = Version { major: 7, minor: 2, micro: 0 };

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    pub version: Version,
    /// Versioned q35 machine types, such as `pc-q35-7.2`, without deprecated ones.
    pub machine_types: Vec<String>,
    /// What `q35` means to this QEMU.
    pub default_machine_type: String,
    pub cpu_models: Vec<String>,
    /// Whether io_uring works for a machine's QEMU here: compiled in, and let by the kernel.
    pub io_uring: bool,
    pub native_aio: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub micro: u32,
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CapabilitiesError {
    #[error("cannot ask QEMU what it can do")]
    Probe(#[from] ProbeError),
    #[error("cannot ask QEMU what it can do")]
    Ask(#[from] QmpError),
    #[error("QEMU's answer about its {what} was not understood")]
    NotUnderstood {
        what: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("QEMU is version {found}; {OLDEST} is the oldest that will do")]
    TooOld { found: Version },
    #[error("QEMU has no machine type q35")]
    NoQ35,
    #[error("cannot make a file in memory to try I/O on")]
    Memory(#[source] io::Error),
}

impl Capabilities {
    /// Starts a QEMU without a machine and asks it. Takes a fraction of a second.
    pub async fn ask(qemu: &Path, identity: Option<Identity>) -> Result<Capabilities, CapabilitiesError> {
        let probe = Probe::start(qemu, identity, &["-machine", "none", "-S"]).await?;
        let monitor = &probe.monitor;
        let version = version(monitor.execute("query-version", Value::Null).await?)?;
        if version < OLDEST {
            return Err(CapabilitiesError::TooOld { found: version });
        }
        let (machine_types, default_machine_type) =
            machine_types(monitor.execute("query-machines", Value::Null).await?)?;
        let cpu_models = cpu_models(monitor.execute("query-cpu-definitions", Value::Null).await?)?;
        Ok(Capabilities {
            version,
            machine_types,
            default_machine_type,
            cpu_models,
            io_uring: aio_works(&probe, "io_uring").await?,
            // Needs no trying: it has been in every kernel and every QEMU for a decade.
            native_aio: true,
        })
    }

    /// `q35` as the versioned type to be stored with a machine; a versioned one as it is.
    pub fn machine_type(&self, asked: &str) -> Option<&str> {
        match asked {
            "q35" | "" => Some(&self.default_machine_type),
            other => self.machine_types.iter().find(|known| *known == other).map(String::as_str),
        }
    }

    /// The fastest way of doing I/O that works with this cache.
    pub fn best_aio(&self, cache: Cache) -> Aio {
        match cache {
            _ if self.io_uring => Aio::IoUring,
            Cache::None if self.native_aio => Aio::Native,
            Cache::None | Cache::WriteBack | Cache::WriteThrough => Aio::Threads,
        }
    }
}

fn version(answer: Value) -> Result<Version, CapabilitiesError> {
    serde_json::from_value(answer["qemu"].clone())
        .map_err(|source| CapabilitiesError::NotUnderstood { what: "version", source })
}

fn machine_types(answer: Value) -> Result<(Vec<String>, String), CapabilitiesError> {
    #[derive(Deserialize)]
    struct MachineType {
        name: String,
        alias: Option<String>,
        #[serde(default)]
        deprecated: bool,
    }
    let types: Vec<MachineType> = serde_json::from_value(answer)
        .map_err(|source| CapabilitiesError::NotUnderstood { what: "machine types", source })?;
    let default = types.iter().find(|known| known.alias.as_deref() == Some("q35"));
    let default = default.ok_or(CapabilitiesError::NoQ35)?.name.clone();
    let mut names: Vec<String> = types
        .into_iter()
        .filter(|known| known.name.starts_with("pc-q35-") && !known.deprecated)
        .map(|known| known.name)
        .collect();
    names.sort();
    Ok((names, default))
}

fn cpu_models(answer: Value) -> Result<Vec<String>, CapabilitiesError> {
    #[derive(Deserialize)]
    struct CpuModel {
        name: String,
    }
    let models: Vec<CpuModel> = serde_json::from_value(answer)
        .map_err(|source| CapabilitiesError::NotUnderstood { what: "CPU models", source })?;
    let mut names: Vec<String> = models.into_iter().map(|model| model.name).collect();
    names.sort();
    Ok(names)
}

/// Really opens something that way, in the sandbox.
async fn aio_works(probe: &Probe, aio: &str) -> Result<bool, CapabilitiesError> {
    let file = rustix::fs::memfd_create("aio", MemfdFlags::CLOEXEC)
        .map_err(|why| CapabilitiesError::Memory(why.into()))?;
    rustix::fs::ftruncate(&file, 1 << 20).map_err(|why| CapabilitiesError::Memory(why.into()))?;
    let set = probe.monitor.add_descriptor(file.as_fd()).await?;
    let filename = format!("/dev/fdset/{set}");
    let node = json!({ "driver": "file", "node-name": "aio", "filename": filename, "aio": aio });
    match probe.monitor.add_block_node(node).await {
        Ok(()) => Ok(true),
        Err(QmpError::Refused { .. }) => Ok(false),
        Err(why) => Err(why.into()),
    }
}
