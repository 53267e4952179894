//! Questions about identity, asked through the API: who am I, whose token is this.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Authenticator, Refusal, User,
    objects::{text, texts},
};

/// Who am I? Answers after impersonation, as the original does.
pub fn self_subject_review(user: &Arc<User>) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "SelfSubjectReview",
        "metadata": { "creationTimestamp": null },
        "status": { "userInfo": user.into_wire() },
    })
}

/// Whose token is this, and is it meant for one of these audiences?
pub fn token_review(authenticator: &Authenticator, body: &Value) -> Result<Value, Refusal> {
    let token = text(body, "/spec/token");
    if token.is_empty() {
        let message = "token is required for TokenReview in authentication".to_owned();
        return Err(Refusal::BadRequest { message });
    }
    let audiences = texts(body, "/spec/audiences");
    let mut answer = body.clone();
    answer["apiVersion"] = json!("authentication.k8s.io/v1");
    answer["kind"] = json!("TokenReview");
    if !answer["metadata"].is_object() {
        answer["metadata"] = json!({ "creationTimestamp": null });
    }
    answer["status"] = match authenticator.authenticate_token(token, &audiences) {
        Ok(verified) => json!({
            "authenticated": true,
            "user": verified.user.into_wire(),
            "audiences": verified.audiences,
        }),
        Err(why) => json!({ "authenticated": false, "user": {}, "error": why.to_string() }),
    };
    Ok(answer)
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
