//! Addons, none of which is run, the release that runs, and kinds that nothing acts on.

use serde_json::json;

use crate::house::House;

const ADDONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/addons";
const VERSIONS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/versions";

#[tokio::test(start_paused = true)]
async fn shipped_addons_are_listed_off_and_none_pretends() {
    let house = House::new().await;
    let all = house.get("/apis/harvesterhci.io/v1beta1/addons").await.ok();
    let items = all["items"].as_array().unwrap();
    assert_eq!(items.len(), 8);
    for addon in items {
        assert_eq!(
            (&addon["status"]["status"], &addon["spec"]["enabled"]),
            (&json!("AddonDisabled"), &json!(false))
        );
    }
    let uri = format!("{ADDONS}/pcidevices-controller");
    let before = house.get(&uri).await.ok();
    let answer = house.patch(&uri, "merge-patch", json!({"spec": {"enabled": true}})).await;
    assert!(
        answer.code == 422 && answer.message().contains("Sheaf does not run the addon"),
        "{:?}",
        answer.body
    );
    assert_eq!(house.delete(&uri).await.refusal(), (403, "Forbidden"));
    assert_eq!(house.get(&uri).await.ok(), before);
    let mut own = before.clone();
    own["metadata"] = json!({"name": "my-own"});
    assert!(house.post(ADDONS, own).await.message().contains("no others can be made"));
    let namespace = house.delete("/api/v1/namespaces/cattle-monitoring-system").await;
    assert_eq!(namespace.refusal(), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn the_release_that_runs_is_listed_and_no_other_can_be_made() {
    let house = House::new().await;
    let versions = house.get(VERSIONS).await.ok();
    assert_eq!(versions["items"][0]["metadata"]["name"], "v1.8.1");
    let other = json!({"metadata": {"name": "v9"}, "spec": {"isoURL": "https://example.com/x.iso"}});
    assert_eq!(house.post(VERSIONS, other).await.refusal(), (405, "MethodNotAllowed"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nothing_acts_on_is_not_there_at_all() {
    let house = House::new().await;
    for plural in ["volumeremoterestores", "volumeremotebackups", "upgrades", "preferences"] {
        let uri = format!("/apis/harvesterhci.io/v1beta1/namespaces/default/{plural}/x");
        assert_eq!(house.get(&uri).await.code, 404, "{plural}");
    }
}
