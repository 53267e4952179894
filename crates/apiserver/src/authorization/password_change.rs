//! What is open to somebody who must choose a new password first: to find out what this server is and who they are.
//!
//! It only narrows what roles give. The change itself is not here: it needs no right but the current password.

use sheaf_resources::rbac::Attributes;

use crate::{
    identity::{
        User,
        api_tokens::{GROUP, USERS},
    },
    status::{ApiError, Named},
};

pub(super) const REASON: &str = "the password must be changed first: \
     POST {\"currentPassword\": ..., \"newPassword\": ...} to /v3/users?action=changepassword";

/// For what is asked for past the roles.
pub(crate) fn refusal(user: &User) -> ApiError {
    ApiError::refused(Named { group: GROUP, resource: USERS }, &user.name, REASON)
}

pub(super) fn is_open_before(asked: &Attributes<'_>) -> bool {
    if let Some(path) = asked.path {
        let root = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        let discovers =
            ["", "api", "apis", "openapi", "version", "healthz", "livez", "readyz"].contains(&root);
        return discovers && matches!(asked.verb, "get" | "head");
    }
    let about_oneself = match asked.group {
        "authentication.k8s.io" => asked.resource == "selfsubjectreviews",
        "authorization.k8s.io" => {
            matches!(asked.resource, "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
        }
        _ => false,
    };
    about_oneself && asked.verb == "create" && asked.subresource.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path<'a>(verb: &'a str, path: &'a str) -> bool {
        is_open_before(&Attributes { verb, path: Some(path), ..Attributes::default() })
    }

    fn resource<'a>(verb: &'a str, group: &'a str, resource: &'a str) -> bool {
        is_open_before(&Attributes { verb, group, resource, ..Attributes::default() })
    }

    #[test]
    fn one_may_look_around_and_ask_about_oneself() {
        for open in ["/", "/api", "/api/v1", "/apis/apps/v1", "/openapi/v3", "/version", "/readyz"] {
            assert!(path("get", open), "{open}");
        }
        assert!(resource("create", "authentication.k8s.io", "selfsubjectreviews"));
        assert!(resource("create", "authorization.k8s.io", "selfsubjectaccessreviews"));
        assert!(resource("create", "authorization.k8s.io", "selfsubjectrulesreviews"));
    }

    #[test]
    fn nothing_else_is_open() {
        for closed in ["/metrics", "/sheaf/encryption-key/rotate", "/apisx", "/v1/management.cattle.io.users"]
        {
            assert!(!path("get", closed), "{closed}");
        }
        assert!(!path("post", "/api"));
        assert!(!resource("get", "", "configmaps"));
        assert!(!resource("impersonate", "", "users"));
        assert!(!resource("create", "authentication.k8s.io", "tokenreviews"));
        assert!(!resource("create", "authorization.k8s.io", "subjectaccessreviews"));
        assert!(!resource("create", "management.cattle.io", "tokens"));
    }
}
