//! The allocator against a model that knows everything that ever happened.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn spec(start: &str, end: &str, exclude: &[&str]) -> IpPoolSpec {
    serde_json::from_value(json!({"networkName": "default/n", "ipv4Config": {"cidr": "10.52.0.0/24",
        "router": "10.52.0.1", "serverIP": "10.52.0.2", "pool": {"start": start, "end": end, "exclude": exclude}}}))
    .unwrap()
}

fn nic(key: &str) -> Nic<'_> {
    Nic { key, requested: None, previous: None }
}

fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 52, 0, last)
}

#[test]
fn the_network_keeps_its_own_addresses() {
    let mut pool = Pool::read(&spec("", "", &["10.52.0.3"]), None).unwrap();
    assert_eq!(pool.allocate(nic("a")), Ok(ip(4)), "router, server and an excluded one come first");
    let wire = pool.into_wire();
    assert_eq!((wire.used, wire.available), (1, 250));
    assert_eq!(wire.allocated["10.52.0.1"], RESERVED);
    assert_eq!(wire.allocated["10.52.0.3"], EXCLUDED);
}

#[test]
fn an_interface_keeps_its_address_and_gets_it_back() {
    let mut pool = Pool::read(&spec("10.52.0.10", "10.52.0.12", &[]), None).unwrap();
    assert_eq!(pool.allocate(nic("a")), Ok(ip(10)));
    assert_eq!(pool.allocate(nic("a")), Ok(ip(10)));
    pool.release("a");
    assert_eq!(pool.allocate(nic("b")), Ok(ip(11)), "what was given back rests");
    assert_eq!(pool.allocate(Nic { previous: Some(ip(10)), ..nic("a") }), Ok(ip(10)));
    // Somebody else has it by now.
    pool.release("a");
    pool.allocate(Nic { requested: Some(ip(10)), ..nic("c") }).unwrap();
    assert_eq!(pool.allocate(Nic { previous: Some(ip(10)), ..nic("a") }), Ok(ip(12)));
}

#[test]
fn an_exhausted_pool_says_so() {
    let mut pool = Pool::read(&spec("10.52.0.10", "10.52.0.11", &[]), None).unwrap();
    pool.allocate(nic("a")).unwrap();
    pool.allocate(nic("b")).unwrap();
    assert_eq!(
        pool.allocate(nic("c")).unwrap_err().to_string(),
        "all 2 addresses from 10.52.0.10 to 10.52.0.11 are taken: enlarge the pool or remove machines"
    );
    pool.release("a");
    assert_eq!(pool.allocate(nic("c")), Ok(ip(10)));
}

#[test]
fn an_address_that_was_asked_for_is_that_one_or_none() {
    let mut pool = Pool::read(&spec("10.52.0.10", "10.52.0.20", &[]), None).unwrap();
    let ask = |key, address| Nic { key, requested: Some(address), previous: None };
    assert_eq!(pool.allocate(ask("a", ip(15))), Ok(ip(15)));
    assert_eq!(
        pool.allocate(ask("b", ip(15))),
        Err(AddressError::Taken { address: ip(15), holder: "a".into() })
    );
    assert!(matches!(pool.allocate(ask("b", ip(30))), Err(AddressError::OutOfRange { .. })));
    assert_eq!(pool.allocate(ask("a", ip(16))), Ok(ip(16)));
    assert_eq!(pool.holder(ip(15)), None, "it moved, and left nothing behind");
}

#[test]
fn a_network_without_addresses_is_no_pool() {
    for cidr in ["", "10.0.0.0/32", "x/24"] {
        let spec = serde_json::from_value(json!({"ipv4Config": {"cidr": cidr}})).unwrap();
        assert!(matches!(Pool::read(&spec, None), Err(AddressError::NotANetwork { .. })), "{cidr}");
    }
}

#[test]
fn a_pool_can_end_where_addresses_end() {
    let spec = serde_json::from_value(json!({"ipv4Config": {"cidr": "255.255.255.0/24",
        "pool": {"start": "255.255.255.254"}}}))
    .unwrap();
    let mut pool = Pool::read(&spec, None).unwrap();
    assert_eq!(pool.allocate(nic("a")), Ok(Ipv4Addr::new(255, 255, 255, 254)));
    assert!(pool.allocate(nic("b")).is_err());
}

#[derive(Clone, Debug)]
enum Deed {
    Allocate(u8),
    Release(u8),
    /// Through the object and back, as at every restart.
    Restart,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let deed = prop_oneof![
        4 => (0_u8..12).prop_map(Deed::Allocate),
        2 => (0_u8..12).prop_map(Deed::Release),
        1 => Just(Deed::Restart),
    ];
    proptest::collection::vec(deed, 0..80)
}

proptest! {
    #[test]
    fn no_two_interfaces_ever_have_one_address(deeds in deeds(), size in 1_u8..14) {
        let spec = spec("10.52.0.10", &ip(9 + size).to_string(), &["10.52.0.11"]);
        let free = (0..size).map(|n| ip(10 + n)).filter(|address| *address != ip(11));
        let free: BTreeSet<Ipv4Addr> = free.collect();
        let mut pool = Pool::read(&spec, None).unwrap();
        let mut model: BTreeMap<String, Ipv4Addr> = BTreeMap::new();
        let mut ever: BTreeSet<Ipv4Addr> = BTreeSet::new();
        for deed in deeds {
            match deed {
                Deed::Allocate(n) => {
                    let key = format!("nic-{n}");
                    let got = pool.allocate(nic(&key));
                    match (model.get(&key), got) {
                        (Some(had), got) => prop_assert_eq!(got, Ok(*had)),
                        (None, Ok(address)) => {
                            prop_assert!(free.contains(&address));
                            prop_assert!(!model.values().any(|taken| *taken == address));
                            // A fresh one is given before one that was given back.
                            prop_assert!(ever.len() == free.len() || !ever.contains(&address));
                            ever.insert(address);
                            model.insert(key, address);
                        }
                        (None, Err(why)) => {
                            let exhausted = matches!(why, AddressError::Exhausted { .. });
                            prop_assert!(exhausted);
                            prop_assert_eq!(model.len(), free.len());
                        }
                    }
                }
                Deed::Release(n) => {
                    let key = format!("nic-{n}");
                    prop_assert_eq!(pool.release(&key), model.remove(&key));
                }
                Deed::Restart => pool = Pool::read(&spec, Some(&pool.into_wire())).unwrap(),
            }
            let wire = pool.into_wire();
            prop_assert_eq!(wire.used, i64::try_from(model.len()).unwrap());
            prop_assert_eq!(wire.used + wire.available, i64::try_from(free.len()).unwrap());
        }
    }
}
