//! Passwords: hashed with argon2id, compared, and checked for being any good.
//!
//! Hashing is slow and hungry on purpose (19 MiB each), so at most two run at once and a bounded number wait:
//! a flood of logins costs the server a fixed amount of memory. Where threads would spoil a simulation's
//! order, hashing happens in place.

use argon2::{
    Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version, password_hash::phc::PasswordHash,
};
use sheaf_world::Chance;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
const SALT_BYTES: usize = 16;
/// A stored hash may ask for other costs than ours, but not for the whole machine.
const MOST_MEMORY_KIB: u32 = 256 * 1024;
const RUNNING: usize = 2;
const WAITING: usize = 64;

pub const MIN_CHARACTERS: usize = 12;
const MAX_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum PasswordError {
    #[error("too many passwords are being checked: try again in a moment")]
    Busy,
    #[error("the stored password hash cannot be used")]
    BadHash,
    #[error("the password cannot be hashed")]
    HashingFailed,
}

#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum WeakPassword {
    #[error("Password must be at least {MIN_CHARACTERS} characters")]
    TooShort,
    #[error("Password must be at most {MAX_BYTES} bytes")]
    TooLong,
    #[error("Password cannot be the same as username")]
    SameAsUsername,
    #[error("Password cannot be the same as the current one")]
    SameAsCurrent,
}

#[derive(Debug)]
pub struct Passwords {
    chance: Chance,
    running: Semaphore,
    waiting: Semaphore,
    on_threads: bool,
}

/// What a person may choose.
pub fn check_strength(username: &str, password: &str) -> Result<(), WeakPassword> {
    if password.eq_ignore_ascii_case(username) {
        return Err(WeakPassword::SameAsUsername);
    }
    if password.chars().count() < MIN_CHARACTERS {
        return Err(WeakPassword::TooShort);
    }
    if password.len() > MAX_BYTES {
        return Err(WeakPassword::TooLong);
    }
    Ok(())
}

impl Passwords {
    /// `on_threads`: hash beside the runtime (a server), not in it (a simulation).
    pub fn new(chance: Chance, on_threads: bool) -> Self {
        Passwords { chance, running: Semaphore::new(RUNNING), waiting: Semaphore::new(WAITING), on_threads }
    }

    /// A PHC string with its own salt.
    pub async fn hash(&self, password: &str) -> Result<String, PasswordError> {
        let salt: [u8; SALT_BYTES] = self.chance.bytes();
        self.work(password, move |password| hash_with_salt(password, &salt)).await
    }

    pub async fn verify(&self, password: &str, phc: &str) -> Result<bool, PasswordError> {
        let phc = phc.to_owned();
        self.work(password, move |password| {
            let hash = PasswordHash::new(&phc).map_err(|_| PasswordError::BadHash)?;
            let params = Params::try_from(&hash).map_err(|_| PasswordError::BadHash)?;
            if hash.algorithm.as_str() != "argon2id" || params.m_cost() > MOST_MEMORY_KIB {
                return Err(PasswordError::BadHash);
            }
            Ok(argon2()?.verify_password(password.as_bytes(), &hash).is_ok())
        })
        .await
    }

    /// Takes as long as [`verify`](Passwords::verify) of a wrong password, for a user there is none of: the
    /// time of an answer must not tell who exists.
    pub async fn verify_nobody(&self, password: &str) -> Result<(), PasswordError> {
        self.work(password, |password| hash_with_salt(password, &[0; SALT_BYTES]).map(|_| ())).await
    }

    async fn work<T: Send + 'static>(
        &self,
        password: &str,
        job: impl FnOnce(&str) -> Result<T, PasswordError> + Send + 'static,
    ) -> Result<T, PasswordError> {
        let _place = self.waiting.try_acquire().map_err(|_| PasswordError::Busy)?;
        let _turn = self.running.acquire().await.map_err(|_| PasswordError::Busy)?;
        if !self.on_threads {
            return job(password);
        }
        let password = Zeroizing::new(password.to_owned());
        tokio::task::spawn_blocking(move || job(&password)).await.map_err(|_| PasswordError::HashingFailed)?
    }
}

fn hash_with_salt(password: &str, salt: &[u8]) -> Result<String, PasswordError> {
    let hash: PasswordHash = argon2()?
        .hash_password_with_salt(password.as_bytes(), salt)
        .map_err(|_| PasswordError::HashingFailed)?;
    Ok(hash.to_string())
}

fn argon2() -> Result<Argon2<'static>, PasswordError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|_| PasswordError::HashingFailed)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_itself_verifies() {
        let passwords = Passwords::new(Chance::system(), true);
        let hash = passwords.hash("correct horse").await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert_eq!(passwords.verify("correct horse", &hash).await, Ok(true));
        assert_eq!(passwords.verify("correct hors", &hash).await, Ok(false));
        assert_eq!(passwords.verify("", &hash).await, Ok(false));
    }

    #[tokio::test]
    async fn one_password_is_never_hashed_alike_twice() {
        let passwords = Passwords::new(Chance::system(), false);
        assert_ne!(passwords.hash("x").await, passwords.hash("x").await);
    }

    #[tokio::test]
    async fn a_hash_that_asks_for_the_whole_machine_or_another_algorithm_is_refused() {
        let passwords = Passwords::new(Chance::system(), false);
        let hash = passwords.hash("x").await.unwrap();
        for bad in [
            hash.replace("m=19456", "m=4000000000"),
            hash.replace("m=19456", "m=300000"),
            hash.replace("argon2id", "argon2i"),
            hash.replace("$argon2id", "$pbkdf2-sha256"),
            "plain".to_owned(),
            String::new(),
        ] {
            assert_eq!(passwords.verify("x", &bad).await, Err(PasswordError::BadHash), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_flood_of_logins_is_turned_away_instead_of_eating_memory() {
        let passwords = Passwords::new(Chance::system(), true);
        let _taken = passwords.running.acquire_many(2).await.unwrap();
        let waiting = passwords.waiting.acquire_many(WAITING as u32).await.unwrap();
        assert_eq!(passwords.hash("x").await, Err(PasswordError::Busy));
        drop(waiting);
    }

    #[test]
    fn a_weak_password_is_refused_with_the_reason() {
        assert_eq!(check_strength("jo", "short"), Err(WeakPassword::TooShort));
        assert_eq!(check_strength("administrator", "Administrator"), Err(WeakPassword::SameAsUsername));
        assert_eq!(check_strength("jo", &"x".repeat(257)), Err(WeakPassword::TooLong));
        assert_eq!(check_strength("jo", "zwölf Zeichen"), Ok(()));
    }
}
