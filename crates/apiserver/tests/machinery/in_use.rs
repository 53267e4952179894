//! What is in use stays.

use http::Method;
use serde_json::json;

use crate::{
    house::{Answer, House},
    machine::{
        CLAIMS, CLASSES, CLUSTER_NETWORKS, DEFINITIONS, IMAGES, MACHINES, POOLS, SETTINGS, VOLUMES, claim,
        definition, image, machine, on_network, with_claim,
    },
};

#[track_caller]
fn refused(answer: &Answer, words: &str) {
    assert_eq!(answer.refusal(), (422, "Invalid"), "{:#}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
}

#[tokio::test(start_paused = true)]
async fn a_claim_stays_while_a_machine_has_it_and_goes_with_the_machine() {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    house.post(MACHINES, with_claim(machine("vm"), "disk")).await.ok();
    let path = format!("{CLAIMS}/disk");
    let words = "can not delete the volume disk which is currently attached to VMs: default/vm";
    refused(&house.delete(&path).await, words);
    refused(&house.send(Method::DELETE, CLAIMS, &[], "").await, words);
    // The machine's finalizer keeps it for as long as it takes along what it should.
    house.delete(&format!("{MACHINES}/vm")).await.ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn nothing_holds_back_a_namespace_that_is_emptied() {
    let house = House::new().await;
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "room"}})).await.ok();
    let inside = |path: &str| path.replace("/default/", "/room/");
    house.post(&inside(CLAIMS), claim("disk")).await.ok();
    house.post(&inside(DEFINITIONS), definition("vlan7", "mgmt-br")).await.ok();
    let vm = on_network(with_claim(machine("vm"), "disk"), "vlan7");
    house.post(&inside(MACHINES), vm).await.ok();
    refused(&house.delete(&format!("{}/vlan7", inside(DEFINITIONS))).await, "room/vm");
    house.delete("/api/v1/namespaces/room").await.ok();
    house.delete(&format!("{}/disk", inside(CLAIMS))).await.ok();
    house.delete(&format!("{}/vlan7", inside(DEFINITIONS))).await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_image_stays_while_disks_are_made_of_it() {
    let house = House::new().await;
    let path = format!("{IMAGES}/image-1");
    let made = house.post(IMAGES, image("image-1", "debian")).await.ok();
    let status = json!({"status": {"storageClassName": "longhorn-image-1"}});
    house.patch(&path, "merge-patch", status).await.ok();
    let mut disk = claim("disk");
    disk["spec"]["storageClassName"] = json!("longhorn-image-1");
    house.post(CLAIMS, disk).await.ok();
    refused(
        &house.delete(&path).await,
        "Cannot delete image default/debian: being used by volume default/disk",
    );
    // The finalizer of the claim has nobody who takes it off here.
    let free = json!({"metadata": {"finalizers": null}});
    house.delete(&format!("{CLAIMS}/disk")).await.ok();
    house.patch(&format!("{CLAIMS}/disk"), "merge-patch", free).await.ok();

    let volume = json!({"metadata": {"name": "pvc-1"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "csi": {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1",
            "volumeAttributes": {"sheaf.io/imageUid": made["metadata"]["uid"]}}}});
    house.post(VOLUMES, volume).await.ok();
    refused(&house.delete(&path).await, "being used by volume pvc-1");
    house.delete(&format!("{VOLUMES}/pvc-1")).await.ok();
    house
        .patch(&format!("{VOLUMES}/pvc-1"), "merge-patch", json!({"metadata": {"finalizers": null}}))
        .await
        .ok();
    house.delete(&path).await.ok();
}

/// Terraform deletes an image the moment its last claim is gone, and does not ask twice.
#[tokio::test(start_paused = true)]
async fn an_image_need_not_wait_for_volumes_that_go_with_claims_that_are_gone() {
    let house = House::new().await;
    let path = format!("{IMAGES}/image-1");
    let made = house.post(IMAGES, image("image-1", "debian")).await.ok();
    let disk = house.post(CLAIMS, claim("restored")).await.ok();
    let volume = json!({"metadata": {"name": "pvc-1"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"namespace": "default", "name": "restored", "uid": disk["metadata"]["uid"]},
        "csi": {"driver": "driver.longhorn.io", "volumeHandle": "pvc-1",
            "volumeAttributes": {"sheaf.io/imageUid": made["metadata"]["uid"]}}}});
    house.post(VOLUMES, volume.clone()).await.ok();
    refused(&house.delete(&path).await, "being used by volume pvc-1");
    let mut kept = volume;
    kept["metadata"]["name"] = json!("pvc-2");
    kept["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    house.post(VOLUMES, kept).await.ok();

    let free = json!({"metadata": {"finalizers": null}});
    house.delete(&format!("{CLAIMS}/restored")).await.ok();
    house.patch(&format!("{CLAIMS}/restored"), "merge-patch", free).await.ok();
    refused(&house.delete(&path).await, "being used by volume pvc-2");
    house.delete(&format!("{VOLUMES}/pvc-2")).await.ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_class_stays_while_images_follow_it_and_the_reserved_one_always() {
    let house = House::new().await;
    let reserved = house.delete(&format!("{CLASSES}/harvester-longhorn")).await;
    assert_eq!(reserved.refusal(), (403, "Forbidden"));
    house.post(CLASSES, json!({"metadata": {"name": "fast"}, "provisioner": "p"})).await.ok();
    let mut followed = image("image-1", "debian");
    followed["metadata"]["annotations"] = json!({"harvesterhci.io/storageClassName": "fast"});
    house.post(IMAGES, followed).await.ok();
    let path = format!("{CLASSES}/fast");
    refused(
        &house.delete(&path).await,
        "storage class fast is used by virtual machine images: default/image-1",
    );
    house.delete(&format!("{IMAGES}/image-1")).await.ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_network_stays_while_machines_are_on_it_and_mgmt_always() {
    let house = House::new().await;
    let mgmt = house.delete(&format!("{CLUSTER_NETWORKS}/mgmt")).await;
    assert_eq!(mgmt.refusal(), (403, "Forbidden"));
    house.post(CLUSTER_NETWORKS, json!({"metadata": {"name": "other"}})).await.ok();
    house.post(DEFINITIONS, definition("vlan7", "other-br")).await.ok();
    house.post(MACHINES, on_network(machine("vm"), "default/vlan7")).await.ok();
    refused(&house.delete(&format!("{DEFINITIONS}/vlan7")).await, "it's used by VM(s) default/vm");
    refused(
        &house.delete(&format!("{CLUSTER_NETWORKS}/other")).await,
        "nads default/vlan7 are still attached",
    );
    house.delete(&format!("{MACHINES}/vm")).await.ok();
    house.delete(&format!("{DEFINITIONS}/vlan7")).await.ok();
    house.delete(&format!("{CLUSTER_NETWORKS}/other")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_pool_stays_while_its_addresses_are_lent() {
    let house = House::new().await;
    let path = format!("{POOLS}/default");
    let lend = |holder: &str| json!({"status": {"ipv4": {"allocated": {"10.52.0.1": "RESERVED", "10.52.0.9": holder}, "used": 1}}});
    house.patch(&path, "merge-patch", lend("02:00:00:00:00:01")).await.ok();
    refused(&house.delete(&path).await, "address 10.52.0.9 is used by 02:00:00:00:00:01");
    house.patch(&path, "merge-patch", lend("EXCLUDED")).await.ok();
    house.delete(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn settings_are_not_deleted() {
    let house = House::new().await;
    let path = format!("{SETTINGS}/server-version");
    assert_eq!(house.delete(&path).await.refusal(), (403, "Forbidden"));
    house.get(&path).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_claim_grows_under_a_machine_that_is_on_only_where_its_driver_can() {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    house.post(MACHINES, with_claim(machine("vm"), "disk")).await.ok();
    let path = format!("{CLAIMS}/disk");
    let setting = format!("{SETTINGS}/csi-online-expand-validation");
    let allow = |allowed: bool| json!({"value": json!({"driver.longhorn.io": allowed}).to_string()});
    // A claim grows once it is bound.
    house.patch(&format!("{path}/status"), "merge-patch", json!({"status": {"phase": "Bound"}})).await.ok();
    let grown = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    house.patch(&setting, "merge-patch", allow(false)).await.ok();
    let words = "pvc default/disk is not online expandable with its provider";
    refused(&house.patch(&path, "merge-patch", grown("20Gi")).await, words);
    house.patch(&setting, "merge-patch", allow(true)).await.ok();
    house.patch(&path, "merge-patch", grown("20Gi")).await.ok();
    house.patch(&setting, "merge-patch", allow(false)).await.ok();
    let off = json!({"status": {"printableStatus": "Stopped"}});
    house.patch(&format!("{MACHINES}/vm/status"), "merge-patch", off).await.ok();
    house.patch(&path, "merge-patch", grown("30Gi")).await.ok();
}
