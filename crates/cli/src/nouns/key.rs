//! `sheaf key`: SSH keys that may log in to machines. Private halves are never kept by the cluster.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, Subcommand};
use http::Method;
use serde_json::json;

use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, list, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::KEYS,
        table::{Cell, Column, Tone, column, wide},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key of a public half, or draw one and write its private half to a file
    Create(CreateArgs),
    /// Print the keys there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a key
    Show(NameArgs),
    /// Delete keys; machines that have them keep them
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The key
    #[arg(value_parser = names::segment, add = completing::names_of(&KEYS))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Name of the key
    #[arg(value_parser = names::object)]
    pub name: String,
    /// File with the public half, such as ~/.ssh/id_ed25519.pub
    #[arg(long, value_name = "FILE", required_unless_present = "generate")]
    pub public_key: Option<PathBuf>,
    /// Draw a key, and write its private half to this file, which must not be there yet
    #[arg(long, value_name = "FILE", conflicts_with = "public_key")]
    pub generate: Option<PathBuf>,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |key, _| text(key, "/metadata/namespace").into()),
    column("NAME", |key, _| text(key, "/metadata/name").into()),
    column("FINGERPRINT", |key, _| text(key, "/status/fingerPrint").into()),
    column("STATUS", |key, _| {
        let valid = list(key, "/status/conditions").find(|one| text(one, "/type") == "validated");
        match valid.map(|one| text(one, "/status")) {
            Some("True") => Cell::toned("ready", Tone::Good),
            Some("False") => Cell::toned("no key", Tone::Bad),
            _ => Cell::toned("not looked at yet", Tone::Busy),
        }
    }),
    column("AGE", |key, moment| {
        sheaf_resources::age::since(text(key, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("PUBLIC KEY", |key, _| text(key, "/spec/publicKey").into()),
];

pub async fn run(session: &Session, command: KeyCommand) -> Result<(), Refusal> {
    match command {
        KeyCommand::Create(args) => create(session, &args).await,
        KeyCommand::List(args) => {
            let next = "`sheaf key create NAME --public-key FILE` makes one";
            listing::list(session, &KEYS, &args, COLUMNS, next).await
        }
        KeyCommand::Show(args) => show(session, &args.name).await,
        KeyCommand::Delete(args) => {
            listing::delete(session, &KEYS, &args, "Machines that have it keep it.").await
        }
    }
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    let (namespace, name) = (&session.namespace, &args.name);
    let about = KEYS.about(namespace, name);
    if let Some(file) = &args.generate {
        // Before the key is drawn: it is told once, and would be lost.
        let mut private = reserved(file)?;
        let doing = format!("draw the {about}");
        let path = format!("{}?action=keygen", KEYS.steve("", ""));
        let body = json!({"name": name, "namespace": namespace}).to_string().into_bytes();
        let drawn = session.send(Method::POST, &path, "application/json", body, &doing).await;
        let written = match drawn {
            Ok(text) => private.write_all(text.as_bytes()).and_then(|()| private.sync_all()),
            Err(why) => {
                _ = std::fs::remove_file(file);
                return Err(why);
            }
        };
        written.map_err(|source| Refusal::Write { path: file.clone(), source })?;
        return session.out.print(&format!(
            "{about} is made; its private half is in {} and nowhere else\n",
            file.display()
        ));
    }
    let Some(file) = &args.public_key else { return Ok(()) };
    let text =
        std::fs::read_to_string(file).map_err(|source| Refusal::Read { path: file.clone(), source })?;
    if text.contains("PRIVATE KEY") {
        let why = format!(
            "{} is the private half of a key: name the public one ({0}.pub?); nothing was sent",
            file.display()
        );
        return Err(Refusal::Wrong(why));
    }
    let key = json!({
        "apiVersion": KEYS.api_version(), "kind": KEYS.kind,
        "metadata": {"name": name, "namespace": namespace}, "spec": {"publicKey": text.trim()},
    });
    let made = session.create(&KEYS, &key).await?;
    if let Some(text) = session.format.one(&KEYS, &made)? {
        return session.out.print(&text);
    }
    session.out.print(&format!("{about} is made; `sheaf vm create ... --key {name}` lets its owner in\n"))
}

/// A new file for its owner alone.
fn reserved(path: &Path) -> Result<std::fs::File, Refusal> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Refusal::Wrong(format!("{} is there already, and is not written over", path.display()))
        }
        _ => Refusal::Write { path: path.to_owned(), source },
    })
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let key = session.get(&KEYS, &session.namespace, name).await?;
    if let Some(text) = session.format.one(&KEYS, &key)? {
        return session.out.print(&text);
    }
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", session.namespace.as_str())
        .say("Fingerprint", text(&key, "/status/fingerPrint"))
        .say("Public key", text(&key, "/spec/publicKey"));
    session.out.print(&facts.as_text())
}
