//! Secrets at rest: sealed on the way into the store, opened on the way out.

use bytes::Bytes;
use parking_lot::RwLock;

use crate::{cache::Unseal, encryption::Cipher};

/// The cipher in use; replaced as a whole when its keys are rotated.
pub struct Seals(RwLock<Cipher>);

impl Seals {
    pub fn new(cipher: Cipher) -> Self {
        Seals(RwLock::new(cipher))
    }

    pub fn replace(&self, cipher: Cipher) {
        *self.0.write() = cipher;
    }

    pub fn seal(&self, store_key: &[u8], text: &[u8]) -> Result<Bytes, String> {
        self.0.read().seal(store_key, text).map(Bytes::from).map_err(|why| why.to_string())
    }

    pub fn needs_reseal(&self, stored: &[u8]) -> bool {
        self.0.read().needs_reseal(stored)
    }
}

impl Unseal for Seals {
    fn unseal(&self, store_key: &[u8], stored: &Bytes) -> Result<Bytes, String> {
        // Plain objects are JSON and begin with a brace; a sealed one never does.
        if stored.first() == Some(&b'{') {
            return Ok(stored.clone());
        }
        self.0.read().open(store_key, stored).map(Bytes::from).map_err(|why| why.to_string())
    }
}
