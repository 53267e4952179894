//! Who may make disks of another namespace's images.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::House,
    machine::{CLAIMS, CLASSES, IMAGES, MACHINES, claim, image, machine},
};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings";

/// An image in `images` with its class, and jo, who may do everything in `default`.
async fn with_an_image_elsewhere() -> House {
    let mut house = House::new().await;
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "images"}})).await.ok();
    house.post(&IMAGES.replace("/default/", "/images/"), image("secret", "secret")).await.ok();
    let role = json!({"metadata": {"name": "everything"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    grant(&house, "default", "everything").await;
    house.user = jo();
    house
}

fn jo() -> User {
    User { name: "jo".into(), groups: vec![AUTHENTICATED.into()], ..User::default() }
}

fn root() -> User {
    User { name: "root".into(), groups: vec!["system:masters".into()], ..User::default() }
}

async fn grant(house: &House, namespace: &str, role: &str) {
    let binding = json!({"metadata": {"name": format!("jo-{role}")},
        "subjects": [{"kind": "User", "name": "jo", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}});
    house.post(&ROLES.replace("NS", namespace), binding).await.ok();
}

async fn let_jo_read(house: &mut House) {
    house.user = root();
    let role = json!({"metadata": {"name": "image-reader"}, "rules": [{"apiGroups": ["harvesterhci.io"],
        "resources": ["virtualmachineimages"], "verbs": ["get"]}]});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    grant(house, "images", "image-reader").await;
    house.user = jo();
}

fn of_image(name: &str, image: &str) -> Value {
    let mut claim = claim(name);
    claim["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": image});
    claim
}

fn of_class(name: &str, class: &str) -> Value {
    let mut claim = claim(name);
    claim["spec"]["storageClassName"] = json!(class);
    claim
}

fn bringing(name: &str, claims: &[Value]) -> Value {
    let mut vm = machine(name);
    vm["metadata"]["annotations"] =
        json!({"harvesterhci.io/volumeClaimTemplates": json!(claims).to_string()});
    vm
}

#[tokio::test(start_paused = true)]
async fn an_image_of_another_namespace_is_copied_by_those_alone_who_may_read_it() {
    let mut house = with_an_image_elsewhere().await;
    let path = format!("{CLAIMS}/plain");
    house.post(CLAIMS, claim("plain")).await.ok();
    let named = json!({"metadata": {"annotations": {"harvesterhci.io/imageId": "images/secret"}}});
    for refused in [
        house.post(CLAIMS, of_image("disk", "images/secret")).await,
        house.post(CLAIMS, of_class("disk", "longhorn-secret")).await,
        house.post(MACHINES, bringing("vm", &[of_image("disk", "images/secret")])).await,
        house.post(MACHINES, bringing("vm", &[of_class("disk", "longhorn-secret")])).await,
        house.patch(&path, "merge-patch", named.clone()).await,
        house.patch(&format!("{path}/status"), "merge-patch", named).await,
    ] {
        assert_eq!(refused.refusal(), (403, "Forbidden"), "{:#}", refused.body);
        assert!(refused.message().contains("may not copy image images/secret"), "{}", refused.message());
    }
    // One's own are one's own.
    house.post(CLAIMS, of_image("own", "default/mine")).await.ok();

    let_jo_read(&mut house).await;
    house.post(CLAIMS, of_image("disk", "images/secret")).await.ok();
    house.post(MACHINES, bringing("vm", &[of_image("disk-1", "images/secret")])).await.ok();
}

#[tokio::test(start_paused = true)]
async fn what_is_copied_by_a_class_says_of_which_image() {
    let mut house = with_an_image_elsewhere().await;
    let_jo_read(&mut house).await;
    let named = "harvesterhci.io/imageId";
    // The class comes with the image's bytes; it means the same before and after.
    let early = house.post(CLAIMS, of_class("early", "longhorn-secret")).await.ok();
    house.user = root();
    house
        .post(
            CLASSES,
            json!({"metadata": {"name": "other"}, "provisioner": "driver.longhorn.io",
            "parameters": {"sheaf.io/image": "images/secret"}}),
        )
        .await
        .ok();
    house.user = jo();
    let late = house.post(CLAIMS, of_class("late", "other")).await.ok();
    for claim in [early, late] {
        assert_eq!(claim["metadata"]["annotations"][named], "images/secret");
    }
    let vm = house.post(MACHINES, bringing("vm", &[of_class("disk", "other")])).await.ok();
    let templates = vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
    let templates: Value = serde_json::from_str(templates).unwrap();
    assert_eq!(templates[0]["metadata"]["annotations"][named], "images/secret");
}

#[tokio::test(start_paused = true)]
async fn who_edits_a_machine_answers_for_what_they_add() {
    let mut house = with_an_image_elsewhere().await;
    house.user = root();
    let first = of_image("disk", "images/secret");
    house.post(MACHINES, bringing("vm", std::slice::from_ref(&first))).await.ok();
    house.user = jo();
    let path = format!("{MACHINES}/vm");
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    house.patch(&path, "merge-patch", labels).await.ok();
    let more = bringing("vm", &[first.clone(), of_image("disk-1", "images/secret")]);
    let more = json!({"metadata": {"annotations": more["metadata"]["annotations"]}});
    let refused = house.patch(&path, "merge-patch", more).await;
    assert_eq!(refused.refusal(), (403, "Forbidden"), "{:#}", refused.body);
    let fine = bringing("vm", &[first, claim("disk-2")]);
    let fine = json!({"metadata": {"annotations": fine["metadata"]["annotations"]}});
    house.patch(&path, "merge-patch", fine).await.ok();
}

#[tokio::test(start_paused = true)]
async fn an_images_owner_cannot_make_the_cluster_lose_its_bytes() {
    let mut house = with_an_image_elsewhere().await;
    let mut new = image("mine", "mine");
    new["metadata"]["annotations"] = json!({"sheaf.io/node": "n7"});
    let made = house.post(IMAGES, new).await.ok();
    assert!(made["metadata"]["annotations"]["sheaf.io/node"].is_null(), "where it goes is not theirs to say");
    let path = format!("{IMAGES}/mine");
    let placed =
        json!({"metadata": {"annotations": {"sheaf.io/node": "n1"}, "finalizers": ["sheaf.io/image-data"]}});
    house.user = root();
    house.patch(&path, "merge-patch", placed.clone()).await.ok();
    house.user = jo();
    for change in [
        json!({"metadata": {"annotations": {"sheaf.io/node": null}}}),
        json!({"metadata": {"annotations": {"sheaf.io/node": "n2"}}}),
        json!({"metadata": {"finalizers": null}}),
        json!({"metadata": {"finalizers": ["somebody.io/else"]}}),
    ] {
        let refused = house.patch(&path, "merge-patch", change.clone()).await;
        assert_eq!(refused.refusal(), (403, "Forbidden"), "{change}: {:#}", refused.body);
    }
    // The rest of it is theirs, and who writes it whole and leaves these out did not mean them.
    let change = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["somebody.io/else", "sheaf.io/image-data"]}});
    house.patch(&path, "merge-patch", change).await.ok();
    let mut whole = json!({"metadata": {"name": "mine"}, "spec": made["spec"]});
    whole["spec"]["description"] = json!("new");
    house
        .patch(&path, "merge-patch", json!({"metadata": {"finalizers": ["sheaf.io/image-data"]}}))
        .await
        .ok();
    let kept = house.put(&path, whole).await.ok();
    assert_eq!(kept["metadata"]["annotations"]["sheaf.io/node"], "n1");
    assert_eq!(kept["metadata"]["finalizers"], json!(["sheaf.io/image-data"]));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_no_claim_is_refused_and_a_foreign_class_holds_no_image_back() {
    let mut house = with_an_image_elsewhere().await;
    let_jo_read(&mut house).await;
    // Read before it is checked: that must not end in a panic.
    for odd in [json!({"annotations": "x", "name": "d"}), json!("x")] {
        let template = json!({"metadata": odd, "spec": {"storageClassName": "longhorn-secret"}});
        let refused = house.post(MACHINES, bringing("odd", &[template])).await;
        assert_eq!(refused.code, 422, "{:#}", refused.body);
    }
    // A claim that names another image is none of this one's.
    let image = format!("{}/secret", IMAGES.replace("/default/", "/images/"));
    house.user = root();
    house.patch(&image, "merge-patch", json!({"status": {"storageClassName": "longhorn-secret"}})).await.ok();
    let mut claim = of_image("squatter", "default/other");
    claim["spec"]["storageClassName"] = json!("longhorn-secret");
    house.user = jo();
    house.post(CLAIMS, claim).await.ok();
    house.user = root();
    house.delete(&image).await.ok();
}

fn clone_of(name: &str, namespace: &str, original: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"displayName": name, "sourceType": "clone",
        "securityParameters": {"sourceImageName": original, "sourceImageNamespace": namespace}}})
}

fn export_of(name: &str, namespace: &str, claim: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"displayName": name, "sourceType": "export-from-volume",
        "pvcName": claim, "pvcNamespace": namespace}})
}

#[tokio::test(start_paused = true)]
async fn an_image_is_made_of_another_or_of_a_disk_by_those_alone_who_may_read_that() {
    let mut house = with_an_image_elsewhere().await;
    house.user = root();
    house.post(&CLAIMS.replace("/default/", "/images/"), claim("disk")).await.ok();
    house.user = jo();
    // Whether it is there at all is not told either.
    for refused in [
        house.post(IMAGES, clone_of("a", "images", "secret")).await,
        house.post(IMAGES, clone_of("a", "images", "guessed")).await,
        house.post(IMAGES, export_of("a", "images", "disk")).await,
        house.post(IMAGES, export_of("a", "images", "guessed")).await,
    ] {
        assert_eq!(refused.refusal(), (403, "Forbidden"), "{}", refused.message());
        assert!(refused.message().contains("may not copy"), "{}", refused.message());
    }
    let_jo_read(&mut house).await;
    house.post(IMAGES, clone_of("a", "images", "secret")).await.ok();
    let absent = house.post(IMAGES, clone_of("b", "images", "guessed")).await;
    assert!(absent.code == 422 && absent.message().contains("Not found"), "{}", absent.message());
    assert_eq!(house.post(IMAGES, export_of("b", "images", "disk")).await.code, 403, "a disk is no image");
    // Who may look at a claim may not have what is on its disk.
    let viewer = json!({"metadata": {"name": "claim-viewer"}, "rules": [{"apiGroups": [""],
        "resources": ["persistentvolumeclaims"], "verbs": ["get", "list", "watch"]}]});
    house.user = root();
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", viewer).await.ok();
    grant(&house, "images", "claim-viewer").await;
    house.user = jo();
    let viewed = house.post(IMAGES, export_of("b", "images", "disk")).await;
    assert!(viewed.code == 403 && viewed.message().contains("the right to update"), "{}", viewed.message());
    house.post(CLAIMS, claim("own")).await.ok();
    house.post(IMAGES, export_of("b", "default", "own")).await.ok();
    let moved = json!({"spec": {"securityParameters": {"sourceImageName": "other"}}});
    let moved = house.patch(&format!("{IMAGES}/a"), "merge-patch", moved).await;
    assert!(moved.code == 422 && moved.message().contains("cannot be modified"), "{}", moved.message());
    let mut sealed = clone_of("c", "images", "secret");
    sealed["spec"]["securityParameters"]["cryptoOperation"] = json!("encrypt");
    let sealed = house.post(IMAGES, sealed).await;
    assert!(
        sealed.code == 422 && sealed.message().contains("not supported by Sheaf yet"),
        "{}",
        sealed.message()
    );
}
