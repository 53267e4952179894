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
        ("user", "#cloud-config\njust words", "must be a YAML mapping"),
        ("user", "", "has its text there"),
        ("network", "- version: 2", "must be a YAML mapping"),
        ("both", "a: b", "Unsupported value: \"both\""),
    ] {
        let answer = house.post(MAPS, map("m", sort, text)).await;
        assert!(answer.code == 422 && answer.message().contains(words), "{sort} {text}: {:?}", answer.body);
    }
    house.post(MAPS, map("user", "user", "#cloud-config\npackages: [vim]\n")).await.ok();
    house.post(MAPS, map("network", "network", "version: 2\nethernets: {}\n")).await.ok();
    let broken = json!({"data": {"cloudInit": "#cloud-config\n["}});
    assert_eq!(house.patch(&format!("{MAPS}/user"), "merge-patch", broken).await.refusal().0, 422);
    house.post(MAPS, json!({"metadata": {"name": "other"}, "data": {"cloudInit": "["}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn what_cloud_init_may_pass_over_is_let_in_with_a_warning() {
    let house = House::new().await;
    for (sort, text, words) in [
        ("user", "just words", "does not begin with #cloud-config"),
        ("user", "#cloud-config\na: 1\n---\nb: 2\n", "several documents"),
        ("network", "ethernets: {}", "does not say version: 1 or version: 2"),
    ] {
        let name = format!("m{}", words.len());
        let made = house.post(MAPS, map(&name, sort, text)).await;
        assert_eq!(made.code, 201, "{:?}", made.body);
        assert!(made.warnings.iter().any(|warning| warning.contains(words)), "{:?}", made.warnings);
    }
}

#[tokio::test(start_paused = true)]
async fn a_machines_secret_for_cloud_init_is_checked_and_never_told() {
    let house = House::new().await;
    for (sort, data) in [
        ("harvester", json!({"other": "x"})),
        ("harvester", json!({"userdata": "#cloud-config\npassword: [hush"})),
        ("harvester", json!({"networkdata": "[hush"})),
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
