//! Stops machines before the disk is full, and lets them go on when there is room again.
//!
//! A volume takes space as it is written to, so a node can run out of it however its volumes were counted. QEMU then
//! stops the guest whose write did not fit, which loses nothing; but the cluster's own memory lies on the same disk, and the
//! order to delete something must still find room. So machines are stopped while some is left, all that have volumes
//! here, and a ballast is given for the last orders if one of them was faster.
//!
//! That a machine was stopped for this stands in its note: a machine that its user paused stays paused. Whoever
//! died in between left the note, and the next process goes on from there.

use std::{sync::Arc, time::Duration};

use sheaf_hypervisor::{MachineId, QmpError, State, qmp::RunState};
use sheaf_storage::{Backend, Space};
use tokio::time::sleep;

use crate::{
    step::Step,
    virtual_machine_instance::{Hands, Note, Trouble, with_causes},
};

/// How often the space is looked at: while there is plenty, and while it may soon be short.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LOOK_SOON: Duration = Duration::from_millis(100);
/// Of the file system, this part stays free of what guests write.
const RESERVE_PART: u64 = 50;
const LEAST_RESERVE: u64 = 64 << 20;
const MOST_RESERVE: u64 = 1 << 30;
/// With less than this left, the ballast is given.
const LAST_BYTES: u64 = 16 << 20;

/// How much room a node has for what its guests write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Plenty,
    /// Looked at often.
    Little,
    /// Nobody goes on.
    None,
}

/// Whoever is stopped stays so until there is twice the room at which it was.
fn room(space: Space, is_stopped: bool) -> Room {
    let reserve = reserve_of(space.total_bytes);
    let free = space.free_bytes;
    match free {
        _ if free < reserve || (is_stopped && free < 2 * reserve) => Room::None,
        _ if free < 8 * reserve => Room::Little,
        _ => Room::Plenty,
    }
}

pub(crate) fn reserve_of(total_bytes: u64) -> u64 {
    (total_bytes / RESERVE_PART).clamp(LEAST_RESERVE.min(total_bytes / 4), MOST_RESERVE)
}

/// What a person is told whose machine was stopped.
pub(crate) fn explanation(space: Option<Space>) -> String {
    let numbers = space.map_or_else(String::new, |space| {
        let (free, reserve) = (space.free_bytes >> 20, reserve_of(space.total_bytes) >> 20);
        format!(": {free} MiB are free, {reserve} MiB are kept for the cluster")
    });
    format!(
        "the node's disk is full and the guest was stopped, nothing is lost{numbers}. It goes on by itself when there is \
         room: delete snapshots, volumes or images on this node, or give it a larger disk"
    )
}

/// Looks after the space until dropped.
pub async fn run(hands: Arc<Hands>) {
    let mut is_stopped = hands.some_are_stopped();
    loop {
        let wait = match hands.storage.space().await {
            Ok(space) => {
                let room = room(space, is_stopped);
                if let Err(why) = hands.mind(space, room).await {
                    tracing::warn!(why = with_causes(&why), "machines could not be told of the disk's space");
                }
                is_stopped = room == Room::None;
                if room == Room::Plenty { LOOK_EVERY } else { LOOK_SOON }
            }
            Err(why) => {
                tracing::warn!(why = with_causes(&why), "the space of the disk is not known");
                LOOK_EVERY
            }
        };
        sleep(wait).await;
    }
}

impl Hands {
    /// Whether an earlier process stopped a machine and did not let it go on.
    fn some_are_stopped(&self) -> bool {
        let ids = self.notes.all().unwrap_or_default();
        ids.iter().any(|id| matches!(self.notes.read(id), Ok(Some(note)) if note.stopped_for_space))
    }

    async fn mind(&self, space: Space, room: Room) -> Result<(), Trouble> {
        // Before anything else: without it not even the notes of who is stopped can be written.
        if room == Room::None && space.free_bytes < LAST_BYTES && self.storage.give_ballast().await? {
            tracing::error!(free = space.free_bytes, "the disk is full; the reserve for orders was given");
        }
        // What cannot be done for one is no reason to do nothing for the others.
        let mut trouble = None;
        for id in self.notes.all()? {
            let done = match room {
                Room::None => self.stop_for_space(&id).await,
                Room::Plenty | Room::Little => self.go_on(&id).await,
            };
            trouble = done.err().or(trouble);
        }
        if room == Room::Plenty {
            self.storage.take_ballast().await?;
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn stop_for_space(&self, id: &MachineId) -> Result<(), Trouble> {
        let failed = |source: QmpError| self.monitor_failed(id, source);
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        if note.volumes.is_empty() || note.stopped_for_space || note.pressed_at.is_some() {
            return Ok(());
        }
        let _turn = self.turns.take(id).await;
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        if !matches!(self.hypervisor.look(id.clone())?.state, State::Running { .. }) {
            return Ok(());
        }
        let monitor = self.hypervisor.tools_monitor(id).await?;
        if monitor.status().await.map_err(failed)? != RunState::Running {
            return Ok(());
        }
        self.notes.write(id, &Note { stopped_for_space: true, ..note })?;
        self.after.took(Step::WriteNote);
        monitor.pause().await.map_err(failed)?;
        tracing::warn!(machine = %id, "stopped: the disk is nearly full");
        Ok(())
    }

    /// Lets a machine go on that was stopped by us, or by QEMU over a write that did not fit.
    async fn go_on(&self, id: &MachineId) -> Result<(), Trouble> {
        let failed = |source: QmpError| self.monitor_failed(id, source);
        let is_told = self.full_disks.lock().contains(id);
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        if !note.stopped_for_space && !is_told {
            return Ok(());
        }
        let _turn = self.turns.take(id).await;
        let Some(note) = self.notes.read(id)? else { return Ok(()) };
        if matches!(self.hypervisor.look(id.clone())?.state, State::Running { .. }) {
            let monitor = self.hypervisor.tools_monitor(id).await?;
            let state = monitor.status().await.map_err(failed)?;
            if state == RunState::IoError || (state == RunState::Paused && note.stopped_for_space) {
                monitor.resume().await.map_err(failed)?;
                tracing::info!(machine = %id, "goes on: there is room on the disk again");
            }
        }
        if note.stopped_for_space {
            self.notes.write(id, &Note { stopped_for_space: false, ..note })?;
            self.after.took(Step::WriteNote);
        }
        self.full_disks.lock().remove(id);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn space(total: u64, free: u64) -> Space {
        Space { total_bytes: total, free_bytes: free }
    }

    #[test]
    fn guests_leave_room_for_the_cluster_on_any_disk() {
        assert_eq!(reserve_of(10 * GIB), 10 * GIB / 50);
        assert_eq!(reserve_of(1000 * GIB), GIB);
        assert_eq!(reserve_of(GIB), 64 << 20);
        assert!(reserve_of(100 << 20) <= 25 << 20, "a tiny disk is not all reserve");
    }

    #[test]
    fn who_is_stopped_stays_so_until_there_is_clearly_room() {
        let total = 10 * GIB;
        let reserve = reserve_of(total);
        assert_eq!(room(space(total, reserve - 1), false), Room::None);
        assert_eq!(room(space(total, reserve), false), Room::Little);
        assert_eq!(room(space(total, reserve), true), Room::None);
        assert_eq!(room(space(total, 2 * reserve), true), Room::Little);
        assert_eq!(room(space(total, 9 * reserve), true), Room::Plenty);
    }

    #[test]
    fn a_person_is_told_the_numbers_and_what_to_do() {
        let told = explanation(Some(space(10 * GIB, 100 << 20)));
        assert!(told.contains("100 MiB are free") && told.contains("delete"), "{told}");
    }
}
