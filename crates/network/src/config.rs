//! What a host's network should be, in plain data, checked before anything is touched.

use std::{collections::BTreeSet, net::Ipv4Addr, path::PathBuf, time::Duration};

use ipnet::Ipv4Net;

use crate::{
    addresses::{self, is_hostname},
    names::NetworkNames,
};

/// One host's network.
#[derive(Clone, Debug)]
pub struct NetworkConfig {
    pub names: NetworkNames,
    /// Other names under which the default segment is asked for; see [`crate::segment`].
    pub aliases: BTreeSet<String>,
    /// Where guests' addresses come from.
    pub cidr: Ipv4Net,
    /// This host's address on the segment; the same on every node.
    pub gateway: Ipv4Addr,
    pub mtu: u16,
    /// What guests' names end in, without a dot at either end.
    pub domain: String,
    /// The file that names the resolvers questions about other names go to.
    pub resolv_conf: PathBuf,
    /// How long a guest may use its address before asking again. It will get the same.
    pub lease: Duration,
    /// The name servers guests are told of. Empty means the gateway.
    pub dns_servers: Vec<Ipv4Addr>,
    /// The time servers guests are told of, if any.
    pub ntp_servers: Vec<Ipv4Addr>,
    /// Routes guests are told of beside the default one.
    pub routes: Vec<(Ipv4Net, Ipv4Addr)>,
    /// TCP ports of this host's own that guests may reach, on any of its addresses. The
    /// API server's is one, for clusters in guests; what is not here is closed to them.
    pub guests_may_reach: BTreeSet<u16>,
}

/// Why a network cannot be as configured.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{cidr} has no room for a gateway and a guest; use a network of /30 or larger")]
    TooSmall { cidr: Ipv4Net },
    #[error("the gateway {gateway} is not an address a host on {cidr} can have")]
    GatewayOutside { gateway: Ipv4Addr, cidr: Ipv4Net },
    #[error("an MTU of {mtu} is too small for IPv4; use 576 or more")]
    MtuTooSmall { mtu: u16 },
    #[error("{domain:?} is not a domain name")]
    NotADomain { domain: String },
    #[error("a lease of {lease:?} is too short to be renewed; use a minute or more")]
    LeaseTooShort { lease: Duration },
    #[error("the bridge {bridge} has a name that taps have, which begin with {prefix}")]
    BridgeLooksLikeATap { bridge: String, prefix: String },
}

impl NetworkConfig {
    /// The default segment on `cidr`, with everything else as most hosts want it.
    pub fn new(names: NetworkNames, cidr: Ipv4Net) -> Result<NetworkConfig, ConfigError> {
        let gateway = addresses::gateway_of(cidr).ok_or(ConfigError::TooSmall { cidr })?;
        Ok(NetworkConfig {
            names,
            aliases: BTreeSet::from(["mgmt-br".to_owned()]),
            cidr: cidr.trunc(),
            gateway,
            mtu: 1500,
            domain: "sheaf.internal".to_owned(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            lease: Duration::from_secs(24 * 60 * 60),
            dns_servers: Vec::new(),
            ntp_servers: Vec::new(),
            routes: Vec::new(),
            guests_may_reach: BTreeSet::new(),
        })
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let cidr = self.cidr;
        if cidr.prefix_len() > 30 {
            return Err(ConfigError::TooSmall { cidr });
        }
        if !addresses::is_assignable(cidr, cidr.network(), self.gateway) {
            return Err(ConfigError::GatewayOutside { gateway: self.gateway, cidr });
        }
        if self.mtu < 576 {
            return Err(ConfigError::MtuTooSmall { mtu: self.mtu });
        }
        if !is_hostname(&self.domain) {
            return Err(ConfigError::NotADomain { domain: self.domain.clone() });
        }
        if self.lease < Duration::from_secs(60) {
            return Err(ConfigError::LeaseTooShort { lease: self.lease });
        }
        let (bridge, prefix) = (self.names.bridge.as_str(), self.names.tap_prefix.as_str());
        if bridge.starts_with(prefix) {
            let (bridge, prefix) = (bridge.to_owned(), prefix.to_owned());
            return Err(ConfigError::BridgeLooksLikeATap { bridge, prefix });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NetworkConfig {
        NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap()
    }

    #[test]
    fn what_most_hosts_want_is_accepted() {
        assert_eq!(config().check(), Ok(()));
        assert_eq!(config().gateway, Ipv4Addr::new(10, 52, 0, 1));
    }

    #[test]
    fn a_network_that_cannot_work_is_refused_with_its_reason() {
        let refused = |change: fn(&mut NetworkConfig)| {
            let mut config = config();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        let outside = refused(|config| config.gateway = Ipv4Addr::new(10, 53, 0, 1));
        assert!(outside.contains("10.53.0.1"), "{outside}");
        assert!(refused(|config| config.gateway = config.cidr.broadcast()).contains("10.52.255.255"));
        assert!(refused(|config| config.mtu = 500).contains("500"));
        assert!(refused(|config| config.domain = ".internal".to_owned()).contains(".internal"));
        assert!(refused(|config| config.lease = Duration::from_secs(1)).contains("1s"));
        assert!(refused(|config| config.cidr = "10.0.0.0/31".parse().unwrap()).contains("/30"));
        let tap = crate::InterfaceName::new("vmnic-0").unwrap();
        let mut config = config();
        config.names.bridge = tap;
        assert!(config.check().unwrap_err().to_string().contains("vmnic-0"));
    }
}
