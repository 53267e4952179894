//! `sheaf vm events`: what happened to a machine, the newest last.

use clap::Args as ClapArgs;
use serde_json::Value;

use super::NameArgs;
use crate::asking::{
    Refusal, Session,
    facts::text,
    resource::{EVENTS, MACHINES},
    table::{self, Cell, Column, Tone, column, wide},
};

#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    #[command(flatten)]
    pub machine: NameArgs,
}

pub const COLUMNS: &[Column] = &[
    column("AGE", |event, moment| sheaf_resources::age::since(when(event), moment.now).into()),
    column("TYPE", |event, _| {
        let kind = text(event, "/type");
        Cell::toned(kind, if kind == "Warning" { Tone::Bad } else { Tone::Plain })
    }),
    column("REASON", |event, _| text(event, "/reason").into()),
    column("MESSAGE", |event, _| text(event, "/message").into()),
    wide("TIMES", |event, _| event["count"].as_u64().unwrap_or(1).to_string().into()),
    wide("FROM", |event, _| match text(event, "/source/component") {
        "" => text(event, "/reportingComponent").into(),
        component => component.into(),
    }),
];

fn when(event: &Value) -> &str {
    ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]
        .iter()
        .map(|place| text(event, place))
        .find(|time| !time.is_empty())
        .unwrap_or_default()
}

pub async fn run(session: &Session, args: &EventsArgs) -> Result<(), Refusal> {
    let name = &args.machine.name;
    session.get(&MACHINES, &session.namespace, name).await?;
    let events = of(session, name).await?;
    if let Some(text) = session.format.many(&EVENTS, &events)? {
        return session.out.print(&text);
    }
    if events.is_empty() {
        let about = MACHINES.about(&session.namespace, name);
        return session.out.print(&format!(
            "nothing is known to have happened to the {about}; events are kept for an hour\n"
        ));
    }
    session.out.print(&table::of(COLUMNS, &events, &session.moment(), session.format, session.out))
}

/// Of the machine and of its instances, the newest last.
pub async fn of(session: &Session, name: &str) -> Result<Vec<Value>, Refusal> {
    let query = format!("?fieldSelector=involvedObject.name={name}");
    let mut events = session.list(&EVENTS, &session.namespace, &query).await?;
    let is_machine = |event: &Value| text(event, "/involvedObject/kind").starts_with("VirtualMachine");
    events.retain(is_machine);
    events.sort_by(|one, other| when(one).cmp(when(other)));
    Ok(events)
}
