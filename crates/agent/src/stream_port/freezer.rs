//! Freezes and thaws the file systems of guests, and thaws by itself what nobody thaws.
//!
//! A frozen guest stands still at its next write, so nobody may forget one: every freeze carries its own end.
//! What a crash loses is that end; the guest then waits until somebody thaws it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use sheaf_hypervisor::{Hypervisor, MachineId};
use tokio_util::sync::CancellationToken;

use super::{
    Shared,
    answer::{Refusal, chain},
};

/// For each frozen guest, what takes back its thaw.
#[derive(Default)]
pub struct Freezer(Mutex<BTreeMap<MachineId, CancellationToken>>);

impl Freezer {
    /// Forgets the thaw that was due, if one was.
    fn take_back(&self, machine: &MachineId) {
        if let Some(due) = self.0.lock().remove(machine) {
            due.cancel();
        }
    }
}

impl Shared {
    pub(super) async fn freeze(
        self: &Arc<Self>,
        machine: &MachineId,
        thaw_after: Duration,
    ) -> Result<(), Refusal> {
        self.hypervisor.guest_agent(machine)?.freeze().await?;
        let taken_back = CancellationToken::new();
        self.freezer.take_back(machine);
        self.freezer.0.lock().insert(machine.clone(), taken_back.clone());
        let (shared, machine) = (self.clone(), machine.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = taken_back.cancelled() => return,
                // Told to stop: better thawed early than left frozen by whoever comes next.
                () = shared.stop.cancelled() => {}
                () = tokio::time::sleep(thaw_after) => {}
            }
            match thaw(&shared.hypervisor, &machine).await {
                Ok(()) => tracing::info!(%machine, "thawed a guest that nobody had thawed"),
                Err(why) => tracing::warn!(%machine, %why, "a guest could not be thawed"),
            }
            shared.freezer.take_back(&machine);
        });
        Ok(())
    }

    pub(super) async fn unfreeze(&self, machine: &MachineId) -> Result<(), Refusal> {
        thaw(&self.hypervisor, machine).await?;
        self.freezer.take_back(machine);
        Ok(())
    }
}

async fn thaw(hypervisor: &Hypervisor, machine: &MachineId) -> Result<(), Refusal> {
    let agent = hypervisor.guest_agent(machine)?;
    agent.thaw().await.map(drop).map_err(|why| Refusal::Failed(chain(&why)))
}
