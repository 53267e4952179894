//! management.cattle.io/v3 User: a person who signs in with a password. The password's hash is not
//! here but in a Secret of its own.

use serde_json::{Value, json};

use super::{age_column, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    schema::Schema,
};

/// Holds a user who goes until nothing is bound to the name any more, so that the next of the name begins with nothing.
pub const BINDINGS_FINALIZER: &str = "sheaf.io/bindings";

/// Everybody writes what others see of them, and it is read with every request of theirs.
const LONGEST: [(&str, usize); 3] = [("username", 128), ("displayName", 256), ("description", 4096)];
const MOST_GROUPS: usize = 256;
const LONGEST_GROUP: usize = 256;

pub fn kind() -> Kind {
    Kind::built_in("management.cattle.io", "v3", "User", "users", schema)
        .cluster_scoped()
        .columns(vec![
            name_column(),
            Column::computed("Username", |user, _| user["username"].clone()),
            Column::computed("Display Name", |user, _| user["displayName"].clone()),
            Column::computed("Enabled", |user, _| json!(user["enabled"] != false)),
            age_column(),
        ])
        .behaving(Behaviour { validate, finalizer_on_delete: Some(BINDINGS_FINALIZER), ..Behaviour::PLAIN })
}

fn schema() -> Schema {
    let string = |description: &str| json!({"type": "string", "description": description});
    let flag = |description: &str| json!({"type": "boolean", "description": description});
    let strings =
        |description: &str| json!({"type": "array", "items": {"type": "string"}, "description": description});
    super::object_schema(
        "A person who signs in with a name and a password.",
        json!({
            "username": string("What the person types to sign in; unique."),
            "displayName": string("What others see."),
            "description": string("Who this is, in words."),
            "enabled": flag("False locks the person out at once, tokens included."),
            "mustChangePassword": flag("Sessions may do nothing before the person has chosen a new password."),
            "principalIds": strings("The identities this user stands for."),
            "groups": strings("Groups the person is in, as RBAC subjects name them."),
        }),
    )
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::new("username");
    if text(&new["username"]).is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    if old.is_some_and(|old| old["username"] != new["username"]) {
        errors.push(FieldError::invalid(&path, text(&new["username"]), "field is immutable"));
    }
    let is_news = |field: &str| old.is_none_or(|old| old[field] != new[field]);
    for (field, longest) in LONGEST {
        if is_news(field) && text(&new[field]).len() > longest {
            errors.push(FieldError::too_long(&FieldPath::new(field), longest as u64));
        }
    }
    let groups = new["groups"].as_array().map_or(&[][..], Vec::as_slice);
    if is_news("groups") && groups.len() > MOST_GROUPS {
        errors.push(FieldError::too_many(&FieldPath::new("groups"), groups.len() as u64, MOST_GROUPS as u64));
    }
    if is_news("groups") && groups.iter().any(|group| text(group).len() > LONGEST_GROUP) {
        errors.push(FieldError::too_long(&FieldPath::new("groups"), LONGEST_GROUP as u64));
    }
    for (n, group) in new["groups"].as_array().into_iter().flatten().enumerate() {
        // The system's own groups come from certificates and tokens alone.
        if text(group).starts_with("system:") {
            errors.push(FieldError::forbidden(
                &FieldPath::new("groups").index(n),
                "groups that begin with system: cannot be given",
            ));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_put_into_a_group_of_the_system() {
        let errors = validate(&json!({"username": "a", "groups": ["ops", "system:masters"]}), None);
        assert_eq!(errors[0].field, "groups[1]");
    }

    #[test]
    fn what_people_write_of_themselves_is_bounded() {
        let user = json!({"username": "a", "displayName": "x".repeat(257), "description": "y".repeat(4097)});
        let fields: Vec<String> = validate(&user, None).into_iter().map(|error| error.field).collect();
        assert_eq!(fields, ["displayName", "description"]);
        assert!(validate(&user, Some(&user)).is_empty(), "what was there before stays");
        let groups = json!({"username": "a", "groups": vec!["g"; 257]});
        assert_eq!(validate(&groups, None).len(), 1);
    }

    #[test]
    fn a_name_once_given_stays() {
        assert_eq!(validate(&json!({"username": "b"}), Some(&json!({"username": "a"}))).len(), 1);
        assert_eq!(validate(&json!({}), None).len(), 1);
    }
}
