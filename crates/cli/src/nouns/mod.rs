//! Verbs on nouns: what a person does with a cluster, one module per noun.
//!
//! `find . -name vm` is what `sheaf vm` does. What holds for any kind (`get`, `apply`, `delete`, `explain`) is
//! [`crate::anything`].

pub mod host;
pub mod image;
pub mod key;
pub mod network;
pub mod setting;
pub mod snapshot;
pub mod template;
pub mod token;
pub mod user;
pub mod vm;
pub mod volume;

use clap::{Args as ClapArgs, Subcommand};
use sheaf_world::World;

use self::{
    host::HostCommand, image::ImageCommand, key::KeyCommand, network::NetworkCommand,
    setting::SettingCommand, snapshot::SnapshotCommand, template::TemplateCommand, token::TokenCommand,
    user::UserCommand, vm::VmCommand, volume::VolumeCommand,
};
use crate::{
    BadSetting, Host,
    anything::{apply::ApplyArgs, delete::DeleteArgs, explain::ExplainArgs, get::GetArgs},
    asking::{Access, AskArgs, Format, Refusal, Session, out::Out},
};

#[derive(Debug, Subcommand)]
pub enum AskCommand {
    /// Virtual machines
    Vm(Noun<VmCommand>),
    /// Images that disks are copied from
    Image(Noun<ImageCommand>),
    /// Disks as things of their own
    Volume(Noun<VolumeCommand>),
    /// Snapshots of virtual machines
    Snapshot(Noun<SnapshotCommand>),
    /// Networks that virtual machines are plugged into
    Network(Noun<NetworkCommand>),
    /// SSH keys that may log in to virtual machines
    Key(Noun<KeyCommand>),
    /// What virtual machines are made of again and again
    Template(Noun<TemplateCommand>),
    /// Hosts that virtual machines run on
    Host(Noun<HostCommand>),
    /// What the cluster is told to do otherwise than usual
    Setting(Noun<SettingCommand>),
    /// People who sign in, and what they may
    User(Noun<UserCommand>),
    /// What programs sign in with
    Token(Noun<TokenCommand>),
    /// Print objects of any kind
    Get(Verb<GetArgs>),
    /// Make or change objects as files say
    Apply(Verb<ApplyArgs>),
    /// Delete objects of any kind
    Delete(Verb<DeleteArgs>),
    /// Say what the fields of a kind mean
    Explain(Verb<ExplainArgs>),
    /// End the session that `sheaf login` began
    Logout(Verb<NoArgs>),
}

/// A noun: a verb, and which cluster is meant.
#[derive(Debug, ClapArgs)]
pub struct Noun<C: Subcommand> {
    #[command(subcommand)]
    pub command: C,
    #[command(flatten)]
    pub ask: AskArgs,
}

/// A verb that needs no more said.
#[derive(Debug, ClapArgs)]
pub struct NoArgs {}

/// A verb that takes a noun.
#[derive(Debug, ClapArgs)]
pub struct Verb<A: ClapArgs> {
    #[command(flatten)]
    pub args: A,
    #[command(flatten)]
    pub ask: AskArgs,
}

/// What to do, and with which cluster.
#[derive(Debug)]
pub struct AskConfig {
    pub access: Access,
    pub format: Format,
    pub command: AskCommand,
}

impl AskConfig {
    pub fn new(command: AskCommand, host: &Host) -> Result<AskConfig, BadSetting> {
        let ask = match &command {
            AskCommand::Vm(noun) => &noun.ask,
            AskCommand::Image(noun) => &noun.ask,
            AskCommand::Volume(noun) => &noun.ask,
            AskCommand::Snapshot(noun) => &noun.ask,
            AskCommand::Network(noun) => &noun.ask,
            AskCommand::Key(noun) => &noun.ask,
            AskCommand::Template(noun) => &noun.ask,
            AskCommand::Host(noun) => &noun.ask,
            AskCommand::Setting(noun) => &noun.ask,
            AskCommand::User(noun) => &noun.ask,
            AskCommand::Token(noun) => &noun.ask,
            AskCommand::Get(verb) => &verb.ask,
            AskCommand::Apply(verb) => &verb.ask,
            AskCommand::Delete(verb) => &verb.ask,
            AskCommand::Explain(verb) => &verb.ask,
            AskCommand::Logout(verb) => &verb.ask,
        };
        Ok(AskConfig { access: Access::new(ask, host)?, format: ask.output, command })
    }
}

/// Does it.
pub async fn run(config: AskConfig, world: World) -> Result<(), Refusal> {
    let session = Session::open(&config.access, config.format, Out::look(), world).await?;
    match config.command {
        AskCommand::Vm(noun) => vm::run(&session, noun.command).await,
        AskCommand::Image(noun) => image::run(&session, noun.command).await,
        AskCommand::Volume(noun) => volume::run(&session, noun.command).await,
        AskCommand::Snapshot(noun) => snapshot::run(&session, noun.command).await,
        AskCommand::Network(noun) => network::run(&session, noun.command).await,
        AskCommand::Key(noun) => key::run(&session, noun.command).await,
        AskCommand::Template(noun) => template::run(&session, noun.command).await,
        AskCommand::Host(noun) => host::run(&session, noun.command).await,
        AskCommand::Setting(noun) => setting::run(&session, noun.command).await,
        AskCommand::User(noun) => user::run(&session, noun.command).await,
        AskCommand::Token(noun) => token::run(&session, noun.command).await,
        AskCommand::Get(verb) => crate::anything::get::run(&session, &verb.args).await,
        AskCommand::Apply(verb) => crate::anything::apply::run(&session, &verb.args).await,
        AskCommand::Delete(verb) => crate::anything::delete::run(&session, &verb.args).await,
        AskCommand::Explain(verb) => crate::anything::explain::run(&session, &verb.args).await,
        AskCommand::Logout(_) => token::log_out(&session).await,
    }
}
