//! How versions of machine templates are numbered, and what goes with what.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::{IMAGES, machine},
};

const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplates";
const VERSIONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplateversions";

fn version(name: &str, image: &str) -> Value {
    let vm = machine("vm", 1, "Halted");
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion", "metadata": {"name": name},
        "spec": {"templateId": "default/t", "imageId": image, "vm": {"metadata": {}, "spec": vm["spec"]}},
    })
}

fn template() -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate", "metadata": {"name": "t"}})
}

async fn status(kubectl: &Kubectl, version: &str) -> Value {
    kubectl.get(&format!("{VERSIONS}/{version}")).await.unwrap()["status"].clone()
}

fn is_true(status: &Value, condition: &str) -> bool {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().any(|one| one["type"] == condition && one["status"] == "True")
}

fn numbering() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |_: &Kubectl| {},
        happens: async |kubectl: &Kubectl| {
            kubectl.create(TEMPLATES, &template()).await;
            for name in ["one", "two", "three"] {
                kubectl.create(VERSIONS, &version(name, "")).await;
                tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            }
        },
        ends: async |kubectl: &Kubectl| {
            for (name, number) in [("one", 1), ("two", 2), ("three", 3)] {
                let status = status(kubectl, name).await;
                assert_eq!(status["version"], number, "{name}");
                assert!(is_true(&status, "assigned") && is_true(&status, "ready"), "{status}");
            }
            let template = kubectl.get(&format!("{TEMPLATES}/t")).await.unwrap();
            assert_eq!(template["spec"]["defaultVersionId"], "default/one");
            assert_eq!(template["status"], json!({"defaultVersion": 1, "latestVersion": 3}));
        },
    }
}

#[test]
fn versions_are_numbered_in_the_order_they_were_made() {
    numbering().arrives_and_rests();
    numbering().arrives_however_interrupted();
}

#[test]
fn the_templates_every_cluster_has_come_to_be_ready() {
    on_a_cluster(async |_, kubectl| {
        let all = kubectl.get("/apis/harvesterhci.io/v1beta1/virtualmachinetemplates").await.unwrap();
        let templates = all["items"].as_array().unwrap();
        assert_eq!(templates.len(), 4);
        for template in templates {
            assert_eq!(template["status"], json!({"defaultVersion": 1, "latestVersion": 1}), "{template}");
        }
    });
}

#[test]
fn a_version_is_ready_with_its_image_and_goes_with_its_template() {
    on_a_cluster(async |cluster, kubectl| {
        let image = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineImage",
            "metadata": {"name": "debian"}, "spec": {"displayName": "debian", "sourceType": "upload"}});
        kubectl.create(IMAGES, &image).await;
        kubectl.create(TEMPLATES, &template()).await;
        kubectl.create(VERSIONS, &version("one", "default/debian")).await;
        cluster.settle().await;
        assert!(!is_true(&status(kubectl, "one").await, "ready"));
        let imported = json!({"status": {"conditions": [{"type": "Imported", "status": "True"}]}});
        kubectl.patch(&format!("{IMAGES}/debian"), &imported).await;
        cluster.settle().await;
        assert!(is_true(&status(kubectl, "one").await, "ready"));
        // The newest goes, the one that is meant stays meant, and all go with their template.
        kubectl.create(VERSIONS, &version("two", "")).await;
        cluster.settle().await;
        kubectl.delete(&format!("{VERSIONS}/two"), "Background").await;
        cluster.settle().await;
        let template = kubectl.get(&format!("{TEMPLATES}/t")).await.unwrap();
        assert_eq!(template["status"], json!({"defaultVersion": 1, "latestVersion": 1}));
        kubectl.delete(&format!("{TEMPLATES}/t"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(VERSIONS).await.is_empty());
    });
}

#[test]
fn versions_that_are_to_outlive_their_template_do() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(TEMPLATES, &template()).await;
        kubectl.create(VERSIONS, &version("one", "")).await;
        cluster.settle().await;
        kubectl.delete(&format!("{TEMPLATES}/t"), "Orphan").await;
        cluster.settle().await;
        assert!(kubectl.get(&format!("{TEMPLATES}/t")).await.is_none());
        let left = kubectl.get(&format!("{VERSIONS}/one")).await.unwrap();
        assert!(left["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty), "{left}");
    });
}
