//! Opens the ports. A port that cannot be opened is a setting that does not fit.

use std::{io, net::SocketAddr};

use sheaf_cli::{BadSetting, Listen};
use tokio::net::{TcpListener, TcpSocket};
use tracing::info;

const BACKLOG: u32 = 1024;

/// Opens every address in `wanted`, or none. Must be called inside a runtime.
pub fn open(wanted: &[Listen]) -> Result<Vec<TcpListener>, BadSetting> {
    let mut listeners = Vec::new();
    for listen in wanted {
        match open_one(listen.address) {
            Ok(listener) => listeners.push(listener),
            Err(why) if listen.optional && is_missing_family(&why) => {
                info!(address = %listen.address, "not listening there: this host has no IPv6");
            }
            Err(why) => return Err(in_words(listen.address, &why)),
        }
    }
    Ok(listeners)
}

fn open_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => {
            let socket = TcpSocket::new_v6()?;
            // Otherwise [::] would also be 0.0.0.0, and IPv4 clients would have IPv6 addresses.
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            socket
        }
    };
    // A restarted node takes its port back while old connections linger.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn is_missing_family(why: &io::Error) -> bool {
    use rustix::io::Errno;
    let missing = [Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    why.raw_os_error().is_some_and(|code| missing.contains(&Errno::from_raw_os_error(code)))
}

fn in_words(address: SocketAddr, why: &io::Error) -> BadSetting {
    let port = address.port();
    let (problem, fits) = match why.kind() {
        io::ErrorKind::AddrInUse => (
            "another program listens there already".to_owned(),
            format!("a free port (`ss -ltnp 'sport = :{port}'` shows what has this one)"),
        ),
        io::ErrorKind::AddrNotAvailable => (
            "this host has no such address".to_owned(),
            "one of its own (`ip addr` shows them), or 0.0.0.0 for all of them".to_owned(),
        ),
        io::ErrorKind::PermissionDenied => {
            ("only root may listen there".to_owned(), "a port from 1024 up, such as 6443".to_owned())
        }
        _ => (why.to_string(), "ADDR:PORT, such as 0.0.0.0:6443".to_owned()),
    };
    BadSetting::new("--listen", address, problem, fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str, optional: bool) -> Listen {
        Listen { address: address.parse().unwrap(), optional }
    }

    #[tokio::test]
    async fn a_taken_port_is_a_bad_setting_even_where_the_address_is_optional() {
        let taken = open(&[listen("127.0.0.1:0", false)]).unwrap();
        let address = taken[0].local_addr().unwrap();
        let why = open(&[Listen { address, optional: true }]).unwrap_err();
        assert_eq!((why.setting, why.read), ("--listen", address.to_string()));
    }

    #[tokio::test]
    async fn an_address_the_host_does_not_have_is_left_out_only_where_optional() {
        assert_eq!(open(&[listen("203.0.113.77:0", true)]).unwrap().len(), 0);
        assert!(open(&[listen("203.0.113.77:0", false)]).unwrap_err().problem.contains("no such address"));
    }

    #[tokio::test]
    async fn both_families_share_a_port_because_neither_takes_the_others_clients() {
        let v4 = open(&[listen("0.0.0.0:0", false)]).unwrap();
        let port = v4[0].local_addr().unwrap().port();
        // A host without IPv6 leaves it out; a port in use would be refused all the same.
        open(&[listen(&format!("[::]:{port}"), true)]).unwrap();
    }
}
