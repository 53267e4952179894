//! Names that become part of paths, device ids and QEMU options, checked once.
//!
//! Both types can only be made from text that is harmless in all of those places, also
//! when read back from a file.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Which machine: the name of its directory and cgroup. Derived from the uid of the object
/// that asked for it, so that a machine made anew under an old name is another machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(String);

/// The name of a disk or NIC inside its machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{text:?} is not a {what}: it must be 1 to 63 of a-z, 0-9 and '-', and neither begin nor end with '-'"
)]
pub struct InvalidName {
    what: &'static str,
    text: String,
}

/// Kubernetes calls these DNS labels; nothing in one means anything to a shell, a path or
/// QEMU's option parser.
fn is_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

macro_rules! label {
    ($type:ident, $what:literal) => {
        impl $type {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                if is_label(&text) { Ok($type(text)) } else { Err(InvalidName { what: $what, text }) }
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$type> for String {
            fn from(label: $type) -> String {
                label.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

label!(MachineId, "machine id");
label!(DeviceName, "device name");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_a_machine_id() {
        let uid = "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
        assert_eq!(uid.parse::<MachineId>().unwrap().as_str(), uid);
    }

    #[test]
    fn nothing_that_means_something_to_a_path_or_an_option_is_a_name() {
        for bad in
            ["", ".", "..", "a/b", "/etc", "a,b", "a=b", "a b", "A", "-a", "a-", "a\0", "a\n", "ä", "a.b"]
        {
            assert!(bad.parse::<MachineId>().is_err(), "{bad:?} was taken for a machine id");
            assert!(bad.parse::<DeviceName>().is_err(), "{bad:?} was taken for a device name");
        }
        assert!("a".repeat(64).parse::<MachineId>().is_err());
    }

    #[test]
    fn a_bad_name_is_not_read_back_from_a_file_either() {
        assert!(serde_json::from_str::<MachineId>("\"../../etc\"").is_err());
    }
}
