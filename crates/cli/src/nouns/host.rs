//! `sheaf host`: the hosts that machines run on.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, amount, list, text},
        listing::{self, ListAllArgs},
        names,
        resource::{INSTANCES, NODES},
        table::{Cell, Column, Tone, column, wide},
    },
    completing,
};

const ROLE: &str = "node-role.kubernetes.io/";
/// Conditions whose truth is bad news; of all others, it is good news.
const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// Print the hosts there are
    #[command(visible_alias = "ls")]
    List(ListAllArgs),
    /// Tell everything about a host, and what is wrong with it
    Show(NameArgs),
    /// Place no more machines on hosts; those that run there run on
    Cordon(NamesArgs),
    /// Place machines on hosts again
    Uncordon(NamesArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The host
    #[arg(value_parser = names::segment, add = completing::names_of(&NODES))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct NamesArgs {
    /// The hosts
    #[arg(required = true, value_name = "NAME", value_parser = names::segment, add = completing::names_of(&NODES))]
    pub names: Vec<String>,
}

const COLUMNS: &[Column] = &[
    column("NAME", |node, _| text(node, "/metadata/name").into()),
    column("STATUS", |node, _| status(node)),
    column("ROLES", |node, _| roles(node).into()),
    column("CPUS", |node, _| text(node, "/status/capacity/cpu").into()),
    column("MEMORY", |node, _| amount(text(node, "/status/capacity/memory")).into()),
    column("ADDRESS", |node, _| address(node).into()),
    column("AGE", |node, moment| {
        sheaf_resources::age::since(text(node, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("KVM", |node, _| match condition(node, "KvmUsable") {
        Some("True") => "yes".into(),
        Some(_) => Cell::toned("no, emulated", Tone::Busy),
        None => "".into(),
    }),
    wide("SYSTEM", |node, _| text(node, "/status/nodeInfo/osImage").into()),
    wide("KERNEL", |node, _| text(node, "/status/nodeInfo/kernelVersion").into()),
    wide("VERSION", |node, _| text(node, "/status/nodeInfo/kubeletVersion").into()),
];

fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a str> {
    let found = list(node, "/status/conditions").find(|one| text(one, "/type") == kind);
    found.map(|one| text(one, "/status"))
}

fn status(node: &Value) -> Cell {
    match condition(node, "Ready") {
        Some("True") if node["spec"]["unschedulable"] == true => Cell::toned("cordoned", Tone::Busy),
        Some("True") if troubles(node).iter().any(|one| PRESSURES.contains(&text(one, "/type"))) => {
            Cell::toned("ready, under pressure", Tone::Busy)
        }
        Some("True") => Cell::toned("ready", Tone::Good),
        Some("False") => Cell::toned("not ready", Tone::Bad),
        _ => Cell::toned("silent", Tone::Bad),
    }
}

fn troubles(node: &Value) -> Vec<&Value> {
    let is_bad = |one: &&Value| {
        let (kind, status) = (text(one, "/type"), text(one, "/status"));
        match PRESSURES.contains(&kind) {
            true => status != "False",
            false => status == "False",
        }
    };
    list(node, "/status/conditions").filter(is_bad).collect()
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object();
    let mut roles: Vec<&str> =
        labels.into_iter().flatten().filter_map(|(name, _)| name.strip_prefix(ROLE)).collect();
    roles.sort_unstable();
    roles.join(",")
}

fn address(node: &Value) -> &str {
    let addresses = || list(node, "/status/addresses");
    let found = addresses().find(|one| text(one, "/type") == "InternalIP");
    found.map(|one| text(one, "/address")).unwrap_or_default()
}

pub async fn run(session: &Session, command: HostCommand) -> Result<(), Refusal> {
    match command {
        HostCommand::List(args) => listing::list_all(session, &NODES, &args, COLUMNS).await,
        HostCommand::Show(args) => show(session, &args.name).await,
        HostCommand::Cordon(args) => cordon(session, &args.names, true).await,
        HostCommand::Uncordon(args) => cordon(session, &args.names, false).await,
    }
}

async fn cordon(session: &Session, hosts: &[String], cordons: bool) -> Result<(), Refusal> {
    for name in hosts {
        let change = json!({"spec": {"unschedulable": if cordons { json!(true) } else { Value::Null }}});
        session.change(&NODES, "", name, &change).await?;
        let said = match cordons {
            true => "gets no more machines; those that run there run on",
            false => "gets machines again",
        };
        session.out.print(&format!("host {name} {said}\n"))?;
    }
    Ok(())
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let node = session.get(&NODES, "", name).await?;
    if let Some(text) = session.format.one(&NODES, &node)? {
        return session.out.print(&text);
    }
    let instances = session.list(&INSTANCES, "", "").await.unwrap_or_default();
    let here = instances.iter().filter(|one| text(one, "/status/nodeName") == name).map(|one| {
        let id = format!("{}/{}", text(one, "/metadata/namespace"), text(one, "/metadata/name"));
        vec![Cell::from(id), text(one, "/status/phase").into()]
    });
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Roles", roles(&node))
        .say("Address", address(&node))
        .say("CPUs", text(&node, "/status/capacity/cpu"))
        .say("Memory", amount(text(&node, "/status/capacity/memory")))
        .say(
            "Room for volumes",
            amount(node["status"]["capacity"]["sheaf.io/volume-storage"].as_str().unwrap_or_default()),
        )
        .say(
            "Placed on it",
            if node["spec"]["unschedulable"] == true { "nothing new (cordoned)" } else { "yes" },
        )
        .say("System", text(&node, "/status/nodeInfo/osImage"))
        .say("Kernel", text(&node, "/status/nodeInfo/kernelVersion"))
        .say("Version", text(&node, "/status/nodeInfo/kubeletVersion"));
    facts.list("Machines", &["NAME", "PHASE"], here.collect(), session.out);
    let wrong: Vec<String> = troubles(&node)
        .into_iter()
        .map(|one| format!("{}: {}", text(one, "/type"), text(one, "/message")))
        .collect();
    facts.text("What is wrong", &wrong.join("\n"));
    session.out.print(&facts.as_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_tells_how_it_stands_in_a_word() {
        let node = |ready: &str, cordoned: bool| json!({"spec": {"unschedulable": cordoned}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        assert_eq!(status(&node("True", false)), Cell::toned("ready", Tone::Good));
        assert_eq!(status(&node("True", true)), Cell::toned("cordoned", Tone::Busy));
        assert_eq!(status(&node("False", true)), Cell::toned("not ready", Tone::Bad));
        assert_eq!(status(&json!({})), Cell::toned("silent", Tone::Bad));
    }

    #[test]
    fn roles_are_read_from_labels() {
        let node = json!({"metadata": {"labels": {"node-role.kubernetes.io/etcd": "true", "node-role.kubernetes.io/control-plane": "", "os": "x"}}});
        assert_eq!(roles(&node), "control-plane,etcd");
    }
}
