//! Takes snapshots of several volumes at one instant, whether a machine writes to them or not.
//!
//! ```text
//!   begin each (an empty layer on top) -> freeze the guest -> switch all disks at once -> thaw -> finish each
//! ```
//!
//! Killed anywhere in between, the next attempt finds from the storage and from QEMU how far this one came. Once any of them is
//! finished all were switched, and the others that were begun are of the same instant as soon as they are finished,
//! whatever was done to them since. The same holds where none is, and the machine has every disk on just the layer that was
//! begun. In any other case all are begun again: some may not have been begun at all, and the machine may have been started
//! again on those that were.
//!
//! That a guest may be frozen stands in its machine's note from before it is until after it was thawed, and its keeper thaws
//! whom nobody is busy with.

use std::{collections::BTreeMap, os::fd::AsFd, time::Duration};

use sheaf_hypervisor::{
    Machine, MachineId, Monitor, QmpError, State,
    command_line::numbered_node_name,
    machine::DeviceName,
    qmp::{Plugged, PluggedDisk, layers::Switch},
};
use sheaf_storage::{Backend, Begun, OpenLayer, Snapshot, SnapshotId, VolumeId};
use tokio::time::timeout;

use crate::{
    step::Step,
    virtual_machine_instance::{Hands, Note, Trouble, with_causes},
    volume_layers::described,
};

/// How long a guest may take to freeze: its file systems write out what they hold.
const FREEZE_PATIENCE: Duration = Duration::from_secs(20);
const THAW_PATIENCE: Duration = Duration::from_secs(10);

/// One snapshot of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub volume: VolumeId,
    pub snapshot: SnapshotId,
}

/// Several of them, of one instant.
#[derive(Debug)]
pub struct Taken {
    /// In the order in which they were asked for.
    pub snapshots: Vec<Snapshot>,
    /// Whether the guest's file systems had written out what they held.
    pub frozen: bool,
}

/// A machine that has some of the volumes open.
struct Writer {
    id: MachineId,
    machine: Machine,
    note: Note,
    monitor: Monitor,
    /// What it has: that does not change while it is its turn, but by what is done here.
    plugged: Plugged,
}

impl Hands {
    /// Takes all of these, of one instant for each machine. `freeze` lets a guest with an agent write out what its file
    /// systems hold before.
    pub(crate) async fn take_snapshots(&self, wanted: &[Wanted], freeze: bool) -> Result<Taken, Trouble> {
        let users = self.machines_with(wanted)?;
        let mut turns = Vec::new();
        for id in users.keys() {
            turns.push(self.turns.take(id).await);
        }
        let mut frozen = false;
        let new = self.without_instant(wanted).await?;
        let mut writers = Vec::new();
        if !new.is_empty() {
            for id in users.keys() {
                writers.extend(self.writer(id).await?);
            }
        }
        if !new.is_empty() && !self.all_are_switched(&writers, &new).await? {
            for writer in &writers {
                self.remove_unused(writer, &new).await?;
            }
            let layers = self.begin_all(&new).await?;
            // Whoever came meanwhile may have opened a volume before it was begun.
            if self.machines_with(&new)?.keys().any(|id| !users.contains_key(id)) {
                return Err(Trouble::Waiting("waiting for a machine that is just being started".into()));
            }
            for writer in &writers {
                frozen |= self.switch(writer, &layers, freeze).await?;
            }
        }
        let mut snapshots = Vec::new();
        for one in wanted {
            snapshots.push(self.storage.finish_snapshot(&one.volume, &one.snapshot).await?);
        }
        // Layers of earlier attempts that nobody needs.
        self.layers_changed.notify_one();
        Ok(Taken { snapshots, frozen })
    }

    /// Those of which it is not certain that they had their instant. Where some of them are taken, the others had it that were
    /// begun with them.
    async fn without_instant(&self, wanted: &[Wanted]) -> Result<Vec<Wanted>, Trouble> {
        let (mut not_taken, mut not_begun) = (Vec::new(), Vec::new());
        for one in wanted {
            if self.storage.snapshot(&one.snapshot).await?.is_some() {
                continue;
            }
            if self.storage.begun_layer(&one.volume, &one.snapshot).await?.is_none() {
                not_begun.push(one.clone());
            }
            not_taken.push(one.clone());
        }
        Ok(if not_taken.len() < wanted.len() { not_begun } else { not_taken })
    }

    /// Whether machines have all of these on just the layers that were begun. They came there all at once, by a switch that
    /// nobody lived to tell of, or when the machine was started.
    async fn all_are_switched(&self, writers: &[Writer], wanted: &[Wanted]) -> Result<bool, Trouble> {
        for one in wanted {
            let Some(layer) = self.storage.begun_layer(&one.volume, &one.snapshot).await? else {
                return Ok(false);
            };
            let is_on_it = |(name, there): (&DeviceName, &PluggedDisk)| {
                let writes_to = there.medium.as_ref().filter(|medium| !medium.read_only);
                there.source.as_deref() == Some(one.volume.as_str())
                    && writes_to.is_some_and(|medium| medium.node == numbered_node_name(name, layer))
            };
            if !writers.iter().flat_map(|writer| &writer.plugged.disks).any(is_on_it) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The layers that are to be written to from the instant on.
    async fn begin_all<'a>(
        &self,
        wanted: &'a [Wanted],
    ) -> Result<BTreeMap<&'a VolumeId, OpenLayer>, Trouble> {
        let mut layers = BTreeMap::new();
        for one in wanted {
            match self.storage.begin_snapshot(&one.volume, &one.snapshot).await? {
                Begun::Switch(layer) => drop(layers.insert(&one.volume, layer)),
                Begun::Already(_) => {}
                Begun::HoldStill => {
                    let what = format!("the storage of volume {}", one.volume);
                    return Err(Trouble::Odd {
                        what,
                        why: "it cannot be switched while it is written to".into(),
                    });
                }
            }
        }
        Ok(layers)
    }

    /// The machines of this host that have any of these volumes, in the order of their ids.
    fn machines_with(&self, wanted: &[Wanted]) -> Result<BTreeMap<MachineId, Note>, Trouble> {
        let mut found = BTreeMap::new();
        for id in self.notes.all()? {
            let Some(note) = self.notes.read(&id)? else { continue };
            let has = |one: &Wanted| note.volumes.iter().any(|noted| noted.volume == one.volume.as_str());
            if wanted.iter().any(has) {
                found.insert(id, note);
            }
        }
        Ok(found)
    }

    /// None for a machine that does not run: nobody writes to its disks.
    async fn writer(&self, id: &MachineId) -> Result<Option<Writer>, Trouble> {
        let found = self.hypervisor.look(id.clone())?;
        match (found.state, found.machine) {
            (State::Defined | State::Exited { .. }, _) => Ok(None),
            (State::Running { .. }, Some(machine)) => {
                let note = self.notes.read(id)?.unwrap_or_default();
                let monitor = self.hypervisor.tools_monitor(id).await?;
                let plugged = monitor.plugged().await.map_err(|why| self.monitor_failed(id, why))?;
                Ok(Some(Writer { id: id.clone(), machine, note, monitor, plugged }))
            }
            (State::Launching, _) | (State::Running { .. }, None) => {
                Err(Trouble::Waiting(format!("waiting for machine {id} to have started")))
            }
        }
    }

    /// Takes out of QEMU what an earlier attempt added and nobody was switched to, so that the next one may have the layer.
    async fn remove_unused(&self, writer: &Writer, wanted: &[Wanted]) -> Result<(), Trouble> {
        let failed = |source: QmpError| self.monitor_failed(&writer.id, source);
        for (name, there) in &writer.plugged.disks {
            let source = there.source.as_deref();
            let Some(one) = wanted.iter().find(|one| source == Some(one.volume.as_str())) else { continue };
            let (Some(medium), Some(volume)) = (&there.medium, self.storage.volume(&one.volume).await?)
            else {
                continue;
            };
            let layers = volume.layers.iter().rev().map(|layer| numbered_node_name(name, layer.number));
            for unused in layers.take_while(|layer| *layer != medium.node) {
                writer.monitor.remove_layer(&unused).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Has a machine write to the new layers of those of its volumes that have one. Answers whether its guest was frozen
    /// meanwhile.
    async fn switch(
        &self,
        writer: &Writer,
        layers: &BTreeMap<&VolumeId, OpenLayer>,
        freeze: bool,
    ) -> Result<bool, Trouble> {
        let failed = |source: QmpError| self.monitor_failed(&writer.id, source);
        self.hypervisor.make_room(&writer.machine, &writer.monitor, layers.len()).await?;
        let mut switches = Vec::new();
        for (name, there) in &writer.plugged.disks {
            let is_it = |volume: &VolumeId| there.source.as_deref() == Some(volume.as_str());
            let layer = layers.iter().find(|(volume, _)| is_it(volume));
            let (Some((_, layer)), Some(medium)) = (layer, &there.medium) else { continue };
            let to = numbered_node_name(name, layer.number);
            // Of one that is only read there is nothing to switch.
            if medium.read_only {
                continue;
            }
            let disk = self.disk_of(&writer.machine, name, there);
            let new = described(layer.layer(), false);
            let added = writer.monitor.add_layer(&disk, &new, &to, None, layer.file.as_fd()).await;
            added.map_err(failed)?;
            self.after.took(Step::AddLayer);
            switches.push(Switch { from: medium.node.clone(), to });
        }
        if switches.is_empty() {
            return Ok(false);
        }
        let frozen = freeze && self.freeze(writer).await?;
        let switched = writer.monitor.switch_layers(&switches).await;
        self.after.took(Step::SwitchLayers);
        if frozen {
            self.thaw_or_leave_it(&writer.id).await;
        }
        if let Err(why) = switched {
            for Switch { to, .. } in &switches {
                // One that the machine is on after all stays, and the next attempt finds it there.
                _ = writer.monitor.remove_layer(to).await;
            }
            return Err(failed(why));
        }
        Ok(frozen)
    }

    /// Whether the guest has an agent, and it did.
    async fn freeze(&self, writer: &Writer) -> Result<bool, Trouble> {
        let is_there = matches!(writer.monitor.guest_agent_connected().await, Ok(true));
        let Ok(agent) = self.hypervisor.guest_agent(&writer.id) else { return Ok(false) };
        if !is_there {
            return Ok(false);
        }
        let note = Note { frozen: true, ..writer.note.clone() };
        self.notes.write(&writer.id, &note)?;
        self.after.took(Step::WriteNote);
        let asked = timeout(FREEZE_PATIENCE, agent.freeze()).await;
        self.after.took(Step::Freeze);
        match asked {
            Ok(Ok(_)) => Ok(true),
            // A guest that cannot or will not is like one whose power is cut: its file systems know how to recover.
            Ok(Err(why)) => {
                tracing::warn!(machine = %writer.id, why = with_causes(&why),
                    "a guest was not frozen for its snapshot; it will be as after a power cut");
                self.thaw_or_leave_it(&writer.id).await;
                Ok(false)
            }
            Err(_) => {
                tracing::warn!(machine = %writer.id, "a guest took too long to freeze; its snapshot is as after a power cut");
                self.thaw_or_leave_it(&writer.id).await;
                Ok(false)
            }
        }
    }

    /// The snapshot is none the worse for a guest that does not thaw; its keeper, which finds it noted, goes on trying.
    async fn thaw_or_leave_it(&self, id: &MachineId) {
        if let Err(why) = self.thaw(id).await {
            tracing::warn!(machine = %id, %why, "a guest that was frozen for its snapshot does not thaw; trying again");
        }
    }

    /// Lets a guest's file systems go on, and notes that it did.
    pub(crate) async fn thaw(&self, id: &MachineId) -> Result<(), Trouble> {
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        let agent = self.hypervisor.guest_agent(id)?;
        let asked = timeout(THAW_PATIENCE, agent.thaw()).await;
        self.after.took(Step::Thaw);
        match asked {
            Ok(Ok(_)) => {}
            Ok(Err(why)) => {
                return Err(Trouble::Waiting(format!("the guest does not thaw: {}", with_causes(&why))));
            }
            Err(_) => return Err(Trouble::Waiting("the guest does not thaw in time".into())),
        }
        self.notes.write(id, &Note { frozen: false, ..note })?;
        self.after.took(Step::WriteNote);
        Ok(())
    }

    pub(crate) fn monitor_failed(&self, id: &MachineId, source: QmpError) -> Trouble {
        sheaf_hypervisor::HypervisorError::Monitor { machine: id.clone(), source }.into()
    }
}
