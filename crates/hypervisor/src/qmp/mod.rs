//! QMP, QEMU's control protocol: a thin client of our own, because descriptors must travel
//! with commands and because the peer is not trusted.
//!
//! [`wire`] is bytes, [`connection`] is one conversation, [`Monitor`] is what one can ask.

pub mod connection;
pub mod layers;
mod monitor;
pub mod numbers;
mod plugged;
pub mod wire;

pub use connection::Connection;
pub use monitor::{AddedMemory, Monitor, RunState};
pub use plugged::{Medium, Plugged, PluggedDisk, PluggedNic};
pub use wire::Event;

use std::{io, time::Duration};

#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    #[error("QEMU would not {command}: {desc} ({class})")]
    Refused { command: String, class: String, desc: String },
    #[error("QEMU did not answer {command} within {patience:?}")]
    Silent { command: String, patience: Duration },
    #[error("the monitor's connection is closed")]
    Closed,
    #[error("the monitor's connection failed")]
    Io(#[source] io::Error),
    #[error("the monitor sent a line without end")]
    LineTooLong,
    #[error("the monitor sent what is not JSON")]
    NotJson(#[source] serde_json::Error),
    #[error("the monitor sent JSON that is no object")]
    NotAnObject,
    #[error("QEMU's answer to {command} was not understood")]
    NotUnderstood {
        command: &'static str,
        #[source]
        source: serde_json::Error,
    },
}
