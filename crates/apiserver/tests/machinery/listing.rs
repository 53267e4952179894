//! Reading many objects: pages, versions, selectors, tables.

use http::Method;
use serde_json::json;

use crate::house::{House, MAPS, version};

async fn house_with(count: usize) -> House {
    let house = House::new().await;
    for n in 0..count {
        let parity = if n % 2 == 0 { "even" } else { "odd" };
        let object = json!({"metadata": {"name": format!("m{n:03}"), "labels": {"parity": parity}}, "data": {"n": n.to_string()}});
        house.post(MAPS, object).await.ok();
    }
    house
}

fn names(list: &serde_json::Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_while_writers_go_on() {
    let house = house_with(25).await;
    let mut seen = Vec::new();
    let mut token = String::new();
    let mut revision = None;
    loop {
        let page = house.get(&format!("{MAPS}?limit=10&continue={token}")).await.ok();
        assert_eq!(
            *revision.get_or_insert(page["metadata"]["resourceVersion"].clone()),
            page["metadata"]["resourceVersion"]
        );
        seen.extend(
            page["items"]
                .as_array()
                .unwrap()
                .iter()
                .map(|i| (i["metadata"]["name"].clone(), i["data"]["n"].clone())),
        );
        // Between pages, everything moves.
        house.delete(&format!("{MAPS}/m024")).await;
        house.config_map(&format!("late{}", seen.len()), json!({})).await;
        house.patch(&format!("{MAPS}/m020"), "merge-patch", json!({"data": {"n": "changed"}})).await.ok();
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_string(),
            None => break,
        }
    }
    let expected: Vec<_> = (0..25).map(|n| (json!(format!("m{n:03}")), json!(n.to_string()))).collect();
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn the_first_page_says_how_many_remain() {
    let house = house_with(25).await;
    let page = house.get(&format!("{MAPS}?limit=10")).await.ok();
    assert_eq!(page["metadata"]["remainingItemCount"], 15);
    let page = house.get(&format!("{MAPS}?limit=5&labelSelector=parity%3Deven")).await.ok();
    assert!(page["metadata"].get("remainingItemCount").is_none());
    assert_eq!(names(&page), ["m000", "m002", "m004", "m006", "m008"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_history_is_gone_is_expired_and_offers_a_way_on() {
    let house = house_with(5).await;
    let page = house.get(&format!("{MAPS}?limit=2")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    house.config_map("z", json!({})).await;
    let newest = house.store.revision().await.unwrap();
    house.store.compact(newest).await.unwrap();
    let gone = house.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    assert_eq!(gone.refusal(), (410, "Expired"));
    let fresh = gone.body["metadata"]["continue"].as_str().unwrap();
    let rest = house.get(&format!("{MAPS}?limit=10&continue={fresh}")).await.ok();
    assert_eq!(names(&rest), ["m002", "m003", "m004", "z"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_the_version_it_is_asked_for() {
    let house = house_with(2).await;
    let before = house.get(MAPS).await.ok();
    let at = before["metadata"]["resourceVersion"].as_str().unwrap();
    house.delete(&format!("{MAPS}/m000")).await.ok();
    let exactly = house.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!(names(&exactly), ["m000", "m001"]);
    let fresh =
        house.get(&format!("{MAPS}?resourceVersion={at}&resourceVersionMatch=NotOlderThan")).await.ok();
    assert_eq!(names(&fresh), ["m001"]);
    assert_eq!(names(&house.get(&format!("{MAPS}?resourceVersion=0")).await.ok()), ["m001"]);
    let future = house.get(&format!("{MAPS}?resourceVersion=999999")).await;
    assert_eq!(future.refusal(), (504, "Timeout"));
    assert_eq!(future.body["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
}

#[tokio::test(start_paused = true)]
async fn selectors_choose_and_bad_ones_are_refused() {
    let house = house_with(4).await;
    let get = async |query: &str| house.get(&format!("{MAPS}?{query}")).await;
    assert_eq!(names(&get("labelSelector=parity%20in%20(odd)").await.ok()), ["m001", "m003"]);
    assert_eq!(names(&get("labelSelector=!parity").await.ok()), Vec::<&str>::new());
    assert_eq!(names(&get("fieldSelector=metadata.name%3Dm002").await.ok()), ["m002"]);
    assert_eq!(get("labelSelector=a%20b%20c").await.refusal(), (400, "BadRequest"));
    assert_eq!(get("fieldSelector=spec.x%3D1").await.refusal(), (400, "BadRequest"));
    assert_eq!(get("limit=x").await.refusal(), (400, "BadRequest"));
    assert_eq!(get("continue=rubbish").await.refusal(), (400, "BadRequest"));
    assert_eq!(get("resourceVersion=x").await.refusal(), (400, "BadRequest"));
}

#[tokio::test(start_paused = true)]
async fn a_table_has_the_columns_kubectl_prints() {
    let house = house_with(1).await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let table = house.send(Method::GET, MAPS, &accept, "").await.ok();
    assert_eq!(table["kind"], "Table");
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["m000", 1, "0s"]));
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[tokio::test(start_paused = true)]
async fn built_in_items_leave_their_kind_to_the_list() {
    let house = house_with(1).await;
    let list = house.get(MAPS).await.ok();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert!(list["items"][0].get("kind").is_none());
    assert!(version(&list["items"][0]) <= version(&list));
}

#[tokio::test(start_paused = true)]
async fn large_lists_come_whole() {
    let house = House::new().await;
    let filler = "x".repeat(2000);
    for n in 0..200 {
        house.config_map(&format!("m{n:03}"), json!({"filler": filler})).await;
    }
    let list = house.get(MAPS).await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["data"]["filler"] == filler));
}
