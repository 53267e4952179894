//! Whatever is interrupted, lost or written over: an address is never two balancers', and none is lost.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOBODY: &Backends = &Backends { addresses: Vec::new(), without: Vec::new() };

fn balancer(name: &str, change: impl FnOnce(&mut Value)) -> LoadBalancer {
    let mut balancer = json!({
        "metadata": {"name": name, "namespace": "d", "finalizers": [ADDRESS_FINALIZER]},
        "spec": {"workloadType": "cluster"},
    });
    change(&mut balancer);
    serde_json::from_value(balancer).unwrap()
}

fn pool(name: &str, subnet: &str) -> IPPool {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ranges": [{"subnet": subnet}],
        "selector": {"scope": [{"namespace": "*", "project": "*", "guestCluster": "*"}]}}}))
    .unwrap()
}

fn able(name: &str, load: usize) -> Candidate {
    Candidate { name: name.to_owned(), cannot: None, load }
}

fn ready(status: &LoadBalancerStatus) -> (&str, &str) {
    let ready = status.condition(READY).unwrap();
    (&ready.status, &ready.message)
}

/// What a step makes of a balancer that stands alone.
fn after(balancer: &LoadBalancer, pools: &[Arc<IPPool>], nodes: &[Candidate], backends: &Backends) -> Step {
    let holder = "d/lb";
    next_step(&Seen { holder, balancer: Some(balancer), pools, blocked: &[], nodes, backends, now: "t" })
}

fn status_after(
    balancer: &LoadBalancer,
    pools: &[Arc<IPPool>],
    nodes: &[Candidate],
    backends: &Backends,
) -> LoadBalancerStatus {
    match after(balancer, pools, nodes, backends) {
        Step::WriteStatus(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn given() -> Arc<IPPool> {
    let mut pool = pool("p", "10.1.0.0/29");
    pool.status.allocated.insert("10.1.0.2".to_owned(), "d/lb".to_owned());
    Arc::new(pool)
}

#[test]
fn a_cluster_gets_its_address_and_keeps_what_its_cloud_provider_wrote() {
    let lb = balancer("lb", |lb| lb["status"]["address"] = json!("10.1.0.2"));
    let step = after(&lb, &[Arc::new(pool("p", "10.1.0.0/29"))], &[], NOBODY);
    let Step::WritePool { pool, status } = step else { panic!("{step:?}") };
    assert_eq!((pool.as_str(), status.allocated["10.1.0.2"].as_str()), ("p", "d/lb"));
    let status = status_after(&lb, &[given()], &[], NOBODY);
    assert_eq!(status.allocated_address.ip, "10.1.0.2");
    assert_eq!((status.address.as_str(), status.node_name.as_str()), ("10.1.0.2", ""));
    assert_eq!(ready(&status), ("True", ""));
}

#[test]
fn dhcp_is_asked_by_a_cluster_itself_and_by_nobody_for_machines() {
    let cluster = balancer("lb", |lb| lb["spec"] = json!({"workloadType": "cluster", "ipam": "dhcp"}));
    let status = status_after(&cluster, &[], &[], NOBODY);
    assert_eq!((status.allocated_address.ip.as_str(), ready(&status).0), ("0.0.0.0", "True"));
    let vm = balancer("lb", |lb| lb["spec"] = json!({"workloadType": "vm", "ipam": "dhcp"}));
    let status = status_after(&vm, &[], &[able("n1", 0)], NOBODY);
    assert_eq!((status.allocated_address.ip.as_str(), ready(&status).0), ("", "False"));
    assert!(ready(&status).1.contains("use ipam `pool`"));
}

#[test]
fn ready_says_what_is_missing_until_nothing_is() {
    let mut lb = balancer("lb", |lb| lb["spec"] = json!({"workloadType": "vm"}));
    assert!(ready(&status_after(&lb, &[], &[], NOBODY)).1.starts_with("no matched IPPool"));
    let pools = [given()];
    let one = Backends { addresses: vec![[10, 52, 0, 7].into()], without: Vec::new() };
    assert!(ready(&status_after(&lb, &pools, &[], &one)).1.contains("no node that could hold"));
    let cannot = Candidate { cannot: Some("no nft".to_owned()), ..able("n1", 0) };
    assert!(ready(&status_after(&lb, &pools, &[cannot], &one)).1.contains("node n1: no nft"));
    let nodes = [able("n1", 3), able("n3", 1), able("n2", 1)];
    assert_eq!(ready(&status_after(&lb, &pools, &nodes, NOBODY)), ("False", "no running backend servers"));
    lb.status = status_after(&lb, &pools, &nodes, &one);
    assert_eq!((lb.status.node_name.as_str(), lb.status.backend_servers[0].as_str()), ("n2", "10.52.0.7"));
    assert_eq!(ready(&lb.status).1, "waiting for node n2 to hold the address");
    let address = [10, 1, 0, 2].into();
    let held = forwarding::Outcome::Held { address, unwell: Vec::new(), of: 1, announced: true };
    lb.status = forwarding::status(&lb, &held, "t");
    lb.status = status_after(&lb, &pools, &nodes, &one);
    assert_eq!(ready(&lb.status), ("True", ""));
    assert_eq!(after(&lb, &pools, &nodes, &one), Step::Rest);
    assert_eq!(choose_node("n3", false, &nodes), Ok("n3".into()), "who holds it goes on");
    assert_eq!(choose_node("n3", true, &nodes), Ok("n3".into()), "and so does who is about to");
    assert_eq!(choose_node("gone", false, &nodes), Ok("n2".into()));
}

#[test]
fn a_node_that_cannot_forward_any_more_keeps_an_address_until_it_let_go_and_no_longer() {
    let lost = Candidate { cannot: Some("no taps".to_owned()), ..able("n1", 0) };
    let nodes = [lost.clone(), able("n2", 5)];
    assert_eq!(choose_node("n1", false, &nodes), Ok("n1".into()), "nobody else has it meanwhile");
    assert_eq!(choose_node("n1", true, &nodes), Ok("n2".into()));
    assert_eq!(choose_node("n1", true, &[lost]), Ok("n1".into()), "where there is no other");
    let one = Backends { addresses: vec![[10, 52, 0, 7].into()], without: Vec::new() };
    let mut lb = balancer("lb", |lb| {
        lb["spec"] = json!({"workloadType": "vm"});
        lb["metadata"]["finalizers"] = json!([ADDRESS_FINALIZER]);
        lb["status"] = json!({"address": "10.1.0.2", "nodeName": "n1",
            "allocatedAddress": {"ip": "10.1.0.2", "ipPool": "p"}});
    });
    let pools = [given()];
    lb.status.allocated_address = Pool::read(&pools[0]).describe([10, 1, 0, 2].into());
    assert_eq!(status_after(&lb, &pools, &nodes, &one).node_name, "n1");
    lb.status.address = String::new();
    assert_eq!(status_after(&lb, &pools, &nodes, &one).node_name, "n2");
}

#[test]
fn no_address_is_taken_back_while_a_node_may_hold_it() {
    let nodes = [able("n1", 0)];
    let mut lb = balancer("lb", |lb| {
        lb["spec"] = json!({"workloadType": "vm"});
        lb["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        lb["status"] = json!({"address": "10.1.0.2", "nodeName": "n1",
            "allocatedAddress": {"ip": "10.1.0.2", "ipPool": "p"}});
    });
    assert_eq!(after(&lb, &[given()], &nodes, NOBODY), Step::Rest);
    assert_ne!(after(&lb, &[given()], &[], NOBODY), Step::Rest, "a node that is gone holds nothing");
    lb.status.address = String::new();
    lb.status = status_after(&lb, &[given()], &nodes, NOBODY);
    assert_eq!(lb.status.allocated_address, AllocatedAddress::default());
    assert!(matches!(after(&lb, &[given()], &nodes, NOBODY), Step::WritePool { .. }));
    assert_eq!(after(&lb, &[], &nodes, NOBODY), Step::RemoveFinalizer);

    // Another pool: it stops saying so, its node lets go, and only then is it given back.
    lb.metadata.deletion_timestamp = None;
    lb.status.address = "10.1.0.2".to_owned();
    lb.status.allocated_address = Pool::read(&given()).describe([10, 1, 0, 2].into());
    lb.spec.ip_pool = "other".to_owned();
    let pools = [given(), Arc::new(pool("other", "10.2.0.0/29"))];
    lb.status = status_after(&lb, &pools, &nodes, NOBODY);
    assert_eq!(lb.status.allocated_address, AllocatedAddress::default());
    let step = after(&lb, &pools, &nodes, NOBODY);
    let Step::WritePool { pool: name, status } = step else { panic!("{step:?}") };
    assert_eq!(name, "other");
    let mut other = pool("other", "10.2.0.0/29");
    other.status = *status;
    let pools = [given(), Arc::new(other)];
    lb.status = status_after(&lb, &pools, &nodes, NOBODY);
    assert_eq!(lb.status.allocated_address.ip, "10.2.0.2");
    assert_eq!(after(&lb, &pools, &nodes, NOBODY), Step::Rest, "the node still holds the old one");
    lb.status.address = String::new();
    let step = after(&lb, &pools, &nodes, NOBODY);
    assert!(
        matches!(&step, Step::WritePool { pool, status } if pool == "p" && status.allocated.is_empty()),
        "{step:?}"
    );
}

/// Two sets of controllers, pools and balancers, and all that can happen between any two writes.
#[derive(Clone, Debug)]
enum Act {
    Create(usize),
    Delete(usize),
    /// Its finalizers are taken off, and it is gone.
    ForceDelete(usize),
    SetPool(usize, usize),
    /// A controller looks, and remembers what it is about to do.
    Look(usize, usize),
    /// And does it, unless somebody wrote meanwhile.
    Do(usize),
    /// It dies before it did.
    Die(usize),
    /// Somebody puts a pool's status back to what it was at first.
    LoseStatus(usize),
}

const BALANCERS: usize = 4;
const POOLS: [&str; 2] = ["p0", "p1"];

fn act(with_losses: bool) -> impl Strategy<Value = Act> {
    let losses = if with_losses { 1 } else { 0 };
    prop_oneof![
        4 => (0..BALANCERS).prop_map(Act::Create),
        2 => (0..BALANCERS).prop_map(Act::Delete),
        1 => (0..BALANCERS).prop_map(Act::ForceDelete),
        2 => (0..BALANCERS, 0_usize..3).prop_map(|(one, pool)| Act::SetPool(one, pool)),
        16 => (0_usize..2, 0..BALANCERS).prop_map(|(who, one)| Act::Look(who, one)),
        16 => (0_usize..2).prop_map(Act::Do),
        1 => (0_usize..2).prop_map(Act::Die),
        losses => (0..POOLS.len()).prop_map(Act::LoseStatus),
    ]
}

/// An object and how often it was written.
#[derive(Clone, Debug)]
struct Kept<T> {
    version: u64,
    object: T,
}

#[derive(Clone, Debug)]
struct Plan {
    one: usize,
    step: Step,
    balancer_version: Option<u64>,
    pool_versions: Vec<u64>,
}

struct Store {
    version: u64,
    balancers: Vec<Option<Kept<LoadBalancer>>>,
    pools: Vec<Kept<IPPool>>,
    plans: [Option<Plan>; 2],
}

impl Store {
    fn new() -> Store {
        let subnets = ["10.1.0.0/30", "10.2.0.0/29"];
        let make = |n: usize| {
            let mut one = pool(POOLS[n], subnets[n]);
            // One of them is for everybody, the other for who names it.
            if n == 1 {
                one.spec.selector.scope.clear();
            }
            Kept { version: 0, object: one }
        };
        Store {
            version: 0,
            balancers: vec![None; BALANCERS],
            pools: vec![make(0), make(1)],
            plans: [None, None],
        }
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn plan(&self, one: usize) -> Plan {
        let balancer = self.balancers[one].clone();
        let pools: Vec<Arc<IPPool>> = self.pools.iter().map(|pool| Arc::new(pool.object.clone())).collect();
        let step = next_step(&Seen {
            holder: &format!("d/lb{one}"),
            balancer: balancer.as_ref().map(|kept| &kept.object),
            pools: &pools,
            blocked: &[],
            nodes: &[],
            backends: NOBODY,
            now: "t",
        });
        Plan {
            one,
            step,
            balancer_version: balancer.map(|kept| kept.version),
            pool_versions: self.pools.iter().map(|kept| kept.version).collect(),
        }
    }

    /// As the API does it: provided that what is written is as it was seen.
    fn carry_out(&mut self, plan: Plan) {
        let version = self.next();
        match plan.step {
            Step::Rest => {}
            Step::WritePool { pool, status } => {
                let n = POOLS.iter().position(|name| *name == pool).unwrap();
                if self.pools[n].version == plan.pool_versions[n] {
                    self.pools[n].object.status = *status;
                    self.pools[n].version = version;
                }
            }
            step => {
                let Some(kept) = &mut self.balancers[plan.one] else { return };
                if Some(kept.version) != plan.balancer_version {
                    return;
                }
                kept.version = version;
                match step {
                    Step::AddFinalizer => {
                        kept.object.metadata.finalizers = Some(vec![ADDRESS_FINALIZER.to_owned()]);
                    }
                    Step::WriteStatus(status) => kept.object.status = *status,
                    Step::RemoveFinalizer => self.balancers[plan.one] = None,
                    Step::Rest | Step::WritePool { .. } => unreachable!(),
                }
            }
        }
    }

    fn does(&mut self, act: Act) {
        let version = self.next();
        match act {
            Act::Create(one) if self.balancers[one].is_none() => {
                let fresh = balancer(&format!("lb{one}"), |lb| lb["metadata"]["finalizers"] = json!([]));
                self.balancers[one] = Some(Kept { version, object: fresh });
            }
            Act::Create(_) => {}
            Act::Delete(one) => {
                let Some(kept) = &mut self.balancers[one] else { return };
                if kept.object.metadata.finalizers.iter().flatten().next().is_none() {
                    self.balancers[one] = None;
                    return;
                }
                kept.version = version;
                kept.object.metadata.deletion_timestamp =
                    Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
            }
            Act::ForceDelete(one) => self.balancers[one] = None,
            Act::SetPool(one, pool) => {
                let Some(kept) = &mut self.balancers[one] else { return };
                kept.version = version;
                kept.object.spec.ip_pool = POOLS.get(pool).copied().unwrap_or_default().to_owned();
            }
            Act::Look(who, one) => self.plans[who] = Some(self.plan(one)),
            Act::Do(who) => {
                if let Some(plan) = self.plans[who].take() {
                    self.carry_out(plan);
                }
            }
            Act::Die(who) => self.plans[who] = None,
            Act::LoseStatus(pool) => {
                self.pools[pool].version = version;
                self.pools[pool].object.status = LoadBalancerIpPoolStatus::default();
            }
        }
    }

    /// The controllers are left alone until they rest.
    fn settles(&mut self) {
        for _ in 0..200 {
            let plans: Vec<Plan> = (0..BALANCERS).map(|one| self.plan(one)).collect();
            let Some(plan) = plans.into_iter().find(|plan| plan.step != Step::Rest) else { return };
            self.carry_out(plan);
        }
        panic!("they never rest");
    }

    fn said(&self) -> Vec<(String, String, String)> {
        let all = self.balancers.iter().flatten().map(|kept| &kept.object);
        all.filter(|one| !one.status.allocated_address.ip.is_empty())
            .map(|one| {
                let address = &one.status.allocated_address;
                (
                    address.ip_pool.clone(),
                    address.ip.clone(),
                    format!("d/{}", one.metadata.name.as_ref().unwrap()),
                )
            })
            .collect()
    }

    fn given(&self) -> Vec<(String, String, String)> {
        let of = |pool: &IPPool| {
            let name = pool.metadata.name.clone().unwrap();
            let allocated = pool.status.allocated.clone();
            allocated.into_iter().map(move |(address, holder)| (name.clone(), address, holder))
        };
        self.pools.iter().flat_map(|kept| of(&kept.object).collect::<Vec<_>>()).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn no_address_is_ever_two_balancers_and_what_a_balancer_says_its_pool_says_too(acts in prop::collection::vec(act(false), 0..120)) {
        let mut store = Store::new();
        for act in acts {
            store.does(act);
            let (said, given) = (store.said(), store.given());
            for one in &said {
                // Force took the finalizer of the one before it, and somebody may be about to write what was its own.
                prop_assert!(given.contains(one), "{one:?} is not in {given:?}");
            }
            let mut addresses: Vec<&String> = said.iter().map(|(_, address, _)| address).collect();
            addresses.sort();
            addresses.dedup();
            prop_assert_eq!(addresses.len(), said.len());
        }
    }

    #[test]
    fn once_they_rest_nothing_is_lost_and_everybody_has_what_there_is(acts in prop::collection::vec(act(true), 0..120)) {
        let mut store = Store::new();
        for act in acts {
            store.does(act);
        }
        // What was about to be done when they died is never done, or late.
        for plan in store.plans.clone().into_iter().flatten() {
            store.carry_out(plan);
        }
        store.settles();
        let (mut said, mut given) = (store.said(), store.given());
        said.sort();
        given.sort();
        prop_assert_eq!(&said, &given);
        let waiting = store.balancers.iter().flatten().filter(|kept| kept.object.status.allocated_address.ip.is_empty());
        for kept in waiting {
            let named = kept.object.spec.ip_pool.as_str();
            let n = if named == "p1" { 1 } else { 0 };
            let pool = Pool::read(&store.pools[n].object);
            prop_assert_eq!(pool.status(&Default::default(), "").available, 0, "{} waits for nothing", n);
        }
    }
}
