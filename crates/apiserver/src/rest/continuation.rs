//! The token that continues a list where the last page ended, at the same revision.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::status::ApiError;

/// Opaque to clients; the fields are ours.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Continuation {
    #[serde(rename = "v")]
    form: u8,
    /// The revision all pages show; 0 continues on whatever is newest.
    #[serde(rename = "rv")]
    pub revision: u64,
    /// The place of the last object given.
    #[serde(rename = "after")]
    pub after: String,
}

const FORM: u8 = 1;

impl Continuation {
    pub fn new(revision: u64, after: &str) -> Self {
        Continuation { form: FORM, revision, after: after.to_string() }
    }

    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Refuses what is not ours, and a token of another namespace.
    pub fn decode(token: &str, namespace: &str) -> Result<Self, ApiError> {
        let invalid = |why: &str| ApiError::bad_request(format!("continue key is not valid: {why}"));
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|why| invalid(&why.to_string()))?;
        let read: Continuation = serde_json::from_slice(&bytes).map_err(|why| invalid(&why.to_string()))?;
        if read.form != FORM {
            return Err(invalid("it was made by another version of this server"));
        }
        let fits = match read.after.split_once('/') {
            Some((within, _)) => namespace.is_empty() || within == namespace,
            None => false,
        };
        if fits { Ok(read) } else { Err(invalid("it belongs to another list")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_went() {
        let token = Continuation::new(7, "ns/name");
        assert_eq!(Continuation::decode(&token.encode(), "ns").unwrap(), token);
        assert_eq!(Continuation::decode(&token.encode(), "").unwrap(), token);
    }

    #[test]
    fn a_token_does_not_open_another_namespace() {
        let token = Continuation::new(7, "secret-place/name").encode();
        assert_eq!(Continuation::decode(&token, "ns").unwrap_err().reason(), "BadRequest");
    }

    proptest::proptest! {
        #[test]
        fn no_token_makes_the_reader_panic(text in ".{0,80}") {
            let _ = Continuation::decode(&text, "ns");
        }
    }
}
