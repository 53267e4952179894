//! When a virtual machine is to run: KubeVirt's run strategies.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When a virtual machine is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum RunStrategy {
    /// Whatever happens.
    Always,
    /// Until it ends well by itself.
    RerunOnFailure,
    /// When somebody says so.
    Manual,
    /// Never.
    Halted,
    /// Once, however it ends.
    Once,
}

impl RunStrategy {
    pub const ALL: [RunStrategy; 5] = [
        RunStrategy::Always,
        RunStrategy::RerunOnFailure,
        RunStrategy::Manual,
        RunStrategy::Halted,
        RunStrategy::Once,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            RunStrategy::Always => "Always",
            RunStrategy::RerunOnFailure => "RerunOnFailure",
            RunStrategy::Manual => "Manual",
            RunStrategy::Halted => "Halted",
            RunStrategy::Once => "Once",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.as_str() == text)
    }

    /// Whether a machine that failed to come up is tried again by itself.
    pub fn tries_again(self) -> bool {
        match self {
            RunStrategy::Always | RunStrategy::RerunOnFailure | RunStrategy::Once => true,
            RunStrategy::Manual | RunStrategy::Halted => false,
        }
    }
}

impl fmt::Display for RunStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
