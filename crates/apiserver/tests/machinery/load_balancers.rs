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
async fn a_cloud_provider_writes_the_address_with_the_rest_and_nothing_else_of_the_status() {
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
