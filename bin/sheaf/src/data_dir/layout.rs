//! Where what is kept.
//!
//! ```text
//!   DIR/                        0700
//!     LOCK                      held while a node runs; the holder's process id
//!     format                    which layout this is
//!     store.redb                the embedded store
//!     store.mark, etcd.mark     which revisions were told to clients
//!     admin-password            drawn at the first start
//!     admin.kubeconfig
//!     audit/                    who did what through the API, unless told otherwise
//!     support-bundles/          what was made to be sent to others, until it is fetched
//!     pki/                      ca, apiserver, admin: .crt and .key
//!     keys/
//!       service-account.pem     signs service-account tokens
//!       encryption.json         encrypts Secrets at rest
//! ```

use std::path::{Path, PathBuf};

/// The paths in one data directory, whether it exists or not.
#[derive(Clone, Debug)]
pub struct Layout {
    root: PathBuf,
}

macro_rules! places {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(pub fn $name(&self) -> PathBuf {
            self.root.join($path)
        })*
    };
}

impl Layout {
    pub fn new(root: &Path) -> Self {
        Layout { root: root.to_owned() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    places! {
        lock: "LOCK",
        format: "format",
        store: "store.redb",
        store_mark: "store.mark",
        etcd_mark: "etcd.mark",
        admin_password: "admin-password",
        admin_kubeconfig: "admin.kubeconfig",
        pki: "pki",
        keys: "keys",
        service_account_key: "keys/service-account.pem",
        encryption_keys: "keys/encryption.json",
    }
}
