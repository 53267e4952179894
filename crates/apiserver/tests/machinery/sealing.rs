//! Secrets at rest.

use std::sync::{Arc, Mutex};

use http::Method;
use serde_json::json;
use sheaf_apiserver::{
    dispatch::ROTATE_KEY,
    encryption::{KeepKeys, KeyRing},
    identity::generate_key_pem,
};
use sheaf_store::{Range, Store, embedded};
use sheaf_world::World;

use crate::house::House;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Remembers every ring it was given, and can be told to fail.
#[derive(Default)]
struct Drawer {
    rings: Mutex<Vec<Vec<u8>>>,
    is_stuck: Mutex<bool>,
}

impl KeepKeys for Drawer {
    fn save(&self, ring: &KeyRing) -> Result<(), String> {
        if *self.is_stuck.lock().unwrap() {
            return Err("the drawer is stuck".into());
        }
        self.rings.lock().unwrap().push(ring.to_json().to_vec());
        Ok(())
    }
}

struct Vault {
    store: Arc<dyn Store>,
    drawer: Arc<Drawer>,
    signing: Vec<u8>,
    first: KeyRing,
}

impl Vault {
    fn new() -> Self {
        let world = World::seeded(5);
        Vault {
            store: Arc::new(embedded::in_memory().unwrap()),
            drawer: Arc::default(),
            signing: generate_key_pem(&world.chance).unwrap().as_bytes().to_vec(),
            first: KeyRing::generate(&world),
        }
    }

    /// A server that starts with `ring`.
    async fn open(&self, seed: u64, ring: KeyRing) -> House {
        House::with_keys(self.store.clone(), World::seeded(seed), &self.signing, ring, self.drawer.clone())
            .await
    }

    fn saved(&self, n: usize) -> KeyRing {
        KeyRing::from_json(&self.drawer.rings.lock().unwrap()[n]).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_rotation_the_new_key_opens_everything_and_the_old_one_nothing() {
    let vault = Vault::new();
    let house = vault.open(6, vault.first.clone()).await;
    for n in 0..20 {
        house
            .post(SECRETS, json!({"metadata": {"name": format!("s{n}")}, "stringData": {"n": n.to_string()}}))
            .await
            .ok();
    }
    let answer = house.send(Method::POST, ROTATE_KEY, &[], "").await.ok();
    assert_eq!(answer["resealed"], 20);
    assert_eq!(house.get(&format!("{SECRETS}/s7")).await.ok()["data"]["n"], "Nw==");
    drop(house);
    let again = vault.open(7, vault.saved(1)).await;
    assert_eq!(again.get(SECRETS).await.ok()["items"].as_array().unwrap().len(), 20);
    let old = vault.open(8, vault.first.clone()).await;
    assert_eq!(old.get(SECRETS).await.ok()["items"].as_array().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rotation_that_a_crash_cut_short_is_finished_at_the_next_start() {
    let vault = Vault::new();
    let house = vault.open(6, vault.first.clone()).await;
    house.post(SECRETS, json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).await.ok();
    drop(house);
    // The crash came right after the ring was saved: both keys are there, nothing is resealed.
    let both = vault.first.rotate(&World::seeded(9));
    let house = vault.open(10, both.clone()).await;
    assert_eq!(house.get(&format!("{SECRETS}/s")).await.ok()["data"]["a"], "Yg==");
    assert_eq!(vault.saved(0).keys().count(), 1);
    let after = vault.open(11, vault.saved(0)).await;
    assert_eq!(after.get(&format!("{SECRETS}/s")).await.ok()["data"]["a"], "Yg==");
}

#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_saved_are_not_used() {
    let vault = Vault::new();
    let house = vault.open(6, vault.first.clone()).await;
    *vault.drawer.is_stuck.lock().unwrap() = true;
    let refused = house.send(Method::POST, ROTATE_KEY, &[], "").await;
    assert_eq!(refused.refusal(), (500, "InternalError"));
    house.post(SECRETS, json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).await.ok();
    drop(house);
    let again = vault.open(7, vault.first.clone()).await;
    assert_eq!(again.get(&format!("{SECRETS}/s")).await.ok()["data"]["a"], "Yg==");
}

#[tokio::test(start_paused = true)]
async fn the_store_never_holds_a_secret_in_clear() {
    let house = House::new().await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2-hunter2"}});
    let made = house.post(SECRETS, secret).await.ok();
    assert_eq!(made["data"]["password"], "aHVudGVyMi1odW50ZXIy");
    assert!(made.get("stringData").is_none());
    let page =
        house.store.range(Range { prefix: "/o/core/secrets/".into(), ..Range::default() }).await.unwrap();
    assert!(!page.entries.is_empty());
    for entry in &page.entries {
        let text = String::from_utf8_lossy(&entry.value);
        assert!(
            !text.contains("aHVudGVyMi1odW50ZXIy") && !text.contains("hunter2") && !text.contains("password")
        );
    }
    // And it is read back, also by a list at an exact version, which comes from the store.
    let list = house.get("/api/v1/secrets?limit=1").await.ok();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let exact =
        house.get(&format!("{SECRETS}?resourceVersion={version}&resourceVersionMatch=Exact")).await.ok();
    assert_eq!(exact["items"][0]["data"]["password"], "aHVudGVyMi1odW50ZXIy");
}
