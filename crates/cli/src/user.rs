//! `sheaf user`: people who sign in, and what they may.
//!
//! Users are made where their passwords are set, at `/v3/users`; what they may is RoleBindings, as `kubectl create
//! rolebinding` makes them. A password that nobody gave is drawn, printed once, and good for the first login only.

use std::fmt::Write as _;

use http::{Method, Request};
use serde_json::{Value, json};
use sheaf_world::Chance;

use crate::{
    Secret,
    client_config::{Grant, UserConfig, UserWish},
    cluster::{Cluster, ClusterError},
    nearest_name::nearest,
};

const RBAC: &str = "rbac.authorization.k8s.io";
const PASSWORD_LETTERS: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the cluster did not do it: {0}")]
    Refused(String),
    #[error("the cluster did not do it: {0}")]
    Missing(String),
    #[error(
        "there is no user {who:?}{}: a role for who is known by a certificate or a service account alone is given with \
         --elsewhere, and one for a group with --group",
        .meant.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
    )]
    Stranger { who: String, meant: Option<String> },
    #[error(
        "there is a binding {binding:?} already, and it binds something else: give or take the role with kubectl"
    )]
    AnotherBinding { binding: String },
}

/// Does it, and answers what to print.
pub async fn run(config: &UserConfig, chance: &Chance) -> Result<String, UserError> {
    let cluster = Cluster::of(&config.kubeconfig).await?;
    let ask = async |method: Method, path: &str, body: Option<Value>| ask(&cluster, method, path, body).await;
    match &config.wish {
        UserWish::List => {
            let page = ask(Method::GET, "/v3/users", None).await?;
            Ok(table(&page["data"]))
        }
        UserWish::Create { name, display_name, groups, password } => {
            let (secret, is_drawn) = given_or_drawn(password.as_ref(), chance);
            let body = json!({
                "type": "user", "username": name, "name": display_name, "groups": groups, "enabled": true,
                "password": secret.reveal(), "mustChangePassword": is_drawn,
            });
            let made = ask(Method::POST, "/v3/users", Some(body)).await?;
            let id = made["id"].as_str().unwrap_or_default();
            let mut said = format!("user {name} is made");
            if id != name {
                let _ = write!(said, "; roles are bound to {id}");
            }
            Ok(said + "\n" + &told(&secret, is_drawn))
        }
        UserWish::SetPassword { name, password } => {
            let (secret, is_drawn) = given_or_drawn(password.as_ref(), chance);
            let path = format!("/v3/users/{name}?action=setpassword");
            // In one request: a password that was shown must never be good for more than one login.
            let body = json!({"newPassword": secret.reveal(), "mustChangePassword": is_drawn});
            ask(Method::POST, &path, Some(body)).await?;
            Ok(format!(
                "the password of {name} is set; sessions of theirs have ended\n{}",
                told(&secret, is_drawn)
            ))
        }
        UserWish::Delete { name } => {
            ask(Method::DELETE, &format!("/v3/users/{name}"), None).await?;
            Ok(format!("user {name} is deleted, and what was bound to the name goes with it\n"))
        }
        UserWish::Grant(grant) => {
            is_somebody(&cluster, grant).await?;
            let binding = binding(grant);
            match ask(Method::POST, &collection(grant), Some(binding.clone())).await {
                Ok(_) => {}
                Err(why) => {
                    // That it is there already is not what went wrong, if it is the same.
                    let there = ask(Method::GET, &path(grant), None).await.map_err(|_| why)?;
                    if !is_same(&there, &binding) {
                        return Err(UserError::AnotherBinding { binding: binding_name(grant) });
                    }
                }
            }
            Ok(format!("{} has the role {}{}\n", grant.who, grant.role, place(grant)))
        }
        UserWish::Revoke(grant) => {
            let there = ask(Method::GET, &path(grant), None).await?;
            if !is_same(&there, &binding(grant)) {
                return Err(UserError::AnotherBinding { binding: binding_name(grant) });
            }
            ask(Method::DELETE, &path(grant), None).await?;
            Ok(format!("{} no longer has the role {}{}\n", grant.who, grant.role, place(grant)))
        }
    }
}

/// A role for a name that nobody has does nothing, until somebody is given the name.
async fn is_somebody(cluster: &Cluster, grant: &Grant) -> Result<(), UserError> {
    if grant.is_group || grant.is_elsewhere {
        return Ok(());
    }
    match ask(cluster, Method::GET, &format!("/v3/users/{}", grant.who), None).await {
        Err(UserError::Missing(_)) => {}
        // Who may not read users may still give roles, and must know to whom.
        Ok(_) | Err(UserError::Refused(_)) => return Ok(()),
        Err(why) => return Err(why),
    }
    let page = ask(cluster, Method::GET, "/v3/users", None).await?;
    Err(UserError::Stranger { who: grant.who.clone(), meant: meant(&grant.who, &page["data"]) })
}

/// The user whose name or username is what was typed, or nearly.
fn meant(typed: &str, users: &Value) -> Option<String> {
    let users = || users.as_array().into_iter().flatten();
    let text = |user: &Value, field: &str| user[field].as_str().unwrap_or_default().to_owned();
    if let Some(user) = users().find(|user| user["username"] == typed) {
        // Roles are bound to the name of the object, which may be another.
        return Some(text(user, "id"));
    }
    let names: Vec<String> = users().map(|user| text(user, "id")).collect();
    nearest(typed, names.iter().map(String::as_str)).map(str::to_owned)
}

async fn ask(cluster: &Cluster, method: Method, path: &str, body: Option<Value>) -> Result<Value, UserError> {
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(body)
        .map_err(|why| UserError::Refused(why.to_string()))?;
    match cluster.objects.request_text(request).await {
        Ok(text) if text.is_empty() => Ok(Value::Null),
        Ok(text) => serde_json::from_str(&text).map_err(|why| UserError::Refused(why.to_string())),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(UserError::Missing(sentence(&status.message)))
        }
        Err(kube::Error::Api(status)) => Err(UserError::Refused(sentence(&status.message))),
        Err(why) => Err(ClusterError::from(why).into()),
    }
}

/// What was said, also by Rancher's API, whose errors are none of Kubernetes'.
fn sentence(message: &str) -> String {
    let text = message.trim().trim_matches('"').replace("\\\"", "\"");
    let told = serde_json::from_str::<Value>(&text).ok();
    match told.as_ref().and_then(|error| error["message"].as_str()) {
        Some(message) => message.to_owned(),
        None => message.to_owned(),
    }
}

fn given_or_drawn(given: Option<&Secret>, chance: &Chance) -> (Secret, bool) {
    match given {
        Some(secret) => (secret.clone(), false),
        None => (Secret::new(chance.letters(PASSWORD_LETTERS)), true),
    }
}

fn told(secret: &Secret, is_drawn: bool) -> String {
    match is_drawn {
        true => format!("password for the first login, shown once: {}\n", secret.reveal()),
        false => String::new(),
    }
}

fn table(users: &Value) -> String {
    let mut rows = vec![["NAME", "USERNAME", "ENABLED", "GROUPS", "DISPLAY NAME"].map(str::to_owned)];
    for user in users.as_array().into_iter().flatten() {
        let text = |field: &str| user[field].as_str().unwrap_or_default().to_owned();
        let groups: Vec<&str> =
            user["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let enabled = (user["enabled"] != false).to_string();
        rows.push([text("id"), text("username"), enabled, groups.join(","), text("name")]);
    }
    let widths: Vec<usize> = (0..5)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
        .collect();
    rows.iter().fold(String::new(), |mut table, row| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(table, "{}", cells.join("   ").trim_end());
        table
    })
}

fn binding_name(grant: &Grant) -> String {
    let kind = if grant.is_group { "group-" } else { "" };
    format!("{kind}{}-{}", grant.who, grant.role)
}

fn binding(grant: &Grant) -> Value {
    let subject = if grant.is_group { "Group" } else { "User" };
    let kind = if grant.namespace.is_some() { "RoleBinding" } else { "ClusterRoleBinding" };
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": {"name": binding_name(grant)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": grant.role},
        "subjects": [{"apiGroup": RBAC, "kind": subject, "name": grant.who}],
    })
}

fn is_same(there: &Value, wanted: &Value) -> bool {
    let what = |binding: &Value| (binding["roleRef"].clone(), binding["subjects"].clone());
    what(there) == what(wanted)
}

fn collection(grant: &Grant) -> String {
    match &grant.namespace {
        Some(namespace) => format!("/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"),
        None => format!("/apis/{RBAC}/v1/clusterrolebindings"),
    }
}

fn path(grant: &Grant) -> String {
    format!("{}/{}", collection(grant), binding_name(grant))
}

fn place(grant: &Grant) -> String {
    match &grant.namespace {
        Some(namespace) => format!(" in namespace {namespace}"),
        None => " everywhere".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bound_is_what_kubectl_would_bind() {
        let grant = |namespace: Option<&str>, is_group| Grant {
            who: "anna".into(),
            role: "edit".into(),
            namespace: namespace.map(str::to_owned),
            is_group,
            is_elsewhere: false,
        };
        let in_web = binding(&grant(Some("web"), false));
        assert_eq!(
            (&in_web["kind"], &in_web["subjects"][0]["kind"]),
            (&json!("RoleBinding"), &json!("User"))
        );
        assert_eq!(
            path(&grant(Some("web"), false)),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/web/rolebindings/anna-edit"
        );
        let everywhere = binding(&grant(None, true));
        assert_eq!(
            (&everywhere["kind"], &everywhere["metadata"]["name"]),
            (&json!("ClusterRoleBinding"), &json!("group-anna-edit"))
        );
        assert!(is_same(&in_web, &in_web) && !is_same(&in_web, &everywhere));
    }

    #[test]
    fn who_is_meant_is_who_the_roles_are_bound_to() {
        let users = json!([{"id": "anna", "username": "anna"}, {"id": "user-x7k2p", "username": "J. Doe"}]);
        assert_eq!(meant("ana", &users).as_deref(), Some("anna"));
        assert_eq!(meant("J. Doe", &users).as_deref(), Some("user-x7k2p"));
        assert_eq!(meant("zoe", &users), None);
        let stranger = UserError::Stranger { who: "ana".into(), meant: Some("anna".into()) };
        assert!(stranger.to_string().starts_with("there is no user \"ana\"; did you mean \"anna\"?: "));
    }

    #[test]
    fn a_refusal_is_told_as_a_sentence_whoever_says_it() {
        assert_eq!(
            sentence(r#"{"type":"error","message":"Username is already in use."}"#),
            "Username is already in use."
        );
        assert_eq!(sentence("users \"x\" not found"), "users \"x\" not found");
    }

    #[test]
    fn users_stand_in_columns() {
        let users = json!([{"id": "anna", "username": "anna", "enabled": true, "groups": ["web", "ops"], "name": "Anna A."}]);
        assert_eq!(
            table(&users),
            "NAME   USERNAME   ENABLED   GROUPS    DISPLAY NAME\nanna   anna       true      web,ops   Anna A.\n"
        );
    }
}
