//! `/v3/users`, `/v3/tokens` and what belongs to somebody: everybody has their own, and roles say who has more.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::{
    house::{House, MAPS},
    visitors::{
        Browser, CHANGE, TOKENS_API, USERS_API, ask, bearing, give, join, join_admin, login, password, token,
    },
};

const NEW: &str = "a new password altogether";

#[tokio::test(start_paused = true)]
async fn an_administrator_makes_a_user_who_signs_in_and_is_only_themselves() {
    let house = House::new().await;
    let root = join_admin(&house, "root").await;
    let wish = json!({
        "type": "user", "username": "anna", "password": password("anna"), "name": "Anna A.", "enabled": true,
        "mustChangePassword": false, "groups": ["web-team"],
    });
    let made = bearing(&house, &root, Method::POST, "/v3/users", wish.clone()).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let user = &made.body;
    assert_eq!(
        (&user["id"], &user["type"], &user["name"]),
        (&json!("anna"), &json!("user"), &json!("Anna A."))
    );
    assert_eq!(user["principalIds"], json!(["local://anna"]));
    assert!(!made.text.contains("password of"), "{}", made.text);
    let again = bearing(&house, &root, Method::POST, "/v3/users", wish).await;
    assert_eq!((again.refusal(), again.message()), ((422, "NotUnique"), "Username is already in use."));

    let anna = token(&house, "anna").await;
    let me = bearing(&house, &anna, Method::GET, "/v3/users?me=true", Value::Null).await.ok();
    assert_eq!((&me["resourceType"], me["data"].as_array().unwrap().len()), (&json!("user"), 1));
    assert_eq!((&me["data"][0]["id"], &me["data"][0]["me"]), (&json!("anna"), &json!(true)));
    assert_eq!(me["data"][0]["links"].get("remove"), None);
    assert_eq!(me["data"][0]["actions"], json!({}));
    let all = bearing(&house, &anna, Method::GET, "/v3/users", Value::Null).await.ok();
    assert_eq!(all["data"].as_array().unwrap().len(), 1, "what she may not see is not there");
    let seen = bearing(&house, &root, Method::GET, "/v3/users", Value::Null).await.ok();
    assert_eq!(seen["data"].as_array().unwrap().len(), 2);
    assert!(seen["actions"]["changepassword"].as_str().unwrap().ends_with(CHANGE));
    let one = bearing(&house, &root, Method::GET, "/v3/users?username=anna", Value::Null).await.ok();
    assert!(
        one["data"][0]["actions"]["setpassword"]
            .as_str()
            .unwrap()
            .ends_with("/v3/users/anna?action=setpassword")
    );
    // Who is not there and who may not be seen are one answer.
    let (there, not) = (
        bearing(&house, &anna, Method::GET, "/v3/users/root", Value::Null).await,
        bearing(&house, &anna, Method::GET, "/v3/users/nobody", Value::Null).await,
    );
    assert_eq!((there.refusal(), not.refusal()), ((403, "Forbidden"), (403, "Forbidden")));
    assert_eq!(there.message().replace("root", "x"), not.message().replace("nobody", "x"));
    assert_eq!(bearing(&house, &root, Method::GET, "/v3/users/nobody", Value::Null).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn people_say_what_others_see_of_them_and_nothing_else() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let put = |token: &str, who: &str, change: Value| {
        let (token, uri) = (token.to_owned(), format!("/v3/users/{who}"));
        let house = &house;
        async move { bearing(house, &token, Method::PUT, &uri, change).await }
    };
    let named = put(&anna, "anna", json!({"name": "Anna", "id": "anna", "links": {}})).await.ok();
    assert_eq!(named["name"], "Anna");
    for change in [
        json!({"groups": ["admins"]}),
        json!({"mustChangePassword": true}),
        json!({"username": "root"}),
        json!({"name": "x", "groups": ["admins"]}),
    ] {
        assert_eq!(put(&anna, "anna", change.clone()).await.code, 403, "{change}");
    }
    assert_eq!(put(&anna, "anna", json!({"enabled": false})).await.refusal(), (422, "InvalidAction"));
    assert_eq!(put(&anna, "anna", json!({"password": NEW})).await.code, 422);
    assert_eq!(put(&anna, "anna", json!({"principalIds": ["local://root"]})).await.code, 422);
    assert_eq!(put(&anna, "anna", json!({"name": "x".repeat(300)})).await.code, 422);
    assert_eq!(put(&anna, "anna", json!({"name": "x".repeat(300_000)})).await.code, 413);
    assert_eq!(put(&anna, "root", json!({"name": "x"})).await.code, 403);
    assert_eq!(bearing(&house, &anna, Method::DELETE, "/v3/users/root", Value::Null).await.code, 403);
    assert_eq!(
        bearing(&house, &anna, Method::POST, "/v3/users", json!({"username": "b", "password": NEW}))
            .await
            .code,
        403
    );
    let now = bearing(&house, &root, Method::GET, "/v3/users/anna", Value::Null).await.ok();
    assert_eq!((&now["name"], &now["enabled"], &now["groups"]), (&json!("Anna"), &json!(true), &json!([])));

    assert_eq!(put(&root, "anna", json!({"enabled": false, "groups": ["web"]})).await.code, 200);
    assert_eq!(bearing(&house, &anna, Method::GET, "/v3/users?me=true", Value::Null).await.code, 401);
    assert_eq!(
        bearing(&house, &root, Method::DELETE, "/v3/users/root", Value::Null).await.refusal(),
        (422, "InvalidAction")
    );
    assert_eq!(bearing(&house, &root, Method::DELETE, "/v3/users/anna", Value::Null).await.code, 200);
    assert_eq!(ask(&house, Method::GET, "/v3/users", &[], "").await.refusal(), (401, "Unauthorized"));
    assert_eq!(ask(&house, Method::POST, "/v3/users", &[], "{}").await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn nobody_changes_another_s_password_without_being_allowed_to_be_them() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let helper = join(&house, "helper").await;
    give(&house, "helper", json!([{
        "apiGroups": ["management.cattle.io"], "resources": ["users"], "verbs": ["create", "get", "list", "update"],
    }]))
    .await;
    let set = |token: &str, who: &str| {
        let (token, uri) = (token.to_owned(), format!("/v3/users/{who}?action=setpassword"));
        let house = &house;
        async move { bearing(house, &token, Method::POST, &uri, json!({"newPassword": NEW})).await }
    };
    assert_eq!(set(&anna, "root").await.refusal(), (403, "Forbidden"));
    // Who may change users may not become one of them.
    assert_eq!(set(&helper, "root").await.refusal(), (403, "Forbidden"));
    // Nor by making the user of a name that roles are bound to.
    crate::visitors::bind(&house, "oncall", "cluster-admin").await;
    let wish = |name: &str| json!({"username": name, "password": NEW});
    let made = bearing(&house, &helper, Method::POST, "/v3/users", wish("oncall")).await;
    assert_eq!(made.refusal(), (403, "Forbidden"), "{}", made.text);
    assert_eq!(login(&house, "oncall", NEW, "token").await.code, 401);
    let grouped = json!({"username": "x", "password": NEW, "groups": ["system:masters"]});
    assert!(bearing(&house, &helper, Method::POST, "/v3/users", grouped).await.code >= 400);
    let grouped = json!({"username": "x", "password": NEW, "groups": ["admins"]});
    assert_eq!(bearing(&house, &helper, Method::POST, "/v3/users", grouped).await.code, 403);
    assert_eq!(bearing(&house, &helper, Method::POST, "/v3/users", wish("new")).await.code, 201);
    assert_eq!(login(&house, "root", &password("root"), "token").await.code, 201);

    // An administrator may, and that ends what the person was in with.
    assert_eq!(set(&root, "root").await.refusal(), (422, "InvalidAction"), "with the old one only");
    let weak = bearing(
        &house,
        &root,
        Method::POST,
        "/v3/users/anna?action=setpassword",
        json!({"newPassword": "x"}),
    )
    .await;
    assert_eq!(weak.refusal(), (422, "InvalidBodyContent"));
    assert_eq!(set(&root, "anna").await.code, 200);
    assert_eq!(bearing(&house, &anna, Method::GET, "/v3/users?me=true", Value::Null).await.code, 401);
    assert_eq!(login(&house, "anna", NEW, "token").await.code, 201);
    assert_eq!(set(&root, "nobody").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn tokens_are_made_for_oneself_shown_once_and_ended() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let make = |token: &str, wish: Value| {
        let token = token.to_owned();
        let house = &house;
        async move { bearing(house, &token, Method::POST, "/v3/tokens", wish).await }
    };
    let made = make(&anna, json!({"type": "token", "description": "for CI", "ttl": 60_000})).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let (name, bearer) = (made.body["id"].as_str().unwrap(), made.body["token"].as_str().unwrap());
    assert!(bearer.starts_with(&format!("{name}:")));
    assert_eq!((&made.body["isDerived"], &made.body["ttl"]), (&json!(true), &json!(60_000)));
    let uri = format!("/v3/tokens/{name}");
    let seen = bearing(&house, &anna, Method::GET, &uri, Value::Null).await;
    assert_eq!((seen.code, seen.body.get("token")), (200, None), "{}", seen.text);
    let me = "/v3/users?me=true";
    assert_eq!(bearing(&house, bearer, Method::GET, me, Value::Null).await.code, 200);

    // For somebody else there is no way, and nothing of theirs to see.
    assert_eq!(make(&anna, json!({"userId": "root"})).await.refusal(), (403, "Forbidden"));
    assert_eq!(bearing(&house, &root, Method::GET, &uri, Value::Null).await.code, 404);
    assert_eq!(bearing(&house, &root, Method::DELETE, &uri, Value::Null).await.code, 404);
    let forged = json!({"metadata": {"name": "t"}, "userId": "root", "token": "sha256:0", "isDerived": true});
    assert_eq!(bearing(&house, &anna, Method::POST, TOKENS_API, forged).await.code, 403);
    let listed = bearing(&house, &anna, Method::GET, "/v3/tokens", Value::Null).await.ok();
    let listed = listed["data"].as_array().unwrap();
    assert!(listed.len() == 2 && listed.iter().all(|token| token["userId"] == "anna"));
    assert_eq!(listed.iter().filter(|token| token["current"] == true).count(), 1);

    // What was made with it does not outlive it.
    for ttl in [json!(0), json!(null), json!(120_000)] {
        assert_eq!(make(bearer, json!({"ttl": ttl})).await.refusal(), (403, "Forbidden"), "{ttl}");
    }
    assert_eq!(make(bearer, json!({"ttl": 30_000})).await.code, 201);
    for odd in [json!(-1), json!("1"), json!(1.5)] {
        assert_eq!(make(&anna, json!({"ttl": odd})).await.code, 422, "{odd}");
    }
    assert_eq!(make(&anna, json!({"description": "x".repeat(5000)})).await.code, 422);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bearing(&house, bearer, Method::GET, me, Value::Null).await.code, 401);
    let over = bearing(&house, &anna, Method::GET, &uri, Value::Null).await.ok();
    assert_eq!(over["expired"], true);

    let lasting = make(&anna, json!({})).await.ok();
    let (name, bearer) = (lasting["id"].as_str().unwrap(), lasting["token"].as_str().unwrap());
    assert_eq!(
        bearing(&house, &anna, Method::DELETE, &format!("/v3/tokens/{name}"), Value::Null).await.code,
        204
    );
    assert_eq!(bearing(&house, bearer, Method::GET, me, Value::Null).await.code, 401);
    let session = anna.split_once(':').unwrap().0;
    assert_eq!(
        bearing(&house, &anna, Method::DELETE, &format!("/v3/tokens/{session}"), Value::Null).await.code,
        400
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_fills_the_store_with_tokens() {
    let house = House::new().await;
    let anna = join(&house, "anna").await;
    for _ in 0..200 {
        assert_eq!(bearing(&house, &anna, Method::POST, "/v3/tokens", json!({})).await.code, 201);
    }
    let said = bearing(&house, &anna, Method::POST, "/v3/tokens", json!({})).await;
    assert_eq!(said.refusal(), (403, "Forbidden"), "{}", said.text);
    let kubeconfig = "/v3/clusters/local?action=generateKubeconfig";
    assert_eq!(bearing(&house, &anna, Method::POST, kubeconfig, json!({})).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn who_must_choose_a_password_gets_as_far_as_that_and_no_further() {
    let house = House::new().await;
    join_admin(&house, "anna").await;
    house.patch(&format!("{USERS_API}/anna"), "merge-patch", json!({"mustChangePassword": true})).await.ok();
    let browser = Browser::sign_in(&house, "anna").await;
    let me = browser.ask(&house, Method::GET, "/v3/users?me=true", Value::Null).await.ok();
    assert_eq!(me["data"][0]["mustChangePassword"], true);
    for uri in ["/v3/principals", "/v1/management.cattle.io.settings", "/v3/settings/first-login"] {
        assert_eq!(browser.ask(&house, Method::GET, uri, Value::Null).await.code, 200, "{uri}");
    }
    for (method, uri) in [
        (Method::GET, "/v3/users"),
        (Method::GET, "/v3/users/anna"),
        (Method::PUT, "/v3/users/anna"),
        (Method::POST, "/v3/tokens"),
        (Method::GET, "/v3/tokens"),
        (Method::POST, "/v3/clusters/local?action=generateKubeconfig"),
        (Method::PUT, "/v1/userpreferences/anna"),
        (Method::PUT, "/v1/management.cattle.io.settings/ui-pl"),
        (Method::POST, "/v1/harvester/kubeconfig"),
        (Method::GET, MAPS),
    ] {
        let said = browser.ask(&house, method, uri, json!({})).await;
        assert_eq!(said.code, 403, "{uri} {}", said.text);
        assert!(said.text.contains("the password must be changed first"), "{}", said.text);
    }
    let settings = browser.ask(&house, Method::GET, "/v1/management.cattle.io.settings", Value::Null).await;
    assert!(!settings.text.contains("server-url"), "{}", settings.text);
    let first = "/v1/management.cattle.io.settings/first-login";
    assert_eq!(ask(&house, Method::GET, first, &[], "").await.ok()["value"], "");
    let change = json!({"currentPassword": password("anna"), "newPassword": NEW});
    assert_eq!(browser.ask(&house, Method::POST, CHANGE, change).await.code, 200);
    assert_eq!(browser.ask(&house, Method::GET, MAPS, Value::Null).await.code, 200);
    assert_eq!(ask(&house, Method::GET, first, &[], "").await.ok()["value"], "false");
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_its_asker_s_and_lasts_as_long_as_the_setting_says() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let expires = |config: Value| {
        let config: Value = serde_yaml_ng::from_str(config["config"].as_str().unwrap()).unwrap();
        let token = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        (config, token)
    };
    for path in [
        "/v3/clusters/local",
        "/v1/management.cattle.io.clusters/local",
        "/v1/management.cattle.io.cluster/local",
    ] {
        let cluster = bearing(&house, &anna, Method::GET, path, Value::Null).await.ok();
        assert_eq!(
            (&cluster["id"], cluster["actions"]["generateKubeconfig"].is_string()),
            (&json!("local"), true)
        );
        let made =
            bearing(&house, &anna, Method::POST, &format!("{path}?action=generateKubeconfig"), Value::Null)
                .await;
        assert_eq!((made.code, &made.body["type"]), (200, &json!("generateKubeconfigOutput")));
        let (config, token) = expires(made.body);
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443/k8s/clusters/local");
        assert!(config["clusters"][0]["cluster"].get("certificate-authority-data").is_some());
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let uri = "/k8s/clusters/local/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let who = bearing(&house, &token, Method::POST, uri, review).await.ok();
        assert_eq!(who["status"]["userInfo"]["username"], "anna");
    }
    assert_eq!(bearing(&house, &anna, Method::GET, "/v3/clusters/other", Value::Null).await.code, 404);
    // Who is no local user has nothing that a token could be of.
    let certified = house.post("/v3/clusters/local?action=generateKubeconfig", json!({})).await;
    assert_eq!(certified.code, 403, "{}", certified.body);

    let url = json!({"value": "https://cluster.example"});
    assert_eq!(bearing(&house, &anna, Method::PUT, "/v3/settings/server-url", url.clone()).await.code, 403);
    assert_eq!(bearing(&house, &root, Method::PUT, "/v3/settings/server-url", url).await.code, 200);
    let action = "/v3/clusters/local?action=generateKubeconfig";
    let (config, _) = expires(bearing(&house, &anna, Method::POST, action, Value::Null).await.ok());
    assert_eq!(config["clusters"][0]["cluster"]["server"], "https://cluster.example/k8s/clusters/local");
    let ttl = "/apis/harvesterhci.io/v1beta1/settings/kubeconfig-default-token-ttl-minutes";
    house.patch(ttl, "merge-patch", json!({"value": "30"})).await.ok();
    let (_, short) = expires(bearing(&house, &anna, Method::POST, action, Value::Null).await.ok());
    let me = "/v3/users?me=true";
    tokio::time::sleep(Duration::from_secs(29 * 60)).await;
    assert_eq!(bearing(&house, &short, Method::GET, me, Value::Null).await.code, 200);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bearing(&house, &short, Method::GET, me, Value::Null).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_a_kubeconfigs_by_its_mark_and_not_by_what_somebody_wrote_on_it() {
    let house = House::new().await;
    let anna = join(&house, "anna").await;
    let kind = "authn.management.cattle.io/kind";
    let wish = json!({"description": "Kubeconfig token", "labels": {kind: "kubeconfig"},
        "metadata": {"labels": {kind: "kubeconfig"}}});
    let made = bearing(&house, &anna, Method::POST, "/v3/tokens", wish).await.ok();
    let action = "/v3/clusters/local?action=generateKubeconfig";
    bearing(&house, &anna, Method::POST, action, Value::Null).await.ok();
    let all = bearing(&house, &anna, Method::GET, "/v3/tokens", Value::Null).await.ok();
    let marked: Vec<bool> = all["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|token| token["description"] == "Kubeconfig token")
        .map(|token| {
            assert_eq!(token["labels"][kind] == "kubeconfig", token["id"] != made["id"], "{token}");
            token["labels"][kind] == "kubeconfig"
        })
        .collect();
    assert_eq!(marked.iter().filter(|marked| **marked).count(), 1, "{all}");
    assert_eq!(marked.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_authority_is_shown_to_everybody() {
    let house = House::new().await;
    let anna = join(&house, "anna").await;
    let asked = ask(&house, Method::GET, "/cacerts", &[], "").await;
    assert_eq!(asked.code, 200);
    let pem = asked.text.clone();
    assert_eq!(pem, crate::house::CA_PEM, "as it is, since clients take its sum");
    assert_eq!(ask(&house, Method::POST, "/cacerts", &[], "").await.code, 405);
    let settings = ["/v3/settings", "/v1/management.cattle.io.settings"];
    for setting in settings.map(|all| format!("{all}/cacerts")) {
        assert_eq!(ask(&house, Method::GET, &setting, &[], "").await.ok()["value"], *pem, "{setting}");
        let shown = bearing(&house, &anna, Method::GET, &setting, Value::Null).await.ok();
        assert_eq!((&shown["id"], &shown["value"]), (&json!("cacerts"), &json!(pem)), "{setting}");
        assert!(shown["links"]["update"].is_null() && shown["links"]["remove"].is_null());
        let other = json!({"value": "x"});
        assert_eq!(bearing(&house, &anna, Method::PUT, &setting, other).await.code, 403, "{setting}");
    }
    for all in settings {
        let all = ask(&house, Method::GET, all, &[], "").await.ok();
        let mut ids = all["data"].as_array().unwrap().iter().map(|setting| &setting["id"]);
        assert!(ids.any(|id| id == "cacerts"), "{all}");
    }
}

#[tokio::test(start_paused = true)]
async fn settings_are_shown_as_far_as_one_may_see_them() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let all = "/v1/management.cattle.io.settings";
    let names = |page: &Value| -> Vec<String> {
        page["data"].as_array().unwrap().iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
    };
    let strangers = names(&ask(&house, Method::GET, all, &[], "").await.ok());
    assert!(strangers.contains(&"first-login".to_owned()) && !strangers.contains(&"server-url".to_owned()));
    let page = bearing(&house, &anna, Method::GET, all, Value::Null).await.ok();
    assert_eq!(page["resourceType"], "management.cattle.io.setting");
    assert!(names(&page).contains(&"server-url".to_owned()));
    assert_eq!(ask(&house, Method::GET, &format!("{all}/server-url"), &[], "").await.code, 401);
    assert_eq!(ask(&house, Method::PUT, &format!("{all}/ui-pl"), &[], "{}").await.code, 401);
    let brand = json!({"value": "A cluster"});
    let put = |token: &str, name: &str, body: Value| {
        let (token, uri) = (token.to_owned(), format!("{all}/{name}"));
        let house = &house;
        async move { bearing(house, &token, Method::PUT, &uri, body).await }
    };
    assert_eq!(put(&anna, "ui-pl", brand.clone()).await.refusal(), (403, "Forbidden"));
    assert_eq!(put(&root, "ui-pl", brand).await.ok()["value"], "A cluster");
    assert_eq!(put(&root, "ui-pl", json!({"value": 7})).await.code, 422);
    assert_eq!(put(&root, "telemetry-opt", json!({"value": "in"})).await.code, 422);
    assert_eq!(put(&root, "ui-logo-light", json!({"value": "x".repeat(200_000)})).await.code, 422);
    assert_eq!(put(&root, "nothing", json!({"value": "x"})).await.code, 404);
    let seen = bearing(&house, &anna, Method::GET, "/v3/settings/ui-pl", Value::Null).await.ok();
    assert_eq!((&seen["value"], &seen["customized"]), (&json!("A cluster"), &json!(true)));
    // They stay, also for those who may do everything.
    let gone = house.delete("/apis/management.cattle.io/v3/settings/ui-pl").await;
    assert_eq!(gone.refusal(), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn preferences_are_everybody_s_own_and_bounded() {
    let house = House::new().await;
    let (root, anna) = (join_admin(&house, "root").await, join(&house, "anna").await);
    let uri = "/v1/userpreferences/anna";
    let kept = json!({"id": "anna", "type": "userpreference", "data": {"theme": "dark", "rows": "10"}});
    let said = bearing(&house, &anna, Method::PUT, uri, kept.clone()).await.ok();
    assert_eq!((&said["data"], &said["id"]), (&kept["data"], &json!("anna")));
    let page = bearing(&house, &anna, Method::GET, "/v1/userpreferences", Value::Null).await.ok();
    assert_eq!(
        (&page["data"][0]["data"], page["data"][0]["links"]["update"].is_string()),
        (&kept["data"], true)
    );
    assert_eq!(bearing(&house, &root, Method::GET, uri, Value::Null).await.code, 404);
    assert_eq!(bearing(&house, &root, Method::PUT, uri, kept).await.code, 404);
    let other = bearing(&house, &root, Method::GET, "/v1/userpreferences", Value::Null).await.ok();
    assert_eq!(other["data"][0]["data"], json!({}));
    let large = json!({"data": {"a": "x".repeat(70_000)}});
    assert_eq!(bearing(&house, &anna, Method::PUT, uri, large).await.code, 422);
    let odd = json!({"data": {"not a key!": "x"}});
    assert_eq!(bearing(&house, &anna, Method::PUT, uri, odd).await.code, 422);
    let still = bearing(&house, &anna, Method::GET, uri, Value::Null).await.ok();
    assert_eq!(still["data"]["theme"], "dark");
    assert_eq!(
        bearing(&house, &anna, Method::PUT, uri, json!({"data": {"rows": "5"}})).await.ok()["data"],
        json!({"rows": "5"})
    );
    // Not for the next of the name.
    let user = format!("{USERS_API}/anna");
    house.delete(&user).await.ok();
    house.patch(&user, "merge-patch", json!({"metadata": {"finalizers": null}})).await;
    let next = join(&house, "anna").await;
    let page = bearing(&house, &next, Method::GET, "/v1/userpreferences", Value::Null).await.ok();
    assert_eq!(page["data"][0]["data"], json!({}));
    assert_eq!(
        house.put("/v1/userpreferences/root", json!({"data": {}})).await.code,
        403,
        "a certificate has none"
    );
}
