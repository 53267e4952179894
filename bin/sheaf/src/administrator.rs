//! The first administrator: user `admin`, with a password and every right.
//!
//! Each step is repeated until it is done, so a start that died in between is completed by the next.

use serde_json::json;
use sheaf_apiserver::{ApiServer, identity::users::NewUser};

use crate::{admin_password::AdminPassword, failure::Failure, node::Node};

pub const NAME: &str = "admin";

pub async fn ensure(node: &Node, api: &ApiServer) -> Result<(), Failure> {
    let users = api.users();
    // Who gave a password has chosen one already; ours lies in a file and is for the first login only.
    let password = match node.admin_password(users.has_password(NAME))? {
        AdminPassword::Generated(password) => Some((password, true)),
        AdminPassword::Given(password) => Some((password, false)),
        AdminPassword::AlreadySet => {
            if !users.must_change_password(NAME) {
                node.forget_first_password();
            }
            None
        }
    };
    if let Some((password, must_change_password)) = password {
        let new = NewUser {
            id: NAME.into(),
            username: NAME.into(),
            display_name: "Administrator".into(),
            groups: Vec::new(),
            must_change_password,
        };
        users.ensure(&new, password.reveal()).await?;
        if !must_change_password {
            api.first_login_is_over().await;
        }
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "sheaf-admin"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": NAME}],
    });
    api.ensure_object("rbac.authorization.k8s.io", "clusterrolebindings", "", binding).await?;
    Ok(())
}
