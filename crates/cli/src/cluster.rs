//! A cluster that a command asks: found by its kubeconfig, for objects and for streams.

use std::{fs, io, path::PathBuf, time::Duration};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use sheaf_client::streams::{StreamError, Streams};
use tokio::time::{Instant, sleep};

use crate::asking::Access;

/// How long a node that is just starting may take to answer.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long until it has written its kubeconfig.
const KUBECONFIG_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long somebody at a keyboard waits for a server that says nothing.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Ways to one cluster.
pub struct Cluster {
    pub objects: kube::Client,
    pub streams: Streams,
    /// Of the context: where things are that name no other.
    pub namespace: String,
}

/// Why a cluster cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(
        "there is no kubeconfig at {path}: start a node with `sheaf up`, sign in to one with `sheaf login`, or name \
         another with --kubeconfig or --data-dir"
    )]
    NoKubeconfig { path: PathBuf },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the kubeconfig {paths} cannot be used")]
    Kubeconfig {
        paths: String,
        #[source]
        source: Box<KubeconfigError>,
    },
    #[error("there is no context {context:?} in {paths}: `sheaf context list` prints those there are")]
    NoContext { context: String, paths: String },
    #[error(transparent)]
    Streams(#[from] StreamError),
    #[error("the cluster at {server} does not answer: is it running?")]
    Silent {
        server: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the cluster did not do it")]
    Refused(#[from] kube::Error),
}

impl Cluster {
    /// As the kubeconfig says. Nothing is asked yet.
    pub async fn of(access: &Access) -> Result<Cluster, ClusterError> {
        let mut kubeconfig = read(&access.kubeconfigs)?;
        if let Some(context) = &access.context {
            if !kubeconfig.contexts.iter().any(|one| one.name == *context) {
                return Err(ClusterError::NoContext { context: context.clone(), paths: access.paths() });
            }
            kubeconfig.current_context = Some(context.clone());
        }
        let failed = |source| ClusterError::Kubeconfig { paths: access.paths(), source: Box::new(source) };
        let options = KubeConfigOptions::default();
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?;
        config.connect_timeout = Some(CONNECT_PATIENCE);
        // Whoever wrote the file ended its line, as editors and `echo` do; the end of a line is no part of a token.
        if let (None, Some(file)) = (&config.auth_info.token, &config.auth_info.token_file) {
            let path = PathBuf::from(file);
            let read = fs::read_to_string(&path);
            let token = read.map_err(|source| ClusterError::Read { path, source })?;
            config.auth_info.token = Some(token.trim().to_owned().into());
        }
        let streams = Streams::of(&config)?;
        let namespace = config.default_namespace.clone();
        Ok(Cluster { objects: kube::Client::try_from(config)?, streams, namespace })
    }

    /// The same once it answers. A node that is being started writes its kubeconfig first and answers a moment later;
    /// `waiting` is called once if that takes any time.
    pub async fn awake(access: &Access, waiting: impl FnOnce()) -> Result<Cluster, ClusterError> {
        let began = Instant::now();
        let mut waiting = Some(waiting);
        loop {
            let why = match Cluster::of(access).await {
                Ok(cluster) => match cluster.objects.apiserver_version().await {
                    Ok(_) => return Ok(cluster),
                    // Who is answered with a refusal need not wait.
                    Err(why @ kube::Error::Api(_)) => return Err(why.into()),
                    Err(source) => ClusterError::Silent {
                        server: cluster.streams.server().to_string(),
                        source: Box::new(source),
                    },
                },
                Err(why) => why,
            };
            let patience = match why {
                ClusterError::NoKubeconfig { .. } => KUBECONFIG_PATIENCE,
                _ => START_PATIENCE,
            };
            if began.elapsed() >= patience {
                return Err(why);
            }
            if let Some(waiting) = waiting.take() {
                waiting();
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// One kubeconfig of several files. What an earlier one says of a thing counts; those that are not there are passed over, as
/// long as one is.
pub fn read(paths: &[PathBuf]) -> Result<Kubeconfig, ClusterError> {
    let mut all: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| path.exists()) {
        let failed =
            |source| ClusterError::Kubeconfig { paths: path.display().to_string(), source: Box::new(source) };
        let one = Kubeconfig::read_from(path).map_err(|why| match why {
            KubeconfigError::ReadConfig(source, path) => ClusterError::Read { path, source },
            other => failed(other),
        })?;
        all = Some(match all {
            Some(all) => all.merge(one).map_err(failed)?,
            None => one,
        });
    }
    all.ok_or_else(|| ClusterError::NoKubeconfig { path: paths.first().cloned().unwrap_or_default() })
}
