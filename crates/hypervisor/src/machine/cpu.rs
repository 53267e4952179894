//! The processors of a machine.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cpu {
    /// A name QEMU knows, including its own `host` (KVM only) and `max`.
    pub model: String,
    #[serde(default)]
    pub features: Vec<CpuFeature>,
    pub sockets: u32,
    pub cores: u32,
    pub threads: u32,
    /// How many sockets could be filled while the guest runs; at least `sockets`.
    pub max_sockets: u32,
    /// The most that the machine may use, in thousandths of a processor; none but its processors' number if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_milli: Option<u32>,
    /// What the machine is to have when processors are short, in thousandths of one; all of its own if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_milli: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CpuFeature {
    pub name: String,
    pub enabled: bool,
}

impl Cpu {
    /// Virtual processors at start.
    pub fn count(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }

    /// What it weighs against other machines when processors are short, in thousandths of one.
    pub fn weight_milli(&self) -> u32 {
        self.request_milli.unwrap_or_else(|| self.count().saturating_mul(1000))
    }

    /// Virtual processors with every socket filled.
    pub fn max_count(&self) -> u32 {
        self.max_sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }
}
