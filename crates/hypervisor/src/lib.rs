//! Runs QEMU. Knows nothing of the Kubernetes API.
//!
//! A [`Machine`] says everything about one virtual machine; [`command_line()`] turns it
//! into QEMU's arguments; a [`Hypervisor`] defines, launches, finds, kills and forgets
//! machines; a [`Monitor`] talks to a running one.
//!
//! # Guarantees
//!
//! - **The caller is not the machine.** QEMU outlives whoever started it. After a
//!   restart [`Hypervisor::found`] tells from the host alone what is there.
//! - **Never two.** A lock is taken before anything is started and is inherited by QEMU
//!   itself, so it is held exactly as long as a process of that machine lives, whoever
//!   was killed in between.
//! - **Only descriptors.** QEMU runs as a user of its own, cannot gain privileges, and is
//!   handed every disk, tap and socket already open. It needs to open nothing of ours,
//!   and nothing it can write to is opened by path by us.
//! - **Nothing is guessed about images.** Formats are stated, backing chains are spelt
//!   out; what an image's header says about other files is never followed.
//!
//! # Deliberately absent
//!
//! Decisions (when to start, stop or give up), the making of disks and networks, and the
//! waiting for a guest to obey: the caller looks, decides and acts.

pub mod capabilities;
pub mod cgroup;
pub mod command_line;
pub mod descriptors;
mod directory;
pub mod firmware;
pub mod guest_agent;
mod handover;
mod hot_plug;
pub mod hypervisor;
mod image_header;
pub mod kvm;
pub mod launcher;
pub mod log;
pub mod machine;
pub mod overhead;
mod probe;
mod process;
pub mod qmp;
pub mod step;
pub mod user_ids;

pub use capabilities::Capabilities;
pub use command_line::command_line;
pub use descriptors::{DescriptorName, Descriptors};
pub use guest_agent::{GuestAgent, GuestAgentError};
pub use hypervisor::{Found, Hypervisor, HypervisorConfig, HypervisorError, Launcher, State};
pub use image_header::{HeaderError, check_descriptor as check_image};
pub use kvm::KvmVerdict;
pub use machine::{Machine, MachineId};
pub use qmp::{Monitor, QmpError};
pub use step::Step;
pub use user_ids::UserIds;
