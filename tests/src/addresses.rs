//! Addresses that no other process on this machine uses: nodes share a kernel, and two of them with the same network for
//! their machines would answer for each other.
//!
//! A process takes one /16 by locking a file of its number, and hands out /24s of it. The lock is held by the process and by
//! the watchers that clean up after its nodes (see [`crate::node`]), so it ends when the last trace of its nodes is gone,
//! however the process ended.

use std::{
    env,
    fs::{self, File, OpenOptions},
    sync::{
        OnceLock,
        atomic::{AtomicU8, Ordering},
    },
};

/// The second octets of 10.0.0.0/8 that tests use. Sheaf's own default is not among them.
const SECOND_OCTETS: std::ops::Range<u8> = 64..192;

struct Claimed {
    second: u8,
    lock: File,
}

/// The first three octets of a /24 that nobody else has: `10.64.3`.
pub fn next_prefix() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let third = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(third < u8::MAX, "this process has used all its networks");
    format!("10.{}.{third}", claimed().second)
}

/// A network for the machines of a node: `10.64.3.0/24`.
pub fn next_network() -> String {
    format!("{}.0/24", next_prefix())
}

/// The lock on this process's addresses, for a child that cleans up after it.
pub fn lock() -> File {
    claimed().lock.try_clone().unwrap()
}

fn claimed() -> &'static Claimed {
    static CLAIMED: OnceLock<Claimed> = OnceLock::new();
    CLAIMED.get_or_init(|| {
        let directory = env::temp_dir().join("sheaf-test-addresses");
        fs::create_dir_all(&directory).unwrap();
        for second in SECOND_OCTETS {
            let path = directory.join(second.to_string());
            // One that another user made is theirs.
            let Ok(lock) = OpenOptions::new().create(true).append(true).open(path) else { continue };
            if lock.try_lock().is_ok() {
                return Claimed { second, lock };
            }
        }
        panic!("all networks for tests are taken; see {}", directory.display());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_holds_is_not_given_to_another() {
        let own = next_prefix();
        let second = own.split('.').nth(1).unwrap();
        let path = env::temp_dir().join("sheaf-test-addresses").join(second);
        // Another opening of the file is what another process has.
        let other = OpenOptions::new().append(true).open(&path).unwrap();
        assert!(other.try_lock().is_err(), "{} is not locked", path.display());
        assert_ne!(next_prefix(), own);
    }
}
