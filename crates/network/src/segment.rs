//! Which bridge a network is on.
//!
//! There is one segment so far, the default one, and it answers to several names: its
//! bridge's own, and the aliases it was configured with. `mgmt-br` is such an alias.
//! Harvester's tools attach machines to `mgmt-br` and expect the network the hosts
//! themselves are on, but a host's NIC is never put into a bridge unasked; so until an
//! uplink is set, `mgmt-br` is the default segment, DHCP and all, and a machine attached
//! to it gets an address like any other.
//!
//! The alias is ours and not the kernel's (an `altname` of the bridge): those are unique
//! per network namespace, and two instances in one namespace both have a `mgmt-br`.

use crate::{config::NetworkConfig, names::InterfaceName};

/// The bridge that a network of this name is on. None if there is no such network here.
pub fn bridge_of<'a>(config: &'a NetworkConfig, network: &str) -> Option<&'a InterfaceName> {
    let bridge = &config.names.bridge;
    (network == bridge.as_str() || config.aliases.contains(network)).then_some(bridge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NetworkNames;

    #[test]
    fn until_an_uplink_is_set_mgmt_is_the_default_segment() {
        let config = NetworkConfig::new(NetworkNames::plain(), "10.52.0.0/16".parse().unwrap()).unwrap();
        assert_eq!(bridge_of(&config, "mgmt-br"), Some(&config.names.bridge));
        assert_eq!(bridge_of(&config, "sheaf0"), Some(&config.names.bridge));
        assert_eq!(bridge_of(&config, "docker0"), None, "a bridge that is not ours is no segment");
    }
}
