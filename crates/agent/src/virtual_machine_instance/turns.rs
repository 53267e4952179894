//! One at a time per machine: its keeper, and whoever else does something to it while it runs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use sheaf_hypervisor::MachineId;
use tokio::sync::OwnedMutexGuard;

/// Who takes several takes them in the order of their ids.
#[derive(Debug, Default)]
pub struct MachineTurns(Mutex<BTreeMap<MachineId, Weak<tokio::sync::Mutex<()>>>>);

impl MachineTurns {
    /// Waits for the machine's turn, which is given back when dropped.
    pub async fn take(&self, id: &MachineId) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| turn.strong_count() > 0);
            let known = turns.get(id).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let turn = Arc::default();
                turns.insert(id.clone(), Arc::downgrade(&turn));
                turn
            })
        };
        turn.lock_owned().await
    }
}
