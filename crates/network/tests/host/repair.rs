//! What `ensure` makes of a host that somebody or something has changed.

use sheaf_network::{BridgeError, FoundTap, NetworkError, TapError};

use crate::place::{Place, attempt, network, port, run};

#[test]
fn whatever_is_taken_away_is_put_back() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let network = network();
        network.ensure().await.unwrap();
        network.set_ports(&[port(2)]).await.unwrap();
        let tap = network.tap_name(&port(2).id);
        let _held = network.open_tap(&port(2)).await.unwrap();
        let look = || {
            let rules = run(&format!("ip netns exec {node} nft list ruleset"));
            let address = run(&format!("ip -n {node} -4 -o addr show dev sheaf0"));
            let words = |line: &str| line.split_whitespace().skip(2).take(4).collect::<Vec<_>>().join(" ");
            let address = address.lines().map(words).collect::<Vec<_>>().join(", ");
            let bridge = run(&format!("ip -n {node} -o link show sheaf0"));
            let mac = bridge.split("link/ether ").nth(1).unwrap()[..17].to_owned();
            let ports = run(&format!("ip -n {node} -o link show master sheaf0"));
            let forwarding = run(&format!("ip netns exec {node} cat /proc/sys/net/ipv4/ip_forward"));
            (rules, address, mac, ports.contains(tap.as_str()), bridge.contains("mtu 1500"), forwarding)
        };
        let whole = look();
        assert_eq!(whole.1, "inet 10.52.0.1/16 brd 10.52.255.255");
        assert_eq!(whole.2, "0e:5f:0a:34:00:01");
        assert!(whole.3 && whole.0.contains("10.52.0.2"), "{whole:?}");
        assert_eq!(whole.5, "1\n");
        for harm in [
            format!("ip -n {node} link del sheaf0"),
            format!("ip -n {node} addr flush dev sheaf0"),
            format!("ip -n {node} addr add 10.99.0.1/24 dev sheaf0"),
            format!("ip -n {node} link set sheaf0 mtu 1400"),
            format!("ip -n {node} link set sheaf0 address 0e:5f:00:00:00:09"),
            format!("ip -n {node} link set {tap} nomaster"),
            format!("ip netns exec {node} nft flush ruleset"),
            format!("ip netns exec {node} busybox sysctl -w net.ipv4.ip_forward=0"),
        ] {
            run(&harm);
            assert_ne!(look_if_there(&node, look), Some(whole.clone()), "no harm done by {harm}");
            network.ensure().await.unwrap();
            assert_eq!(look(), whole, "after {harm}");
        }
        network.remove_everything().await.unwrap();
    });
}

fn look_if_there<T>(node: &str, look: impl Fn() -> T) -> Option<T> {
    attempt(&format!("ip -n {node} link show sheaf0")).status.success().then(look)
}

#[test]
fn a_restart_leaves_the_rules_of_running_machines_alone_until_it_knows_them() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let rules = || run(&format!("ip netns exec {node} nft list table bridge sheaf"));
        let before = network();
        before.ensure().await.unwrap();
        assert!(rules().contains("from_guest"), "shut, before anybody is named");
        before.set_ports(&[port(2)]).await.unwrap();
        drop(before);
        let after = network();
        after.ensure().await.unwrap();
        assert!(rules().contains("10.52.0.2"), "the guest goes on talking");
        after.set_ports(&[]).await.unwrap();
        assert!(!rules().contains("10.52.0.2"));
        after.remove_everything().await.unwrap();
    });
}

#[test]
fn a_tap_is_persistent_labelled_owned_and_held_by_one() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let network = network();
        assert!(matches!(network.open_tap(&port(2)).await, Err(TapError::NoBridge { .. })));
        network.ensure().await.unwrap();
        let tap = network.tap_name(&port(2).id);
        let held = network.open_tap(&port(2)).await.unwrap();
        assert!(matches!(network.open_tap(&port(2)).await, Err(TapError::Held { .. })));
        drop(held);
        let found = FoundTap { name: tap.clone(), id: Some(port(2).id) };
        assert_eq!(network.found_taps().await.unwrap(), [found]);
        let details = run(&format!("ip -n {node} -d tuntap"));
        assert!(
            details.contains("persist") && details.contains("vnet_hdr") && details.contains("user 4242"),
            "{details}"
        );
        let link = run(&format!("ip -n {node} link show {tap}"));
        assert!(link.contains("master sheaf0") && link.contains("default/vm-2 0"), "{link}");
        assert!(!run(&format!("ip -n {node} addr show {tap}")).contains("inet6"));
        drop(network.open_tap(&port(2)).await.unwrap());
        network.remove_tap(&tap).await.unwrap();
        network.remove_tap(&tap).await.unwrap();
        assert_eq!(network.found_taps().await.unwrap(), []);
        network.remove_everything().await.unwrap();
    });
}

#[test]
fn removing_everything_leaves_nothing_and_can_be_repeated() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let seen = || {
            (run(&format!("ip -n {node} -br link")), run(&format!("ip netns exec {node} nft list ruleset")))
        };
        let before = seen();
        let network = network();
        network.ensure().await.unwrap();
        network.set_ports(&[port(2)]).await.unwrap();
        drop(network.open_tap(&port(2)).await.unwrap());
        assert_ne!(seen(), before);
        network.remove_everything().await.unwrap();
        assert_eq!(seen(), before);
        network.remove_everything().await.unwrap();
        assert_eq!(seen(), before);
    });
}

#[test]
fn a_bridge_that_is_somebody_elses_is_never_touched() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        run(&format!("ip -n {node} link add sheaf0 type bridge"));
        run(&format!("ip -n {node} addr add 203.0.113.1/24 dev sheaf0"));
        let network = network();
        let refused = network.ensure().await.unwrap_err();
        assert!(matches!(refused, NetworkError::Bridge(BridgeError::NotOurs { .. })), "{refused}");
        assert!(network.remove_everything().await.is_err());
        assert!(run(&format!("ip -n {node} addr show sheaf0")).contains("203.0.113.1"));
    });
}

#[test]
fn two_instances_live_side_by_side_in_one_namespace() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let instance = |name: &str, cidr: &str| {
            let names = sheaf_network::NetworkNames::of_instance(name);
            let config = sheaf_network::NetworkConfig::new(names, cidr.parse().unwrap()).unwrap();
            sheaf_network::Network::new(config).unwrap()
        };
        let (one, two) = (instance("/data/one", "10.52.0.0/16"), instance("/data/two", "10.53.0.0/16"));
        for network in [&one, &two] {
            network.ensure().await.unwrap();
            let mut port = port(2);
            port.addresses = vec![];
            network.set_ports(&[port.clone()]).await.unwrap();
            drop(network.open_tap(&port).await.unwrap());
        }
        one.remove_everything().await.unwrap();
        assert_eq!(two.found_taps().await.unwrap().len(), 1, "the other's are its own");
        assert!(run(&format!("ip -n {node} addr")).contains("10.53.0.1/16"));
        two.remove_everything().await.unwrap();
    });
}
