//! One identity floods the server with slow requests: what becomes of everybody else's, and of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sheaf_apiserver::{ApiServer, dispatch::Peer, identity::MASTERS};
use sheaf_store::{Entry, Page, Range, Revision, Store, StoreError, Transaction, Watch, embedded};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    audit_log::known,
    house::{House, MAPS},
    visitors,
};

const SLOW: Duration = Duration::from_secs(1);

/// A disk that takes a second for everything that is written, and on which one may stumble.
#[derive(Debug)]
struct Slow {
    store: Arc<dyn Store>,
    is_slow: AtomicBool,
    panics: AtomicBool,
}

#[async_trait]
impl Store for Slow {
    async fn revision(&self) -> Result<Revision, StoreError> {
        self.store.revision().await
    }

    async fn compacted(&self) -> Result<Revision, StoreError> {
        self.store.compacted().await
    }

    async fn get(&self, key: &Bytes) -> Result<Option<Entry>, StoreError> {
        self.store.get(key).await
    }

    async fn range(&self, range: Range) -> Result<Page, StoreError> {
        self.store.range(range).await
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        assert!(!self.panics.load(Ordering::Relaxed), "on purpose");
        if self.is_slow.load(Ordering::Relaxed) {
            sleep(SLOW).await;
        }
        self.store.commit(transaction).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError> {
        self.store.watch(prefix, after).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

/// The server of a house on such a disk.
async fn slow() -> (ApiServer, Arc<Slow>) {
    let store = Arc::new(Slow {
        store: Arc::new(embedded::in_memory().unwrap()),
        is_slow: AtomicBool::new(false),
        panics: AtomicBool::new(false),
    });
    let house = House::on(store.clone()).await;
    house.config_map("m", json!({})).await;
    store.is_slow.store(true, Ordering::Relaxed);
    (house.server, store)
}

fn person(name: &str) -> Peer {
    known(name, &[MASTERS])
}

struct Answer {
    code: u16,
    retry_after: Option<String>,
    body: Value,
    took: Duration,
}

async fn ask(server: &ApiServer, peer: &Peer, method: Method, uri: &str, body: String) -> Answer {
    let began = Instant::now();
    let request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
    let response = server.handle(request.body(Full::new(Bytes::from(body))).unwrap(), peer).await;
    let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Answer { code, retry_after, body, took: began.elapsed() }
}

/// So many requests of one identity at once, each of which takes a second.
fn flood(server: &ApiServer, who: &str, requests: usize) -> Vec<tokio::task::JoinHandle<Answer>> {
    let one = |n: usize| {
        let (server, peer) = (server.clone(), person(who));
        let map = json!({"metadata": {"name": format!("{who}-{n}")}}).to_string();
        tokio::spawn(async move { ask(&server, &peer, Method::POST, MAPS, map).await })
    };
    (0..requests).map(one).collect()
}

/// One of the numbers of those who are neither nodes nor the cluster's own hands.
pub async fn gauge(server: &ApiServer, name: &str) -> u64 {
    let peer = known("system:sheaf:test", &[MASTERS]);
    let request = Request::get("/metrics").body(Full::new(Bytes::new())).unwrap();
    let page = server.handle(request, &peer).await.into_body().collect().await.unwrap().to_bytes();
    let page = String::from_utf8(page.to_vec()).unwrap();
    let name = format!("apiserver_flowcontrol_{name}{{priority_level=\"global-default\"");
    page.lines().find(|line| line.starts_with(&name)).unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_identity_holds_up_anothers_read_for_one_request_at_most() {
    let (server, _) = slow().await;
    let flood = flood(&server, "flood", 1_000);
    sleep(SLOW / 10).await;
    let other = person("other");
    for n in 0..4 {
        let read = ask(&server, &other, Method::GET, &format!("{MAPS}/m"), String::new()).await;
        assert_eq!(read.code, 200, "{n}");
        assert!(read.took <= SLOW, "{n}: {:?}", read.took);
        sleep(SLOW / 7).await;
    }
    let answers: Vec<Answer> = join_all(flood).await.into_iter().map(Result::unwrap).collect();
    let done = answers.iter().filter(|answer| answer.code == 201).count();
    assert_eq!(done, 128 + 256, "what has a seat or a place in the queue is served");
    let refused = answers.iter().find(|answer| answer.code == 429).unwrap();
    assert_eq!(refused.retry_after.as_deref(), Some("1"));
    assert_eq!(refused.body["reason"], "TooManyRequests");
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 1);
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_is_neither_held_up_nor_refused() {
    let (server, _) = slow().await;
    for round in 0..3 {
        let answers = join_all(flood(&server, &format!("admin{round}"), 64)).await;
        for answer in answers.into_iter().map(Result::unwrap) {
            assert_eq!(answer.code, 201);
            assert!(answer.took < SLOW + SLOW / 10, "{:?}", answer.took);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_alone_has_long_lists_on_many_connections_answered_at_once() {
    let (server, store) = slow().await;
    store.is_slow.store(false, Ordering::Relaxed);
    for part in ["a", "b", "c"] {
        for made in join_all(flood(&server, part, 300)).await {
            assert_eq!(made.unwrap().code, 201);
        }
    }
    // Ten seats each.
    for form in ["", "?labelSelector=a!%3Db", "?limit=1000"] {
        let uri = format!("{MAPS}{form}");
        let lists = (0..64).map(|_| {
            let (server, uri) = (server.clone(), uri.clone());
            tokio::spawn(
                async move { ask(&server, &person("admin"), Method::GET, &uri, String::new()).await },
            )
        });
        for answer in join_all(lists).await.into_iter().map(Result::unwrap) {
            assert_eq!((answer.code, answer.took), (200, Duration::ZERO), "{uri}");
            assert_eq!(answer.body["items"].as_array().unwrap().len(), 901, "{uri}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn health_checks_and_the_clusters_own_hands_wait_for_nobody() {
    let (server, _) = slow().await;
    let _flood = flood(&server, "flood", 500);
    sleep(SLOW / 10).await;
    assert!(gauge(&server, "current_inqueue_requests").await > 200);
    for (peer, uri) in [
        (Peer::default(), "/readyz"),
        (person("somebody"), "/livez"),
        (known("system:sheaf:controllers", &[MASTERS]), MAPS),
        (known("system:node:n1", &["system:nodes", "system:authenticated"]), "/api/v1/nodes"),
        (person("leader"), "/apis/coordination.k8s.io/v1/namespaces/default/leases/x"),
    ] {
        let answer = ask(&server, &peer, Method::GET, uri, String::new()).await;
        assert!(answer.took.is_zero(), "{uri}: {:?}", answer.took);
        assert_ne!(answer.code, 429, "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn watches_hold_no_seats_once_they_have_begun() {
    let (server, _) = slow().await;
    let mut watches = Vec::new();
    for _ in 0..1_000 {
        let request = Request::get(format!("{MAPS}?watch=1")).body(Full::new(Bytes::new())).unwrap();
        let watch = timeout(SLOW, server.handle(request, &person("watcher"))).await.unwrap();
        assert_eq!(watch.status(), 200);
        watches.push(watch);
    }
    assert_eq!(gauge(&server, "current_executing_requests").await, 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_go_away_take_nothing_with_them() {
    let (server, _) = slow().await;
    let flood = flood(&server, "flood", 300);
    sleep(SLOW / 10).await;
    assert_eq!(gauge(&server, "current_executing_seats").await, 128);
    assert_eq!(gauge(&server, "current_inqueue_requests").await, 300 - 128);
    for one in &flood {
        one.abort();
    }
    join_all(flood).await;
    assert_eq!(gauge(&server, "current_executing_seats").await, 0);
    assert_eq!(gauge(&server, "current_inqueue_requests").await, 0);
    let read = ask(&server, &person("flood"), Method::GET, MAPS, String::new()).await;
    assert!(read.took.is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gives_its_seat_back() {
    let (server, store) = slow().await;
    store.panics.store(true, Ordering::Relaxed);
    for result in join_all(flood(&server, "stumbles", 200)).await {
        assert!(result.is_err_and(|why| why.is_panic()));
    }
    store.panics.store(false, Ordering::Relaxed);
    assert_eq!(gauge(&server, "current_executing_seats").await, 0);
    assert_eq!(join_all(flood(&server, "goes-on", 1)).await.remove(0).unwrap().code, 201);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_in_a_namespace_with_a_quota_takes_no_seats_and_every_other_turn_at_most() {
    let (server, store) = slow().await;
    store.is_slow.store(false, Ordering::Relaxed);
    let quota =
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "1000"}}}).to_string();
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    assert_eq!(ask(&server, &person("admin"), Method::POST, quotas, quota).await.code, 201);
    store.is_slow.store(true, Ordering::Relaxed);
    let crowd = flood(&server, "crowd", 500);
    sleep(SLOW / 10).await;
    assert_eq!(gauge(&server, "current_executing_seats").await, 1, "of the one whose turn it is");
    let other = person("other");
    for _ in 0..4 {
        let reads = (0..64).map(|_| ask(&server, &other, Method::GET, MAPS, String::new()));
        for read in join_all(reads).await {
            assert_eq!(read.code, 200);
            assert!(read.took.is_zero(), "{:?}", read.took);
        }
        sleep(SLOW / 7).await;
    }
    for n in 0..3 {
        let map = json!({"metadata": {"name": format!("other-{n}")}}).to_string();
        let made = ask(&server, &other, Method::POST, MAPS, map).await;
        assert_eq!(made.code, 201);
        assert!(made.took <= 2 * SLOW, "its turn is the next: {:?}", made.took);
    }
    // Who has waited for long is told to come back, and everybody is answered.
    for answer in join_all(crowd).await.into_iter().map(Result::unwrap) {
        assert!(matches!(answer.code, 201 | 429), "{}", answer.code);
    }
    assert_eq!(gauge(&server, "current_executing_seats").await, 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_read_in_ranchers_words_takes_a_seat_like_anything_else() {
    let house = House::new().await;
    let anna = visitors::join_admin(&house, "anna").await;
    let bert = visitors::join(&house, "bert").await;
    let name = "dispatched_requests_total";
    for (who, uri) in [
        (&anna, "/v3/users"),
        (&bert, "/v3/users?me=true"),
        (&bert, "/v3/users/bert"),
        (&bert, "/v3/tokens"),
        (&bert, "/v3/principals"),
        (&bert, "/v3/clusters"),
        (&bert, "/v1/management.cattle.io.clusters/local"),
        (&bert, "/v1/userpreferences"),
        (&anna, "/v3/settings"),
    ] {
        let before = gauge(&house.server, name).await;
        visitors::bearing(&house, who, Method::GET, uri, Value::Null).await.ok();
        assert_eq!(gauge(&house.server, name).await - before, 1, "{uri}");
    }
    let before = gauge(&house.server, name).await;
    visitors::ask(&house, Method::GET, "/v1/management.cattle.io.settings", &[], "").await.ok();
    assert_eq!(gauge(&house.server, name).await - before, 1, "strangers share one queue");
    assert_eq!(gauge(&house.server, "current_executing_requests").await, 0, "and leave none behind");
}

/// Its body is held in memory for as long as it takes, whichever door it came through.
#[tokio::test(start_paused = true)]
async fn what_an_action_was_sent_has_its_room_until_it_is_done() {
    let store = Arc::new(Slow {
        store: Arc::new(embedded::in_memory().unwrap()),
        is_slow: AtomicBool::new(false),
        panics: AtomicBool::new(false),
    });
    let house = Arc::new(House::on(store.clone()).await);
    let token = visitors::join_admin(&house, "jo").await;
    store.is_slow.store(true, Ordering::Relaxed);
    let uri = "/v1/harvester/harvesterhci.io.keypairs?action=keygen";
    let one = |n: usize| {
        let (house, token) = (house.clone(), token.clone());
        let sent = json!({"name": format!("k-{n}"), "namespace": "default", "more": "x".repeat(1 << 20)});
        async move {
            let began = Instant::now();
            let said = visitors::bearing(&house, &token, Method::POST, uri, sent).await;
            (said.code, began.elapsed())
        }
    };
    // One identity has room for half of 64 MiB.
    let answers: Vec<(u16, Duration)> = join_all((0..40).map(one)).await;
    assert!(answers.iter().all(|(code, _)| *code == 200), "{answers:?}");
    let second = answers.iter().filter(|(_, took)| *took >= 2 * SLOW).count();
    assert!(second >= 8, "{second} waited for the room of those before them: {answers:?}");
}
