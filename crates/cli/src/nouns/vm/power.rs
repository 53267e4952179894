//! Starting, stopping, restarting and pausing machines, as KubeVirt's subresources do it.

use std::time::Duration;

use clap::Args as ClapArgs;
use http::Method;
use serde_json::{Value, json};

use super::{NamesArgs, standing};
use crate::asking::{
    Refusal, Session,
    facts::{list, text},
    resource::{INSTANCES, MACHINES, machine_subresource},
    waiting::{Standing, WaitArgs, duration, until},
};

/// How long a status may take to follow.
const STATUS_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, ClapArgs)]
pub struct StartArgs {
    #[command(flatten)]
    pub names: NamesArgs,
    /// Begin paused: the first instruction is not run until `sheaf vm unpause`
    #[arg(long)]
    pub paused: bool,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct StopArgs {
    #[command(flatten)]
    pub names: NamesArgs,
    /// Cut the power at once
    #[arg(long, conflicts_with = "grace")]
    pub force: bool,
    /// How long the guest may take to shut down before its power is cut [default: as the machine says]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub grace: Option<Duration>,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct RestartArgs {
    #[command(flatten)]
    pub names: NamesArgs,
    /// Cut the power at once
    #[arg(long, conflicts_with = "soft")]
    pub force: bool,
    /// Ask the guest to reboot itself; the machine is not stopped, and changes that wait for its next start go on waiting
    #[arg(long, conflicts_with = "wait")]
    pub soft: bool,
    #[command(flatten)]
    pub wait: WaitArgs,
}

#[derive(Debug, ClapArgs)]
pub struct PauseArgs {
    #[command(flatten)]
    pub names: NamesArgs,
}

pub async fn start(session: &Session, args: &StartArgs) -> Result<(), Refusal> {
    let options = if args.paused { json!({"paused": true}) } else { json!({}) };
    for name in &args.names.names {
        ask(session, "virtualmachines", name, "start", &options).await?;
    }
    for name in &args.names.names {
        if args.wait.wait {
            until_running(session, name, args.wait.timeout).await?;
        }
        tell(session, name, if args.wait.wait { "runs" } else { "is starting" })?;
    }
    Ok(())
}

pub async fn stop(session: &Session, args: &StopArgs) -> Result<(), Refusal> {
    let grace = if args.force { Some(0) } else { args.grace.map(|grace| grace.as_secs()) };
    let options = grace.map_or_else(|| json!({}), |seconds| json!({"gracePeriod": seconds}));
    for name in &args.names.names {
        ask(session, "virtualmachines", name, "stop", &options).await?;
    }
    for name in &args.names.names {
        if args.wait.wait {
            until_stopped(session, name, args.wait.timeout).await?;
        }
        tell(session, name, if args.wait.wait { "is stopped" } else { "is stopping" })?;
    }
    Ok(())
}

pub async fn restart(session: &Session, args: &RestartArgs) -> Result<(), Refusal> {
    for name in &args.names.names {
        let before = session.find(&INSTANCES, &session.namespace, name).await?;
        match args.soft {
            true => ask(session, "virtualmachineinstances", name, "softreboot", &json!({})).await?,
            false => {
                let options = if args.force { json!({"gracePeriodSeconds": 0}) } else { json!({}) };
                ask(session, "virtualmachines", name, "restart", &options).await?;
            }
        }
        if args.wait.wait && !args.soft {
            let uid = before.map(|instance| text(&instance, "/metadata/uid").to_owned()).unwrap_or_default();
            until_running_anew(session, name, &uid, args.wait.timeout).await?;
        }
        tell(session, name, if args.wait.wait && !args.soft { "runs again" } else { "is restarting" })?;
    }
    Ok(())
}

pub async fn pause(session: &Session, args: &PauseArgs, pauses: bool) -> Result<(), Refusal> {
    let (verb, said) = if pauses { ("pause", "is paused") } else { ("unpause", "goes on") };
    for name in &args.names.names {
        ask(session, "virtualmachineinstances", name, verb, &json!({})).await?;
        until_told(session, name, pauses).await?;
        tell(session, name, said)?;
    }
    Ok(())
}

/// Until its status says so, too: whoever looks next is not to wonder.
async fn until_told(session: &Session, name: &str, pauses: bool) -> Result<(), Refusal> {
    let what = format!("the {} to say so", MACHINES.about(&session.namespace, name));
    until(session, &MACHINES, (&session.namespace, name), &what, STATUS_PATIENCE, |vm| {
        match vm.map(standing::status) {
            Some("Paused") if !pauses => Standing::OnItsWay("Paused".to_owned()),
            Some("Running") if pauses => Standing::OnItsWay("Running".to_owned()),
            _ => Standing::There(()),
        }
    })
    .await
}

fn tell(session: &Session, name: &str, what: &str) -> Result<(), Refusal> {
    session.out.print(&format!("{} {what}\n", MACHINES.about(&session.namespace, name)))
}

async fn ask(
    session: &Session,
    resource: &str,
    name: &str,
    verb: &str,
    options: &Value,
) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    // A machine that is not there is told with the nearest; a machine that is off is told as such by the server.
    session.get(&MACHINES, namespace, name).await?;
    let path = machine_subresource(resource, (namespace, name), verb);
    let doing = format!("{verb} the {}", MACHINES.about(namespace, name));
    match session.ask(Method::PUT, &path, Some(options), &doing).await {
        Err(why) if why.is_not_found() => {
            let message = format!("it does not run; `sheaf vm start {name}` starts it");
            Err(Refusal::Refused { doing, message })
        }
        answer => answer.map(drop),
    }
}

/// Until QEMU runs the guest.
pub async fn until_running(session: &Session, name: &str, patience: Duration) -> Result<Value, Refusal> {
    let what = format!("the {} to run", MACHINES.about(&session.namespace, name));
    until(session, &MACHINES, (&session.namespace, name), &what, patience, |vm| {
        let Some(vm) = vm else { return Standing::Never("it was deleted".to_owned()) };
        match standing::status(vm) {
            "Running" | "Paused" => Standing::There(vm.clone()),
            "CrashLoopBackOff" | "ErrorPvcNotFound" | "DataVolumeError" => Standing::Never(why_not(vm)),
            _ => Standing::OnItsWay(why_not(vm)),
        }
    })
    .await
}

async fn until_running_anew(
    session: &Session,
    name: &str,
    before: &str,
    patience: Duration,
) -> Result<(), Refusal> {
    let what = format!("the {} to run again", MACHINES.about(&session.namespace, name));
    until(session, &INSTANCES, (&session.namespace, name), &what, patience, |instance| match instance {
        None => Standing::OnItsWay("it is stopped".to_owned()),
        Some(instance) if text(instance, "/metadata/uid") == before => {
            Standing::OnItsWay("its guest is shutting down".to_owned())
        }
        Some(instance) => match text(instance, "/status/phase") {
            "Running" => Standing::There(()),
            "Failed" => Standing::Never("it ended with an error; see `sheaf vm show`".to_owned()),
            "" => Standing::OnItsWay("it is being placed".to_owned()),
            phase => Standing::OnItsWay(phase.to_owned()),
        },
    })
    .await
}

async fn until_stopped(session: &Session, name: &str, patience: Duration) -> Result<(), Refusal> {
    let what = format!("the {} to be stopped", MACHINES.about(&session.namespace, name));
    until(session, &MACHINES, (&session.namespace, name), &what, patience, |vm| match vm {
        None => Standing::There(()),
        Some(vm) if standing::status(vm) == "Stopped" => Standing::There(()),
        Some(_) => Standing::OnItsWay(
            "its guest is shutting down; `sheaf vm stop --force` cuts the power".to_owned(),
        ),
    })
    .await
}

/// Its state, and the machine's own reason where it gives one.
fn why_not(vm: &Value) -> String {
    let reasons: Vec<String> = list(vm, "/status/conditions").filter_map(standing::trouble).collect();
    match reasons.first() {
        Some(reason) => format!("{}; {reason}", standing::status(vm)),
        None => standing::status(vm).to_owned(),
    }
}
