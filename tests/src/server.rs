//! What a client needs to know of a server, whoever's it is: the same programs ask Sheaf and the original.

use std::path::PathBuf;

use crate::{http::Credentials, node::Node, original::Original};

pub trait Server {
    /// `ADDR:PORT`.
    fn address(&self) -> &str;

    fn admin_kubeconfig(&self) -> PathBuf;

    /// The administrator's certificate and key.
    fn admin(&self) -> Credentials {
        Credentials::from_kubeconfig(&self.admin_kubeconfig())
    }

    /// A place for a test's own files, which goes when the server does.
    fn scratch(&self) -> PathBuf;

    /// The API server's own process.
    fn pid(&self) -> u32;

    /// Power off, as far as a process can tell, and on again: on the same data and at the same address.
    fn killed_and_started_again(self) -> Self;
}

impl Server for Node {
    fn address(&self) -> &str {
        Node::address(self)
    }

    fn admin_kubeconfig(&self) -> PathBuf {
        Node::admin_kubeconfig(self)
    }

    fn scratch(&self) -> PathBuf {
        Node::scratch(self)
    }

    fn pid(&self) -> u32 {
        Node::pid(self)
    }

    fn killed_and_started_again(mut self) -> Self {
        self.kill();
        self.start_again()
    }
}

impl Server for Original {
    fn address(&self) -> &str {
        Original::address(self)
    }

    fn admin_kubeconfig(&self) -> PathBuf {
        Original::admin_kubeconfig(self)
    }

    fn scratch(&self) -> PathBuf {
        Original::scratch(self)
    }

    fn pid(&self) -> u32 {
        Original::pid(self)
    }

    fn killed_and_started_again(mut self) -> Self {
        self.kill();
        self.start_again();
        self
    }
}
