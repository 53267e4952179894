//! `sheaf image`: images that disks are copied from.

pub mod download;
pub mod upload;

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use self::{download::DownloadArgs, upload::UploadArgs};
use super::volume::{self, ExportArgs};
use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, bytes, list, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::IMAGES,
        table::{Cell, Column, Tone, column, wide},
        waiting::{Standing, WaitArgs, until},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Have the cluster fetch an image from a URL
    Import(ImportArgs),
    /// Make an image of a file on this computer: qcow2, raw or ISO, also packed with gzip, xz or zstd
    Upload(UploadArgs),
    /// Write an image to a file on this computer
    Download(DownloadArgs),
    /// Print the images there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about an image
    Show(NameArgs),
    /// Make an image of what is on a volume
    Export(ExportArgs),
    /// Delete images that no disk is made of
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The image, by its name or what it is called
    #[arg(value_parser = names::segment, add = completing::names_of(&IMAGES))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct ImportArgs {
    /// Where it is: an http or https URL that the cluster can reach
    pub url: String,
    /// Name of the image
    #[arg(long, value_parser = names::object)]
    pub name: String,
    /// SHA-512 or SHA-256 of the file, in hexadecimal digits; another file is refused
    #[arg(long, value_name = "HEX")]
    pub checksum: Option<String>,
    /// What it is
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |image, _| text(image, "/metadata/namespace").into()),
    column("NAME", |image, _| text(image, "/metadata/name").into()),
    column("CALLED", |image, _| text(image, "/spec/displayName").into()),
    column("STATUS", |image, _| status(image)),
    column("SIZE", |image, _| size(image, "size").into()),
    column("DISK", |image, _| size(image, "virtualSize").into()),
    column("AGE", |image, moment| {
        sheaf_resources::age::since(text(image, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("SOURCE", |image, _| text(image, "/spec/sourceType").into()),
    wide("CLASS", |image, _| text(image, "/status/storageClassName").into()),
    wide("URL", |image, _| text(image, "/spec/url").into()),
];

/// Of an image that is there: before that it is the size of what is to come.
fn size(image: &Value, field: &str) -> String {
    let is_there = imported(image).is_some_and(|one| text(one, "/status") == "True");
    let size = image["status"][field].as_i64().filter(|size| is_there && *size > 0);
    size.map(bytes).unwrap_or_default()
}

/// What is said of whether all of it is there.
pub fn imported(image: &Value) -> Option<&Value> {
    list(image, "/status/conditions").find(|one| text(one, "/type") == "Imported")
}

fn status(image: &Value) -> Cell {
    match imported(image).map(|one| text(one, "/status")) {
        Some("True") => Cell::toned("ready", Tone::Good),
        Some("False") => Cell::toned("failed", Tone::Bad),
        _ => Cell::toned(format!("{} %", image["status"]["progress"].as_u64().unwrap_or(0)), Tone::Busy),
    }
}

pub async fn run(session: &Session, command: ImageCommand) -> Result<(), Refusal> {
    match command {
        ImageCommand::Import(args) => import(session, &args).await,
        ImageCommand::Upload(args) => Ok(upload::upload(session, &args).await?),
        ImageCommand::Download(mut args) => {
            args.name = name_of(session, &args.name).await?;
            Ok(download::download(session, &args).await?)
        }
        ImageCommand::List(args) => {
            let next =
                "`sheaf image import URL --name NAME` or `sheaf image upload FILE --name NAME` brings one";
            listing::list(session, &IMAGES, &args, COLUMNS, next).await
        }
        ImageCommand::Show(args) => show(session, &args.name).await,
        ImageCommand::Export(args) => volume::export(session, &args).await,
        ImageCommand::Delete(mut args) => {
            for name in &mut args.names {
                *name = name_of(session, name).await?;
            }
            listing::delete(
                session,
                &IMAGES,
                &args,
                "It goes only while no disk is made of it; what it holds is lost.",
            )
            .await
        }
    }
}

async fn import(session: &Session, args: &ImportArgs) -> Result<(), Refusal> {
    if !args.url.starts_with("http://") && !args.url.starts_with("https://") {
        let why = "it is no http or https URL; a file on this computer is brought with `sheaf image upload`";
        return Err(Refusal::Wrong(format!("{:?}: {why}", args.url)));
    }
    let mut image = json!({
        "apiVersion": IMAGES.api_version(), "kind": IMAGES.kind,
        "metadata": {"name": args.name, "namespace": session.namespace},
        "spec": {"displayName": args.name, "sourceType": "download", "url": args.url},
    });
    if let Some(checksum) = &args.checksum {
        image["spec"]["checksum"] = checksum.as_str().into();
    }
    if let Some(text) = &args.description {
        image["spec"]["description"] = text.as_str().into();
    }
    let made = session.create(&IMAGES, &image).await?;
    if args.wait.wait {
        until_imported(session, &session.namespace, &args.name, args.wait.timeout).await?;
    }
    if let Some(text) = session.format.one(&IMAGES, &made)? {
        return session.out.print(&text);
    }
    let done = match args.wait.wait {
        true => "is there".to_owned(),
        false => format!("is being fetched; `sheaf image show {}` tells how far it is", args.name),
    };
    session.out.print(&format!("{} {done}\n", IMAGES.about(&session.namespace, &args.name)))
}

/// Until all of it is there and checked.
pub async fn until_imported(
    session: &Session,
    namespace: &str,
    name: &str,
    patience: Duration,
) -> Result<(), Refusal> {
    let what = format!("the {} to be there", IMAGES.about(namespace, name));
    until(session, &IMAGES, (namespace, name), &what, patience, |image| {
        let Some(image) = image else { return Standing::Never("it was deleted".to_owned()) };
        match imported(image) {
            Some(one) if text(one, "/status") == "True" => Standing::There(()),
            Some(one) if text(one, "/status") == "False" => Standing::Never(text(one, "/message").to_owned()),
            Some(one) if !text(one, "/message").is_empty() => {
                Standing::OnItsWay(text(one, "/message").to_owned())
            }
            _ => so_far(image),
        }
    })
    .await
}

/// How much of an image that comes is there, in bytes where it is known how many there will be.
fn so_far(image: &Value) -> Standing<()> {
    let of = |field: &str| image["status"][field].as_u64().unwrap_or(0);
    match (of("progress"), of("size")) {
        (hundredths, 0) => Standing::OnItsWay(format!("{hundredths} %")),
        (hundredths, total) => Standing::Partly { done: total.saturating_mul(hundredths) / 100, total },
    }
}

/// By its name, or by what people call it: the console draws names.
pub async fn found(session: &Session, namespace: &str, typed: &str) -> Result<Value, Refusal> {
    if let Some(found) = session.find(&IMAGES, namespace, typed).await? {
        return Ok(found);
    }
    let all = session.list(&IMAGES, namespace, "").await?;
    match all.into_iter().find(|one| text(one, "/spec/displayName") == typed) {
        Some(found) => Ok(found),
        // In the words for what is not there.
        None => session.get(&IMAGES, namespace, typed).await,
    }
}

/// The name of it in the session's namespace.
async fn name_of(session: &Session, typed: &str) -> Result<String, Refusal> {
    Ok(text(&found(session, &session.namespace, typed).await?, "/metadata/name").to_owned())
}

async fn show(session: &Session, typed: &str) -> Result<(), Refusal> {
    let image = found(session, &session.namespace, typed).await?;
    let name = text(&image, "/metadata/name");
    if let Some(text) = session.format.one(&IMAGES, &image)? {
        return session.out.print(&text);
    }
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", session.namespace.as_str())
        .say("Called", text(&image, "/spec/displayName"))
        .say("Description", text(&image, "/spec/description"))
        .say("Source", text(&image, "/spec/sourceType"))
        .say("URL", text(&image, "/spec/url"))
        .say("Checksum", text(&image, "/spec/checksum"))
        .say("Progress", format!("{} %", image["status"]["progress"].as_u64().unwrap_or(0)))
        .say("Size", size(&image, "size"))
        .say("Size of the disk", size(&image, "virtualSize"))
        .say("Storage class", text(&image, "/status/storageClassName"));
    let said: Vec<String> = list(&image, "/status/conditions")
        .filter(|one| !text(one, "/message").is_empty())
        .map(|one| format!("{}: {}", text(one, "/type"), text(one, "/message")))
        .collect();
    facts.text("What is said of it", &said.join("\n"));
    session.out.print(&facts.as_text())
}
