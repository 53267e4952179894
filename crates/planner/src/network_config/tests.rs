//! Walks of a config and a pool, step by step.

use serde_json::json;
use sheaf_resources::kinds::ip_pool::IpPoolSpec;

use super::*;
use crate::address::Nic;

fn pool() -> Pool {
    let spec: IpPoolSpec = serde_json::from_value(json!({"ipv4Config": {"cidr": "10.52.0.0/29"}})).unwrap();
    Pool::read(&spec, None).unwrap()
}

fn interface(mac: u8) -> NetworkConfig {
    NetworkConfig {
        network_name: DEFAULT_NETWORK.into(),
        mac_address: format!("02:00:00:00:00:{mac:02x}"),
        ip_address: None,
    }
}

struct Cluster {
    wanted: Option<Vec<NetworkConfig>>,
    config: Option<VirtualMachineNetworkConfig>,
    pool: Pool,
    may_run: bool,
    taken: BTreeMap<String, String>,
}

impl Cluster {
    fn new(macs: &[u8]) -> Self {
        Cluster {
            wanted: Some(macs.iter().map(|mac| interface(*mac)).collect()),
            config: None,
            pool: pool(),
            may_run: false,
            taken: BTreeMap::new(),
        }
    }

    fn step(&self) -> Step {
        next_step(&Seen {
            wanted: self.wanted.as_deref(),
            config: self.config.as_ref(),
            is_own: true,
            may_run: self.may_run,
            pool: Some(&self.pool),
            taken: &self.taken,
            failure: None,
            now: "t",
        })
    }

    fn obey(&mut self, step: Step) {
        let config = || -> VirtualMachineNetworkConfig {
            serde_json::from_value(json!({"metadata": {"finalizers": [ADDRESSES_FINALIZER]}})).unwrap()
        };
        let current = self.config.get_or_insert_with(config);
        match step {
            Step::Rest => {}
            Step::Create => {}
            Step::WriteSpec(spec) => current.spec.network_configs = spec,
            Step::WriteStatus(status) => current.status = *status,
            Step::Allocate(all) => {
                for one in all {
                    self.pool
                        .allocate(Nic { key: &one.mac_address, requested: None, previous: None })
                        .unwrap();
                }
            }
            Step::Release(macs) => macs.iter().for_each(|mac| {
                self.pool.release(mac);
            }),
            Step::Delete => {
                current.metadata = serde_json::from_value(
                    json!({"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": [ADDRESSES_FINALIZER]}),
                )
                .unwrap()
            }
            Step::RemoveFinalizer => self.config = None,
        }
        // What the config says somebody has, the pool says too, whenever one looks.
        for one in self.config.iter().flat_map(|config| &config.status.network_configs) {
            let held = self.pool.address_of(&one.mac_address).map(|address| address.to_string());
            assert!(one.state != ALLOCATED || held.as_deref() == Some(&one.allocated_ip_address), "{one:?}");
        }
    }

    fn settle(&mut self) -> usize {
        for n in 0..20 {
            match self.step() {
                Step::Rest => return n,
                step => self.obey(step),
            }
        }
        panic!("never at rest");
    }

    fn used(&self) -> i64 {
        self.pool.into_wire().used
    }
}

#[test]
fn a_machine_gets_its_addresses_and_then_rests() {
    let mut cluster = Cluster::new(&[1, 2]);
    assert!(cluster.settle() > 0);
    let config = cluster.config.as_ref().unwrap();
    assert!(has_address(config, "02:00:00:00:00:01") && has_address(config, "02:00:00:00:00:02"));
    assert_eq!(config.status.conditions[0].status, "True");
    assert_eq!((cluster.used(), cluster.settle()), (2, 0));
}

#[test]
fn an_interface_that_is_gone_gives_its_address_back_and_the_others_keep_theirs() {
    let mut cluster = Cluster::new(&[1, 2]);
    cluster.settle();
    let kept = cluster.pool.address_of("02:00:00:00:00:02");
    cluster.wanted = Some(vec![interface(2)]);
    cluster.settle();
    assert_eq!((cluster.used(), cluster.pool.address_of("02:00:00:00:00:02")), (1, kept));
    assert_eq!(cluster.config.as_ref().unwrap().status.network_configs.len(), 1);
}

#[test]
fn a_machine_that_is_gone_gives_all_back_but_not_while_a_guest_may_run() {
    let mut cluster = Cluster::new(&[1]);
    cluster.settle();
    cluster.wanted = None;
    cluster.may_run = true;
    assert_eq!(cluster.step(), Step::Rest);
    cluster.may_run = false;
    cluster.settle();
    assert_eq!((cluster.used(), cluster.config.is_none()), (0, true));
}

#[test]
fn what_belongs_to_somebody_else_is_neither_given_nor_taken() {
    let mut cluster = Cluster::new(&[1]);
    let mac = "02:00:00:00:00:01";
    cluster.pool.allocate(Nic { key: mac, requested: None, previous: None }).unwrap();
    cluster.taken = BTreeMap::from([(mac.to_owned(), "default/other".to_owned())]);
    cluster.settle();
    let config = cluster.config.clone().unwrap();
    assert!(!has_address(&config, mac));
    assert!(config.status.conditions[0].message.contains("belongs to default/other already"));
    cluster.wanted = None;
    cluster.settle();
    assert_eq!(cluster.used(), 1, "the other keeps it");
}

#[test]
fn a_pool_that_cannot_be_read_takes_nothing_away() {
    let mut cluster = Cluster::new(&[1]);
    cluster.settle();
    let (config, wanted) = (cluster.config.clone().unwrap(), cluster.wanted.clone().unwrap());
    let seen = Seen {
        wanted: Some(&wanted),
        config: Some(&config),
        is_own: true,
        may_run: true,
        pool: None,
        taken: &BTreeMap::new(),
        failure: None,
        now: "t",
    };
    assert_eq!(next_step(&seen), Step::Rest);
}

#[test]
fn only_interfaces_on_the_default_network_with_a_settled_address_want_one() {
    let vm: VirtualMachine = serde_json::from_value(json!({
        "metadata": {"name": "vm", "namespace": "web"},
        "spec": {"template": {"spec": {
            "domain": {"devices": {"interfaces": [
                {"name": "a", "bridge": {}, "macAddress": "02-00-00-00-00-0A"}, {"name": "b", "bridge": {}, "macAddress": "02:00:00:00:00:0b"},
                {"name": "c", "bridge": {}, "macAddress": "02:00:00:00:00:0c"}, {"name": "d", "bridge": {}}]}},
            "networks": [{"name": "a", "pod": {}}, {"name": "b", "multus": {"networkName": "lan"}},
                {"name": "c", "multus": {"networkName": "other/vlan"}}, {"name": "d", "pod": {}}]}}},
    }))
    .unwrap();
    let found = wanted(Some(&vm), None, "web", &|name| name == "web/lan");
    let found: Vec<(&str, &str)> =
        found.iter().map(|one| (one.network_name.as_str(), one.mac_address.as_str())).collect();
    assert_eq!(found, [(DEFAULT_NETWORK, "02:00:00:00:00:0a"), ("web/lan", "02:00:00:00:00:0b")]);
}
