//! The demo's SSH key: made once, kept beside the kubeconfig, readable by its owner alone.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use ring::signature::{Ed25519KeyPair, KeyPair};
use sheaf_world::Chance;
use ssh_key::{
    LineEnding, PrivateKey,
    private::{Ed25519Keypair, Ed25519PrivateKey, KeypairData},
    public::Ed25519PublicKey,
};

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot read the key {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not an SSH key: move it away, and another is made")]
    NotAKey {
        path: PathBuf,
        #[source]
        source: ssh_key::Error,
    },
    #[error("cannot write the key {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot make a key")]
    Make,
}

/// The line of the key at `path` for an `authorized_keys` file; the key is made if it is not there.
pub fn ensure(path: &Path, comment: &str, chance: &Chance) -> Result<String, KeyError> {
    let not_a_key = |source| KeyError::NotAKey { path: path.to_owned(), source };
    let key = match fs::read_to_string(path) {
        Ok(text) => PrivateKey::from_openssh(text).map_err(not_a_key)?,
        Err(why) if why.kind() == io::ErrorKind::NotFound => make(path, comment, chance)?,
        Err(source) => return Err(KeyError::Read { path: path.to_owned(), source }),
    };
    key.public_key().to_openssh().map_err(not_a_key)
}

fn make(path: &Path, comment: &str, chance: &Chance) -> Result<PrivateKey, KeyError> {
    let seed: [u8; 32] = chance.bytes();
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| KeyError::Make)?;
    let public: [u8; 32] = pair.public_key().as_ref().try_into().map_err(|_| KeyError::Make)?;
    let data =
        Ed25519Keypair { public: Ed25519PublicKey(public), private: Ed25519PrivateKey::from_bytes(&seed) };
    let key = PrivateKey::new(KeypairData::Ed25519(data), comment).map_err(|_| KeyError::Make)?;
    let text = key.to_openssh(LineEnding::LF).map_err(|_| KeyError::Make)?;
    let write = || -> io::Result<()> {
        // Under another name until it is whole.
        let unfinished = path.with_extension("new");
        let mut file =
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().map_err(|source| KeyError::Write { path: path.to_owned(), source })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo_ed25519");
        let public = ensure(&path, "demo", &Chance::seeded(1)).unwrap();
        assert!(public.starts_with("ssh-ed25519 AAAA") && public.ends_with(" demo"), "{public}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ensure(&path, "other", &Chance::seeded(2)).unwrap(), public);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_public_key_belongs_to_the_private_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let public = ensure(&path, "demo", &Chance::seeded(1)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let read = PrivateKey::from_openssh(&text).unwrap();
        let KeypairData::Ed25519(pair) = read.key_data() else { panic!("{read:?}") };
        let again = Ed25519KeyPair::from_seed_and_public_key(&pair.private.to_bytes(), &pair.public.0);
        again.unwrap();
        assert_eq!(read.public_key().to_openssh().unwrap(), public);
    }

    #[test]
    fn a_file_that_is_no_key_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "my diary").unwrap();
        assert!(matches!(ensure(&path, "demo", &Chance::seeded(1)), Err(KeyError::NotAKey { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "my diary");
    }
}
