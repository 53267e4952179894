//! The agent's stream port: bytes between the API server and the machines of this node.
//!
//! ```text
//!   client --WebSocket--> API server --TLS, both sides known--> stream port --> QEMU, guest
//! ```
//!
//! Everything else between the cluster and a node travels in objects; consoles, screens, forwarded ports,
//! uploads and questions to guest agents cannot. The port is asked by the API server and nobody else: a
//! certificate that names another is answered with a refusal. What a person may do was decided there; here it
//! is only checked that what is asked for is this machine's own.
//!
//! | request under `/v1/machines/{uid}/` | |
//! |---|---|
//! | `GET console`, `GET vnc?preserveSession=` | taken over: raw bytes both ways |
//! | `GET portforward/{address}/{port}/{tcp\|udp}` | taken over: raw bytes, or datagrams with their length before |
//! | `PUT pause`, `unpause`, `reset`, `softreboot`, `freeze?unfreezeTimeoutSeconds=`, `unfreeze` | done when answered |
//! | `GET guestosinfo`, `userlist`, `filesystemlist` | JSON as KubeVirt words it |
//! | `GET screenshot` | a PNG |
//! | `GET history` | the last hour in numbers, as JSON; also of a machine that does not run any more |
//!
//! `PUT /v1/images/{uid}/upload?checksum=&offset=` hands its body to an [`ImageSink`], `GET` of the same path says how much
//! of it is here, and `GET /v1/images/{uid}/download` sends a complete one, as `GET /v1/bundles/{uid}/download` does a support
//! bundle. A request to be taken over says
//! `Connection: Upgrade` and `Upgrade: sheaf-stream`; what cannot be reached is told before the 101. A new
//! question is a variant of [`route::Ask`] and an arm where it is answered.
//!
//! Nothing survives a crash and nothing needs to: streams end, and whoever wants one opens a new one. The exception
//! is a guest whose file systems were frozen, which stays so until somebody thaws it.

mod answer;
mod bundle;
mod connection;
mod datagrams;
mod freezer;
mod guest_info;
mod holders;
mod image;
mod image_file;
mod machine;
mod relay;
mod route;
mod soft_reboot;
mod user_mode;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::ServerConfig;
use sheaf_hypervisor::{Hypervisor, MachineId};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use image::{Announced, ImageBytes, ImageSink, NoImages, NotTaken, Shelf};
pub use soft_reboot::SoftReboots;

use crate::{
    metrics::MachineMetrics,
    stream_port::{freezer::Freezer, holders::Holders},
    support_bundle::BundleShelf,
};

/// How the API server asks for a connection to be handed over.
pub const UPGRADE: &str = "sheaf-stream";

/// Streams and requests at a time; each holds two descriptors and two small buffers.
const MAX_CONNECTIONS: usize = 2048;
/// A short rest when the system is out of descriptors: spinning would not free any.
const ACCEPT_REST: Duration = Duration::from_millis(50);
/// How long what is under way may take to end once the port is told to stop.
const GRACE: Duration = Duration::from_secs(2);
/// A peer whose host lost its power is noticed after this.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// The addresses of a machine, as the network gave them to it.
pub type AddressesOf = Arc<dyn Fn(&MachineId) -> Vec<IpAddr> + Send + Sync>;

pub struct StreamPortConfig {
    /// Where to listen; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Certificates are demanded and checked: see `sheaf_pki::NodeCertificates::agent_server_config`.
    pub tls: Arc<ServerConfig>,
    pub hypervisor: Arc<Hypervisor>,
    pub addresses_of: AddressesOf,
    pub images: Arc<dyn ImageSink>,
    /// Shared with whoever decides that a machine that powered itself off is over.
    pub soft_reboots: Arc<SoftReboots>,
    /// What machines used, for graphs.
    pub metrics: Arc<MachineMetrics>,
    pub bundles: Arc<BundleShelf>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen for streams at {address}")]
pub struct BindError {
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// A listening port. Nobody is answered before [`StreamPort::serve`].
pub struct StreamPort {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    shared: Arc<Shared>,
}

/// What every request may use.
struct Shared {
    hypervisor: Arc<Hypervisor>,
    addresses_of: AddressesOf,
    images: Arc<dyn ImageSink>,
    soft_reboots: Arc<SoftReboots>,
    metrics: Arc<MachineMetrics>,
    bundles: Arc<BundleShelf>,
    holders: Holders,
    freezer: Freezer,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl StreamPort {
    /// Opens the port, and says which it is.
    pub async fn bind(config: StreamPortConfig) -> Result<(StreamPort, u16), BindError> {
        let failed = |source| BindError { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let shared = Arc::new(Shared {
            hypervisor: config.hypervisor,
            addresses_of: config.addresses_of,
            images: config.images,
            soft_reboots: config.soft_reboots,
            metrics: config.metrics,
            bundles: config.bundles,
            holders: Holders::default(),
            freezer: Freezer::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        Ok((StreamPort { listener, tls: config.tls, shared }, port))
    }

    /// Answers until `stop` resolves; then every stream is ended.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let StreamPort { listener, tls, shared } = self;
        let acceptor = tokio_rustls::TlsAcceptor::from(tls);
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(why) => {
                        tracing::warn!(%why, "streams cannot be accepted; trying again");
                        tokio::time::sleep(ACCEPT_REST).await;
                        continue;
                    }
                },
            };
            // Closing at once tells more than a hanging handshake would.
            let Ok(permit) = room.clone().try_acquire_owned() else { continue };
            settle(&stream);
            let serving = connection::serve(shared.clone(), acceptor.clone(), stream, Arc::new(permit));
            shared.tasks.spawn(serving);
        }
        drop(listener);
        shared.stop.cancel();
        shared.tasks.close();
        let _ = timeout(GRACE, shared.tasks.wait()).await;
    }
}

fn settle(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4);
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
}
