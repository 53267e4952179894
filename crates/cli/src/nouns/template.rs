//! `sheaf template`: what machines are made of again and again. A version never changes; a template says which one is meant.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, list, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::{MACHINES, TEMPLATE_VERSIONS, TEMPLATES},
        table::{Cell, Column, clipped, column},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Make a template of a machine
    Create(CreateArgs),
    /// Print the templates there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a template and its versions
    Show(NameArgs),
    /// Delete templates, with all their versions
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The template
    #[arg(value_parser = names::segment, add = completing::names_of(&TEMPLATES))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Name of the template
    #[arg(value_parser = names::object)]
    pub name: String,
    /// The machine that it is made of
    #[arg(long, value_name = "MACHINE", value_parser = names::segment, add = completing::names_of(&MACHINES))]
    pub from: String,
    /// With what is on its disks, as images
    #[arg(long)]
    pub with_data: bool,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub description: String,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |template, _| text(template, "/metadata/namespace").into()),
    column("NAME", |template, _| text(template, "/metadata/name").into()),
    column("VERSION", |template, _| number(&template["status"]["defaultVersion"]).into()),
    column("LATEST", |template, _| number(&template["status"]["latestVersion"]).into()),
    column("DESCRIPTION", |template, _| clipped(text(template, "/spec/description")).into()),
    column("AGE", |template, moment| {
        sheaf_resources::age::since(text(template, "/metadata/creationTimestamp"), moment.now).into()
    }),
];

fn number(value: &Value) -> String {
    value.as_i64().map(|number| number.to_string()).unwrap_or_default()
}

pub async fn run(session: &Session, command: TemplateCommand) -> Result<(), Refusal> {
    match command {
        TemplateCommand::Create(args) => create(session, &args).await,
        TemplateCommand::List(args) => {
            let next =
                "those that come with the cluster are in namespace harvester-public (-n, or -A for all)";
            listing::list(session, &TEMPLATES, &args, COLUMNS, next).await
        }
        TemplateCommand::Show(args) => show(session, &args.name).await,
        TemplateCommand::Delete(args) => {
            listing::delete(
                session,
                &TEMPLATES,
                &args,
                "All its versions go with it; machines that were made of it stay.",
            )
            .await
        }
    }
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let doing = format!("make a template of the {}", MACHINES.about(namespace, &args.from));
    let input = json!({"name": args.name, "description": args.description, "withData": args.with_data});
    session.act(&MACHINES, (namespace, &args.from), "createTemplate", &input, &doing).await?;
    session.out.print(&format!(
        "{} is being made; `sheaf vm create NAME --template {}` makes machines of it\n",
        TEMPLATES.about(namespace, &args.name),
        args.name
    ))
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let template = session.get(&TEMPLATES, namespace, name).await?;
    if let Some(text) = session.format.one(&TEMPLATES, &template)? {
        return session.out.print(&text);
    }
    let id = format!("{namespace}/{name}");
    let mut versions = session.list(&TEMPLATE_VERSIONS, namespace, "").await?;
    versions.retain(|one| text(one, "/spec/templateId") == id);
    versions.sort_by_key(|one| -one["status"]["version"].as_i64().unwrap_or(0));
    let rows = versions.iter().map(|version| {
        let ready = list(version, "/status/conditions").find(|one| text(one, "/type") == "ready");
        let is_default = text(&template, "/spec/defaultVersionId")
            .ends_with(&format!("/{}", text(version, "/metadata/name")));
        vec![
            Cell::from(number(&version["status"]["version"])),
            if is_default { "yes" } else { "" }.into(),
            ready.map(|one| text(one, "/status")).unwrap_or_default().into(),
            text(version, "/spec/description").into(),
        ]
    });
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", namespace.as_str())
        .say("Description", text(&template, "/spec/description"));
    facts.list("Versions", &["VERSION", "DEFAULT", "READY", "DESCRIPTION"], rows.collect(), session.out);
    session.out.print(&facts.as_text())
}
