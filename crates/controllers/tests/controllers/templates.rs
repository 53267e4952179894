//! How versions of machine templates are numbered, and what goes with what.

use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    backups::add_machine,
    scenario::{Scenario, on_a_cluster},
    simulated_node::{CLAIMS, IMAGES, VMS, furnish, machine},
};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const EVENTS: &str = "/api/v1/namespaces/default/events";

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

/// A template that is made of the machine, with these disks or with none.
async fn make_of_machine(kubectl: &Kubectl, claims: Value) {
    let vm = kubectl.get(&format!("{VMS}/vm")).await.unwrap();
    let mut note = json!({"machine": "vm", "uid": vm["metadata"]["uid"], "secrets": ["user"]});
    if !claims.is_null() {
        note["claims"] = claims;
    }
    let mut made = template();
    made["metadata"]["annotations"] = json!({"sheaf.io/made-of": note.to_string()});
    kubectl.create(TEMPLATES, &made).await;
}

fn making(
    with_data: bool,
) -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            add_machine(kubectl, "Halted").await;
        },
        happens: async move |kubectl: &Kubectl| {
            let claims = if with_data { json!(["vm-root", "vm-data"]) } else { Value::Null };
            make_of_machine(kubectl, claims).await;
        },
        ends: async move |kubectl: &Kubectl| {
            let template = kubectl.get(&format!("{TEMPLATES}/t")).await.unwrap();
            assert!(template["metadata"]["annotations"]["sheaf.io/made-of"].is_null(), "{template}");
            assert_eq!(template["status"], json!({"defaultVersion": 1, "latestVersion": 1}));
            let names = kubectl.names(VERSIONS).await;
            assert_eq!(names.len(), 1, "{names:?}");
            let version = kubectl.get(&format!("{VERSIONS}/{}", names[0])).await.unwrap();
            assert!(version["metadata"]["annotations"]["sheaf.io/to-copy"].is_null(), "{version}");
            let spec = &version["spec"]["vm"]["spec"]["template"]["spec"];
            let secret = spec["volumes"][2]["cloudInitNoCloud"]["secretRef"]["name"].as_str().unwrap();
            assert_eq!(secret, format!("templateversion-{}-seed-userdata", names[0]));
            let copy = kubectl.get(&format!("{SECRETS}/{secret}")).await.unwrap();
            let original = kubectl.get(&format!("{SECRETS}/user")).await.unwrap();
            assert_eq!(copy["data"], original["data"]);
            assert_eq!(copy["metadata"]["ownerReferences"][0]["uid"], version["metadata"]["uid"]);
            let images: Vec<String> = kubectl.names(IMAGES).await;
            let own: Vec<&String> =
                images.iter().filter(|name| name.starts_with("templateversion-")).collect();
            assert_eq!(own.len(), if with_data { 2 } else { 0 }, "{images:?}");
            for name in own {
                let image = kubectl.get(&format!("{IMAGES}/{name}")).await.unwrap();
                assert_eq!(image["spec"]["sourceType"], "export-from-volume");
                assert_eq!(image["metadata"]["ownerReferences"][0]["uid"], version["metadata"]["uid"]);
                assert!(version["spec"].to_string().contains(&format!("default/{name}")), "{version}");
            }
        },
    }
}

#[test]
fn a_template_is_made_of_a_machine_with_its_secrets() {
    making(false).arrives_and_rests();
    making(false).arrives_however_interrupted();
}

#[test]
fn a_template_is_made_of_a_machine_with_what_is_on_its_disks() {
    making(true).arrives_and_rests();
    making(true).arrives_however_interrupted();
}

#[test]
fn each_machine_of_a_template_has_secrets_of_its_own() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Halted").await;
        cluster.settle().await;
        make_of_machine(kubectl, Value::Null).await;
        cluster.settle().await;
        let names = kubectl.names(VERSIONS).await;
        let version = kubectl.get(&format!("{VERSIONS}/{}", names[0])).await.unwrap();
        let named = |vm: &Value| {
            let volumes = &vm["spec"]["template"]["spec"]["volumes"];
            volumes[2]["cloudInitNoCloud"]["secretRef"]["name"].as_str().unwrap().to_owned()
        };
        let of_template = named(&version["spec"]["vm"]);
        let mut own = Vec::new();
        for name in ["one", "two"] {
            let mut vm = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"name": name}, "spec": version["spec"]["vm"]["spec"]});
            let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array_mut().unwrap();
            for volume in volumes.iter_mut().filter(|volume| volume["persistentVolumeClaim"].is_object()) {
                let claim = format!("{name}-{}", volume["name"].as_str().unwrap());
                volume["persistentVolumeClaim"]["claimName"] = json!(claim);
            }
            kubectl.create(VMS, &vm).await;
            cluster.settle().await;
            let vm = kubectl.get(&format!("{VMS}/{name}")).await.unwrap();
            assert!(vm["metadata"]["annotations"]["sheaf.io/secrets-to-copy"].is_null(), "{vm}");
            own.push(named(&vm));
        }
        assert!(own[0] != own[1] && !own.contains(&of_template), "{own:?}");
        let template = kubectl.get(&format!("{SECRETS}/{of_template}")).await.unwrap();
        // What is changed for one is changed for nobody else.
        let changed = json!({"data": {"userdata": "b3RoZXI="}});
        kubectl.patch(&format!("{SECRETS}/{}", own[0]), &changed).await;
        for name in [&own[1], &of_template] {
            let secret = kubectl.get(&format!("{SECRETS}/{name}")).await.unwrap();
            assert_eq!(secret["data"], template["data"]);
        }
        // And what goes with the template goes from nobody else; each goes with its machine.
        kubectl.delete(&format!("{TEMPLATES}/t"), "Background").await;
        kubectl.delete(&format!("{VMS}/one"), "Background").await;
        cluster.settle().await;
        let left = kubectl.names(SECRETS).await;
        assert!(
            !left.contains(&of_template) && !left.contains(&own[0]) && left.contains(&own[1]),
            "{left:?}"
        );
    });
}

#[test]
fn a_template_of_a_machine_that_is_gone_goes_and_says_why() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Halted").await;
        cluster.settle().await;
        // Another disk than those that whoever asked for it was allowed to have.
        make_of_machine(kubectl, json!(["vm-root"])).await;
        cluster.settle().await;
        assert!(kubectl.get(&format!("{TEMPLATES}/t")).await.is_none());
        assert!(kubectl.names(VERSIONS).await.is_empty());
        let events = kubectl.get(EVENTS).await.unwrap();
        let told = events["items"].as_array().unwrap().iter();
        let mut told = told.filter(|event| event["involvedObject"]["kind"] == "VirtualMachineTemplate");
        assert!(told.any(|event| event["message"].as_str().unwrap().contains("vm-data is new")));
        assert!(!kubectl.names(CLAIMS).await.is_empty(), "and nothing else goes");
    });
}

#[test]
fn a_template_that_is_made_again_does_not_take_the_versions_of_the_former_one() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(TEMPLATES, &template()).await;
        kubectl.create(VERSIONS, &version("old", "")).await;
        cluster.settle().await;
        kubectl.delete(&format!("{TEMPLATES}/t"), "Orphan").await;
        cluster.settle().await;
        kubectl.create(TEMPLATES, &template()).await;
        cluster.settle().await;
        let again = kubectl.get(&format!("{TEMPLATES}/t")).await.unwrap();
        assert_eq!(again["spec"]["defaultVersionId"].as_str().unwrap_or_default(), "", "{again}");
        // Nor when somebody edits what was left behind.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        kubectl.patch(&format!("{VERSIONS}/old"), &label).await;
        kubectl.create(VERSIONS, &version("new", "")).await;
        cluster.settle().await;
        let again = kubectl.get(&format!("{TEMPLATES}/t")).await.unwrap();
        assert_eq!(again["spec"]["defaultVersionId"], "default/new");
        assert_eq!(again["status"], json!({"defaultVersion": 1, "latestVersion": 1}));
    });
}
