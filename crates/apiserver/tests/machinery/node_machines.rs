//! What a node may do with machines, their Secrets, volumes and images, asked through the door as the node.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, MASTERS, NODES, User};

use crate::{
    house::{Answer, House},
    machine::{
        CLAIMS, CLASSES, CLUSTER_NETWORKS, DEFINITIONS, IMAGES, INSTANCES, MACHINES, POOLS, SETTINGS,
        VOLUMES, image, instance,
    },
};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const EVERY_INSTANCE: &str = "/apis/kubevirt.io/v1/virtualmachineinstances";
const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";
const CONFIGS: &str = "/apis/network.harvesterhci.io/v1alpha1/virtualmachinenetworkconfigs";

fn node(name: &str) -> User {
    let groups = vec![NODES.into(), AUTHENTICATED.into()];
    User { name: format!("system:node:{name}"), groups, ..User::default() }
}

fn root() -> User {
    User { name: "root".into(), groups: vec![MASTERS.into()], ..User::default() }
}

/// An instance on a node, with user data, network data, keys and passwords from Secrets of its own.
fn placed(name: &str, node: &str) -> Value {
    let mut vmi = instance(name);
    let secret = |of: &str| format!("{name}-{of}");
    vmi["metadata"]["finalizers"] =
        json!(["foregroundDeleteVirtualMachine", "kubevirt.io/virtualMachineControllerFinalize"]);
    vmi["spec"]["domain"]["devices"]["disks"] = json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
    vmi["spec"]["volumes"] = json!([{"name": "seed", "cloudInitNoCloud": {
        "secretRef": {"name": secret("user")}, "networkDataSecretRef": {"name": secret("network")}}}]);
    vmi["spec"]["accessCredentials"] = json!([
        {"sshPublicKey": {"source": {"secret": {"secretName": secret("keys")}},
            "propagationMethod": {"noCloud": {}}}},
        {"userPassword": {"source": {"secret": {"secretName": secret("passwords")}},
            "propagationMethod": {"qemuGuestAgent": {}}}},
    ]);
    vmi["status"] = json!({"nodeName": node, "phase": "Scheduled"});
    vmi
}

fn volume(name: &str, node: &str) -> Value {
    json!({"metadata": {"name": name, "finalizers": ["sheaf.io/volume-data", "kubernetes.io/pv-protection"]}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "csi": {"driver": "driver.longhorn.io", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}]}}}})
}

fn content(name: &str, node: &str) -> Value {
    let finalizers = json!([
        "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection",
        "sheaf.io/snapshot-data"
    ]);
    json!({"metadata": {"name": name, "annotations": {"sheaf.io/node": node}, "finalizers": finalizers}, "spec": {
        "driver": "driver.longhorn.io", "deletionPolicy": "Delete", "source": {"volumeHandle": name},
        "volumeSnapshotRef": {"namespace": "default", "name": name}}})
}

/// Two nodes, each with a machine, a volume, an image and a snapshot; asked as node `n1` from now on.
async fn house() -> House {
    let mut house = House::new().await;
    for (name, node) in [("mine", "n1"), ("theirs", "n2")] {
        house.post(INSTANCES, placed(name, node)).await.ok();
        for of in ["user", "network", "keys", "passwords", "unrelated"] {
            let secret = json!({"metadata": {"name": format!("{name}-{of}")}, "stringData": {"a": "b"}});
            house.post(SECRETS, secret).await.ok();
        }
        house.post(VOLUMES, volume(name, node)).await.ok();
        house.post(CONTENTS, content(name, node)).await.ok();
        let mut kept = image(name, name);
        kept["metadata"]["annotations"] = json!({"sheaf.io/node": node});
        kept["metadata"]["finalizers"] = json!(["sheaf.io/image-data"]);
        house.post(IMAGES, kept).await.ok();
    }
    house.user = node("n1");
    house
}

#[track_caller]
fn forbidden(answer: &Answer) {
    assert_eq!(answer.refusal(), (403, "Forbidden"), "{:#}", answer.body);
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_the_machines_that_are_bound_to_it() {
    let house = house().await;
    for all in [INSTANCES, EVERY_INSTANCE] {
        let own = house.get(&format!("{all}?fieldSelector=status.nodeName%3Dn1")).await.ok();
        let names: Vec<&Value> =
            own["items"].as_array().unwrap().iter().map(|i| &i["metadata"]["name"]).collect();
        assert_eq!(names, ["mine"]);
        forbidden(&house.get(all).await);
        forbidden(&house.get(&format!("{all}?fieldSelector=status.nodeName%3Dn2")).await);
        forbidden(&house.get(&format!("{all}?fieldSelector=status.nodeName!%3Dn2")).await);
        forbidden(&house.get(&format!("{all}?watch=true&fieldSelector=status.phase%3DScheduled")).await);
    }
    let mut watch =
        house.watch(&format!("{EVERY_INSTANCE}?watch=true&fieldSelector=status.nodeName%3Dn1")).await;
    assert_eq!(watch.told().await, "ADDED mine");
    house.get(&format!("{INSTANCES}/mine")).await.ok();
    forbidden(&house.get(&format!("{INSTANCES}/theirs")).await);
    forbidden(&house.get(&format!("{INSTANCES}/nobodys")).await);
    forbidden(&house.get(MACHINES).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_says_how_its_machines_stand_and_nothing_else_of_them() {
    let house = house().await;
    let mine = format!("{INSTANCES}/mine");
    let running = json!({"status": {"phase": "Running"}});
    house.patch(&mine, "merge-patch", running.clone()).await.ok();
    let mut whole = house.get(&mine).await.ok();
    whole["status"]["guestOSInfo"] = json!({"name": "Debian"});
    house.put(&mine, whole).await.ok();
    for change in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "u"}]}}),
        json!({"metadata": {"finalizers": ["foregroundDeleteVirtualMachine"]}}),
        json!({"metadata": {"finalizers": ["a.example/more", "foregroundDeleteVirtualMachine",
            "kubevirt.io/virtualMachineControllerFinalize"]}}),
        json!({"spec": {"terminationGracePeriodSeconds": 0}}),
        json!({"status": {"nodeName": "n2"}}),
        json!({"status": {"nodeName": null}}),
    ] {
        forbidden(&house.patch(&mine, "merge-patch", change).await);
    }
    let released = json!({"metadata": {"finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]}});
    house.patch(&mine, "merge-patch", released).await.ok();

    let theirs = format!("{INSTANCES}/theirs");
    forbidden(&house.patch(&theirs, "merge-patch", running).await);
    // A patch that changes nothing would still show it; one that takes it would steal it.
    forbidden(&house.patch(&theirs, "merge-patch", json!({})).await);
    forbidden(&house.patch(&theirs, "merge-patch", json!({"status": {"nodeName": "n1"}})).await);
    forbidden(&house.post(INSTANCES, placed("new", "n1")).await);
    forbidden(&house.delete(&mine).await);
    forbidden(&house.delete(INSTANCES).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_the_secrets_its_machines_refer_to_and_no_others() {
    let mut house = house().await;
    for of in ["user", "network", "keys", "passwords"] {
        house.get(&format!("{SECRETS}/mine-{of}")).await.ok();
        forbidden(&house.get(&format!("{SECRETS}/theirs-{of}")).await);
    }
    forbidden(&house.get(&format!("{SECRETS}/mine-unrelated")).await);
    forbidden(&house.get("/api/v1/namespaces/harvester-public/secrets/mine-user").await);
    forbidden(&house.get(SECRETS).await);
    forbidden(&house.get(&format!("{SECRETS}?fieldSelector=metadata.name%3Dmine-user")).await);
    forbidden(&house.get(&format!("{SECRETS}?watch=true&fieldSelector=metadata.name%3Dmine-user")).await);
    forbidden(&house.patch(&format!("{SECRETS}/mine-user"), "merge-patch", json!({"data": {}})).await);
    forbidden(&house.delete(&format!("{SECRETS}/mine-user")).await);

    // What has ended needs nothing any more, and what is bound elsewhere needs it there.
    house
        .patch(&format!("{INSTANCES}/mine"), "merge-patch", json!({"status": {"phase": "Succeeded"}}))
        .await
        .ok();
    forbidden(&house.get(&format!("{SECRETS}/mine-user")).await);
    house.user = root();
    house
        .patch(&format!("{INSTANCES}/theirs"), "merge-patch", json!({"status": {"nodeName": "n1"}}))
        .await
        .ok();
    house.user = node("n1");
    house.get(&format!("{SECRETS}/theirs-user")).await.ok();
    house.user = node("n2");
    forbidden(&house.get(&format!("{SECRETS}/theirs-user")).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_lets_go_of_its_own_volumes_only() {
    let house = house().await;
    let (mine, theirs) = (format!("{VOLUMES}/mine"), format!("{VOLUMES}/theirs"));
    house.get(VOLUMES).await.ok();
    house.get(&theirs).await.ok();
    house.patch(&format!("{mine}/status"), "merge-patch", json!({"status": {"message": "m"}})).await.ok();
    let grown = json!({"metadata": {"annotations": {"sheaf.io/grown-to": "1073741824"}}});
    house.patch(&mine, "merge-patch", grown.clone()).await.ok();
    forbidden(&house.patch(&theirs, "merge-patch", grown).await);
    for said in ["sheaf.io/made", "sheaf.io/failed"] {
        let copied = json!({"metadata": {"annotations": {said: "true"}}});
        house.patch(&mine, "merge-patch", copied.clone()).await.ok();
        forbidden(&house.patch(&theirs, "merge-patch", copied).await);
    }
    let gone = json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"]}});
    forbidden(&house.patch(&theirs, "merge-patch", gone.clone()).await);
    forbidden(
        &house.patch(&format!("{theirs}/status"), "merge-patch", json!({"status": {"message": "m"}})).await,
    );
    for change in [
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"spec": {"capacity": {"storage": "2Gi"}}}),
        json!({"spec": {"nodeAffinity": null}}),
    ] {
        forbidden(&house.patch(&mine, "merge-patch", change).await);
    }
    let through_status = json!({"metadata": {"labels": {"a": "b"}}});
    forbidden(&house.patch(&format!("{mine}/status"), "merge-patch", through_status).await);
    house.patch(&mine, "merge-patch", gone).await.ok();
    forbidden(&house.delete(&mine).await);
    forbidden(&house.post(VOLUMES, volume("new", "n1")).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reports_the_images_it_keeps_only() {
    let house = house().await;
    let (mine, theirs) = (format!("{IMAGES}/mine"), format!("{IMAGES}/theirs"));
    house.get(IMAGES).await.ok();
    let progress = json!({"status": {"progress": 50}});
    house.patch(&mine, "merge-patch", progress.clone()).await.ok();
    forbidden(&house.patch(&theirs, "merge-patch", progress).await);
    for change in [
        json!({"spec": {"description": "d"}}),
        json!({"metadata": {"annotations": {"sheaf.io/node": "n2"}}}),
        json!({"metadata": {"finalizers": ["sheaf.io/image-data", "a.example/more"]}}),
    ] {
        forbidden(&house.patch(&mine, "merge-patch", change).await);
    }
    // What it is to be attached as the node says once, where nobody did, and no other label.
    let labelled = |value: &str| json!({"metadata": {"labels": {"harvesterhci.io/image-type": value}}});
    forbidden(&house.patch(&mine, "merge-patch", json!({"metadata": {"labels": {"a": "b"}}})).await);
    forbidden(&house.patch(&theirs, "merge-patch", labelled("iso")).await);
    house.patch(&mine, "merge-patch", labelled("iso")).await.ok();
    forbidden(&house.patch(&mine, "merge-patch", labelled("raw_qcow2")).await);
    let taken = json!({"metadata": {"annotations": {"sheaf.io/node": "n1"}}});
    forbidden(&house.patch(&theirs, "merge-patch", taken).await);
    house.patch(&mine, "merge-patch", json!({"metadata": {"finalizers": null}})).await.ok();
    forbidden(&house.delete(&mine).await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reports_the_snapshots_it_keeps_only() {
    let house = house().await;
    let (mine, theirs) = (format!("{CONTENTS}/mine"), format!("{CONTENTS}/theirs"));
    house.get(CONTENTS).await.ok();
    let taken = json!({"status": {"readyToUse": true, "snapshotHandle": "snap-u", "restoreSize": 1}});
    house.patch(&format!("{mine}/status"), "merge-patch", taken.clone()).await.ok();
    forbidden(&house.patch(&format!("{theirs}/status"), "merge-patch", taken).await);
    for change in [
        json!({"spec": {"deletionPolicy": "Retain"}}),
        json!({"spec": {"volumeSnapshotRef": {"name": "another"}}}),
        json!({"metadata": {"annotations": {"sheaf.io/node": "n2"}}}),
        json!({"metadata": {"finalizers": ["sheaf.io/snapshot-data"]}}),
    ] {
        forbidden(&house.patch(&mine, "merge-patch", change).await);
    }
    let steal = json!({"metadata": {"annotations": {"sheaf.io/node": "n1"}}});
    forbidden(&house.patch(&theirs, "merge-patch", steal).await);
    let protection = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
    let gone = json!({"metadata": {"finalizers": [protection]}});
    forbidden(&house.patch(&theirs, "merge-patch", gone.clone()).await);
    house.patch(&mine, "merge-patch", gone).await.ok();
    forbidden(&house.delete(&mine).await);
    forbidden(&house.post(CONTENTS, content("new", "n1")).await);
    forbidden(&house.get("/apis/snapshot.storage.k8s.io/v1/volumesnapshots").await);
    forbidden(&house.get("/apis/harvesterhci.io/v1beta1/virtualmachinebackups").await);
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_what_it_needs_to_run_machines_and_changes_none_of_it() {
    let house = house().await;
    for path in [CLAIMS, CLASSES, DEFINITIONS, CLUSTER_NETWORKS, SETTINGS, POOLS, CONFIGS] {
        house.get(path).await.ok();
    }
    let change = json!({"metadata": {"labels": {"a": "b"}}});
    for path in [
        &format!("{CLASSES}/harvester-longhorn"),
        &format!("{CLUSTER_NETWORKS}/mgmt"),
        &format!("{SETTINGS}/server-version"),
        &format!("{POOLS}/default"),
    ] {
        forbidden(&house.patch(path, "merge-patch", change.clone()).await);
        forbidden(&house.delete(path).await);
    }
}
