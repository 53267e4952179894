//! Which authority a server shows, without telling it anything.
//!
//! A handshake is begun, what the server shows is kept, and the handshake is refused, always: not a byte of ours goes over
//! a connection whose other end is not known.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Uri;
use ring::digest::{SHA256, digest};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::ring::default_provider,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::asking::Refusal;

const PATIENCE: Duration = Duration::from_secs(10);

/// Of a certificate, as OpenSSL and browsers compute it.
#[derive(Clone, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub fn of(certificate: &[u8]) -> Fingerprint {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Fingerprint(bytes)
    }

    /// With or without colons, in letters of any size, and with `sha256:` before it or not.
    pub fn parse(text: &str) -> Result<Fingerprint, String> {
        let wrong = || {
            "it is no SHA-256 fingerprint; what fits: 64 hexadecimal digits, with colons or without"
                .to_owned()
        };
        let lower = text.to_lowercase();
        let digits: String = lower.trim_start_matches("sha256:").chars().filter(|c| *c != ':').collect();
        if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Fingerprint(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A certificate that others are signed with.
#[derive(Debug)]
pub struct Authority {
    der: Vec<u8>,
    pub pem: String,
}

impl Authority {
    fn new(der: &[u8]) -> Authority {
        let encoded = STANDARD.encode(der);
        let lines: Vec<&str> =
            (0..encoded.len()).step_by(64).map(|at| &encoded[at..(at + 64).min(encoded.len())]).collect();
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
        Authority { der: der.to_vec(), pem }
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }
}

/// The last certificate that the server shows.
pub async fn shown_by(server: &str) -> Result<Authority, Refusal> {
    let unreachable = |why: String| Refusal::Unreachable { server: server.to_owned(), why };
    let uri: Uri = server.parse().map_err(|why| Refusal::cannot("read the address", why))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let connecting = timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await;
    let stream = match connecting {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(unreachable(why.to_string())),
        Err(_) => return Err(unreachable("it does not answer".to_owned())),
    };
    let onlooker = Arc::new(Onlooker::default());
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| Refusal::cannot("speak TLS", why))?
        .dangerous()
        .with_custom_certificate_verifier(onlooker.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host).map_err(|why| Refusal::cannot("use that name", why))?;
    let handshake = timeout(PATIENCE, TlsConnector::from(Arc::new(config)).connect(name, stream)).await;
    let seen = onlooker.seen.lock().map(|mut seen| std::mem::take(&mut *seen)).unwrap_or_default();
    match (seen.last(), handshake) {
        (Some(last), _) if seen.len() > 1 => Ok(Authority::new(last)),
        (Some(_), _) => Err(Refusal::Refused {
            doing: format!("sign in at {server}"),
            message: "it does not show which authority signed its certificate, so it is no Sheaf, or something stands \
                      before it; copy the kubeconfig of a node instead (`sheaf kubeconfig`)"
                .to_owned(),
        }),
        (None, Ok(Err(why))) => Err(unreachable(why.to_string())),
        (None, _) => Err(unreachable("it does not speak TLS".to_owned())),
    }
}

/// Looks at what is shown and refuses it.
#[derive(Debug, Default)]
struct Onlooker {
    seen: Mutex<Vec<Vec<u8>>>,
}

impl ServerCertVerifier for Onlooker {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Ok(mut seen) = self.seen.lock() {
            *seen = std::iter::once(end_entity).chain(intermediates).map(|one| one.to_vec()).collect();
        }
        Err(rustls::Error::General("it was only looked at".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("it was only looked at".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("it was only looked at".to_owned()))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed_and_without_colons() {
        let one = Fingerprint::of(b"a certificate");
        let printed = one.to_string();
        assert_eq!(printed.len(), 95);
        for text in
            [printed.clone(), printed.replace(':', ""), printed.to_lowercase(), format!("SHA256:{printed}")]
        {
            assert_eq!(Fingerprint::parse(&text).unwrap(), one, "{text}");
        }
        for odd in ["", "abc", &printed[3..], &format!("{}zz", &printed[..93])] {
            Fingerprint::parse(odd).unwrap_err();
        }
        assert_ne!(Fingerprint::of(b"another"), one);
    }

    #[test]
    fn a_certificate_is_written_as_pem_lines() {
        let pem = Authority::new(&[7; 100]).pem;
        assert!(pem.lines().all(|line| line.len() <= 64), "{pem}");
        assert!(
            pem.starts_with("-----BEGIN CERTIFICATE-----\n") && pem.ends_with("-----END CERTIFICATE-----\n")
        );
    }
}
