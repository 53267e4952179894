//! Interfaces come and go, and NICs are put into the bridge of a cluster network.

use std::time::Duration;

use sheaf_network::{
    NetworkNames,
    interfaces::{self, Changes, Interface},
    uplinks::{BondOptions, Uplinks},
};

use crate::place::{Place, run};

async fn named(name: &str) -> Option<Interface> {
    interfaces::look().await.unwrap().into_iter().find(|found| found.name == name)
}

#[test]
fn a_link_that_comes_changes_or_goes_is_told_and_seen() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    place.on_the_node(async || {
        let mut changes = Changes::follow().unwrap();
        let mut told = async || {
            tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("a change is told")
        };
        let lo = named("lo").await.unwrap();
        assert!(lo.loopback && lo.kind == "device");
        let uplink = named("uplink0").await.unwrap();
        assert_eq!(uplink.addresses, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
        assert!(uplink.running && uplink.kind == "veth" && uplink.below.is_none(), "{uplink:?}");

        run(&format!("ip -n {node} link add eth1 type veth peer name far1"));
        assert!(told().await);
        let eth1 = named("eth1").await.unwrap();
        assert!(!eth1.on && !eth1.running && eth1.addresses.is_empty(), "{eth1:?}");
        run(&format!("ip -n {node} link set eth1 up promisc on"));
        run(&format!("ip -n {node} link set far1 up"));
        assert!(told().await);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let eth1 = named("eth1").await.unwrap();
        assert!(eth1.on && eth1.running && eth1.promiscuous, "{eth1:?}");
        while tokio::time::timeout(Duration::from_millis(500), changes.next()).await.is_ok() {}
        run(&format!("ip -n {node} link del eth1"));
        assert!(tokio::time::timeout(Duration::from_secs(10), changes.next()).await.expect("it is told"));
        assert_eq!(named("eth1").await, None);
    });
}

#[test]
fn what_the_kernel_can_do_is_found_out_and_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    place.on_the_node(async || {
        let before = interfaces::look().await.unwrap();
        let uplinks = Uplinks::of(&NetworkNames::plain());
        let first = uplinks.probe().await.unwrap();
        assert_eq!(uplinks.probe().await.unwrap(), first, "asked twice it is the same");
        let names = |all: &[Interface]| all.iter().map(|found| found.name.clone()).collect::<Vec<_>>();
        // A kernel that has bonding makes a `bond0` when it first hears of it.
        let after: Vec<Interface> =
            interfaces::look().await.unwrap().into_iter().filter(|found| found.name != "bond0").collect();
        assert_eq!(names(&after), names(&before));
    });
}

#[test]
fn a_nic_is_put_into_the_bridge_and_taken_out_again() {
    let Some(place) = Place::new() else { return };
    let node = place.node();
    run(&format!("ip -n {node} link add eth1 type veth peer name far1"));
    place.on_the_node(async || {
        let uplinks = Uplinks::of(&NetworkNames::plain());
        let abilities = uplinks.probe().await.unwrap();
        for _ in 0..2 {
            uplinks.make_bridge("lab-br", 1400, abilities.vlan_filtering).await.unwrap();
        }
        let bridge = named("lab-br").await.unwrap();
        assert_eq!(uplinks.made_for(&bridge), Some("lab"));
        assert_eq!((bridge.mtu, bridge.on), (1400, false));
        assert_eq!(bridge.vlan_filtering.unwrap_or(false), abilities.vlan_filtering);
        let eth1 = named("eth1").await.unwrap();
        let mut to = bridge.index;
        let bond = BondOptions {
            name: "lab-bo",
            bridge: bridge.index,
            mtu: 1400,
            mode: "active-backup",
            miimon: Some(100),
            tx_queue_len: Some(500),
        };
        match uplinks.make_bond(&bond).await {
            Ok(()) => {
                assert!(abilities.bonding);
                let bond = named("lab-bo").await.unwrap();
                assert_eq!(bond.controller, Some(bridge.index));
                assert_eq!(bond.bond, Some(("active-backup".to_owned(), 100)));
                to = bond.index;
            }
            Err(why) => assert!(!abilities.bonding, "{why}"),
        }
        uplinks.attach(eth1.index, "eth1", to, 1400).await.unwrap();
        uplinks.switch_on(bridge.index, "lab-br").await.unwrap();
        let eth1 = named("eth1").await.unwrap();
        assert_eq!((eth1.controller, eth1.mtu, eth1.on), (Some(to), 1400, true));
        assert!(named("lab-br").await.unwrap().on);
        uplinks.set_mtu(bridge.index, "lab-br", 1300).await.unwrap();
        assert_eq!(named("lab-br").await.unwrap().mtu, 1300);

        uplinks.detach(eth1.index, "eth1").await.unwrap();
        let eth1 = named("eth1").await.unwrap();
        assert_eq!((eth1.controller, eth1.on), (None, true));
        for _ in 0..2 {
            uplinks.remove(bridge.index, "lab-br").await.unwrap();
        }
        assert_eq!(named("lab-br").await, None);
    });
}
