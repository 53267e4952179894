//! What a person sees while something takes long: one line that changes on a terminal, a line now and then elsewhere.

use std::io::{self, IsTerminal, Write};

/// Bytes are shown in these.
const MIB: u64 = 1 << 20;

/// A line on standard error.
pub struct Progress {
    on_a_terminal: bool,
    /// What is on the line, or was written last.
    shown: String,
    /// Tenths that were told, where lines cannot be changed.
    told: Option<u64>,
}

impl Progress {
    pub fn on_stderr() -> Progress {
        Progress { on_a_terminal: io::stderr().is_terminal(), shown: String::new(), told: None }
    }

    /// Something new has begun, or stands otherwise than before.
    pub fn say(&mut self, text: &str) {
        if text == self.shown {
            return;
        }
        self.write(text);
        self.told = None;
    }

    /// So many bytes of so many.
    pub fn count(&mut self, what: &str, done: u64, total: u64) {
        let tenth = done.saturating_mul(10).checked_div(total).unwrap_or(10);
        if !self.on_a_terminal && self.told == Some(tenth) {
            return;
        }
        self.told = Some(tenth);
        let text = of_bytes(what, done, total);
        if text != self.shown {
            self.write(&text);
        }
    }

    /// Leaves the line as it is and begins another.
    pub fn done(&mut self, text: &str) {
        self.say(text);
        if self.on_a_terminal {
            put("\n");
        }
        self.shown.clear();
    }

    fn write(&mut self, text: &str) {
        self.shown = text.to_owned();
        match self.on_a_terminal {
            // Back to the beginning, and nothing of the longer line before stays.
            true => put(&format!("\r\x1b[K  {text}")),
            false => put(&format!("  {text}\n")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // What is written next, an error perhaps, has a line of its own.
        if self.on_a_terminal && !self.shown.is_empty() {
            put("\n");
        }
    }
}

fn put(text: &str) {
    let mut stderr = io::stderr().lock();
    // Whoever closed our standard error does not want to know.
    _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn of_bytes(what: &str, done: u64, total: u64) -> String {
    let hundredths = done.saturating_mul(100).checked_div(total).unwrap_or(100);
    format!("{what}: {} of {} MiB ({hundredths} %)", done / MIB, total.div_ceil(MIB))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_whole_mebibytes_and_hundredths() {
        assert_eq!(of_bytes("uploading a", 0, 300 * MIB), "uploading a: 0 of 300 MiB (0 %)");
        assert_eq!(of_bytes("uploading a", 150 * MIB, 300 * MIB), "uploading a: 150 of 300 MiB (50 %)");
        assert_eq!(of_bytes("uploading a", 0, 0), "uploading a: 0 of 0 MiB (100 %)");
    }
}
