//! `sheaf setting`: what the cluster is told to do otherwise than usual.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use crate::{
    asking::{
        Refusal, Session,
        facts::{list, text},
        listing::{self, ListAllArgs},
        names,
        resource::SETTINGS,
        table::{Cell, Column, Tone, clipped, column, wide},
    },
    completing,
};

/// What is secret in these is all of them.
const SECRETS: [&str; 4] =
    ["backup-target", "containerd-registry", "ssl-certificates", "cluster-registration-url"];
const HIDDEN: &str = "(set, and not shown)";

#[derive(Debug, Subcommand)]
pub enum SettingCommand {
    /// Print the value of a setting
    Get(NameArgs),
    /// Set a setting
    Set(SetArgs),
    /// Make a setting what it usually is
    Reset(NameArgs),
    /// Print all settings, and which of them act
    #[command(visible_alias = "ls")]
    List(ListAllArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The setting
    #[arg(value_parser = names::segment, add = completing::names_of(&SETTINGS))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct SetArgs {
    /// The setting
    #[arg(value_parser = names::segment, add = completing::names_of(&SETTINGS))]
    pub name: String,
    /// Its value. One that is secret belongs into a file: what is typed is in the history of a shell and in the list of processes
    #[arg(allow_hyphen_values = true, required_unless_present = "file")]
    pub value: Option<String>,
    /// Read the value from a file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value", value_hint = clap::ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

const COLUMNS: &[Column] = &[
    column("NAME", |setting, _| text(setting, "/metadata/name").into()),
    column("VALUE", |setting, _| clipped(shown(setting)).into()),
    column("EFFECT", |setting, _| effect(setting)),
    wide("USUAL", |setting, _| text(setting, "/default").into()),
    wide("WHY", |setting, _| configured(setting).map(|one| text(one, "/message")).unwrap_or_default().into()),
];

fn configured(setting: &Value) -> Option<&Value> {
    list(setting, "/status/conditions").find(|one| text(one, "/type") == "configured")
}

fn effect(setting: &Value) -> Cell {
    let condition = configured(setting);
    let (status, reason) = condition.map_or(("", ""), |one| (text(one, "/status"), text(one, "/reason")));
    match (status, reason) {
        (_, "NoEffectYet") => Cell::toned("none yet", Tone::Quiet),
        ("False", _) => Cell::toned("failed", Tone::Bad),
        (_, "InPart") => Cell::toned("in part", Tone::Busy),
        ("True", _) => Cell::toned("acts", Tone::Good),
        _ => "".into(),
    }
}

/// What is in force.
fn value(setting: &Value) -> &str {
    match text(setting, "/value") {
        "" => text(setting, "/default"),
        value => value,
    }
}

fn shown(setting: &Value) -> &str {
    let is_secret = SECRETS.contains(&text(setting, "/metadata/name"));
    match is_secret
        && !text(setting, "/value").is_empty()
        && text(setting, "/value") != text(setting, "/default")
    {
        true => HIDDEN,
        false => value(setting),
    }
}

pub async fn run(session: &Session, command: SettingCommand) -> Result<(), Refusal> {
    match command {
        SettingCommand::Get(args) => {
            let setting = session.get(&SETTINGS, "", &args.name).await?;
            match session.format.one(&SETTINGS, &setting)? {
                Some(text) => session.out.print(&text),
                // For whoever asked for it by name, and may read it.
                None => session.out.print(&format!("{}\n", value(&setting))),
            }
        }
        SettingCommand::Set(args) => {
            let value = match (args.value, args.file) {
                (Some(value), _) => value,
                (None, Some(file)) => read(&file)?,
                (None, None) => {
                    return Err(Refusal::Wrong("neither a value nor a file was given".to_owned()));
                }
            };
            set(session, &args.name, &value).await
        }
        SettingCommand::Reset(args) => set(session, &args.name, "").await,
        SettingCommand::List(args) => listing::list_all(session, &SETTINGS, &args, COLUMNS).await,
    }
}

/// All of a file but the end of its last line, which editors put there.
fn read(file: &Path) -> Result<String, Refusal> {
    let text = match file.as_os_str() == "-" {
        true => io::read_to_string(io::stdin()),
        false => fs::read_to_string(file),
    };
    let text = text.map_err(|source| Refusal::Read { path: file.to_owned(), source })?;
    let text = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).unwrap_or(&text);
    match text.is_empty() {
        // More likely what should have written it failed.
        true => Err(Refusal::Wrong(format!(
            "there is nothing in {}; `sheaf setting reset` makes a setting what it usually is",
            file.display()
        ))),
        false => Ok(text.to_owned()),
    }
}

async fn set(session: &Session, name: &str, wanted: &str) -> Result<(), Refusal> {
    let setting = session.change(&SETTINGS, "", name, &json!({"value": wanted})).await?;
    let idle = configured(&setting).filter(|one| text(one, "/reason") == "NoEffectYet");
    let effect = match idle {
        Some(one) => format!("; it has no effect yet: {}", text(one, "/message")),
        None => String::new(),
    };
    let what = if wanted.is_empty() { "is what it usually is" } else { "is set" };
    session.out.print(&format!("setting {name} {what}{effect}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_in_a_list() {
        let setting =
            |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value, "default": "{}"});
        assert_eq!(shown(&setting("backup-target", r#"{"secret": "x"}"#)), HIDDEN);
        assert_eq!(shown(&setting("backup-target", "")), "{}");
        assert_eq!(shown(&setting("log-level", "debug")), "debug");
    }
}
