//! `list` and `show` and `delete`, which are the same for every noun but for its columns.

use clap::Args as ClapArgs;
use serde_json::Value;

use crate::completing;

use super::{
    Refusal, Resource, Session,
    confirm::{YesArgs, confirm},
    names,
    session::plural,
    table::{self, Column},
    waiting::{WaitArgs, until_gone},
    watching::{self, Watched},
};

#[derive(Debug, ClapArgs)]
pub struct ListArgs {
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only those with these labels, such as app=web,tier!=db
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Go on, and print every change
    #[arg(short, long)]
    pub watch: bool,
}

/// What has no namespace.
#[derive(Debug, ClapArgs)]
pub struct ListAllArgs {
    /// Only those with these labels, such as app=web,tier!=db
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Go on, and print every change
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, ClapArgs)]
pub struct DeleteArgs {
    /// What to delete
    #[arg(required = true, value_name = "NAME", value_parser = names::segment, add = completing::names_meant())]
    pub names: Vec<String>,
    #[command(flatten)]
    pub yes: YesArgs,
    #[command(flatten)]
    pub wait: WaitArgs,
}

/// The first column is the namespace, which is shown with those of all namespaces alone.
pub async fn list(
    session: &Session,
    resource: &Resource,
    args: &ListArgs,
    columns: &[Column],
    how_to_make_one: &str,
) -> Result<(), Refusal> {
    let namespace = if args.all_namespaces { "" } else { session.namespace.as_str() };
    let columns = if args.all_namespaces { columns } else { &columns[1..] };
    if args.watch {
        let selector = args.selector.as_deref();
        let watched = Watched { resource, namespace, selector, columns, joined: None };
        return watching::forever(session, &watched).await;
    }
    let objects = session.list(resource, namespace, &query(args.selector.as_deref())).await?;
    session.is_a_place(resource, namespace, objects.is_empty()).await?;
    print(session, resource, &objects, columns, namespace, how_to_make_one)
}

/// The same of what has no namespace: all columns are shown.
pub async fn list_all(
    session: &Session,
    resource: &Resource,
    args: &ListAllArgs,
    columns: &[Column],
) -> Result<(), Refusal> {
    if args.watch {
        let selector = args.selector.as_deref();
        let watched = Watched { resource, namespace: "", selector, columns, joined: None };
        return watching::forever(session, &watched).await;
    }
    let objects = session.list(resource, "", &query(args.selector.as_deref())).await?;
    print(session, resource, &objects, columns, "", "")
}

pub fn query(selector: Option<&str>) -> String {
    selector.map(|said| format!("?labelSelector={}", names::encoded(said))).unwrap_or_default()
}

pub fn print(
    session: &Session,
    resource: &Resource,
    objects: &[Value],
    columns: &[Column],
    namespace: &str,
    how_to_make_one: &str,
) -> Result<(), Refusal> {
    if let Some(text) = session.format.many(resource, objects)? {
        return session.out.print(&text);
    }
    if objects.is_empty() {
        let place = if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
        let next = if how_to_make_one.is_empty() { String::new() } else { format!("; {how_to_make_one}") };
        return session.out.print(&format!("there is no {}{place}{next}\n", resource.called));
    }
    session.out.print(&table::of(columns, objects, &session.moment(), session.format, session.out))
}

/// Deletes all of them, or none if one is not there. `lost` says what goes with them.
pub async fn delete(
    session: &Session,
    resource: &Resource,
    args: &DeleteArgs,
    lost: &str,
) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    for name in &args.names {
        session.get(resource, namespace, name).await?;
    }
    let what = match args.names.as_slice() {
        [one] => format!("the {}", resource.about(namespace, one)),
        many => format!("the {} {}", plural(&resource.called), many.join(", ")),
    };
    let lost = if lost.is_empty() { String::new() } else { format!(" {lost}") };
    confirm(args.yes, &format!("This deletes {what}.{lost}"))?;
    for name in &args.names {
        session.delete(resource, namespace, name).await?;
        if args.wait.wait {
            until_gone(session, resource, (namespace, name), args.wait.timeout).await?;
        }
        let done = if args.wait.wait { "gone" } else { "deleted" };
        session.out.print(&format!("{} is {done}\n", resource.about(namespace, name)))?;
    }
    Ok(())
}
