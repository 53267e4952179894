//! One certificate that the authority signs, and when it is due for a new one.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SerialNumber,
};
use sheaf_world::World;
use x509_parser::time::ASN1Time;

use crate::{
    PkiError,
    authority::{self, Authority},
    durable,
    inspect::{Facts, inspect, is_signed_by},
};

const LIFE_SECS: i64 = 365 * 86_400;
/// A client whose clock is a little behind must not refuse a certificate made just now.
const BACKDATED_SECS: i64 = 3600;

/// Every name and address under which clients may reach the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingNames {
    /// The node's own name, by which the API server knows whom it reached when it asks a node.
    pub node: String,
    pub dns: BTreeSet<String>,
    pub addresses: BTreeSet<IpAddr>,
}

impl ServingNames {
    /// The node's own name, the names under which programs inside a Kubernetes cluster
    /// look for their API server, this host to itself, and `addresses`. Wildcard
    /// addresses (`0.0.0.0`) name nobody and are left out.
    pub fn of_node(name: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        let usual = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ];
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        ServingNames {
            node: name.to_owned(),
            dns: usual.into_iter().chain([name]).map(str::to_owned).collect(),
            addresses: addresses.into_iter().filter(|ip| !ip.is_unspecified()).chain(loopback).collect(),
        }
    }

    /// The node's own name alone: whoever asks a node asks that node and no other, at whatever address.
    pub(crate) fn only_node(&self) -> Self {
        ServingNames {
            node: self.node.clone(),
            dns: BTreeSet::from([self.node.clone()]),
            addresses: BTreeSet::new(),
        }
    }
}

/// What a certificate should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeafSpec {
    /// Proves to clients that they reached this node.
    Server { common_name: String, names: ServingNames },
    /// Proves to the API server who is asking: a user and its groups.
    Client { common_name: String, organisations: Vec<String> },
}

/// A certificate and its key, as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Leaf {
    pub certificate: String,
    pub key: String,
    /// Seconds since the Unix epoch.
    pub expires: i64,
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Why a leaf is made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Missing,
    Broken,
    OtherAuthority,
    OtherNames,
    NotYetValid,
    NearItsEnd,
}

/// The leaf called `name` in `directory` if it can go on being used, or why it cannot.
pub(crate) fn read(
    directory: &Path,
    name: &str,
    spec: &LeafSpec,
    authority: &Authority,
    now: i64,
) -> Result<Result<Leaf, Due>, PkiError> {
    let key_file = directory.join(format!("{name}.key"));
    let certificate = authority::read_if_there(&directory.join(format!("{name}.crt")))?;
    let (Some(certificate), Some(key)) = (certificate, authority::read_if_there(&key_file)?) else {
        return Ok(Err(Due::Missing));
    };
    authority::close_to_others(&key_file)?;
    let (Ok(facts), Ok(pair)) = (inspect(&certificate), KeyPair::from_pem(&key)) else {
        return Ok(Err(Due::Broken));
    };
    if facts.public_key != pair.subject_public_key_info() {
        return Ok(Err(Due::Broken));
    }
    if !is_signed_by(&certificate, &authority.pem) {
        return Ok(Err(Due::OtherAuthority));
    }
    Ok(match why_due(&facts, spec, now) {
        Some(due) => Err(due),
        None => Ok(Leaf { certificate, key, expires: facts.not_after }),
    })
}

/// Signs a new leaf with a new key and puts both where [`read`] looks for them.
pub(crate) fn issue(
    directory: &Path,
    name: &str,
    spec: &LeafSpec,
    authority: &Authority,
    world: &World,
) -> Result<Leaf, PkiError> {
    let sign = |source| PkiError::Sign { name: name.to_owned(), source };
    let key = new_key(name)?;
    let mut params = match spec {
        LeafSpec::Server { names, .. } => {
            let addresses = names.addresses.iter().map(IpAddr::to_string);
            CertificateParams::new(names.dns.iter().cloned().chain(addresses).collect::<Vec<_>>())
        }
        LeafSpec::Client { .. } => CertificateParams::new(Vec::new()),
    }
    .map_err(sign)?;
    set_life(&mut params, LIFE_SECS, world);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    match spec {
        LeafSpec::Server { common_name, .. } => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            params.distinguished_name.push(DnType::CommonName, common_name.as_str());
        }
        LeafSpec::Client { common_name, organisations } => {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            for organisation in organisations {
                params.distinguished_name.push(DnType::OrganizationName, organisation.as_str());
            }
            params.distinguished_name.push(DnType::CommonName, common_name.as_str());
        }
    }
    let certificate = params.signed_by(&key, &authority.issuer).map_err(sign)?.pem();
    let facts = inspect(&certificate).map_err(|reason| PkiError::Unusable { name: name.into(), reason })?;
    let leaf = Leaf { certificate, key: key.serialize_pem(), expires: facts.not_after };
    authority::write(&directory.join(format!("{name}.key")), durable::PRIVATE, &leaf.key)?;
    authority::write(&directory.join(format!("{name}.crt")), durable::PUBLIC, &leaf.certificate)?;
    Ok(leaf)
}

/// Why a certificate that says `facts` must be replaced at `now`, if it must.
fn why_due(facts: &Facts, spec: &LeafSpec, now: i64) -> Option<Due> {
    let says_what_it_should = match spec {
        LeafSpec::Server { common_name, names } => {
            facts.for_servers
                && facts.common_name == *common_name
                && facts.dns == names.dns
                && facts.addresses == names.addresses
        }
        LeafSpec::Client { common_name, organisations } => {
            facts.for_clients && facts.common_name == *common_name && facts.organisations == *organisations
        }
    };
    if !says_what_it_should {
        return Some(Due::OtherNames);
    }
    // The clock was wrong when it was made, or is wrong now; either way clients refuse it.
    if now < facts.not_before {
        return Some(Due::NotYetValid);
    }
    let life = facts.not_after - facts.not_before;
    (facts.not_after - now <= life / 3).then_some(Due::NearItsEnd)
}

pub(crate) fn new_key(name: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
        .map_err(|source| PkiError::Sign { name: name.to_owned(), source })
}

/// Valid from a little before now, with a serial number of its own and an empty name.
pub(crate) fn set_life(params: &mut CertificateParams, life_secs: i64, world: &World) {
    let from = now(world) - BACKDATED_SECS;
    // ASN1Time is used for its conversion alone: it refuses only years past 9999.
    if let (Ok(from), Ok(until)) =
        (ASN1Time::from_timestamp(from), ASN1Time::from_timestamp(from + life_secs))
    {
        params.not_before = from.to_datetime();
        params.not_after = until.to_datetime();
    }
    let mut serial: [u8; 16] = world.chance.bytes();
    // Serial numbers are positive, and this one keeps its length.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.distinguished_name = rcgen::DistinguishedName::new();
}

pub(crate) fn now(world: &World) -> i64 {
    i64::try_from(world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    fn client() -> LeafSpec {
        LeafSpec::Client { common_name: "admin".into(), organisations: vec!["system:masters".into()] }
    }

    fn facts(not_before: i64, not_after: i64) -> Facts {
        Facts {
            common_name: "admin".into(),
            organisations: vec!["system:masters".into()],
            dns: BTreeSet::new(),
            addresses: BTreeSet::new(),
            not_before,
            not_after,
            is_ca: false,
            for_servers: false,
            for_clients: true,
            public_key: Vec::new(),
        }
    }

    #[test]
    fn a_leaf_is_due_when_a_third_of_its_life_is_left_and_not_before() {
        let year = facts(0, 300 * DAY);
        assert_eq!(why_due(&year, &client(), 0), None);
        assert_eq!(why_due(&year, &client(), 200 * DAY - 1), None);
        assert_eq!(why_due(&year, &client(), 200 * DAY), Some(Due::NearItsEnd));
        assert_eq!(why_due(&year, &client(), 900 * DAY), Some(Due::NearItsEnd));
    }

    #[test]
    fn a_leaf_from_the_future_is_due() {
        assert_eq!(why_due(&facts(10, 300 * DAY), &client(), 9), Some(Due::NotYetValid));
    }

    #[test]
    fn a_leaf_for_another_user_or_another_use_is_due() {
        let other = LeafSpec::Client { common_name: "admin".into(), organisations: vec!["viewers".into()] };
        assert_eq!(why_due(&facts(0, 300 * DAY), &other, 0), Some(Due::OtherNames));
        let mut server_use = facts(0, 300 * DAY);
        server_use.for_clients = false;
        assert_eq!(why_due(&server_use, &client(), 0), Some(Due::OtherNames));
    }

    #[test]
    fn wildcard_addresses_are_in_no_certificate() {
        let names =
            ServingNames::of_node("n1", [Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(10, 0, 0, 5).into()]);
        let addresses: Vec<_> = names.addresses.iter().map(IpAddr::to_string).collect();
        assert_eq!(addresses, ["10.0.0.5", "127.0.0.1", "::1"]);
        assert!(names.dns.contains("n1") && names.dns.contains("kubernetes.default.svc.cluster.local"));
    }
}
