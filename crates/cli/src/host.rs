//! What the host tells about itself and the settings default to.

use std::{
    env,
    io::{self, IsTerminal},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::PathBuf,
};

/// Where kubectl looks, too.
pub(crate) const USUAL: &str = ".kube/config";

/// Facts of the host, read once and handed to the parsing of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub hostname: String,
    /// The address from which packets to the rest of the world would leave, if there is a way out.
    pub route_address: Option<IpAddr>,
    pub stdout_is_a_terminal: bool,
    /// The files that the variable KUBECONFIG names.
    pub kubeconfigs: Vec<PathBuf>,
    /// `~/.kube/config`, if it is there.
    pub home_kubeconfig: Option<PathBuf>,
    /// Where that would be.
    pub home: Option<PathBuf>,
}

impl Host {
    pub fn look() -> Self {
        let home = env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Host {
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            route_address: route_address("0.0.0.0:0", "203.0.113.1:9")
                .or_else(|| route_address("[::]:0", "[2001:db8::1]:9")),
            stdout_is_a_terminal: io::stdout().is_terminal(),
            kubeconfigs: env::split_paths(&env::var_os("KUBECONFIG").unwrap_or_default())
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            home_kubeconfig: home.as_ref().map(|home| home.join(USUAL)).filter(|path| path.is_file()),
            home,
        }
    }

    pub(crate) fn advertised(&self) -> IpAddr {
        self.route_address.unwrap_or(Ipv4Addr::LOCALHOST.into())
    }
}

/// Connecting a UDP socket sends nothing: it only makes the kernel choose a route, and
/// with it our own address. The far addresses are ones reserved for documentation.
fn route_address(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_unspecified())
}
