//! How images find their node and publish their class, and how disks are made of them.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

fn image() -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage", "metadata": {"name": "debian"},
        "spec": {"displayName": "debian", "sourceType": "download", "url": "https://example.com/debian.qcow2",
            "storageClassParameters": {"numberOfReplicas": "1"}},
    })
}

fn claim(size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "annotations": {"harvesterhci.io/imageId": "default/debian"}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "longhorn-debian",
            "resources": {"requests": {"storage": size}}},
    })
}

fn import() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| furnish(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.create(CLAIMS, &claim("1Mi")).await;
            kubectl.create(IMAGES, &image()).await;
        },
        ends: async |kubectl: &Kubectl| {
            let image = kubectl.get(&format!("{IMAGES}/debian")).await.unwrap();
            assert_eq!(image["metadata"]["annotations"]["sheaf.io/node"], "n1");
            assert_eq!(image["metadata"]["finalizers"], json!(["sheaf.io/image-data"]));
            let class = kubectl.get(&format!("{CLASSES}/longhorn-debian")).await.unwrap();
            assert_eq!(
                class["parameters"],
                json!({"backingImage": "default-debian", "numberOfReplicas": "1", "sheaf.io/image": "default/debian",
                    "sheaf.io/imageUid": image["metadata"]["uid"]})
            );
            assert_eq!(class["allowVolumeExpansion"], true);
            let volumes = items(kubectl, VOLUMES).await;
            assert_eq!(
                volumes[0]["spec"]["csi"]["volumeAttributes"],
                json!({"sheaf.io/backend": "local", "sheaf.io/imageUid": image["metadata"]["uid"]})
            );
            assert!(volumes[0]["spec"]["nodeAffinity"].to_string().contains("\"n1\""), "where the bytes are");
        },
    }
}

fn removal() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(IMAGES, &image()).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{IMAGES}/debian"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.get(&format!("{IMAGES}/debian")).await, None);
            assert_eq!(kubectl.get(&format!("{CLASSES}/longhorn-debian")).await, None);
        },
    }
}

#[test]
fn an_image_is_fetched_by_a_node_and_disks_are_made_of_it() {
    import().arrives_and_rests();
    import().arrives_however_interrupted();
}

#[test]
fn an_image_goes_with_its_class() {
    removal().arrives_and_rests();
    removal().arrives_however_interrupted();
}

#[test]
fn an_image_waits_for_a_node_and_one_that_never_had_one_goes_at_once() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        kubectl.create(IMAGES, &image()).await;
        cluster.settle().await;
        kubectl.delete(&format!("{IMAGES}/debian"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(IMAGES).await.is_empty());
        kubectl.create(IMAGES, &image()).await;
        cluster.settle().await;
        add_node(kubectl, "n1", "8Gi").await;
        cluster.settle().await;
        let image = kubectl.get(&format!("{IMAGES}/debian")).await.unwrap();
        assert_eq!(image["metadata"]["annotations"]["sheaf.io/node"], "n1");
    });
}

#[test]
fn a_claim_that_came_before_another_namespaces_image_is_no_copy_of_it() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create("/api/v1/namespaces", &json!({"metadata": {"name": "elsewhere"}})).await;
        let mut waiting = claim("1Gi");
        waiting["metadata"] = json!({"name": "disk"});
        kubectl.create(&CLAIMS.replace("/default/", "/elsewhere/"), &waiting).await;
        kubectl.create(IMAGES, &image()).await;
        cluster.settle().await;
        assert!(kubectl.get(&format!("{CLASSES}/longhorn-debian")).await.is_some());
        assert!(kubectl.names(VOLUMES).await.is_empty());
        let events = items(kubectl, &EVENTS.replace("/default/", "/elsewhere/")).await;
        let told =
            |event: &Value| event["message"].as_str().unwrap().contains("name the image in the annotation");
        assert!(events.iter().any(told), "{events:?}");
    });
}

#[test]
fn a_claim_smaller_than_its_image_says_how_large_it_must_be() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(IMAGES, &image()).await;
        cluster.settle().await;
        kubectl.create(CLAIMS, &claim("1Ki")).await;
        cluster.settle().await;
        assert!(kubectl.names(VOLUMES).await.is_empty());
        let events = items(kubectl, EVENTS).await;
        assert!(
            events.iter().any(|event| event["message"].as_str().unwrap().contains("1048576 bytes")),
            "{events:?}"
        );
    });
}

#[test]
fn an_image_of_the_same_name_that_was_made_later_has_a_class_of_its_own() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        for _ in 0..2 {
            let made = kubectl.create(IMAGES, &image()).await;
            cluster.settle().await;
            let class = kubectl.get(&format!("{CLASSES}/longhorn-debian")).await.unwrap();
            assert_eq!(class["parameters"]["sheaf.io/imageUid"], made["metadata"]["uid"]);
            kubectl.delete(&format!("{IMAGES}/debian"), "Background").await;
            cluster.settle().await;
        }
    });
}
