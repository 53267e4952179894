//! Sessions and tokens that are over: whatever was under way when they ended ends with them, and none stands in the way
//! of a new one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::{BodyStream, Full};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sheaf_apiserver::dispatch::Peer;
use sheaf_store::{Entry, Page, Range, Revision, Store, StoreError, Transaction, Watch};
use tokio::time::{sleep, timeout};

use crate::{
    house::{House, MAPS},
    visitors::{
        Browser, LOGIN, TOKENS_API, USERS_API, ask, bearing, bind, join, join_admin, login, password, token,
    },
};

const KUBECONFIG: &str = "/v3/clusters/local?action=generateKubeconfig";
const NEW: &str = "something else altogether";

/// A store whose news come late, once they do.
#[derive(Debug)]
struct Late {
    store: Arc<dyn Store>,
    is_late: Arc<AtomicBool>,
}

#[async_trait]
impl Store for Late {
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
        self.store.commit(transaction).await
    }

    async fn watch(&self, prefix: Bytes, after: Revision) -> Result<Watch, StoreError> {
        let is_late = self.is_late.clone();
        let news = self.store.watch(prefix, after).await?;
        Ok(Box::pin(news.then(move |change| {
            let is_late = is_late.load(Ordering::Relaxed);
            async move {
                if is_late {
                    sleep(Duration::from_secs(1)).await;
                }
                change
            }
        })))
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_password_opens_nothing_through_a_server_that_has_not_heard_of_the_new_one() {
    let one = House::new().await;
    let is_late = Arc::new(AtomicBool::new(false));
    let late = Late { store: one.store.clone(), is_late: is_late.clone() };
    let other = House::on(Arc::new(late)).await;
    join_admin(&one, "anna").await;
    let before = token(&other, "anna").await;
    is_late.store(true, Ordering::Relaxed);
    one.server.users().set_password("anna", NEW, false).await.unwrap();
    assert_eq!(login(&other, "anna", &password("anna"), "token").await.code, 401);
    assert_eq!(login(&other, "anna", NEW, "token").await.code, 201);
    assert_eq!(bearing(&other, &before, Method::GET, MAPS, Value::Null).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn who_signs_in_while_the_password_changes_is_in_with_the_new_one_or_not_at_all() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let wish = json!({"username": "anna", "password": password("anna")}).to_string();
    let (signed_in, changed) = tokio::join!(
        ask(&house, Method::POST, LOGIN, &[], &wish),
        house.server.users().set_password("anna", NEW, false)
    );
    changed.unwrap();
    if let Some(token) = signed_in.body["token"].as_str() {
        assert_eq!(bearing(&house, token, Method::GET, MAPS, Value::Null).await.code, 401);
    }
    assert_eq!(login(&house, "anna", NEW, "token").await.code, 201);
}

#[tokio::test(start_paused = true)]
async fn what_a_session_makes_while_it_ends_ends_with_it() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    for round in 0..6 {
        let (making, ending) = (token(&house, "anna").await, token(&house, "anna").await);
        let make = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            bearing(&house, &making, Method::POST, KUBECONFIG, Value::Null).await
        };
        let end = bearing(&house, &ending, Method::POST, "/v3/tokens?action=logoutAll", Value::Null);
        let (made, ended) = tokio::join!(make, end);
        assert_eq!(ended.code, 200, "{}", ended.text);
        assert!([200, 401].contains(&made.code), "{}", made.text);
        let left = house.get(TOKENS_API).await.ok();
        assert_eq!(left["items"].as_array().unwrap().len(), 0, "round {round}: {}", made.code);
        assert_eq!(bearing(&house, &making, Method::POST, KUBECONFIG, Value::Null).await.code, 401);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cookie_that_is_worth_nothing_keeps_nobody_from_what_everybody_sees() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let (ended, good) = (Browser::sign_in(&house, "anna").await, Browser::sign_in(&house, "anna").await);
    ended.ask(&house, Method::POST, "/v3/tokens?action=logout", Value::Null).await.ok();
    for cookie in [
        ended.cookies(),
        format!("R_SESS={}; R_SESS={}", good.session, ended.session),
        "R_SESS=a.b.c".to_owned(),
        "R_SESS=token-aaaaa:wrong".to_owned(),
    ] {
        let cookie = [("cookie", cookie.as_str())];
        for public in [
            "/healthz",
            "/version",
            "/v3-public/localProviders",
            "/v1/management.cattle.io.settings",
            "/v3/settings/server-version",
        ] {
            let said = ask(&house, Method::GET, public, &cookie, "").await;
            assert_eq!(
                said.code,
                ask(&house, Method::GET, public, &[], "").await.code,
                "{public} {cookie:?}"
            );
            assert!(said.code != 401 || public.contains("server-version"), "{public}");
        }
        for (method, other) in [
            (Method::GET, MAPS),
            (Method::GET, "/v3/users?me=true"),
            (Method::GET, "/v1/schemas"),
            (Method::GET, "/metrics"),
            (Method::PUT, "/v3/settings/server-url"),
            (Method::POST, KUBECONFIG),
        ] {
            assert_eq!(ask(&house, method, other, &cookie, "{}").await.code, 401, "{other}");
        }
        let wish = json!({"username": "anna", "password": password("anna"), "responseType": "cookie"});
        let said = ask(&house, Method::POST, LOGIN, &cookie, &wish.to_string()).await;
        assert_eq!((said.code, said.cookies.len()), (200, 2), "{}", said.text);
    }
    // What somebody put there on purpose they hear of, everywhere.
    let bad = [("authorization", "Bearer token-aaaaa:wrong")];
    assert_eq!(ask(&house, Method::GET, "/healthz", &bad, "").await.code, 401);
}

/// A token as somebody writes it by hand, who knows its secret.
fn by_hand(user: &str) -> (Value, String) {
    let hash: String = Sha256::digest("secret").iter().map(|byte| format!("{byte:02x}")).collect();
    let token = json!({
        "metadata": {"name": "token-hand"}, "userId": user, "token": format!("sha256:{hash}"), "enabled": true,
        "isDerived": true, "ttl": 0,
    });
    (token, "token-hand:secret".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_written_by_hand_is_for_the_user_of_then_and_not_for_the_next() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let (object, bearer) = by_hand("anna");
    let made = house.post(TOKENS_API, object).await.ok();
    let anna = house.get(&format!("{USERS_API}/anna")).await.ok();
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], anna["metadata"]["uid"]);
    assert_eq!(bearing(&house, &bearer, Method::GET, MAPS, Value::Null).await.code, 200);
    house.delete(&format!("{USERS_API}/anna")).await.ok();
    house.patch(&format!("{USERS_API}/anna"), "merge-patch", json!({"metadata": {"finalizers": null}})).await;
    join(&house, "anna").await;
    // No garbage collector runs here: the token is still there, and so is what was bound.
    assert_eq!(house.get(&format!("{TOKENS_API}/token-hand")).await.code, 200);
    assert_eq!(bearing(&house, &bearer, Method::GET, MAPS, Value::Null).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_token_for_a_name_that_nobody_has_waits_for_nobody() {
    let house = House::new().await;
    let (object, bearer) = by_hand("anna");
    house.post(TOKENS_API, object).await.ok();
    bind(&house, "anna", "cluster-admin").await;
    join(&house, "anna").await;
    assert_eq!(bearing(&house, &bearer, Method::GET, MAPS, Value::Null).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_with_the_session_that_opened_it() {
    let house = House::new().await;
    let anna = join_admin(&house, "anna").await;
    let request = Request::builder()
        .uri(format!("{MAPS}?watch=1"))
        .header("authorization", format!("Bearer {anna}"))
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = house.server.handle(request, &Peer::default()).await;
    assert_eq!(response.status(), 200);
    let mut pieces = BodyStream::new(response.into_body());
    house.post(MAPS, json!({"metadata": {"name": "seen"}})).await.ok();
    assert!(pieces.next().await.is_some());
    assert!(timeout(Duration::from_secs(60), pieces.next()).await.is_err(), "it goes on while they are in");
    bearing(&house, &anna, Method::POST, "/v3/tokens?action=logout", json!({})).await;
    let to_its_end = async { while pieces.next().await.is_some() {} };
    timeout(Duration::from_secs(60), to_its_end).await.expect("and no longer");
}
