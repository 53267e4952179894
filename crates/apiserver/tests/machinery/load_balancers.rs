//! Load balancers and their pools at the door: what is completed, refused and kept.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, NODES, User};

use crate::{
    house::House,
    machine::{INSTANCES, instance},
};

const BALANCERS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/default/loadbalancers";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
const MACHINE_POOLS: &str = "/apis/network.harvesterhci.io/v1alpha1/namespaces/harvester-system/ippools";
const FINALIZER: &str = "sheaf.io/load-balancer-address";
const ANNOTATION: &str = "loadbalancer.harvesterhci.io";

fn user(name: &str) -> User {
    User { name: name.into(), groups: vec![AUTHENTICATED.into()], ..User::default() }
}

fn node(name: &str) -> User {
    let groups = vec![NODES.into(), AUTHENTICATED.into()];
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

fn asked_as(house: &House, user: User) -> House {
    House { server: house.server.clone(), store: house.store.clone(), user }
}

/// Lets a user do what the cloud provider of a guest cluster may, or another role.
async fn bind(house: &House, name: &str, role: &str) {
    let binding = json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}]});
    house.post(ROLES, binding).await.ok();
}

fn for_cluster(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"workloadType": "cluster", "ipam": "pool"}})
}

fn pool(name: &str, subnet: &str, scope: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"ranges": [{"subnet": subnet}], "selector": {"scope": scope}}})
}

#[tokio::test(start_paused = true)]
async fn trap_7_a_cloud_provider_writes_the_address_with_the_rest_and_nothing_else_of_the_status() {
    let house = House::new().await;
    bind(&house, "ccm", "harvesterhci.io:cloudprovider").await;
    let ccm = asked_as(&house, user("ccm"));
    let path = format!("{BALANCERS}/lb");
    let mut made = for_cluster("lb");
    made["status"] = json!({"allocatedAddress": {"ip": "192.0.2.9"}, "nodeName": "n1"});
    let made = ccm.post(BALANCERS, made).await.ok();
    assert_eq!(made["status"], Value::Null, "nobody gives themselves an address");
    let given = json!({"status": {"allocatedAddress": {"ip": "192.0.2.5", "ipPool": "p"}, "nodeName": ""}});
    house.patch(&path, "merge-patch", given).await.ok();
    let mut read = ccm.get(&path).await.ok();
    read["status"]["address"] = json!("192.0.2.5");
    read["status"]["allocatedAddress"] = json!({"ip": "192.0.2.77"});
    let written = ccm.put(&path, read).await.ok();
    assert_eq!(written["status"]["address"], "192.0.2.5", "it sticks");
    assert_eq!(written["status"]["allocatedAddress"]["ip"], "192.0.2.5");
}

#[tokio::test(start_paused = true)]
async fn the_address_of_one_for_machines_is_its_nodes_to_say() {
    let house = House::new().await;
    bind(&house, "jane", "harvesterhci.io:edit").await;
    let jane = asked_as(&house, user("jane"));
    let listeners = json!([{"name": "a", "port": 80, "protocol": "TCP", "backendPort": 80}]);
    let mut made = json!({"metadata": {"name": "lb"}, "spec": {"listeners": listeners,
        "healthCheck": {"port": 80}}});
    let path = format!("{BALANCERS}/lb");
    let made_of_it = jane.post(BALANCERS, made.clone()).await.ok();
    assert_eq!(made_of_it["spec"]["healthCheck"]["failureThreshold"], 2);
    house.patch(&path, "merge-patch", json!({"status": {"nodeName": "n1"}})).await.ok();
    made["status"] = json!({"address": "192.0.2.1", "nodeName": "n2", "backendServers": ["127.0.0.1"]});
    let written = jane.put(&path, made).await.ok();
    assert_eq!(written["status"], json!({"nodeName": "n1"}));

    let (n1, n2) = (asked_as(&house, node("n1")), asked_as(&house, node("n2")));
    assert_eq!(n2.get(&path).await.code, 403);
    assert_eq!(n2.patch(&path, "merge-patch", json!({"status": {"address": "192.0.2.9"}})).await.code, 403);
    n1.get(&path).await.ok();
    n1.get(&format!("{BALANCERS}?fieldSelector=status.nodeName%3Dn1")).await.ok();
    assert_eq!(n1.get(BALANCERS).await.code, 403, "a node sees its own");
    let said = n1.patch(&path, "merge-patch", json!({"status": {"address": "192.0.2.9"}})).await.ok();
    assert_eq!(said["status"]["address"], "192.0.2.9");
    let away = json!({"status": {"nodeName": "n2"}});
    assert_eq!(n1.patch(&path, "merge-patch", away).await.code, 403, "nor does it give it away");
    let more = json!({"spec": {"description": "mine"}});
    assert_eq!(n1.patch(&path, "merge-patch", more).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn who_asks_is_said_by_where_it_is() {
    let house = House::new().await;
    let project = json!({"metadata": {"annotations": {"field.cattle.io/projectId": "c-1:p-1"}}});
    house.patch("/api/v1/namespaces/default", "merge-patch", project).await.ok();
    let mut machine = instance("guest-pool1-abc");
    machine["metadata"]["labels"] = json!({"harvesterhci.io/creator": "docker-machine-driver-harvester"});
    machine["spec"]["networks"] = json!([{"name": "nic", "multus": {"networkName": "default/vlan1"}}]);
    machine["spec"]["domain"]["devices"]["interfaces"] = json!([{"name": "nic", "bridge": {}}]);
    house.post(INSTANCES, machine).await.ok();
    let mut asked = for_cluster("lb");
    asked["metadata"]["annotations"] =
        json!({format!("{ANNOTATION}/cluster"): "guest", format!("{ANNOTATION}/namespace"): "bank"});
    let made = house.post(BALANCERS, asked).await.ok();
    let said = |what: &str| made["metadata"]["annotations"][format!("{ANNOTATION}/{what}")].clone();
    assert_eq!(
        (said("namespace"), said("project"), said("network")),
        (json!("default"), json!("c-1/p-1"), json!("default/vlan1"))
    );
}

#[tokio::test(start_paused = true)]
async fn pools_share_no_address_with_each_other_nor_with_machines() {
    let house = House::new().await;
    let web = json!([{"namespace": "web"}]);
    let made = house.post(POOLS, pool("one", "192.0.2.0/24", web.clone())).await.ok();
    assert_eq!(made["metadata"]["labels"]["loadbalancer.harvesterhci.io/global-ip-pool"], "false");
    for (other, words) in [
        (pool("two", "192.0.2.128/25", json!([])), "overlaps with other pools: one"),
        (pool("two", "198.51.100.0/24", web), "scope selector is same as the pool one"),
        (
            pool("two", "10.52.3.0/24", json!([])),
            "machines on network harvester-system/default may get addresses",
        ),
    ] {
        let refused = house.post(POOLS, other).await;
        assert!(refused.code >= 400 && refused.message().contains(words), "{words}: {:#}", refused.body);
    }
    let bad = house.post(POOLS, pool("two", "192.0.2.0", json!([]))).await;
    assert!(bad.message().contains("invalid subnet"), "{}", bad.message());
    // It may say again what it said, and more.
    let path = format!("{POOLS}/one");
    let wider = json!({"spec": {"ranges": [{"subnet": "192.0.2.0/23"}]}});
    house.patch(&path, "merge-patch", wider).await.ok();
    house.patch(&path, "merge-patch", json!({"status": {"allocated": {"192.0.2.9": "d/lb"}}})).await.ok();
    let smaller = json!({"spec": {"ranges": [{"subnet": "192.0.3.0/24"}]}});
    let refused = house.patch(&path, "merge-patch", smaller).await;
    assert!(refused.message().contains("allocated IP 192.0.2.9 is excluded"), "{}", refused.message());
    let refused = house.delete(&path).await;
    assert!(refused.message().contains("can't delete pool before releasing"), "{}", refused.message());
    house.patch(&path, "merge-patch", json!({"status": null})).await.ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn nobody_but_who_administers_addresses_takes_one_away_from_the_node_that_holds_it() {
    let house = House::new().await;
    bind(&house, "jane", "harvesterhci.io:edit").await;
    let jane = asked_as(&house, user("jane"));
    let listeners = json!([{"name": "a", "port": 80, "protocol": "TCP", "backendPort": 80}]);
    let made = json!({"metadata": {"name": "lb"}, "spec": {"workloadType": "vm", "listeners": listeners}});
    let path = format!("{BALANCERS}/lb");
    jane.post(BALANCERS, made.clone()).await.ok();
    let held = json!({"metadata": {"finalizers": [FINALIZER]},
        "status": {"nodeName": "n1", "address": "192.0.2.5", "allocatedAddress": {"ip": "192.0.2.5"}}});
    house.patch(&path, "merge-patch", held).await.ok();
    // Who writes the whole of it leaves it as it is.
    let written = jane.put(&path, made).await.ok();
    assert_eq!(written["metadata"]["finalizers"], json!([FINALIZER]));
    let none = json!({"metadata": {"finalizers": null}});
    for _ in 0..2 {
        let refused = jane.patch(&path, "merge-patch", none.clone()).await;
        assert_eq!(refused.code, 403, "{:#}", refused.body);
        assert!(refused.message().contains("goes by itself"), "{}", refused.message());
        // And the same while it goes.
        jane.delete(&path).await.ok();
    }
    let mut going = jane.get(&path).await.ok();
    going["metadata"]["finalizers"] = json!([]);
    assert_eq!(jane.put(&path, going.clone()).await.code, 403);
    // Nor is it made one whose address is its owner's to say.
    let other = json!({"spec": {"workloadType": "cluster"}, "status": {"address": null}});
    let refused = jane.patch(&path, "merge-patch", other).await;
    assert!(refused.message().contains("can't change the workloadType"), "{}", refused.message());
    let silent = jane.patch(&path, "merge-patch", json!({"status": {"address": null}})).await.ok();
    assert_eq!(silent["status"]["address"], "192.0.2.5");

    let role = json!({"metadata": {"name": "addresses"}, "rules": [
        {"apiGroups": ["loadbalancer.harvesterhci.io"], "resources": ["ippools"], "verbs": ["update"]}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    let binding = json!({"metadata": {"name": "addresses"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "addresses"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.ok();
    jane.patch(&path, "merge-patch", none).await.ok();
    assert_eq!(jane.get(&path).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn machines_get_no_address_that_a_pool_of_balancers_gives() {
    let house = House::new().await;
    let pools = house.get(MACHINE_POOLS).await.ok();
    let default = pools["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("{MACHINE_POOLS}/{default}");
    let exclude = |addresses: &[&str]| json!({"spec": {"ipv4Config": {"pool": {"exclude": addresses}}}});
    let mut one = pool("one", "10.52.0.0/16", json!([]));
    one["spec"]["ranges"][0]["rangeStart"] = json!("10.52.200.10");
    one["spec"]["ranges"][0]["rangeEnd"] = json!("10.52.200.10");
    assert!(house.post(POOLS, one.clone()).await.message().contains("exclude those there first"));
    house.patch(&path, "merge-patch", exclude(&["10.52.200.10"])).await.ok();
    house.post(POOLS, one).await.ok();
    // What is excluded for balancers stays excluded, while they may have it.
    for less in [exclude(&[]), exclude(&["10.52.200.11"])] {
        let refused = house.patch(&path, "merge-patch", less).await;
        assert_eq!(refused.code, 403, "{:#}", refused.body);
        assert!(
            refused.message().contains("10.52.200.10 to 10.52.200.10 of IPPool one"),
            "{}",
            refused.message()
        );
    }
    house.patch(&path, "merge-patch", exclude(&["10.52.200.10", "10.52.200.11"])).await.ok();
    house.delete(&format!("{POOLS}/one")).await.ok();
    house.patch(&path, "merge-patch", exclude(&[])).await.ok();
}
