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

#[tokio::test(start_paused = true)]
async fn nothing_lands_in_a_namespace_that_the_other_server_is_ending() {
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    for n in 0..50 {
        let namespace = format!("n{n}");
        one.post("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await.ok();
        other.get(&format!("/api/v1/namespaces/{namespace}")).await.ok();
        let uri = format!("/api/v1/namespaces/{namespace}/configmaps");
        let address = format!("/api/v1/namespaces/{namespace}");
        let (ended, created) =
            tokio::join!(one.delete(&address), other.post(&uri, json!({"metadata": {"name": "a"}})));
        let ended = ended.ok();
        let listed = one.get(&uri).await.ok();
        match created.code {
            // Then it came first, and whoever empties the namespace sees it.
            201 => {
                assert!(version(&created.body) < version(&ended), "{namespace}");
                assert_eq!(listed["items"].as_array().unwrap().len(), 1);
            }
            code => {
                assert_eq!(code, 403, "{:#}", created.body);
                assert!(listed["items"].as_array().unwrap().is_empty());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_changes_meanwhile_stops_nobody() {
    let house = std::rc::Rc::new(House::new().await);
    let writes = (0..30).map(|n| {
        let house = house.clone();
        async move {
            let label = json!({"metadata": {"labels": {"n": n.to_string()}}});
            house.patch("/api/v1/namespaces/default", "merge-patch", label).await.ok();
            house.config_map(&format!("m{n}"), json!({})).await;
        }
    });
    futures::future::join_all(writes).await;
    assert_eq!(house.get(MAPS).await.ok()["items"].as_array().unwrap().len(), 30);
    assert_eq!(house.post("/api/v1/configmaps", json!({})).await.refusal(), (405, "MethodNotAllowed"));
    assert_eq!(house.delete("/api/v1/configmaps").await.refusal(), (405, "MethodNotAllowed"));
}

#[tokio::test(start_paused = true)]
async fn of_two_images_with_one_name_for_people_made_at_once_through_two_servers_one_is_made() {
    const IMAGES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachineimages";
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    for round in 0..30 {
        let image = |server: &str| {
            json!({"metadata": {"name": format!("{server}-{round}")},
                "spec": {"displayName": format!("debian-{round}"), "sourceType": "upload"}})
        };
        let (first, second) =
            tokio::join!(one.post(IMAGES, image("one")), other.post(IMAGES, image("other")));
        let mut codes = [first.code, second.code];
        codes.sort();
        assert_eq!(codes, [201, 422], "{:#} {:#}", first.body, second.body);
    }
    // Other names do not get into each other's way for long.
    let many = (0..20).map(|n| {
        let server = if n % 2 == 0 { &one } else { &other };
        let image = json!({"metadata": {"name": format!("many-{n}")},
            "spec": {"displayName": format!("many {n}"), "sourceType": "upload"}});
        async move { server.post(IMAGES, image).await.ok() }
    });
    futures::future::join_all(many).await;
    assert_eq!(one.get(IMAGES).await.ok()["items"].as_array().unwrap().len(), 50);
}
