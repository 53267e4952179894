//! Replacing the key that seals secrets, while the server runs.
//!
//! ```text
//!   add a key, save the ring -> seal with it -> reseal what the old keys sealed
//!                            -> forget history -> drop the old keys, save the ring
//! ```
//!
//! The ring is saved before anything is sealed with its new key, and an old key is dropped only
//! when nothing needs it. A server that died in between finds more than one key on its ring and
//! goes on from there at its next start.

use bytes::Bytes;
use sheaf_store::{Expect, Range, StoreError, Transaction, Write};

use super::{Cipher, KeyRing};
use crate::{
    ApiServer,
    cache::{OBJECTS, Unseal},
    status::ApiError,
};

const PAGE: usize = 500;

/// Keeps the ring where the next start finds it. Never in the store it protects.
pub trait KeepKeys: Send + Sync {
    fn save(&self, ring: &KeyRing) -> Result<(), String>;
}

/// For servers whose keys die with them: simulations.
pub struct KeepNothing;

impl KeepKeys for KeepNothing {
    fn save(&self, _ring: &KeyRing) -> Result<(), String> {
        Ok(())
    }
}

impl ApiServer {
    /// Makes a new key, seals everything with it and forgets the old ones. Answers how many objects were resealed.
    pub async fn rotate_encryption_key(&self) -> Result<usize, ApiError> {
        let mut ring = self.key_ring.lock().await;
        let rotated = ring.rotate(&self.world);
        self.use_ring(&mut ring, rotated)?;
        self.reseal_and_forget(&mut ring).await
    }

    /// Finishes a rotation that a crash cut short.
    pub(crate) async fn finish_rotation(&self) -> Result<usize, ApiError> {
        let mut ring = self.key_ring.lock().await;
        match ring.keys().count() {
            0 | 1 => Ok(0),
            _ => self.reseal_and_forget(&mut ring).await,
        }
    }

    async fn reseal_and_forget(&self, ring: &mut KeyRing) -> Result<usize, ApiError> {
        let resealed = self.reseal_all().await?;
        // History still holds what the old keys sealed: nobody could read it any more, and whoever finds an old
        // key must not find anything to open with it.
        let unavailable = |why: StoreError| ApiError::unavailable(why.to_string());
        let now = self.store.revision().await.map_err(unavailable)?;
        self.store.compact(now).await.map_err(unavailable)?;
        let old: Vec<_> = ring.keys().map(|(id, _)| id).filter(|id| *id != ring.primary()).collect();
        let mut left = ring.clone();
        for id in old {
            left = left.drop_key(id).map_err(ApiError::internal)?;
        }
        self.use_ring(ring, left)?;
        Ok(resealed)
    }

    fn use_ring(&self, ring: &mut KeyRing, new: KeyRing) -> Result<(), ApiError> {
        self.config.keep_keys.save(&new).map_err(|why| {
            ApiError::internal(format!(
                "the encryption keys could not be saved, so nothing was changed: {why}"
            ))
        })?;
        self.seals.replace(Cipher::new(&new, self.world.chance.clone()));
        *ring = new;
        Ok(())
    }

    /// Seals anew whatever is not sealed with the key in use.
    async fn reseal_all(&self) -> Result<usize, ApiError> {
        let mut resealed = 0;
        let mut after = None;
        loop {
            let range = Range { prefix: OBJECTS.into(), after, limit: PAGE, at: None };
            let page = self.store.range(range).await.map_err(|why| ApiError::unavailable(why.to_string()))?;
            for entry in &page.entries {
                // Plain objects are JSON; a sealed one never begins with a brace.
                if entry.value.first() != Some(&b'{') && self.seals.needs_reseal(&entry.value) {
                    resealed += usize::from(self.reseal(entry).await?);
                }
            }
            match page.entries.last() {
                Some(last) if page.more => after = Some(last.key.clone()),
                _ => return Ok(resealed),
            }
        }
    }

    async fn reseal(&self, entry: &sheaf_store::Entry) -> Result<bool, ApiError> {
        let text = self.seals.unseal(&entry.key, &entry.value).map_err(ApiError::internal)?;
        let value: Bytes = self.seals.seal(&entry.key, &text).map_err(ApiError::internal)?;
        let transaction = Transaction {
            expect: vec![Expect::ModifiedAt { key: entry.key.clone(), revision: entry.modified }],
            writes: vec![Write::Put { key: entry.key.clone(), value }],
        };
        match self.store.commit(transaction).await {
            Ok(_) => Ok(true),
            // Somebody wrote it meanwhile, and sealed it with the key in use.
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(why) => Err(ApiError::unavailable(why.to_string())),
        }
    }
}
