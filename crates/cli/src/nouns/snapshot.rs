//! `sheaf snapshot`: snapshots of machines. They are taken and gone back to with `sheaf vm`.

use clap::{Args as ClapArgs, Subcommand};

use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, list, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::SNAPSHOTS,
        table::{Cell, Column, Tone, column},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Print the snapshots there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a snapshot
    Show(NameArgs),
    /// Delete snapshots
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The snapshot
    #[arg(value_parser = names::segment, add = completing::names_of(&SNAPSHOTS))]
    pub name: String,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |snapshot, _| text(snapshot, "/metadata/namespace").into()),
    column("NAME", |snapshot, _| text(snapshot, "/metadata/name").into()),
    column("MACHINE", |snapshot, _| text(snapshot, "/spec/source/name").into()),
    column("STATUS", |snapshot, _| {
        let is_ready = snapshot["status"]["readyToUse"] == true;
        match text(snapshot, "/status/error/message") {
            _ if is_ready => Cell::toned("ready", Tone::Good),
            "" => Cell::toned("being taken", Tone::Busy),
            _ => Cell::toned("failed", Tone::Bad),
        }
    }),
    column("DISKS", |snapshot, _| list(snapshot, "/status/volumeBackups").count().to_string().into()),
    column("AGE", |snapshot, moment| {
        sheaf_resources::age::since(text(snapshot, "/metadata/creationTimestamp"), moment.now).into()
    }),
];

pub async fn run(session: &Session, command: SnapshotCommand) -> Result<(), Refusal> {
    match command {
        SnapshotCommand::List(args) => {
            let next = "`sheaf vm snapshot MACHINE` takes one";
            listing::list(session, &SNAPSHOTS, &args, COLUMNS, next).await
        }
        SnapshotCommand::Show(args) => show(session, &args.name).await,
        SnapshotCommand::Delete(args) => {
            listing::delete(session, &SNAPSHOTS, &args, "Nobody can go back to it any more.").await
        }
    }
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let snapshot = session.get(&SNAPSHOTS, &session.namespace, name).await?;
    if let Some(text) = session.format.one(&SNAPSHOTS, &snapshot)? {
        return session.out.print(&text);
    }
    let disks = list(&snapshot, "/status/volumeBackups").map(|one| {
        let ready = if one["readyToUse"] == true { "yes" } else { "no" };
        vec![
            Cell::from(text(one, "/volumeName")),
            ready.into(),
            text(one, "/persistentVolumeClaim/metadata/name").into(),
        ]
    });
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", session.namespace.as_str())
        .say("Machine", text(&snapshot, "/spec/source/name"))
        .say("Ready", if snapshot["status"]["readyToUse"] == true { "yes" } else { "no" })
        .say("Taken", text(&snapshot, "/status/creationTime"))
        .say("Error", text(&snapshot, "/status/error/message"));
    facts.list("Disks", &["NAME", "READY", "VOLUME"], disks.collect(), session.out);
    session.out.print(&facts.as_text())
}
