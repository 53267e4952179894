//! The log as it is written: one watch, which pulls from the files and is woken when there is more in them.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    sync::Arc,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, watch::Receiver},
    time::{Instant, sleep_until},
};

use super::{
    gone,
    pages::{self, LONGEST_LINE, Part},
    place::{FileId, Place},
    question::{Question, Verdict},
    unreadable,
};
use crate::{ApiServer, audit::Log, status::ApiError};

/// Bytes that are read before the connection is served again.
const PIECE: usize = 64 << 10;
/// A page that hears nothing for much longer knows that its connection is gone.
const BOOKMARK_EVERY: Duration = Duration::from_secs(10);

pub struct Follower {
    log: Arc<Log>,
    question: Question,
    written: Receiver<u64>,
    stopping: Receiver<bool>,
    deadline: Instant,
    next_bookmark: Instant,
    /// The file that is being read, from when there is one with a line in it.
    reading: Option<Reading>,
    over: bool,
    _room: OwnedSemaphorePermit,
}

struct Reading {
    part: Part,
    offset: u64,
    /// It has stepped aside: nothing is written to it any more.
    is_done: bool,
}

impl Follower {
    pub fn new(
        server: &ApiServer,
        log: &Arc<Log>,
        question: Question,
        timeout: Duration,
        room: OwnedSemaphorePermit,
    ) -> Result<Self, ApiError> {
        // Before the look at the files: what is written in between wakes.
        let written = log.written();
        let mut parts = pages::parts(log.whereabouts()).map_err(|why| unreadable(&why))?;
        let from = question.after.unwrap_or_else(|| pages::end(&parts));
        let reading = match from.file {
            Some(file) => {
                let n = parts.iter().position(|part| part.id == file).ok_or_else(|| gone(&from))?;
                if from.offset > parts[n].size {
                    return Err(gone(&from));
                }
                Some(Reading { part: parts.swap_remove(n), offset: from.offset, is_done: false })
            }
            None => parts.pop().map(|part| Reading { part, offset: 0, is_done: false }),
        };
        let now = Instant::now();
        Ok(Follower {
            log: log.clone(),
            question,
            written,
            stopping: server.stopping.subscribe(),
            deadline: now + timeout,
            // At once, so that it is heard that the watch is there.
            next_bookmark: now,
            reading,
            over: false,
            _room: room,
        })
    }

    /// The next bytes to send; `None` ends the watch.
    pub async fn next_piece(&mut self) -> Option<Bytes> {
        loop {
            if self.over {
                return None;
            }
            self.written.mark_unchanged();
            let mut out = BytesMut::new();
            let went_on = match self.pull(&mut out) {
                Ok(went_on) => went_on,
                Err(why) => {
                    push(&mut out, "ERROR", &why.to_bytes());
                    self.over = true;
                    return Some(out.freeze());
                }
            };
            if Instant::now() >= self.next_bookmark {
                self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                let place = json!({
                    "kind": "Event", "apiVersion": "audit.k8s.io/v1",
                    "metadata": {"resourceVersion": self.place().to_string()},
                });
                push(&mut out, "BOOKMARK", place.to_string().as_bytes());
            }
            if !out.is_empty() {
                return Some(out.freeze());
            }
            if !went_on && !self.wait().await {
                return None;
            }
            // Much that nobody asked for is no reason to keep others from the thread.
            tokio::task::yield_now().await;
        }
    }

    fn place(&self) -> Place {
        self.reading.as_ref().map_or_else(Place::default, |reading| Place {
            file: Some(reading.part.id),
            offset: reading.offset,
        })
    }

    /// Reads what there is, one piece of it. False when there is nothing.
    fn pull(&mut self, out: &mut BytesMut) -> Result<bool, ApiError> {
        let Some(reading) = &mut self.reading else {
            let mut parts = pages::parts(self.log.whereabouts()).map_err(|why| unreadable(&why))?;
            self.reading = parts.pop().map(|part| Reading { part, offset: 0, is_done: false });
            return Ok(self.reading.is_some());
        };
        let lines = whole_lines(&reading.part.file, reading.offset).map_err(|why| unreadable(&why))?;
        if lines.is_empty() {
            return self.turn_over();
        }
        reading.offset += lines.len() as u64;
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match self.question.judge(line) {
                Verdict::Wanted => push(out, "ADDED", line),
                Verdict::Not | Verdict::TooOld => {}
            }
        }
        Ok(true)
    }

    /// Goes on to the next file, if this one is at its end.
    fn turn_over(&mut self) -> Result<bool, ApiError> {
        let place = self.place();
        let Some(reading) = &mut self.reading else { return Ok(false) };
        let own = reading.part.file.metadata().map_err(|why| unreadable(&why))?;
        let is_newest = match self.log.whereabouts().metadata() {
            Ok(newest) => (newest.dev(), newest.ino()) == (own.dev(), own.ino()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => true,
            Err(why) => return Err(unreadable(&why)),
        };
        if is_newest {
            return Ok(false);
        }
        // What was written to it between the look at its end and its stepping aside is still to be read.
        if !reading.is_done {
            reading.is_done = true;
            return Ok(true);
        }
        let mut parts = pages::parts(self.log.whereabouts()).map_err(|why| unreadable(&why))?;
        let is_here = |id: FileId| Some(id) == place.file;
        match parts.iter().position(|part| is_here(part.id)) {
            // The next one has no line yet.
            Some(0) => Ok(false),
            Some(n) => {
                self.reading = Some(Reading { part: parts.swap_remove(n - 1), offset: 0, is_done: false });
                Ok(true)
            }
            None => Err(gone(&place)),
        }
    }

    /// Waits for something to look at; false when the watch is over.
    async fn wait(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|stopping| *stopping) => false,
            () = sleep_until(self.deadline) => false,
            written = self.written.changed() => written.is_ok(),
            () = sleep_until(self.next_bookmark) => true,
        }
    }
}

/// From `offset` on, as many as fit into a piece, or one that is longer.
fn whole_lines(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut size = PIECE;
    loop {
        let mut piece = vec![0; size];
        let read = match file.read_at(&mut piece, offset) {
            Ok(read) => read,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        piece.truncate(read);
        match memchr::memrchr(b'\n', &piece) {
            Some(last) => piece.truncate(last + 1),
            None if read < size => piece.clear(),
            None if size < LONGEST_LINE => {
                size *= 2;
                continue;
            }
            // No line of ours is so long; what it is is passed over.
            None => {}
        }
        return Ok(piece);
    }
}

fn push(out: &mut BytesMut, event: &str, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
}
