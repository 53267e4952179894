//! Who else to ask: the host's own resolvers, as `resolv.conf` names them.
//!
//! The file is read again every few seconds at most, so a laptop that changes networks and
//! a host that gets its resolvers late are both followed.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

const FRESH: Duration = Duration::from_secs(3);
/// As many as the C library asks.
const MOST: usize = 3;
const PORT: u16 = 53;

pub(super) struct Resolvers {
    path: PathBuf,
    /// Never asked: it is we.
    gateway: Ipv4Addr,
    known: Mutex<Option<(Instant, Vec<SocketAddr>)>>,
}

impl Resolvers {
    pub fn new(path: PathBuf, gateway: Ipv4Addr) -> Resolvers {
        Resolvers { path, gateway, known: Mutex::new(None) }
    }

    /// The resolvers to ask, in order. None at all if the file names none or is not there.
    pub async fn list(&self) -> Vec<SocketAddr> {
        let mut known = self.known.lock().await;
        if let Some((read, resolvers)) = &*known
            && read.elapsed() < FRESH
        {
            return resolvers.clone();
        }
        let resolvers = read(&self.path, self.gateway).await;
        *known = Some((Instant::now(), resolvers.clone()));
        resolvers
    }
}

async fn read(path: &Path, gateway: Ipv4Addr) -> Vec<SocketAddr> {
    match tokio::fs::read_to_string(path).await {
        Ok(text) => parse(&text, gateway),
        Err(why) => {
            tracing::warn!(path = %path.display(), error = %why, "names outside cannot be resolved for guests");
            Vec::new()
        }
    }
}

fn parse(text: &str, gateway: Ipv4Addr) -> Vec<SocketAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver").and(words.next())?;
        address.parse::<IpAddr>().ok().filter(|address| *address != gateway)
    };
    text.lines().filter_map(server).take(MOST).map(|address| SocketAddr::new(address, PORT)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);

    #[test]
    fn resolvers_are_read_as_the_c_library_reads_them() {
        let text = "# a comment\nsearch example.org\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 # x\n\
                    nameserver none\nnameservers 192.0.2.9\noptions edns0\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        let resolvers: Vec<String> = parse(text, GATEWAY).iter().map(ToString::to_string).collect();
        assert_eq!(resolvers, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"]);
    }

    #[test]
    fn we_never_ask_ourselves() {
        assert_eq!(parse("nameserver 10.52.0.1\n", GATEWAY), []);
    }

    #[tokio::test]
    async fn a_host_without_resolvers_has_none_and_that_is_all() {
        let resolvers = Resolvers::new(PathBuf::from("/nonexistent/resolv.conf"), GATEWAY);
        assert_eq!(resolvers.list().await, []);
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_fall_over(text in "(nameserver |[ -~\n]){0,40}") {
            prop_assert!(parse(&text, GATEWAY).len() <= MOST);
        }
    }
}
