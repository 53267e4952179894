//! What is done with key pairs: `keygen` of their collection draws one, keeps its public half and hands out the other.
//!
//! The private half is nowhere but in that one answer. It is a key on the curve P-256 in OpenSSH's own format, where the
//! original makes RSA keys: as good to every SSH client of the last decade, and made without a library of its own.

use async_trait::async_trait;
use p256::SecretKey;
use serde_json::{Value, json};
use ssh_key::{
    LineEnding, PrivateKey,
    private::{EcdsaKeypair, KeypairData},
};
use zeroize::Zeroizing;

use super::{Action, ActionCall, Input, Look, Outcome, ResourceActions};
use crate::{
    request::Verb,
    respond,
    status::ApiError,
    steve::errand::{Errand, JSON},
};

static ACTIONS: &[Action] = &[Action {
    name: "keygen",
    input: Some(Input { schema: "keyGenInput", fields: &[("name", "string"), ("namespace", "string")] }),
    // The namespace is in what is sent: whether one may be made there is asked when it is made.
    needs: &[],
}];

pub struct KeyPairs;

#[async_trait]
impl ResourceActions for KeyPairs {
    fn of_collection(&self) -> &'static [Action] {
        ACTIONS
    }

    fn is_changed(&self) -> bool {
        false
    }

    fn fitting(&self, _look: &Look, _key: &Value) -> Vec<&'static str> {
        Vec::new()
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        let (name, namespace) = (call.required("name")?, call.required("namespace")?);
        let drawn = drawn(|| call.errands.draw_bytes()).map_err(ApiError::internal)?;
        let object = json!({
            "apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": name},
            "spec": {"publicKey": drawn.public},
        });
        let key_pairs = ("harvesterhci.io", "v1beta1", "keypairs");
        call.errands.ask(&Errand::new(Verb::Create, key_pairs, namespace, "").with(JSON, object)).await?;
        // The name is the name of an object by now, and can stand in a header.
        let file = respond::attachment(&format!("{name}.pem"), drawn.private.as_bytes());
        Ok(Outcome::Response(Box::new(file)))
    }
}

/// A key and what belongs to it, as SSH writes them.
struct Drawn {
    public: String,
    private: Zeroizing<String>,
}

fn drawn(bytes: impl Fn() -> [u8; 32]) -> Result<Drawn, ssh_key::Error> {
    let secret = loop {
        let bytes = Zeroizing::new(bytes());
        // All but one draw in 2^32 is a key.
        if let Ok(secret) = SecretKey::from_slice(bytes.as_slice()) {
            break secret;
        }
    };
    let public = secret.public_key().into();
    let pair = EcdsaKeypair::NistP256 { public, private: secret.into() };
    let key = PrivateKey::new(KeypairData::Ecdsa(pair), "")?;
    Ok(Drawn { public: key.public_key().to_openssh()?, private: key.to_openssh(LineEnding::LF)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawn_key_is_read_back_and_its_halves_belong_together() {
        let drawn = drawn(|| [7; 32]).unwrap();
        assert!(drawn.private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----\n"), "{}", *drawn.private);
        let read = PrivateKey::from_openssh(drawn.private.as_str()).unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap(), drawn.public);
        assert!(drawn.public.starts_with("ecdsa-sha2-nistp256 "), "{}", drawn.public);
    }

    #[test]
    fn what_is_no_key_is_drawn_again() {
        let draws = std::cell::Cell::new(0);
        let draw = || {
            draws.set(draws.get() + 1);
            if draws.get() == 1 { [0xff; 32] } else { [1; 32] }
        };
        drawn(draw).unwrap();
        assert_eq!(draws.get(), 2);
    }
}
