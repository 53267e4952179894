//! Sessions of browsers: what they open, who cannot use them, and what ends them.

use http::Method;
use serde_json::{Value, json};

use crate::{
    house::{House, MAPS},
    visitors::{
        Browser, CHANGE, HOST, LOGIN, TOKENS_API, USERS_API, ask, ask_from, bearing, join, join_admin, login,
        password, token,
    },
};

const LOGOUT: &str = "/v3/tokens?action=logout";

#[tokio::test(start_paused = true)]
async fn whoever_looks_for_a_way_in_finds_the_local_one() {
    let house = House::new().await;
    for (path, kind) in [
        ("/v3-public/localProviders", "localProvider"),
        ("/v3-public/authProviders", "authProvider"),
        ("/v1-public/authproviders", "authProvider"),
    ] {
        let all = ask(&house, Method::GET, path, &[], "").await.ok();
        assert_eq!((&all["type"], &all["resourceType"]), (&json!("collection"), &json!(kind)));
        assert_eq!(all["data"][0]["actions"]["login"], format!("https://{HOST}{LOGIN}"));
    }
    let local = ask(&house, Method::GET, "/v3-public/localProviders/local", &[], "").await.ok();
    assert_eq!((&local["id"], &local["type"]), (&json!("local"), &json!("localProvider")));
    assert_eq!(local["links"]["self"], format!("https://{HOST}/v3-public/localProviders/local"));
    assert_eq!(ask(&house, Method::GET, "/v3-public/githubProviders", &[], "").await.code, 404);
    assert_eq!(ask(&house, Method::DELETE, "/v3-public/localProviders/local", &[], "").await.code, 405);
    // A host that could be more than a host is not echoed.
    let odd = [("host", "x\"><script>")];
    let local = ask(&house, Method::GET, "/v3-public/localProviders/local", &odd, "").await;
    assert!(!local.text.contains("<script>"), "{}", local.text);
}

#[tokio::test(start_paused = true)]
async fn a_browser_gets_cookies_and_never_sees_the_token() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let said = login(&house, "anna", &password("anna"), "cookie").await;
    assert_eq!((said.code, &said.body), (200, &json!({})));
    let session = said.cookies.iter().find(|cookie| cookie.starts_with("R_SESS=")).unwrap();
    for must in ["; Secure", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(session.contains(must), "{session}");
    }
    let browser = Browser::sign_in(&house, "anna").await;
    let maps = browser.ask(&house, Method::GET, MAPS, Value::Null).await.ok();
    assert_eq!(maps["kind"], "ConfigMapList");
    let map = json!({"metadata": {"name": "m"}});
    assert_eq!(browser.ask(&house, Method::POST, MAPS, map).await.code, 201);
    for kind in ["token", "json", ""] {
        let said = login(&house, "anna", &password("anna"), kind).await;
        assert_eq!(said.code, 201);
        assert!(said.body["token"].as_str().unwrap().starts_with("token-") && said.cookies.is_empty());
    }
    let said = login(&house, "anna", &password("anna"), "kubeconfig_local").await;
    assert_eq!(
        (said.refusal(), said.body["fieldName"].clone()),
        ((422, "InvalidBodyContent"), json!("responseType"))
    );
}

#[tokio::test(start_paused = true)]
async fn no_other_page_can_use_a_session() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let browser = Browser::sign_in(&house, "anna").await;
    let other = Browser::sign_in(&house, "anna").await;
    let evil = [("origin", "https://evil.example")];
    let planted = format!("{}; CSRF=planted", browser.cookies().replace(&browser.word, "planted"));
    for (method, uri) in [
        (Method::POST, MAPS),
        (Method::DELETE, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"),
        (Method::PUT, "/v3/users/anna"),
        (Method::POST, "/v3/tokens"),
        (Method::POST, LOGOUT),
        (Method::POST, "/v1/management.cattle.io.clusters/local?action=generateKubeconfig"),
        (Method::PUT, "/v1/userpreferences/anna"),
    ] {
        // With what a form or a fetch of another page can send.
        let said = browser.made_to_ask(&house, method.clone(), uri, &[]).await;
        assert_eq!(said.code, 422, "{uri}: {}", said.text);
        assert!(said.text.contains("InvalidCSRFToken"), "{}", said.text);
        let form = [("content-type", "text/plain"), ("sec-fetch-site", "cross-site")];
        assert_eq!(browser.made_to_ask(&house, method.clone(), uri, &form).await.code, 422);
        assert_eq!(browser.made_to_ask(&house, method.clone(), uri, &evil).await.code, 422);
        // With a cookie that another page planted, and a header that agrees with it.
        let headers = [("cookie", planted.as_str()), ("x-api-csrf", "planted")];
        assert_eq!(ask(&house, method.clone(), uri, &headers, "{}").await.code, 422);
        // With the word of another session, and with the right one in the address, where logs keep it.
        let said = browser.made_to_ask(&house, method.clone(), uri, &[("x-api-csrf", &other.word)]).await;
        assert_eq!(said.code, 422);
        let addressed = format!("{uri}{}CSRF={}", if uri.contains('?') { '&' } else { '?' }, browser.word);
        assert_eq!(browser.made_to_ask(&house, method, &addressed, &[]).await.code, 422);
    }
    // Reading is refused to pages of another origin, and so is opening a stream.
    let console = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/m/console";
    let stream = [evil[0], ("connection", "Upgrade"), ("upgrade", "websocket")];
    assert_eq!(browser.made_to_ask(&house, Method::GET, console, &stream).await.code, 422);
    assert_eq!(browser.made_to_ask(&house, Method::GET, MAPS, &evil).await.code, 422);
    let own = [("origin", "https://sheaf.example:6443")];
    assert_eq!(browser.made_to_ask(&house, Method::GET, MAPS, &own).await.code, 200);
    assert_eq!(browser.made_to_ask(&house, Method::GET, console, &own).await.code, 404);
    // Nothing of it was done.
    assert_eq!(browser.ask(&house, Method::GET, MAPS, Value::Null).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn a_page_cannot_put_its_visitors_into_a_session_of_its_own() {
    let house = House::new().await;
    join(&house, "mallory").await;
    let wish = json!({"username": "mallory", "password": password("mallory"), "responseType": "cookie"});
    for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), ("origin", "null")]
    {
        let said = ask(&house, Method::POST, LOGIN, &[foreign], &wish.to_string()).await;
        assert_eq!((said.refusal(), said.cookies.len()), ((422, "InvalidCSRFToken"), 0));
    }
    // And a second session beside the real one is not taken for it.
    let (anna, mallory) =
        (Browser::sign_in(&house, "mallory").await, Browser::sign_in(&house, "mallory").await);
    let two = format!("R_SESS={}; R_SESS={}", anna.session, mallory.session);
    assert_eq!(ask(&house, Method::GET, "/v3/users?me=true", &[("cookie", &two)], "").await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_somebody_put_there_needs_no_word() {
    let house = House::new().await;
    let token = join_admin(&house, "anna").await;
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", authorization.as_str()), ("origin", "https://tools.example")];
    let map = json!({"metadata": {"name": "m"}}).to_string();
    assert_eq!(ask(&house, Method::POST, MAPS, &headers, &map).await.code, 201);
    // Beside a cookie, it is the token that counts: also when it is no good.
    let browser = Browser::sign_in(&house, "anna").await;
    let cookies = browser.cookies();
    let headers = [("authorization", "Bearer token-aaaaa:no"), ("cookie", cookies.as_str())];
    assert_eq!(ask(&house, Method::GET, MAPS, &headers, "").await.code, 401);
    // Nor does a cookie hold anything but the token of a login.
    assert_eq!(ask(&house, Method::GET, MAPS, &[("cookie", "R_SESS=a.b.c")], "").await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn to_leave_ends_the_session_at_once() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    let (browser, other) = (Browser::sign_in(&house, "anna").await, Browser::sign_in(&house, "anna").await);
    let said = browser.ask(&house, Method::POST, LOGOUT, Value::Null).await;
    assert_eq!(said.code, 200);
    assert!(said.cookies.iter().all(|cookie| cookie.contains("Max-Age=0")) && said.cookies.len() == 2);
    assert_eq!(browser.ask(&house, Method::GET, MAPS, Value::Null).await.code, 401);
    assert_eq!(other.ask(&house, Method::GET, MAPS, Value::Null).await.code, 200);

    // All of them, with the kubeconfigs that somebody was given; what programs hold stays.
    let kubeconfig = "/v3/clusters/local?action=generateKubeconfig";
    let config = other.ask(&house, Method::POST, kubeconfig, Value::Null).await.ok();
    let config: Value = serde_yaml_ng::from_str(config["config"].as_str().unwrap()).unwrap();
    let given = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let program = other.ask(&house, Method::POST, "/v3/tokens", json!({})).await.ok();
    let program = program["token"].as_str().unwrap().to_owned();
    let third = token(&house, "anna").await;
    assert_eq!(other.ask(&house, Method::POST, "/v3/tokens?action=logoutAll", Value::Null).await.code, 200);
    assert_eq!(other.ask(&house, Method::GET, MAPS, Value::Null).await.code, 401);
    let mut codes = Vec::new();
    for token in [&third, &given, &program] {
        codes.push(bearing(&house, token, Method::GET, MAPS, Value::Null).await.code);
    }
    assert_eq!(codes, [401, 401, 200]);
}

/// Everything that anna is in with.
async fn all_of(house: &House, name: &str) -> (Browser, [String; 3]) {
    let session = token(house, name).await;
    let browser = Browser::sign_in(house, name).await;
    let kubeconfig = "/v1/management.cattle.io.clusters/local?action=generateKubeconfig";
    let config = bearing(house, &session, Method::POST, kubeconfig, Value::Null).await.ok();
    let config: Value = serde_yaml_ng::from_str(config["config"].as_str().unwrap()).unwrap();
    let given = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    let program = bearing(house, &session, Method::POST, "/v3/tokens", json!({})).await.ok();
    let program = program["token"].as_str().unwrap().to_owned();
    (browser, [session, given, program])
}

async fn what_works(house: &House, (browser, tokens): &(Browser, [String; 3])) -> [bool; 4] {
    let mut works = [false; 4];
    works[0] = browser.ask(house, Method::GET, MAPS, Value::Null).await.code == 200;
    for (n, token) in tokens.iter().enumerate() {
        works[n + 1] = bearing(house, token, Method::GET, MAPS, Value::Null).await.code == 200;
    }
    works
}

#[tokio::test(start_paused = true)]
async fn a_new_password_ends_cookies_and_kubeconfigs_but_not_what_programs_hold() {
    let house = House::new().await;
    let changing = join_admin(&house, "anna").await;
    let held = all_of(&house, "anna").await;
    assert_eq!(what_works(&house, &held).await, [true; 4]);
    let change = json!({"currentPassword": password("anna"), "newPassword": "something else altogether"});
    assert_eq!(bearing(&house, &changing, Method::POST, CHANGE, change).await.code, 200);
    assert_eq!(what_works(&house, &held).await, [false, false, false, true]);
    assert_eq!(bearing(&house, &changing, Method::GET, MAPS, Value::Null).await.code, 200);
}

#[tokio::test(start_paused = true)]
async fn who_is_disabled_or_deleted_is_out_at_once_with_everything() {
    let house = House::new().await;
    for (name, way) in [("anna", "disable"), ("bert", "delete")] {
        join_admin(&house, name).await;
        let held = all_of(&house, name).await;
        assert_eq!(what_works(&house, &held).await, [true; 4]);
        let uri = format!("{USERS_API}/{name}");
        match way {
            "disable" => house.patch(&uri, "merge-patch", json!({"enabled": false})).await.ok(),
            _ => house.delete(&uri).await.ok(),
        };
        assert_eq!(what_works(&house, &held).await, [false; 4], "{name}");
        assert_eq!(login(&house, name, &password(name), "cookie").await.code, 401);
        // A later user of the name is another one.
        if way == "delete" {
            house.patch(&uri, "merge-patch", json!({"metadata": {"finalizers": null}})).await;
            join(&house, name).await;
            bind(&house, name).await;
            assert_eq!(what_works(&house, &held).await, [false; 4]);
        }
    }
}

async fn bind(house: &House, name: &str) {
    let uri = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}-cluster-admin");
    assert_eq!(house.get(&uri).await.code, 200, "nobody takes bindings away here: no controller runs");
}

#[tokio::test(start_paused = true)]
async fn nobody_learns_who_exists_from_a_refused_login() {
    let house = House::new().await;
    join(&house, "anna").await;
    join(&house, "bert").await;
    house.patch(&format!("{USERS_API}/bert"), "merge-patch", json!({"enabled": false})).await.ok();
    let mut answers = Vec::new();
    for (name, word) in
        [("anna", "a wrong password"), ("nobody", "a wrong password"), ("bert", &password("bert")), ("", "")]
    {
        let said = login(&house, name, word, "token").await;
        assert_eq!(said.refusal(), (401, "Unauthorized"));
        answers.push(said.text);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let large = json!({"username": "anna", "password": "x".repeat(20_000)}).to_string();
    assert_eq!(ask(&house, Method::POST, LOGIN, &[], &large).await.code, 413);
    for odd in ["", "[]", "{", "null", "\"x\"", "{\"username\": {\"a\": 1}, \"password\": 7}"] {
        let code = ask(&house, Method::POST, LOGIN, &[], odd).await.code;
        assert!([400, 401, 429].contains(&code), "{odd}: {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn strangers_who_guess_are_slowed_down_and_lock_nobody_out() {
    let house = House::new().await;
    join(&house, "anna").await;
    let attempt = async |address: String, word: &str| {
        let wish = json!({"username": "anna", "password": word}).to_string();
        ask_from(&house, &address, Method::POST, LOGIN, &[], &wish).await.code
    };
    let mut judged = 0;
    for n in 0..200 {
        // Whatever they say about where they come from.
        let code = attempt(format!("198.51.100.{}:{}", n % 200 + 1, 1000 + n), "a guess at a password").await;
        assert!([401, 429].contains(&code), "{code}");
        judged += usize::from(code == 401);
    }
    assert!(judged <= 12, "{judged} guesses were judged");
    let right = password("anna");
    assert_eq!(attempt("203.0.113.5:1".into(), &right).await, 429, "from somewhere new one has to wait");
    assert_eq!(attempt("192.0.2.7:9999".into(), &right).await, 201, "from where she signed in before, not");
    let forged = [("x-forwarded-for", "192.0.2.7"), ("x-real-ip", "192.0.2.7")];
    let wish = json!({"username": "anna", "password": right}).to_string();
    let said = ask_from(&house, "203.0.113.5:1", Method::POST, LOGIN, &forged, &wish).await;
    assert_eq!(said.refusal(), (429, "TooManyRequests"), "nobody is believed where they come from");
}

#[tokio::test(start_paused = true)]
async fn the_hashes_and_secrets_of_others_are_nowhere_in_the_answers() {
    let house = House::new().await;
    let admin = join_admin(&house, "root").await;
    let anna = join(&house, "anna").await;
    let secret = anna.split_once(':').unwrap().1;
    for uri in ["/v3/users", "/v3/tokens", "/v3/users/anna", "/v3/principals/local%3A%2F%2Fanna", TOKENS_API]
    {
        let said = bearing(&house, &admin, Method::GET, uri, Value::Null).await;
        assert_eq!(said.code, 200, "{uri}");
        assert!(!said.text.contains(secret) && !said.text.contains("argon2"), "{uri}");
    }
    let own = bearing(&house, &anna, Method::GET, "/v3/tokens", Value::Null).await;
    assert!(!own.text.contains(secret) && !own.text.contains("sha256"), "{}", own.text);
}
