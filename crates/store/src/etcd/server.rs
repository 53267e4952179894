//! Starts a real etcd and keeps it running.
//!
//! ```text
//!            spawn             exits by itself
//!   Stopped -------> Running ------------------> Waiting
//!      ^                |  ^                        |
//!      |      stop      |  |     after a pause      |
//!      +----------------+  +------------------------+
//! ```
//!
//! The etcd is a child of this process and ends with it when it stops in good order. When this
//! process is killed, etcd lives on and does no harm; the next start finds it by the process id
//! written beside its data, makes sure that it is the same program on the same data, and ends
//! it first. No shell is involved.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Config, Line, TlsFiles, connect};
use crate::{MAX_TRANSACTION_BYTES, MAX_TRANSACTION_KEYS};

/// How long etcd gets to end by itself.
const GRACE: Duration = Duration::from_secs(5);
const READY_WITHIN: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A key expected and read back when it is not as expected travels twice, so twice the limit and room
/// for the framing. etcd warns above ten megabytes.
const MAX_REQUEST_BYTES: usize = 2 * MAX_TRANSACTION_BYTES + (1 << 20);

/// Below the kernel's own choice for outgoing connections, which begins at 32768 unless somebody changed it.
const OWN_PORTS: Range<u16> = 20_000..32_000;

#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Found on the `PATH` unless it names a file.
    pub binary: PathBuf,
    /// This member's name in the cluster.
    pub name: String,
    pub data_dir: PathBuf,
    /// `http://address:port`, or `https://` with `tls`.
    pub client_url: String,
    pub peer_url: String,
    /// `name=peer-url` of every first member; `None` for a cluster of one.
    pub initial_cluster: Option<String>,
    /// Whether it joins a cluster that exists.
    pub joins: bool,
    /// Required of clients and of peers alike.
    pub tls: Option<TlsFiles>,
    /// How often the leader shows itself, and how long the others wait for it.
    pub heartbeat: Duration,
    pub election: Duration,
}

impl ServerConfig {
    /// A cluster of one on free loopback ports.
    pub fn alone(data_dir: PathBuf) -> io::Result<Self> {
        let url = || Ok::<_, io::Error>(format!("http://127.0.0.1:{}", free_loopback_port()?));
        Ok(ServerConfig {
            binary: PathBuf::from("etcd"),
            name: "sheaf".to_owned(),
            data_dir,
            client_url: url()?,
            peer_url: url()?,
            initial_cluster: None,
            joins: false,
            tls: None,
            heartbeat: Duration::from_millis(100),
            election: Duration::from_millis(1000),
        })
    }

    fn arguments(&self) -> Vec<String> {
        let lone = format!("{}={}", self.name, self.peer_url);
        let mut arguments: Vec<String> = [
            ("name", self.name.as_str()),
            ("data-dir", &self.data_dir.to_string_lossy()),
            ("listen-client-urls", &self.client_url),
            ("advertise-client-urls", &self.client_url),
            ("listen-peer-urls", &self.peer_url),
            ("initial-advertise-peer-urls", &self.peer_url),
            ("initial-cluster", self.initial_cluster.as_ref().unwrap_or(&lone)),
            ("initial-cluster-state", if self.joins { "existing" } else { "new" }),
            ("heartbeat-interval", &self.heartbeat.as_millis().to_string()),
            ("election-timeout", &self.election.as_millis().to_string()),
            ("max-request-bytes", &MAX_REQUEST_BYTES.to_string()),
            // One more for the condition that every transaction of ours carries.
            ("max-txn-ops", &(MAX_TRANSACTION_KEYS + 1).to_string()),
            ("quota-backend-bytes", &(4u64 << 30).to_string()),
            // We compact it ourselves, at revisions of our choice.
            ("auto-compaction-retention", "0"),
            ("logger", "zap"),
            ("log-outputs", "stderr"),
            ("log-level", "warn"),
        ]
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        if let Some(TlsFiles { ca, certificate, key }) = &self.tls {
            for prefix in ["", "peer-"] {
                arguments.push(format!("--{prefix}trusted-ca-file={}", ca.display()));
                arguments.push(format!("--{prefix}cert-file={}", certificate.display()));
                arguments.push(format!("--{prefix}key-file={}", key.display()));
                arguments.push(format!("--{prefix}client-cert-auth"));
            }
        }
        arguments
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{} is not installed; on Debian: apt-get install etcd-server", .binary.display())]
    NotInstalled { binary: PathBuf },
    #[error("cannot start {}", .binary.display())]
    Spawn {
        binary: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot prepare the data directory {}", .path.display())]
    DataDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("etcd did not become ready; it said: {said}")]
    NotReady { said: String },
}

/// An etcd that runs until it is told to stop, or dropped.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    pid: watch::Receiver<Option<u32>>,
    orders: mpsc::Sender<Order>,
    supervisor: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    Stop,
}

impl Server {
    /// Starts it and waits until it answers.
    pub async fn start(config: ServerConfig) -> Result<Self, ServerError> {
        let failed = |source| ServerError::DataDir { path: config.data_dir.clone(), source };
        fs::create_dir_all(&config.data_dir).map_err(failed)?;
        end_stray(&config).await.map_err(failed)?;
        let child = spawn(&config)?;
        let (pid_sender, pid) = watch::channel(child.id());
        let (orders, received) = mpsc::channel(1);
        let (said_sender, said) = watch::channel(String::new());
        let supervisor = tokio::spawn(supervise(config.clone(), child, received, pid_sender, said_sender));
        let server = Server { config, pid, orders, supervisor };
        match timeout(READY_WITHIN, server.answers()).await {
            Ok(()) => Ok(server),
            Err(_) => {
                let said = said.borrow().clone();
                server.stop().await;
                Err(ServerError::NotReady { said })
            }
        }
    }

    pub fn endpoint(&self) -> String {
        self.config.client_url.clone()
    }

    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// The process that runs now, if one does.
    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Ends it in good order; kills it when it does not end.
    pub async fn stop(self) {
        let _ = self.orders.send(Order::Stop).await;
        let _ = self.supervisor.await;
    }

    /// Waits until it serves linearizable reads.
    pub async fn answers(&self) {
        let mut config = Config::new(vec![self.config.client_url.clone()]);
        config.tls = self.config.tls.clone();
        config.timeout = Duration::from_secs(2);
        loop {
            if let Ok(line) = connect(&config).await
                && reads(&line).await
            {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn reads(line: &Line) -> bool {
    super::record::look(line).await.is_ok()
}

async fn supervise(
    config: ServerConfig,
    mut child: Child,
    mut orders: mpsc::Receiver<Order>,
    pid: watch::Sender<Option<u32>>,
    said: watch::Sender<String>,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let lines = child.stderr.take().map(|stderr| tokio::spawn(listen(stderr, said.clone())));
        let started = tokio::time::Instant::now();
        let exit = tokio::select! {
            biased;
            // `None`: the server was dropped.
            _ = orders.recv() => {
                end(&mut child).await;
                pid.send_replace(None);
                let _ = fs::remove_file(pid_file(&config.data_dir));
                return;
            }
            exit = child.wait() => exit,
        };
        pid.send_replace(None);
        if let Some(lines) = lines {
            let _ = lines.await;
        }
        let exit = exit.map(|status| status.to_string()).unwrap_or_else(|error| error.to_string());
        tracing::warn!(exit, last_words = %*said.borrow(), "etcd ended by itself; it is started again");
        if started.elapsed() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        loop {
            tokio::select! {
                biased;
                _ = orders.recv() => return,
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            match spawn(&config) {
                Ok(again) => {
                    child = again;
                    pid.send_replace(child.id());
                    break;
                }
                Err(error) => tracing::warn!(%error, "cannot start etcd again yet"),
            }
        }
    }
}

fn spawn(config: &ServerConfig) -> Result<Child, ServerError> {
    let mut command = Command::new(&config.binary);
    command.args(config.arguments()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // Settings from the environment would override ours without a word.
    command
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("ETCD_")));
    command.kill_on_drop(true);
    let binary = config.binary.clone();
    let child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ServerError::NotInstalled { binary },
        _ => ServerError::Spawn { binary, source },
    })?;
    if let Some(pid) = child.id()
        && let Err(error) = fs::write(pid_file(&config.data_dir), pid.to_string())
    {
        tracing::warn!(%error, "cannot note etcd's process id");
    }
    Ok(child)
}

/// Passes etcd's words on to our log and keeps the last of them.
async fn listen(stderr: tokio::process::ChildStderr, said: watch::Sender<String>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!(target: "etcd", "{line}");
        said.send_replace(line);
    }
}

async fn end(child: &mut Child) {
    if let Some(pid) = child.id().and_then(as_pid) {
        let _ = kill_process(pid, Signal::TERM);
    }
    if timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn as_pid(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn pid_file(data_dir: &Path) -> PathBuf {
    data_dir.join("etcd.pid")
}

/// Ends an etcd that outlived the process which started it, and nothing else: the command line must be that
/// of an etcd on this data directory.
async fn end_stray(config: &ServerConfig) -> io::Result<()> {
    let Ok(noted) = fs::read_to_string(pid_file(&config.data_dir)) else { return Ok(()) };
    let Some(pid) = noted.trim().parse().ok().and_then(Pid::from_raw) else { return Ok(()) };
    let is_ours = || {
        let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        let data_dir = format!("--data-dir={}", config.data_dir.display());
        command.split(|byte| *byte == 0).any(|argument| argument == data_dir.as_bytes())
    };
    if !is_ours() {
        return Ok(());
    }
    tracing::warn!(pid = pid.as_raw_nonzero(), "an etcd of an earlier run is still there; it is ended first");
    for signal in [Signal::TERM, Signal::KILL] {
        let _ = kill_process(pid, signal);
        for _ in 0..100 {
            if test_kill_process(pid).is_err() || !is_ours() {
                return Ok(());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
    Err(io::Error::other(format!("the etcd with process id {} does not end", pid.as_raw_nonzero())))
}

/// A port that was free a moment ago, and that neither another call in this process nor the kernel gives to somebody else
/// before it is taken: it lies below those that outgoing connections get. Two servers on one port are one server that
/// answers for both.
pub fn free_loopback_port() -> io::Result<u16> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // Other processes begin elsewhere.
    let first = std::process::id().wrapping_mul(61);
    let ports = u32::from(OWN_PORTS.end - OWN_PORTS.start);
    for _ in 0..ports {
        let turn = first.wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed)) % ports;
        let port = OWN_PORTS.start + turn as u16;
        match std::net::TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(taken) if taken.kind() == io::ErrorKind::AddrInUse => {}
            Err(other) => return Err(other),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_port_is_handed_out_once_and_to_no_outgoing_connection() {
        let ports: BTreeSet<u16> = (0..200).map(|_| free_loopback_port().unwrap()).collect();
        assert_eq!(ports.len(), 200);
        assert!(ports.iter().all(|port| OWN_PORTS.contains(port)));
    }

    #[test]
    fn a_port_that_somebody_has_is_passed_over() {
        let first = free_loopback_port().unwrap();
        let taken: Vec<_> = (first..OWN_PORTS.end.min(first + 40))
            .filter_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok())
            .collect();
        let held: BTreeSet<u16> = taken.iter().map(|one| one.local_addr().unwrap().port()).collect();
        assert!((0..50).all(|_| !held.contains(&free_loopback_port().unwrap())));
    }
}
