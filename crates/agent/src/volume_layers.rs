//! Makes one of two layers that nobody needs apart any more, so that a disk that is snapshotted every hour is not read
//! through thousands of them, and what a deleted snapshot held is given back.
//!
//! The storage says which layers those are. What they hold is a guest's, so it is read by a QEMU without a machine, in
//! a sandbox of its own. Machines that have the two open for reading need not notice: what the upper one has they read
//! there, and nothing else changes in the lower one. Afterwards each of them is told to do without the upper one, so that its
//! space is given back; it opens the lower one anew for that, since it may remember less of it than it holds now.
//!
//! Killed anywhere, the next process merges again or, where the storage knows that it was done, finds in QEMU's own
//! list which layers it still has.

use std::{collections::BTreeSet, os::fd::AsFd, sync::Arc, time::Duration};

use serde_json::json;
use sheaf_client::work_queue::retry_after;
use sheaf_hypervisor::{
    Machine, MachineId, Monitor, QmpError, State,
    command_line::{numbered_node_name, second_node_name},
    machine::{Bus, Cache, DeviceName, Disk, DiskKind, Format, Layer, LayerStorage},
    qmp::{Medium, PluggedDisk},
};
use sheaf_storage::{Backend, Holder, Merge, OpenLayer, OpenMerge, VolumeId};
use tokio::time::sleep;

use crate::{
    step::Step,
    virtual_machine_instance::{Hands, Trouble, with_causes},
    workshop::{self, Workshop},
};

/// How often it is looked whether there is something to merge, whatever is heard.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// What the job and its workshop are called.
const MERGE: &str = "merge";

/// Merges until dropped.
pub async fn run(hands: Arc<Hands>) {
    let mut failures = 0;
    while let Err(why) = Workshop::clear_all(&hands).await {
        tracing::warn!(why = with_causes(&why), "an earlier process left work behind that does not end");
        failures += 1;
        sleep(retry_after(failures)).await;
    }
    // Whom an earlier process did not get to tell.
    hands.tell_machines(|_| true).await;
    failures = 0;
    loop {
        let is_done = hands.merge_all().await.unwrap_or_else(|why| {
            tracing::warn!(why = with_causes(&why), "layers could not be merged; trying again");
            false
        });
        failures = if is_done { 0 } else { failures + 1 };
        let wait = if is_done { LOOK_EVERY } else { retry_after(failures) };
        tokio::select! {
            biased;
            () = hands.layers_changed.notified() => {}
            () = sleep(wait) => {}
        }
    }
}

impl Hands {
    /// Whether nothing is left that could be merged.
    async fn merge_all(&self) -> Result<bool, Trouble> {
        // One after the other: each changes what is wanted next.
        let mut given_up = Vec::new();
        loop {
            let wanted = self.storage.wanted_merges().await?;
            let Some(merge) = wanted.into_iter().find(|merge| !given_up.contains(merge)) else {
                if !given_up.is_empty() {
                    // The storage may have been able to forget a layer after all.
                    self.tell_machines(|volume| given_up.iter().any(|merge| holds(merge, volume))).await;
                }
                return Ok(given_up.is_empty());
            };
            match self.merge(&merge).await {
                Ok(()) => self.tell_machines(|volume| holds(&merge, volume)).await,
                Err(why) => {
                    tracing::warn!(?merge, %why, "two layers could not be made one; trying again later");
                    given_up.push(merge);
                }
            }
        }
    }

    async fn merge(&self, merge: &Merge) -> Result<(), Trouble> {
        let OpenMerge { layers } = self.storage.open_merge(merge).await?;
        let workshop = Workshop::open(self, MERGE).await?;
        let merged = self.merge_in(&workshop, &layers, merge).await;
        // Whatever came of it: what it holds open takes space that a merge should give back.
        let closed = workshop.close().await;
        merged.and(closed)?;
        self.storage.finish_merge(merge).await?;
        Ok(())
    }

    async fn merge_in(
        &self,
        workshop: &Workshop<'_>,
        layers: &[OpenLayer],
        merge: &Merge,
    ) -> Result<(), Trouble> {
        workshop.stack(layers).await?;
        let (lower, upper) = (workshop::node_name(merge.lower), workshop::node_name(merge.upper));
        let order = json!({
            "job-id": MERGE, "device": upper, "base-node": lower, "top-node": upper, "auto-dismiss": false,
        });
        let begun = workshop.monitor.execute("block-commit", order).await;
        begun.map_err(|why| workshop.failed(why))?;
        self.after.took(Step::BeginMerge);
        workshop.wait_for(MERGE, |_| {}).await
    }

    /// Has running machines do without layers that their volumes no longer have, of the volumes that are `concerned`.
    async fn tell_machines(&self, concerned: impl Fn(&str) -> bool) {
        let ids = self.notes.all().unwrap_or_else(|why| {
            tracing::warn!(why = with_causes(&why), "the notes of machines cannot be read");
            Vec::new()
        });
        for id in ids {
            if let Err(why) = self.tell_machine(&id, &concerned).await {
                // It keeps the space of what it has open until it is started again, and nothing worse.
                tracing::warn!(machine = %id, %why, "a machine keeps a layer that its disk no longer needs");
            }
        }
    }

    async fn tell_machine(&self, id: &MachineId, concerned: &impl Fn(&str) -> bool) -> Result<(), Trouble> {
        let _turn = self.turns.take(id).await;
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        let noted: Vec<_> = note.volumes.iter().filter(|noted| concerned(&noted.volume)).collect();
        if noted.is_empty() {
            return Ok(());
        }
        let found = self.hypervisor.look(id.clone())?;
        let (State::Running { .. }, Some(machine)) = (found.state, found.machine) else { return Ok(()) };
        let monitor = self.hypervisor.tools_monitor(id).await?;
        let plugged = monitor.plugged().await.map_err(|why| self.monitor_failed(id, why))?;
        for (name, there) in &plugged.disks {
            let source = there.source.as_ref().filter(|source| concerned(source));
            let (Some(volume), Some(medium)) = (source.and_then(|source| source.parse().ok()), &there.medium)
            else {
                continue;
            };
            let disk = self.disk_of(&machine, name, there);
            self.hypervisor.make_room(&machine, &monitor, 1).await?;
            self.drop_layers(&monitor, id, &disk, medium, &volume).await?;
        }
        Ok(())
    }

    async fn drop_layers(
        &self,
        monitor: &Monitor,
        id: &MachineId,
        disk: &Disk,
        medium: &Medium,
        volume: &VolumeId,
    ) -> Result<(), Trouble> {
        let failed = |source: QmpError| self.monitor_failed(id, source);
        let nodes = monitor.block_nodes().await.map_err(failed)?;
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.node_name.as_str()).collect();
        // All for reading: the top one's descriptor is not needed.
        let layers = self.storage.open(volume, true).await?;
        let known: BTreeSet<u32> = layers.iter().map(|layer| layer.number).collect();
        for (lower, above) in layers.iter().zip(layers.iter().skip(1)) {
            let stale: Vec<String> = (lower.number + 1..above.number)
                .filter(|number| !known.contains(number))
                .flat_map(|number| names_of(&disk.name, number))
                .filter(|name| names.contains(name.as_str()))
                .collect();
            // The top one is not QEMU's yet: a snapshot is under way, and comes first.
            let Some(above_name) =
                names_of(&disk.name, above.number).into_iter().find(|name| names.contains(name.as_str()))
            else {
                continue;
            };
            // Of the lower one there are two while it is changed over, and an earlier process may have died then.
            let is_doubled =
                names_of(&disk.name, lower.number).iter().all(|name| names.contains(name.as_str()));
            if stale.is_empty() && !is_doubled {
                continue;
            }
            let below = layers.iter().rev().find(|layer| layer.number < lower.number);
            let below = below.and_then(|layer| {
                names_of(&disk.name, layer.number).into_iter().find(|name| names.contains(name.as_str()))
            });
            let mut is_told = stale.is_empty();
            for name in &stale {
                // Nothing lies on it: an earlier process got as far as this.
                is_told |= monitor.remove_layer(name).await.map_err(failed)?;
            }
            if !is_told {
                let fresh = self.fresh_lower(monitor, disk, lower, below.as_deref()).await.map_err(failed)?;
                let read_only = above_name != medium.node || medium.read_only;
                let on_it = described(above.layer(), read_only);
                monitor.rebase_layer(disk, &on_it, &above_name, &fresh).await.map_err(failed)?;
                self.after.took(Step::PassOverLayer);
            }
            for name in stale.iter().rev().cloned().chain(names_of(&disk.name, lower.number)) {
                if monitor.remove_layer(&name).await.map_err(failed)? {
                    self.after.took(Step::DropLayer);
                }
            }
        }
        Ok(())
    }

    /// A second node of a layer that QEMU has open, with all that is in it now. What an earlier attempt left goes.
    async fn fresh_lower(
        &self,
        monitor: &Monitor,
        disk: &Disk,
        lower: &OpenLayer,
        below: Option<&str>,
    ) -> Result<String, QmpError> {
        let names = names_of(&disk.name, lower.number);
        for name in &names {
            monitor.remove_layer(name).await?;
        }
        let nodes = monitor.block_nodes().await?;
        let is_free = |name: &String| nodes.iter().all(|node| node.node_name != *name);
        let [plain, anew] = names;
        let fresh = if is_free(&plain) { plain } else { anew };
        monitor.add_layer(disk, &described(lower.layer(), true), &fresh, below, lower.file.as_fd()).await?;
        self.after.took(Step::AddLayer);
        Ok(fresh)
    }
}

fn holds(merge: &Merge, volume: &str) -> bool {
    merge.holders.iter().any(|holder| matches!(holder, Holder::Volume(id) if id.as_str() == volume))
}

impl Hands {
    /// How the layers of a disk are used that a machine has now: as it was launched, or as any that is plugged in later.
    pub(crate) fn disk_of(&self, machine: &Machine, name: &DeviceName, there: &PluggedDisk) -> Disk {
        let launched = machine.disks.iter().find(|disk| disk.name == *name && disk.source == there.source);
        if let Some(launched) = launched {
            return launched.clone();
        }
        let cache = if self.abilities.direct_io { Cache::None } else { Cache::WriteBack };
        Disk {
            name: name.clone(),
            bus: Bus::Scsi,
            kind: DiskKind::Disk,
            layers: Vec::new(),
            boot_index: None,
            serial: None,
            device_id: None,
            cache,
            aio: self.abilities.capabilities.best_aio(cache),
            source: there.source.clone(),
            io_thread: false,
        }
    }
}

/// What QEMU may call a layer: it has two nodes of one while it goes over from the one to the other.
fn names_of(disk: &DeviceName, number: u32) -> [String; 2] {
    [numbered_node_name(disk, number), second_node_name(disk, number)]
}

/// A layer of the storage in the hypervisor's words.
pub(crate) fn described(layer: sheaf_storage::Layer, read_only: bool) -> Layer {
    Layer {
        number: Some(layer.number),
        format: match layer.format {
            sheaf_storage::Format::Raw => Format::Raw,
            sheaf_storage::Format::Qcow2 => Format::Qcow2,
        },
        storage: LayerStorage::File,
        read_only,
    }
}
