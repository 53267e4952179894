//! Decides what comes next between what a running machine has plugged in and what its spec says.
//!
//! ```text
//!              Plug                     Pull, and the guest lets go
//!   nothing ---------> device  ------------------------------------> held ---- Drop ----> nothing
//!      |                 ^
//!      +-- died halfway: held, and no device: Drop, and begin anew
//!
//!              Insert                   Eject
//!   empty drive -----> drive with a disc -----> empty drive, disc held ---- Drop ----> empty drive
//! ```
//!
//! - One answer per call: all steps that could be taken now, the ones that take away first. Who asks takes one, looks and
//!   asks again; one that has to wait does not keep the others.
//! - Only what QEMU says counts. A disk that is half there is taken away and plugged in anew: none is there twice.
//! - A disk is another one under the same name when its bytes are somebody else's; where nobody said whose they are, they
//!   are taken for the same.

use std::collections::{BTreeMap, BTreeSet};

/// What QEMU has, and what was noted for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub disks: BTreeMap<String, SeenDisk>,
    pub nics: BTreeMap<String, SeenNic>,
    pub processors: u32,
    /// What was asked of the guest beside the memory it began with; none where there is no room for more.
    pub added_memory_mib: Option<u64>,
    /// Nobody of this process looked at it before.
    pub for_the_first_time: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenDisk {
    pub device: Device,
    /// Whose bytes they are, as far as that was said.
    pub source: Option<String>,
    /// QEMU has files of it open, or descriptors of them.
    pub is_held: bool,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    #[default]
    None,
    /// Can be pulled out.
    Pluggable,
    /// Stays for as long as the machine runs.
    Fixed,
    Drive {
        has_disc: bool,
        tray_is_open: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenNic {
    pub device: bool,
    /// The host's end is there, or a note says that it was to be.
    pub is_held: bool,
}

/// What the spec says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub disks: BTreeMap<String, WantedDisk>,
    pub nics: BTreeSet<String>,
    pub processors: u32,
    pub added_memory_mib: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedDisk {
    /// Whose bytes; none of a drive that is to be empty, of a seed, and where it is not known yet.
    pub source: Option<String>,
    /// It is a drive that is to be empty.
    pub is_empty: bool,
    /// Its files can be opened here and now.
    pub is_ready: bool,
    /// At least as large as this; none of what is only read.
    pub bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Eject(String),
    /// Ask the guest to let go of it.
    PullDisk(String),
    /// Take from QEMU what it holds without a device.
    DropDisk(String),
    PullNic(String),
    DropNic(String),
    CloseTray(String),
    Insert(String),
    PlugDisk(String),
    PlugNic(String),
    GrowDisk {
        disk: String,
        bytes: u64,
    },
    AddProcessors {
        count: u32,
    },
    AskForMemory {
        added_mib: u64,
    },
}

impl Step {
    /// What it is about, in one word for each thing.
    pub fn thing(&self) -> String {
        match self {
            Step::Eject(disk)
            | Step::PullDisk(disk)
            | Step::DropDisk(disk)
            | Step::CloseTray(disk)
            | Step::Insert(disk)
            | Step::PlugDisk(disk)
            | Step::GrowDisk { disk, .. } => format!("disk {disk}"),
            Step::PullNic(nic) | Step::DropNic(nic) | Step::PlugNic(nic) => format!("interface {nic}"),
            Step::AddProcessors { .. } => "processors".to_owned(),
            Step::AskForMemory { .. } => "memory".to_owned(),
        }
    }
}

pub fn next_steps(seen: &Seen, wanted: &Wanted) -> Vec<Step> {
    let mut steps = Vec::new();
    let disks: BTreeSet<&String> = seen.disks.keys().chain(wanted.disks.keys()).collect();
    for name in disks {
        let nothing = SeenDisk::default();
        let there = seen.disks.get(name).unwrap_or(&nothing);
        steps.extend(disk_step(name, there, wanted.disks.get(name), seen.for_the_first_time));
    }
    let nics: BTreeSet<&String> = seen.nics.keys().chain(&wanted.nics).collect();
    for name in nics {
        let there = seen.nics.get(name).copied().unwrap_or_default();
        steps.extend(nic_step(name, there, wanted.nics.contains(name)));
    }
    if wanted.processors > seen.processors {
        steps.push(Step::AddProcessors { count: wanted.processors });
    }
    if seen.added_memory_mib.is_some_and(|added| added != wanted.added_memory_mib) {
        steps.push(Step::AskForMemory { added_mib: wanted.added_memory_mib });
    }
    steps.sort();
    steps
}

fn disk_step(name: &str, there: &SeenDisk, wanted: Option<&WantedDisk>, first_look: bool) -> Option<Step> {
    let name = name.to_owned();
    let is_same = |wanted: &WantedDisk| match (&wanted.source, &there.source) {
        (Some(wanted), Some(there)) => wanted == there,
        (None, _) | (_, None) => true,
    };
    match (there.device, wanted) {
        (Device::None, _) if there.is_held => Some(Step::DropDisk(name)),
        (Device::None, Some(wanted)) => wanted.is_ready.then_some(Step::PlugDisk(name)),
        (Device::None, None) => None,

        (Device::Pluggable, None) => Some(Step::PullDisk(name)),
        (Device::Pluggable, Some(wanted)) if !is_same(wanted) => Some(Step::PullDisk(name)),
        (Device::Pluggable | Device::Fixed, Some(wanted)) => {
            let bytes = wanted.bytes.filter(|bytes| *bytes > there.bytes)?;
            Some(Step::GrowDisk { disk: name, bytes })
        }
        // The spec of a running machine loses none that stays.
        (Device::Fixed, None) => None,

        (Device::Drive { has_disc: true, .. }, None) => Some(Step::Eject(name)),
        (Device::Drive { has_disc: true, .. }, Some(wanted)) if wanted.is_empty || !is_same(wanted) => {
            Some(Step::Eject(name))
        }
        // Whoever inserted it may have died before the tray was closed. Later it is the guest that opens it.
        (Device::Drive { has_disc: true, tray_is_open: true }, Some(_)) => {
            first_look.then_some(Step::CloseTray(name))
        }
        (Device::Drive { has_disc: true, tray_is_open: false }, Some(_)) => None,
        (Device::Drive { has_disc: false, .. }, _) if there.is_held => Some(Step::DropDisk(name)),
        (Device::Drive { has_disc: false, .. }, Some(wanted)) if !wanted.is_empty && wanted.is_ready => {
            Some(Step::Insert(name))
        }
        (Device::Drive { has_disc: false, .. }, _) => None,
    }
}

fn nic_step(name: &str, there: SeenNic, is_wanted: bool) -> Option<Step> {
    let name = name.to_owned();
    match (there.device, is_wanted) {
        (true, true) => None,
        (true, false) => Some(Step::PullNic(name)),
        // A tap that was left is taken over: what is plugged in begins with taking away what QEMU has of it.
        (false, true) => Some(Step::PlugNic(name)),
        (false, false) => there.is_held.then_some(Step::DropNic(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(disk: SeenDisk) -> Seen {
        Seen { disks: [("d".to_owned(), disk)].into(), ..Seen::default() }
    }

    fn wanted(disk: Option<WantedDisk>) -> Wanted {
        Wanted { disks: disk.map(|disk| ("d".to_owned(), disk)).into_iter().collect(), ..Wanted::default() }
    }

    fn of(source: &str) -> WantedDisk {
        WantedDisk { source: Some(source.into()), is_ready: true, bytes: Some(10), ..WantedDisk::default() }
    }

    fn there(device: Device, source: &str, is_held: bool) -> SeenDisk {
        SeenDisk { device, source: Some(source.into()), is_held, bytes: 10 }
    }

    fn next(disk: SeenDisk, want: Option<WantedDisk>) -> Option<Step> {
        let mut steps = next_steps(&seen(disk), &wanted(want));
        assert!(steps.len() <= 1, "{steps:?}");
        steps.pop()
    }

    fn name() -> String {
        "d".to_owned()
    }

    #[test]
    fn a_disk_that_is_half_there_is_taken_away_before_anything_else() {
        let half = there(Device::None, "a", true);
        assert_eq!(next(half.clone(), Some(of("a"))), Some(Step::DropDisk(name())));
        assert_eq!(next(half, None), Some(Step::DropDisk(name())));
        assert_eq!(next(SeenDisk::default(), Some(of("a"))), Some(Step::PlugDisk(name())));
    }

    #[test]
    fn a_disk_is_plugged_in_once_its_files_are_there_and_rests_then() {
        let waiting = WantedDisk { is_ready: false, ..of("a") };
        assert_eq!(next(SeenDisk::default(), Some(waiting)), None);
        assert_eq!(next(there(Device::Pluggable, "a", true), Some(of("a"))), None);
        assert_eq!(next(there(Device::Fixed, "a", true), Some(of("a"))), None);
    }

    #[test]
    fn another_disk_of_the_same_name_is_not_taken_for_the_old_one() {
        assert_eq!(next(there(Device::Pluggable, "a", true), Some(of("b"))), Some(Step::PullDisk(name())));
        // An older version did not say whose it is.
        let unsaid = SeenDisk { source: None, ..there(Device::Pluggable, "", true) };
        assert_eq!(next(unsaid, Some(of("b"))), None);
    }

    #[test]
    fn what_is_not_wanted_is_pulled_then_dropped_then_gone() {
        assert_eq!(next(there(Device::Pluggable, "a", true), None), Some(Step::PullDisk(name())));
        assert_eq!(next(there(Device::None, "a", true), None), Some(Step::DropDisk(name())));
        assert_eq!(next(SeenDisk::default(), None), None);
        assert_eq!(next(there(Device::Fixed, "a", true), None), None);
    }

    #[test]
    fn a_disc_is_changed_by_taking_the_old_one_out_first() {
        let full = Device::Drive { has_disc: true, tray_is_open: false };
        let empty = Device::Drive { has_disc: false, tray_is_open: true };
        assert_eq!(next(there(full, "a", true), Some(of("a"))), None);
        assert_eq!(next(there(full, "a", true), Some(of("b"))), Some(Step::Eject(name())));
        assert_eq!(next(there(empty, "a", true), Some(of("b"))), Some(Step::DropDisk(name())));
        let drive = SeenDisk { device: empty, ..SeenDisk::default() };
        assert_eq!(next(drive.clone(), Some(of("b"))), Some(Step::Insert(name())));
        let nothing = WantedDisk { is_empty: true, is_ready: true, ..WantedDisk::default() };
        assert_eq!(next(there(full, "a", true), Some(nothing.clone())), Some(Step::Eject(name())));
        assert_eq!(next(drive, Some(nothing)), None);
    }

    #[test]
    fn a_tray_is_closed_for_who_died_and_left_open_for_a_guest() {
        let open = there(Device::Drive { has_disc: true, tray_is_open: true }, "a", true);
        assert_eq!(next(open.clone(), Some(of("a"))), None);
        let first = Seen { for_the_first_time: true, ..seen(open) };
        assert_eq!(next_steps(&first, &wanted(Some(of("a")))), [Step::CloseTray(name())]);
    }

    #[test]
    fn a_disk_grows_and_never_shrinks_nor_does_what_is_only_read() {
        let larger = WantedDisk { bytes: Some(20), ..of("a") };
        for device in [Device::Pluggable, Device::Fixed] {
            let grow = Step::GrowDisk { disk: name(), bytes: 20 };
            assert_eq!(next(there(device, "a", true), Some(larger.clone())), Some(grow));
            let smaller = WantedDisk { bytes: Some(5), ..of("a") };
            assert_eq!(next(there(device, "a", true), Some(smaller)), None);
            let read_only = WantedDisk { bytes: None, ..of("a") };
            assert_eq!(next(there(device, "a", true), Some(read_only)), None);
        }
    }

    #[test]
    fn one_that_waits_does_not_keep_the_others_and_what_goes_goes_first() {
        let seen = Seen {
            disks: [("old".to_owned(), there(Device::Pluggable, "a", true))].into(),
            nics: [("gone".to_owned(), SeenNic { device: false, is_held: true })].into(),
            processors: 2,
            added_memory_mib: Some(0),
            ..Seen::default()
        };
        let wanted = Wanted {
            disks: [("new".to_owned(), of("b"))].into(),
            nics: ["fresh".to_owned()].into(),
            processors: 4,
            added_memory_mib: 512,
        };
        assert_eq!(
            next_steps(&seen, &wanted),
            [
                Step::PullDisk("old".into()),
                Step::DropNic("gone".into()),
                Step::PlugDisk("new".into()),
                Step::PlugNic("fresh".into()),
                Step::AddProcessors { count: 4 },
                Step::AskForMemory { added_mib: 512 },
            ]
        );
    }

    #[test]
    fn processors_are_never_taken_away_and_memory_is_not_asked_of_who_has_no_room() {
        let seen = Seen { processors: 4, added_memory_mib: None, ..Seen::default() };
        let wanted = Wanted { processors: 2, added_memory_mib: 512, ..Wanted::default() };
        assert_eq!(next_steps(&seen, &wanted), []);
    }
}
