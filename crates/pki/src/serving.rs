//! TLS: which certificate each side shows and whom it believes.
//!
//! At the API server anyone may connect without a certificate (bearer tokens and anonymous health checks
//! do); a certificate that is shown must be signed by the authority and be meant for
//! clients, or the handshake fails. At an agent's stream port nobody enters without one. What the name in it
//! may do is not decided here.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SignatureScheme,
    client::ResolvesClientCert,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use sheaf_world::Clock;

use crate::{Leaf, PkiError};

/// The certificate that new connections are shown; the old one stays with the old ones.
#[derive(Debug)]
pub(crate) struct Shown {
    name: &'static str,
    /// Shown behind it, as PEM: who does not know the authority yet can see which it is, and compare its fingerprint before
    /// a word is sent.
    behind: String,
    key: RwLock<Arc<CertifiedKey>>,
}

impl Shown {
    pub fn new(name: &'static str, leaf: &Leaf, behind: &str) -> Result<Shown, PkiError> {
        let key = RwLock::new(Arc::new(certified(name, leaf, behind)?));
        Ok(Shown { name, behind: behind.to_owned(), key })
    }

    pub fn swap(&self, leaf: &Leaf) -> Result<(), PkiError> {
        *self.key.write() = Arc::new(certified(self.name, leaf, &self.behind)?);
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.key.read().clone())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _roots: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.key.read().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, client certificates if the client has one.
pub(crate) fn server_config(
    shown: Arc<Shown>,
    trusted: &str,
    clock: &Clock,
) -> Result<Arc<ServerConfig>, PkiError> {
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(trusted)?), provider())
        .allow_unauthenticated()
        .build()
        .map_err(|why| unusable("the authority", why))?;
    let mut config = believing(clients, shown, clock)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// TLS 1.2 and 1.3, HTTP/1.1 only, since streams take a connection over, and no client without a certificate.
pub(crate) fn agent_server_config(
    shown: Arc<Shown>,
    trusted: &str,
    clock: &Clock,
) -> Result<Arc<ServerConfig>, PkiError> {
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(trusted)?), provider())
        .build()
        .map_err(|why| unusable("the authority", why))?;
    let mut config = believing(clients, shown, clock)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn believing(
    clients: Arc<dyn ClientCertVerifier>,
    shown: Arc<Shown>,
    clock: &Clock,
) -> Result<ServerConfig, PkiError> {
    Ok(ServerConfig::builder_with_details(provider(), Arc::new(HandedIn(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(shown.name, why))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(shown))
}

/// Shows `shown` to a server whose certificate the authority signed for the name that is dialled.
pub(crate) fn client_config(
    shown: Arc<Shown>,
    trusted: &str,
    clock: &Clock,
) -> Result<Arc<ClientConfig>, PkiError> {
    let mut config = ClientConfig::builder_with_details(provider(), Arc::new(HandedIn(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(shown.name, why))?
        .with_root_certificates(roots(trusted)?)
        .with_client_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn roots(trusted: &str) -> Result<RootCertStore, PkiError> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        let authority = authority.map_err(|why| unusable("the authority", why))?;
        roots.add(authority).map_err(|why| unusable("the authority", why))?;
    }
    Ok(roots)
}

fn certified(name: &str, leaf: &Leaf, behind: &str) -> Result<CertifiedKey, PkiError> {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes())
        .chain(CertificateDer::pem_slice_iter(behind.as_bytes()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| unusable(name, why))?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).map_err(|why| unusable(name, why))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|why| unusable(name, why))
}

fn unusable(name: &str, why: impl std::fmt::Display) -> PkiError {
    PkiError::Unusable { name: name.to_owned(), reason: why.to_string() }
}

/// Certificates expire by the handed-in clock, too.
#[derive(Debug)]
struct HandedIn(Clock);

impl TimeProvider for HandedIn {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.since_epoch().as_secs())))
    }
}
