//! The terminal of this process, handed to somebody else for a while.
//!
//! In raw mode every key is passed on as it is: Ctrl-C goes to the guest, not to us. The mode is put back when the
//! guard is dropped, also when what it was for panics; only a process that is killed outright leaves it behind.

use std::{
    io::{self, Read},
    thread,
};

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Pieces of input waiting to be sent: who types faster than that is a program, and waits.
const WAITING: usize = 64;

/// Standard input in raw mode, if it is a terminal.
pub struct RawMode(Option<Termios>);

impl RawMode {
    pub fn enter() -> io::Result<RawMode> {
        let stdin = io::stdin();
        if !isatty(&stdin) {
            return Ok(RawMode(None));
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        Ok(RawMode(Some(before)))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // There is nobody left to tell.
            _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// What is typed, piece by piece. Ends when standard input does.
///
/// Read on a thread of its own that nobody waits for: a read of a terminal cannot be taken back, and must not keep the
/// process from ending.
pub fn typed() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(WAITING);
    thread::spawn(move || {
        let mut buffer = [0; 1024];
        loop {
            match io::stdin().lock().read(&mut buffer) {
                Ok(0) => return,
                Ok(read) => {
                    if send.blocking_send(buffer[..read].to_vec()).is_err() {
                        return;
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    receive
}
