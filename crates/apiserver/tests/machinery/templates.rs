//! Templates of machines and their versions at the door, and those that every cluster has.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::{Answer, House},
    machine::{IMAGES, MACHINES, image, machine},
};

const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplates";
const VERSIONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplateversions";
const PUBLIC: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-public";

#[track_caller]
fn refused(answer: &Answer, code: u16, words: &str) {
    assert_eq!(answer.refusal().0, code, "{:#}", answer.body);
    assert!(answer.message().contains(words), "{}", answer.message());
}

fn template(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"description": "for tests"}})
}

fn version(name: &str, template: &str) -> Value {
    let vm = machine("vm");
    json!({"metadata": {"name": name}, "spec": {"templateId": format!("default/{template}"),
        "vm": {"metadata": {}, "spec": vm["spec"]}}})
}

fn with_image(mut version: Value, image: &str) -> Value {
    let claims = json!([{"metadata": {"name": "d", "annotations": {"harvesterhci.io/imageId": image}},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}}}}]);
    version["spec"]["vm"]["metadata"]["annotations"] =
        json!({"harvesterhci.io/volumeClaimTemplates": claims.to_string()});
    version
}

async fn as_editor(house: &mut House) {
    let role = json!({"metadata": {"name": "maker"}, "subjects": [{"kind": "User", "name": "maker",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "harvesterhci.io:edit"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", role).await.ok();
    house.user = User { name: "maker".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
}

#[tokio::test(start_paused = true)]
async fn the_templates_every_cluster_has_are_machines_that_can_be_made() {
    let house = House::new().await;
    let templates = house.get(&format!("{PUBLIC}/virtualmachinetemplates")).await.ok();
    let names: Vec<&str> = templates["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "iso-image-base-template",
            "raw-image-base-template",
            "windows-iso-image-base-template",
            "windows-raw-image-base-template"
        ]
    );
    let versions = house.get(&format!("{PUBLIC}/virtualmachinetemplateversions")).await.ok();
    for (n, version) in versions["items"].as_array().unwrap().iter().enumerate() {
        let owner = &version["metadata"]["ownerReferences"][0];
        assert!(names.contains(&owner["name"].as_str().unwrap()), "{version:#}");
        assert_eq!(version["metadata"]["labels"]["template.harvesterhci.io/templateID"], owner["name"]);
        let vm = &version["spec"]["vm"];
        let mut made = json!({"metadata": vm["metadata"], "spec": vm["spec"]});
        made["metadata"]["name"] = json!(format!("vm-{n}"));
        // Of several on one cluster each has disks of its own, as whoever makes them names them.
        let text = made.to_string().replace("pvc-", &format!("vm-{n}-"));
        house.post(MACHINES, serde_json::from_str(&text).unwrap()).await.ok();
    }
    let windows =
        house.get(&format!("{PUBLIC}/virtualmachinetemplates/windows-iso-image-base-template")).await.ok();
    assert!(windows["spec"]["description"].as_str().unwrap().contains("no disc with virtio drivers"));
}

#[tokio::test(start_paused = true)]
async fn a_version_is_of_a_template_that_is_there_and_stays_as_it_is() {
    let house = House::new().await;
    refused(&house.post(VERSIONS, version("v", "t")).await, 422, "\"t\" not found");
    let made = house.post(TEMPLATES, template("t")).await.ok();
    let mut nameless = version("", "t");
    nameless["metadata"] = json!({});
    let drawn = house.post(VERSIONS, nameless).await.ok();
    assert!(drawn["metadata"]["name"].as_str().unwrap().starts_with("t-"));
    let v = house.post(VERSIONS, version("v", "t")).await.ok();
    assert_eq!(v["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    let uri = format!("{VERSIONS}/v");
    let changed = house.patch(&uri, "merge-patch", json!({"spec": {"description": "other"}})).await;
    refused(&changed, 422, "Update templateVersion is not supported");
    house.patch(&uri, "merge-patch", json!({"metadata": {"annotations": {"a": "b"}}})).await.ok();
    let stripped =
        house.patch(&uri, "merge-patch", json!({"metadata": {"ownerReferences": null}})).await.ok();
    assert_eq!(stripped["metadata"]["ownerReferences"][0]["name"], "t", "it is its template's");
    let mut odd = version("w", "t");
    odd["spec"]["vm"]["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "drivers", "containerDisk": {"image": "x"}}]);
    refused(&house.post(VERSIONS, odd).await, 422, "spec.vm.spec.template.spec.volumes");
}

#[tokio::test(start_paused = true)]
async fn the_version_that_is_meant_is_one_of_the_templates_and_stays() {
    let house = House::new().await;
    for name in ["t", "u"] {
        house.post(TEMPLATES, template(name)).await.ok();
    }
    house.post(VERSIONS, version("v", "t")).await.ok();
    house.post(VERSIONS, version("w", "u")).await.ok();
    let uri = format!("{TEMPLATES}/t");
    for (id, words) in [
        ("default/w", "there is no version default/w"),
        ("default/x", "no version"),
        ("v", "there is no version v"),
    ] {
        let answer = house.patch(&uri, "merge-patch", json!({"spec": {"defaultVersionId": id}})).await;
        refused(&answer, 422, words);
    }
    house.patch(&uri, "merge-patch", json!({"spec": {"defaultVersionId": "default/v"}})).await.ok();
    refused(&house.delete(&format!("{VERSIONS}/v")).await, 400, "Cannot delete the default templateVersion");
    house.delete(&format!("{VERSIONS}/w")).await.ok();
    house.delete(&uri).await.ok();
    house.delete(&format!("{VERSIONS}/v")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_version_names_what_its_maker_may_read_and_an_image_stays_while_one_names_it() {
    let mut house = House::new().await;
    house.post(TEMPLATES, template("t")).await.ok();
    house.post(IMAGES, image("debian", "debian")).await.ok();
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "room"}})).await.ok();
    house.post(&IMAGES.replace("/default/", "/room/"), image("hidden", "hidden")).await.ok();
    let mut missing = version("v", "t");
    missing["spec"]["imageId"] = json!("default/nothing");
    refused(&house.post(VERSIONS, missing).await, 422, "\"default/nothing\" not found");
    let mut keyless = version("v", "t");
    keyless["spec"]["keyPairIds"] = json!(["default/nobody"]);
    refused(&house.post(VERSIONS, keyless).await, 422, "spec.keyPairIds[0]");
    house.post(VERSIONS, with_image(version("v", "t"), "default/debian")).await.ok();
    let words = "Cannot delete image default/debian: being used by VMTemplateVersion default/v";
    refused(&house.delete(&format!("{IMAGES}/debian")).await, 422, words);
    house.delete(&format!("{VERSIONS}/v")).await.ok();
    house.delete(&format!("{IMAGES}/debian")).await.ok();
    as_editor(&mut house).await;
    refused(
        &house.post(VERSIONS, with_image(version("x", "t"), "room/hidden")).await,
        403,
        "may not name room/hidden",
    );
    let mut forged = version("x", "t");
    forged["status"] = json!({"version": 7});
    let made = house.post(VERSIONS, forged).await.ok();
    assert!(made["status"].is_null(), "its number is not its maker's to say");
}
