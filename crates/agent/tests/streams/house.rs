//! A node with a stream port, certificates and a hypervisor, and ways to ask it.

use std::{
    collections::BTreeMap,
    fs::File,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use sheaf_agent::{
    metrics::{MachineMetrics, Sampler, TapOf},
    stream_port::{ImageSink, StreamPort, StreamPortConfig},
    support_bundle::BundleShelf,
    virtual_machine_instance::{Note, Notes},
};
use sheaf_hypervisor::{
    DescriptorName, Descriptors, Hypervisor, HypervisorConfig, Launcher, Machine, MachineId,
    cgroup::Cgroups,
    machine::{Accelerator, Cpu, Firmware, Kernel, SystemInformation},
};
use sheaf_pki::{NodeCertificates, ServingNames};
use sheaf_world::World;
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

pub const NODE: &str = "n1";
pub const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// How long a guest may take for anything, on a machine that does other things too.
pub const PATIENCE: Duration = Duration::from_secs(180);

type Addresses = Arc<Mutex<BTreeMap<MachineId, Vec<IpAddr>>>>;

pub struct House {
    pub world: World,
    pub certificates: NodeCertificates,
    pub hypervisor: Arc<Hypervisor>,
    addresses: Addresses,
    pub metrics: Arc<MachineMetrics>,
    pub port: u16,
    pub stop: CancellationToken,
    pub serving: JoinHandle<()>,
    cgroups: Cgroups,
    directory: TempDir,
}

impl House {
    pub async fn new(images: Arc<dyn ImageSink>) -> House {
        let directory = tempfile::tempdir().unwrap();
        let world = World::real();
        let names = ServingNames::of_node(NODE, [LOCALHOST]);
        let certificates = NodeCertificates::ensure(&directory.path().join("pki"), names, &world).unwrap();
        let launcher =
            Launcher { program: env!("CARGO_BIN_EXE_agent-test-launcher").into(), arguments: vec![] };
        let config = HypervisorConfig::of_host(directory.path().join("data"), launcher);
        let cgroups = config.cgroups.clone();
        let hypervisor = Arc::new(Hypervisor::new(config));
        let addresses = Addresses::default();
        let metrics = Arc::new(MachineMetrics::new(NODE));
        let known = addresses.clone();
        let (stream_port, port) = StreamPort::bind(StreamPortConfig {
            listen: SocketAddr::new(LOCALHOST, 0),
            tls: certificates.agent_server_config(),
            hypervisor: hypervisor.clone(),
            addresses_of: Arc::new(move |id| known.lock().get(id).cloned().unwrap_or_default()),
            images,
            soft_reboots: Arc::default(),
            metrics: metrics.clone(),
            bundles: Arc::new(BundleShelf::open(directory.path()).unwrap()),
        })
        .await
        .unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(stream_port.serve(stop.clone().cancelled_owned()));
        House { world, certificates, hypervisor, addresses, metrics, port, stop, serving, cgroups, directory }
    }

    /// The administrator: somebody of our authority who is not the API server.
    pub fn admin(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(self.certificates.authority_pem().as_bytes()) {
            roots.add(authority.unwrap()).unwrap();
        }
        let leaf = self.certificates.admin();
        let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).map(Result::unwrap).collect();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap())
            .unwrap();
        Arc::new(config)
    }

    /// Asks the port as the API server would.
    pub async fn ask(&self, method: Method, path: &str) -> Response<Incoming> {
        self.ask_as(self.certificates.agent_client_config(), method, path, "").await
    }

    pub async fn ask_as(
        &self,
        who: Arc<ClientConfig>,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, NODE)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "sheaf-stream")
            .body(Full::new(body.into()))
            .unwrap();
        let stream = connect(who, SocketAddr::new(LOCALHOST, self.port), NODE).await;
        let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver.with_upgrades());
        sender.send_request(request).await.unwrap()
    }

    /// Gives a machine an address.
    pub fn plug(&self, id: &MachineId) {
        self.addresses.lock().insert(id.clone(), vec![LOCALHOST]);
    }

    /// Notes whose machine one is, as the agent would.
    pub fn note(&self, id: &MachineId, namespace: &str, name: &str) -> Notes {
        let notes = Notes::open(self.directory.path()).unwrap();
        let note = Note { namespace: namespace.into(), name: name.into(), ..Note::default() };
        notes.write(id, &note).unwrap();
        notes
    }

    /// Measures the machines of which there is a note, until dropped.
    pub fn sampler(&self, notes: &Notes, tap_of: Option<TapOf>) -> Sampler {
        Sampler {
            hypervisor: self.hypervisor.clone(),
            notes: notes.clone(),
            tap_of,
            world: self.world.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// Somewhere for disks.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Defines and launches a machine.
    pub async fn launch(&self, machine: &Machine, descriptors: Descriptors) {
        self.hypervisor.define(machine).await.unwrap();
        self.hypervisor.launch(&machine.id, descriptors).await.unwrap();
    }

    pub async fn end(&self, id: &MachineId) {
        self.hypervisor.kill(id).await.unwrap();
        self.hypervisor.forget(id).await.unwrap();
        assert_eq!(self.hypervisor.found().unwrap(), []);
    }
}

impl Drop for House {
    /// A test that failed half way leaves no QEMU running and no cgroup either.
    fn drop(&mut self) {
        for found in self.hypervisor.found().unwrap_or_default() {
            if let Ok(Some(pid)) = self.hypervisor.pid(&found.id) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            for _ in 0..500 {
                if self.cgroups.remove(&found.id).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

pub type Tls = tokio_rustls::client::TlsStream<TcpStream>;

pub async fn connect(who: Arc<ClientConfig>, address: SocketAddr, name: &str) -> Tls {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    TlsConnector::from(who).connect(name, stream).await.unwrap()
}

pub async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// A machine that boots the tiny guest, with a screen.
pub fn tiny_guest(id: &str) -> (Machine, Descriptors) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/build-tiny-guest");
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let directory = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    let open = |name: &str| File::open(directory.join(name)).unwrap().into();
    let descriptors = Descriptors::from([
        (DescriptorName::Kernel, open("vmlinuz")),
        (DescriptorName::Initrd, open("initramfs")),
    ]);
    let command_line = "console=ttyS0 quiet panic=-1 tsc=unstable disks=0".to_owned();
    let machine = Machine {
        memory_mib: 192,
        max_memory_mib: None,
        graphics: true,
        kernel: Some(Kernel { initrd: true, command_line }),
        ..bare(id)
    };
    (machine, descriptors)
}

/// A machine with firmware and nothing to boot.
pub fn bare(id: &str) -> Machine {
    Machine {
        id: id.parse().unwrap(),
        name: id.to_owned(),
        uuid: "7d9f1a52-3c0e-4a6b-9b1e-0c2d3e4f5a6b".into(),
        machine_type: "pc-q35-7.2".into(),
        accelerator: Accelerator::Tcg,
        cpu: Cpu {
            model: "max".into(),
            features: vec![],
            sockets: 1,
            cores: 1,
            threads: 1,
            max_sockets: 1,
            limit_milli: None,
            request_milli: None,
        },
        memory_mib: 64,
        max_memory_mib: None,
        balloon: false,
        firmware: Firmware::Bios,
        kernel: None,
        system: SystemInformation::default(),
        disks: vec![],
        nics: vec![],
        rng: false,
        guest_agent: false,
        serial_console: true,
        graphics: false,
        tablet: false,
        virtio_tablet: false,
        acpi: true,
        start_paused: false,
    }
}
