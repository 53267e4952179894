//! What a person sees while something takes long: a bar with its rate and the time left on a terminal, a line now and then
//! elsewhere.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{BinaryBytes, HumanDuration, ProgressBar, ProgressState, ProgressStyle};

/// Bytes are told in these where there is no bar.
const MIB: u64 = 1 << 20;
const TURNS_EVERY: Duration = Duration::from_millis(120);
/// On a terminal of 80 columns what is done is cut short, and nothing else.
const BAR: &str = "  {wide_msg} {bar:16} {percent:>3} % of {binary_total_bytes}{pace}";
const SPINNER: &str = "  {spinner} {wide_msg}";

/// A line on standard error.
pub struct Progress {
    /// On a terminal.
    bar: Option<ProgressBar>,
    /// What is on the line, or was written last.
    shown: String,
    /// Tenths that were told, where lines cannot be changed.
    told: Option<u64>,
}

impl Progress {
    pub fn on_stderr() -> Progress {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::no_length().with_style(style(SPINNER)));
        Progress { bar, shown: String::new(), told: None }
    }

    /// Something new has begun, or stands otherwise than before.
    pub fn say(&mut self, text: &str) {
        if text == self.shown {
            return;
        }
        self.shown = text.to_owned();
        self.told = None;
        match &self.bar {
            Some(bar) => {
                bar.set_style(style(SPINNER));
                bar.set_message(plain(text));
                bar.enable_steady_tick(TURNS_EVERY);
            }
            None => put(&format!("  {text}\n")),
        }
    }

    /// So many bytes of so many.
    pub fn count(&mut self, what: &str, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if self.shown != what {
                self.shown = what.to_owned();
                bar.disable_steady_tick();
                bar.reset();
                bar.set_position(done);
                // What was there before is not what this line brings in a second.
                bar.reset_eta();
                bar.set_length(total);
                bar.set_message(plain(what));
                bar.set_style(style(BAR).progress_chars("=> ").with_key("pace", pace));
            }
            bar.set_length(total);
            bar.set_position(done);
            return;
        }
        let tenth = done.saturating_mul(10).checked_div(total).unwrap_or(10);
        let text = of_bytes(what, done, total);
        if self.told == Some(tenth) || text == self.shown {
            return;
        }
        self.told = Some(tenth);
        put(&format!("  {text}\n"));
        self.shown = text;
    }

    /// The line is taken away, and this stands in its place.
    pub fn done(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => {
                bar.finish_and_clear();
                put(&format!("  {text}\n"));
            }
            None => put(&format!("  {text}\n")),
        }
        self.shown.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // What is written next, an error perhaps, has a line of its own.
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates stand above, and a test reads them.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// How fast it goes and how long it will take, from when that is known.
fn pace(state: &ProgressState, line: &mut dyn fmt::Write) {
    let rate = state.per_sec();
    if rate >= 1.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "bytes in a second, at least one"
        )]
        let rate = BinaryBytes(rate as u64);
        _ = write!(line, ", {rate}/s, {:#} left", HumanDuration(state.eta()));
    }
}

/// What others wrote must not move the cursor.
fn plain(text: &str) -> String {
    crate::asking::table::plain(text)
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

    #[test]
    fn the_templates_can_be_read() {
        for template in [BAR, SPINNER] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
