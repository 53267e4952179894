//! Decides whether a service-account token is good now, and whose it is.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest, Sha256};
use sheaf_world::{Clock, Timestamp};
use subtle::ConstantTimeEq;

use super::{
    claims::{AnyClaims, Claims, LEGACY_ISSUER, LegacyClaims, Reference},
    issuer::TokenSettings,
};
use crate::identity::{
    Directory, SigningKeys, User,
    certificate::CREDENTIAL_ID,
    objects::{is_being_deleted, text, uid},
    recent::Recent,
    user::{AUTHENTICATED, service_account_groups, service_account_name},
};

/// How far another node's clock may run ahead of ours. A token's end has no such grace.
const CLOCK_LEEWAY_SECS: i64 = 60;
/// Signatures remembered as good, twice this many at most. Checking one costs more than the rest of a
/// request together.
const REMEMBERED: usize = 1024;

/// Whose a token is, and which of the audiences asked for it is meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub user: Arc<User>,
    pub audiences: Vec<String>,
}

/// Why a token is not good, for logs and for those who may review tokens; its bearer only learns that it is not.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum VerifyError {
    #[error("invalid bearer token")]
    Invalid,
    #[error("service account token has expired")]
    Expired,
    #[error("service account token is not valid yet")]
    NotYetValid,
    #[error("token audiences {found:?} is invalid for the target audiences {wanted:?}")]
    WrongAudience { found: Vec<String>, wanted: Vec<String> },
    #[error("service account {namespace}/{name} has been deleted")]
    AccountDeleted { namespace: String, name: String },
    #[error("service account UID ({found}) does not match claim ({claimed})")]
    AccountRecreated { found: String, claimed: String },
    #[error("service account token has been invalidated")]
    Invalidated,
}

pub(crate) struct Verifier {
    keys: Arc<SigningKeys>,
    settings: TokenSettings,
    directory: Arc<dyn Directory>,
    clock: Clock,
    /// By the hash of the whole token. Says only that the signature is ours; never that the token is alive.
    signed: Mutex<Recent<[u8; 32], Arc<AnyClaims>>>,
}

impl Verifier {
    pub(crate) fn new(
        keys: Arc<SigningKeys>,
        settings: TokenSettings,
        directory: Arc<dyn Directory>,
        clock: Clock,
    ) -> Self {
        Verifier { keys, settings, directory, clock, signed: Mutex::new(Recent::new(REMEMBERED)) }
    }

    pub(crate) fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// Checks `token` for somebody who answers to `audiences`.
    pub(crate) fn verify(&self, token: &str, audiences: &[String]) -> Result<Verified, VerifyError> {
        match &*self.signed_claims(token)? {
            AnyClaims::Bound(claims) => self.verify_bound(claims, audiences),
            AnyClaims::Legacy(claims) => self.verify_legacy(token, claims, audiences),
        }
    }

    fn signed_claims(&self, token: &str) -> Result<Arc<AnyClaims>, VerifyError> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        if let Some(claims) = self.signed.lock().get(&hash) {
            return Ok(claims);
        }
        let payload = self.keys.verify(token).ok_or(VerifyError::Invalid)?;
        let claims = Arc::new(AnyClaims::read(&payload).ok_or(VerifyError::Invalid)?);
        self.signed.lock().insert(hash, claims.clone());
        Ok(claims)
    }

    fn verify_bound(&self, claims: &Claims, audiences: &[String]) -> Result<Verified, VerifyError> {
        if claims.iss != self.settings.issuer {
            return Err(VerifyError::Invalid);
        }
        let now = self.clock.now().as_second();
        if now >= claims.exp {
            return Err(VerifyError::Expired);
        }
        if claims.nbf.max(claims.iat) > now.saturating_add(CLOCK_LEEWAY_SECS) {
            return Err(VerifyError::NotYetValid);
        }
        let matching = meant_for(&claims.aud, audiences)?;
        let namespace = claims.kubernetes.namespace.as_str();
        let account = &claims.kubernetes.serviceaccount;
        if claims.sub != service_account_name(namespace, &account.name) {
            return Err(VerifyError::Invalid);
        }
        self.account_lives(namespace, account)?;

        let mut extra = BTreeMap::new();
        let kubernetes = &claims.kubernetes;
        if let Some(secret) = &kubernetes.secret {
            self.bound_lives("secrets", namespace, secret)?;
        }
        if let Some(pod) = &kubernetes.pod {
            self.bound_lives("pods", namespace, pod)?;
            note(&mut extra, "pod", pod);
        }
        if let Some(node) = &kubernetes.node {
            // Beside a pod the node is only a remark: the pod's own life decides.
            if kubernetes.pod.is_none() {
                self.bound_lives("nodes", "", node)?;
            }
            note(&mut extra, "node", node);
        }
        if let Some(id) = &claims.jti {
            extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
        }
        Ok(Verified { user: user(namespace, account, extra), audiences: matching })
    }

    fn verify_legacy(
        &self,
        token: &str,
        claims: &LegacyClaims,
        audiences: &[String],
    ) -> Result<Verified, VerifyError> {
        let account = Reference { name: claims.name.clone(), uid: claims.uid.clone() };
        let named = [&claims.namespace, &claims.secret, &claims.name, &claims.uid];
        if claims.iss != LEGACY_ISSUER
            || named.iter().any(|claim| claim.is_empty())
            || claims.sub != service_account_name(&claims.namespace, &claims.name)
        {
            return Err(VerifyError::Invalid);
        }
        // These tokens name no audience: they are for the API server, and for nobody else.
        let matching = meant_for(&self.settings.audiences, audiences)?;
        let secret = self
            .directory
            .object("", "secrets", &claims.namespace, &claims.secret)
            .filter(|secret| !is_being_deleted(secret))
            .filter(|secret| text(secret, "/type") == "kubernetes.io/service-account-token")
            .ok_or(VerifyError::Invalidated)?;
        let held = STANDARD.decode(text(&secret, "/data/token")).map_err(|_| VerifyError::Invalidated)?;
        if !bool::from(held.ct_eq(token.as_bytes())) {
            return Err(VerifyError::Invalidated);
        }
        self.account_lives(&claims.namespace, &account)?;
        Ok(Verified { user: user(&claims.namespace, &account, BTreeMap::new()), audiences: matching })
    }

    fn account_lives(&self, namespace: &str, account: &Reference) -> Result<(), VerifyError> {
        let found = self
            .directory
            .object("", "serviceaccounts", namespace, &account.name)
            .filter(|found| !self.is_deleted(found))
            .ok_or_else(|| VerifyError::AccountDeleted {
                namespace: namespace.to_owned(),
                name: account.name.clone(),
            })?;
        // An empty uid claims nothing and must not match an object that has none.
        if account.uid.is_empty() || uid(&found) != account.uid {
            return Err(VerifyError::AccountRecreated {
                found: uid(&found).to_owned(),
                claimed: account.uid.clone(),
            });
        }
        Ok(())
    }

    fn bound_lives(&self, resource: &str, namespace: &str, bound: &Reference) -> Result<(), VerifyError> {
        self.directory
            .object("", resource, namespace, &bound.name)
            .filter(|found| !bound.uid.is_empty() && uid(found) == bound.uid && !self.is_deleted(found))
            .map(|_| ())
            .ok_or(VerifyError::Invalidated)
    }

    /// Marked for deletion, and the time given for it has come: what ends gracefully keeps its rights until then.
    fn is_deleted(&self, object: &Value) -> bool {
        let deletion = text(object, "/metadata/deletionTimestamp");
        !deletion.is_empty() && deletion.parse::<Timestamp>().map_or(true, |time| time <= self.clock.now())
    }
}

fn meant_for(claimed: &[String], wanted: &[String]) -> Result<Vec<String>, VerifyError> {
    let matching: Vec<String> =
        wanted.iter().filter(|audience| claimed.contains(audience)).cloned().collect();
    if matching.is_empty() {
        return Err(VerifyError::WrongAudience { found: claimed.to_vec(), wanted: wanted.to_vec() });
    }
    Ok(matching)
}

fn note(extra: &mut BTreeMap<String, Vec<String>>, kind: &str, bound: &Reference) {
    extra.insert(format!("authentication.kubernetes.io/{kind}-name"), vec![bound.name.clone()]);
    extra.insert(format!("authentication.kubernetes.io/{kind}-uid"), vec![bound.uid.clone()]);
}

fn user(namespace: &str, account: &Reference, extra: BTreeMap<String, Vec<String>>) -> Arc<User> {
    let mut groups = service_account_groups(namespace);
    groups.push(AUTHENTICATED.to_owned());
    Arc::new(User {
        name: service_account_name(namespace, &account.name),
        uid: account.uid.clone(),
        groups,
        extra,
    })
}
