//! Where guests get to: each other, the outside, and of the host no more than is theirs.

use std::{collections::BTreeSet, net::TcpListener};

use sheaf_network::Network;

use crate::{
    guest::{Guest, can_ping},
    place::{NODE, Place, config, port, run},
};

#[test]
fn guests_reach_each_other_and_the_outside_and_nothing_they_should_not() {
    let Some(place) = Place::new() else { return };
    let (node, outside) = (place.node(), place.outside());
    place.on_the_node(async || {
        let mut config = config();
        config.guests_may_reach = BTreeSet::from([6443]);
        let network = Network::new(config).unwrap();
        network.ensure().await.unwrap();
        network.set_ports(&[port(2), port(3)]).await.unwrap();
        let one = Guest::plug_in(&place, "one", port(2).mac, network.open_tap(&port(2)).await.unwrap());
        let two = Guest::plug_in(&place, "two", port(3).mac, network.open_tap(&port(3)).await.unwrap());
        one.settle("10.52.0.2");
        two.settle("10.52.0.3");
        let services: Vec<_> =
            [6443, 8080].map(|port| TcpListener::bind(("0.0.0.0", port)).unwrap()).into_iter().collect();
        run(&format!("ip -n {outside} addr add 198.51.100.1/32 dev lo"));
        run(&format!("ip -n {outside} addr add 169.254.169.254/32 dev lo"));
        let gets =
            |address: &str, port: u16| one.attempt(&format!("busybox nc -w 2 {address} {port} -e /bin/true"));

        assert!(one.can_ping("10.52.0.3"), "each other");
        assert!(one.can_ping("10.52.0.1"), "the gateway");
        assert!(one.can_ping("192.0.2.2"), "the outside, which knows no way back but through NAT");
        assert!(one.can_ping("198.51.100.1"), "what lies beyond");
        assert!(!one.can_ping("169.254.169.254"), "a cloud's metadata");
        assert!(gets("10.52.0.1", 6443).status.success(), "a port opened to them");
        assert!(gets(&NODE.to_string(), 6443).status.success(), "on any address of the host");
        for address in ["10.52.0.1", "192.0.2.1"] {
            assert!(!gets(address, 8080).status.success(), "a port of the host's own at {address}");
        }
        assert!(!one.can_ping("192.0.2.1"), "the host's other addresses");
        assert!(can_ping(&node, "10.52.0.2"), "the host reaches guests");
        run(&format!("ip -n {outside} route add 10.52.0.0/16 via {NODE}"));
        assert!(!can_ping(&outside, "10.52.0.2"), "nobody outside reaches them unasked");
        assert!(!can_ping(&outside, "10.52.0.3"));

        // The address of another, taken by hand inside the guest, is of no use to it.
        run(&format!("ip -n {} addr add 10.52.0.9/16 dev eth0", one.namespace));
        assert!(!one.attempt("busybox ping -c 1 -W 1 -I 10.52.0.9 10.52.0.3").status.success());
        run(&format!("ip -n {} link set eth0 address 02:00:00:00:00:99", one.namespace));
        assert!(!one.can_ping("10.52.0.1"), "nor is another MAC");
        drop((services, one, two));
        network.remove_everything().await.unwrap();
    });
}
