//! Ranges, scopes and what pools must not share, word by word.

use proptest::prelude::*;

use super::*;

fn pool(ranges: Value, scope: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {"ranges": ranges, "selector": {"scope": scope}}})
}

fn said(pool: &Value) -> String {
    validate(pool, None).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn spec(ranges: Value, priority: u32, scope: Value) -> LoadBalancerIpPoolSpec {
    serde_json::from_value(json!({"ranges": ranges, "selector": {"priority": priority, "scope": scope}}))
        .unwrap()
}

fn tuple(project: &str, namespace: &str, cluster: &str) -> Value {
    json!({"project": project, "namespace": namespace, "guestCluster": cluster})
}

#[test]
fn a_range_lies_inside_its_subnet_and_no_two_share_an_address() {
    assert_eq!(said(&pool(json!([{"subnet": "192.168.1.0/24"}]), json!([]))), "");
    for (ranges, words) in [
        (json!([]), "range can't be empty"),
        (json!([{"subnet": "192.168.1.0"}]), "invalid subnet"),
        (json!([{"subnet": "fd00::/64"}]), "invalid subnet"),
        (json!([{"subnet": "192.168.1.0/24", "rangeStart": "192.168.2.1"}]), "out of subnet 192.168.1.0/24"),
        (json!([{"subnet": "192.168.1.0/24", "rangeEnd": "x"}]), "invalid rangeEnd x"),
        (json!([{"subnet": "192.168.1.0/24", "gateway": "x"}]), "invalid gateway x"),
        (
            json!([{"subnet": "192.168.1.0/24", "rangeStart": "192.168.1.0", "rangeEnd": "192.168.1.0"}]),
            "no address from",
        ),
        (
            json!([{"subnet": "192.168.1.0/24", "rangeEnd": "192.168.1.20"},
                {"subnet": "192.168.1.0/24", "rangeStart": "192.168.1.20"}]),
            "there are overlaps between range",
        ),
    ] {
        let said = said(&pool(ranges, json!([])));
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn what_is_given_away_stays_in_the_pool() {
    let mut pool = pool(json!([{"subnet": "192.168.1.0/24", "rangeEnd": "192.168.1.20"}]), json!([]));
    pool["status"] = json!({"allocated": {"192.168.1.5": "default/lb"}});
    assert_eq!(said(&pool), "");
    pool["status"] = json!({"allocated": {"192.168.1.21": "default/lb"}});
    assert!(said(&pool).contains("allocated IP 192.168.1.21 is excluded"));
    pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(said(&pool), "", "one on its way out is let go");
}

#[test]
fn the_gateway_and_the_ends_of_a_network_are_nobodys() {
    let read = |range: Value| AddressRange::read(&serde_json::from_value(range).unwrap()).unwrap();
    let whole = read(json!({"subnet": "192.168.1.0/29"}));
    assert_eq!(whole.size(), 5, "six hosts, and the first is the gateway");
    for (address, inside) in [(0, false), (1, false), (2, true), (6, true), (7, false)] {
        assert_eq!(whole.contains(Ipv4Addr::new(192, 168, 1, address)), inside, "{address}");
    }
    let explicit =
        read(json!({"subnet": "192.168.1.0/29", "rangeStart": "192.168.1.7", "rangeEnd": "192.168.1.0",
        "gateway": "192.168.1.3"}));
    assert_eq!((explicit.first.octets()[3], explicit.last.octets()[3], explicit.size()), (1, 6, 5));
    let single = read(json!({"subnet": "192.168.1.9/32"}));
    assert_eq!((single.size(), single.gateway), (1, None));
}

#[test]
fn the_label_says_whether_a_pool_is_for_everybody() {
    let mut global = pool(json!([{"subnet": "10.1.0.0/24"}]), json!([tuple("*", "*", "*")]));
    default(&mut global);
    assert_eq!(global["metadata"]["labels"][GLOBAL_LABEL], "true");
    let mut own = pool(json!([{"subnet": "10.1.0.0/24"}]), json!([tuple("*", "web", "*")]));
    own["metadata"]["labels"] = json!({GLOBAL_LABEL: "true", "x": "y"});
    default(&mut own);
    assert_eq!(own["metadata"]["labels"], json!({GLOBAL_LABEL: "false", "x": "y"}));
    let before = own.clone();
    default(&mut own);
    assert_eq!(own, before);
}

#[test]
fn scopes_that_say_the_same_are_refused() {
    let ranges = json!([{"subnet": "10.1.0.0/24"}]);
    let twice = pool(ranges.clone(), json!([tuple("", "web", ""), tuple("", "*", "")]));
    assert!(said(&twice).contains("scope overlaps"));
    assert_eq!(said(&pool(ranges, json!([tuple("", "web", ""), tuple("", "db", "")]))), "");
}

#[test]
fn pools_do_not_get_into_each_others_way() {
    let one = || {
        vec![("one".to_owned(), spec(json!([{"subnet": "10.1.0.0/24"}]), 0, json!([tuple("", "web", "")])))]
    };
    let conflict = |spec: LoadBalancerIpPoolSpec| conflict_with("two", &spec, &one()).unwrap_or_default();
    let elsewhere = || json!([{"subnet": "10.2.0.0/24"}]);
    assert_eq!(conflict(spec(elsewhere(), 0, json!([tuple("", "db", "")]))), "");
    assert!(
        conflict(spec(json!([{"subnet": "10.0.0.0/8"}]), 0, json!([])))
            .contains("overlaps with other pools: one")
    );
    assert!(conflict(spec(elsewhere(), 0, json!([tuple("", "*", "")]))).contains("same as the pool one"));
    assert_eq!(conflict(spec(elsewhere(), 3, json!([tuple("", "*", "")]))), "");
    let all = json!([tuple("*", "*", "*")]);
    assert_eq!(conflict(spec(elsewhere(), 0, all.clone())), "", "the global one is for who is left");
    let global = vec![("g".to_owned(), spec(json!([{"subnet": "10.3.0.0/24"}]), 0, all.clone()))];
    let second = conflict_with("two", &spec(elsewhere(), 0, all), &global).unwrap();
    assert!(second.contains("there is already a global IP pool: g"), "{second}");
    let five = vec![("five".to_owned(), spec(json!([{"subnet": "10.3.0.0/24"}]), 5, json!([])))];
    let same = conflict_with("two", &spec(elsewhere(), 5, json!([])), &five).unwrap();
    assert!(same.contains("priority can't be the same as the pool five"), "{same}");
    assert_eq!(conflict_with("one", &one()[0].1, &one()), None, "itself is no other");
}

#[test]
fn a_pool_that_is_for_somebody_is_for_nobody_else_by_its_name_either() {
    let asked = Requirement { namespace: "db".into(), ..Requirement::default() };
    let selector = |scope: Value| serde_json::from_value::<Selector>(json!({"scope": scope})).unwrap();
    assert!(!selector(json!([tuple("", "web", "")])).admits(&asked));
    assert!(!selector(json!([tuple("p", "", "")])).admits(&asked));
    assert!(selector(json!([])).admits(&asked), "one for nobody is for whoever names it");
    assert!(selector(json!([tuple("", "", "")])).admits(&asked));
    assert!(selector(json!([tuple("*", "db", "*")])).admits(&asked));
}

#[test]
fn a_loose_look_takes_a_scope_without_project_and_cluster_for_all_of_them() {
    let asked = Requirement {
        namespace: "web".into(),
        project: "p".into(),
        cluster: "c".into(),
        ..Default::default()
    };
    let scope: Selector = serde_json::from_value(json!({"scope": [tuple("", "web", "")]})).unwrap();
    assert!(!scope.matches(&asked, Closely::Strictly));
    assert!(scope.matches(&asked, Closely::Loosely));
    let other = Requirement { namespace: "db".into(), ..asked };
    assert!(!scope.matches(&other, Closely::Loosely));
}

proptest! {
    #[test]
    fn a_range_counts_what_it_contains(bits: u32, prefix in 24_u8..=32, start in 0_u32..256, end in 0_u32..256) {
        let subnet = Cidr::parse(&format!("{}/{prefix}", Ipv4Addr::from_bits(bits))).unwrap();
        let at = |n: u32| Ipv4Addr::from_bits(subnet.network.to_bits() | (n & (subnet.broadcast().to_bits() - subnet.network.to_bits())));
        let range = Range {
            subnet: subnet.to_string(), range_start: at(start).to_string(), range_end: at(end).to_string(),
            ..Range::default()
        };
        if let Ok(read) = AddressRange::read(&range) {
            let all = (0..=255_u32).map(at).collect::<std::collections::BTreeSet<_>>();
            let inside = all.iter().filter(|address| read.contains(**address)).count();
            prop_assert_eq!(read.size(), inside as i64);
        }
    }

    #[test]
    fn no_text_makes_a_range_fall_over(subnet in ".{0,20}", start in ".{0,16}", end in ".{0,16}", gateway in ".{0,16}") {
        _ = AddressRange::read(&Range { range_start: start, range_end: end, subnet, gateway });
    }
}
