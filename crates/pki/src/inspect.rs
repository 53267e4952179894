//! Reads what a certificate says about itself. Trusts nothing and decides nothing.

use std::{collections::BTreeSet, net::IpAddr};

use x509_parser::{certificate::X509Certificate, extensions::GeneralName, pem::Pem, prelude::FromDer};

/// What the first certificate of a PEM file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub common_name: String,
    pub organisations: Vec<String>,
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
    /// Seconds since the Unix epoch.
    pub not_before: i64,
    /// Seconds since the Unix epoch.
    pub not_after: i64,
    pub is_ca: bool,
    pub for_servers: bool,
    pub for_clients: bool,
    /// The public key as the certificate carries it (DER, with its algorithm).
    pub public_key: Vec<u8>,
}

/// Reads the first certificate in `pem`; the error says in words what is wrong with it.
pub fn inspect(pem: &str) -> Result<Facts, String> {
    with_first(pem, |certificate| {
        let (mut dns, mut addresses) = (BTreeSet::new(), BTreeSet::new());
        if let Ok(Some(names)) = certificate.subject_alternative_name() {
            for name in &names.value.general_names {
                match name {
                    GeneralName::DNSName(name) => _ = dns.insert((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        let usage = certificate.extended_key_usage().ok().flatten();
        Facts {
            common_name: first_text(certificate.subject().iter_common_name()).unwrap_or_default(),
            organisations: certificate
                .subject()
                .iter_organization()
                .filter_map(|attribute| attribute.as_str().ok().map(str::to_owned))
                .collect(),
            dns,
            addresses,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            is_ca: certificate.is_ca(),
            for_servers: usage.as_ref().is_some_and(|usage| usage.value.server_auth),
            for_clients: usage.as_ref().is_some_and(|usage| usage.value.client_auth),
            public_key: certificate.public_key().raw.to_vec(),
        }
    })
}

/// Whom a certificate (DER) that TLS has already verified names.
pub fn common_name(der: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    first_text(certificate.subject().iter_common_name())
}

/// Whether the first certificate in `leaf` carries a valid signature of the first in `authority`.
pub fn is_signed_by(leaf: &str, authority: &str) -> bool {
    with_first(authority, |authority| {
        with_first(leaf, |leaf| {
            leaf.issuer() == authority.subject()
                && leaf.verify_signature(Some(authority.public_key())).is_ok()
        })
        .unwrap_or(false)
    })
    .unwrap_or(false)
}

fn with_first<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> Result<T, String> {
    let block = Pem::iter_from_buffer(pem.as_bytes())
        .filter_map(Result::ok)
        .find(|block| block.label == "CERTIFICATE")
        .ok_or("it holds no PEM certificate")?;
    let (_, certificate) = X509Certificate::from_der(&block.contents)
        .map_err(|why| format!("its certificate is broken: {why}"))?;
    Ok(read(&certificate))
}

fn first_text<'a>(
    mut attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>,
) -> Option<String> {
    attributes.find_map(|attribute| attribute.as_str().ok().map(str::to_owned))
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}
