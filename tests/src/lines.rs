//! What a process says line by line, with an end to waiting for it.

use std::{
    io::{BufRead, BufReader, Read},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

pub struct Lines(Receiver<String>);

impl Lines {
    pub fn of(said: impl Read + Send + 'static) -> Lines {
        let (send, lines) = channel();
        thread::spawn(move || {
            BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Lines(lines)
    }

    /// The next one; none where nothing more comes within this time.
    pub fn next_within(&self, patience: Duration) -> Option<String> {
        self.0.recv_timeout(patience).ok()
    }
}
