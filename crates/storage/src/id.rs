//! What volumes, snapshots, images and seeds are called. An id becomes the name of a file, so it can
//! only be made from text that is harmless there.

use std::{fmt, str::FromStr};

/// Which volume: the uid of the claim that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(String);

/// Which image: the uid of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(String);

/// Which snapshot: the uid of the object that asked for it, or whatever the caller finds again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(String);

/// Which seed: the machine's id and the disk's name, or whatever the caller finds again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeedId(String);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not {what}: it must be 1 to 127 of a-z, 0-9 and '-', and neither begin nor end with '-'"
)]
pub struct InvalidId {
    what: &'static str,
    text: String,
}

/// A label as Kubernetes has them, but longer: a seed's is two of those, put together.
fn is_harmless(text: &str) -> bool {
    (1..=127).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

macro_rules! id {
    ($type:ident, $what:literal) => {
        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let text = text.to_owned();
                if is_harmless(&text) { Ok($type(text)) } else { Err(InvalidId { what: $what, text }) }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(VolumeId, "a volume's id");
id!(ImageId, "an image's id");
id!(SnapshotId, "a snapshot's id");
id!(SeedId, "a seed's id");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_an_id() {
        let uid = "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
        assert_eq!(uid.parse::<VolumeId>().unwrap().as_str(), uid);
    }

    #[test]
    fn nothing_that_means_something_to_a_path_is_an_id() {
        for bad in ["", ".", "..", "a/b", "/etc", ".making-a", "a b", "A", "-a", "a-", "a\0", "ä", "a.b"] {
            assert!(bad.parse::<VolumeId>().is_err(), "{bad:?} was taken for an id");
            assert!(bad.parse::<ImageId>().is_err(), "{bad:?} was taken for an id");
            assert!(bad.parse::<SeedId>().is_err(), "{bad:?} was taken for an id");
        }
        assert!("a".repeat(128).parse::<SeedId>().is_err());
    }
}
