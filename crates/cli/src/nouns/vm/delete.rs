//! `sheaf vm delete`: the end of a machine, and of its disks if that is meant.
//!
//! Disks hold data, so they stay unless somebody says that they go.

use clap::Args as ClapArgs;
use http::Method;

use super::{NamesArgs, standing};
use crate::asking::{
    Refusal, Session,
    confirm::{YesArgs, confirm},
    facts::text,
    names,
    resource::{MACHINES, SNAPSHOTS},
    waiting::{WaitArgs, until_gone},
};

#[derive(Debug, ClapArgs)]
pub struct DeleteArgs {
    #[command(flatten)]
    pub names: NamesArgs,
    /// Delete their disks, too: what is on them is lost
    #[arg(long, conflicts_with = "keep_disks")]
    pub with_disks: bool,
    /// Keep the disks as volumes, which is what happens anyway; for scripts that say what they mean
    #[arg(long)]
    pub keep_disks: bool,
    #[command(flatten)]
    pub yes: YesArgs,
    #[command(flatten)]
    pub wait: WaitArgs,
}

pub async fn run(session: &Session, args: &DeleteArgs) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let mut machines = Vec::new();
    for name in &args.names.names {
        machines.push((name, session.get(&MACHINES, namespace, name).await?));
    }
    let snapshots = session.list(&SNAPSHOTS, namespace, "").await.unwrap_or_default();
    let lost: Vec<&str> = snapshots
        .iter()
        .filter(|one| args.names.names.iter().any(|name| name == text(one, "/spec/source/name")))
        .map(|one| text(one, "/metadata/name"))
        .collect();
    confirm(args.yes, &question(&machines, args.with_disks, namespace, &lost))?;
    for (name, vm) in &machines {
        let disks = if args.with_disks { standing::claims(vm) } else { Vec::new() };
        let query: Vec<String> =
            disks.iter().map(|(disk, _)| format!("removedDisks={}", names::encoded(disk))).collect();
        let mut path = MACHINES.steve(namespace, name);
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let about = MACHINES.about(namespace, name);
        session.ask(Method::DELETE, &path, None, &format!("delete the {about}")).await?;
    }
    for (name, vm) in &machines {
        if args.wait.wait {
            until_gone(session, &MACHINES, (namespace, name), args.wait.timeout).await?;
        }
        let claims: Vec<String> = standing::claims(vm).into_iter().map(|(_, claim)| claim).collect();
        let disks = match (claims.is_empty(), args.with_disks) {
            (true, _) => String::new(),
            (false, true) => ", with its disks".to_owned(),
            (false, false) => format!("; its disks stay: {}", claims.join(", ")),
        };
        let done = if args.wait.wait { "is gone" } else { "is deleted" };
        session.out.print(&format!("{} {done}{disks}\n", MACHINES.about(namespace, name)))?;
    }
    Ok(())
}

fn question(
    machines: &[(&String, serde_json::Value)],
    with_disks: bool,
    namespace: &str,
    snapshots: &[&str],
) -> String {
    let names: Vec<&str> = machines.iter().map(|(name, _)| name.as_str()).collect();
    let many = if names.len() == 1 { "the virtual machine" } else { "the virtual machines" };
    let disks: Vec<String> =
        machines.iter().flat_map(|(_, vm)| standing::claims(vm)).map(|(_, claim)| claim).collect();
    let of_disks = match (disks.is_empty(), with_disks) {
        (true, _) => "It has no disks of its own.".to_owned(),
        (false, true) => format!("What is on these disks is lost: {}.", disks.join(", ")),
        (false, false) => format!("These disks stay: {} (--with-disks deletes them, too).", disks.join(", ")),
    };
    let running: Vec<&str> = machines
        .iter()
        .filter(|(_, vm)| ["Running", "Paused"].contains(&standing::status(vm)))
        .map(|(name, _)| name.as_str())
        .collect();
    let runs = match running.as_slice() {
        [] => String::new(),
        running => format!(" Running now: {}.", running.join(", ")),
    };
    let of_snapshots = match snapshots {
        [] => String::new(),
        snapshots => format!(" These snapshots go with it: {}.", snapshots.join(", ")),
    };
    format!(
        "This deletes {many} {} in namespace {namespace}.{runs} {of_disks}{of_snapshots}",
        names.join(", ")
    )
}
