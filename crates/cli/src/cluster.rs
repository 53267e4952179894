//! A cluster that a command asks: found by its kubeconfig, for objects and for streams.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use sheaf_client::streams::{StreamError, Streams};
use tokio::time::{Instant, sleep};

/// How long a node that is just starting may take to answer.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long until it has written its kubeconfig.
const KUBECONFIG_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Ways to one cluster.
pub struct Cluster {
    pub objects: kube::Client,
    pub streams: Streams,
}

/// Why a cluster cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error(
        "there is no kubeconfig at {path}: start a node with `sheaf up`, or name another with --kubeconfig or --data-dir"
    )]
    NoKubeconfig { path: PathBuf },
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
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
    pub async fn of(kubeconfig: &Path) -> Result<Cluster, ClusterError> {
        let text = fs::read_to_string(kubeconfig).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => ClusterError::NoKubeconfig { path: kubeconfig.to_owned() },
            _ => ClusterError::Read { path: kubeconfig.to_owned(), source },
        })?;
        let streams = Streams::from_kubeconfig(&text).await?;
        Ok(Cluster { objects: sheaf_client::from_kubeconfig(&text).await?, streams })
    }

    /// The same once it answers. A node that is being started writes its kubeconfig first and answers a moment later;
    /// `waiting` is called once if that takes any time.
    pub async fn awake(kubeconfig: &Path, waiting: impl FnOnce()) -> Result<Cluster, ClusterError> {
        let began = Instant::now();
        let mut waiting = Some(waiting);
        loop {
            let why = match Cluster::of(kubeconfig).await {
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
