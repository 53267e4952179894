//! Slows down guessing: after a few failures each further try must wait, twice as long each time.
//!
//! | what is counted | a try that comes too early |
//! |---|---|
//! | one name tried from one address | is turned away |
//! | one name, from wherever (whether or not anybody has it) | is turned away, unless that name signed in from that address before |
//! | one address, whatever the names | is turned away |
//! | everything together | only takes longer: turning everybody away would let one stranger close the door for all |
//!
//! So strangers who keep failing on purpose do not keep somebody out who comes from where they always do. Who comes from a
//! new address meanwhile has to wait; certificates and tokens are not held up by any of this. An IPv6 address counts with
//! the network of 64 bits it is in, which whoever has one has whole.
//!
//! A try counts as failed from the moment it begins, so that many at once are not free; success takes it back. Memory is
//! bounded, and forgotten at a restart.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    time::Duration,
};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// Of each sort, so many are remembered.
const REMEMBERED: usize = 4096;
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);
/// For so long an address is one that somebody signs in from.
const FAMILIAR_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

const PER_PAIR: Pace = Pace { free: 4, first: Duration::from_secs(1), longest: Duration::from_secs(60) };
const PER_NAME: Pace = Pace { free: 10, first: Duration::from_secs(1), longest: Duration::from_secs(60) };
const PER_ADDRESS: Pace = Pace { free: 40, first: Duration::from_secs(1), longest: Duration::from_secs(60) };
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

/// By hash: a name may be as long as a request.
type Key = [u8; 32];

/// Who is tried, and from where.
pub(super) struct Attempt {
    name: Key,
    pair: Key,
    /// A caller inside the process has none.
    address: Option<Key>,
}

impl Attempt {
    pub(super) fn new(name: &str, from: Option<IpAddr>) -> Self {
        let place = from.map(network).unwrap_or_default();
        let name = Key::from(Sha256::digest(name));
        Attempt {
            name,
            pair: Sha256::new().chain_update(name).chain_update(&place).finalize().into(),
            address: from.is_some().then(|| Sha256::digest(&place).into()),
        }
    }
}

fn network(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => {
            let mut octets = Ipv6Addr::octets(&address).to_vec();
            octets.truncate(8);
            octets
        }
    }
}

/// Failures of one sort, the oldest forgotten first.
#[derive(Default)]
struct Counts(BTreeMap<Key, Failures>);

impl Counts {
    /// How long the next try has to wait.
    fn wait(&self, key: &Key, pace: &Pace, now: Instant) -> Duration {
        match self.seen(key, now) {
            Some(seen) => pace.wait_after(seen.count).saturating_sub(now - seen.last),
            None => Duration::ZERO,
        }
    }

    fn seen(&self, key: &Key, now: Instant) -> Option<Failures> {
        self.0.get(key).copied().filter(|seen| now - seen.last < FORGET_AFTER)
    }

    fn add(&mut self, key: Key, now: Instant) {
        let count = self.seen(&key, now).map_or(0, |seen| seen.count).saturating_add(1);
        self.0.insert(key, Failures { count, last: now });
        if self.0.len() > REMEMBERED {
            let oldest = self.0.iter().min_by_key(|(_, seen)| seen.last).map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
    }

    fn take_back(&mut self, key: &Key) {
        if let Some(seen) = self.0.get_mut(key) {
            seen.count = seen.count.saturating_sub(1);
        }
    }
}

#[derive(Default)]
struct Memory {
    pairs: Counts,
    names: Counts,
    addresses: Counts,
    overall: Option<Failures>,
    /// Pairs that were good, and when.
    familiar: BTreeMap<Key, Instant>,
}

#[derive(Default)]
pub(super) struct Throttle(Mutex<Memory>);

impl Throttle {
    /// Begins a try, which is to be delayed by the time in `Ok`; or turns it away for the time in `Err`.
    pub(super) fn begin(&self, attempt: &Attempt) -> Result<Duration, Duration> {
        let now = Instant::now();
        let mut memory = self.0.lock();
        let is_familiar = memory.familiar.get(&attempt.pair).is_some_and(|last| now - *last < FAMILIAR_FOR);
        let of_pair = memory.pairs.wait(&attempt.pair, &PER_PAIR, now);
        let of_name = match is_familiar {
            true => Duration::ZERO,
            false => memory.names.wait(&attempt.name, &PER_NAME, now),
        };
        let of_address = match &attempt.address {
            // Others behind the same address may be failing.
            Some(address) if !is_familiar => memory.addresses.wait(address, &PER_ADDRESS, now),
            Some(_) | None => Duration::ZERO,
        };
        let wait = of_pair.max(of_name).max(of_address);
        if !wait.is_zero() {
            return Err(wait);
        }
        let overall = memory.overall.map(|seen| recovered(seen, now));
        let count = overall.map_or(0, |seen| seen.count).saturating_add(1);
        memory.overall = Some(Failures { count, last: now });
        memory.pairs.add(attempt.pair, now);
        memory.names.add(attempt.name, now);
        if let Some(address) = attempt.address {
            memory.addresses.add(address, now);
        }
        Ok(OVERALL.wait_after(overall.map_or(0, |seen| seen.count)))
    }

    /// The try that began came to nothing for a reason that is not its own.
    pub(super) fn abandoned(&self, attempt: &Attempt) {
        let mut memory = self.0.lock();
        memory.pairs.take_back(&attempt.pair);
        memory.taken_back(attempt);
    }

    /// The try that began was a good one.
    pub(super) fn succeeded(&self, attempt: &Attempt) {
        let mut memory = self.0.lock();
        memory.pairs.0.remove(&attempt.pair);
        // What others failed at from elsewhere stays: it was not this one.
        memory.taken_back(attempt);
        memory.familiar.insert(attempt.pair, Instant::now());
        if memory.familiar.len() > REMEMBERED {
            let oldest = memory.familiar.iter().min_by_key(|(_, last)| **last).map(|(key, _)| *key);
            oldest.and_then(|key| memory.familiar.remove(&key));
        }
    }
}

impl Memory {
    fn taken_back(&mut self, attempt: &Attempt) {
        self.names.take_back(&attempt.name);
        if let Some(address) = &attempt.address {
            self.addresses.take_back(address);
        }
        if let Some(overall) = &mut self.overall {
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

    fn at(name: &str, address: &str) -> Attempt {
        Attempt::new(name, Some(address.parse().unwrap()))
    }

    fn inside(name: &str) -> Attempt {
        Attempt::new(name, None)
    }

    #[tokio::test(start_paused = true)]
    async fn each_further_failure_doubles_the_wait_up_to_a_minute() {
        let throttle = Throttle::default();
        let mut waits = Vec::new();
        for _ in 0..14 {
            match throttle.begin(&inside("jo")) {
                Ok(delay) => waits.push(delay.as_secs()),
                Err(wait) => {
                    waits.push(wait.as_secs());
                    tokio::time::sleep(wait).await;
                    throttle.begin(&inside("jo")).unwrap();
                }
            }
        }
        assert_eq!(waits, [0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[tokio::test(start_paused = true)]
    async fn asking_again_too_early_does_not_make_the_wait_longer() {
        let throttle = Throttle::default();
        while throttle.begin(&inside("jo")).is_ok() {}
        let wait = throttle.begin(&inside("jo")).unwrap_err();
        for _ in 0..100 {
            assert_eq!(throttle.begin(&inside("jo")), Err(wait));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_name_under_attack_does_not_hold_up_another() {
        let throttle = Throttle::default();
        while throttle.begin(&at("jo", "192.0.2.1")).is_ok() {}
        assert_eq!(throttle.begin(&at("kim", "192.0.2.1")), Ok(Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_do_not_lock_out_who_comes_from_where_they_always_do() {
        let throttle = Throttle::default();
        let home = at("jo", "192.0.2.1");
        throttle.begin(&home).unwrap();
        throttle.succeeded(&home);
        // A host of strangers, each from an address of its own, for an hour.
        for n in 0..3600_u32 {
            let _ = throttle.begin(&at("jo", &format!("198.51.{}.{}", n / 250, n % 250)));
            tokio::time::sleep(Duration::from_secs(1)).await;
            if n % 60 == 0 {
                assert!(throttle.begin(&home).is_ok(), "{n}");
                throttle.succeeded(&home);
            }
        }
        assert!(throttle.begin(&at("jo", "203.0.113.9")).is_err(), "but strangers are held up together");
    }

    #[tokio::test(start_paused = true)]
    async fn a_familiar_address_may_not_guess_for_ever_either() {
        let throttle = Throttle::default();
        let home = at("jo", "192.0.2.1");
        throttle.begin(&home).unwrap();
        throttle.succeeded(&home);
        let guesses = (0..100).take_while(|_| throttle.begin(&home).is_ok()).count();
        assert_eq!(guesses, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_guess_one_name_no_faster_than_a_few() {
        let throttle = Throttle::default();
        let begun = |n: u32| throttle.begin(&at("jo", &format!("198.51.{}.{}", n / 250, n % 250))).is_ok();
        assert_eq!((0..1000).filter(|n| begun(*n)).count(), 11);
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_does_not_go_through_many_names() {
        let throttle = Throttle::default();
        let begun = |n: u32, address: &str| throttle.begin(&at(&format!("user{n}"), address)).is_ok();
        assert_eq!((0..1000).filter(|n| begun(*n, "192.0.2.1")).count(), 41);
        assert!(begun(1, "192.0.2.2"), "and others are not held up by it");
        // All addresses of one network are one.
        let network = (0..1000).filter(|n| begun(2000 + n, &format!("2001:db8::{n:x}"))).count();
        assert_eq!(network, 41);
        assert!(!begun(1, "::ffff:192.0.2.1"), "however it is written");
    }

    #[tokio::test(start_paused = true)]
    async fn going_through_many_names_is_slowed_down_too_and_memory_is_bounded() {
        let throttle = Throttle::default();
        let delays: Vec<Duration> = (0..REMEMBERED + 200)
            .map(|number| throttle.begin(&inside(&format!("user{number}"))).unwrap())
            .collect();
        assert_eq!(delays[50], Duration::ZERO);
        assert_eq!(delays[51], Duration::from_millis(100));
        assert_eq!(delays[REMEMBERED], Duration::from_secs(2));
        let memory = throttle.0.lock();
        assert_eq!((memory.names.0.len(), memory.pairs.0.len()), (REMEMBERED, REMEMBERED));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_of_those_who_signed_in_is_bounded() {
        let throttle = Throttle::default();
        for number in 0..REMEMBERED + 10 {
            let attempt = inside(&format!("user{number}"));
            throttle.begin(&attempt).unwrap();
            throttle.succeeded(&attempt);
        }
        assert_eq!(throttle.0.lock().familiar.len(), REMEMBERED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_was_never_judged_does_not_count() {
        let throttle = Throttle::default();
        for _ in 0..100 {
            assert_eq!(throttle.begin(&at("jo", "192.0.2.1")), Ok(Duration::ZERO));
            throttle.abandoned(&at("jo", "192.0.2.1"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn success_and_time_make_all_forgotten() {
        let throttle = Throttle::default();
        let jo = inside("jo");
        for _ in 0..4 {
            throttle.begin(&jo).unwrap();
        }
        throttle.succeeded(&jo);
        for _ in 0..5 {
            throttle.begin(&jo).unwrap();
        }
        assert!(throttle.begin(&jo).is_err());
        tokio::time::sleep(FORGET_AFTER).await;
        for _ in 0..5 {
            throttle.begin(&jo).unwrap();
        }
    }
}
