//! `sheaf network`: networks that machines are plugged into.

use clap::{Args as ClapArgs, Subcommand};
use serde_json::{Value, json};

use crate::{
    asking::{
        Refusal, Session,
        facts::{Facts, text},
        listing::{self, DeleteArgs, ListArgs},
        names,
        resource::{MACHINES, NETWORKS},
        table::{Column, column, wide},
    },
    completing,
};

#[derive(Debug, Subcommand)]
pub enum NetworkCommand {
    /// Make a network
    Create(CreateArgs),
    /// Print the networks there are
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Tell everything about a network
    Show(NameArgs),
    /// Delete networks
    #[command(visible_alias = "rm")]
    Delete(DeleteArgs),
}

#[derive(Debug, ClapArgs)]
pub struct NameArgs {
    /// The network
    #[arg(value_parser = names::segment, add = completing::names_of(&NETWORKS))]
    pub name: String,
}

#[derive(Debug, ClapArgs)]
pub struct CreateArgs {
    /// Name of the network
    #[arg(value_parser = names::object)]
    pub name: String,
    /// Cluster network that carries it
    #[arg(long, value_name = "NAME", default_value = "mgmt", value_parser = names::object)]
    pub cluster_network: String,
    /// VLAN to tag its frames with [default: untagged]
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
}

const COLUMNS: &[Column] = &[
    column("NAMESPACE", |network, _| text(network, "/metadata/namespace").into()),
    column("NAME", |network, _| text(network, "/metadata/name").into()),
    column("CLUSTER NETWORK", |network, _| carrier(network).into()),
    column("VLAN", |network, _| vlan(network).into()),
    column("AGE", |network, moment| {
        sheaf_resources::age::since(text(network, "/metadata/creationTimestamp"), moment.now).into()
    }),
    wide("CONFIG", |network, _| text(network, "/spec/config").into()),
];

fn config(network: &Value) -> Value {
    serde_json::from_str(text(network, "/spec/config")).unwrap_or_default()
}

fn carrier(network: &Value) -> String {
    let config = config(network);
    let bridge = config["bridge"].as_str().unwrap_or_default();
    bridge.strip_suffix("-br").unwrap_or(bridge).to_owned()
}

fn vlan(network: &Value) -> String {
    let config = config(network);
    if config["vlanTrunk"].as_array().is_some_and(|ranges| !ranges.is_empty()) {
        return "trunk".to_owned();
    }
    match config["vlan"].as_u64() {
        None | Some(0) => "untagged".to_owned(),
        Some(id) => id.to_string(),
    }
}

pub async fn run(session: &Session, command: NetworkCommand) -> Result<(), Refusal> {
    match command {
        NetworkCommand::Create(args) => create(session, &args).await,
        NetworkCommand::List(args) => {
            let next =
                "machines have the default network without one; `sheaf network create NAME` makes another";
            listing::list(session, &NETWORKS, &args, COLUMNS, next).await
        }
        NetworkCommand::Show(args) => show(session, &args.name).await,
        NetworkCommand::Delete(args) => {
            listing::delete(session, &NETWORKS, &args, "Machines on it do not start any more.").await
        }
    }
}

async fn create(session: &Session, args: &CreateArgs) -> Result<(), Refusal> {
    let mut config = json!({
        "cniVersion": "0.3.1", "name": args.name, "type": "bridge", "bridge": format!("{}-br", args.cluster_network),
        "promiscMode": true, "ipam": {},
    });
    if let Some(vlan) = args.vlan {
        config["vlan"] = vlan.into();
    }
    let network = json!({
        "apiVersion": NETWORKS.api_version(), "kind": NETWORKS.kind,
        "metadata": {"name": args.name, "namespace": session.namespace},
        "spec": {"config": config.to_string()},
    });
    let made = session.create(&NETWORKS, &network).await?;
    if let Some(text) = session.format.one(&NETWORKS, &made)? {
        return session.out.print(&text);
    }
    session.out.print(&format!(
        "{} is made; `sheaf vm attach MACHINE --network {}` plugs a machine into it\n",
        NETWORKS.about(&session.namespace, &args.name),
        args.name
    ))
}

async fn show(session: &Session, name: &str) -> Result<(), Refusal> {
    let namespace = &session.namespace;
    let network = session.get(&NETWORKS, namespace, name).await?;
    if let Some(text) = session.format.one(&NETWORKS, &network)? {
        return session.out.print(&text);
    }
    let id = format!("{namespace}/{name}");
    let machines = session.list(&MACHINES, namespace, "").await.unwrap_or_default();
    let on_it = |vm: &&Value| {
        let mut networks = crate::asking::facts::list(vm, "/spec/template/spec/networks");
        networks.any(|one| [id.as_str(), name].contains(&text(one, "/multus/networkName")))
    };
    let users: Vec<&str> = machines.iter().filter(on_it).map(|vm| text(vm, "/metadata/name")).collect();
    let mut facts = Facts::default();
    facts
        .say("Name", name)
        .say("Namespace", namespace.as_str())
        .say("Cluster network", carrier(&network))
        .say("VLAN", vlan(&network))
        .say("Used by", if users.is_empty() { "nobody".to_owned() } else { users.join(", ") })
        .say("Configuration", text(&network, "/spec/config"));
    session.out.print(&facts.as_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_tells_who_carries_it_and_how_it_is_tagged() {
        let network = |config: Value| json!({"spec": {"config": config.to_string()}});
        let tagged = network(json!({"bridge": "mgmt-br", "vlan": 7}));
        assert_eq!((carrier(&tagged), vlan(&tagged)), ("mgmt".into(), "7".into()));
        assert_eq!(vlan(&network(json!({"bridge": "a-br", "vlan": 0}))), "untagged");
        assert_eq!(vlan(&network(json!({"vlanTrunk": [{"minID": 1, "maxID": 9}]}))), "trunk");
        assert_eq!(vlan(&json!({"spec": {"config": "broken"}})), "untagged");
    }
}
