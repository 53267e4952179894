//! What the host tells about itself and the settings default to.

use std::{
    env,
    io::{self, IsTerminal},
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::PathBuf,
};

/// Facts of the host, read once and handed to the parsing of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub hostname: String,
    /// The address from which packets to the rest of the world would leave, if there is a way out.
    pub route_address: Option<IpAddr>,
    pub stdout_is_a_terminal: bool,
    /// The first file that the variable KUBECONFIG names.
    pub kubeconfig: Option<PathBuf>,
}

impl Host {
    pub fn look() -> Self {
        Host {
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            route_address: route_address("0.0.0.0:0", "203.0.113.1:9")
                .or_else(|| route_address("[::]:0", "[2001:db8::1]:9")),
            stdout_is_a_terminal: io::stdout().is_terminal(),
            kubeconfig: env::var_os("KUBECONFIG")
                .and_then(|paths| env::split_paths(&paths).find(|path| !path.as_os_str().is_empty())),
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
