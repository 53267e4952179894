//! `sheaf vm`: virtual machines, from their making to their end.

pub mod console;
pub mod create;
mod delete;
pub mod draft;
mod events;
mod forward;
mod hardware;
mod list;
mod power;
mod show;
mod snapshots;
mod ssh;
pub mod standing;
mod vnc;

use clap::{Args as ClapArgs, Subcommand};

use crate::{
    asking::{
        Refusal, Session, editor,
        listing::ListArgs,
        names,
        resource::{INSTANCES, MACHINES},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Make virtual machines
    Create(Box<create::CreateArgs>),
    /// Print the virtual machines there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a virtual machine, and what is wrong with it
    Show(NameArgs),
    /// Start virtual machines
    Start(power::StartArgs),
    /// Stop virtual machines: press their power buttons
    Stop(power::StopArgs),
    /// Stop virtual machines and start them again
    Restart(power::RestartArgs),
    /// Let virtual machines stand still
    Pause(power::PauseArgs),
    /// Let paused virtual machines go on
    #[command(alias = "resume")]
    Unpause(power::PauseArgs),
    /// Delete virtual machines, with their disks or without
    #[command(visible_alias = "rm")]
    Delete(delete::DeleteArgs),
    /// Enter the serial console of a virtual machine; Ctrl-] leaves it
    Console(NameArgs),
    /// Look at the screen of a virtual machine with a VNC viewer
    Vnc(vnc::VncArgs),
    /// Enter a virtual machine with SSH, from wherever you are
    Ssh(ssh::SshArgs),
    /// Bring ports of a virtual machine to this computer
    PortForward(forward::ForwardArgs),
    /// Keep how the disks of a virtual machine are now
    Snapshot(snapshots::SnapshotArgs),
    /// Make a virtual machine what it was in a snapshot
    Restore(snapshots::RestoreArgs),
    /// Make another virtual machine with copies of the disks
    Clone(snapshots::CloneArgs),
    /// Give a virtual machine more or fewer processors, or memory
    Resize(hardware::ResizeArgs),
    /// Plug a disk or a network interface into a virtual machine
    Attach(hardware::AttachArgs),
    /// Take a disk or a network interface out of a virtual machine
    Detach(hardware::DetachArgs),
    /// Change a virtual machine in an editor
    Edit(NameArgs),
    /// Print what happened to a virtual machine
    Events(events::EventsArgs),
}

/// One machine.
#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The virtual machine
    #[arg(value_parser = names::segment, add = completing::names_of(&MACHINES))]
    pub name: String,
}

/// One or many.
#[derive(Debug, ClapArgs)]
pub struct NamesArgs {
    /// The virtual machines
    #[arg(required = true, value_name = "NAME", value_parser = names::segment, add = completing::names_of(&MACHINES))]
    pub names: Vec<String>,
}

pub async fn run(session: &Session, command: VmCommand) -> Result<(), Refusal> {
    match command {
        VmCommand::Create(args) => create::run(session, &args).await,
        VmCommand::List(args) => list::run(session, &args).await,
        VmCommand::Show(args) => show::run(session, &args.name).await,
        VmCommand::Start(args) => power::start(session, &args).await,
        VmCommand::Stop(args) => power::stop(session, &args).await,
        VmCommand::Restart(args) => power::restart(session, &args).await,
        VmCommand::Pause(args) => power::pause(session, &args, true).await,
        VmCommand::Unpause(args) => power::pause(session, &args, false).await,
        VmCommand::Delete(args) => delete::run(session, &args).await,
        VmCommand::Console(args) => {
            // Known before the terminal is touched.
            must_run(session, &args.name, "enter the console of").await?;
            console::enter(session, &args.name).await?;
            Ok(())
        }
        VmCommand::Vnc(args) => vnc::run(session, &args).await,
        VmCommand::Ssh(args) => ssh::run(session, &args).await,
        VmCommand::PortForward(args) => forward::run(session, &args).await,
        VmCommand::Snapshot(args) => snapshots::snapshot(session, &args).await,
        VmCommand::Restore(args) => snapshots::restore(session, &args).await,
        VmCommand::Clone(args) => snapshots::clone(session, &args).await,
        VmCommand::Resize(args) => hardware::resize(session, &args).await,
        VmCommand::Attach(args) => hardware::attach(session, &args).await,
        VmCommand::Detach(args) => hardware::detach(session, &args).await,
        VmCommand::Edit(args) => edit(session, &args.name).await,
        VmCommand::Events(args) => events::run(session, &args).await,
    }
}

/// That there is such a machine, and that it runs.
async fn must_run(session: &Session, name: &str, doing: &str) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    session.get(&MACHINES, namespace, name).await?;
    match session.find(&INSTANCES, namespace, name).await {
        // Who may not look may still be let in.
        Ok(Some(_)) | Err(Refusal::Forbidden { .. }) => Ok(()),
        Ok(None) => Err(Refusal::Refused {
            doing: format!("{doing} the {}", MACHINES.about(namespace, name)),
            message: format!("it does not run; `sheaf vm start {name}` starts it"),
        }),
        Err(why) => Err(why),
    }
}

async fn edit(session: &Session, name: &str) -> Result<(), Refusal> {
    let about = MACHINES.about(&session.namespace, name);
    match editor::edit(session, &MACHINES, &session.namespace, name).await? {
        None => session.out.print(&format!("nothing was changed of the {about}\n")),
        Some(now) => {
            let conditions = now.pointer("/status/conditions");
            let waits = conditions.into_iter().flat_map(|all| all.as_array().into_iter().flatten());
            let restart =
                waits.into_iter().any(|one| one["type"] == "RestartRequired" && one["status"] == "True");
            let next = match restart {
                true => format!("; part of it counts from its next start on (`sheaf vm restart {name}`)"),
                false => String::new(),
            };
            session.out.print(&format!("the {about} is changed{next}\n"))
        }
    }
}
