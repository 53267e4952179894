//! The names this host's network goes by in the kernel, checked once.
//!
//! They end up in netlink messages, in paths under `/proc/sys` and in the text of
//! rulesets, so what can be in them is narrow: nothing that means anything to any of
//! the three. A tap's name is a short digest of whose it is, because fifteen characters
//! hold no machine's id; that two NICs get the same one is less likely than anything
//! else in this crate, and is still noticed (see [`crate::tap`]).

use std::fmt;

use sha2::{Digest, Sha256};

/// What Linux allows, without the zero at the end.
const LONGEST_INTERFACE_NAME: usize = 15;
const TAP_PREFIX: usize = 6;

/// A name that cannot be used, and why.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot be {what}: {rule}")]
pub struct NameError {
    pub name: String,
    pub what: &'static str,
    pub rule: &'static str,
}

/// The name of a network interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceName(String);

impl InterfaceName {
    pub fn new(name: impl Into<String>) -> Result<InterfaceName, NameError> {
        let name = name.into();
        let fits = (1..=LONGEST_INTERFACE_NAME).contains(&name.len())
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if fits {
            Ok(InterfaceName(name))
        } else {
            let rule = "1 to 15 letters, digits, `_`, `.` and `-`, a letter or digit first";
            Err(NameError { name, what: "the name of an interface", rule })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the names of all taps of one instance begin with.
///
/// Always the same length, so that no instance's prefix is the beginning of another's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapPrefix(String);

impl TapPrefix {
    pub fn new(prefix: impl Into<String>) -> Result<TapPrefix, NameError> {
        let name = prefix.into();
        let fits = name.len() == TAP_PREFIX
            && name.ends_with('-')
            && name[..TAP_PREFIX - 1].bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if fits {
            Ok(TapPrefix(name))
        } else {
            let rule = "5 small letters and digits, then `-`";
            Err(NameError { name, what: "the beginning of taps' names", rule })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an interface with this name is a tap of this instance, by its name alone.
    pub(crate) fn covers(&self, interface: &str) -> bool {
        interface.len() == LONGEST_INTERFACE_NAME && interface.starts_with(&self.0)
    }

    /// The tap of one NIC. The same NIC has the same name every time.
    pub(crate) fn tap_of(&self, machine: &str, nic: u16) -> InterfaceName {
        let digest = digest(&[machine, &nic.to_string()], LONGEST_INTERFACE_NAME - TAP_PREFIX);
        InterfaceName(format!("{}{digest}", self.0))
    }
}

/// The name of a table of rules; one is made in each family that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName(String);

impl TableName {
    pub fn new(name: impl Into<String>) -> Result<TableName, NameError> {
        let name = name.into();
        let fits = (1..=32).contains(&name.len())
            && name.starts_with("sheaf")
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if fits {
            Ok(TableName(name))
        } else {
            let rule = "`sheaf`, then up to 27 small letters, digits and `_`";
            Err(NameError { name, what: "the name of a table", rule })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Every name one instance of Sheaf uses in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkNames {
    /// The bridge of the default segment.
    pub bridge: InterfaceName,
    pub tap_prefix: TapPrefix,
    pub table: TableName,
    /// The bridge without ports that the addresses of load balancers are on.
    pub holder: InterfaceName,
    /// The table of their rules.
    pub balancing: TableName,
}

impl NetworkNames {
    /// What a host with one Sheaf on it sees.
    pub fn plain() -> NetworkNames {
        NetworkNames {
            bridge: InterfaceName("sheaf0".to_owned()),
            tap_prefix: TapPrefix("vmnic-".to_owned()),
            table: TableName("sheaf".to_owned()),
            holder: InterfaceName("sheaf-lb".to_owned()),
            balancing: TableName("sheaf_lb".to_owned()),
        }
    }

    /// Names for one of several instances in one network namespace, told apart by
    /// whatever is their own (the path of a data directory, say).
    pub fn of_instance(instance: &str) -> NetworkNames {
        let digest = digest(&[instance], 8);
        NetworkNames {
            bridge: InterfaceName(format!("sheaf-{digest}")),
            tap_prefix: TapPrefix(format!("v{}-", &digest[..4])),
            table: TableName(format!("sheaf_{digest}")),
            holder: InterfaceName(format!("sheafl-{digest}")),
            balancing: TableName(format!("sheaf_{digest}_lb")),
        }
    }
}

/// `length` characters, five bits each, that follow from `parts` and nothing else.
pub(crate) fn digest(parts: &[&str], length: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut hasher = Sha256::new();
    for part in parts {
        // Lengths first, so that ("ab", "c") and ("a", "bc") differ.
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part.as_bytes());
    }
    let bytes = hasher.finalize();
    bytes.iter().take(length).map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_nic_of_every_machine_gets_a_name_the_kernel_takes(machine in ".{0,80}", nic: u16) {
            let prefix = NetworkNames::plain().tap_prefix;
            let name = prefix.tap_of(&machine, nic);
            prop_assert_eq!(InterfaceName::new(name.as_str()), Ok(name.clone()));
            prop_assert!(prefix.covers(name.as_str()));
            prop_assert_eq!(prefix.tap_of(&machine, nic), name);
        }

        #[test]
        fn names_of_an_instance_pass_their_own_checks(instance in ".{0,80}") {
            let names = NetworkNames::of_instance(&instance);
            prop_assert!(InterfaceName::new(names.bridge.as_str()).is_ok());
            prop_assert!(TapPrefix::new(names.tap_prefix.as_str()).is_ok());
            prop_assert!(TableName::new(names.table.as_str()).is_ok());
            prop_assert!(InterfaceName::new(names.holder.as_str()).is_ok());
            prop_assert!(TableName::new(names.balancing.as_str()).is_ok());
            prop_assert!(names.holder != names.bridge && !names.tap_prefix.covers(names.holder.as_str()));
            prop_assert!(!names.tap_prefix.covers(names.bridge.as_str()));
        }
    }

    #[test]
    fn a_hundred_thousand_nics_have_a_hundred_thousand_names() {
        let prefix = NetworkNames::plain().tap_prefix;
        let names: BTreeSet<_> = (0..25_000)
            .flat_map(|machine| (0..4).map(move |nic| (machine, nic)))
            .map(|(machine, nic)| prefix.tap_of(&format!("default/vm-{machine}"), nic))
            .collect();
        assert_eq!(names.len(), 100_000);
    }

    #[test]
    fn a_name_that_would_mean_something_in_a_ruleset_or_a_path_is_refused() {
        for bad in ["", "..", "a/b", "a b", "sheaf0\"", "a;b", "é", "sixteen-letters-", "-a", "a\n", "a*"] {
            assert!(InterfaceName::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "abcde", "abc-", "ABCDE-", "abcde*", "ééé-", "abcdefg-"] {
            assert!(TapPrefix::new(bad).is_err(), "{bad:?}");
        }
        for bad in ["", "filter", "sheaf-1", "sheaf 1", "sheaf;"] {
            assert!(TableName::new(bad).is_err(), "{bad:?}");
        }
    }
}
