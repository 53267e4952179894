//! Dies after a chosen step, for tests that look what the next start makes of it.
//!
//! Every single thing done to the host is a step: the hypervisor's, the network's, the storage's and the agent's
//! own. They are counted together, from the start of the process or from when a file says which is to be the last: a number, a
//! kind (`WriteStatus`), or the first whose kind is not listed (`except WriteStatus SwapRules`).

use std::{
    fmt::Debug,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::process::{Signal, getpid, kill_process};

/// Counts steps, if there is one to die after.
#[derive(Clone)]
pub struct Deaths(Option<Arc<Mutex<Count>>>);

/// The step to die after.
#[derive(Debug)]
enum Last {
    Number(u64),
    FirstOf(String),
    FirstExcept(Vec<String>),
}

impl Last {
    fn parse(text: &str) -> Last {
        let text = text.trim();
        if let Ok(number) = text.parse() {
            return Last::Number(number);
        }
        match text.strip_prefix("except") {
            Some(kinds) => Last::FirstExcept(kinds.split_whitespace().map(str::to_owned).collect()),
            None => Last::FirstOf(text.to_owned()),
        }
    }

    fn is(&self, number: u64, kind: &str) -> bool {
        match self {
            Last::Number(last) => number == *last,
            Last::FirstOf(last) => kind == last,
            Last::FirstExcept(others) => !others.iter().any(|other| other == kind),
        }
    }
}

#[derive(Debug)]
struct Count {
    last: Option<Last>,
    /// Where `last` is to be found; nothing is counted before.
    told_in: Option<PathBuf>,
    taken: u64,
}

impl Count {
    /// Whether this step is the last.
    fn takes(&mut self, step: &impl Debug) -> bool {
        if let Some(file) = &self.told_in
            && self.last.is_none()
        {
            self.last = fs::read_to_string(file).ok().map(|text| Last::parse(&text));
            if self.last.is_some() {
                // Whoever comes next is not told the same.
                _ = fs::remove_file(file);
            }
        }
        let Some(last) = &self.last else { return false };
        self.taken += 1;
        tracing::info!(taken = self.taken, ?step, "took a step");
        last.is(self.taken, &format!("{step:?}"))
    }
}

impl Deaths {
    pub fn new(after: Option<u64>, told_in: Option<PathBuf>) -> Deaths {
        let is_any = after.is_some() || told_in.is_some();
        Deaths(
            is_any.then(|| Arc::new(Mutex::new(Count { last: after.map(Last::Number), told_in, taken: 0 }))),
        )
    }

    /// To be called after each step.
    pub fn hook<S: Debug>(&self) -> impl Fn(S) + Send + Sync + 'static + use<S> {
        let deaths = self.clone();
        move |step| {
            let Some(count) = &deaths.0 else { return };
            if count.lock().unwrap_or_else(PoisonError::into_inner).takes(&step) {
                // As hard as it gets: nothing is flushed, dropped or told.
                _ = kill_process(getpid(), Signal::KILL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_is_a_number_a_kind_or_the_first_of_another_kind() {
        assert!(Last::parse("3\n").is(3, "Any") && !Last::parse("3").is(2, "Any"));
        assert!(Last::parse("WriteNote").is(1, "WriteNote") && !Last::parse("WriteNote").is(1, "Other"));
        let except = Last::parse("except WriteNote SwapRules");
        assert!(except.is(1, "Other") && !except.is(1, "SwapRules"));
        assert!(Last::parse("except ").is(1, "Any"), "the first of all");
    }
}
