//! Why the program ends without having done what was asked, and with which code.

use std::{error::Error, fmt::Write as _, io, path::PathBuf, process::ExitCode};

use sheaf_apiserver::identity::users::UserError;
use sheaf_cli::{BadSetting, asking::table::printable, kubeconfig::KubeconfigError};
use sheaf_pki::PkiError;
use sheaf_store::{StoreError, embedded::OpenError};

use crate::data_dir::DataDirError;

/// Bad settings end with code 2, as the argument parser's own complaints do; what a cluster refuses with a code that says
/// why (`sheaf_cli::asking::refusal`); all else with 1.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Setting(#[from] BadSetting),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Certificates(#[from] PkiError),
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error(
        "there is no kubeconfig at {path}: start a node with `sheaf up`, or name its directory with --data-dir"
    )]
    NoKubeconfig { path: PathBuf },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the key {path} is gone, and what it protects cannot be read without it: put it back from a backup, or start on an empty data directory"
    )]
    KeyMissing { path: PathBuf },
    #[error("cannot write the audit log {path} (--audit-log names another, or is `off`)")]
    AuditLog {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot open the store")]
    Store(#[from] OpenError),
    #[error("cannot use the etcd")]
    Etcd(#[from] sheaf_store::etcd::OpenError),
    #[error("the API server cannot start")]
    Api(#[from] StoreError),
    #[error("this host is not ready to run machines")]
    Machines(#[from] crate::machines::NoTools),
    #[error("there is no node in {path}: name its directory with --data-dir")]
    NoNode { path: PathBuf },
    #[error("the node (process {pid}) was asked to stop and has not: see its log")]
    WontStop { pid: u32 },
    #[error("cannot stop the virtual machines")]
    StopMachines(#[from] sheaf_hypervisor::HypervisorError),
    #[error("cannot take the network of the virtual machines off this host")]
    Network(#[from] sheaf_network::NetworkError),
    #[error(transparent)]
    Install(#[from] sheaf_cli::install::InstallError),
    #[error(transparent)]
    Demo(#[from] sheaf_cli::demo::DemoError),
    #[error(transparent)]
    Refusal(#[from] sheaf_cli::asking::Refusal),
    #[error(transparent)]
    SupportBundle(#[from] sheaf_cli::support_bundle::SupportBundleError),
    #[error("cannot make the first administrator")]
    Administrator(#[from] UserError),
    #[error("the node at {server} did not do it: is it running?")]
    Ask {
        server: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error(transparent)]
    StreamPort(#[from] sheaf_agent::stream_port::BindError),
    #[error("cannot print")]
    Print(#[source] io::Error),
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}

impl Failure {
    /// Prints what went wrong, down to its first cause, on standard error.
    pub fn tell(&self) -> ExitCode {
        if let Failure::Refusal(why) = self
            && why.is_silent()
        {
            return ExitCode::from(why.exit_code());
        }
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(why) = cause {
            // Writing to a String cannot fail.
            _ = write!(text, ": {why}");
            cause = why.source();
        }
        eprintln!("sheaf: {}", printable(&text));
        ExitCode::from(match self {
            Failure::Setting(_) | Failure::DataDir(DataDirError::Unusable(_)) => 2,
            Failure::Refusal(why) => why.exit_code(),
            _ => 1,
        })
    }
}
