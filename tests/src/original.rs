//! The original, to ask the same things of: kube-apiserver on an etcd, both built by `scripts/build-kube-apiserver`, on
//! free loopback ports and a fresh directory.
//!
//! It runs as its makers have it run by default, with RBAC and with a certificate for the administrator. Nothing else of
//! theirs runs: no controller-manager, so nothing is collected, no namespace ends and no account is made by itself.
//!
//! Never left behind, as [`Node`](crate::node::Node) is not: a shell ends both processes and removes the directory when
//! this process ends, however that happens.

use std::{
    env,
    fmt::{self, Display},
    fs,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sheaf_pki::{NodeCertificates, ServingNames};
use sheaf_store::etcd::server::free_loopback_port;
use sheaf_world::World;

use crate::{
    http::Credentials,
    patience::{until, until_within},
};

/// It has much to set up at its first start, also on a machine that compiles beside it.
const READY_WITHIN: Duration = Duration::from_secs(180);

/// A running kube-apiserver and its etcd.
pub struct Original {
    server: Child,
    etcd: Child,
    arguments: Vec<String>,
    address: String,
    directory: PathBuf,
    _undertaker: ChildStdin,
}

impl Original {
    /// Starts both on an empty directory and waits until they are ready.
    pub fn start() -> Original {
        Original::start_with(&[])
    }

    /// The same, with more arguments for kube-apiserver.
    pub fn start_with(more: &[&str]) -> Original {
        let directory = tempfile::Builder::new().prefix("sheaf-original-").tempdir().unwrap().keep();
        fs::write(directory.join("pids"), "").unwrap();
        let undertaker = undertaker(&directory);
        let (etcd, endpoint) = start_etcd(&directory);
        let port = free_loopback_port().unwrap();
        let address = format!("127.0.0.1:{port}");
        certificates(&directory, &address);

        let pki = |name: &str| directory.join("pki").join(name).display().to_string();
        let mut arguments: Vec<String> = [
            ("etcd-servers", endpoint.as_str()),
            ("bind-address", "127.0.0.1"),
            ("secure-port", &port.to_string()),
            ("tls-cert-file", &pki("apiserver.crt")),
            ("tls-private-key-file", &pki("apiserver.key")),
            ("client-ca-file", &pki("ca.crt")),
            ("authorization-mode", "RBAC"),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            // A certificate holds its public key.
            ("service-account-key-file", &pki("ca.crt")),
            ("service-account-signing-key-file", &pki("ca.key")),
            ("service-cluster-ip-range", "10.96.0.0/16"),
            // An endpoint may not be on loopback, and nobody looks for it.
            ("endpoint-reconciler-type", "none"),
        ]
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));

        let server = start_server(&directory, &arguments);
        let mut original = Original { server, etcd, arguments, address, directory, _undertaker: undertaker };
        original.wait_until_ready();
        original
    }

    /// `ADDR:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    /// The administrator's certificate and key.
    pub fn admin(&self) -> Credentials {
        Credentials::from_kubeconfig(&self.admin_kubeconfig())
    }

    /// A place for a test's own files, which goes when the server does.
    pub fn scratch(&self) -> PathBuf {
        let scratch = self.directory.join("scratch");
        fs::create_dir_all(&scratch).unwrap();
        scratch
    }

    /// kube-apiserver's process.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }

    pub fn etcd_pid(&self) -> u32 {
        self.etcd.id()
    }

    /// Ends kube-apiserver at once; etcd, which is another's, goes on.
    pub fn kill(&mut self) {
        kill_process(Pid::from_child(&self.server), Signal::KILL).unwrap();
        self.server.wait().unwrap();
    }

    /// Starts a killed kube-apiserver again, on its etcd and at its address.
    pub fn start_again(&mut self) {
        self.server = start_server(&self.directory, &self.arguments);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let (admin, words) = (self.admin(), LastWords(self.directory.join("kube-apiserver.log")));
        until_within(READY_WITHIN, format_args!("kube-apiserver is ready; it said\n{words}"), || {
            let ended = self.server.try_wait().unwrap();
            assert!(ended.is_none(), "kube-apiserver ended, and said\n{words}");
            let ready = admin.connect_to(&self.address).ok()?.try_ask("GET", "/readyz", &[], b"").ok()?;
            (ready.code == 200).then_some(())
        });
    }
}

/// The end of a log, as it is when somebody wants to read it.
struct LastWords(PathBuf);

impl Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = fs::read_to_string(&self.0).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        f.write_str(&lines[lines.len().saturating_sub(20)..].join("\n"))
    }
}

impl Drop for Original {
    fn drop(&mut self) {
        for child in [&mut self.server, &mut self.etcd] {
            // It may have been killed already.
            _ = child.kill();
            _ = child.wait();
        }
        // So that the undertaker does not end whoever has these numbers next.
        _ = fs::write(self.directory.join("pids"), "");
    }
}

/// Where `kube-apiserver` or its `etcd` was built.
pub fn binary(program: &str) -> PathBuf {
    let directory =
        env::var_os("SHEAF_KUBE_APISERVER").expect("SHEAF_KUBE_APISERVER names where the original was built");
    PathBuf::from(directory).join(program)
}

fn start_etcd(directory: &Path) -> (Child, String) {
    let [client, peer] = [(); 2].map(|()| format!("http://127.0.0.1:{}", free_loopback_port().unwrap()));
    let data = directory.join("etcd").display().to_string();
    let cluster = format!("original={peer}");
    let arguments = [
        ("name", "original"),
        ("data-dir", &data),
        ("listen-client-urls", &client),
        ("advertise-client-urls", &client),
        ("listen-peer-urls", &peer),
        ("initial-advertise-peer-urls", &peer),
        ("initial-cluster", &cluster),
        ("log-level", "warn"),
    ]
    .map(|(name, value)| format!("--{name}={value}"));
    let etcd = start(directory, "etcd", &arguments);
    let port = client.rsplit_once(':').unwrap().1.parse().unwrap();
    until("etcd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    (etcd, client)
}

fn start_server(directory: &Path, arguments: &[String]) -> Child {
    start(directory, "kube-apiserver", arguments)
}

fn start(directory: &Path, program: &str, arguments: &[String]) -> Child {
    let log = directory.join(format!("{program}.log"));
    let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let child = Command::new(binary(program))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let pids = fs::read_to_string(directory.join("pids")).unwrap();
    fs::write(directory.join("pids"), format!("{pids}{} {program}\n", child.id())).unwrap();
    child
}

/// An authority, a certificate for the server and one for the administrator, made as Sheaf makes its own.
fn certificates(directory: &Path, address: &str) {
    let pki = directory.join("pki");
    let names = ServingNames::of_node("original", []);
    let made = NodeCertificates::ensure(&pki, names, &World::real()).unwrap();
    let encoded = |text: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let admin = made.admin();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "original",
        "clusters": [{"name": "original", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": encoded(made.authority_pem()),
        }}],
        "users": [{"name": "admin", "user": {
            "client-certificate-data": encoded(&admin.certificate),
            "client-key-data": encoded(&admin.key),
        }}],
        "contexts": [{"name": "original", "context": {"cluster": "original", "user": "admin"}}],
    });
    fs::write(directory.join("admin.kubeconfig"), kubeconfig.to_string()).unwrap();
}

#[allow(clippy::zombie_processes, reason = "it ends after us")]
/// Ends the processes noted in `directory` and removes it when the returned pipe closes. A number that has gone to
/// another program since is left alone.
fn undertaker(directory: &Path) -> ChildStdin {
    let script = r#"cat >/dev/null
        while read -r pid program; do
            case $(readlink "/proc/$pid/exe") in */"$program") kill -KILL "$pid" ;; esac
        done <"$1/pids"
        sleep 0.2
        rm -rf "$1""#;
    let mut shell = Command::new("sh")
        .args(["-c", script, "undertaker"])
        .arg(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap()
}
