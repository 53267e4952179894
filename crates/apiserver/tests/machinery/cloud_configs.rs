//! What machines are told at their first start is something that a guest can read.

use serde_json::{Value, json};

use crate::house::House;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn map(name: &str, sort: &str, text: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"harvesterhci.io/cloud-init-template": sort}},
        "data": {"cloudInit": text}})
}

fn secret(sort: &str, data: Value) -> Value {
    json!({"metadata": {"name": "s", "labels": {"harvesterhci.io/cloud-init-template": sort}}, "stringData": data})
}

#[tokio::test(start_paused = true)]
async fn a_template_for_cloud_init_is_one_that_can_be_used() {
    let house = House::new().await;
    for (sort, text, words) in [
        ("user", "#cloud-config\na: [", "is not YAML"),
        ("user", "just words", "must be a YAML mapping"),
        ("user", "", "has its text there"),
        ("network", "ethernets: {}", "must say version: 1 or version: 2"),
        ("both", "a: b", "Unsupported value: \"both\""),
    ] {
        let answer = house.post(MAPS, map("m", sort, text)).await;
        assert!(answer.code == 422 && answer.message().contains(words), "{sort} {text}: {:?}", answer.body);
    }
    house.post(MAPS, map("user", "user", "#cloud-config\npackages: [vim]\n")).await.ok();
    house.post(MAPS, map("network", "network", "version: 2\nethernets: {}\n")).await.ok();
    let broken = json!({"data": {"cloudInit": "["}});
    assert_eq!(house.patch(&format!("{MAPS}/user"), "merge-patch", broken).await.refusal().0, 422);
    house.post(MAPS, json!({"metadata": {"name": "other"}, "data": {"cloudInit": "["}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_machines_secret_for_cloud_init_is_checked_and_never_told() {
    let house = House::new().await;
    for (sort, data) in [
        ("harvester", json!({"other": "x"})),
        ("harvester", json!({"userdata": "#cloud-config\npassword: [hush"})),
        ("harvester", json!({"networkdata": "hush"})),
        ("user", json!({"userdata": "#cloud-config\na: b"})),
    ] {
        let answer = house.post(SECRETS, secret(sort, data.clone())).await;
        assert_eq!(answer.refusal().0, 422, "{data}");
        assert!(!answer.body.to_string().contains("hush"), "{:?}", answer.body);
    }
    house
        .post(
            SECRETS,
            secret("harvester", json!({"userdata": "#cloud-config\npassword: hush", "networkdata": ""})),
        )
        .await
        .ok();
}
