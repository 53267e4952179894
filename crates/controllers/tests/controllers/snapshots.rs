//! How snapshots of volumes are taken, what volumes are made of them and of other volumes, and how all of that goes again.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

fn claim(name: &str, source: Value) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    if !source.is_null() {
        claim["spec"]["dataSource"] = source;
    }
    claim
}

fn snapshot(name: &str, source: Value) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": name},
        "spec": {"source": source},
    })
}

fn of(claim: &str) -> Value {
    json!({"persistentVolumeClaimName": claim})
}

fn from_snapshot(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

fn from_claim(name: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": name})
}

/// A class whose snapshots outlive their objects.
async fn add_retaining_class(kubectl: &Kubectl) {
    let class = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": {"name": "retaining"},
        "driver": "driver.longhorn.io", "deletionPolicy": "Retain",
    });
    kubectl.create(SNAPSHOT_CLASSES, &class).await;
}

async fn status(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{SNAPSHOTS}/{name}")).await.unwrap()["status"].clone()
}

async fn phase(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap()["status"]["phase"].clone()
}

async fn volume_of(kubectl: &Kubectl, name: &str) -> Value {
    let claim = kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap();
    kubectl.get(&format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap())).await.unwrap()
}

fn taking() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
        },
        happens: async |kubectl: &Kubectl| {
            for name in ["one", "two"] {
                kubectl.create(SNAPSHOTS, &snapshot(name, of("disk"))).await;
            }
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(CONTENTS).await.len(), 2);
            for name in ["one", "two"] {
                let taken = kubectl.get(&format!("{SNAPSHOTS}/{name}")).await.unwrap();
                let uid = taken["metadata"]["uid"].as_str().unwrap();
                assert_eq!(taken["spec"]["volumeSnapshotClassName"], "longhorn-snapshot");
                assert_eq!(
                    taken["status"],
                    json!({"boundVolumeSnapshotContentName": format!("snapcontent-{uid}"), "readyToUse": true,
                        "restoreSize": "1Gi", "creationTime": "2030-03-17T17:46:40Z"})
                );
                let content = kubectl.get(&format!("{CONTENTS}/snapcontent-{uid}")).await.unwrap();
                let volume = volume_of(kubectl, "disk").await;
                assert_eq!(content["spec"]["source"]["volumeHandle"], volume["spec"]["csi"]["volumeHandle"]);
                assert_eq!(content["spec"]["volumeSnapshotRef"]["uid"], uid);
                assert_eq!(
                    (&content["spec"]["deletionPolicy"], &content["spec"]["sourceVolumeMode"]),
                    (&json!("Delete"), &json!("Block"))
                );
                assert_eq!(content["metadata"]["annotations"]["sheaf.io/node"], "n1");
                assert!(
                    volume["spec"]["nodeAffinity"].to_string().contains("\"n1\""),
                    "somebody had to make it"
                );
            }
        },
    }
}

fn going() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            add_retaining_class(kubectl).await;
            kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
            kubectl.create(SNAPSHOTS, &snapshot("goes", of("disk"))).await;
            let mut kept = snapshot("kept", of("disk"));
            kept["spec"]["volumeSnapshotClassName"] = json!("retaining");
            kubectl.create(SNAPSHOTS, &kept).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{CLAIMS}/disk"), "Background").await;
            for name in ["kept", "goes"] {
                kubectl.delete(&format!("{SNAPSHOTS}/{name}"), "Background").await;
            }
        },
        ends: async |kubectl: &Kubectl| {
            assert!(kubectl.names(SNAPSHOTS).await.is_empty());
            assert!(kubectl.names(CLAIMS).await.is_empty() && kubectl.names(VOLUMES).await.is_empty());
            let contents = items(kubectl, CONTENTS).await;
            assert_eq!(contents.len(), 1);
            assert_eq!(contents[0]["spec"]["volumeSnapshotRef"]["name"], "kept");
            assert_eq!(contents[0]["metadata"]["finalizers"], json!(["sheaf.io/snapshot-data"]));
        },
    }
}

/// What was asked for before its source was told to go is still made, and the source stays for it.
fn copying() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
            kubectl.create(SNAPSHOTS, &snapshot("one", of("disk"))).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.create(CLAIMS, &claim("restored", from_snapshot("one"))).await;
            kubectl.create(CLAIMS, &claim("cloned", from_claim("disk"))).await;
            kubectl.create(SNAPSHOTS, &snapshot("two", of("disk"))).await;
            kubectl.delete(&format!("{SNAPSHOTS}/one"), "Background").await;
            kubectl.delete(&format!("{CLAIMS}/disk"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.names(CLAIMS).await, ["cloned", "restored"]);
            assert_eq!(
                (kubectl.names(SNAPSHOTS).await, kubectl.names(CONTENTS).await.len()),
                (vec!["two".into()], 1)
            );
            assert_eq!(status(kubectl, "two").await["readyToUse"], true);
            for (name, attribute, begins) in
                [("restored", "sheaf.io/snapshotHandle", "snap-"), ("cloned", "sheaf.io/cloneOf", "pvc-")]
            {
                assert_eq!(phase(kubectl, name).await, "Bound");
                let volume = volume_of(kubectl, name).await;
                let handle = volume["spec"]["csi"]["volumeAttributes"][attribute].as_str().unwrap();
                assert!(handle.starts_with(begins), "{handle}");
                assert!(volume["spec"]["nodeAffinity"].to_string().contains("\"n1\""));
                assert_eq!(volume["metadata"]["annotations"]["sheaf.io/made"], "true");
            }
        },
    }
}

#[test]
fn two_snapshots_of_one_claim_are_taken_at_once() {
    taking().arrives_and_rests();
    taking().arrives_however_interrupted();
}

#[test]
fn snapshots_go_with_their_bytes_or_leave_them_as_their_class_says() {
    going().arrives_and_rests();
    going().arrives_however_interrupted();
}

#[test]
fn copies_are_made_although_what_they_copy_is_told_to_go() {
    copying().arrives_and_rests();
    copying().arrives_however_interrupted();
}

#[test]
fn what_comes_after_its_source_was_told_to_go_is_no_copy_of_it() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "8Gi").await;
        kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
        kubectl.create(SNAPSHOTS, &snapshot("one", of("disk"))).await;
        cluster.settle().await;
        // Nobody plays the node, so the bytes stay, and with them the snapshot.
        kubectl.delete(&format!("{SNAPSHOTS}/one"), "Background").await;
        cluster.settle().await;
        kubectl.create(CLAIMS, &claim("late", from_snapshot("one"))).await;
        cluster.settle().await;
        assert_eq!(phase(kubectl, "late").await, "Pending");
        assert!(
            reasons(kubectl, "PersistentVolumeClaim", "late").await.contains(&"ProvisioningFailed".into())
        );
        play_agent(kubectl, "n1");
        cluster.settle().await;
        assert!(kubectl.names(SNAPSHOTS).await.is_empty(), "nor does it keep it");
    });
}

#[test]
fn a_snapshot_that_a_node_cannot_take_says_why_and_is_taken_when_it_can() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
        cluster.settle().await;
        let handle = volume_of(kubectl, "disk").await["spec"]["csi"]["volumeHandle"].clone();
        let breaks = |what: &Value| json!({"metadata": {"annotations": {"test/broken": what}}});
        kubectl.patch(&format!("{NODES}/n1"), &breaks(&handle)).await;
        kubectl.create(SNAPSHOTS, &snapshot("one", of("disk"))).await;
        cluster.settle().await;
        let said = status(kubectl, "one").await;
        assert_eq!(
            (&said["readyToUse"], &said["error"]["message"]),
            (&json!(false), &json!("the disk of n1 is full"))
        );
        assert!(reasons(kubectl, "VolumeSnapshot", "one").await.contains(&"SnapshotCreationFailed".into()));
        kubectl.patch(&format!("{NODES}/n1"), &breaks(&json!(""))).await;
        cluster.settle().await;
        let said = status(kubectl, "one").await;
        assert_eq!((&said["readyToUse"], &said["error"]), (&json!(true), &Value::Null));
    });
}

#[test]
fn what_belongs_together_is_taken_when_all_of_it_is_there() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let together = |name: &str| {
            let mut one = snapshot(name, of(name));
            one["metadata"]["annotations"] = json!({"sheaf.io/together": "g", "sheaf.io/together-of": "2"});
            one
        };
        kubectl.create(CLAIMS, &claim("a", Value::Null)).await;
        kubectl.create(SNAPSHOTS, &together("a")).await;
        kubectl.create(SNAPSHOTS, &together("b")).await;
        cluster.settle().await;
        assert_eq!(status(kubectl, "a").await["readyToUse"], false);
        assert_eq!(status(kubectl, "b").await["error"]["message"], "the claim b does not exist");
        kubectl.create(CLAIMS, &claim("b", Value::Null)).await;
        cluster.settle().await;
        for name in ["a", "b"] {
            assert_eq!(status(kubectl, name).await["readyToUse"], true, "{name}");
        }
        assert_eq!(status(kubectl, "b").await["error"], Value::Null);
    });
}

#[test]
fn a_snapshot_that_is_there_already_is_taken_over_by_the_one_it_names_and_nobody_else() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create("/api/v1/namespaces", &json!({"metadata": {"name": "elsewhere"}})).await;
        let content = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": "there", "annotations": {"sheaf.io/node": "n1"}},
            "spec": {"driver": "driver.longhorn.io", "deletionPolicy": "Delete",
                "source": {"snapshotHandle": "snap-old"}, "volumeSnapshotRef": {"namespace": "default", "name": "mine"}},
        });
        kubectl.create(CONTENTS, &content).await;
        let there = json!({"volumeSnapshotContentName": "there"});
        let elsewhere = SNAPSHOTS.replace("/default/", "/elsewhere/");
        kubectl.create(&elsewhere, &snapshot("mine", there.clone())).await;
        kubectl.create(SNAPSHOTS, &snapshot("other", there.clone())).await;
        cluster.settle().await;
        for path in [format!("{elsewhere}/mine"), format!("{SNAPSHOTS}/other")] {
            let said = kubectl.get(&path).await.unwrap()["status"].clone();
            let why = said["error"]["message"].as_str().unwrap();
            assert!(
                why.contains("is for another VolumeSnapshot") && said["readyToUse"] == false,
                "{path}: {why}"
            );
        }
        kubectl.create(SNAPSHOTS, &snapshot("mine", there.clone())).await;
        cluster.settle().await;
        assert_eq!(status(kubectl, "mine").await["readyToUse"], true);
        kubectl.create(CLAIMS, &claim("restored", from_snapshot("mine"))).await;
        cluster.settle().await;
        let volume = volume_of(kubectl, "restored").await;
        assert_eq!(volume["spec"]["csi"]["volumeAttributes"]["sheaf.io/snapshotHandle"], "snap-old");
        // Those who have no part in it take nothing along.
        kubectl.delete(&format!("{SNAPSHOTS}/other"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.names(CONTENTS).await, ["there"]);
        kubectl.delete(&format!("{SNAPSHOTS}/mine"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(CONTENTS).await.is_empty());
        // And a snapshot of the same name that is made later finds nothing.
        kubectl.create(SNAPSHOTS, &snapshot("mine", there)).await;
        cluster.settle().await;
        let why = status(kubectl, "mine").await["error"]["message"].clone();
        assert_eq!(why, "the VolumeSnapshotContent there does not exist");
    });
}

#[test]
fn a_content_whose_snapshot_was_torn_away_goes_too() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
        kubectl.create(SNAPSHOTS, &snapshot("one", of("disk"))).await;
        cluster.settle().await;
        kubectl.patch(&format!("{SNAPSHOTS}/one"), &json!({"metadata": {"finalizers": []}})).await;
        kubectl.delete(&format!("{SNAPSHOTS}/one"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(SNAPSHOTS).await.is_empty() && kubectl.names(CONTENTS).await.is_empty());
    });
}

#[test]
fn what_cannot_be_copied_or_backed_up_says_so() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let class = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": BROKEN_CLASS},
            "provisioner": "driver.longhorn.io",
        });
        kubectl.create(CLASSES, &class).await;
        kubectl.create(CLAIMS, &claim("disk", Value::Null)).await;
        let mut remote = snapshot("remote", of("disk"));
        remote["spec"]["volumeSnapshotClassName"] = json!("longhorn");
        kubectl.create(SNAPSHOTS, &remote).await;
        kubectl.create(SNAPSHOTS, &snapshot("one", of("disk"))).await;
        cluster.settle().await;
        let why = status(kubectl, "remote").await["error"]["message"].clone();
        assert!(why.as_str().unwrap().starts_with("no backup target"), "{why}");
        let mut small = claim("small", from_snapshot("one"));
        small["spec"]["resources"]["requests"]["storage"] = json!("1Mi");
        let mut other = claim("other", from_claim("disk"));
        other["spec"]["volumeMode"] = json!("Filesystem");
        let mut unlucky = claim("unlucky", from_snapshot("one"));
        unlucky["spec"]["storageClassName"] = json!(BROKEN_CLASS);
        for (claim, words) in [
            (small, "has 1073741824 bytes"),
            (other, "has another volumeMode"),
            (unlucky, "cannot be made: the disk of n1 is full"),
            (claim("early", from_snapshot("nothing")), "does not exist"),
        ] {
            kubectl.create(CLAIMS, &claim).await;
            cluster.settle().await;
            let name = claim["metadata"]["name"].as_str().unwrap();
            assert_eq!(phase(kubectl, name).await, "Pending", "{name}");
            let events = items(kubectl, EVENTS).await;
            let told = |event: &&Value| {
                event["involvedObject"]["name"] == name && event["message"].as_str().unwrap().contains(words)
            };
            assert!(events.iter().any(|event| told(&event)), "{name}: {events:?}");
            kubectl.delete(&format!("{CLAIMS}/{name}"), "Background").await;
        }
        cluster.settle().await;
        assert_eq!(
            (kubectl.names(CLAIMS).await, kubectl.names(VOLUMES).await.len()),
            (vec!["disk".into()], 1)
        );
        let foreign = claim("foreign", json!({"apiGroup": "a.b", "kind": "Populator", "name": "p"}));
        assert_eq!(kubectl.try_it(Method::POST, CLAIMS, Some(&foreign)).await.0, 422);
    });
}
