//! Slows down guessing: after a few failures each further try must wait, twice as long each time.
//!
//! One count per name tried (whether or not anybody has it): a try that comes too early is turned away. One
//! for all names together, against those who go through many: it only delays, since turning everybody away
//! would let one stranger close the door for all. A try counts as failed from the moment it begins, so that
//! many at once are not free; success takes it back. Memory is bounded, and forgotten at a restart.
//!
//! Somebody who keeps failing on purpose can keep a name from logging in by password. Certificates and tokens
//! are not held up by that.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

const NAMES: usize = 4096;
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);

const PER_NAME: Pace = Pace { free: 4, first: Duration::from_secs(1), longest: Duration::from_secs(60) };
const OVERALL: Pace = Pace { free: 50, first: Duration::from_millis(100), longest: Duration::from_secs(2) };
/// One overall failure is forgotten in each such time.
const OVERALL_RECOVERY: Duration = Duration::from_secs(1);

struct Pace {
    free: u32,
    first: Duration,
    longest: Duration,
}

impl Pace {
    fn wait_after(&self, failures: u32) -> Duration {
        match failures.checked_sub(self.free) {
            None | Some(0) => Duration::ZERO,
            Some(over) => self.first.saturating_mul(1 << (over - 1).min(20)).min(self.longest),
        }
    }
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

#[derive(Default)]
struct Memory {
    /// By hash: a name may be as long as a request.
    names: BTreeMap<[u8; 32], Failures>,
    overall: Option<Failures>,
}

#[derive(Default)]
pub(super) struct Throttle(Mutex<Memory>);

impl Throttle {
    /// Begins a try, which is to be delayed by the time in `Ok`; or turns it away for the time in `Err`.
    pub(super) fn begin(&self, name: &str) -> Result<Duration, Duration> {
        let now = Instant::now();
        let key = Sha256::digest(name).into();
        let mut memory = self.0.lock();
        let of_name = memory.names.get(&key).copied().filter(|seen| now - seen.last < FORGET_AFTER);
        let overall = memory.overall.map(|seen| recovered(seen, now));
        if let Some(seen) = of_name {
            let wait = PER_NAME.wait_after(seen.count).saturating_sub(now - seen.last);
            if !wait.is_zero() {
                return Err(wait);
            }
        }
        let one_more = |seen: Option<Failures>| Failures {
            count: seen.map_or(0, |seen| seen.count).saturating_add(1),
            last: now,
        };
        memory.overall = Some(one_more(overall));
        memory.names.insert(key, one_more(of_name));
        if memory.names.len() > NAMES {
            let oldest = memory.names.iter().min_by_key(|(_, seen)| seen.last).map(|(key, _)| *key);
            oldest.and_then(|key| memory.names.remove(&key));
        }
        Ok(OVERALL.wait_after(overall.map_or(0, |seen| seen.count)))
    }

    /// The try that began came to nothing for a reason that is not its own.
    pub(super) fn abandoned(&self, name: &str) {
        let mut memory = self.0.lock();
        let key = <[u8; 32]>::from(Sha256::digest(name));
        if let Some(failures) = memory.names.get_mut(&key) {
            failures.count = failures.count.saturating_sub(1);
        }
        if let Some(overall) = &mut memory.overall {
            overall.count = overall.count.saturating_sub(1);
        }
    }

    /// The try that began was a good one.
    pub(super) fn succeeded(&self, name: &str) {
        let mut memory = self.0.lock();
        memory.names.remove(&<[u8; 32]>::from(Sha256::digest(name)));
        if let Some(overall) = &mut memory.overall {
            overall.count = overall.count.saturating_sub(1);
        }
    }
}

fn recovered(seen: Failures, now: Instant) -> Failures {
    let forgiven = (now - seen.last).as_secs() / OVERALL_RECOVERY.as_secs();
    let forgiven = u32::try_from(forgiven).unwrap_or(u32::MAX);
    // The remainder of a second is lost to the forgetting; it errs on the slow side.
    Failures { count: seen.count.saturating_sub(forgiven), ..seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_further_failure_doubles_the_wait_up_to_a_minute() {
        let throttle = Throttle::default();
        let mut waits = Vec::new();
        for _ in 0..14 {
            match throttle.begin("jo") {
                Ok(delay) => waits.push(delay.as_secs()),
                Err(wait) => {
                    waits.push(wait.as_secs());
                    tokio::time::sleep(wait).await;
                    throttle.begin("jo").unwrap();
                }
            }
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn asking_again_too_early_does_not_make_the_wait_longer() {
        let throttle = Throttle::default();
        while throttle.begin("jo").is_ok() {}
        let wait = throttle.begin("jo").unwrap_err();
        for _ in 0..100 {
            assert_eq!(throttle.begin("jo"), Err(wait));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_name_under_attack_does_not_hold_up_another() {
        let throttle = Throttle::default();
        while throttle.begin("jo").is_ok() {}
        assert_eq!(throttle.begin("kim"), Ok(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn going_through_many_names_is_slowed_down_too_and_memory_is_bounded() {
        let throttle = Throttle::default();
        let delays: Vec<Duration> =
            (0..NAMES + 200).map(|number| throttle.begin(&format!("user{number}")).unwrap()).collect();
        assert_eq!(delays[50], Duration::ZERO);
        assert_eq!(delays[51], Duration::from_millis(100));
        assert_eq!(delays[NAMES], Duration::from_secs(2));
        assert_eq!(throttle.0.lock().names.len(), NAMES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_was_never_judged_does_not_count() {
        let throttle = Throttle::default();
        for _ in 0..100 {
            assert_eq!(throttle.begin("jo"), Ok(Duration::ZERO));
            throttle.abandoned("jo");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn success_and_time_make_all_forgotten() {
        let throttle = Throttle::default();
        for _ in 0..4 {
            throttle.begin("jo").unwrap();
        }
        throttle.succeeded("jo");
        for _ in 0..5 {
            throttle.begin("jo").unwrap();
        }
        assert!(throttle.begin("jo").is_err());
        tokio::time::sleep(FORGET_AFTER).await;
        for _ in 0..5 {
            throttle.begin("jo").unwrap();
        }
    }
}
