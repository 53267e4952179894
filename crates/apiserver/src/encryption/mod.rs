//! Secrets at rest: what the store keeps of a Secret is sealed with a key the store does not have.
//!
//! [`KeyRing`] is the file of keys (JSON, mode 0600, beside the data and never in it); [`Cipher`] seals and
//! opens values with it. The store key is part of what is authenticated, so a sealed value that was moved
//! under another key does not open.
//!
//! Rotation is three steps, each safe to be interrupted after: [`KeyRing::rotate`] and write the file; write
//! every value for which [`Cipher::needs_reseal`] says so; [`KeyRing::drop_key`] the old one and write the
//! file. A value sealed with any key on the ring opens throughout.
//!
//! Deliberately absent: reading or writing files, and guarding against somebody who can write the store
//! (they can bring back an older value of the same key, sealed as it was).

mod cipher;
mod ring;
mod rotation;

pub use cipher::{Cipher, EncryptionError};
pub use ring::{KeyId, KeyRing, RingError};
pub use rotation::{KeepKeys, KeepNothing};
