//! Who gets in with which credential, and who does not.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderValue, header::AUTHORIZATION};
use proptest::prelude::*;
use serde_json::{Value, json};
use sheaf_world::World;

use super::*;
use crate::identity::{
    certificate::tests::certificate,
    jws::tests::{forged, keys},
    service_accounts::{BoundObject, ServiceAccount, TokenIssuer},
    shelf::Shelf,
};

const ACCOUNT: ServiceAccount<'static> = ServiceAccount { namespace: "ns", name: "robot", uid: "sa-uid" };

struct House {
    shelf: Arc<Shelf>,
    issuer: TokenIssuer,
    authenticator: Authenticator,
    world: World,
}

fn settings(issuer: &str) -> TokenSettings {
    TokenSettings { issuer: issuer.into(), audiences: vec!["api".into()], max_expiration_secs: 86_400 }
}

fn object(namespace: &str, name: &str, uid: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "uid": uid } })
}

fn house() -> House {
    let world = World::seeded(1);
    let shelf = Arc::new(Shelf::default());
    shelf.put("", "serviceaccounts", object("ns", "robot", "sa-uid"));
    let keys = Arc::new(keys(1));
    House {
        issuer: TokenIssuer::new(keys.clone(), settings("https://sheaf"), world.clone()),
        authenticator: Authenticator::new(
            shelf.clone(),
            keys,
            settings("https://sheaf"),
            world.clock.clone(),
        ),
        shelf,
        world,
    }
}

impl House {
    fn with_bearer(&self, token: &str) -> Result<Arc<User>, Rejected> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        self.authenticator.authenticate(None, &headers)
    }

    fn rejects(&self, token: &str) -> VerifyError {
        match self.with_bearer(token) {
            Err(Rejected::ServiceAccountToken(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    fn token(&self) -> String {
        self.issuer.issue(&ACCOUNT, &[], None, None).jwt
    }

    fn put_legacy_secret(&self, token: &str) {
        let mut secret = object("ns", "robot-token", "secret-uid");
        secret["type"] = json!("kubernetes.io/service-account-token");
        secret["data"] = json!({ "token": STANDARD.encode(token) });
        self.shelf.put("", "secrets", secret);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_presented_is_anonymous() {
    let user = house().authenticator.authenticate(None, &HeaderMap::new()).unwrap();
    assert_eq!(user.name, "system:anonymous");
    assert_eq!(user.groups, ["system:unauthenticated"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_credential_is_refused_and_never_anonymous() {
    let house = house();
    for token in ["x", "a.b.c", "token-abcde:secret", "eyJhbGciOiJub25lIn0.e30."] {
        assert!(house.with_bearer(token).is_err(), "{token}");
    }
    let mut basic = HeaderMap::new();
    basic.insert(AUTHORIZATION, HeaderValue::from_static("Basic YWRtaW46YWRtaW4="));
    assert_eq!(
        house.authenticator.authenticate(None, &basic).unwrap_err(),
        Rejected::Credential(BadCredential::NotBearer)
    );
    let nameless = certificate(None, &["system:masters"], 2200);
    assert!(house.authenticator.authenticate(Some(&nameless), &HeaderMap::new()).is_err());
    let expired = certificate(Some("jo"), &["system:masters"], 2025);
    assert!(house.authenticator.authenticate(Some(&expired), &HeaderMap::new()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_certificate_goes_before_a_token() {
    let house = house();
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", house.token())).unwrap());
    let peer = certificate(Some("jo"), &["ops"], 2200);
    assert_eq!(house.authenticator.authenticate(Some(&peer), &headers).unwrap().name, "jo");
}

#[tokio::test(start_paused = true)]
async fn a_service_account_is_who_its_token_says() {
    let house = house();
    let user = house.with_bearer(&house.token()).unwrap();
    assert_eq!(user.name, "system:serviceaccount:ns:robot");
    assert_eq!(user.uid, "sa-uid");
    assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
    assert!(user.extra["authentication.kubernetes.io/credential-id"][0].starts_with("JTI="));
}

#[tokio::test(start_paused = true)]
async fn an_api_token_is_its_users_until_it_is_deleted_and_for_the_api_server_alone() {
    let house = house();
    let person = json!({ "metadata": { "name": "user-1", "uid": "u1" }, "username": "jo" });
    let purpose = api_tokens::Purpose::Program;
    let wish = api_tokens::TokenWish { user_id: "user-1".into(), purpose, ..Default::default() };
    let (token, bearer) = api_tokens::mint(&house.world, &wish, &person);
    let name = token["metadata"]["name"].as_str().unwrap().to_owned();
    house.shelf.put(api_tokens::GROUP, api_tokens::USERS, person);
    house.shelf.put(api_tokens::GROUP, api_tokens::TOKENS, token);
    assert_eq!(house.with_bearer(&bearer).unwrap().name, "user-1");
    let elsewhere = house.authenticator.authenticate_token(&bearer, &["vault".into()]).unwrap_err();
    assert!(matches!(elsewhere, Rejected::ServiceAccountToken(VerifyError::WrongAudience { .. })));
    house.shelf.remove(api_tokens::GROUP, api_tokens::TOKENS, "", &name);
    assert_eq!(house.with_bearer(&bearer).unwrap_err(), Rejected::ApiToken(ApiTokenError::Unknown));
}

#[tokio::test(start_paused = true)]
async fn who_came_in_with_a_token_is_nobody_once_it_ended_or_they_changed() {
    let house = house();
    let person = |more: Value| {
        let mut person =
            json!({ "metadata": { "name": "user-1", "uid": "u1" }, "username": "jo", "groups": ["ops"] });
        for (key, value) in more.as_object().unwrap() {
            person[key] = value.clone();
        }
        person
    };
    let purpose = api_tokens::Purpose::Program;
    let wish = api_tokens::TokenWish { user_id: "user-1".into(), purpose, ..Default::default() };
    let (token, bearer) = api_tokens::mint(&house.world, &wish, &person(json!({})));
    house.shelf.put(api_tokens::GROUP, api_tokens::USERS, person(json!({})));
    house.shelf.put(api_tokens::GROUP, api_tokens::TOKENS, token.clone());
    let came = house.with_bearer(&bearer).unwrap();
    assert!(house.authenticator.is_still(&came));
    for changed in [json!({"enabled": false}), json!({"groups": []}), json!({"groups": ["ops", "all"]})] {
        house.shelf.put(api_tokens::GROUP, api_tokens::USERS, person(changed.clone()));
        assert!(!house.authenticator.is_still(&came), "{changed}");
    }
    house.shelf.put(api_tokens::GROUP, api_tokens::USERS, person(json!({})));
    assert!(house.authenticator.is_still(&came));
    let mut disabled = token;
    disabled["enabled"] = json!(false);
    house.shelf.put(api_tokens::GROUP, api_tokens::TOKENS, disabled);
    assert!(!house.authenticator.is_still(&came), "as a logout leaves it");
}

#[tokio::test(start_paused = true)]
async fn a_token_has_the_originals_claims() {
    let house = house();
    let pod = BoundObject::Pod { name: "p".into(), uid: "pu".into(), node: Some(("n".into(), "nu".into())) };
    let token = house.issuer.issue(&ACCOUNT, &["a".into(), "b".into()], Some(7200), Some(&pod));
    let payload = keys(1).verify(&token.jwt).unwrap();
    let mut claims: Value = serde_json::from_slice(&payload).unwrap();
    assert_eq!(claims["jti"].take().as_str().unwrap().len(), 36);
    assert_eq!(
        claims,
        json!({
            "aud": ["a", "b"], "exp": 1_893_463_200, "iat": 1_893_456_000, "nbf": 1_893_456_000,
            "iss": "https://sheaf", "jti": null, "sub": "system:serviceaccount:ns:robot",
            "kubernetes.io": {
                "namespace": "ns",
                "serviceaccount": { "name": "robot", "uid": "sa-uid" },
                "pod": { "name": "p", "uid": "pu" },
                "node": { "name": "n", "uid": "nu" },
            },
        })
    );
    assert_eq!(token.expires.to_string(), "2030-01-01T02:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_token_with_another_algorithm_is_refused() {
    let house = house();
    let claims: Value = serde_json::from_slice(&keys(1).verify(&house.token()).unwrap()).unwrap();
    let jwks = keys(1).jwks();
    let kid = jwks["keys"][0]["kid"].clone();
    let unsigned = forged(json!({ "alg": "none" }), &claims, |_| Vec::new());
    assert_eq!(house.rejects(&unsigned), VerifyError::Invalid);

    // The classic: an HMAC keyed with the public key, which anybody can compute.
    let with_public_key = |signed: &[u8]| hmac_sha256(jwks.to_string().as_bytes(), signed);
    let keyed = forged(json!({ "alg": "HS256", "kid": kid }), &claims, with_public_key);
    assert_eq!(house.rejects(&keyed), VerifyError::Invalid);
}

/// HMAC as RFC 2104 writes it; only the forgery above needs one.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let mut block = [0; 64];
    block[..32].copy_from_slice(&Sha256::digest(key));
    let inner = Sha256::digest([&block.map(|byte| byte ^ 0x36)[..], message].concat());
    Sha256::digest([&block.map(|byte| byte ^ 0x5c)[..], &inner[..]].concat()).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_token_of_another_cluster_or_issuer_is_refused() {
    let house = house();
    let elsewhere = TokenIssuer::new(Arc::new(keys(2)), settings("https://sheaf"), house.world.clone());
    assert_eq!(house.rejects(&elsewhere.issue(&ACCOUNT, &[], None, None).jwt), VerifyError::Invalid);
    let renamed = TokenIssuer::new(Arc::new(keys(1)), settings("https://other"), house.world.clone());
    assert_eq!(house.rejects(&renamed.issue(&ACCOUNT, &[], None, None).jwt), VerifyError::Invalid);
}

#[tokio::test(start_paused = true)]
async fn a_token_for_another_audience_is_refused_here_and_good_there() {
    let house = house();
    let token = house.issuer.issue(&ACCOUNT, &["vault".into()], None, None).jwt;
    assert!(matches!(house.rejects(&token), VerifyError::WrongAudience { .. }));
    let verified = house.authenticator.authenticate_token(&token, &["x".into(), "vault".into()]).unwrap();
    assert_eq!(verified.audiences, ["vault"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_refused_from_the_second_it_expires() {
    let house = house();
    let token = house.token();
    tokio::time::sleep(Duration::from_secs(3599)).await;
    assert!(house.with_bearer(&token).is_ok());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(house.rejects(&token), VerifyError::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_token_from_a_clock_far_ahead_is_not_valid_yet() {
    let house = house();
    tokio::time::sleep(Duration::from_secs(300)).await;
    let later = house.token();
    let behind = Authenticator::new(
        house.shelf.clone(),
        Arc::new(keys(1)),
        settings("https://sheaf"),
        World::seeded(9).clock, // Starts over at the fixed date.
    );
    let refused = behind.authenticate_token(&later, &[]).unwrap_err();
    assert_eq!(refused, Rejected::ServiceAccountToken(VerifyError::NotYetValid));
}

#[tokio::test(start_paused = true)]
async fn a_token_dies_with_its_account_and_does_not_rise_with_a_new_one() {
    let house = house();
    let token = house.token();
    assert!(house.with_bearer(&token).is_ok(), "and its signature is now remembered");
    house.shelf.remove("", "serviceaccounts", "ns", "robot");
    assert!(matches!(house.rejects(&token), VerifyError::AccountDeleted { .. }));
    house.shelf.put("", "serviceaccounts", object("ns", "robot", "another-uid"));
    assert!(matches!(house.rejects(&token), VerifyError::AccountRecreated { .. }));
    let mut dying = object("ns", "robot", "sa-uid");
    dying["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    house.shelf.put("", "serviceaccounts", dying);
    assert!(matches!(house.rejects(&token), VerifyError::AccountDeleted { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_token_dies_with_what_it_is_bound_to() {
    let house = house();
    let bound = [
        ("secrets", "ns", BoundObject::Secret { name: "b".into(), uid: "bu".into() }),
        ("pods", "ns", BoundObject::Pod { name: "b".into(), uid: "bu".into(), node: None }),
        ("nodes", "", BoundObject::Node { name: "b".into(), uid: "bu".into() }),
    ];
    for (resource, namespace, bound) in bound {
        let token = house.issuer.issue(&ACCOUNT, &[], None, Some(&bound)).jwt;
        assert_eq!(house.rejects(&token), VerifyError::Invalidated, "{resource} is not there");
        house.shelf.put("", resource, object(namespace, "b", "bu"));
        assert!(house.with_bearer(&token).is_ok(), "{resource}");
        house.shelf.put("", resource, object(namespace, "b", "recreated"));
        assert_eq!(house.rejects(&token), VerifyError::Invalidated, "{resource} is another one");
        house.shelf.remove("", resource, namespace, "b");
        assert_eq!(house.rejects(&token), VerifyError::Invalidated, "{resource} is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_gracefully_keeps_its_token_until_it_is_gone() {
    let house = house();
    let bound = BoundObject::Pod { name: "b".into(), uid: "bu".into(), node: None };
    let token = house.issuer.issue(&ACCOUNT, &[], None, Some(&bound)).jwt;
    let mut pod = object("ns", "b", "bu");
    pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:30Z");
    house.shelf.put("", "pods", pod);
    let user = house.with_bearer(&token).unwrap();
    assert_eq!(user.extra["authentication.kubernetes.io/pod-name"], ["b"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(house.rejects(&token), VerifyError::Invalidated);
}

#[tokio::test(start_paused = true)]
async fn a_token_in_a_secret_is_good_while_the_secret_holds_that_very_token() {
    let house = house();
    let token = house.issuer.issue_legacy(&ACCOUNT, "robot-token");
    assert_eq!(house.rejects(&token), VerifyError::Invalidated, "no secret");
    house.put_legacy_secret(&token);
    tokio::time::sleep(Duration::from_secs(10 * 365 * 86_400)).await;
    assert_eq!(house.with_bearer(&token).unwrap().name, "system:serviceaccount:ns:robot");

    house.put_legacy_secret("another token");
    assert_eq!(house.rejects(&token), VerifyError::Invalidated);
    house.put_legacy_secret(&token);
    let mut opaque = Value::clone(&house.shelf.object("", "secrets", "ns", "robot-token").unwrap());
    opaque["type"] = json!("Opaque");
    house.shelf.put("", "secrets", opaque);
    assert_eq!(house.rejects(&token), VerifyError::Invalidated);
    house.put_legacy_secret(&token);
    house.shelf.put("", "serviceaccounts", object("ns", "robot", "another-uid"));
    assert!(matches!(house.rejects(&token), VerifyError::AccountRecreated { .. }));
}

#[tokio::test(start_paused = true)]
async fn claims_that_contradict_each_other_are_refused() {
    let house = house();
    let good: Value = serde_json::from_slice(&keys(1).verify(&house.token()).unwrap()).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut claims = good.clone();
        *claims.pointer_mut(pointer).unwrap() = value;
        house.rejects(&keys(1).sign(&claims))
    };
    assert_eq!(with("/sub", json!("system:serviceaccount:ns:admin")), VerifyError::Invalid);
    assert!(matches!(
        with("/kubernetes.io/serviceaccount/uid", json!("")),
        VerifyError::AccountRecreated { .. }
    ));
    assert_eq!(with("/exp", json!("never")), VerifyError::Invalid);
    assert!(matches!(with("/aud", json!([])), VerifyError::WrongAudience { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_requested_token_has_the_life_that_was_asked_for_within_bounds() {
    let house = house();
    let request =
        |spec: Value| house.issuer.request(house.shelf.as_ref(), "ns", "robot", &json!({ "spec": spec }));
    let answer = request(json!({ "expirationSeconds": 900, "audiences": ["vault"] })).unwrap();
    assert_eq!(answer["status"]["expirationTimestamp"], "2030-01-01T00:15:00Z");
    assert_eq!(answer["spec"]["audiences"], json!(["vault"]));
    let answer = request(json!({})).unwrap();
    assert_eq!(answer["status"]["expirationTimestamp"], "2030-01-01T01:00:00Z");
    assert_eq!(answer["spec"]["audiences"], json!(["api"]));
    assert!(house.with_bearer(answer["status"]["token"].as_str().unwrap()).is_ok());
    let answer = request(json!({ "expirationSeconds": 1_000_000 })).unwrap();
    assert_eq!(answer["status"]["expirationTimestamp"], "2030-01-02T00:00:00Z", "the setting's most");

    let refused = |spec: Value| request(spec).unwrap_err().to_string();
    assert_eq!(
        refused(json!({ "expirationSeconds": 599 })),
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not \
         specify a duration less than 10 minutes"
    );
    assert!(refused(json!({ "expirationSeconds": 1_i64 << 33 })).contains("larger than 2^32"));
    assert!(refused(json!({ "expirationSeconds": "long" })).contains("whole number"));
}

#[tokio::test(start_paused = true)]
async fn a_requested_binding_must_be_to_something_that_is_there() {
    let house = house();
    let request = |reference: Value| {
        let body = json!({ "spec": { "boundObjectRef": reference } });
        house.issuer.request(house.shelf.as_ref(), "ns", "robot", &body)
    };
    let secret = json!({ "kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "su" });
    assert_eq!(request(secret.clone()).unwrap_err().to_string(), "secrets \"s\" not found");
    house.shelf.put("", "secrets", object("ns", "s", "su"));
    let token = request(secret.clone()).unwrap()["status"]["token"].as_str().unwrap().to_owned();
    assert!(house.with_bearer(&token).is_ok());
    house.shelf.put("", "secrets", object("ns", "s", "other"));
    assert!(request(secret).unwrap_err().to_string().contains("does not match the UID in record"));

    let mut pod = object("ns", "p", "pu");
    pod["spec"] = json!({ "serviceAccountName": "somebody-else" });
    house.shelf.put("", "pods", pod);
    let refused = request(json!({ "kind": "Pod", "apiVersion": "v1", "name": "p" })).unwrap_err();
    assert!(refused.to_string().contains("cannot bind token for serviceaccount \"robot\""), "{refused}");
    let refused = request(json!({ "kind": "ConfigMap", "apiVersion": "v1", "name": "c" })).unwrap_err();
    assert_eq!(refused.to_string(), "cannot bind token to object of type /v1, Kind=ConfigMap");
    let missing = house.issuer.request(house.shelf.as_ref(), "ns", "nobody", &json!({})).unwrap_err();
    assert_eq!(missing.to_string(), "serviceaccounts \"nobody\" not found");
}

#[tokio::test(start_paused = true)]
async fn discovery_tells_others_how_to_check_our_tokens() {
    let house = house();
    assert_eq!(house.issuer.discovery()["jwks_uri"], "https://sheaf/openid/v1/jwks");
    let key = house.issuer.jwks()["keys"][0].clone();
    assert_eq!(
        (key["kty"].as_str(), key["crv"].as_str(), key["alg"].as_str()),
        (Some("EC"), Some("P-256"), Some("ES256"))
    );
    assert_eq!(key["x"].as_str().unwrap().len(), 43);
    assert_eq!(key["y"].as_str().unwrap().len(), 43);
    assert!(key.get("d").is_none());
}

proptest! {
    #[test]
    fn an_arbitrary_token_is_refused_without_a_panic(token in any::<String>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let _inside = runtime.enter();
        prop_assert!(house().authenticator.authenticate_token(&token, &[]).is_err());
    }
}
