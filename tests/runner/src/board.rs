//! What runs at this moment, for a line of progress now and then: a suite that takes minutes should not be silent.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

#[derive(Debug, Default)]
pub struct Board(Mutex<BTreeMap<String, String>>);

impl Board {
    /// Notes what a job is at: how many tests it has done, and which it has been at for longest.
    pub fn set(&self, job: &str, done: usize, running: &BTreeMap<String, Instant>) {
        let oldest = running.iter().min_by_key(|(_, since)| **since);
        let at = oldest.map(|(test, since)| format!(", {test} for {} s", since.elapsed().as_secs()));
        let text = format!("{job}: {done} done{}", at.unwrap_or_default());
        self.jobs().insert(job.to_owned(), text);
    }

    pub fn remove(&self, job: &str) {
        self.jobs().remove(job);
    }

    pub fn told(&self) -> String {
        self.jobs().values().map(|text| format!("       {text}\n")).collect()
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_test_that_runs_for_longest_is_named() {
        let board = Board::default();
        let now = Instant::now();
        let running =
            BTreeMap::from([("new".to_owned(), now), ("old".to_owned(), now - Duration::from_secs(60))]);
        board.set("machines", 3, &running);
        assert_eq!(board.told(), "       machines: 3 done, old for 60 s\n");
        board.remove("machines");
        assert_eq!(board.told(), "");
    }
}
