//! `sheaf get`: objects of any kind. Tables are the server's own, which knows what matters of its kinds.

use clap::Args as ClapArgs;
use http::{Request, header};
use serde_json::Value;
use tokio::time::timeout;

use super::kinds::{Served, meant, served};
use crate::{
    asking::{
        Format, Refusal, Resource, Session, listing, names,
        session::ANSWER_PATIENCE,
        table::{Cell, Column, column, laid_out},
        watching::{self, Watched},
    },
    completing,
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[derive(Debug, ClapArgs)]
pub struct GetArgs {
    /// The kind: vm, image, pvc, secrets, settings.harvesterhci.io, ...
    #[arg(required_unless_present = "kinds", add = completing::kinds())]
    pub kind: Option<String>,
    /// Only these
    #[arg(value_parser = names::segment, add = completing::names_meant())]
    pub names: Vec<String>,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only those with these labels, such as app=web,tier!=db
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "names")]
    pub selector: Option<String>,
    /// Go on, and print every change
    #[arg(short, long, conflicts_with = "names")]
    pub watch: bool,
    /// Print which kinds are served, instead
    #[arg(long, conflicts_with_all = ["kind", "watch", "selector"])]
    pub kinds: bool,
}

pub async fn run(session: &Session, args: &GetArgs) -> Result<(), Refusal> {
    let all = served(session).await?;
    let Some(word) = &args.kind else { return session.out.print(&kinds_table(&all, session)) };
    let resource = meant(&all, word)?;
    let namespace = if args.all_namespaces { "" } else { session.namespace.as_str() };
    if args.watch {
        const COLUMNS: &[Column] = &[
            column("NAMESPACE", |object, _| text(object, "/metadata/namespace")),
            column("NAME", |object, _| text(object, "/metadata/name")),
            column("VERSION", |object, _| text(object, "/metadata/resourceVersion")),
            column("AGE", |object, moment| {
                let born = object["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
                sheaf_resources::age::since(born, moment.now).into()
            }),
        ];
        let columns = if resource.is_namespaced { COLUMNS } else { &COLUMNS[1..] };
        let selector = args.selector.as_deref();
        let watched = Watched { resource: &resource, namespace, selector, columns, joined: None };
        return watching::forever(session, &watched).await;
    }
    if !args.names.is_empty() {
        return named(session, &resource, &args.names).await;
    }
    let query = listing::query(args.selector.as_deref());
    if session.format.is_for_people() {
        let path = format!("{}{query}", resource.collection(namespace));
        let table = table(session, &resource, &path).await?;
        let is_empty = table["rows"].as_array().is_none_or(Vec::is_empty);
        session.is_a_place(&resource, namespace, is_empty).await?;
        return session.out.print(&table_text(
            &table,
            session,
            args.all_namespaces && resource.is_namespaced,
        ));
    }
    let objects = session.list(&resource, namespace, &query).await?;
    session.is_a_place(&resource, namespace, objects.is_empty()).await?;
    session.out.print(&session.format.many(&resource, &objects)?.unwrap_or_default())
}

async fn named(session: &Session, resource: &Resource, names: &[String]) -> Result<(), Refusal> {
    let mut objects = Vec::new();
    for name in names {
        // Asked for by name, so that a name that is none is told with the nearest there is.
        objects.push(session.get(resource, &session.namespace, name).await?);
    }
    if let Format::Table | Format::Wide = session.format {
        let mut whole: Option<Value> = None;
        for name in names {
            let mut one = table(session, resource, &resource.path(&session.namespace, name)).await?;
            match &mut whole {
                Some(whole) => {
                    if let (Some(rows), Value::Array(more)) =
                        (whole["rows"].as_array_mut(), one["rows"].take())
                    {
                        rows.extend(more);
                    }
                }
                None => whole = Some(one),
            }
        }
        return session.out.print(&table_text(&whole.unwrap_or_default(), session, false));
    }
    let text = match objects.as_slice() {
        [one] => session.format.one(resource, one)?,
        many => session.format.many(resource, many)?,
    };
    session.out.print(&text.unwrap_or_default())
}

async fn table(session: &Session, resource: &Resource, path: &str) -> Result<Value, Refusal> {
    let doing = format!("list objects of kind {}", resource.kind);
    let request = Request::get(path).header(header::ACCEPT, TABLE).body(Vec::new());
    let request = request.map_err(|why| Refusal::cannot(&doing, why))?;
    match timeout(ANSWER_PATIENCE, session.cluster.objects.request(request)).await {
        Ok(answer) => answer.map_err(|why| session.refused(why, &doing)),
        Err(_) => Err(session.silent()),
    }
}

fn table_text(table: &Value, session: &Session, with_namespace: bool) -> String {
    let columns: Vec<(usize, &Value)> = table["columnDefinitions"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .filter(|(_, column)| session.format == Format::Wide || column["priority"].as_i64().unwrap_or(0) == 0)
        .collect();
    let rows = table["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "there is none\n".to_owned();
    }
    let title = |column: &Value| column["name"].as_str().unwrap_or_default().to_uppercase();
    let mut titles: Vec<String> = columns.iter().map(|(_, column)| title(column)).collect();
    let mut cells: Vec<Vec<Cell>> = Vec::new();
    for row in rows {
        let shown = |at: &usize| match &row["cells"][*at] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        cells.push(columns.iter().map(|(at, _)| shown(at).into()).collect());
    }
    if with_namespace {
        titles.insert(0, "NAMESPACE".to_owned());
        for (line, row) in cells.iter_mut().zip(rows) {
            line.insert(0, text(&row["object"], "/metadata/namespace"));
        }
    }
    laid_out(titles, cells, session.out)
}

fn kinds_table(all: &[Served], session: &Session) -> String {
    let titles = ["NAME", "GROUP AND VERSION", "KIND", "NAMESPACED"].map(str::to_owned).to_vec();
    let rows = all.iter().filter(|one| one.verbs.iter().any(|verb| verb == "list")).map(|one| {
        let resource = &one.resource;
        let cells = [
            resource.plural.to_string(),
            resource.api_version(),
            resource.kind.to_string(),
            if resource.is_namespaced { "yes" } else { "no" }.to_owned(),
        ];
        cells.map(Cell::from).to_vec()
    });
    laid_out(titles, rows.collect(), session.out)
}

fn text(object: &Value, pointer: &str) -> Cell {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().into()
}
