//! `/v1/subscribe` over a real WebSocket.

use std::{sync::Arc, time::Duration};

use futures::{SinkExt, StreamExt};
use http::{Request, header};
use http_body_util::Empty;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sheaf_apiserver::{ApiServer, dispatch::Peer, identity::User};
use tokio::{io::duplex, time::timeout};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};

use crate::{
    facade::{allow, as_viewer, jo, namespace},
    house::{House, MAPS},
};

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// A connection to the server whose requests come from `user`; the answer's code, and the socket if there is one.
async fn connect(server: &ApiServer, user: &User, headers: &[(&str, &str)]) -> (u16, Option<Socket>) {
    let (ours, theirs) = duplex(64 * 1024);
    let (server, peer) = (server.clone(), Peer { identity: Some(Arc::new(user.clone())), ..Peer::default() });
    tokio::spawn(async move {
        let service = service_fn(move |request| {
            let (server, peer) = (server.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(server.handle(request, &peer).await) }
        });
        let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).with_upgrades().await;
    });
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    let mut request = Request::get("/v1/harvester/subscribe")
        .header(header::HOST, "sheaf.example")
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "websocket")
        .header(header::SEC_WEBSOCKET_VERSION, "13")
        .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ==");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    if code != 101 {
        return (code, None);
    }
    let stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    (code, Some(WebSocketStream::from_raw_socket(stream, Role::Client, None).await))
}

struct Subscriber(Socket);

impl Subscriber {
    async fn of(house: &House, user: &User) -> Self {
        Subscriber(connect(&house.server, user, &[]).await.1.unwrap())
    }

    async fn ask(&mut self, wish: Value) {
        self.0.send(Message::text(wish.to_string())).await.unwrap();
    }

    /// The next event that is no ping.
    async fn next(&mut self) -> Value {
        loop {
            let message =
                timeout(Duration::from_secs(60), self.0.next()).await.expect("an event").unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            if event["name"] != "ping" {
                return event;
            }
        }
    }

    /// `NAME id` of the next event.
    async fn told(&mut self) -> String {
        let event = self.next().await;
        format!("{} {}", event["name"].as_str().unwrap(), event["data"]["id"].as_str().unwrap_or("-"))
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_as_they_come_dressed_like_everything_else() {
    let house = House::new().await;
    let before = house.config_map("old", json!({})).await;
    let mut client = Subscriber::of(&house, &house.user).await;
    let from = before["metadata"]["resourceVersion"].clone();
    client.ask(json!({"resourceType": "configmaps", "namespace": "default", "resourceVersion": from})).await;
    assert_eq!(
        client.next().await,
        json!({"name": "resource.start", "resourceType": "configmaps", "namespace": "default"})
    );
    house.config_map("a", json!({"k": "v"})).await;
    let event = client.next().await;
    assert_eq!((&event["name"], &event["resourceType"]), (&json!("resource.create"), &json!("configmaps")));
    let data = &event["data"];
    assert_eq!((&data["id"], &data["type"]), (&json!("default/a"), &json!("configmap")));
    assert_eq!(data["links"]["self"], "https://sheaf.example/v1/harvester/configmaps/default/a");
    assert!(data["metadata"]["fields"].is_array() && data["metadata"]["state"]["name"] == "active");
    assert_eq!(event["revision"], data["metadata"]["resourceVersion"]);
    house.patch(&format!("{MAPS}/a"), "merge-patch", json!({"data": {"k": "w"}})).await.ok();
    assert_eq!(client.told().await, "resource.change default/a");
    house.delete(&format!("{MAPS}/a")).await.ok();
    assert_eq!(client.told().await, "resource.remove default/a");
    // Asking for the same again changes nothing.
    client.ask(json!({"resourceType": "configmaps", "namespace": "default"})).await;
    client.ask(json!({"resourceType": "configmaps", "namespace": "default", "stop": true})).await;
    assert_eq!(client.next().await["name"], "resource.stop");
    house.config_map("b", json!({})).await;
    client.ask(json!({"resourceType": "configmap", "id": "default/b"})).await;
    assert_eq!(client.told().await, "resource.start -");
    assert_eq!(
        client.told().await,
        "resource.create default/b",
        "one that asks from nowhere gets what there is"
    );
    house.config_map("c", json!({})).await;
    house.delete(&format!("{MAPS}/b")).await.ok();
    assert_eq!(client.told().await, "resource.remove default/b", "and nothing of others");
}

#[tokio::test(start_paused = true)]
async fn several_collections_come_over_one_connection() {
    let house = House::new().await;
    let mut client = Subscriber::of(&house, &house.user).await;
    for kind in ["configmap", "secret"] {
        client.ask(json!({"resourceType": kind, "selector": "mine=yes"})).await;
        assert_eq!(client.next().await["selector"], "mine=yes");
    }
    house.config_map("not-mine", json!({})).await;
    let mine = json!({"metadata": {"name": "x", "labels": {"mine": "yes"}}});
    house.post("/api/v1/namespaces/default/secrets", mine.clone()).await.ok();
    assert_eq!(client.told().await, "resource.create default/x");
    house.post(MAPS, mine).await.ok();
    let event = client.next().await;
    assert_eq!((&event["data"]["type"], &event["selector"]), (&json!("configmap"), &json!("mine=yes")));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_watched_is_told_and_ends() {
    let house = House::new().await;
    let mut client = Subscriber::of(&house, &house.user).await;
    client.ask(json!({"resourceType": "nothing"})).await;
    let error = client.next().await;
    assert_eq!(
        (&error["name"], &error["data"]["error"]),
        (&json!("resource.error"), &json!("failed to find schema nothing"))
    );
    assert_eq!(client.told().await, "resource.stop -");
    client.0.send(Message::text("{")).await.unwrap();
    assert_eq!(client.next().await["name"], "resource.error");
    client.ask(json!({"resourceType": "configmap", "selector": "a=(("})).await;
    assert_eq!(client.next().await["name"], "resource.error");
    assert_eq!(client.told().await, "resource.stop -");
    client.ask(json!({"resourceType": "configmap", "resourceVersion": "x"})).await;
    assert_eq!(client.next().await["name"], "resource.error");
}

#[tokio::test(start_paused = true)]
async fn who_may_watch_one_namespace_is_told_of_that_and_no_more_and_no_longer() {
    let mut house = House::new().await;
    for name in ["other", "team"] {
        namespace(&house, name).await;
    }
    let root = house.user.clone();
    as_viewer(&mut house, "team").await;
    let mut client = Subscriber::of(&house, &jo()).await;
    house.user = root;
    client.ask(json!({"resourceType": "secrets"})).await;
    let refused = client.next().await;
    assert!(refused["data"]["error"].as_str().unwrap().contains("is forbidden"), "{refused}");
    assert_eq!(client.told().await, "resource.stop -");
    client.ask(json!({"resourceType": "configmaps", "namespace": "other"})).await;
    assert_eq!(client.next().await["name"], "resource.error");
    assert_eq!(client.told().await, "resource.stop -");
    client.ask(json!({"resourceType": "configmaps"})).await;
    assert_eq!(client.told().await, "resource.start -");
    for name in ["other", "team"] {
        house
            .post(&format!("/api/v1/namespaces/{name}/configmaps"), json!({"metadata": {"name": "m"}}))
            .await
            .ok();
    }
    assert_eq!(client.told().await, "resource.create team/m");
    client.ask(json!({"resourceType": "namespaces"})).await;
    assert_eq!(client.told().await, "resource.start -");
    assert_eq!(client.told().await, "resource.create team", "of namespaces, theirs");
    client.ask(json!({"resourceType": "namespaces", "stop": true})).await;
    assert_eq!(client.told().await, "resource.stop -");
    // A right that is taken away ends what rested on it.
    house
        .delete("/apis/rbac.authorization.k8s.io/v1/namespaces/team/rolebindings/jo-system:aggregate-to-view")
        .await
        .ok();
    let over = client.next().await;
    assert_eq!(
        (&over["name"], &over["data"]["error"]),
        (&json!("resource.error"), &json!("it may no longer be watched"))
    );
    assert_eq!(client.told().await, "resource.stop -");
}

#[tokio::test(start_paused = true)]
async fn who_only_wants_to_know_that_something_changed_is_told_once() {
    let house = House::new().await;
    let mut client = Subscriber::of(&house, &house.user).await;
    let wish = json!({"resourceType": "configmap", "namespace": "default", "mode": "resource.changes", "debounceMs": 2000});
    client.ask(wish).await;
    assert_eq!(client.told().await, "resource.start -");
    for n in 0..5 {
        house.config_map(&format!("m-{n}"), json!({})).await;
    }
    let event = client.next().await;
    assert_eq!(
        event,
        json!({"name": "resource.changes", "resourceType": "configmap", "namespace": "default", "mode": "resource.changes"})
    );
    assert_eq!(client.told().await, "resource.changes -", "and once more, for what came while it was silent");
    client.ask(json!({"resourceType": "configmap", "namespace": "default", "mode": "resource.changes", "stop": true})).await;
    assert_eq!(client.told().await, "resource.stop -", "five changes are no five events");
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_origin_opens_none_and_a_plain_request_neither() {
    let mut house = House::new().await;
    let with =
        async |house: &House, headers: &[(&str, &str)]| connect(&house.server, &house.user, headers).await.0;
    // Who comes with a credential of their own may come from anywhere; this process is such a one.
    assert_eq!(with(&house, &[("origin", "https://evil.example")]).await, 101);
    assert_eq!(with(&house, &[("sec-websocket-protocol", "v1.steve")]).await, 101);
    let plain = house.get("/v1/subscribe").await;
    assert_eq!((plain.code, &plain.body["type"]), (400, &json!("error")));
    allow(
        &house,
        "default",
        "maps",
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
    )
    .await;
    house.user = jo();
    assert_eq!(
        with(&house, &[]).await,
        101,
        "anybody who is known may ask; what they see is another question"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_says_goodbye() {
    let house = House::new().await;
    let mut client = Subscriber::of(&house, &house.user).await;
    client.ask(json!({"resourceType": "configmap"})).await;
    assert_eq!(client.told().await, "resource.start -");
    house.server.stop();
    let mut last = None;
    while let Some(Ok(message)) = client.0.next().await {
        last = Some(message);
    }
    assert!(matches!(last, Some(Message::Close(Some(frame))) if frame.reason == "the server is stopping"));
}

#[tokio::test(start_paused = true)]
async fn counts_are_told_at_once_and_then_seldom_and_only_those_that_changed() {
    let house = House::new().await;
    let mut subscriber = Subscriber::of(&house, &house.user).await;
    subscriber.ask(json!({"resourceType": "count"})).await;
    assert_eq!(subscriber.next().await["name"], "resource.start");
    let first = subscriber.next().await;
    assert_eq!((&first["name"], &first["resourceType"]), (&json!("resource.change"), &json!("counts")));
    assert_eq!((&first["data"]["type"], &first["data"]["id"]), (&json!("count"), &json!("count")));
    let before = first["data"]["counts"]["configmap"]["summary"]["count"].as_u64().unwrap();
    assert!(first["data"]["counts"]["node"].is_object());
    for name in ["one", "two", "three"] {
        house.config_map(name, json!({})).await;
    }
    let next = subscriber.next().await;
    let counts = next["data"]["counts"].as_object().unwrap();
    assert_eq!(counts["configmap"]["summary"]["count"], before + 3, "told together");
    assert!(!counts.contains_key("node"), "of what did not change nothing is said: {next}");
    subscriber.ask(json!({"resourceType": "count", "stop": true})).await;
    assert_eq!(subscriber.next().await["name"], "resource.stop");
}
