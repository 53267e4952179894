//! The node's own keys: what signs service-account tokens and what seals secrets in the store. Made
//! once, kept in private files beside the store and never in it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sheaf_apiserver::{
    encryption::{KeepKeys, KeyRing},
    identity::{SigningKeys, generate_key_pem},
};
use sheaf_pki::durable;
use sheaf_world::World;

use crate::{data_dir::Layout, failure::Failure};

pub fn service_account_keys(layout: &Layout, world: &World) -> Result<SigningKeys, Failure> {
    let path = layout.service_account_key();
    let pem = read_or_make(layout, &path, || {
        generate_key_pem(&world.chance).map(|pem| pem.as_bytes().to_vec()).map_err(io::Error::other)
    })?;
    SigningKeys::from_pem(&pem, &[]).map_err(|why| Failure::Read { path, source: io::Error::other(why) })
}

pub fn encryption_keys(layout: &Layout, world: &World) -> Result<KeyRing, Failure> {
    let path = layout.encryption_keys();
    let ring = read_or_make(layout, &path, || Ok(KeyRing::generate(world).to_json().to_vec()))?;
    KeyRing::from_json(&ring).map_err(|why| Failure::Read { path, source: io::Error::other(why) })
}

/// Writes the ring where [`encryption_keys`] finds it.
#[derive(Debug)]
pub struct KeyFile(pub PathBuf);

impl KeepKeys for KeyFile {
    fn save(&self, ring: &KeyRing) -> Result<(), String> {
        durable::replace(&self.0, durable::PRIVATE, &ring.to_json())
            .map_err(|why| format!("{}: {why}", self.0.display()))
    }
}

fn read_or_make(
    layout: &Layout,
    path: &Path,
    make: impl FnOnce() -> io::Result<Vec<u8>>,
) -> Result<Vec<u8>, Failure> {
    match fs::read(path) {
        Ok(content) => {
            durable::make_private(path).map_err(|source| Failure::Write { path: path.into(), source })?;
            return Ok(content);
        }
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(Failure::Read { path: path.into(), source }),
    }
    // A store without its keys would be silently unreadable with new ones. The store is made after its
    // keys, so where there is none yet, nothing is lost by making them. Where its mark is, there was one,
    // and it may come back.
    if layout.store().exists() || layout.store_mark().exists() {
        return Err(Failure::KeyMissing { path: path.into() });
    }
    let write = || {
        let content = make()?;
        durable::ensure_private_directory(&layout.keys())?;
        durable::replace(path, durable::PRIVATE, &content)?;
        Ok(content)
    };
    write().map_err(|source| Failure::Write { path: path.into(), source })
}
