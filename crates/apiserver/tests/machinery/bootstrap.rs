//! What every cluster begins with, and what a later start leaves alone.

use std::sync::Arc;

use serde_json::json;
use sheaf_apiserver::{
    cache::Resource,
    identity::{AUTHENTICATED, User},
};
use sheaf_store::{Store, Transaction, Write, embedded};

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

/// Takes an object out of the store, as if it had never been made.
async fn unmake(store: &Arc<dyn Store>, group: &str, plural: &str, place: &str) {
    let key = Resource::new(group, plural).store_key(place);
    let transaction = Transaction { expect: Vec::new(), writes: vec![Write::Delete { key }] };
    store.commit(transaction).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_template_whose_making_was_interrupted_gets_its_version_at_the_next_start() {
    let store: Arc<dyn Store> = Arc::new(embedded::in_memory().unwrap());
    let house = House::on(store.clone()).await;
    let versions = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-public/virtualmachinetemplateversions";
    let own = format!("{versions}/raw-image-base-version");
    house.get(&own).await.ok();
    let place = "harvester-public/raw-image-base-version";
    unmake(&store, "harvesterhci.io", "virtualmachinetemplateversions", place).await;
    let again = House::on(store.clone()).await;
    again.get(&own).await.ok();
    let count = again.get(versions).await.ok()["items"].as_array().unwrap().len();
    let third = House::on(store).await;
    assert_eq!(third.get(versions).await.ok()["items"].as_array().unwrap().len(), count, "once is enough");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_on_its_way_out_does_not_keep_a_server_from_starting() {
    let store: Arc<dyn Store> = Arc::new(embedded::in_memory().unwrap());
    let house = House::on(store.clone()).await;
    // As an older release left it, which let it be deleted.
    let key = Resource::new("", "namespaces").store_key("/cattle-monitoring-system");
    let entry = store.get(&key).await.unwrap().unwrap();
    let text = String::from_utf8(entry.value.to_vec()).unwrap().replace("\"Active\"", "\"Terminating\"");
    assert!(text.contains("Terminating"), "{text}");
    let writes = vec![Write::Put { key, value: text.into() }];
    store.commit(Transaction { expect: Vec::new(), writes }).await.unwrap();
    let addons = "/apis/harvesterhci.io/v1beta1/namespaces/cattle-monitoring-system/addons";
    let addon = house.get(addons).await.ok()["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    unmake(&store, "harvesterhci.io", "addons", &format!("cattle-monitoring-system/{addon}")).await;
    let again = House::on(store).await;
    assert_eq!(again.get(&format!("{addons}/{addon}")).await.code, 404, "there is nowhere to make it");
    again.get(&format!("{SETTINGS}/server-version")).await.ok();
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
