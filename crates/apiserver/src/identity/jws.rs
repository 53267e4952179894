//! Signed tokens in the compact form (`header.payload.signature`), ES256 and nothing else.
//!
//! Signatures are made as RFC 6979 says, without drawing a number: one payload has one signature, so a
//! simulation replays exactly. The algorithm is not the token's to choose: a header that says anything but
//! ES256 is refused before a key is looked at.

use std::fmt;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::{
    SecretKey,
    ecdsa::{
        Signature, SigningKey, VerifyingKey,
        signature::{Signer, Verifier},
    },
    pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, LineEnding},
};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sheaf_world::Chance;
use zeroize::Zeroizing;

const ALGORITHM: &str = "ES256";

/// One key that signs, and any number that only verify: those of the time before a rotation.
pub struct SigningKeys {
    signing: SigningKey,
    /// The signing key's own first.
    verifying: Vec<(String, VerifyingKey)>,
}

impl fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.verifying.iter().map(|(id, _)| id).collect();
        f.debug_struct("SigningKeys").field("ids", &ids).finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("the token signing key is not a P-256 private key in PKCS#8 PEM")]
    Unreadable,
}

/// A new private key in PKCS#8 PEM. Wiped when dropped.
pub fn generate_key_pem(chance: &Chance) -> Result<Zeroizing<String>, KeyError> {
    let secret = loop {
        let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(chance.bytes());
        // All but one draw in 2^32 is a valid scalar.
        if let Ok(secret) = SecretKey::from_slice(bytes.as_slice()) {
            break secret;
        }
    };
    secret.to_pkcs8_pem(LineEnding::LF).map_err(|_| KeyError::Unreadable)
}

impl SigningKeys {
    /// `older` are the keys of tokens that are still to be accepted.
    pub fn from_pem(signing: &[u8], older: &[&[u8]]) -> Result<Self, KeyError> {
        let signing = read_pem(signing)?;
        let mut verifying = Vec::with_capacity(1 + older.len());
        verifying.push(identified(signing.verifying_key())?);
        for pem in older {
            let key = identified(read_pem(pem)?.verifying_key())?;
            if !verifying.contains(&key) {
                verifying.push(key);
            }
        }
        Ok(SigningKeys { signing, verifying })
    }

    pub(super) fn sign(&self, payload: &Value) -> String {
        let header = json!({ "alg": ALGORITHM, "kid": self.verifying[0].0 });
        let mut token = format!("{}.{}", encoded(&header), encoded(payload));
        let signature: Signature = self.signing.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.to_bytes(), &mut token);
        token
    }

    /// The payload of a token that one of the keys signed.
    pub(super) fn verify(&self, token: &str) -> Option<Vec<u8>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        // A token with extensions that must be understood is not understood.
        if header.alg != ALGORITHM || header.crit.is_some() {
            return None;
        }
        let signature = Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
        let named = |id: &str| header.kid.as_deref().is_none_or(|kid| kid == id);
        self.verifying
            .iter()
            .filter(|(id, _)| named(id))
            .any(|(_, key)| key.verify(signed.as_bytes(), &signature).is_ok())
            .then(|| URL_SAFE_NO_PAD.decode(payload).ok())?
    }

    /// The public keys as a JSON Web Key Set.
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self
            .verifying
            .iter()
            .map(|(id, key)| {
                let point = key.to_sec1_point(false);
                let coordinate = |bytes: Option<&[u8]>| URL_SAFE_NO_PAD.encode(bytes.unwrap_or_default());
                json!({
                    "use": "sig",
                    "kty": "EC",
                    "kid": id,
                    "crv": "P-256",
                    "alg": ALGORITHM,
                    "x": coordinate(point.x().map(|x| x.as_slice())),
                    "y": coordinate(point.y().map(|y| y.as_slice())),
                })
            })
            .collect();
        json!({ "keys": keys })
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

fn read_pem(pem: &[u8]) -> Result<SigningKey, KeyError> {
    let text = std::str::from_utf8(pem).map_err(|_| KeyError::Unreadable)?;
    SigningKey::from_pkcs8_pem(text.trim()).map_err(|_| KeyError::Unreadable)
}

/// A key is named by the hash of its public half, so the same key has the same name on every node.
fn identified(key: &VerifyingKey) -> Result<(String, VerifyingKey), KeyError> {
    let der = key.to_public_key_der().map_err(|_| KeyError::Unreadable)?;
    Ok((URL_SAFE_NO_PAD.encode(Sha256::digest(der.as_bytes())), *key))
}

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn keys(seed: u64) -> SigningKeys {
        let pem = generate_key_pem(&Chance::seeded(seed)).unwrap();
        SigningKeys::from_pem(pem.as_bytes(), &[]).unwrap()
    }

    /// A token with a header of our choosing, its signature made by `sign` over the first two parts.
    pub(crate) fn forged(header: Value, payload: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
        let signed = format!("{}.{}", encoded(&header), encoded(payload));
        let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    #[test]
    fn a_signed_payload_verifies_and_a_changed_one_does_not() {
        let keys = keys(1);
        let token = keys.sign(&json!({ "sub": "jo" }));
        assert_eq!(keys.verify(&token).unwrap(), br#"{"sub":"jo"}"#);
        let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
        let changed = format!("{header}.{}.{signature}", encoded(&json!({ "sub": "root" })));
        assert_eq!(keys.verify(&changed), None);
    }

    #[test]
    fn one_payload_has_one_signature() {
        assert_eq!(keys(1).sign(&json!({ "a": 1 })), keys(1).sign(&json!({ "a": 1 })));
    }

    #[test]
    fn the_algorithm_is_not_the_tokens_to_choose() {
        let keys = keys(1);
        let payload = json!({ "sub": "root" });
        let id = keys.verifying[0].0.clone();
        let genuine = |signed: &[u8]| -> Vec<u8> {
            let signature: Signature = keys.signing.sign(signed);
            signature.to_vec()
        };
        let crafted = forged(json!({ "alg": "ES256", "kid": id }), &payload, genuine);
        assert!(keys.verify(&crafted).is_some(), "the forgery itself is well made");

        for alg in ["none", "None", "HS256", "RS256", "ES384", "es256", ""] {
            let header = json!({ "alg": alg, "kid": id });
            assert_eq!(keys.verify(&forged(header.clone(), &payload, genuine)), None, "{alg}");
            assert_eq!(keys.verify(&forged(header, &payload, |_| Vec::new())), None, "{alg} unsigned");
        }
        let extended = json!({ "alg": "ES256", "kid": id, "crit": ["b64"] });
        assert_eq!(keys.verify(&forged(extended, &payload, genuine)), None);
    }

    #[test]
    fn a_token_of_before_the_rotation_is_accepted_while_its_key_is_kept() {
        let old_pem = generate_key_pem(&Chance::seeded(1)).unwrap();
        let new_pem = generate_key_pem(&Chance::seeded(2)).unwrap();
        let token = keys(1).sign(&json!({}));
        let rotated = SigningKeys::from_pem(new_pem.as_bytes(), &[old_pem.as_bytes()]).unwrap();
        assert!(rotated.verify(&token).is_some());
        assert_eq!(rotated.jwks()["keys"].as_array().unwrap().len(), 2);
        assert_ne!(rotated.sign(&json!({})), token, "the new key signs");
        assert_eq!(keys(2).verify(&token), None);
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        for bad in [&b""[..], b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", b"\xff"] {
            assert_eq!(SigningKeys::from_pem(bad, &[]).unwrap_err(), KeyError::Unreadable);
        }
    }

    proptest! {
        #[test]
        fn verifying_arbitrary_text_never_panics(token in "[ -~]{0,80}", parts in "[A-Za-z0-9_-]{0,40}(\\.[A-Za-z0-9_-]{0,90}){0,4}") {
            let keys = keys(1);
            prop_assert_eq!(keys.verify(&token), None);
            prop_assert_eq!(keys.verify(&parts), None);
        }

        #[test]
        fn arbitrary_headers_never_verify(header in any::<Vec<u8>>(), payload in any::<Vec<u8>>()) {
            let [header, payload] = [header, payload].map(|part| URL_SAFE_NO_PAD.encode(part));
            prop_assert_eq!(keys(1).verify(&format!("{header}.{payload}.{}", "A".repeat(86))), None);
        }
    }
}
