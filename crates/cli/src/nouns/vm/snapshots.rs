//! Keeping how a machine's disks are, going back to it, and copying machines.

use std::time::Duration;

use clap::Args as ClapArgs;
use serde_json::{Value, json};

use super::NameArgs;
use crate::{
    asking::{
        Refusal, Session,
        confirm::{YesArgs, confirm},
        facts::{list, text},
        names,
        resource::{MACHINES, RESTORES, SNAPSHOTS},
        waiting::{Standing, WaitArgs, until},
    },
    completing,
};

#[derive(Debug, ClapArgs)]
pub struct SnapshotArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// Name of the snapshot [default: that of the machine and the time]
    #[arg(long = "name", value_name = "SNAPSHOT", value_parser = names::object)]
    pub snapshot: Option<String>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct RestoreArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// The snapshot: `sheaf snapshot list` prints those there are
    #[arg(value_parser = names::segment, add = completing::names_of(&SNAPSHOTS))]
    pub snapshot: String,
    /// Make a new machine of this name of it, and leave the one there is alone
    #[arg(long = "as", value_name = "NAME", value_parser = names::object)]
    pub new_name: Option<String>,
    #[command(flatten)]
    pub yes: YesArgs,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct CloneArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// Name of the copy
    #[arg(value_parser = names::object)]
    pub copy: String,
    /// Do not start the copy
    #[arg(long)]
    pub stopped: bool,
    #[command(flatten)]
    pub wait: WaitArgs,
}

pub async fn snapshot(session: &Session, args: &SnapshotArgs) -> Result<(), Refusal> {
    let (namespace, machine) = (&session.namespace, &args.machine.name);
    session.get(&MACHINES, namespace, machine).await?;
    let name = match &args.snapshot {
        Some(name) => name.clone(),
        None => format!("{machine}-{}", session.world.clock.now().strftime("%Y%m%d-%H%M%S")),
    };
    let object = json!({
        "apiVersion": SNAPSHOTS.api_version(), "kind": SNAPSHOTS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": machine}},
    });
    let made = session.create(&SNAPSHOTS, &object).await?;
    if args.wait.wait {
        until_ready(session, &name, args.wait.timeout).await?;
    }
    if let Some(text) = session.format.one(&SNAPSHOTS, &made)? {
        return session.out.print(&text);
    }
    let done = if args.wait.wait { "is taken" } else { "is being taken" };
    session.out.print(&format!(
        "{} {done}; `sheaf vm restore {machine} {name}` goes back to it\n",
        SNAPSHOTS.about(namespace, &name)
    ))
}

async fn until_ready(session: &Session, name: &str, patience: Duration) -> Result<(), Refusal> {
    let what = format!("the {} to be taken", SNAPSHOTS.about(&session.namespace, name));
    until(session, &SNAPSHOTS, (&session.namespace, name), &what, patience, |snapshot| {
        let Some(snapshot) = snapshot else { return Standing::Never("it was deleted".to_owned()) };
        if snapshot["status"]["readyToUse"] == true {
            return Standing::There(());
        }
        match text(snapshot, "/status/error/message") {
            "" => Standing::OnItsWay(format!("{} %", snapshot["status"]["progress"].as_u64().unwrap_or(0))),
            why => Standing::Never(why.to_owned()),
        }
    })
    .await
}

pub async fn restore(session: &Session, args: &RestoreArgs) -> Result<(), Refusal> {
    let (namespace, machine, snapshot) = (&session.namespace, &args.machine.name, &args.snapshot);
    let found = session.get(&SNAPSHOTS, namespace, snapshot).await?;
    let of = text(&found, "/spec/source/name");
    if of != machine {
        let why = format!("the {} is of the machine {of}", SNAPSHOTS.about(namespace, snapshot));
        return Err(Refusal::Wrong(why));
    }
    let restore = format!("{snapshot}-{}", session.world.chance.name_suffix());
    let target = args.new_name.as_ref().unwrap_or(machine);
    match &args.new_name {
        Some(new_name) => {
            let object = json!({
                "apiVersion": RESTORES.api_version(), "kind": RESTORES.kind,
                "metadata": {"name": restore, "namespace": namespace},
                "spec": {
                    "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": new_name},
                    "virtualMachineBackupName": snapshot, "virtualMachineBackupNamespace": namespace, "newVM": true,
                },
            });
            session.create(&RESTORES, &object).await?;
        }
        None => {
            let vm = session.get(&MACHINES, namespace, machine).await?;
            if super::standing::status(&vm) != "Stopped" {
                let message = format!(
                    "it must be stopped first: `sheaf vm stop {machine} --wait`; --as makes a new one"
                );
                let doing = format!("restore the {}", MACHINES.about(namespace, machine));
                return Err(Refusal::Refused { doing, message });
            }
            let what = format!(
                "The {} becomes what it was {} ago. Its disks of now stay as volumes.",
                MACHINES.about(namespace, machine),
                sheaf_resources::age::since(
                    text(&found, "/metadata/creationTimestamp"),
                    session.moment().now
                )
            );
            confirm(args.yes, &what)?;
            let doing = format!("restore the {}", MACHINES.about(namespace, machine));
            let input = json!({"name": restore, "backupName": snapshot});
            session.act(&MACHINES, (namespace, machine), "restore", &input, &doing).await?;
        }
    }
    if args.wait.wait {
        until_restored(session, &restore, args.wait.timeout).await?;
    }
    let done = if args.wait.wait { "is" } else { "is becoming" };
    session.out.print(&format!(
        "{} {done} what {machine} was in the snapshot {snapshot}\n",
        MACHINES.about(namespace, target)
    ))
}

async fn until_restored(session: &Session, name: &str, patience: Duration) -> Result<(), Refusal> {
    let what = "the restore".to_owned();
    until(session, &RESTORES, (&session.namespace, name), &what, patience, |restore| {
        let Some(restore) = restore else { return Standing::Never("it was deleted".to_owned()) };
        if restore["status"]["complete"] == true {
            return Standing::There(());
        }
        let failed = list(restore, "/status/conditions")
            .find(|one| text(one, "/type") == "Failure" && text(one, "/status") == "True");
        match failed {
            Some(why) => Standing::Never(text(why, "/message").to_owned()),
            None => Standing::OnItsWay(progress(restore)),
        }
    })
    .await
}

fn progress(restore: &Value) -> String {
    let reason =
        list(restore, "/status/conditions").map(|one| text(one, "/message")).find(|text| !text.is_empty());
    match (restore["status"]["progress"].as_u64(), reason) {
        (Some(percent), _) => format!("{percent} %"),
        (None, Some(reason)) => reason.to_owned(),
        (None, None) => "its disks are being made".to_owned(),
    }
}

pub async fn clone(session: &Session, args: &CloneArgs) -> Result<(), Refusal> {
    let (namespace, machine) = (&session.namespace, &args.machine.name);
    let strategy = if args.stopped { "Halted" } else { "RerunOnFailure" };
    let doing = format!("copy the {}", MACHINES.about(namespace, machine));
    let input = json!({"targetVm": args.copy, "runStrategy": strategy});
    session.act(&MACHINES, (namespace, machine), "clone", &input, &doing).await?;
    if args.wait.wait {
        let what = format!("the {} to be there", MACHINES.about(namespace, &args.copy));
        // It is stopped when its disks are there, and not before.
        let wanted = if args.stopped { "Stopped" } else { "Running" };
        until(session, &MACHINES, (namespace, &args.copy), &what, args.wait.timeout, |vm| match vm {
            Some(vm) if super::standing::status(vm) == wanted => Standing::There(()),
            Some(vm) => Standing::OnItsWay(super::standing::status(vm).to_owned()),
            None => Standing::OnItsWay("its disks are being copied".to_owned()),
        })
        .await?;
    }
    let done = if args.wait.wait { "is a copy" } else { "is becoming a copy" };
    session.out.print(&format!("{} {done} of {machine}\n", MACHINES.about(namespace, &args.copy)))
}
