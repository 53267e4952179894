//! People at the door: with a token, with a browser, or with nothing.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sheaf_apiserver::{dispatch::Peer, identity::users::NewUser};

use crate::house::House;

pub const LOGIN: &str = "/v3-public/localProviders/local?action=login";
pub const CHANGE: &str = "/v3/users?action=changepassword";
pub const USERS_API: &str = "/apis/management.cattle.io/v3/users";
pub const TOKENS_API: &str = "/apis/management.cattle.io/v3/tokens";
pub const HOST: &str = "sheaf.example:6443";

pub struct Said {
    pub code: u16,
    pub cookies: Vec<String>,
    pub media: String,
    pub text: String,
    pub body: Value,
}

impl Said {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(self.code < 300, "{} {}", self.code, self.text);
        self.body
    }

    /// `(code, code in words)` of a refusal in Rancher's shape.
    #[track_caller]
    pub fn refusal(&self) -> (u16, &str) {
        assert_eq!(self.body["type"], "error", "{}", self.text);
        assert_eq!(self.body["status"], self.code);
        (self.code, self.body["code"].as_str().unwrap())
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub fn password(of: &str) -> String {
    format!("the password of {of}")
}

/// Asks as a stranger would, over the network.
pub async fn ask(house: &House, method: Method, uri: &str, headers: &[(&str, &str)], body: &str) -> Said {
    ask_from(house, "192.0.2.7:4711", method, uri, headers, body).await
}

pub async fn ask_from(
    house: &House,
    address: &str,
    method: Method,
    uri: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Said {
    let mut request = Request::builder().method(method).uri(uri).header("host", HOST);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let peer = Peer { address: Some(address.parse::<SocketAddr>().unwrap()), ..Peer::default() };
    let response = house.server.handle(request, &peer).await;
    let code = response.status().as_u16();
    let header = |name: &str| {
        let all = response.headers().get_all(name).iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (cookies, media) = (header("set-cookie"), header("content-type").join(""));
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let body = serde_json::from_str(&text).unwrap_or_default();
    Said { code, cookies, media, text, body }
}

/// With a token.
pub async fn bearing(house: &House, token: &str, method: Method, uri: &str, body: Value) -> Said {
    let authorization = format!("Bearer {token}");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    ask(house, method, uri, &[("authorization", &authorization)], &body).await
}

pub async fn login(house: &House, username: &str, password: &str, kind: &str) -> Said {
    let wish = json!({"username": username, "password": password, "responseType": kind});
    ask(house, Method::POST, LOGIN, &[], &wish.to_string()).await
}

/// A new local user, who may do nothing yet; answers a token of theirs.
pub async fn join(house: &House, name: &str) -> String {
    let new = NewUser { id: name.into(), username: name.into(), ..NewUser::default() };
    house.server.users().create(&new, &password(name)).await.unwrap();
    token(house, name).await
}

pub async fn token(house: &House, name: &str) -> String {
    let said = login(house, name, &password(name), "token").await;
    assert_eq!(said.code, 201, "{}", said.text);
    said.body["token"].as_str().unwrap().to_owned()
}

/// Somebody who may do everything.
pub async fn join_admin(house: &House, name: &str) -> String {
    bind(house, name, "cluster-admin").await;
    join(house, name).await
}

pub async fn bind(house: &House, user: &str, role: &str) {
    let binding = json!({
        "metadata": {"name": format!("{user}-{role}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.ok();
}

/// A role of one rule, bound to a user.
pub async fn give(house: &House, user: &str, rules: Value) {
    let name = format!("of-{user}");
    let role = json!({"metadata": {"name": name}, "rules": rules});
    house.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await.ok();
    bind(house, user, &name).await;
}

/// A browser: it keeps cookies, and sends them with whatever is asked.
pub struct Browser {
    pub session: String,
    pub word: String,
}

impl Browser {
    pub async fn sign_in(house: &House, name: &str) -> Browser {
        let said = login(house, name, &password(name), "cookie").await;
        assert_eq!(said.code, 200, "{}", said.text);
        let value = |name: &str| {
            let cookie = said.cookies.iter().find_map(|cookie| cookie.strip_prefix(name)).unwrap();
            cookie.split(';').next().unwrap().to_owned()
        };
        Browser { session: value("R_SESS="), word: value("CSRF=") }
    }

    pub fn cookies(&self) -> String {
        format!("R_SESS={}; CSRF={}", self.session, self.word)
    }

    /// As a page of ours asks.
    pub async fn ask(&self, house: &House, method: Method, uri: &str, body: Value) -> Said {
        let cookies = self.cookies();
        let headers = [("cookie", cookies.as_str()), ("x-api-csrf", self.word.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        ask(house, method, uri, &headers, &body).await
    }

    /// As any page can make it ask.
    pub async fn made_to_ask(
        &self,
        house: &House,
        method: Method,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Said {
        let cookies = self.cookies();
        let mut all = vec![("cookie", cookies.as_str())];
        all.extend_from_slice(headers);
        ask(house, method, uri, &all, "{}").await
    }
}
