//! Signing in, having to choose a new password, and choosing one; with the tokens people really hold.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sheaf_resources::kinds::ip_pool::Cidr;
use sheaf_store::embedded;
use sheaf_world::World;

use crate::{
    ApiConfig, ApiServer,
    dispatch::Peer,
    encryption::{KeepNothing, KeyRing},
    identity::{
        MASTERS, SigningKeys, User,
        api_tokens::{Purpose, TokenWish},
        certificate, generate_key_pem,
        users::NewUser,
    },
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const USERS_API: &str = "/apis/management.cattle.io/v3/users";
const TOKENS_API: &str = "/apis/management.cattle.io/v3/tokens";
const CHANGE: &str = "/v3/users?action=changepassword";
const FIRST: &str = "the first password";
const SECOND: &str = "the second password";

struct House(ApiServer);

/// A server with a user `jo` who may do everything, once she has chosen a password of her own.
async fn house() -> House {
    let world = World::seeded(1);
    let pem = generate_key_pem(&world.chance).unwrap();
    let config = ApiConfig {
        address: "127.0.0.1:6443".into(),
        issuer: "https://127.0.0.1:6443".into(),
        ca_pem: String::new(),
        token_keys: Arc::new(SigningKeys::from_pem(pem.as_bytes(), &[]).unwrap()),
        encryption_keys: KeyRing::generate(&world),
        keep_keys: Arc::new(KeepNothing),
        vm_cidr: Cidr::DEFAULT_NETWORK,
        agents: Arc::new(crate::machines::agents::NoAgents),
        audit: None,
        metric_sources: vec![],
        threads: false,
    };
    let store = Arc::new(embedded::in_memory().unwrap());
    let house = House(ApiServer::build(config, store, world).await.unwrap());
    let jo = NewUser {
        id: "user-jo".into(),
        username: "jo".into(),
        must_change_password: true,
        ..NewUser::default()
    };
    house.0.users().create(&jo, FIRST).await.unwrap();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "jo"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user-jo"}],
    });
    house.0.ensure_object("rbac.authorization.k8s.io", "clusterrolebindings", "", binding).await.unwrap();
    house
}

impl House {
    async fn ask(&self, method: Method, uri: &str, token: &str, body: Value) -> (u16, Value) {
        self.ask_with(method, uri, &[("authorization", &format!("Bearer {token}"))], body, &Peer::default())
            .await
    }

    /// As somebody who needs no token.
    async fn as_root(&self, method: Method, uri: &str, body: Value) -> (u16, Value) {
        let root = User { name: "root".into(), groups: vec![MASTERS.into()], ..User::default() };
        let peer = Peer { identity: Some(Arc::new(root)), ..Peer::default() };
        self.ask_with(method, uri, &[], body, &peer).await
    }

    async fn ask_with(
        &self,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
        body: Value,
        peer: &Peer,
    ) -> (u16, Value) {
        let mut request =
            Request::builder().method(method).uri(uri).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Bytes::from(if body.is_null() { String::new() } else { body.to_string() });
        let response = self.0.handle(request.body(Full::new(body)).unwrap(), peer).await;
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn login(&self, username: &str, password: &str) -> (u16, Value) {
        let login = "/v3-public/localProviders/local?action=login";
        let wish = json!({"username": username, "password": password});
        self.ask_with(Method::POST, login, &[], wish, &Peer::default()).await
    }

    /// Signs jo in and answers her token.
    async fn token(&self, password: &str) -> String {
        let (code, answer) = self.login("jo", password).await;
        assert_eq!(code, 201, "{answer}");
        answer["token"].as_str().unwrap().to_owned()
    }

    async fn change(&self, token: &str, current: &str, new: &str) -> (u16, Value) {
        let wish = json!({"currentPassword": current, "newPassword": new});
        self.ask(Method::POST, CHANGE, token, wish).await
    }

    async fn code(&self, token: &str, uri: &str) -> u16 {
        self.ask(Method::GET, uri, token, Value::Null).await.0
    }
}

#[tokio::test(start_paused = true)]
async fn who_must_change_the_password_can_do_nothing_else_and_is_told_how() {
    let house = house().await;
    let (_, signed_in) = house.login("jo", FIRST).await;
    assert_eq!(signed_in["mustChangePassword"], true);
    let token = signed_in["token"].as_str().unwrap();
    for uri in ["/version", "/api", "/apis", "/api/v1", "/openapi/v3"] {
        assert_eq!(house.code(token, uri).await, 200, "{uri}");
    }
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, answer) = house.ask(Method::POST, me, token, review).await;
    assert_eq!((code, &answer["status"]["userInfo"]["username"]), (201, &json!("user-jo")));

    for uri in [MAPS, "/metrics", USERS_API, TOKENS_API, "/api/v1/nodes", "/k8s/clusters/local/api/v1/nodes"]
    {
        let (code, answer) = house.ask(Method::GET, uri, token, Value::Null).await;
        assert_eq!(code, 403, "{uri}: {answer}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("the password must be changed first"), "{message}");
        assert!(message.contains("/v3/users?action=changepassword"), "{message}");
    }
    // Nor is there a way round: not by a token of another sort, not by unsetting the flag, not as somebody else.
    let derived =
        json!({"metadata": {"name": "t"}, "userId": "user-jo", "token": "sha256:0", "isDerived": true});
    assert_eq!(house.ask(Method::POST, TOKENS_API, token, derived).await.0, 403);
    let unset = json!({
        "apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": "user-jo"}, "username": "jo",
    });
    assert_eq!(house.ask(Method::PUT, &format!("{USERS_API}/user-jo"), token, unset).await.0, 403);
    let bearer = format!("Bearer {token}");
    let masked = [("authorization", bearer.as_str()), ("impersonate-user", "user-jo")];
    assert_eq!(house.ask_with(Method::GET, MAPS, &masked, Value::Null, &Peer::default()).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn a_new_password_opens_everything_and_ends_the_other_sessions() {
    let house = house().await;
    let (token, other) = (house.token(FIRST).await, house.token(FIRST).await);
    assert_eq!(house.code(&token, MAPS).await, 403);
    let (code, answer) = house.change(&token, FIRST, SECOND).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(house.code(&token, MAPS).await, 200);
    assert_eq!(house.code(&other, MAPS).await, 401);
    assert_eq!(house.code(&other, "/version").await, 401);
    assert_eq!(house.login("jo", FIRST).await.0, 401);
    let (code, again) = house.login("jo", SECOND).await;
    assert_eq!((code, &again["mustChangePassword"]), (201, &json!(false)));
    let (_, user) = house.as_root(Method::GET, &format!("{USERS_API}/user-jo"), Value::Null).await;
    assert_eq!(user["mustChangePassword"], false);
}

#[tokio::test(start_paused = true)]
async fn a_new_password_that_will_not_do_is_refused_with_the_reason() {
    let house = house().await;
    let token = house.token(FIRST).await;
    for (current, new, field, detail) in [
        (FIRST, "short", "newPassword", "Password must be at least 12 characters"),
        (FIRST, "jo", "newPassword", "Password cannot be the same as username"),
        (FIRST, FIRST, "newPassword", "Password cannot be the same as the current one"),
        ("not the first one", SECOND, "currentPassword", "is not the current password"),
        ("", SECOND, "currentPassword", "Required value"),
        (FIRST, "", "newPassword", "Required value"),
    ] {
        let (code, answer) = house.change(&token, current, new).await;
        assert_eq!((code, &answer["code"]), (422, &json!("InvalidBodyContent")), "{answer}");
        assert_eq!(answer["fieldName"], field);
        assert!(answer["message"].as_str().unwrap().contains(detail), "{answer}");
        assert!(!answer.to_string().contains(FIRST) && !answer.to_string().contains(SECOND), "{answer}");
    }
    assert_eq!(house.code(&token, MAPS).await, 403);
    assert_eq!(house.login("jo", FIRST).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_stolen_session_does_not_guess_the_password() {
    let house = house().await;
    let token = house.token(FIRST).await;
    for _ in 0..5 {
        assert_eq!(house.change(&token, "a guess at a password", SECOND).await.0, 422);
    }
    assert_eq!(house.change(&token, FIRST, SECOND).await.0, 429);
    assert_eq!(house.login("jo", FIRST).await.0, 429);
}

#[tokio::test(start_paused = true)]
async fn only_a_person_with_a_password_changes_one() {
    let house = house().await;
    let wish = json!({"currentPassword": FIRST, "newPassword": SECOND});
    assert_eq!(house.ask_with(Method::POST, CHANGE, &[], wish.clone(), &Peer::default()).await.0, 401);
    let (code, answer) = house.as_root(Method::POST, CHANGE, wish.clone()).await;
    assert_eq!(code, 403, "{answer}");
    let token = house.token(FIRST).await;
    assert_eq!(house.change(&token, FIRST, SECOND).await.0, 200);
    assert_eq!(house.ask(Method::GET, CHANGE, &token, Value::Null).await.0, 405);
    assert_eq!(house.ask(Method::POST, "/v3/users?action=other", &token, wish).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn what_programs_hold_is_not_held_up_by_a_password() {
    let house = house().await;
    let wish = TokenWish { user_id: "user-jo".into(), purpose: Purpose::Program, ..TokenWish::default() };
    let (_, bearer) = house.0.users().mint_token(&wish).await.unwrap();
    assert_eq!(house.code(&bearer, MAPS).await, 200);
    let token = house.token(FIRST).await;
    assert_eq!(house.change(&token, FIRST, SECOND).await.0, 200);
    assert_eq!(house.code(&bearer, MAPS).await, 200);
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_username_that_is_held() {
    let house = house().await;
    let twin = |name: &str, username: &str| {
        json!({
            "apiVersion": "management.cattle.io/v3", "kind": "User", "metadata": {"name": name}, "username": username,
        })
    };
    let (code, answer) = house.as_root(Method::POST, USERS_API, twin("aaa", "jo")).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
    let cause = &answer["details"]["causes"][0];
    assert_eq!((&cause["field"], &cause["reason"]), (&json!("username"), &json!("FieldValueDuplicate")));
    let dry = format!("{USERS_API}?dryRun=All");
    assert_eq!(house.as_root(Method::POST, &dry, twin("aaa", "jo")).await.0, 422);
    assert_eq!(house.login("jo", FIRST).await.0, 201);

    // The very same user is not a second one.
    assert_eq!(house.as_root(Method::POST, USERS_API, twin("user-jo", "jo")).await.0, 409);
    assert_eq!(house.as_root(Method::POST, USERS_API, twin("aaa", "kim")).await.0, 201);
    let renamed = house.as_root(Method::PUT, &format!("{USERS_API}/aaa"), twin("aaa", "jo")).await;
    assert_eq!(renamed.0, 422, "{}", renamed.1);
    let kept = house.as_root(Method::PUT, &format!("{USERS_API}/user-jo"), twin("user-jo", "jo")).await;
    assert_eq!(kept.0, 200, "{}", kept.1);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_a_browser_shows_is_no_more_a_wish_than_a_cookie() {
    let house = house().await;
    let certificate = certificate(Some("root"), &[MASTERS], 2200);
    let peer = Peer { certificate: Some(Arc::new(certificate)), ..Peer::default() };
    let host = ("host", "sheaf.example:6443");
    let map = json!({"metadata": {"name": "m"}});
    for foreign in [
        ("origin", "https://evil.example"),
        ("origin", "http://sheaf.example:6443"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        for (method, uri) in [(Method::POST, MAPS), (Method::GET, MAPS), (Method::GET, "/v1/subscribe")] {
            let (code, answer) = house.ask_with(method, uri, &[host, foreign], map.clone(), &peer).await;
            assert_eq!(code, 422, "{foreign:?} {uri}: {answer}");
        }
    }
    // A page of ours may, what a person typed may, and a program, which says nothing of pages.
    let own = [("origin", "https://sheaf.example:6443"), ("sec-fetch-site", "same-origin")];
    let typed = [("sec-fetch-site", "none"), ("accept", "application/json")];
    let (code, answer) = house.ask_with(Method::POST, MAPS, &[&[host][..], &own].concat(), map, &peer).await;
    assert_eq!(code, 201, "{answer}");
    for headers in [&own[..], &typed[..], &[]] {
        let headers = [&[host][..], headers].concat();
        assert_eq!(house.ask_with(Method::GET, MAPS, &headers, Value::Null, &peer).await.0, 200);
    }
    // A bearer's token beside a certificate changes nothing: it is the certificate that counts.
    let both = [host, ("authorization", "Bearer x"), ("origin", "https://evil.example")];
    assert_eq!(house.ask_with(Method::GET, MAPS, &both, Value::Null, &peer).await.0, 422);
}
