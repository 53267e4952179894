//! Settings: what they may be, who says whether they are in force, and that they stay.

use std::sync::Arc;

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};
use sheaf_store::embedded;

use crate::{
    house::{Answer, House},
    machine::{MACHINES, SETTINGS, machine},
};

async fn set(house: &House, name: &str, value: &str) -> Answer {
    house.patch(&format!("{SETTINGS}/{name}"), "merge-patch", json!({"value": value})).await
}

fn configured(setting: &Value) -> (&str, &str) {
    let condition = &setting["status"]["conditions"][0];
    assert_eq!(condition["type"], "configured", "{setting}");
    (condition["status"].as_str().unwrap(), condition["reason"].as_str().unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn every_setting_says_from_the_start_whether_it_is_in_force() {
    let house = House::new().await;
    let all = house.get(SETTINGS).await.ok();
    let items = all["items"].as_array().unwrap();
    assert!(items.len() > 45, "{}", items.len());
    for setting in items {
        let (is, reason) = configured(setting);
        assert!(is == "True" || (is == "Unknown" && reason == "NoEffectYet"), "{setting}");
    }
    for added in [
        "cluster-pod-security-standard",
        "instance-manager-resources",
        "rwx-network",
        "support-bundle-file-name",
    ] {
        house.get(&format!("{SETTINGS}/{added}")).await.ok();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_value_changes_nothing_and_a_put_of_nothing_goes_back() {
    let house = House::new().await;
    let uri = format!("{SETTINGS}/max-hotplug-ratio");
    let before = house.get(&uri).await.ok();
    let answer = set(&house, "max-hotplug-ratio", "21").await;
    assert_eq!((answer.refusal(), answer.message().contains("from 1 to 20")), ((422, "Invalid"), true));
    assert_eq!(house.get(&uri).await.ok(), before);
    // As Terraform does it: read, write whole, and write whole with nothing.
    let mut mine = before.clone();
    mine["value"] = json!("8");
    let mut after = house.put(&uri, mine).await.ok();
    assert_eq!(after["value"], "8");
    after["value"] = json!("");
    assert!(house.put(&uri, after).await.ok()["value"].as_str().is_none_or(str::is_empty));
}

#[tokio::test(start_paused = true)]
async fn settings_stay_and_none_is_invented() {
    let house = House::new().await;
    let gone = house.delete(&format!("{SETTINGS}/log-level")).await;
    assert_eq!(gone.refusal(), (403, "Forbidden"));
    let made = house.post(SETTINGS, json!({"metadata": {"name": "my-own"}, "value": "x"})).await;
    assert_eq!(made.refusal().0, 422);
    let answer = set(&house, "server-version", "v9").await;
    assert!(
        answer.code == 422 && answer.message().contains("server-version is read-only"),
        "{:?}",
        answer.body
    );
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_nobody_would_use_is_neither_kept_nor_said_again() {
    let house = House::new().await;
    for (name, value) in [
        (
            "backup-target",
            r#"{"type":"s3","endpoint":"https://s3","accessKeyId":"hush","secretAccessKey":"hush"}"#,
        ),
        ("ssl-certificates", r#"{"privateKey":"hush"}"#),
        ("containerd-registry", r#"{"Configs":{"r":{"Auth":{"Username":"u","Password":"hush"}}}}"#),
        ("cluster-registration-url", r#"{"url":"https://rancher/v3/import/hush_c-1.yaml"}"#),
    ] {
        let answer = set(&house, name, value).await;
        assert!(answer.code == 422 && answer.message().contains("is a secret"), "{name}: {:?}", answer.body);
        assert!(!answer.body.to_string().contains("hush"), "{name}: {:?}", answer.body);
        assert!(!house.get(&format!("{SETTINGS}/{name}")).await.ok().to_string().contains("hush"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_setting_names_is_there() {
    let house = House::new().await;
    let network =
        |name: &str| format!(r#"{{"vlan":100,"clusterNetwork":"{name}","range":"192.168.0.0/24"}}"#);
    let answer = set(&house, "storage-network", &network("fast")).await;
    assert!(answer.code == 422 && answer.message().contains("\"fast\" not found"), "{:?}", answer.body);
    set(&house, "storage-network", &network("mgmt")).await.ok();
    let answer = set(&house, "volume-snapshot-class", "tape").await;
    assert!(answer.code == 422 && answer.message().contains("\"tape\" not found"), "{:?}", answer.body);
    set(&house, "volume-snapshot-class", "longhorn-snapshot").await.ok();
}

#[tokio::test(start_paused = true)]
async fn whether_a_setting_is_in_force_is_said_by_controllers_alone() {
    let mut house = House::new().await;
    let admin = json!({"metadata": {"name": "owner"}, "subjects": [{"kind": "User", "name": "owner",
        "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", admin).await.ok();
    house.user = User { name: "owner".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    let forged = json!({"value": "{\"ntpServers\":[]}", "status": {"conditions": [
        {"type": "configured", "status": "True"}]}});
    let after = house.patch(&format!("{SETTINGS}/ntp-servers"), "merge-patch", forged).await.ok();
    assert_eq!(configured(&after), ("Unknown", "NoEffectYet"));
}

#[tokio::test(start_paused = true)]
async fn a_newer_release_brings_its_defaults_and_leaves_what_somebody_set() {
    let store: Arc<dyn sheaf_store::Store> = Arc::new(embedded::in_memory().unwrap());
    let house = House::on(store.clone()).await;
    set(&house, "max-hotplug-ratio", "8").await.ok();
    house
        .server
        .ensure_object(
            "harvesterhci.io",
            "versions",
            "harvester-system",
            json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version", "metadata": {"name": "v0.9"},
        "spec": {"isoURL": "", "tags": ["running", "old"]}}),
        )
        .await
        .unwrap();
    let house = House::on(store).await;
    let setting = house.get(&format!("{SETTINGS}/max-hotplug-ratio")).await.ok();
    assert_eq!((&setting["value"], &setting["default"]), (&json!("8"), &json!("4")));
    let versions = house.get("/apis/harvesterhci.io/v1beta1/versions").await.ok();
    let tags: Vec<Value> =
        versions["items"].as_array().unwrap().iter().map(|one| one["spec"]["tags"].clone()).collect();
    assert_eq!(json!(tags), json!([["old"], ["running"]]), "one release runs");
}

#[tokio::test(start_paused = true)]
async fn a_setting_that_acts_acts_on_the_next_machine() {
    let house = House::new().await;
    set(&house, "default-vm-termination-grace-period-seconds", "7").await.ok();
    let made = house.post(MACHINES, machine("vm")).await.ok();
    assert_eq!(made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 7);
}
