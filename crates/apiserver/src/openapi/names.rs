//! What types and operations are called in the documents. Generated clients are made of these
//! names, so they follow the original's rules to the letter.

use sheaf_resources::kind::{Kind, SchemaSource};

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The names of a kind's own type and of its list's.
pub struct TypeNames {
    pub object: String,
    pub list: String,
}

impl TypeNames {
    pub fn of(kind: &Kind) -> Self {
        let object = match &kind.schema {
            SchemaSource::BuiltIn { types: Some(types), .. } => types.root(),
            _ => reversed(kind),
        };
        let package = object.rsplit_once('.').map_or("", |(package, _)| package);
        TypeNames { list: format!("{package}.{}", kind.list_kind), object }
    }
}

/// `io.example.v1.Widget` for a Widget of `example.io/v1`.
fn reversed(kind: &Kind) -> String {
    let mut parts: Vec<&str> = kind.group.split('.').rev().collect();
    parts.extend([kind.version.as_str(), kind.kind.as_str()]);
    parts.join(".")
}

/// `RbacAuthorizationV1` of `rbac.authorization.k8s.io/v1`; the core group is called `core`.
pub fn operation_prefix(group: &str, version: &str) -> String {
    format!("{}{}", joined(short(group), true), joined(version, true))
}

/// `rbacAuthorization_v1`.
pub fn tag(group: &str, version: &str) -> String {
    format!("{}_{}", joined(short(group), false), joined(version, false))
}

fn short(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) }
}

/// Runs the words of a name together, each with a capital; the first one only if asked to.
pub fn joined(name: &str, mut capital: bool) -> String {
    let mut out = String::with_capacity(name.len());
    for character in name.chars() {
        if !character.is_ascii_alphanumeric() {
            capital = true;
        } else if capital {
            out.push(character.to_ascii_uppercase());
            capital = false;
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_as_generated_clients_expect() {
        assert_eq!(operation_prefix("", "v1"), "CoreV1");
        assert_eq!(operation_prefix("rbac.authorization.k8s.io", "v1"), "RbacAuthorizationV1");
        assert_eq!(operation_prefix("stable.example.com", "v1beta1"), "StableExampleComV1beta1");
        assert_eq!(tag("rbac.authorization.k8s.io", "v1"), "rbacAuthorization_v1");
        assert_eq!(tag("", "v1"), "core_v1");
    }
}
