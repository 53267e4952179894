//! A terminal with somebody at it: what they type, what they see, and how it is set.
//!
//! Programs are started in it as a login shell is: as the leader of a session whose terminal it is.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    process::{Child, Command},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{
        LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize,
    },
};

use crate::patience;

pub struct Terminal {
    keys: File,
    /// The programs' end. Held, so that there is a terminal while no program is in it.
    theirs: File,
    screen: Receiver<Vec<u8>>,
    unread: String,
    /// Everything that was ever shown.
    all: String,
}

impl Terminal {
    pub fn open() -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
        // Not our own terminal, which a session that has none would make of it.
        let no_ctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
        let mut options = OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, no_ctty);
        let theirs = options.read(true).write(true).open(path).unwrap();
        let keys = File::from(ours);
        let mut shown = keys.try_clone().unwrap();
        let (send, screen) = channel();
        thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = shown.read(&mut piece) {
                if send.send(piece[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { keys, theirs, screen, unread: String::new(), all: String::new() }
    }

    /// Sets it as no program would by itself, so that settings put back are told from settings made up.
    pub fn set_oddly(&self) {
        let mut settings = tcgetattr(&self.theirs).unwrap();
        settings.local_modes.remove(LocalModes::ECHOE);
        settings.special_codes[SpecialCodeIndex::VEOF] = 0x19;
        tcsetattr(&self.theirs, OptionalActions::Now, &settings).unwrap();
    }

    /// Everything that can be set, to be compared.
    pub fn settings(&self) -> String {
        format!("{:?}", tcgetattr(&self.theirs).unwrap())
    }

    /// Whether keys are passed on one by one, as they are, and unseen.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        !modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN)
    }

    /// Starts a program here.
    pub fn run(&self, program: &Path, words: &[&str]) -> Child {
        let end = || self.theirs.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty"]).arg(program).args(words);
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    pub fn types(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    /// Everything that was shown so far.
    pub fn everything(&mut self) -> String {
        while let Ok(piece) = self.screen.recv_timeout(Duration::from_millis(300)) {
            let piece = String::from_utf8_lossy(&piece);
            self.unread += &piece;
            self.all += &piece;
        }
        self.all.clone()
    }

    /// Sets how many columns it has.
    pub fn is_so_wide(&self, columns: u16) {
        let mut size = tcgetwinsize(&self.theirs).unwrap();
        (size.ws_col, size.ws_row) = (columns, 40);
        tcsetwinsize(&self.theirs, size).unwrap();
    }

    /// Waits until `text` is shown.
    #[track_caller]
    pub fn shows(&mut self, text: &str) {
        let found = self.shows_within(text, patience::TOO_LONG);
        assert!(found, "never showed {text:?}, but {:?}", self.unread);
    }

    /// Types again and again until `text` is shown: a guest that is still booting hears nothing.
    #[track_caller]
    pub fn types_until_it_shows(&mut self, keys: &[u8], text: &str) {
        let began = Instant::now();
        self.types(keys);
        while !self.shows_within(text, Duration::from_secs(5)) {
            let patient = began.elapsed() < patience::TOO_LONG_FOR_A_GUEST;
            assert!(patient, "never showed {text:?}, but {:?}", self.unread);
            self.types(keys);
        }
    }

    fn shows_within(&mut self, text: &str, patience: Duration) -> bool {
        let began = Instant::now();
        loop {
            if let Some(at) = self.unread.find(text) {
                self.unread.drain(..at + text.len());
                return true;
            }
            match self.screen.recv_timeout(patience.saturating_sub(began.elapsed())) {
                Ok(piece) => {
                    let piece = String::from_utf8_lossy(&piece);
                    self.unread += &piece;
                    self.all += &piece;
                }
                Err(_) => return false,
            }
        }
    }
}
