//! `sheaf user`: people who sign in, and what they may.
//!
//! Users are made where their passwords are set, at `/v3/users`; what they may is RoleBindings, as `kubectl create
//! rolebinding` makes them. A password that nobody gave is drawn, printed once, and good for the first login only.

use std::fmt::Write as _;

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use http::Method;
use serde_json::{Value, json};
use sheaf_resources::path;
use sheaf_world::Chance;

use crate::{
    Secret, admin_password_file,
    asking::{
        Format, Refusal, Session,
        confirm::{YesArgs, confirm},
        facts::{self, text},
        format::{json_text, yaml},
        names,
        resource::CLUSTER_ROLES,
        table::{self, Column, column},
    },
    completing,
    nearest_name::nearest,
};

const RBAC: &str = "rbac.authorization.k8s.io";
const PASSWORD_LETTERS: usize = 20;

#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Make a user. Without --password-file a password is drawn, printed, and good for the first login only
    Create(CreateUserArgs),
    /// Print everybody whom you may see
    #[command(visible_alias = "ls")]
    List,
    /// Set somebody's password, which ends their sessions. Drawn and printed without --password-file
    Passwd(PasswordArgs),
    /// Delete a user, with everything that is bound to the name
    #[command(visible_alias = "rm")]
    Delete(DeleteUserArgs),
    /// Give a user or a group a role: view, edit, admin or any other ClusterRole
    Grant(GiveArgs),
    /// Take away a role that `grant` gave
    Revoke(GrantArgs),
}

#[derive(Debug, ClapArgs)]
pub struct CreateUserArgs {
    /// What the person types to sign in; roles are bound to it
    #[arg(value_parser = names::segment)]
    pub name: String,
    /// What others see
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub display_name: String,
    /// A group to be in; may be given several times
    #[arg(long = "group", value_name = "NAME")]
    pub groups: Vec<String>,
    /// File with the password, of mode 0600
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct PasswordArgs {
    /// The user
    #[arg(value_parser = names::segment, add = completing::users())]
    pub name: String,
    /// File with the password, of mode 0600
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub struct DeleteUserArgs {
    /// The user
    #[arg(value_parser = names::segment, add = completing::users())]
    pub name: String,
    #[command(flatten)]
    pub yes: YesArgs,
}

#[derive(Debug, ClapArgs)]
pub struct GiveArgs {
    #[command(flatten)]
    pub grant: GrantArgs,
    /// The user is known by a certificate or a service account's token, and is none of `sheaf user list`
    #[arg(long, conflicts_with = "group")]
    pub elsewhere: bool,
}

#[derive(Debug, ClapArgs)]
pub struct GrantArgs {
    /// The user, or with --group the group
    #[arg(value_parser = names::segment, add = completing::users())]
    pub who: String,
    /// The role
    #[arg(value_parser = names::segment, add = completing::names_of(&CLUSTER_ROLES))]
    pub role: String,
    /// In all namespaces, and for what has none; without it the role is for the namespace that -n names
    #[arg(long, conflicts_with = "namespace")]
    pub everywhere: bool,
    /// The role is for a group, and so for everybody in it
    #[arg(long)]
    pub group: bool,
}

/// A role for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    who: String,
    role: String,
    /// `None` for all of them.
    namespace: Option<String>,
    is_group: bool,
    /// Whether it is given to somebody of whom the cluster has no object.
    is_elsewhere: bool,
}

impl Grant {
    /// Where a role is good is said, and never guessed: it is a right.
    fn new(session: &Session, args: GrantArgs, is_elsewhere: bool) -> Result<Grant, Refusal> {
        if !args.everywhere && !session.names_a_namespace {
            let why = "say where the role is good: in one namespace with -n NAME, or --everywhere";
            return Err(Refusal::Wrong(why.to_owned()));
        }
        let namespace = (!args.everywhere).then(|| session.namespace.clone());
        Ok(Grant { who: args.who, role: args.role, namespace, is_group: args.group, is_elsewhere })
    }
}

pub async fn run(session: &Session, command: UserCommand) -> Result<(), Refusal> {
    let chance = &session.world.chance;
    let said = match command {
        UserCommand::List => return list(session).await,
        UserCommand::Create(args) => {
            let name = args.name;
            let (secret, is_drawn) = given_or_drawn(args.password_file, chance)?;
            let body = json!({
                "type": "user", "username": name, "name": args.display_name, "groups": args.groups,
                "enabled": true, "password": secret.reveal(), "mustChangePassword": is_drawn,
            });
            let doing = format!("make the user {name}");
            let made = session.ask(Method::POST, "/v3/users", Some(&body), &doing).await?;
            let id = made["id"].as_str().unwrap_or_default();
            let mut said = format!("user {name} is made");
            if id != name {
                let _ = write!(said, "; roles are bound to {id}");
            }
            said + "\n" + &told(&secret, is_drawn)
        }
        UserCommand::Passwd(args) => {
            let name = args.name;
            let (secret, is_drawn) = given_or_drawn(args.password_file, chance)?;
            let path = format!("/v3/users/{name}?action=setpassword");
            // In one request: a password that was shown must never be good for more than one login.
            let body = json!({"newPassword": secret.reveal(), "mustChangePassword": is_drawn});
            let doing = format!("set the password of {name}");
            match session.ask(Method::POST, &path, Some(&body), &doing).await {
                Err(why) if why.is_not_found() => return Err(stranger(session, &name, "").await),
                answer => answer?,
            };
            format!(
                "the password of {name} is set; sessions of theirs have ended\n{}",
                told(&secret, is_drawn)
            )
        }
        UserCommand::Delete(args) => {
            let name = args.name;
            let doing = format!("delete the user {name}");
            let path = format!("/v3/users/{name}");
            match session.ask(Method::GET, &path, None, &doing).await {
                Err(why) if why.is_not_found() => return Err(stranger(session, &name, "").await),
                answer => answer?,
            };
            confirm(args.yes, &format!("This deletes the user {name} and what is bound to the name."))?;
            session.ask(Method::DELETE, &path, None, &doing).await?;
            format!("user {name} is deleted, and what was bound to the name goes with it\n")
        }
        UserCommand::Grant(args) => {
            let grant = Grant::new(session, args.grant, args.elsewhere)?;
            is_somebody(session, &grant).await?;
            let binding = binding(&grant);
            let doing = format!("give {} the role {}", grant.who, grant.role);
            match session.ask(Method::POST, &collection(&grant), Some(&binding), &doing).await {
                Ok(_) => {}
                Err(why) if why.is_conflict() => {
                    // That it is there already is not what went wrong, if it is the same.
                    let there = session.ask(Method::GET, &path(&grant), None, &doing).await?;
                    if !is_same(&there, &binding) {
                        return Err(another_binding(&grant, &doing));
                    }
                }
                Err(why) => return Err(why),
            }
            format!("{} has the role {}{}\n", grant.who, grant.role, place(&grant))
        }
        UserCommand::Revoke(args) => {
            let grant = Grant::new(session, args, false)?;
            let doing = format!("take the role {} from {}", grant.role, grant.who);
            let there = match session.ask(Method::GET, &path(&grant), None, &doing).await {
                Err(why) if why.is_not_found() => {
                    let about = format!("role {} that {} was given{}", grant.role, grant.who, place(&grant));
                    let advice = "only what `sheaf user grant` gave is taken away here".to_owned();
                    return Err(Refusal::NotFound { about, meant: None, advice });
                }
                answer => answer?,
            };
            if !is_same(&there, &binding(&grant)) {
                return Err(another_binding(&grant, &doing));
            }
            session.ask(Method::DELETE, &path(&grant), None, &doing).await?;
            format!("{} no longer has the role {}{}\n", grant.who, grant.role, place(&grant))
        }
    };
    session.out.print(&said)
}

fn another_binding(grant: &Grant, doing: &str) -> Refusal {
    let message = format!(
        "there is a binding {:?} already, and it binds something else: give or take the role with kubectl",
        binding_name(grant)
    );
    Refusal::Conflict { doing: doing.to_owned(), message }
}

async fn list(session: &Session) -> Result<(), Refusal> {
    let mut page = session.ask(Method::GET, "/v3/users", None, "list users").await?;
    let Value::Array(users) = page["data"].take() else { return Ok(()) };
    let text = match session.format {
        Format::Table | Format::Wide => {
            table::of(COLUMNS, &users, &session.moment(), session.format, session.out)
        }
        Format::Name => {
            users.iter().map(|user| format!("{}\n", user["id"].as_str().unwrap_or_default())).collect()
        }
        Format::Json => json_text(&Value::Array(users)),
        Format::Yaml => yaml(&Value::Array(users))?,
    };
    session.out.print(&text)
}

const COLUMNS: &[Column] = &[
    column("NAME", |user, _| text(user, "/id").into()),
    column("USERNAME", |user, _| text(user, "/username").into()),
    column("ENABLED", |user, _| (user["enabled"] != false).to_string().into()),
    column("GROUPS", |user, _| {
        let groups: Vec<&str> = facts::list(user, "/groups").filter_map(Value::as_str).collect();
        groups.join(",").into()
    }),
    column("DISPLAY NAME", |user, _| text(user, "/name").into()),
];

/// A role for a name that nobody has does nothing, until somebody is given the name.
async fn is_somebody(session: &Session, grant: &Grant) -> Result<(), Refusal> {
    if grant.is_group || grant.is_elsewhere {
        return Ok(());
    }
    let path = format!("/v3/users/{}", grant.who);
    match session.ask(Method::GET, &path, None, &format!("look for the user {}", grant.who)).await {
        Err(why) if why.is_not_found() => {}
        // Who may not read users may still give roles, and must know to whom.
        Ok(_) | Err(Refusal::Forbidden { .. } | Refusal::Refused { .. }) => return Ok(()),
        Err(why) => return Err(why),
    }
    let advice = "a role for who is known by a certificate or a service account alone is given with --elsewhere, and \
                  one for a group with --group";
    Err(stranger(session, &grant.who, advice).await)
}

async fn stranger(session: &Session, who: &str, advice: &str) -> Refusal {
    let page = session.ask(Method::GET, "/v3/users", None, "list users").await.unwrap_or_default();
    let advice = match advice {
        "" => "`sheaf user list` prints those there are".to_owned(),
        advice => advice.to_owned(),
    };
    Refusal::NotFound { about: format!("user {who:?}"), meant: meant(who, &page["data"]), advice }
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

fn given_or_drawn(file: Option<PathBuf>, chance: &Chance) -> Result<(Secret, bool), Refusal> {
    match file {
        Some(file) => {
            let read = admin_password_file::read_for("--password-file", &file);
            Ok((read.map_err(|why| Refusal::Wrong(why.to_string()))?, false))
        }
        None => Ok((Secret::new(chance.letters(PASSWORD_LETTERS)), true)),
    }
}

fn told(secret: &Secret, is_drawn: bool) -> String {
    match is_drawn {
        true => format!("password for the first login, shown once: {}\n", secret.reveal()),
        false => String::new(),
    }
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
        Some(namespace) => {
            format!("{}/namespaces/{}/rolebindings", path::root(RBAC, "v1"), path::encoded(namespace))
        }
        None => format!("{}/clusterrolebindings", path::root(RBAC, "v1")),
    }
}

fn path(grant: &Grant) -> String {
    format!("{}/{}", collection(grant), path::encoded(&binding_name(grant)))
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
    use crate::asking::{out::Out, table::Moment};

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
    }

    #[test]
    fn users_stand_in_columns() {
        let users = json!([{"id": "anna", "username": "anna", "enabled": true, "groups": ["web", "ops"], "name": "Anna A."}]);
        let users = users.as_array().unwrap();
        assert_eq!(
            table::of(COLUMNS, users, &Moment { now: 0 }, Format::Table, Out::default()),
            "NAME   USERNAME   ENABLED   GROUPS    DISPLAY NAME\nanna   anna       true      web,ops   Anna A.\n"
        );
    }
}
