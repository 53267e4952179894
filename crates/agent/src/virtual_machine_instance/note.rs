//! What the agent must find again about a machine after it was killed, and that neither the
//! hypervisor nor the kernel keeps: whose it is, where its NICs are plugged in, and when
//! its power button was pressed.
//!
//! ```text
//!   instances/<uid>.json        written first when a machine is prepared, removed last
//!   instances/<uid>.variables   the variables of a UEFI guest, from launch to end
//! ```
//!
//! A note that is there says that something of the machine may be. It is written under another
//! name and renamed; one that cannot be read after a power cut counts as one that says nothing.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    net::Ipv4Addr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sheaf_hypervisor::MachineId;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Note {
    pub namespace: String,
    pub name: String,
    pub ports: Vec<NotedPort>,
    /// The disks that are volumes.
    pub volumes: Vec<NotedVolume>,
    /// When the power button was pressed, in seconds since the epoch.
    pub pressed_at: Option<u64>,
    /// The guest's file systems were frozen for a snapshot, and nobody said yet that they were thawed.
    pub frozen: bool,
    /// It was stopped since the disk was nearly full, and goes on when it is not.
    pub stopped_for_space: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotedVolume {
    /// The disk's name in the machine.
    pub disk: String,
    /// What the storage knows it by.
    pub volume: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotedPort {
    pub mac: String,
    pub addresses: Vec<Ipv4Addr>,
    pub bridge: String,
    /// The interface of the spec that it is of; empty in notes of versions that did not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub interface: String,
    /// What its tap is known by; its place in the list where it is not said. It stays when others go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
}

impl Note {
    /// The ports and the number of each.
    pub fn numbered(&self) -> impl Iterator<Item = (u16, &NotedPort)> {
        let numbers = (0_u16..).zip(&self.ports);
        numbers.map(|(place, port)| (port.number.unwrap_or(place), port))
    }
}

/// The directory of all notes: root's alone.
#[derive(Clone, Debug)]
pub struct Notes {
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {attempt} the note {path}")]
pub struct NoteError {
    attempt: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Notes {
    pub fn open(data_dir: &Path) -> Result<Notes, NoteError> {
        let directory = data_dir.join("instances");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| NoteError { attempt: "make a place for", path: directory.clone(), source })?;
        Ok(Notes { directory })
    }

    fn path(&self, id: &MachineId) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// Where the variables of a UEFI guest are. Opened by us and handed over; nobody else
    /// can write to the directory.
    pub fn variables(&self, id: &MachineId) -> PathBuf {
        self.directory.join(format!("{id}.variables"))
    }

    /// Every machine there is a note of.
    pub fn all(&self) -> Result<Vec<MachineId>, NoteError> {
        let failed = |source| NoteError { attempt: "find", path: self.directory.clone(), source };
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".json"));
            ids.extend(id.and_then(|id| id.parse::<MachineId>().ok()));
        }
        ids.sort();
        Ok(ids)
    }

    /// None where there is none.
    pub fn read(&self, id: &MachineId) -> Result<Option<Note>, NoteError> {
        let path = self.path(id);
        match fs::read(&path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text).unwrap_or_else(|why| {
                tracing::warn!(machine = %id, %why, "the note of this machine cannot be read");
                Note::default()
            }))),
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(NoteError { attempt: "read", path, source }),
        }
    }

    pub fn write(&self, id: &MachineId, note: &Note) -> Result<(), NoteError> {
        let path = self.path(id);
        let unfinished = self.directory.join(format!("{id}.new"));
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
            file.write_all(&serde_json::to_vec(note)?)?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|source| NoteError { attempt: "write", path: path.clone(), source })
    }

    /// Fresh variables for a UEFI guest, open for reading and writing.
    pub fn fresh_variables(&self, id: &MachineId, template: &Path) -> Result<File, NoteError> {
        let path = self.variables(id);
        let make = || -> io::Result<File> {
            let template = fs::read(template)?;
            remove(&path)?;
            let mut file =
                OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path)?;
            file.write_all(&template)?;
            Ok(file)
        };
        make().map_err(|source| NoteError {
            attempt: "make the variables beside",
            path: path.clone(),
            source,
        })
    }

    /// Removes the note and what lies beside it.
    pub fn forget(&self, id: &MachineId) -> Result<(), NoteError> {
        let unfinished = self.directory.join(format!("{id}.new"));
        for path in [self.variables(id), unfinished, self.path(id)] {
            remove(&path).map_err(|source| NoteError { attempt: "remove", path: path.clone(), source })?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MachineId {
        text.parse().unwrap()
    }

    #[test]
    fn a_note_is_found_again_and_forgotten_with_all_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        let note = Note { name: "vm".into(), pressed_at: Some(7), ..Note::default() };
        notes.write(&id("a"), &note).unwrap();
        let template = dir.path().join("template");
        fs::write(&template, "variables").unwrap();
        notes.fresh_variables(&id("a"), &template).unwrap();

        let again = Notes::open(dir.path()).unwrap();
        assert_eq!(again.all().unwrap(), [id("a")]);
        assert_eq!(again.read(&id("a")).unwrap(), Some(note));
        again.forget(&id("a")).unwrap();
        again.forget(&id("a")).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("instances")).unwrap().count(), 0);
    }

    #[test]
    fn a_note_torn_by_a_power_cut_still_says_that_something_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        fs::write(dir.path().join("instances/a.json"), "{\"na").unwrap();
        assert_eq!(notes.read(&id("a")).unwrap(), Some(Note::default()));
        assert_eq!(notes.read(&id("b")).unwrap(), None);
    }

    #[test]
    fn variables_begin_anew_at_every_launch() {
        let dir = tempfile::tempdir().unwrap();
        let notes = Notes::open(dir.path()).unwrap();
        let template = dir.path().join("template");
        fs::write(&template, "fresh").unwrap();
        let mut file = notes.fresh_variables(&id("a"), &template).unwrap();
        file.write_all(b" and used").unwrap();
        notes.fresh_variables(&id("a"), &template).unwrap();
        assert_eq!(fs::read_to_string(notes.variables(&id("a"))).unwrap(), "fresh");
    }
}
