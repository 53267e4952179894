//! The Secret that holds the hash of somebody's password, and the name by which sessions know which one it was.
//!
//! A session says which password it was made with, and is good for as long as that is the one that is stored. So one
//! write, of the Secret, ends them all: also those that were on their way while it was written, and those that a server
//! makes which has not heard of it yet.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Directory,
    objects::{is_made_for, made_for, text},
};

pub const PASSWORD_NAMESPACE: &str = "cattle-local-user-passwords";
const ID_BYTES: usize = 16;

/// Of this very user, and not of one who had the name before.
pub(super) fn hash_of(directory: &dyn Directory, user: &Value) -> Option<String> {
    let id = text(user, "/metadata/name");
    let secret = directory.object("", "secrets", PASSWORD_NAMESPACE, id)?;
    if !is_made_for(&secret, user) {
        return None;
    }
    String::from_utf8(STANDARD.decode(text(&secret, "/data/password")).ok()?).ok()
}

/// What the password behind a hash is called. It tells nothing of either: every hash has a salt of its own, so that the
/// same password, chosen again, is another one.
pub(crate) fn id_of(hash: &str) -> String {
    let digest = Sha256::new().chain_update(b"which password\0").chain_update(hash).finalize();
    digest.iter().take(ID_BYTES).fold(String::new(), |mut id, byte| {
        let _ = write!(id, "{byte:02x}"); // A String takes everything.
        id
    })
}

/// The Secret with another hash in it, or a new one.
pub(super) fn with_hash(existing: Option<&Value>, user: &Value, hash: &str) -> Value {
    let mut secret = existing.cloned().unwrap_or_else(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": text(user, "/metadata/name"),
                "namespace": PASSWORD_NAMESPACE,
                "annotations": { "cattle.io/password-hash": "argon2id" },
            },
            "type": "Opaque",
        })
    });
    secret["data"] = json!({ "password": STANDARD.encode(hash) });
    // The Secret may have been that of an earlier user of this name.
    secret["metadata"]["ownerReferences"] = json!(made_for(user));
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::shelf::Shelf;

    #[test]
    fn a_password_is_its_users_own_and_each_has_a_name() {
        let shelf = Shelf::default();
        let user = |uid: &str| json!({ "metadata": { "name": "jo", "uid": uid } });
        shelf.put("", "secrets", with_hash(None, &user("u1"), "$argon2id$one"));
        assert_eq!(hash_of(&shelf, &user("u1")).as_deref(), Some("$argon2id$one"));
        assert_eq!(hash_of(&shelf, &user("u2")), None);
        assert_eq!(hash_of(&shelf, &user("")), None, "who has no uid yet has no password either");
        assert_ne!(id_of("$argon2id$one"), id_of("$argon2id$two"));
        assert!(!id_of("$argon2id$one").contains("one"));
    }
}
