//! The certificate authority: made once, read ever after, never replaced by itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use sheaf_world::World;
use tracing::warn;

use crate::{PkiError, durable, inspect::inspect, leaf};

const LIFE_SECS: i64 = 10 * 365 * 86_400;

/// The authority as it lies on disk, ready to sign.
pub(crate) struct Authority {
    /// The whole of `ca.crt`: the first certificate signs, all are trusted.
    pub pem: String,
    pub expires: i64,
    pub issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Reads the authority in `directory`, or makes one where there is none.
    pub fn ensure(directory: &Path, world: &World) -> Result<Authority, PkiError> {
        let (certificate, key_file) = (directory.join("ca.crt"), directory.join("ca.key"));
        let key = read_key(&key_file)?;
        let key = match (read_if_there(&certificate)?, key) {
            (Some(pem), Some(key)) => return Authority::from_files(pem, key, certificate),
            (Some(_), None) => return Err(PkiError::AuthorityKeyMissing { certificate, key: key_file }),
            // The crash that the order of the two writes allows for: nobody has seen
            // this key yet, so it is as good as a new one.
            (None, Some(key)) => key,
            (None, None) => {
                let key = leaf::new_key("the authority")?;
                write(&key_file, durable::PRIVATE, &key.serialize_pem())?;
                key
            }
        };
        let pem = self_sign(&key, world)?;
        write(&certificate, durable::PUBLIC, &pem)?;
        Authority::from_files(pem, key, certificate)
    }

    fn from_files(pem: String, key: KeyPair, path: PathBuf) -> Result<Authority, PkiError> {
        let unusable = |reason: String| PkiError::AuthorityUnusable { path: path.clone(), reason };
        let facts = inspect(&pem).map_err(unusable)?;
        if !facts.is_ca {
            return Err(unusable("its first certificate is not one of an authority".into()));
        }
        if facts.public_key != key.subject_public_key_info() {
            return Err(unusable("ca.key is the key of another certificate".into()));
        }
        let issuer = Issuer::from_ca_cert_pem(&pem, key).map_err(|why| unusable(why.to_string()))?;
        Ok(Authority { pem, expires: facts.not_after, issuer })
    }
}

fn self_sign(key: &KeyPair, world: &World) -> Result<String, PkiError> {
    let sign = |source| PkiError::Sign { name: "the authority".into(), source };
    let mut params = CertificateParams::new(Vec::new()).map_err(sign)?;
    leaf::set_life(&mut params, LIFE_SECS, world);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    // Two authorities must not share a name: a client that trusts both, as during a
    // change of authority, could not tell which one to try.
    params.distinguished_name.push(DnType::CommonName, format!("sheaf-ca-{}", world.chance.name_suffix()));
    Ok(params.self_signed(key).map_err(sign)?.pem())
}

/// The key in `path`, closed to others first if it was open; `None` if there is no such file.
fn read_key(path: &Path) -> Result<Option<KeyPair>, PkiError> {
    let Some(pem) = read_if_there(path)? else { return Ok(None) };
    close_to_others(path)?;
    KeyPair::from_pem(&pem)
        .map(Some)
        .map_err(|why| PkiError::AuthorityUnusable { path: path.to_owned(), reason: why.to_string() })
}

pub(crate) fn close_to_others(path: &Path) -> Result<(), PkiError> {
    match durable::make_private(path) {
        Ok(None) => Ok(()),
        Ok(Some(mode)) => {
            warn!(path = %path.display(), "others could read or write this key (mode {mode:03o}); it is now 0600");
            Ok(())
        }
        Err(source) => Err(PkiError::Write { path: path.to_owned(), source }),
    }
}

pub(crate) fn read_if_there(path: &Path) -> Result<Option<String>, PkiError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::Read { path: path.to_owned(), source }),
    }
}

pub(crate) fn write(path: &Path, mode: u32, text: &str) -> Result<(), PkiError> {
    durable::replace(path, mode, text.as_bytes())
        .map_err(|source| PkiError::Write { path: path.to_owned(), source })
}
