//! The sentence that tells somebody they may not, word for word the original's.

use sheaf_resources::rbac::{Attributes, Who, forbidden_message};

use crate::identity::{Refusal, User};

/// `reason` is what [`Decision::Deny`](super::Decision::Deny) gave.
pub fn forbidden(user: &User, asked: &Attributes<'_>, reason: &str) -> Refusal {
    let who = Who { name: &user.name, groups: &user.groups };
    // The sentence may end up in a browser.
    let sentence =
        forbidden_message(&who, asked).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let message = if reason.is_empty() { sentence } else { format!("{sentence}: {reason}") };
    let (group, resource, name) = match asked.path {
        Some(_) => ("", "", ""),
        None => (asked.group, asked.resource, asked.name),
    };
    Refusal::Forbidden { group: group.into(), resource: resource.into(), name: name.into(), message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(asked: Attributes<'_>, reason: &str) -> String {
        let user = User { name: "jo".into(), ..User::default() };
        forbidden(&user, &asked, reason).to_string()
    }

    #[test]
    fn the_sentence_is_the_originals_in_every_form() {
        let get = Attributes {
            verb: "get",
            resource: "secrets",
            namespace: "ns",
            name: "x",
            ..Attributes::default()
        };
        assert_eq!(
            said(get, ""),
            r#"secrets "x" is forbidden: User "jo" cannot get resource "secrets" in API group "" in the namespace "ns""#
        );
        let list = Attributes {
            verb: "list",
            group: "apps",
            resource: "deployments",
            subresource: "status",
            ..Attributes::default()
        };
        assert_eq!(
            said(list, ""),
            r#"deployments.apps is forbidden: User "jo" cannot list resource "deployments/status" in API group "apps" at the cluster scope"#
        );
        let path = Attributes { verb: "get", path: Some("/metrics<b>"), ..Attributes::default() };
        assert_eq!(said(path, ""), r#"forbidden: User "jo" cannot get path "/metrics&lt;b&gt;""#);
        assert!(said(get, "RBAC: why").ends_with(r#"in the namespace "ns": RBAC: why"#));
    }
}
