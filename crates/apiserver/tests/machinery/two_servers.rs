//! Two API servers on one store: each sees what the other wrote, at once.

use serde_json::json;

use crate::house::{House, MAPS, version};

#[tokio::test(start_paused = true)]
async fn a_write_through_one_is_read_through_the_other() {
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    for n in 0..200 {
        let made = one.config_map(&format!("m{n}"), json!({"n": n.to_string()})).await;
        assert_eq!(other.get(&format!("{MAPS}/m{n}")).await.ok(), made);
        let changed =
            other.patch(&format!("{MAPS}/m{n}"), "merge-patch", json!({"data": {"n": "x"}})).await.ok();
        assert_eq!(one.get(MAPS).await.ok()["items"].as_array().unwrap().len(), n + 1);
        assert_eq!(version(&one.get(&format!("{MAPS}/m{n}")).await.ok()), version(&changed));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_made_through_one_takes_objects_through_the_other() {
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    for n in 0..50 {
        one.post("/api/v1/namespaces", json!({"metadata": {"name": format!("n{n}")}})).await.ok();
        other
            .post(&format!("/api/v1/namespaces/n{n}/configmaps"), json!({"metadata": {"name": "a"}}))
            .await
            .ok();
    }
}
