//! Making users and setting passwords, cut off at any point: what is half done is harmless, and can be done again.

use http::Method;
use serde_json::{Value, json};

use crate::{
    house::House,
    visitors::{USERS_API, bearing, give, join, join_admin, login, password},
};

fn wish() -> Value {
    json!({
        "username": "anna", "password": password("anna"), "name": "Anna A.", "groups": ["web-team"],
        "mustChangePassword": true,
    })
}

/// As it stands when whoever makes a user is cut off before the password.
async fn cut_off(house: &House) {
    let half = json!({"metadata": {"name": "anna"}, "username": "anna", "enabled": true});
    house.post(USERS_API, half).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_making_was_cut_off_is_finished_by_making_them_again() {
    let house = House::new().await;
    let root = join_admin(&house, "root").await;
    cut_off(&house).await;
    assert_eq!(login(&house, "anna", "", "token").await.code, 401);
    let mut weak = wish();
    weak["password"] = "short".into();
    assert_eq!(bearing(&house, &root, Method::POST, "/v3/users", weak).await.refusal().0, 422);
    let made = bearing(&house, &root, Method::POST, "/v3/users", wish()).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let anna = house.get(&format!("{USERS_API}/anna")).await.ok();
    assert_eq!((&anna["displayName"], &anna["groups"]), (&json!("Anna A."), &json!(["web-team"])));
    let said = login(&house, "anna", &password("anna"), "token").await.ok();
    assert_eq!(said["mustChangePassword"], true);
    // Whoever has a password is somebody.
    let again = bearing(&house, &root, Method::POST, "/v3/users", wish()).await;
    assert_eq!(again.refusal(), (422, "NotUnique"));
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_over_a_user_without_a_password_who_could_not_set_it() {
    let house = House::new().await;
    let users = "management.cattle.io";
    let rules = json!([{"apiGroups": [users], "resources": ["users"], "verbs": ["create", "update", "get"]}]);
    give(&house, "maker", rules).await;
    let maker = join(&house, "maker").await;
    cut_off(&house).await;
    let refused = bearing(&house, &maker, Method::POST, "/v3/users", wish()).await;
    assert_eq!(refused.refusal(), (422, "NotUnique"));
    assert_eq!(login(&house, "anna", &password("anna"), "token").await.code, 401);
    let anna = house.get(&format!("{USERS_API}/anna")).await.ok();
    assert_eq!(anna.get("displayName").and_then(Value::as_str).unwrap_or_default(), "");
}

#[tokio::test(start_paused = true)]
async fn a_password_for_one_login_is_set_in_one_request() {
    let house = House::new().await;
    let root = join_admin(&house, "root").await;
    join(&house, "anna").await;
    let set = "/v3/users/anna?action=setpassword";
    for for_one_login in [true, false] {
        let new = format!("for one login: {for_one_login}");
        let body = json!({"newPassword": new, "mustChangePassword": for_one_login});
        let user = bearing(&house, &root, Method::POST, set, body).await.ok();
        assert_eq!(user["mustChangePassword"], for_one_login);
        assert_eq!(login(&house, "anna", &new, "token").await.ok()["mustChangePassword"], for_one_login);
    }
}
