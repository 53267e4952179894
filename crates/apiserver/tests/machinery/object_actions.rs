//! What is done through the facade with claims, snapshots, keys, nodes, namespaces and templates: offered to whom, and when,
//! and what each comes to.

use http::Method;
use serde_json::{Value, json};

use crate::{
    facade::{allow, as_viewer, ids, jo},
    house::House,
    machine::{CLAIMS, IMAGES, MACHINES, claim, machine},
};

const CLAIM: &str = "/v1/harvester/persistentvolumeclaims/default/disk";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
const SNAPSHOT: &str = "/v1/harvester/snapshot.storage.k8s.io.volumesnapshots/default/s1";
const KEYS: &str = "/v1/harvester/harvesterhci.io.keypairs";
const QUOTA: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/resourcequotas/default-resource-quota";

/// A claim that is bound, as its controller would leave it.
async fn house() -> House {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    house.patch(&format!("{CLAIMS}/disk/status"), "merge-patch", bound).await.ok();
    house
}

async fn offered(house: &House, of: &str) -> Vec<String> {
    house.get(of).await.ok()["actions"].as_object().unwrap().keys().cloned().collect()
}

async fn act(house: &House, of: &str, action: &str, body: Value) {
    let done = house.post(&format!("{of}?action={action}"), body).await;
    assert_eq!((done.code, &done.body), (204, &json!("")), "{action}");
}

/// What is done with a namespace is answered with an object, as in the original.
async fn limit_of(house: &House, of: &str, action: &str, body: Value) {
    let done = house.post(&format!("{of}?action={action}"), body).await;
    assert_eq!((done.code, &done.body), (200, &json!({})), "{action}");
}

async fn refused(house: &House, of: &str, action: &str, body: Value) -> (u16, String) {
    let refused = house.post(&format!("{of}?action={action}"), body).await;
    let sentence = refused.body.as_str().unwrap_or_else(|| panic!("no plain text: {:#}", refused.body));
    (refused.code, sentence.to_owned())
}

#[tokio::test]
async fn a_volume_is_exported_cloned_and_snapshotted_once_it_is_bound() {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    assert_eq!(offered(&house, CLAIM).await, [""; 0]);
    assert_eq!(refused(&house, CLAIM, "clone", json!({"name": "copy"})).await.0, 422);
    assert_eq!(house.get(&format!("{CLAIMS}/copy")).await.code, 404, "a refusal changes nothing");

    let house = self::house().await;
    assert_eq!(offered(&house, CLAIM).await, ["clone", "export", "snapshot"]);

    act(&house, CLAIM, "clone", json!({"name": "copy"})).await;
    let copy = house.get(&format!("{CLAIMS}/copy")).await.ok();
    assert_eq!(copy["spec"]["dataSource"]["name"], "disk");
    assert_eq!(copy["spec"]["resources"]["requests"]["storage"], "1Gi");
    assert_eq!(refused(&house, CLAIM, "clone", json!({"name": "copy"})).await.0, 409);
    assert_eq!(refused(&house, CLAIM, "clone", json!({})).await.0, 422);

    act(&house, CLAIM, "snapshot", json!({"name": "s1"})).await;
    let snapshot = house.get(&format!("{SNAPSHOTS}/s1")).await.ok();
    assert_eq!(snapshot["spec"]["source"]["persistentVolumeClaimName"], "disk");
    assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "longhorn-snapshot");
    assert_eq!(snapshot["metadata"]["ownerReferences"][0]["kind"], "PersistentVolumeClaim");
    assert_eq!(snapshot["metadata"]["annotations"]["harvesterhci.io/storageClassName"], "harvester-longhorn");

    let wish =
        json!({"displayName": "golden", "namespace": "default", "storageClassName": "harvester-longhorn"});
    let made = house.post(&format!("{CLAIM}?action=export"), wish).await;
    assert_eq!(made.code, 200, "{:#}", made.body);
    let name = made.body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("image-"), "{name}");
    let image = house.get(&format!("{IMAGES}/{name}")).await.ok();
    assert_eq!(image["spec"]["sourceType"], "export-from-volume");
    assert_eq!(image["spec"]["pvcName"], "disk");
}

#[tokio::test]
async fn a_claim_is_made_of_a_snapshot_that_is_ready() {
    let house = house().await;
    act(&house, CLAIM, "snapshot", json!({"name": "s1"})).await;
    assert_eq!(offered(&house, SNAPSHOT).await, [""; 0]);
    assert_eq!(refused(&house, SNAPSHOT, "restore", json!({"name": "back"})).await.0, 422);
    let ready = json!({"status": {"readyToUse": true, "restoreSize": "1Gi"}});
    house.patch(&format!("{SNAPSHOTS}/s1/status"), "merge-patch", ready).await.ok();
    assert_eq!(offered(&house, SNAPSHOT).await, ["restore"]);
    let (code, why) =
        refused(&house, SNAPSHOT, "restore", json!({"name": "b", "storageClassName": "no"})).await;
    assert_eq!(code, 404, "{why}");
    act(&house, SNAPSHOT, "restore", json!({"name": "back"})).await;
    let back = house.get(&format!("{CLAIMS}/back")).await.ok();
    assert_eq!(back["spec"]["dataSource"]["kind"], "VolumeSnapshot");
    assert_eq!(back["spec"]["storageClassName"], "harvester-longhorn");
    assert_eq!(back["spec"]["resources"]["requests"]["storage"], "1Gi");
}

#[tokio::test]
async fn who_only_looks_is_offered_nothing_and_can_do_nothing() {
    let mut house = house().await;
    act(&house, CLAIM, "snapshot", json!({"name": "s1"})).await;
    let ready = json!({"status": {"readyToUse": true, "restoreSize": "1Gi"}});
    house.patch(&format!("{SNAPSHOTS}/s1/status"), "merge-patch", ready).await.ok();
    as_viewer(&mut house, "default").await;
    for (of, action) in [(CLAIM, "clone"), (CLAIM, "export"), (CLAIM, "snapshot"), (SNAPSHOT, "restore")] {
        assert_eq!(offered(&house, of).await, [""; 0], "{of}");
        let wish = json!({"name": "x", "displayName": "x", "namespace": "default",
            "storageClassName": "harvester-longhorn"});
        assert_eq!(refused(&house, of, action, wish).await.0, 403, "{action}");
    }
    let listed = house.get(&format!("{KEYS}/default")).await.ok();
    assert_eq!(listed["actions"], json!({}));
    let (code, _) = refused(&house, KEYS, "keygen", json!({"name": "k", "namespace": "default"})).await;
    assert_eq!(code, 403);
}

#[tokio::test]
async fn a_drawn_key_is_handed_out_once_and_its_public_half_kept() {
    let house = House::new().await;
    let listed = house.get(KEYS).await.ok();
    assert_eq!(listed["actions"]["keygen"], format!("https://127.0.0.1:6443{KEYS}?action=keygen"));
    let drawn =
        house.post(&format!("{KEYS}?action=keygen"), json!({"name": "k", "namespace": "default"})).await;
    assert_eq!(drawn.code, 200);
    let private = drawn.body.as_str().unwrap();
    assert!(private.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"), "{private}");
    let kept = house.get(&format!("{KEYS}/default/k")).await.ok();
    assert!(kept["spec"]["publicKey"].as_str().unwrap().starts_with("ecdsa-sha2-nistp256 "));
    assert_eq!(kept["status"]["conditions"][0]["type"], "validated");
    assert!(!kept.to_string().contains("PRIVATE"));
    // One that is made is not changed.
    let links: Vec<&str> = kept["links"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(links, ["remove", "self", "view"]);
    let again = refused(&house, KEYS, "keygen", json!({"name": "k", "namespace": "default"})).await;
    assert_eq!(again.0, 409);
    for wrong in [
        json!({"name": "k"}),
        json!({"namespace": "default"}),
        json!({"name": "a\"b", "namespace": "default"}),
    ] {
        assert_eq!(refused(&house, KEYS, "keygen", wrong).await.0, 422);
    }
}

#[tokio::test]
async fn a_node_is_cordoned_and_uncordoned_and_says_why_it_is_not_emptied() {
    let house = House::new().await;
    house.join_node().await;
    let node = "/v1/harvester/nodes/n1";
    let asked = ["listUnhealthyVM", "maintenancePossible", "powerActionPossible"];
    assert_eq!(offered(&house, node).await, [&["cordon"], asked.as_slice()].concat());
    act(&house, node, "cordon", json!({})).await;
    assert_eq!(house.get("/api/v1/nodes/n1").await.ok()["spec"]["unschedulable"], true);
    assert_eq!(offered(&house, node).await, [asked.as_slice(), &["uncordon"]].concat());
    assert_eq!(house.get(node).await.ok()["metadata"]["state"]["name"], "cordoned");
    act(&house, node, "uncordon", json!({})).await;
    assert_ne!(house.get("/api/v1/nodes/n1").await.ok()["spec"]["unschedulable"], true);
    assert_ne!(house.get(node).await.ok()["metadata"]["state"]["name"], "cordoned");
    let (code, why) = refused(&house, node, "maintenancePossible", json!({})).await;
    assert_eq!(code, 403);
    assert!(why.contains("cannot be moved"), "{why}");
    assert_eq!(refused(&house, node, "powerActionPossible", json!({})).await.0, 424, "as without a seeder");
    let listed = house.post(&format!("{node}?action=listUnhealthyVM"), json!({})).await;
    assert_eq!((listed.code, &listed.body), (200, &json!([])));
}

#[tokio::test]
async fn the_snapshots_of_a_namespace_are_limited_by_those_who_may_limit_them() {
    let mut house = House::new().await;
    let namespace = "/v1/harvester/namespaces/default";
    limit_of(&house, namespace, "deleteResourceQuota", json!({})).await;
    assert_eq!(house.get(QUOTA).await.code, 404, "there was nothing to take away");
    limit_of(&house, namespace, "updateResourceQuota", json!({"totalSnapshotSizeQuota": "10Gi"})).await;
    let limit = |quota: &Value| quota["spec"]["snapshotLimit"]["namespaceTotalSnapshotSizeQuota"].clone();
    assert_eq!(limit(&house.get(QUOTA).await.ok()), 10_i64 << 30);
    limit_of(&house, namespace, "updateResourceQuota", json!({"totalSnapshotSizeQuota": "20Gi"})).await;
    assert_eq!(limit(&house.get(QUOTA).await.ok()), 20_i64 << 30);
    for wrong in
        [json!({}), json!({"totalSnapshotSizeQuota": "much"}), json!({"totalSnapshotSizeQuota": "-1"})]
    {
        assert_eq!(refused(&house, namespace, "updateResourceQuota", wrong).await.0, 422);
    }
    assert_eq!(limit(&house.get(QUOTA).await.ok()), 20_i64 << 30, "a refusal changes nothing");

    allow(
        &house,
        "default",
        "quotas",
        json!([{"apiGroups": ["harvesterhci.io"], "resources": ["resourcequotas"],
        "verbs": ["get", "update", "patch", "create"]}, {"apiGroups": [""], "resources": ["namespaces"],
        "verbs": ["get"]}]),
    )
    .await;
    house.user = jo();
    let mut both = offered(&house, namespace).await;
    both.sort();
    assert_eq!(both, ["deleteResourceQuota", "updateResourceQuota"], "in their own namespace");
    limit_of(&house, namespace, "deleteResourceQuota", json!({})).await;
    let elsewhere = "/v1/harvester/namespaces/kube-system";
    let body = json!({"totalSnapshotSizeQuota": "1Gi"});
    assert_eq!(refused(&house, elsewhere, "updateResourceQuota", body).await.0, 403);
}

#[tokio::test]
async fn the_snapshots_of_one_machine_are_limited_beside_those_of_others() {
    let house = House::new().await;
    house.post(MACHINES, machine("m")).await.ok();
    house.post(MACHINES, machine("n")).await.ok();
    let of = |name: &str| format!("/v1/harvester/kubevirt.io.virtualmachines/default/{name}");
    act(&house, &of("m"), "updateResourceQuota", json!({"totalSnapshotSizeQuota": "1Gi"})).await;
    act(&house, &of("n"), "updateResourceQuota", json!({"totalSnapshotSizeQuota": "2Gi"})).await;
    let limits = |quota: &Value| quota["spec"]["snapshotLimit"]["vmTotalSnapshotSizeQuota"].clone();
    assert_eq!(limits(&house.get(QUOTA).await.ok()), json!({"m": 1_i64 << 30, "n": 2_i64 << 30}));
    act(&house, &of("m"), "deleteResourceQuota", json!({})).await;
    assert_eq!(limits(&house.get(QUOTA).await.ok()), json!({"n": 2_i64 << 30}));
}

#[tokio::test]
async fn a_template_leads_to_its_versions_and_to_no_others() {
    let house = House::new().await;
    let templates = "/v1/harvester/harvesterhci.io.virtualmachinetemplates/harvester-public";
    let listed = house.get(templates).await.ok();
    let first = &listed["data"][0];
    let link = first["links"]["versions"].as_str().unwrap();
    let path = link.strip_prefix("https://127.0.0.1:6443").unwrap();
    let versions = house.get(path).await.ok();
    assert_eq!(versions["type"], "collection");
    assert_eq!(versions["resourceType"], "harvesterhci.io.virtualmachinetemplateversion");
    let found = ids(&versions);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(versions["data"][0]["spec"]["templateId"], first["id"]);
    let links = versions["data"][0]["links"].as_object().unwrap();
    assert!(!links.contains_key("update"), "a version is not changed");
}

#[tokio::test]
async fn the_cluster_says_what_it_has_to_those_who_may_see_its_nodes() {
    let mut house = House::new().await;
    house.join_node().await;
    let has = json!({"status": {"allocatable": {"cpu": "2", "memory": "4Gi"}}});
    house.patch("/api/v1/nodes/n1/status", "merge-patch", has).await.ok();
    let local = "/v1/harvester/clusters/local";
    assert_eq!(house.get(&format!("{local}?link=machineTypes")).await.ok(), json!(["q35"]));
    assert_eq!(
        house.get(&format!("{local}?link=deviceCapacity")).await.ok(),
        json!({"cpu": "2", "memory": "4Gi"})
    );
    assert_eq!(house.get(local).await.ok()["id"], "local");
    assert_eq!(house.get(&format!("{local}/another")).await.code, 404);
    assert_eq!(house.send(Method::PUT, local, &[], "{}").await.code, 405);
    assert_eq!(house.get("/v1/harvester/ui-info").await.ok()["ui-source"], "bundled");
    house.user = jo();
    assert_eq!(house.get(&format!("{local}?link=deviceCapacity")).await.code, 403);
}
