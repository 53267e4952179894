//! One node as the rest is handed it: its place, its identity, its way to be stopped.
//!
//! Building it is repeatable: whatever an earlier start left, whole or not, is completed.

use std::{
    convert::Infallible,
    env, fs,
    io::{self, Write},
    net::{IpAddr, SocketAddr},
};

use sheaf_cli::{PRODUCT, UpConfig, kubeconfig};
use sheaf_pki::{ADMIN, NodeCertificates, ServingNames, durable};
use sheaf_world::World;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::{
    admin_password::{self, AdminPassword},
    data_dir::DataDir,
    failure::Failure,
    listeners,
};

const YEAR_SECS: i64 = 365 * 86_400;

/// What a running node has. Dropping it frees the data directory for another process.
#[derive(Debug)]
pub struct Node {
    pub config: UpConfig,
    pub world: World,
    /// Cancelled when the node must stop; everything has some 4 s from then on.
    pub stop: CancellationToken,
    pub data_dir: DataDir,
    pub certificates: NodeCertificates,
    /// Where clients reach the API: `https://ADDR:PORT`.
    pub url: String,
}

impl Node {
    /// Takes the data directory, opens the ports and makes what is missing. Must be
    /// called inside a runtime.
    pub fn build(
        config: UpConfig,
        world: World,
        stop: CancellationToken,
    ) -> Result<(Node, Vec<TcpListener>), Failure> {
        // The directory first: a node started twice should hear that, not that its port is taken.
        let data_dir = DataDir::open(&config.data_dir)?;
        let listeners = listeners::open(&config.listen)?;
        let bound: Vec<SocketAddr> = listeners.iter().filter_map(|open| open.local_addr().ok()).collect();

        let addresses = bound.iter().map(SocketAddr::ip).chain([config.advertise]);
        let names = ServingNames::of_node(&config.name, addresses);
        let certificates = NodeCertificates::ensure(&data_dir.layout().pki(), names, &world)?;
        let url = url(config.advertise, &bound);
        let node = Node { config, world, stop, data_dir, certificates, url };
        node.write_admin_kubeconfig()?;
        node.warn_of_the_authoritys_end();
        info!(node = node.config.name, url = node.url, data_dir = %node.config.data_dir.display(), "starting");
        Ok((node, listeners))
    }

    /// The password that user `admin` is to be created with, if there is no such user yet.
    pub fn admin_password(&self, admin_exists: bool) -> Result<AdminPassword, Failure> {
        let path = self.data_dir.layout().admin_password();
        let given = self.config.admin_password.as_ref();
        admin_password::settle(&path, given, admin_exists, &self.world.chance)
            .map_err(|source| Failure::Write { path, source })
    }

    /// What was for the first login lets nobody in any more, and is not to be pointed at.
    pub fn forget_first_password(&self) {
        let path = self.data_dir.layout().admin_password();
        match fs::remove_file(&path) {
            Ok(()) => {
                info!(path = %path.display(), "the first password has been changed, and its file is gone")
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => {
                warn!(path = %path.display(), %why, "the file of the first password, which is no longer good, stays")
            }
        }
    }

    /// Tells the world, on standard output: one line, and hints for people after it.
    pub fn announce_ready(&self) {
        let (data_dir, name) = (self.config.data_dir.display(), &self.config.name);
        let mut text = format!("sheaf is ready: {}  (data in {data_dir}, node {name})\n", self.url);
        if self.config.hints {
            text += &self.hints();
        }
        // Whoever closed our standard output does not want to know.
        let mut stdout = io::stdout().lock();
        _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }

    /// Replaces certificates before they expire, and the kubeconfig with its own.
    pub async fn keep_certificates_fresh(&self) -> Infallible {
        let renewed = |names: &[&str]| {
            if names.contains(&ADMIN)
                && let Err(why) = self.write_admin_kubeconfig()
            {
                // The old one stays good for months; the next start writes the new one.
                error!(error = &why as &dyn std::error::Error, "cannot write the new kubeconfig");
            }
        };
        self.certificates.keep_fresh(renewed).await
    }

    fn write_admin_kubeconfig(&self) -> Result<(), Failure> {
        let admin = self.certificates.admin();
        let text = kubeconfig::render(kubeconfig::Contents {
            server: &self.url,
            authority: self.certificates.authority_pem(),
            user: "admin",
            certificate: &admin.certificate,
            key: &admin.key,
        })?;
        let path = self.data_dir.layout().admin_kubeconfig();
        let write = || {
            if fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
                return durable::make_private(&path).map(|_| ());
            }
            durable::replace(&path, durable::PRIVATE, text.as_bytes())
        };
        write().map_err(|source| Failure::Write { path: path.clone(), source })
    }

    fn warn_of_the_authoritys_end(&self) {
        let now = i64::try_from(self.world.clock.since_epoch().as_secs()).unwrap_or(i64::MAX);
        let left = self.certificates.authority_expires() - now;
        if left < YEAR_SECS {
            warn!(
                "the certificate authority expires in {} days: see `sheaf doctor`",
                left.div_euclid(86_400)
            );
        }
    }

    fn hints(&self) -> String {
        let layout = self.data_dir.layout();
        let kubeconfig = layout.admin_kubeconfig();
        let password = match layout.admin_password() {
            path if path.exists() => format!("password in {}", path.display()),
            _ => "with the password that was chosen".to_owned(),
        };
        format!(
            "\n  {PRODUCT} runs until Ctrl-C.\n  \
               in a browser   {url}\n  \
               sign in        as admin, {password}\n  \
               kubeconfig     {kubeconfig}\n\n\
             Type next, in another terminal:\n  \
               export KUBECONFIG={kubeconfig}\n  \
               {program} vm list\n",
            program = env::args_os().next().unwrap_or_else(|| "sheaf".into()).to_string_lossy(),
            url = self.url,
            kubeconfig = kubeconfig.display(),
        )
    }
}

/// Where clients go: the advertised address, at the port of the listener that answers there.
fn url(advertise: IpAddr, bound: &[SocketAddr]) -> String {
    let answers = |address: &&SocketAddr| {
        let ip = address.ip();
        ip == advertise || ip.is_unspecified() && ip.is_ipv4() == advertise.is_ipv4()
    };
    // Behind address translation none of ours is the advertised one; the first is meant.
    let port = bound.iter().find(answers).or(bound.first()).map_or(0, SocketAddr::port);
    format!("https://{}", SocketAddr::new(advertise, port))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use sheaf_cli::{AuditLevel, Listen, LogFormat};

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn build(data_dir: &Path, world: &World) -> Node {
        let config = UpConfig {
            etcd: None,
            sync_delay: std::time::Duration::ZERO,
            vm_cidr: sheaf_resources::kinds::ip_pool::Cidr::DEFAULT_NETWORK,
            die_after_step: None,
            die_as_told_in: None,
            allow_local_images: false,
            name: "n1".into(),
            advertise: "127.0.0.1".parse().unwrap(),
            data_dir: data_dir.to_owned(),
            listen: vec![Listen { address: "127.0.0.1:0".parse().unwrap(), optional: false }],
            admin_password: None,
            audit_log: None,
            audit_level: AuditLevel::None,
            log_format: LogFormat::Text,
            hints: false,
        };
        Node::build(config, world.clone(), CancellationToken::new()).unwrap().0
    }

    #[tokio::test(start_paused = true)]
    async fn the_kubeconfig_gets_the_renewed_certificate_while_the_node_runs() {
        let (dir, world) = (tempfile::tempdir().unwrap(), World::seeded(1));
        let node = build(dir.path(), &world);
        let read = || fs::read_to_string(dir.path().join("admin.kubeconfig")).unwrap();
        let old = read();
        tokio::time::advance(243 * DAY).await;
        assert_eq!(read(), old);
        tokio::select! {
            biased;
            never = node.keep_certificates_fresh() => match never {},
            () = tokio::time::sleep(DAY) => {}
        }
        let new = read();
        assert_ne!(new, old);
        assert!(
            node.certificates.admin().expires
                > i64::try_from((world.clock.since_epoch() + 300 * DAY).as_secs()).unwrap()
        );
        node.write_admin_kubeconfig().unwrap();
        assert_eq!(read(), new);
    }

    #[test]
    fn the_url_has_the_port_that_answers_at_the_advertised_address() {
        let url = |advertise: &str, bound: &[&str]| {
            let bound: Vec<_> = bound.iter().map(|address| address.parse().unwrap()).collect();
            super::url(advertise.parse().unwrap(), &bound)
        };
        assert_eq!(url("10.0.0.5", &["127.0.0.1:1", "0.0.0.0:2"]), "https://10.0.0.5:2");
        assert_eq!(url("10.0.0.5", &["[::]:1", "10.0.0.5:2"]), "https://10.0.0.5:2");
        assert_eq!(url("fd00::5", &["0.0.0.0:1", "[::]:2"]), "https://[fd00::5]:2");
        assert_eq!(url("203.0.113.9", &["10.0.0.5:1", "10.0.0.6:2"]), "https://203.0.113.9:1");
    }
}
