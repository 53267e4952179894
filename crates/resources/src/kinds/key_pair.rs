//! harvesterhci.io/v1beta1 KeyPair: somebody's public SSH key.
//!
//! A key that cannot be read is refused, so every KeyPair there is has a fingerprint. The
//! fingerprint is MD5 with colons because that is what Harvester shows; it names a key and
//! protects nothing.

use md5::{Digest, Md5};
use serde_json::{Value, json};
use ssh_key::PublicKey;

use super::{
    age_column,
    harvester_condition::{HarvesterCondition, set_condition},
    name_column, text,
};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

/// True once the key could be read. The node driver looks for it.
pub const VALIDATED: &str = "validated";

root_type! {
    /// Somebody's public SSH key.
    KeyPair = "io.harvesterhci.v1beta1.KeyPair",
    "harvesterhci.io" / "v1beta1" "keypairs" NamespaceResourceScope {
        /// The key.
        spec: KeyPairSpec,
        /// What is known of it.
        status: KeyPairStatus,
    }
}

wire_type! {
    /// A public SSH key.
    KeyPairSpec = "io.harvesterhci.v1beta1.KeyPairSpec" {
        /// One line of an `authorized_keys` file.
        public_key: String,
    }
}

wire_type! {
    /// What is known of a key.
    KeyPairStatus = "io.harvesterhci.v1beta1.KeyPairStatus" {
        /// MD5, sixteen pairs with colons.
        finger_print: String,
        /// `validated`.
        conditions: Vec<HarvesterCondition>,
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<KeyPair>("keypairs")
        .short(&["kp", "kps"])
        .columns(vec![
            name_column(),
            Column::computed("Finger_Print", |key, _| key["status"]["fingerPrint"].clone()),
            age_column(),
        ])
        .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("publicKey");
    let key = text(&new["spec"]["publicKey"]);
    if key.trim().is_empty() {
        return vec![FieldError::required(&at, "public key is required")];
    }
    match fingerprint(key) {
        Ok(_) => Vec::new(),
        Err(why) => vec![FieldError::invalid(&at, key, why.to_string())],
    }
}

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("key is not in valid OpenSSH public key format")]
    NotAKey(#[source] ssh_key::Error),
    #[error("key is not in valid OpenSSH public key format: it is more than one line")]
    SeveralLines,
}

/// The MD5 fingerprint of a line of an `authorized_keys` file, options and all.
pub fn fingerprint(line: &str) -> Result<String, KeyError> {
    let line = line.trim();
    // A second line would be a second key, which nobody looked at.
    if line.contains(['\n', '\r']) {
        return Err(KeyError::SeveralLines);
    }
    let key = PublicKey::from_openssh(&type_and_blob(line)).map_err(KeyError::NotAKey)?;
    let blob = key.to_bytes().map_err(KeyError::NotAKey)?;
    let pairs: Vec<String> = Md5::digest(&blob).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(pairs.join(":"))
}

/// The two words that are the key, without options before and a comment behind: both may
/// have spaces in them.
fn type_and_blob(line: &str) -> String {
    let is_type = |word: &str| ["ssh-", "ecdsa-", "sk-"].iter().any(|prefix| word.starts_with(prefix));
    let mut rest = line;
    if !is_type(line) {
        let mut quoted = false;
        let end = line.char_indices().find(|(at, letter)| {
            if *letter == '"' && !line[..*at].ends_with('\\') {
                quoted = !quoted;
            }
            !quoted && letter.is_whitespace()
        });
        rest = end.map_or("", |(at, _)| line[at..].trim_start());
    }
    rest.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The status a key should have; the same one when it has it already.
pub fn status_of(key: &KeyPair, now: &str) -> KeyPairStatus {
    let mut status = key.status.clone();
    match fingerprint(&key.spec.public_key) {
        Ok(fingerprint) => {
            status.finger_print = fingerprint;
            set_condition(&mut status.conditions, VALIDATED, "True", ("", ""), now);
        }
        Err(why) => {
            status.finger_print.clear();
            set_condition(&mut status.conditions, VALIDATED, "False", ("Error", &why.to_string()), now);
        }
    }
    status
}

/// Fills in the status as the key is written: the node driver asks for it at once.
pub fn complete(key: &mut Value, now: &str) {
    let Ok(typed) = serde_json::from_value::<KeyPair>(key.clone()) else { return };
    key["status"] = serde_json::to_value(status_of(&typed, now)).unwrap_or_else(|_| json!({}));
}

#[cfg(test)]
mod tests {
    use super::*;

    // Made with ssh-keygen; the fingerprint is what `ssh-keygen -l -E md5` says of it.
    const KEY: &str = include_str!("key_pair/ed25519.pub");
    const FINGERPRINT: &str = include_str!("key_pair/ed25519.md5");

    fn key_pair(key: &str) -> KeyPair {
        KeyPair { spec: KeyPairSpec { public_key: key.into() }, ..KeyPair::default() }
    }

    #[test]
    fn the_fingerprint_is_the_one_ssh_keygen_shows() {
        assert_eq!(fingerprint(KEY).unwrap(), FINGERPRINT.trim());
        let with_options = format!("no-pty,command=\"a \\\"b\" {KEY}");
        assert_eq!(fingerprint(&with_options).unwrap(), FINGERPRINT.trim());
        let commented = format!("{} of nobody in particular", KEY.trim());
        assert_eq!(fingerprint(&commented).unwrap(), FINGERPRINT.trim());
    }

    #[test]
    fn rsa_and_ecdsa_keys_are_read_too() {
        let rsa = include_str!("key_pair/rsa.pub");
        assert_eq!(fingerprint(rsa).unwrap(), include_str!("key_pair/rsa.md5").trim());
        let ecdsa = include_str!("key_pair/ecdsa.pub");
        assert_eq!(fingerprint(ecdsa).unwrap(), include_str!("key_pair/ecdsa.md5").trim());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for wrong in ["ssh-ed25519 AAAA", "nonsense", "ssh-rsa", &format!("{KEY}\n{KEY}")] {
            let errors = validate(&json!({"spec": {"publicKey": wrong}}), None);
            assert!(errors[0].detail.starts_with("key is not in valid OpenSSH public key format"), "{wrong}");
        }
        assert_eq!(validate(&json!({"spec": {}}), None)[0].detail, "public key is required");
    }

    #[test]
    fn a_key_that_was_read_is_validated_and_then_at_rest() {
        let mut key = key_pair(KEY);
        key.status = status_of(&key, "t1");
        assert_eq!(
            (key.status.conditions[0].condition_type.as_str(), key.status.conditions[0].status.as_str()),
            (VALIDATED, "True")
        );
        assert_eq!(status_of(&key, "t2"), key.status);
        key.spec.public_key = "x".into();
        let status = status_of(&key, "t3");
        assert_eq!((status.finger_print.as_str(), status.conditions[0].status.as_str()), ("", "False"));
    }
}
