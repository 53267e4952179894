//! What every cluster begins with, and what a later start leaves alone.

use std::sync::Arc;

use serde_json::json;
use sheaf_apiserver::identity::{AUTHENTICATED, User};
use sheaf_store::embedded;

use crate::{
    house::House,
    machine::{CLASSES, CLUSTER_NETWORKS, MACHINES, POOLS, SETTINGS, machine},
};

const VIP: &str = "/api/v1/namespaces/harvester-system/configmaps/vip";

#[tokio::test(start_paused = true)]
async fn what_harvesters_clients_look_for_is_there_from_the_start() {
    let house = House::new().await;
    assert_eq!(house.get(&format!("{SETTINGS}/server-version")).await.ok()["value"], "v1.8.1");
    let mgmt = house.get(&format!("{CLUSTER_NETWORKS}/mgmt")).await.ok();
    assert_eq!(mgmt["status"]["conditions"][0]["status"], "True");
    let class = house.get(&format!("{CLASSES}/harvester-longhorn")).await.ok();
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    assert_eq!(
        (&class["allowVolumeExpansion"], &class["volumeBindingMode"]),
        (&json!(true), &json!("Immediate"))
    );
    assert_eq!(house.get(VIP).await.ok()["data"]["ip"], "127.0.0.1");
    let kubevirt =
        house.get("/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt").await.ok();
    assert_eq!(kubevirt["status"]["phase"], "Deployed");
    let pool = house.get(&format!("{POOLS}/default")).await.ok();
    let config = &pool["spec"]["ipv4Config"];
    assert_eq!((&config["cidr"], &config["router"]), (&json!("10.52.0.0/16"), &json!("10.52.0.1")));
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for role in ["harvesterhci.io:cloudprovider", "harvesterhci.io:csi-driver", "kubevirt.io:edit"] {
        house.get(&format!("{roles}/{role}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_start_makes_what_is_missing_and_changes_nothing_else() {
    let store: Arc<dyn sheaf_store::Store> = Arc::new(embedded::in_memory().unwrap());
    let house = House::on(store.clone()).await;
    house.patch(VIP, "merge-patch", json!({"data": {"ip": "10.9.9.9"}})).await.ok();
    let grace = format!("{SETTINGS}/default-vm-termination-grace-period-seconds");
    house.patch(&grace, "merge-patch", json!({"value": "9"})).await.ok();
    house.delete(&format!("{POOLS}/default")).await.ok();

    let other = sheaf_resources::kinds::ip_pool::Cidr::parse("10.60.0.0/20").unwrap();
    let again = House::with_network(store.clone(), other).await;
    assert_eq!(again.get(VIP).await.ok()["data"]["ip"], "10.9.9.9");
    assert_eq!(again.get(&grace).await.ok()["value"], "9");
    let cidr = |pool: serde_json::Value| pool["spec"]["ipv4Config"]["cidr"].clone();
    assert_eq!(cidr(again.get(&format!("{POOLS}/default")).await.ok()), "10.60.0.0/20");
    // Settled is settled: machines have addresses of it.
    let third = House::on(store).await;
    assert_eq!(cidr(third.get(&format!("{POOLS}/default")).await.ok()), "10.60.0.0/20");
}

#[tokio::test(start_paused = true)]
async fn whoever_signed_in_reads_which_server_this_is_and_no_more() {
    let mut house = House::new().await;
    house.user = User { name: "jo".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    house.get(&format!("{SETTINGS}/server-version")).await.ok();
    house.get(&format!("{CLUSTER_NETWORKS}/mgmt")).await.ok();
    for path in [
        &format!("{SETTINGS}/overcommit-config"),
        SETTINGS,
        MACHINES,
        VIP,
        &format!("{POOLS}/default"),
        CLASSES,
    ] {
        assert_eq!(house.get(path).await.refusal(), (403, "Forbidden"), "{path}");
    }
    let write =
        house.patch(&format!("{SETTINGS}/server-version"), "merge-patch", json!({"value": "x"})).await;
    assert_eq!(write.refusal(), (403, "Forbidden"));
    assert_eq!(house.post(MACHINES, machine("vm")).await.refusal(), (403, "Forbidden"));
}
