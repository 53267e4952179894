//! Writes a disc in the format of ISO 9660, with names of any case and length for both
//! those who read Rock Ridge (Unix) and those who read Joliet (Windows).
//!
//! ```text
//!   sector  16 descriptor   17 descriptor for Joliet   18 end of descriptors
//!           19, 20 table of directories, once per byte order   21, 22 the same for Joliet
//!           23 ... directories, one sector each   the same for Joliet   files
//! ```
//!
//! Made for seeds: a few files in a few directories, so a directory never needs a second sector.
//! Dates are fixed, and the same files give the same bytes.

use std::collections::BTreeMap;

const SECTOR: usize = 2048;
const DESCRIPTORS_AT: usize = 16;
const TABLES_AT: usize = 19;
const DIRECTORIES_AT: usize = 23;
/// 1 January 1980; a date must be there and says nothing here.
const DATE: [u8; 7] = [80, 1, 1, 0, 0, 0, 0];
/// Says that names are UCS-2.
const JOLIET_LEVEL_3: &[u8] = b"%/E";

const DIRECTORY_MODE: u32 = 0o040_500;
const FILE_MODE: u32 = 0o100_400;

/// Files by path; the directories follow from the paths.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, Vec<u8>>,
}

/// Which of the two descriptions of the same files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    RockRidge,
    Joliet,
}

struct DirectoryEntry {
    /// Empty for the root.
    path: String,
    name: String,
    /// Its own position for the root.
    parent: usize,
}

struct FileEntry<'a> {
    name: &'a str,
    directory: usize,
    sector: usize,
    content: &'a [u8],
}

impl Tree {
    /// `path` is made of names of letters, digits, `-`, `_` and `.`, with slashes between them.
    pub fn add(&mut self, path: &str, content: &[u8]) {
        self.files.insert(path.to_owned(), content.to_owned());
    }

    pub fn into_disc(self, label: &str) -> Vec<u8> {
        let directories = directories(self.files.keys());
        let mut next = DIRECTORIES_AT + 2 * directories.len();
        let mut files = Vec::new();
        for (path, content) in &self.files {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let directory = directories.iter().position(|directory| directory.path == parent).unwrap_or(0);
            // Without content there is no place either.
            let sector = if content.is_empty() { 0 } else { next };
            files.push(FileEntry { name, directory, sector, content });
            next += content.len().div_ceil(SECTOR);
        }
        Layout { label, directories, files, sectors: next }.write()
    }
}

/// The root, then what is in it, then what is in that: the order that the tables need.
fn directories<'a>(files: impl Iterator<Item = &'a String>) -> Vec<DirectoryEntry> {
    let mut paths: Vec<&str> =
        files.flat_map(|file| file.match_indices('/').map(|(end, _)| &file[..end])).collect();
    paths.sort_by_key(|path| (path.matches('/').count(), *path));
    paths.dedup();
    let mut found = vec![DirectoryEntry { path: String::new(), name: String::new(), parent: 0 }];
    for path in paths {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = found.iter().position(|directory| directory.path == above).unwrap_or(0);
        found.push(DirectoryEntry { path: path.to_owned(), name: name.to_owned(), parent });
    }
    found
}

struct Layout<'a> {
    label: &'a str,
    directories: Vec<DirectoryEntry>,
    files: Vec<FileEntry<'a>>,
    sectors: usize,
}

impl Layout<'_> {
    fn write(&self) -> Vec<u8> {
        let mut disc = vec![0; self.sectors * SECTOR];
        let mut put = |sector: usize, content: &[u8]| {
            disc[sector * SECTOR..][..content.len()].copy_from_slice(content);
        };
        for (index, naming) in [Naming::RockRidge, Naming::Joliet].into_iter().enumerate() {
            put(DESCRIPTORS_AT + index, &self.descriptor(naming));
            put(
                TABLES_AT + 2 * index,
                &self.table(naming, |number| number.to_le_bytes(), |number| number.to_le_bytes()),
            );
            put(
                TABLES_AT + 2 * index + 1,
                &self.table(naming, |number| number.to_be_bytes(), |number| number.to_be_bytes()),
            );
            for directory in 0..self.directories.len() {
                let records = self.records(naming, directory);
                debug_assert!(records.len() <= SECTOR, "a directory has one sector");
                put(self.sector_of(naming, directory), &records);
            }
        }
        put(DESCRIPTORS_AT + 2, b"\xffCD001\x01");
        for file in &self.files {
            put(file.sector, file.content);
        }
        disc
    }

    fn sector_of(&self, naming: Naming, directory: usize) -> usize {
        match naming {
            Naming::RockRidge => DIRECTORIES_AT + directory,
            Naming::Joliet => DIRECTORIES_AT + self.directories.len() + directory,
        }
    }

    fn descriptor(&self, naming: Naming) -> Vec<u8> {
        let (kind, tables, escape) = match naming {
            Naming::RockRidge => (1, TABLES_AT, &b""[..]),
            Naming::Joliet => (2, TABLES_AT + 2, JOLIET_LEVEL_3),
        };
        let table_length =
            self.table(naming, |number| number.to_le_bytes(), |number| number.to_le_bytes()).len();
        let mut out = vec![kind];
        out.extend_from_slice(b"CD001\x01\x00");
        out.extend(padded("", 32, naming)); // the system it is for
        out.extend(padded(self.label, 32, naming));
        out.extend([0; 8]);
        out.extend(both_u32(self.sectors));
        out.extend(escape);
        out.resize(120, 0);
        out.extend(both_u16(1)); // one disc in the set
        out.extend(both_u16(1)); // and this is it
        out.extend(both_u16(SECTOR as u16));
        out.extend(both_u32(table_length));
        out.extend((tables as u32).to_le_bytes());
        out.extend([0; 4]);
        out.extend((tables as u32 + 1).to_be_bytes());
        out.extend([0; 4]);
        out.extend(record(&[0], self.sector_of(naming, 0), SECTOR, true, &[]));
        for length in [128, 128, 128, 128, 37, 37, 37] {
            out.extend(padded("", length, naming)); // who made it with what
        }
        for _ in 0..4 {
            out.extend(b"0000000000000000\0"); // no date
        }
        out.push(1);
        out
    }

    fn table(&self, naming: Naming, long: fn(u32) -> [u8; 4], short: fn(u16) -> [u8; 2]) -> Vec<u8> {
        let mut out = Vec::new();
        for (index, directory) in self.directories.iter().enumerate() {
            let name = if index == 0 { vec![0] } else { identifier(naming, &directory.name, true) };
            out.extend([name.len() as u8, 0]);
            out.extend(long(self.sector_of(naming, index) as u32));
            out.extend(short(directory.parent as u16 + 1));
            out.extend(&name);
            if !name.len().is_multiple_of(2) {
                out.push(0);
            }
        }
        out
    }

    /// What one directory's sector holds.
    fn records(&self, naming: Naming, directory: usize) -> Vec<u8> {
        let of_directory = |identifier: &[u8], index: usize, extra: &[u8]| {
            record(identifier, self.sector_of(naming, index), SECTOR, true, extra)
        };
        let extra = |name: &str, mode: u32, links: usize| match naming {
            Naming::RockRidge => rock_ridge(name, mode, links),
            Naming::Joliet => Vec::new(),
        };
        let links = |index: usize| 2 + self.children(index).count();

        let mut own = extra("", DIRECTORY_MODE, links(directory));
        if directory == 0 && naming == Naming::RockRidge {
            own = [rock_ridge_is_used(), own].concat();
        }
        let parent = self.directories[directory].parent;
        let mut out = of_directory(&[0], directory, &own);
        out.extend(of_directory(&[1], parent, &extra("", DIRECTORY_MODE, links(parent))));

        let mut inside = BTreeMap::new();
        for (index, child) in self.children(directory) {
            let name = identifier(naming, &child.name, true);
            let extra = extra(&child.name, DIRECTORY_MODE, links(index));
            inside.insert(name.clone(), of_directory(&name, index, &extra));
        }
        for file in self.files.iter().filter(|file| file.directory == directory) {
            let name = identifier(naming, file.name, false);
            let extra = extra(file.name, FILE_MODE, 1);
            inside.insert(name.clone(), record(&name, file.sector, file.content.len(), false, &extra));
        }
        out.extend(inside.into_values().flatten());
        out
    }

    fn children(&self, directory: usize) -> impl Iterator<Item = (usize, &DirectoryEntry)> {
        let is_child =
            move |(index, entry): &(usize, &DirectoryEntry)| *index != 0 && entry.parent == directory;
        self.directories.iter().enumerate().filter(is_child)
    }
}

/// One file or directory, as its directory lists it.
fn record(identifier: &[u8], sector: usize, length: usize, is_directory: bool, extra: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0];
    out.extend(both_u32(sector));
    out.extend(both_u32(length));
    out.extend(DATE);
    out.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    out.extend(both_u16(1));
    out.push(identifier.len() as u8);
    out.extend(identifier);
    if identifier.len().is_multiple_of(2) {
        out.push(0);
    }
    out.extend(extra);
    if !out.len().is_multiple_of(2) {
        out.push(0);
    }
    out[0] = out.len() as u8;
    out
}

fn identifier(naming: Naming, name: &str, is_directory: bool) -> Vec<u8> {
    let version = if is_directory { "" } else { ";1" };
    match naming {
        Naming::Joliet => ucs2(&format!("{name}{version}")),
        Naming::RockRidge => {
            let mut plain: String = name
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_uppercase() } else { '_' })
                .collect();
            if !is_directory && !plain.contains('.') {
                plain.push('.');
            }
            (plain + version).into_bytes()
        }
    }
}

/// Mode, owner and true name of what a record describes.
fn rock_ridge(name: &str, mode: u32, links: usize) -> Vec<u8> {
    let mut out = b"PX\x24\x01".to_vec();
    out.extend(both_u32(mode as usize));
    out.extend(both_u32(links));
    out.extend(both_u32(0)); // root's
    out.extend(both_u32(0));
    if !name.is_empty() {
        out.extend([b'N', b'M', 5 + name.len() as u8, 1, 0]);
        out.extend(name.as_bytes());
    }
    out
}

/// Stands in the first record of the root, for those who look whether to look further.
fn rock_ridge_is_used() -> Vec<u8> {
    let mut out = b"SP\x07\x01\xbe\xef\x00".to_vec();
    let name = b"RRIP_1991A";
    out.extend([b'E', b'R', 8 + name.len() as u8, 1, name.len() as u8, 0, 0, 1]);
    out.extend(name);
    out
}

fn padded(text: &str, length: usize, naming: Naming) -> Vec<u8> {
    let mut out = match naming {
        Naming::RockRidge => text.as_bytes().to_vec(),
        Naming::Joliet => ucs2(text),
    };
    while out.len() < length {
        match naming {
            Naming::RockRidge => out.push(b' '),
            Naming::Joliet => out.extend([0, b' ']),
        }
    }
    out.truncate(length);
    out
}

fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

fn both_u32(number: usize) -> [u8; 8] {
    let number = number as u32;
    let mut out = [0; 8];
    out[..4].copy_from_slice(&number.to_le_bytes());
    out[4..].copy_from_slice(&number.to_be_bytes());
    out
}

fn both_u16(number: u16) -> [u8; 4] {
    let mut out = [0; 4];
    out[..2].copy_from_slice(&number.to_le_bytes());
    out[2..].copy_from_slice(&number.to_be_bytes());
    out
}
