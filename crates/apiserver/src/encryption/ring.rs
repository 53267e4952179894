//! The keys that secrets are sealed with: one primary that seals, older ones that only open.
//!
//! Every operation is pure: it answers a new ring, and the caller writes the file. Key bytes are wiped when
//! a ring is dropped and never appear in debug output.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use sheaf_world::World;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

const FORMAT: u32 = 1;
pub(super) const KEY_BYTES: usize = 32;

/// Names a key. Drawn at random rather than counted, so that two rings that went separate ways (one restored
/// from a backup, then rotated) never call different keys the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(super) u32);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl FromStr for KeyId {
    type Err = RingError;

    fn from_str(text: &str) -> Result<Self, RingError> {
        let well_formed = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u32::from_str_radix(text, 16) {
            Ok(id) if well_formed => Ok(KeyId(id)),
            _ => Err(RingError::BadKeyId { text: text.to_owned() }),
        }
    }
}

/// Key bytes: wiped on drop, never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub(super) struct KeyBytes(pub(super) [u8; KEY_BYTES]);

impl fmt::Debug for KeyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBytes(redacted)")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) id: KeyId,
    pub(super) bytes: KeyBytes,
    created: String,
}

#[derive(Clone, Debug)]
pub struct KeyRing {
    primary: KeyId,
    keys: Vec<Key>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RingError {
    #[error("the key ring is not the JSON that was expected: {reason}")]
    Unreadable { reason: String },
    #[error(
        "the key ring has format {found}, this version reads format {FORMAT}: use the version that wrote it"
    )]
    NewerFormat { found: u32 },
    #[error("{text:?} is not a key id: eight hexadecimal digits would fit")]
    BadKeyId { text: String },
    #[error("key {id} on the ring is not {KEY_BYTES} bytes in base64")]
    BadKey { id: String },
    #[error("key {id} is on the ring twice")]
    Repeated { id: KeyId },
    #[error("key {id} is not on the ring")]
    Unknown { id: KeyId },
    #[error("key {id} seals every new secret and cannot be dropped: rotate first")]
    Primary { id: KeyId },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RingFile {
    format: u32,
    primary: String,
    keys: Vec<KeyEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    id: String,
    created: String,
    secret: SecretText,
}

/// The base64 of key bytes on its way from or to the file.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
struct SecretText(String);

impl KeyRing {
    /// A ring of one new key.
    pub fn generate(world: &World) -> Self {
        let key = draw_key(world, &[]);
        KeyRing { primary: key.id, keys: vec![key] }
    }

    /// Reads the file's bytes. A ring that is damaged anywhere is refused whole: a server that started
    /// without one of its keys would find its secrets missing one by one.
    pub fn from_json(bytes: &[u8]) -> Result<Self, RingError> {
        // The format is looked at first: a newer file may have fields this version does not know.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let unreadable = |why: serde_json::Error| {
            // The position only: serde's message may quote the value it stumbled on.
            RingError::Unreadable { reason: format!("line {}, column {}", why.line(), why.column()) }
        };
        let Format { format } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if format != FORMAT {
            return Err(RingError::NewerFormat { found: format });
        }
        let file: RingFile = serde_json::from_slice(bytes).map_err(unreadable)?;
        let primary: KeyId = file.primary.parse()?;
        let mut keys: Vec<Key> = Vec::with_capacity(file.keys.len());
        for entry in file.keys {
            let id: KeyId = entry.id.parse()?;
            if keys.iter().any(|key| key.id == id) {
                return Err(RingError::Repeated { id });
            }
            let bad = || RingError::BadKey { id: entry.id.clone() };
            let decoded = Zeroizing::new(STANDARD.decode(entry.secret.0.as_bytes()).map_err(|_| bad())?);
            let bytes = KeyBytes(decoded.as_slice().try_into().map_err(|_| bad())?);
            keys.push(Key { id, bytes, created: entry.created });
        }
        if !keys.iter().any(|key| key.id == primary) {
            return Err(RingError::Unknown { id: primary });
        }
        Ok(KeyRing { primary, keys })
    }

    /// What to write to the file, with mode 0600. Wiped when dropped.
    pub fn to_json(&self) -> Zeroizing<Vec<u8>> {
        let file = RingFile {
            format: FORMAT,
            primary: self.primary.to_string(),
            keys: self
                .keys
                .iter()
                .map(|key| KeyEntry {
                    id: key.id.to_string(),
                    created: key.created.clone(),
                    secret: SecretText(STANDARD.encode(key.bytes.0)),
                })
                .collect(),
        };
        // Strings and numbers only: there is nothing in it that could fail to serialise.
        Zeroizing::new(serde_json::to_vec_pretty(&file).unwrap_or_default())
    }

    pub fn primary(&self) -> KeyId {
        self.primary
    }

    /// Every key with the time it was made, oldest first.
    pub fn keys(&self) -> impl Iterator<Item = (KeyId, &str)> {
        self.keys.iter().map(|key| (key.id, key.created.as_str()))
    }

    /// Adds a key that opens but does not seal yet. Where several API servers share one store, all of them
    /// must have the key before the first one seals with it.
    pub fn add_key(&self, world: &World) -> (Self, KeyId) {
        let key = draw_key(world, &self.keys);
        let id = key.id;
        let keys = self.keys.iter().cloned().chain([key]).collect();
        (KeyRing { primary: self.primary, keys }, id)
    }

    /// Makes a key that is on the ring the one that seals.
    pub fn promote(&self, id: KeyId) -> Result<Self, RingError> {
        if !self.keys.iter().any(|key| key.id == id) {
            return Err(RingError::Unknown { id });
        }
        Ok(KeyRing { primary: id, keys: self.keys.clone() })
    }

    /// A new key that seals from now on; the older ones still open.
    pub fn rotate(&self, world: &World) -> Self {
        let (ring, id) = self.add_key(world);
        KeyRing { primary: id, ..ring }
    }

    /// Forgets an older key: what is still sealed with it is lost. Reseal first.
    pub fn drop_key(&self, id: KeyId) -> Result<Self, RingError> {
        if id == self.primary {
            return Err(RingError::Primary { id });
        }
        if !self.keys.iter().any(|key| key.id == id) {
            return Err(RingError::Unknown { id });
        }
        let keys = self.keys.iter().filter(|key| key.id != id).cloned().collect();
        Ok(KeyRing { primary: self.primary, keys })
    }

    pub(super) fn all(&self) -> &[Key] {
        &self.keys
    }
}

fn draw_key(world: &World, taken: &[Key]) -> Key {
    let id = loop {
        let id = KeyId(u32::from_be_bytes(world.chance.bytes()));
        if !taken.iter().any(|key| key.id == id) {
            break id;
        }
    };
    let mut bytes = KeyBytes([0; KEY_BYTES]);
    world.chance.fill(&mut bytes.0);
    Key { id, bytes, created: world.clock.rfc3339() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_ring_reads_back_what_it_wrote() {
        let world = World::real();
        let ring = KeyRing::generate(&world).rotate(&world);
        let again = KeyRing::from_json(&ring.to_json()).unwrap();
        assert_eq!(again.primary(), ring.primary());
        assert_eq!(again.keys().collect::<Vec<_>>(), ring.keys().collect::<Vec<_>>());
        assert_eq!(again.to_json(), ring.to_json());
    }

    #[test]
    fn key_bytes_never_appear_in_debug_output() {
        let ring = KeyRing::generate(&World::real());
        let shown = format!("{ring:?}");
        let bytes = ring.all()[0].bytes.0;
        assert!(shown.contains("redacted"), "{shown}");
        assert!(!shown.contains(&format!("{}, {}, {}", bytes[0], bytes[1], bytes[2])), "{shown}");
        assert!(!shown.contains(&STANDARD.encode(bytes)), "{shown}");
    }

    #[test]
    fn the_primary_key_cannot_be_dropped() {
        let ring = KeyRing::generate(&World::real());
        assert_eq!(ring.drop_key(ring.primary()).unwrap_err(), RingError::Primary { id: ring.primary() });
    }

    #[test]
    fn only_a_key_that_is_on_the_ring_can_be_promoted_or_dropped() {
        let ring = KeyRing::generate(&World::real());
        let stranger = KeyId(ring.primary().0.wrapping_add(1));
        assert_eq!(ring.promote(stranger).unwrap_err(), RingError::Unknown { id: stranger });
        assert_eq!(ring.drop_key(stranger).unwrap_err(), RingError::Unknown { id: stranger });
    }

    #[test]
    fn a_damaged_ring_is_refused_and_says_where() {
        let ring = KeyRing::generate(&World::real());
        let good: serde_json::Value = serde_json::from_slice(&ring.to_json()).unwrap();
        let refused = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut file = good.clone();
            change(&mut file);
            KeyRing::from_json(file.to_string().as_bytes()).unwrap_err()
        };
        assert_eq!(refused(&|file| file["format"] = 9.into()), RingError::NewerFormat { found: 9 });
        assert_eq!(
            refused(&|file| file["primary"] = "+0000001".into()),
            RingError::BadKeyId { text: "+0000001".into() }
        );
        assert!(matches!(
            refused(&|file| file["primary"] = "00000000".into()),
            RingError::Unknown { id: KeyId(0) }
        ));
        assert!(matches!(
            refused(&|file| file["keys"][0]["secret"] = "c2hvcnQ=".into()),
            RingError::BadKey { .. }
        ));
        assert!(matches!(
            refused(&|file| {
                let twin = file["keys"][0].clone();
                file["keys"].as_array_mut().unwrap().push(twin);
            }),
            RingError::Repeated { .. }
        ));
        assert!(matches!(KeyRing::from_json(b"{").unwrap_err(), RingError::Unreadable { .. }));
    }

    #[test]
    fn what_is_wrong_with_a_ring_is_said_without_showing_a_key() {
        let ring = KeyRing::generate(&World::real());
        let text = String::from_utf8(ring.to_json().to_vec()).unwrap();
        let secret = STANDARD.encode(ring.all()[0].bytes.0);
        let damaged = text.replace(&format!("\"{secret}\""), &format!("{{\"{secret}\": 1}}"));
        let why = KeyRing::from_json(damaged.as_bytes()).unwrap_err().to_string();
        assert!(!why.contains(&secret), "{why}");
    }

    proptest! {
        #[test]
        fn reading_a_ring_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = KeyRing::from_json(&bytes);
        }
    }
}
