//! A place in the log that stays the same when files step aside: which file, and how far into it.
//!
//! A file is known by its first line, which no other file begins with (it has an id and the time to the microsecond). Its name
//! changes, and its inode may be another's by the time somebody comes back.

use std::{fmt, fs::File, io, os::unix::fs::FileExt};

use sha2::{Digest, Sha256};

/// So much of the first line is looked at.
const FIRST: usize = 4096;

/// Between two lines of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// None before everything.
    pub file: Option<FileId>,
    pub offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(u64);

impl FileId {
    /// None while there is no whole line in it.
    pub fn of(file: &File) -> io::Result<Option<Self>> {
        let mut first = [0; FIRST];
        let mut read = 0;
        while read < FIRST {
            match file.read_at(&mut first[read..], read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        let end = match memchr::memchr(b'\n', &first[..read]) {
            Some(end) => end,
            None if read == FIRST => FIRST,
            None => return Ok(None),
        };
        let digest = Sha256::digest(&first[..end]);
        let id = digest.iter().take(8).fold(0, |id, byte| (id << 8) | u64::from(*byte));
        Ok(Some(FileId(id)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file {
            Some(FileId(id)) => write!(f, "{id:016x}-{}", self.offset),
            None => f.write_str("0"),
        }
    }
}

impl Place {
    /// What [`Place`]'s own text says, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "0" {
            return Some(Place::default());
        }
        let (id, offset) = text.split_once('-')?;
        let id = u64::from_str_radix(id, 16).ok()?;
        let place = Place { file: Some(FileId(id)), offset: offset.parse().ok()? };
        (place.to_string() == text).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is_one() {
        let place = Place { file: Some(FileId(0xab)), offset: 17 };
        assert_eq!(place.to_string(), "00000000000000ab-17");
        assert_eq!(Place::parse("00000000000000ab-17"), Some(place));
        assert_eq!(Place::parse("0"), Some(Place::default()));
        for wrong in
            ["", "ab-17", "00000000000000AB-17", "00000000000000ab-017", "00000000000000ab--1", "x-1", "-"]
        {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
