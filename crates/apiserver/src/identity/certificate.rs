//! The client certificate of a connection, read once: the common name is the user, each organisation a group.
//!
//! That the certificate chains to the cluster's CA is rustls's word, given before this is asked. A
//! connection may outlive its certificate, so the dates are looked at on every request.

use std::{collections::BTreeMap, fmt::Write, sync::Arc};

use sha2::{Digest, Sha256};
use sheaf_world::Clock;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::user::{AUTHENTICATED, User};

pub(crate) const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Holds what is wrong with a certificate as well as who it names: a certificate that says nothing usable
/// must refuse its requests, and must never make them anonymous.
#[derive(Clone, Debug)]
pub struct PeerCertificate(Result<Named, &'static str>);

#[derive(Clone, Debug)]
struct Named {
    user: Arc<User>,
    not_before: i64,
    not_after: i64,
}

impl PeerCertificate {
    /// `der` is the end-entity certificate, already verified.
    pub fn from_der(der: &[u8]) -> Self {
        PeerCertificate(read(der))
    }

    pub(crate) fn user(&self, clock: &Clock) -> Result<Arc<User>, &'static str> {
        let named = self.0.as_ref().map_err(|why| *why)?;
        let now = i64::try_from(clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        if now < named.not_before {
            return Err("the certificate is not valid yet");
        }
        if now > named.not_after {
            return Err("the certificate has expired");
        }
        Ok(named.user.clone())
    }
}

fn read(der: &[u8]) -> Result<Named, &'static str> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| "the certificate cannot be read")?;
    let subject = certificate.subject();
    // Of several common names the last is the most specific one, and the one the original takes.
    let name = subject.iter_common_name().last().and_then(|name| name.as_str().ok()).unwrap_or_default();
    if name.is_empty() {
        return Err("the certificate has no common name");
    }
    let mut groups = Vec::new();
    for organisation in subject.iter_organization() {
        groups.push(
            organisation.as_str().map_err(|_| "an organisation of the certificate is not text")?.to_owned(),
        );
    }
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let fingerprint = Sha256::digest(der).iter().fold("X509SHA256=".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // A String takes everything.
        text
    });
    let user = User {
        name: name.to_owned(),
        uid: String::new(),
        groups,
        extra: BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![fingerprint])]),
    };
    let validity = certificate.validity();
    Ok(Named {
        user: Arc::new(user),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};

    use super::*;

    /// A certificate for tests: valid from 2020 until the given year.
    pub(crate) fn certificate(name: Option<&str>, organisations: &[&str], until: i32) -> PeerCertificate {
        let mut params = CertificateParams::default();
        let mut subject = DistinguishedName::new();
        if let Some(name) = name {
            subject.push(DnType::CommonName, name);
        }
        // rcgen keeps one value per type, so the second organisation gives its type by number.
        let types = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (kind, organisation) in types.into_iter().zip(organisations) {
            subject.push(kind, *organisation);
        }
        params.distinguished_name = subject;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        PeerCertificate::from_der(params.self_signed(&key).unwrap().der())
    }

    #[test]
    fn the_common_name_is_the_user_and_each_organisation_a_group() {
        let user = certificate(Some("jo"), &["ops", "dev"], 2200).user(&Clock::system()).unwrap();
        assert_eq!(user.name, "jo");
        assert_eq!(user.groups, ["ops", "dev", "system:authenticated"]);
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
    }

    #[test]
    fn a_certificate_without_a_name_is_refused() {
        assert!(certificate(None, &["system:masters"], 2200).user(&Clock::system()).is_err());
        assert!(certificate(Some(""), &["system:masters"], 2200).user(&Clock::system()).is_err());
    }

    #[test]
    fn a_certificate_that_expired_during_its_connection_is_refused() {
        assert_eq!(
            certificate(Some("jo"), &[], 2021).user(&Clock::system()).unwrap_err(),
            "the certificate has expired"
        );
    }

    proptest! {
        #[test]
        fn reading_a_certificate_never_panics(der in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(PeerCertificate::from_der(&der).user(&Clock::system()).is_err());
        }
    }
}
