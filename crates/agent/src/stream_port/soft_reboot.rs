//! Reboots a guest by asking it: through its agent, or else by the power button and a start after it.
//!
//! A power button only knows off. A guest without an agent is therefore let power itself off, and is started again in
//! the same process once it has. While that is under way the machine is in [`SoftReboots`], where whoever decides
//! that a machine that powered itself off is over must look first.
//!
//! Nothing survives a crash: a guest that powers itself off after one is off, and its run strategy says what
//! that means.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use sheaf_hypervisor::{Hypervisor, MachineId, guest_agent::Shutdown, qmp::RunState};
use tokio::time::timeout;

use super::{Shared, answer::Refusal};

/// How long a guest may take to power itself off. One that ignored the button goes on as it was.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Machines whose guests were asked to power off in order to be started again.
#[derive(Default)]
pub struct SoftReboots(Mutex<BTreeSet<MachineId>>);

impl SoftReboots {
    pub fn contains(&self, machine: &MachineId) -> bool {
        self.0.lock().contains(machine)
    }
}

/// In the set until dropped.
struct UnderWay {
    reboots: Arc<SoftReboots>,
    machine: MachineId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.reboots.0.lock().remove(&self.machine);
    }
}

impl Shared {
    /// Returns when the guest was asked.
    pub(super) async fn soft_reboot(&self, machine: &MachineId) -> Result<(), Refusal> {
        let monitor = self.hypervisor.tools_monitor(machine).await?;
        if monitor.guest_agent_connected().await? {
            let agent = self.hypervisor.guest_agent(machine)?;
            return Ok(agent.shutdown(Shutdown::Reboot).await?);
        }
        if !self.soft_reboots.0.lock().insert(machine.clone()) {
            // It was asked already, and a button that is pressed twice cuts the power of some guests.
            return Ok(());
        }
        let under_way = UnderWay { reboots: self.soft_reboots.clone(), machine: machine.clone() };
        monitor.power_button().await?;
        // QEMU serves one connection to this monitor at a time, and others have questions meanwhile.
        drop(monitor);
        let (stop, hypervisor) = (self.stop.clone(), self.hypervisor.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                outcome = timeout(PATIENCE, start_when_off(&hypervisor, &under_way.machine)) => match outcome {
                    Ok(Ok(())) => tracing::info!(machine = %under_way.machine, "rebooted"),
                    Ok(Err(why)) => tracing::warn!(machine = %under_way.machine, %why, "a reboot failed"),
                    Err(_) => tracing::warn!(machine = %under_way.machine, "the guest ignored its power button"),
                },
            }
        });
        Ok(())
    }
}

async fn start_when_off(hypervisor: &Hypervisor, machine: &MachineId) -> Result<(), Refusal> {
    loop {
        let monitor = hypervisor.tools_monitor(machine).await?;
        if monitor.status().await? == RunState::Shutdown {
            monitor.execute("system_reset", Value::Null).await?;
            return Ok(monitor.resume().await?);
        }
        drop(monitor);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
