//! What reviews of tokens and of oneself answer.

use sheaf_world::World;

use super::*;
use crate::identity::{
    jws::tests::keys,
    service_accounts::{ServiceAccount, TokenIssuer, TokenSettings},
    shelf::Shelf,
};

fn house() -> (Arc<Shelf>, TokenIssuer, Authenticator) {
    let world = World::seeded(1);
    let shelf = Arc::new(Shelf::default());
    let account = json!({ "metadata": { "namespace": "ns", "name": "robot", "uid": "u" } });
    shelf.put("", "serviceaccounts", account);
    let settings =
        TokenSettings { issuer: "i".into(), audiences: vec!["api".into()], max_expiration_secs: 3600 };
    let keys = Arc::new(keys(1));
    let issuer = TokenIssuer::new(keys.clone(), settings.clone(), world.clone());
    let authenticator = Authenticator::new(shelf.clone(), keys, settings, world.clock);
    (shelf, issuer, authenticator)
}

#[tokio::test(start_paused = true)]
async fn a_good_token_is_reviewed_with_its_user_and_audiences() {
    let (shelf, issuer, authenticator) = house();
    let account = ServiceAccount { namespace: "ns", name: "robot", uid: "u" };
    let token = issuer.issue(&account, &["vault".into()], None, None).jwt;
    let review = |audiences: Value| {
        token_review(&authenticator, &json!({ "spec": { "token": token, "audiences": audiences } })).unwrap()
    };
    let answer = review(json!(["vault", "x"]));
    assert_eq!(answer["status"]["authenticated"], true);
    assert_eq!(answer["status"]["audiences"], json!(["vault"]));
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:ns:robot");
    assert_eq!(review(json!([]))["status"]["authenticated"], false, "not for the API server");
    shelf.remove("", "serviceaccounts", "ns", "robot");
    let answer = review(json!(["vault"]));
    assert_eq!(answer["status"]["authenticated"], false);
    assert_eq!(answer["status"]["error"], "service account ns/robot has been deleted");
}

#[tokio::test(start_paused = true)]
async fn a_review_without_a_token_is_refused() {
    let (_, _, authenticator) = house();
    let refused = token_review(&authenticator, &json!({ "spec": {} })).unwrap_err();
    assert_eq!(refused.to_string(), "token is required for TokenReview in authentication");
}

#[test]
fn who_am_i_is_answered_with_all_that_is_known() {
    let answer = self_subject_review(&User::anonymous());
    assert_eq!(
        answer["status"]["userInfo"],
        json!({ "username": "system:anonymous", "groups": ["system:unauthenticated"] })
    );
}
