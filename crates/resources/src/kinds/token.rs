//! management.cattle.io/v3 Token: an API token, of which only the hash is kept.

use serde_json::{Value, json};

use super::{age_column, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    schema::Schema,
};

const LONGEST_DESCRIPTION: usize = 4096;

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

/// When a token stops by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Never,
    /// Milliseconds since the epoch.
    AtMillis(i64),
    /// It states something that cannot be read: nobody should trust it, and nobody knows since when.
    Unreadable,
}

/// The earlier of the end stated and the end of the time it was made for.
pub fn end(token: &Value) -> End {
    let stated = match text(&token["expiresAt"]) {
        "" => None,
        time => match time.parse::<jiff::Timestamp>() {
            Ok(time) => Some(time.as_millisecond()),
            Err(_) => return End::Unreadable,
        },
    };
    let ttl_millis = match &token["ttl"] {
        Value::Null => 0,
        ttl => match ttl.as_i64() {
            Some(millis) => millis,
            None => return End::Unreadable,
        },
    };
    let created = text(&token["metadata"]["creationTimestamp"]).parse::<jiff::Timestamp>();
    let spent = match created {
        _ if ttl_millis <= 0 => None,
        Ok(created) => Some(created.as_millisecond().saturating_add(ttl_millis)),
        // Rancher states an end, ours always do; with neither an end nor a beginning there is nothing to trust.
        Err(_) if stated.is_none() => return End::Unreadable,
        Err(_) => None,
    };
    match stated.into_iter().chain(spent).min() {
        Some(millis) => End::AtMillis(millis),
        None => End::Never,
    }
}

/// Whose a token is, how it came to be, and its secret, never change.
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
    let is_news = old.is_none_or(|old| old["description"] != new["description"]);
    if is_news && text(&new["description"]).len() > LONGEST_DESCRIPTION {
        let path = FieldPath::new("description");
        errors.push(FieldError::too_long(&path, LONGEST_DESCRIPTION as u64));
    }
    for field in ["userId", "token", "isDerived"] {
        if old.is_some_and(|old| old[field] != new[field]) {
            errors.push(FieldError::invalid(&FieldPath::new(field), "<hidden>", "field is immutable"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_at_the_earlier_of_its_two_ends() {
        let token = |expires: &str, ttl: i64| {
            end(&json!({
                "metadata": {"creationTimestamp": "1970-01-01T00:00:10Z"}, "expiresAt": expires, "ttl": ttl,
            }))
        };
        assert_eq!(token("", 0), End::Never);
        assert_eq!(token("1970-01-01T00:00:20Z", 0), End::AtMillis(20_000));
        assert_eq!(token("", 500), End::AtMillis(10_500));
        assert_eq!(token("1970-01-01T00:00:20Z", 500), End::AtMillis(10_500));
        assert_eq!(token("1970-01-01T00:00:10Z", 500), End::AtMillis(10_000));
        assert_eq!(token("tomorrow", 500), End::Unreadable);
    }

    #[test]
    fn a_token_without_a_beginning_is_trusted_for_its_stated_end_only() {
        assert_eq!(end(&json!({"expiresAt": "1970-01-01T00:00:20Z", "ttl": 5})), End::AtMillis(20_000));
        assert_eq!(end(&json!({"ttl": 5})), End::Unreadable);
        assert_eq!(end(&json!({"ttl": "long"})), End::Unreadable);
        assert_eq!(end(&json!({})), End::Never);
    }

    #[test]
    fn a_session_never_becomes_anything_else() {
        let token = |derived: Value| json!({"userId": "u", "token": "sha256:x", "isDerived": derived});
        let session = token(json!(false));
        assert!(validate(&session, Some(&session)).is_empty());
        assert_eq!(validate(&token(json!(true)), Some(&session))[0].field, "isDerived");
    }
}
