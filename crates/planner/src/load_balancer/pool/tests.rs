//! The pool against a model that knows everything that ever happened.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pool(name: &str, spec: Value) -> Arc<IPPool> {
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
}

fn small() -> Pool {
    Pool::read(&pool(
        "p",
        json!({"ranges": [
            {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.3"},
            {"subnet": "10.2.0.0/30", "gateway": "10.9.9.9"}]}),
    ))
}

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[test]
fn addresses_are_given_one_after_the_other_through_all_ranges_and_around() {
    let mut pool = small();
    let given: Vec<String> =
        (0..4).map(|n| pool.allocate(&format!("d/{n}"), &[]).unwrap().to_string()).collect();
    assert_eq!(given, ["10.1.0.2", "10.1.0.3", "10.2.0.1", "10.2.0.2"], "the gateway is nobody's");
    assert!(pool.allocate("d/5", &[]).unwrap_err().to_string().starts_with("no available IP in IPPool p"));
    pool.release(ip("10.1.0.3"));
    assert_eq!(pool.allocate("d/5", &[]), Ok(ip("10.1.0.3")));
    assert_eq!(pool.allocate("d/5", &[]), Ok(ip("10.1.0.3")), "who has one keeps it");
}

#[test]
fn nobody_gets_the_address_of_a_node() {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": {"addresses": [
        {"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "10.1.0.2"}]}}))
    .unwrap();
    let blocked = Block::of_node(&node);
    assert_eq!(small().allocate("d/a", &blocked), Ok(ip("10.1.0.3")));
}

#[test]
fn who_had_an_address_gets_it_back() {
    let mut pool = small();
    pool.allocate("d/a", &[]).unwrap();
    pool.release(ip("10.1.0.2"));
    assert_eq!(pool.allocate("d/b", &[]), Ok(ip("10.1.0.3")), "what was given back rests");
    assert_eq!(pool.allocate("d/a", &[]), Ok(ip("10.1.0.2")));
    let status = pool.status(&LoadBalancerIpPoolStatus::default(), "t");
    assert_eq!((status.total, status.available, status.allocated_history.len()), (4, 2, 0));
    let address = pool.describe(ip("10.1.0.2"));
    assert_eq!((address.mask.as_str(), address.gateway.as_str()), ("255.255.255.0", "10.1.0.1"));
}

#[test]
fn what_machines_may_get_is_stepped_over() {
    let machines = |exclude: Value| {
        let spec: IpPoolSpec =
            serde_json::from_value(json!({"ipv4Config": {"cidr": "10.1.0.0/16", "router": "10.1.0.1",
            "pool": {"start": "10.1.0.1", "end": "10.1.0.200", "exclude": exclude}}}))
            .unwrap();
        Block::of_machines(&spec)
    };
    assert_eq!(small().allocate("d/a", &machines(json!([]))), Ok(ip("10.2.0.1")));
    assert_eq!(small().allocate("d/a", &machines(json!(["10.1.0.3"]))), Ok(ip("10.1.0.3")));
    let range = small().ranges[0];
    assert!(machines(json!([])).iter().any(|block| block.overlaps(&range)));
    let rest = machines(json!(["10.1.0.1", "10.1.0.2", "10.1.0.3"]));
    assert!(rest.iter().any(|block| block.overlaps(&range)), "the router is in it still");
    assert!(!rest[1].overlaps(&range));
}

#[test]
fn a_pool_is_chosen_by_who_asks_and_by_priority_and_the_global_one_is_for_the_rest() {
    let scope = |namespace: &str| json!([{"namespace": namespace, "project": "", "guestCluster": ""}]);
    let ranges = json!([{"subnet": "10.1.0.0/24"}]);
    let make = |name: &str, priority: u32, network: &str, scope: Value| {
        pool(
            name,
            json!({"ranges": ranges, "selector": {"priority": priority, "network": network, "scope": scope}}),
        )
    };
    let all = json!([{"namespace": "*", "project": "*", "guestCluster": "*"}]);
    let mut pools = vec![
        make("low", 1, "", scope("web")),
        make("high", 2, "", scope("web")),
        make("net", 9, "d/vlan", scope("web")),
        make("db", 3, "", scope("db")),
    ];
    let asked = |namespace: &str, network: &str, project: &str| Requirement {
        namespace: namespace.into(),
        network: network.into(),
        project: project.into(),
        cluster: String::new(),
    };
    let chosen = |pools: &[Arc<IPPool>], spec: Value, asked: Requirement| {
        let spec: LoadBalancerSpec = serde_json::from_value(spec).unwrap();
        choose(&spec, &asked, pools).map(|pool| pool.metadata.name.clone().unwrap())
    };
    let vm = || json!({"workloadType": "vm"});
    assert_eq!(chosen(&pools, vm(), asked("web", "", "")), Ok("high".into()));
    assert_eq!(chosen(&pools, vm(), asked("web", "d/vlan", "")), Ok("net".into()));
    assert!(chosen(&pools, vm(), asked("other", "", "")).unwrap_err().starts_with("no matched IPPool with"));
    assert!(chosen(&pools, vm(), asked("web", "", "p")).is_err(), "a scope without a project is not for one");
    let cluster = json!({"workloadType": "cluster"});
    assert_eq!(chosen(&pools, cluster, asked("web", "", "p")), Ok("high".into()), "but for a cluster it is");
    assert_eq!(chosen(&pools, json!({"ipPool": "low"}), asked("web", "", "p")), Ok("low".into()));
    let foreign = chosen(&pools, json!({"ipPool": "db"}), asked("web", "", "")).unwrap_err();
    assert!(foreign.contains("IPPool db is not for namespace web"), "{foreign}");
    assert!(
        chosen(&pools, json!({"ipPool": "x"}), asked("web", "", ""))
            .unwrap_err()
            .contains("there is no IPPool x")
    );
    pools.push(make("all", 0, "", all));
    assert_eq!(chosen(&pools, vm(), asked("other", "d/n", "p")), Ok("all".into()));
    assert_eq!(chosen(&pools, vm(), asked("web", "", "")), Ok("high".into()), "it is only for who is left");
}

#[derive(Clone, Debug)]
enum Act {
    Take(u8),
    Give(u8),
    Claim(u8, u8),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0_u8..12).prop_map(Act::Take),
        (0_u8..12).prop_map(Act::Give),
        (0_u8..12, 0_u8..40).prop_map(|(who, address)| Act::Claim(who, address)),
    ];
    prop::collection::vec(act, 0..80)
}

proptest! {
    #[test]
    fn nobody_gets_what_another_has_and_nothing_is_lost(acts in acts(), blocked_from in 0_u8..40, blocked_to in 0_u8..40) {
        let spec = json!({"ranges": [
            {"subnet": "10.1.0.0/28"}, {"subnet": "10.1.0.16/28", "rangeStart": "10.1.0.18", "rangeEnd": "10.1.0.20"}]});
        let mut object = (*pool("p", spec)).clone();
        let blocked = [Block {
            first: Ipv4Addr::new(10, 1, 0, blocked_from.min(blocked_to)),
            last: Ipv4Addr::new(10, 1, 0, blocked_from.max(blocked_to)),
            except: BTreeSet::from([Ipv4Addr::new(10, 1, 0, 5)]),
        }];
        let mut model: BTreeMap<Ipv4Addr, String> = BTreeMap::new();
        for act in acts {
            // By way of its object each time, as it is in life.
            let mut pool = Pool::read(&object);
            match act {
                Act::Take(who) => {
                    let who = format!("d/{who}");
                    let has = model.iter().find(|(_, one)| **one == who).map(|(address, _)| *address);
                    match pool.allocate(&who, &blocked) {
                        Ok(address) => {
                            prop_assert!(has.is_none_or(|has| model[&has] == who));
                            prop_assert!(pool.contains(address));
                            if has.is_none() {
                                prop_assert!(!model.contains_key(&address));
                                prop_assert!(!blocked[0].contains(address));
                            }
                            model.insert(address, who);
                        }
                        Err(_) => {
                            prop_assert!(has.is_none());
                            let free = (0..=255).map(|n| Ipv4Addr::new(10, 1, 0, n)).find(|address| {
                                pool.contains(*address) && !model.contains_key(address) && !blocked[0].contains(*address)
                            });
                            prop_assert_eq!(free, None);
                        }
                    }
                }
                Act::Give(who) => {
                    let who = format!("d/{who}");
                    let all: Vec<_> = pool.addresses_of(&who).collect();
                    for address in all {
                        pool.release(address);
                        model.remove(&address);
                    }
                    prop_assert_eq!(pool.addresses_of(&who).count(), 0);
                }
                Act::Claim(who, address) => {
                    let (who, address) = (format!("d/{who}"), Ipv4Addr::new(10, 1, 0, address));
                    if pool.claim(&who, address) {
                        prop_assert!(model.get(&address).is_none_or(|holder| *holder == who));
                        model.insert(address, who);
                    }
                }
            }
            object.status = pool.status(&object.status, "t");
            let said: BTreeMap<Ipv4Addr, String> =
                object.status.allocated.iter().map(|(address, who)| (address.parse().unwrap(), who.clone())).collect();
            prop_assert_eq!(&said, &model);
            prop_assert_eq!(object.status.available, object.status.total - model.len() as i64);
        }
    }
}
