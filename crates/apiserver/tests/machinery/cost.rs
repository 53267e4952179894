//! What the audit log adds to the cost of a request. `cargo test --release -p sheaf-apiserver --test machinery cost --
//! --ignored --nocapture` prints it.

use http::Method;
use serde_json::json;
use sheaf_apiserver::{
    audit::{Level, Limits},
    dispatch::Peer,
    identity::MASTERS,
};
use tokio::time::Instant;

use crate::{
    audit_log::{Audited, known},
    house::{House, MAPS},
};

const ROUNDS: u32 = 20_000;

async fn gets(house: &House, peer: &Peer) -> f64 {
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let request = http::Request::builder()
            .method(Method::GET)
            .uri(format!("{MAPS}/m"))
            .header("user-agent", "kubectl/v1.34.1 (linux/amd64) kubernetes/abcdef0")
            .body(http_body_util::Full::new(bytes::Bytes::new()))
            .unwrap();
        assert_eq!(house.server.handle(request, peer).await.status(), 200);
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

#[tokio::test]
#[ignore = "measures and asserts nothing"]
async fn cost_of_a_get_with_and_without_an_audit_log() {
    let off = House::new().await;
    let metadata = Audited::new(Level::Metadata, Limits::default()).await;
    let all = Audited::new(Level::RequestResponse, Limits::default()).await;
    for house in [&off, &metadata.house, &all.house] {
        house.config_map("m", json!({"note": "x".repeat(200)})).await;
    }
    let (person, own) = (known("root", &[MASTERS]), known("system:sheaf:controllers", &[MASTERS]));
    for round in 0..5 {
        println!(
            "round {round}: off {:.2} us, Metadata {:.2} us, RequestResponse {:.2} us, left out {:.2} us",
            gets(&off, &person).await,
            gets(&metadata.house, &person).await,
            gets(&all.house, &person).await,
            gets(&metadata.house, &own).await,
        );
    }
}
