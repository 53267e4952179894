//! management.cattle.io/v3 Token: an API token, of which only the hash is kept.

use serde_json::{Value, json};

use super::{age_column, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    schema::Schema,
};

pub fn kind() -> Kind {
    Kind::built_in("management.cattle.io", "v3", "Token", "tokens", schema)
        .cluster_scoped()
        .columns(vec![
            name_column(),
            Column::computed("User", |token, _| token["userId"].clone()),
            Column::computed("Description", |token, _| token["description"].clone()),
            Column::computed("Expires", |token, _| match text(&token["expiresAt"]) {
                "" => "never".into(),
                time => time.into(),
            }),
            age_column(),
        ])
        .behaving(Behaviour { validate, ..Behaviour::PLAIN })
}

fn schema() -> Schema {
    let string = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    super::object_schema(
        "An API token. Its bearer sends name:secret; only the secret's hash is kept.",
        json!({
            "authProvider": string("Who vouched for the user: local."),
            "description": string("What the token is for."),
            "enabled": flag("False stops the token at once."),
            "expiresAt": string("When it stops by itself; empty is never."),
            "isDerived": flag("Whether it was made from another token rather than by a login."),
            "token": string("The SHA-256 of the secret."),
            "ttl": {"type": "integer", "format": "int64", "description": "Milliseconds it was made for; 0 is for ever."},
            "userId": string("The name of the User it speaks for."),
        }),
    )
}

/// Whose a token is, and its secret, never change.
fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(&new["userId"]).is_empty() {
        errors.push(FieldError::required(&FieldPath::new("userId"), ""));
    }
    if !text(&new["token"]).starts_with("sha256:") {
        errors.push(FieldError::invalid(
            &FieldPath::new("token"),
            "<hidden>",
            "must be the hash of a secret",
        ));
    }
    for field in ["userId", "token"] {
        if old.is_some_and(|old| old[field] != new[field]) {
            errors.push(FieldError::invalid(&FieldPath::new(field), "<hidden>", "field is immutable"));
        }
    }
    errors
}
