//! What a service-account token says, in the original's layout.

use serde::{Deserialize, Deserializer, Serialize};

/// The issuer of tokens that live in Secrets.
pub(super) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// A token that expires.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claims {
    #[serde(deserialize_with = "one_or_many")]
    pub(super) aud: Vec<String>,
    pub(super) exp: i64,
    pub(super) iat: i64,
    pub(super) iss: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) jti: Option<String>,
    #[serde(rename = "kubernetes.io")]
    pub(super) kubernetes: Kubernetes,
    pub(super) nbf: i64,
    pub(super) sub: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kubernetes {
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<Reference>,
    pub(super) serviceaccount: Reference,
    /// When the holder should have asked for a new token. Read and carried, never written: it is for tokens
    /// whose life was stretched, and ours are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnafter: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reference {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
}

/// A token that lives in a Secret and does not expire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LegacyClaims {
    pub(super) iss: String,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    pub(super) namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    pub(super) secret: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    pub(super) name: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    pub(super) uid: String,
    pub(super) sub: String,
}

/// Both layouts; which one it is, the issuer says.
#[derive(Clone, Debug)]
pub(super) enum AnyClaims {
    Bound(Box<Claims>),
    Legacy(LegacyClaims),
}

impl AnyClaims {
    /// `None` when the payload is neither.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Issuer {
            iss: String,
        }
        let Issuer { iss } = serde_json::from_slice(payload).ok()?;
        if iss == LEGACY_ISSUER {
            serde_json::from_slice(payload).ok().map(AnyClaims::Legacy)
        } else {
            serde_json::from_slice(payload).ok().map(|claims| AnyClaims::Bound(Box::new(claims)))
        }
    }
}

/// A single audience may be written without its list.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(audience) => vec![audience],
        OneOrMany::Many(audiences) => audiences,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn reading_claims_never_panics(payload in any::<Vec<u8>>(), text in "\\{\"iss\":\"(kubernetes/serviceaccount|x)\"[ -~]{0,80}\\}") {
            let _ = AnyClaims::read(&payload);
            let _ = AnyClaims::read(text.as_bytes());
        }
    }
}
