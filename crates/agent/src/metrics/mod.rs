//! What machines use: numbers for `/metrics` under KubeVirt's names, and an hour of history for graphs.
//!
//! ```text
//!   every 10 s     /proc, taps, QEMU's monitor ---> one sample of each machine
//!                    the sample as it is ---------> `/metrics`
//!                    less the one before ---------> history, as rates
//! ```
//!
//! - One loop for all machines; a machine that does not answer holds up nobody.
//! - What the guest says of its own memory is shown and never trusted.
//! - A machine that stops leaves `/metrics` at once; its history goes when the machine is forgotten.
//!
//! Nothing of this is on disk. The numbers themselves live in the kernel and in QEMU and go on across a
//! restart of the agent; history begins anew.

mod exposition;
mod history;
mod interfaces;
mod process;
mod sample;
mod sampling;

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use sheaf_hypervisor::MachineId;

use self::history::History;
pub use self::{
    sample::{CpuNumbers, GuestMemory, NicNumbers, Sample},
    sampling::{KnownMachines, Sampler, TapOf},
};

/// How often machines are measured, in seconds.
pub const INTERVAL_SECS: u64 = 10;

/// What is known of the machines of one node. Written by a [`Sampler`], read by whoever shows it.
pub struct MachineMetrics {
    node: String,
    book: Mutex<BTreeMap<MachineId, Kept>>,
}

/// Whose a machine is, as its numbers are labelled.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub namespace: String,
    pub name: String,
}

struct Kept {
    owner: Owner,
    /// None of one that does not run.
    sample: Option<Sample>,
    history: History,
}

impl MachineMetrics {
    pub fn new(node: &str) -> MachineMetrics {
        MachineMetrics { node: node.to_owned(), book: Mutex::default() }
    }

    /// Writes the numbers of all running machines in Prometheus' text form.
    pub fn write(&self, text: &mut String) {
        let book = self.book.lock();
        // Should an instance and its successor of the same name be here together, the younger process speaks for both:
        // two lines with the same labels would spoil the whole page.
        let mut running: BTreeMap<&Owner, &Sample> = BTreeMap::new();
        for kept in book.values() {
            let Some(sample) = &kept.sample else { continue };
            let seen = running.entry(&kept.owner).or_insert(sample);
            if sample.process.started_ticks > seen.process.started_ticks {
                *seen = sample;
            }
        }
        exposition::write(text, &self.node, &running);
    }

    /// The last hour of a machine as JSON; none if the machine is not known here.
    pub fn history(&self, id: &MachineId) -> Option<Vec<u8>> {
        self.book.lock().get(id).map(|kept| kept.history.to_json())
    }

    /// For a machine that runs and was not measured before.
    pub fn no_history_yet() -> Vec<u8> {
        History::default().to_json()
    }

    fn enter(&self, id: &MachineId, owner: Owner, at_secs: u64, sample: Sample) {
        let mut book = self.book.lock();
        let kept = book.entry(id.clone()).or_insert_with(|| Kept {
            owner: owner.clone(),
            sample: None,
            history: History::default(),
        });
        kept.owner = owner;
        if let Some(before) = &kept.sample {
            kept.history.push(at_secs, before, &sample);
        }
        kept.sample = Some(sample);
    }

    fn stopped(&self, id: &MachineId) {
        if let Some(kept) = self.book.lock().get_mut(id) {
            kept.sample = None;
        }
    }

    /// Forgets every machine that is not among these.
    fn keep_only(&self, ids: &BTreeSet<MachineId>) {
        self.book.lock().retain(|id, _| ids.contains(id));
    }
}

#[cfg(test)]
mod tests;
