//! Seals a value for the store and opens it again (AES-256-GCM).
//!
//! ```text
//! "SHEAF\x01" | key id, 4 bytes | nonce, 12 bytes | ciphertext and tag
//! ```
//!
//! What comes before the nonce is authenticated together with the store key. Nonces are drawn at random: 96
//! bits are good for some four thousand million values under one key, far more than a cluster writes between
//! two rotations.

use std::fmt;

use aes_gcm::{
    Aes256Gcm, Nonce,
    aead::{Aead, KeyInit, Payload},
};
use sheaf_world::Chance;

use super::ring::{KeyId, KeyRing};

const MAGIC: &[u8; 6] = b"SHEAF\x01";
const ID_BYTES: usize = 4;
const NONCE_BYTES: usize = 12;
const HEADER_BYTES: usize = MAGIC.len() + ID_BYTES;

/// Divided by what an operator can do next.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum EncryptionError {
    #[error(
        "the value of {key} is sealed with key {id}, which is not on the key ring: put back the key ring file \
         that holds key {id} (from the backup made before that key was dropped, or from another management node)"
    )]
    UnknownKey { key: String, id: KeyId },
    /// Damaged, or moved here from another key of the store.
    #[error(
        "the value of {key} does not open with key {id}: it was damaged or was not written for this key of \
         the store"
    )]
    NotAuthentic { key: String, id: KeyId },
    #[error("the value of {key} is not sealed")]
    NotSealed { key: String },
    #[error("the value of {key} is too large to be sealed")]
    TooLarge { key: String },
}

/// Built from a ring; built anew when the ring changes.
pub struct Cipher {
    primary: KeyId,
    keys: Vec<(KeyId, Aes256Gcm)>,
    chance: Chance,
}

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.keys.iter().map(|(id, _)| id).collect();
        f.debug_struct("Cipher").field("primary", &self.primary).field("keys", &ids).finish()
    }
}

impl Cipher {
    pub fn new(ring: &KeyRing, chance: Chance) -> Self {
        let keys = ring.all().iter().map(|key| (key.id, Aes256Gcm::new(&key.bytes.0.into()))).collect();
        Cipher { primary: ring.primary(), keys, chance }
    }

    /// Seals `plaintext` so that it opens only as the value of `store_key`.
    pub fn seal(&self, store_key: &[u8], plaintext: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let cipher = self.cipher(store_key, self.primary)?;
        let mut sealed = Vec::with_capacity(HEADER_BYTES + NONCE_BYTES + plaintext.len() + 16);
        sealed.extend_from_slice(MAGIC);
        sealed.extend_from_slice(&self.primary.0.to_be_bytes());
        let aad = authenticated(&sealed, store_key);
        let nonce: [u8; NONCE_BYTES] = self.chance.bytes();
        let ciphertext = cipher
            .encrypt(&Nonce::from(nonce), Payload { msg: plaintext, aad: &aad })
            .map_err(|_| EncryptionError::TooLarge { key: shown(store_key) })?;
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&ciphertext);
        Ok(sealed)
    }

    pub fn open(&self, store_key: &[u8], sealed: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let not_sealed = || EncryptionError::NotSealed { key: shown(store_key) };
        let id = key_id_of(sealed).ok_or_else(not_sealed)?;
        let (header, rest) = sealed.split_at(HEADER_BYTES);
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(not_sealed)?;
        let aad = authenticated(header, store_key);
        self.cipher(store_key, id)?
            .decrypt(&Nonce::from(*nonce), Payload { msg: ciphertext, aad: &aad })
            .map_err(|_| EncryptionError::NotAuthentic { key: shown(store_key), id })
    }

    /// Whether a value should be written again: it is in clear, or sealed with a key that is not the primary.
    pub fn needs_reseal(&self, stored: &[u8]) -> bool {
        key_id_of(stored) != Some(self.primary)
    }

    fn cipher(&self, store_key: &[u8], id: KeyId) -> Result<&Aes256Gcm, EncryptionError> {
        self.keys
            .iter()
            .find(|(key, _)| *key == id)
            .map(|(_, cipher)| cipher)
            .ok_or_else(|| EncryptionError::UnknownKey { key: shown(store_key), id })
    }
}

/// Whether the bytes begin as a sealed value does. JSON never does.
fn key_id_of(stored: &[u8]) -> Option<KeyId> {
    let id = stored.strip_prefix(MAGIC)?.first_chunk::<ID_BYTES>()?;
    Some(KeyId(u32::from_be_bytes(*id)))
}

fn authenticated(header: &[u8], store_key: &[u8]) -> Vec<u8> {
    // The header has one length, so the two parts cannot be confused.
    [header, store_key].concat()
}

fn shown(store_key: &[u8]) -> String {
    String::from_utf8_lossy(store_key).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sheaf_world::World;

    use super::*;

    const KEY: &[u8] = b"/registry/secrets/default/db";

    fn cipher(ring: &KeyRing) -> Cipher {
        Cipher::new(ring, Chance::system())
    }

    #[test]
    fn a_sealed_value_opens_again_and_shows_nothing_of_itself() {
        let cipher = cipher(&KeyRing::generate(&World::real()));
        let sealed = cipher.seal(KEY, b"the password").unwrap();
        assert!(!sealed.windows(8).any(|part| part == b"password"));
        assert_eq!(cipher.open(KEY, &sealed).unwrap(), b"the password");
        assert!(!cipher.needs_reseal(&sealed));
    }

    #[test]
    fn a_sealed_value_moved_to_another_key_does_not_open() {
        let cipher = cipher(&KeyRing::generate(&World::real()));
        let sealed = cipher.seal(KEY, b"the password").unwrap();
        let elsewhere = b"/registry/secrets/default/mine";
        assert!(matches!(cipher.open(elsewhere, &sealed), Err(EncryptionError::NotAuthentic { .. })));
    }

    #[test]
    fn a_value_damaged_in_any_byte_does_not_open() {
        let cipher = cipher(&KeyRing::generate(&World::real()));
        let sealed = cipher.seal(KEY, b"x").unwrap();
        for position in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[position] ^= 1;
            assert!(cipher.open(KEY, &damaged).is_err(), "byte {position}");
            assert!(cipher.open(KEY, &sealed[..position]).is_err(), "cut at {position}");
        }
    }

    #[test]
    fn equal_values_are_never_sealed_alike() {
        let cipher = cipher(&KeyRing::generate(&World::real()));
        assert_ne!(cipher.seal(KEY, b"x").unwrap(), cipher.seal(KEY, b"x").unwrap());
    }

    #[test]
    fn an_unknown_key_is_named_together_with_what_to_do() {
        let sealed_by = KeyRing::generate(&World::real());
        let sealed = cipher(&sealed_by).seal(KEY, b"x").unwrap();
        let why = cipher(&KeyRing::generate(&World::real())).open(KEY, &sealed).unwrap_err().to_string();
        assert!(why.contains(&sealed_by.primary().to_string()), "{why}");
        assert!(why.contains("put back the key ring file"), "{why}");
    }

    #[test]
    fn a_value_in_clear_is_told_from_a_sealed_one() {
        let cipher = cipher(&KeyRing::generate(&World::real()));
        assert_eq!(
            cipher.open(KEY, b"{\"kind\":\"Secret\"}").unwrap_err(),
            EncryptionError::NotSealed { key: "/registry/secrets/default/db".into() }
        );
        assert!(cipher.needs_reseal(b"{\"kind\":\"Secret\"}"));
    }

    #[test]
    fn rotation_keeps_every_value_open_at_every_step() {
        let world = World::real();
        let first = KeyRing::generate(&world);
        let old_value = cipher(&first).seal(KEY, b"x").unwrap();

        let (both, new) = first.add_key(&world);
        assert_eq!(cipher(&both).open(KEY, &old_value).unwrap(), b"x");
        assert!(!cipher(&both).needs_reseal(&old_value), "the new key does not seal yet");

        let second = both.promote(new).unwrap();
        assert!(cipher(&second).needs_reseal(&old_value));
        let new_value = cipher(&second).seal(KEY, &cipher(&second).open(KEY, &old_value).unwrap()).unwrap();
        assert_eq!(
            cipher(&both).open(KEY, &new_value).unwrap(),
            b"x",
            "a server that has not seen the change"
        );

        let third = second.drop_key(first.primary()).unwrap();
        assert_eq!(cipher(&third).open(KEY, &new_value).unwrap(), b"x");
        assert!(matches!(cipher(&third).open(KEY, &old_value), Err(EncryptionError::UnknownKey { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn one_seed_seals_one_way() {
        let seal = || {
            let world = World::seeded(5);
            Cipher::new(&KeyRing::generate(&world), world.chance).seal(KEY, b"x").unwrap()
        };
        assert_eq!(seal(), seal());
    }

    proptest! {
        #[test]
        fn opening_arbitrary_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let cipher = cipher(&KeyRing::generate(&World::real()));
            prop_assert!(cipher.open(KEY, &bytes).is_err());
            let id = cipher.primary.0.to_be_bytes();
            prop_assert!(cipher.open(KEY, &[MAGIC.as_slice(), &id, &bytes].concat()).is_err());
        }
    }
}
