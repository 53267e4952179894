//! The log read backwards, a page at a time.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
};

use super::{
    gone,
    place::{FileId, Place},
    question::{Question, Verdict},
    unreadable,
};
use crate::{audit::log::Whereabouts, status::ApiError};

/// Bytes of the log that are looked at for one answer.
pub const SCAN: usize = 8 << 20;
/// Bytes of lines in one answer, unless one alone has more.
pub const ANSWER: usize = 2 << 20;
/// What has no end by then is no line of ours.
pub const LONGEST_LINE: usize = 4 << 20;
const BLOCK: usize = 64 << 10;

/// What was found of the log.
#[derive(Debug)]
pub struct Page {
    /// The newest first.
    pub lines: Vec<Vec<u8>>,
    /// Where there may be more, unless there is not.
    pub next: Option<Place>,
    /// The end of the log when it was looked at: what comes later comes after this.
    pub newest: Place,
}

/// One file of the log.
pub struct Part {
    pub file: File,
    pub id: FileId,
    /// To the end of the last whole line.
    pub size: u64,
}

/// Files with something in them, the newest first, each once although they step aside meanwhile: the files are opened in the
/// direction that they move in, so none is passed by.
pub fn parts(log: &Whereabouts) -> io::Result<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut seen: Vec<(u64, u64)> = Vec::new();
    for n in 0..log.files {
        let file = match log.open(n) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            Err(why) => return Err(why),
        };
        let found = file.metadata()?;
        let inode = (found.dev(), found.ino());
        if seen.contains(&inode) {
            continue;
        }
        seen.push(inode);
        if let Some(id) = FileId::of(&file)? {
            let size = end_of_lines(&file, found.len())?;
            parts.push(Part { file, id, size });
        }
    }
    Ok(parts)
}

/// Where the last whole line ends: what is being written just now may be there by half.
fn end_of_lines(file: &File, size: u64) -> io::Result<u64> {
    let mut buffer = [0; 4096];
    let (mut end, least) = (size, size.saturating_sub(LONGEST_LINE as u64));
    while end > least {
        let start = end.saturating_sub(buffer.len() as u64).max(least);
        let piece = &mut buffer[..usize::try_from(end - start).unwrap_or_default()];
        file.read_exact_at(piece, start)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    // No line of ours is so long: whatever it is, it is passed over as such.
    Ok(if least == 0 { 0 } else { size })
}

/// The end of the newest file that has something in it.
pub fn end(parts: &[Part]) -> Place {
    parts.first().map_or_else(Place::default, |part| Place { file: Some(part.id), offset: part.size })
}

pub fn read(log: &Whereabouts, question: &Question) -> Result<Page, ApiError> {
    let parts = parts(log).map_err(|why| unreadable(&why))?;
    let newest = end(&parts);
    let mut page = Page { lines: Vec::new(), next: None, newest };
    let from = question.before.unwrap_or(newest);
    let Some(file) = from.file else { return Ok(page) };
    let first = parts.iter().position(|part| part.id == file).ok_or_else(|| gone(&from))?;
    if from.offset > parts[first].size {
        return Err(gone(&from));
    }
    let mut room = Room { lines: question.limit, answer: ANSWER, scan: SCAN };
    for (n, part) in parts[first..].iter().enumerate() {
        let end = if n == 0 { from.offset } else { part.size };
        let mut lines = Backwards { file: &part.file, start: end, buffer: Vec::new() };
        while let Some(line) = lines.next_line().map_err(|why| unreadable(&why))? {
            room.scan = room.scan.saturating_sub(line.len() + 1);
            match question.judge(&line) {
                Verdict::TooOld => return Ok(page),
                Verdict::Not => {}
                Verdict::Wanted => {
                    room.lines -= 1;
                    room.answer = room.answer.saturating_sub(line.len());
                    page.lines.push(line);
                }
            }
            if room.is_used_up() {
                let is_last = lines.end() == 0 && first + n + 1 == parts.len();
                page.next = (!is_last).then_some(Place { file: Some(part.id), offset: lines.end() });
                return Ok(page);
            }
        }
    }
    Ok(page)
}

/// What is left of what an answer may take.
struct Room {
    lines: usize,
    answer: usize,
    scan: usize,
}

impl Room {
    fn is_used_up(&self) -> bool {
        self.lines == 0 || self.answer == 0 || self.scan == 0
    }
}

/// The lines of a file, the last one first.
struct Backwards<'a> {
    file: &'a File,
    /// Where in the file the buffer begins.
    start: u64,
    /// Read and not yet handed out. It ends with the end of a line.
    buffer: Vec<u8>,
}

impl Backwards<'_> {
    /// Without its end.
    fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let has_end = self.buffer.last() == Some(&b'\n');
            let text = &self.buffer[..self.buffer.len() - usize::from(has_end)];
            let begins = match memchr::memrchr(b'\n', text) {
                Some(before) => before + 1,
                None if self.start > 0 && text.len() < LONGEST_LINE => {
                    self.read_more()?;
                    continue;
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => 0,
            };
            let line = text[begins..].to_vec();
            self.buffer.truncate(begins);
            return Ok(Some(line));
        }
    }

    /// Up to where there are lines that were not handed out.
    fn end(&self) -> u64 {
        self.start + self.buffer.len() as u64
    }

    fn read_more(&mut self) -> io::Result<()> {
        let size = self.start.min(BLOCK as u64);
        self.start -= size;
        let mut block = vec![0; usize::try_from(size).unwrap_or(BLOCK)];
        self.file.read_exact_at(&mut block, self.start)?;
        block.append(&mut self.buffer);
        self.buffer = block;
        Ok(())
    }
}
