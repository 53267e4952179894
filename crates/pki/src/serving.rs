//! TLS for the API server: which certificate it shows and which clients it believes.
//!
//! Anyone may connect without a certificate (bearer tokens and anonymous health checks
//! do); a certificate that is shown must be signed by the authority and be meant for
//! clients, or the handshake fails. What the name in it may do is not decided here.

use std::{sync::Arc, time::Duration};

use parking_lot::RwLock;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use sheaf_world::Clock;

use crate::{Leaf, PkiError};

/// The certificate that new connections are shown; the old one stays with the old ones.
#[derive(Debug)]
pub(crate) struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    pub fn new(leaf: &Leaf) -> Result<Shown, PkiError> {
        Ok(Shown(RwLock::new(Arc::new(certified(leaf)?))))
    }

    pub fn swap(&self, leaf: &Leaf) -> Result<(), PkiError> {
        *self.0.write() = Arc::new(certified(leaf)?);
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, client certificates if the client has one.
pub(crate) fn server_config(
    shown: Arc<Shown>,
    trusted: &str,
    clock: &Clock,
) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(trusted.as_bytes()) {
        let authority = authority.map_err(|why| unusable("the authority", why))?;
        roots.add(authority).map_err(|why| unusable("the authority", why))?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|why| unusable("the authority", why))?;
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(HandedIn(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable("apiserver", why))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certified(leaf: &Leaf) -> Result<CertifiedKey, PkiError> {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| unusable("apiserver", why))?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).map_err(|why| unusable("apiserver", why))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|why| unusable("apiserver", why))
}

fn unusable(name: &str, why: impl std::fmt::Display) -> PkiError {
    PkiError::Unusable { name: name.to_owned(), reason: why.to_string() }
}

/// Client certificates expire by the handed-in clock, too.
#[derive(Debug)]
struct HandedIn(Clock);

impl TimeProvider for HandedIn {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.since_epoch().as_secs())))
    }
}
