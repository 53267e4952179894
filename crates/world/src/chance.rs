//! Random bytes, uuids and name suffixes, from the kernel or from a seed.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;
use rand::{RngCore, SeedableRng, rngs::StdRng};

/// The letters Kubernetes uses for generated name suffixes: no vowels, so no
/// words, and none of the look-alikes 0, 1, 3.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// Draws random values. The system source is fit for keys and passwords.
#[derive(Clone)]
pub struct Chance(Source);

#[derive(Clone)]
enum Source {
    System,
    Seeded(Arc<Mutex<StdRng>>),
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Chance::System",
            Source::Seeded(_) => "Chance::Seeded",
        })
    }
}

impl Chance {
    pub fn system() -> Self {
        Chance(Source::System)
    }

    pub fn seeded(seed: u64) -> Self {
        Chance(Source::Seeded(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))))
    }

    pub fn fill(&self, out: &mut [u8]) {
        match &self.0 {
            // The kernel's source fails only when there is none at all; a server that
            // cannot draw keys must not go on.
            Source::System => getrandom::fill(out).expect("the kernel gives random bytes"),
            Source::Seeded(rng) => rng.lock().fill_bytes(out),
        }
    }

    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// Uniform in `0..below` (rejection sampling, no modulo bias). `below` must not be 0.
    pub fn below(&self, below: u64) -> u64 {
        assert!(below > 0, "a draw needs at least one outcome");
        let zone = u64::MAX - u64::MAX % below;
        loop {
            let draw = u64::from_le_bytes(self.bytes());
            if draw < zone {
                return draw % below;
            }
        }
    }

    /// A version 4 uuid in its usual spelling.
    pub fn uuid(&self) -> String {
        let mut b: [u8; 16] = self.bytes();
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        let hex: String = b.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// What `generateName` appends.
    pub fn name_suffix(&self) -> String {
        self.letters(SUFFIX_LENGTH)
    }

    /// A word of `length` lower-case letters and digits, for tokens and passwords:
    /// about 4.75 bits each.
    pub fn letters(&self, length: usize) -> String {
        (0..length)
            .map(|_| SUFFIX_LETTERS[self.below(SUFFIX_LETTERS.len() as u64) as usize] as char)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (a, b, c) = (Chance::seeded(7), Chance::seeded(7), Chance::seeded(8));
        let first: Vec<_> = (0..10).map(|_| a.uuid()).collect();
        assert_eq!(first, (0..10).map(|_| b.uuid()).collect::<Vec<_>>());
        assert_ne!(first, (0..10).map(|_| c.uuid()).collect::<Vec<_>>());
    }

    #[test]
    fn a_uuid_is_a_random_one_by_its_own_bits() {
        let uuid = Chance::system().uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }

    #[test]
    fn a_suffix_has_only_letters_that_make_no_words() {
        let suffix = Chance::system().name_suffix();
        assert_eq!(suffix.len(), 5);
        assert!(suffix.bytes().all(|b| SUFFIX_LETTERS.contains(&b)));
    }
}
