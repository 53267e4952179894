//! Writing past the memory that the system keeps files in, where the file system lets us.
//!
//! What arrives is not read again soon, and copying it into that memory costs more than everything else that is done to it:
//! on ext4 and a fast disk a file is written at 1.6 GB/s like this and at 0.4 GB/s through it. A file system that does
//! not know how to is written to as usual.

use std::{fs::File, io, os::unix::fs::FileExt};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// What every disk is content with: of where a write begins, how long it is, and where it lies in memory.
const STEP: usize = 4096;

/// A file that is written to from the beginning to the end.
#[derive(Debug)]
pub struct DirectFile<'a> {
    file: &'a File,
    is_direct: bool,
}

impl<'a> DirectFile<'a> {
    pub fn of(file: &'a File) -> DirectFile<'a> {
        DirectFile { file, is_direct: set_direct(file, true).is_ok() }
    }

    pub fn write_all_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let fits = self.is_direct && at.is_multiple_of(STEP as u64) && bytes.as_ptr().align_offset(STEP) == 0;
        let direct = if fits { bytes.len() - bytes.len() % STEP } else { 0 };
        let (direct, rest) = bytes.split_at(direct);
        if !direct.is_empty() {
            match self.file.write_all_at(direct, at) {
                // It said that it could and cannot.
                Err(why) if why.kind() == io::ErrorKind::InvalidInput => {
                    self.end()?;
                    self.file.write_all_at(direct, at)?;
                }
                written => written?,
            }
        }
        if !rest.is_empty() {
            self.end()?;
            self.file.write_all_at(rest, at + direct.len() as u64)?;
        }
        Ok(())
    }

    /// From here on it is a file like any other.
    pub fn end(&mut self) -> io::Result<()> {
        if self.is_direct {
            set_direct(self.file, false)?;
            self.is_direct = false;
        }
        Ok(())
    }
}

fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

/// Bytes that are put together before they are written, in a place in memory that a disk can take them from.
#[derive(Debug)]
pub struct Block {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    capacity: usize,
}

impl Block {
    pub fn of(capacity: usize) -> Block {
        let memory = vec![0; capacity + STEP];
        let start = memory.as_ptr().align_offset(STEP);
        Block { memory, start, length: 0, capacity }
    }

    /// Takes what fits; answers what does not.
    pub fn fill<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (fits, rest) = bytes.split_at(bytes.len().min(self.capacity - self.length));
        let at = self.start + self.length;
        self.memory[at..at + fits.len()].copy_from_slice(fits);
        self.length += fits.len();
        rest
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_full(&self) -> bool {
        self.length == self.capacity
    }

    pub fn clear(&mut self) {
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn pattern(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    /// A file where tests are built, which is a disk, and one in memory, where this cannot be done.
    fn files() -> Vec<File> {
        let mut files = vec![tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap()];
        files.extend(tempfile::tempfile_in("/dev/shm"));
        files
    }

    #[test]
    fn a_file_of_any_length_is_what_was_written() {
        for length in [0, 1, STEP - 1, STEP, 5 * STEP, 8 * STEP, 8 * STEP + 1, 20 * STEP + 17] {
            for file in files() {
                let wanted = pattern(length);
                let (mut block, mut direct) = (Block::of(8 * STEP), DirectFile::of(&file));
                let (mut rest, mut at) = (&wanted[..], 0);
                while !rest.is_empty() {
                    rest = block.fill(rest);
                    assert!(block.is_full() || rest.is_empty());
                    direct.write_all_at(block.bytes(), at).unwrap();
                    at += block.len() as u64;
                    block.clear();
                }
                direct.end().unwrap();
                // Read as any file is, at places that are no multiples of anything.
                let mut found = vec![0; length];
                file.read_exact_at(&mut found, 0).unwrap();
                assert!(found == wanted, "{length}");
                let mut byte = [0];
                assert_eq!((&file).take(1).read(&mut byte).unwrap(), length.min(1));
            }
        }
    }

    #[test]
    fn what_lies_anywhere_in_memory_is_written_too() {
        for file in files() {
            let wanted = pattern(3 * STEP + 5);
            let mut direct = DirectFile::of(&file);
            direct.write_all_at(&wanted[1..], 1).unwrap();
            direct.write_all_at(&wanted[..1], 0).unwrap();
            let mut found = vec![0; wanted.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == wanted);
        }
    }
}
