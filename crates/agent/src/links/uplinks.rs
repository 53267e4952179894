//! The uplinks of cluster networks on this node: made, mended, taken away, and said how they fare.
//!
//! The decision is [`sheaf_planner::uplink`]; here is only looking and acting. A VlanStatus is there before a link is
//! touched and goes after the last one of ours is gone, so that whoever waits for that knows. The labels by which machines
//! find this node go before the uplink and come after it.
//!
//! What cannot be made whole is taken away again; but a bridge with machines on it stays as it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, PostParams, Preconditions};
use serde_json::{Map, Value, json};
use sheaf_client::api::{self, FIELD_MANAGER};
use sheaf_network::{
    interfaces,
    uplinks::{BondOptions, UplinkError},
};
use sheaf_planner::uplink::{Abilities, Decision, Step, Wish, next_removal, next_step};
use sheaf_resources::kinds::{
    cluster_network::MANAGEMENT,
    harvester_condition::set_condition,
    network_attachment_definition::CLUSTER_NETWORK_LABEL,
    vlan_config::{NODE_LABEL_PREFIX, VLAN_CONFIG_LABEL, VlanConfig, matched_nodes},
    vlan_status::{NODE_LABEL, READY, VlanStatus, VlanStatusStatus, name_of},
};
use tokio::time::Instant;

use super::{Failed, Keeper, LinksError};
use crate::virtual_machine_instance::with_causes;

/// More than any uplink takes.
const MOST_STEPS: usize = 64;
/// What went wrong is left alone for so long, unless something else is wanted.
pub(super) const LET_BE: Duration = Duration::from_secs(30);
const EVERYTHING: Abilities = Abilities { bonding: true, vlan_filtering: true };
/// On a status: the uid of the configuration after which the uplink has been there.
const READY_ONCE_ANNOTATION: &str = "sheaf.io/ready-once";
const UNDER_WAY: &str = "the uplink is being made";

type Labels = BTreeMap<String, String>;

impl Keeper {
    pub(super) async fn keep_uplinks(
        &mut self,
        configs: &[VlanConfig],
        statuses: Vec<VlanStatus>,
        labels: &Labels,
    ) -> Result<(), LinksError> {
        let wished = wished(configs, &self.node);
        let mut statuses: BTreeMap<String, VlanStatus> = statuses
            .into_iter()
            .filter(|status| status.status.node == self.node)
            .map(|status| (status.status.cluster_network.clone(), status))
            .collect();
        let ready = |statuses: &BTreeMap<String, VlanStatus>| {
            let is_ready = |name: &str, config: &VlanConfig| {
                let status = statuses.get(name).map(|status| &status.status);
                status.is_some_and(|status| {
                    status.is_ready() && Some(&status.vlan_config) == config.metadata.name.as_ref()
                })
            };
            let ready = wished.iter().filter(|(name, config)| is_ready(name, config));
            ready.map(|(name, config)| (name.clone(), (*config).clone())).collect::<BTreeMap<_, _>>()
        };
        let before = ready(&statuses);
        self.write_labels(changed_labels(labels, &before)).await?;
        let mut concerned: BTreeSet<String> = wished.keys().chain(statuses.keys()).cloned().collect();
        let found = interfaces::look().await?;
        concerned.extend(found.iter().filter_map(|link| self.uplinks.made_for(link)).map(str::to_owned));
        self.failed.retain(|name, _| wished.contains_key(name));
        for name in concerned {
            match wished.get(&name) {
                Some(config) => {
                    let status = self.provide(&name, config, statuses.remove(&name)).await?;
                    statuses.insert(name, status);
                }
                None => {
                    let status = self.withdraw(&name, statuses.remove(&name)).await?;
                    statuses.extend(status.map(|status| (name, status)));
                }
            }
        }
        let after = ready(&statuses);
        let mut known = labels.clone();
        apply(&mut known, &changed_labels(labels, &before));
        self.write_labels(changed_labels(&known, &after)).await
    }

    /// Brings an uplink into being, and says how that went.
    async fn provide(
        &mut self,
        name: &str,
        config: &VlanConfig,
        status: Option<VlanStatus>,
    ) -> Result<VlanStatus, LinksError> {
        let status = match status {
            // It may be after another configuration than before.
            Some(status) if Some(&status.status.vlan_config) == config.metadata.name.as_ref() => status,
            status => self.say(name, config, status, Err(UNDER_WAY.to_owned())).await?,
        };
        let wish = Wish { stood: has_been_ready(&status, config), ..Wish::of(&config.spec) };
        let let_be =
            self.failed.get(name).filter(|failed| failed.wish.is_as(&wish) && failed.at.elapsed() < LET_BE);
        if let Some(failed) = let_be {
            let why = failed.why.clone();
            return self.say(name, config, Some(status), Err(why)).await;
        }
        self.failed.remove(name);
        let outcome = match self.make(&wish).await? {
            Ok(note) => Ok(note),
            Err(why) => {
                // Half an uplink is none, and its NICs are free for others.
                let left = self.take_away(name).await?.err();
                Err(left.map_or_else(|| why.clone(), |left| format!("{why}. What was there stays: {left}")))
            }
        };
        self.say(name, config, Some(status), outcome).await
    }

    /// Takes away what is not wanted any more, and then what was said of it.
    async fn withdraw(
        &mut self,
        name: &str,
        status: Option<VlanStatus>,
    ) -> Result<Option<VlanStatus>, LinksError> {
        let outcome = self.take_away(name).await?;
        let Some(status) = status else {
            if let Err(why) = outcome {
                tracing::warn!(
                    cluster_network = name,
                    why,
                    "an uplink that nobody wants cannot be taken away"
                );
            }
            return Ok(None);
        };
        let Err(why) = outcome else {
            let seen = Preconditions { uid: status.metadata.uid.clone(), resource_version: None };
            let options = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
            let name = status.metadata.name.as_deref().unwrap_or_default();
            return match self.statuses.delete(name, &options).await {
                Err(why) if !api::is_not_found(&why) => Err(why.into()),
                _ => Ok(None),
            };
        };
        let mut changed = status.clone();
        let now = self.world.clock.rfc3339();
        set_condition(&mut changed.status.conditions, READY, "False", ("", &why), &now);
        if changed != status {
            changed = self.statuses.replace(&name_of(name, &self.node), &writing(), &changed).await?;
        }
        Ok(Some(changed))
    }

    /// Steps until it rests; what is worth knowing of it, or why it could not be.
    async fn make(&mut self, wish: &Wish) -> Result<Result<String, String>, LinksError> {
        // What no kernel could do needs no trying.
        if let Decision::Refuse { why } = next_step(wish, &self.look().await?, EVERYTHING) {
            return Ok(Err(why));
        }
        let abilities = match self.abilities {
            Some(found) => found,
            None => match self.uplinks.probe().await {
                Ok(found) => *self.abilities.insert(found),
                Err(why) => return Ok(Err(self.note_failure(wish, with_causes(&why)))),
            },
        };
        let abilities = Abilities { bonding: abilities.bonding, vlan_filtering: abilities.vlan_filtering };
        for _ in 0..MOST_STEPS {
            let links = self.look().await?;
            let step = match next_step(wish, &links, abilities) {
                Decision::Rest { note } => return Ok(Ok(note)),
                Decision::Refuse { why } => return Ok(Err(why)),
                Decision::Take(step) => step,
            };
            if let Err(why) = self.act(&step).await {
                let why = with_causes(&why);
                // One NIC that does not do as it is told is no reason to let the others go.
                if let Some(nic) = step.link_name().filter(|name| wish.nics.iter().any(|nic| nic == name)) {
                    tracing::warn!(nic, why, "a NIC does not do what it is told");
                    self.troubles.insert(nic.to_owned(), (why, Instant::now()));
                    continue;
                }
                return Ok(Err(self.note_failure(wish, why)));
            }
        }
        let why = "somebody else changes the same links all the time".to_owned();
        Ok(Err(self.note_failure(wish, why)))
    }

    fn note_failure(&mut self, wish: &Wish, why: String) -> String {
        let failed = Failed { wish: wish.clone(), why: why.clone(), at: Instant::now() };
        self.failed.insert(wish.cluster_network.clone(), failed);
        why
    }

    async fn take_away(&self, name: &str) -> Result<Result<(), String>, LinksError> {
        for _ in 0..MOST_STEPS {
            let step = match next_removal(name, &self.look().await?) {
                Decision::Rest { .. } => return Ok(Ok(())),
                Decision::Refuse { why } => return Ok(Err(why)),
                Decision::Take(step) => step,
            };
            if let Err(why) = self.act(&step).await {
                return Ok(Err(with_causes(&why)));
            }
        }
        Ok(Err("somebody else changes the same links all the time".to_owned()))
    }

    async fn act(&self, step: &Step) -> Result<(), UplinkError> {
        tracing::info!(?step, "an uplink takes a step");
        let uplinks = &self.uplinks;
        match step {
            Step::MakeBridge { name, mtu, vlan_filtering } => {
                uplinks.make_bridge(name, *mtu, *vlan_filtering).await
            }
            Step::MakeBond { name, bridge, mtu, mode, miimon, tx_queue_len } => {
                let (bridge, mtu, miimon, tx_queue_len) = (*bridge, *mtu, *miimon, *tx_queue_len);
                uplinks.make_bond(&BondOptions { name, bridge, mtu, mode, miimon, tx_queue_len }).await
            }
            Step::Attach { index, name, to, mtu } => uplinks.attach(*index, name, *to, *mtu).await,
            Step::Detach { index, name } => uplinks.detach(*index, name).await,
            Step::SetMtu { index, name, mtu } => uplinks.set_mtu(*index, name, *mtu).await,
            Step::SwitchOn { index, name } => uplinks.switch_on(*index, name).await,
            Step::Remove { index, name } => uplinks.remove(*index, name).await,
        }
    }

    /// Writes the status, if it says something new.
    async fn say(
        &self,
        name: &str,
        config: &VlanConfig,
        status: Option<VlanStatus>,
        outcome: Result<String, String>,
    ) -> Result<VlanStatus, LinksError> {
        let mut wanted = status.clone().unwrap_or_default();
        describe(&mut wanted, name, &self.node, config);
        if outcome.is_ok() {
            let annotations = wanted.metadata.annotations.get_or_insert_default();
            annotations
                .insert(READY_ONCE_ANNOTATION.to_owned(), config.metadata.uid.clone().unwrap_or_default());
        }
        let (ready, message) = match &outcome {
            Ok(note) => ("True", note),
            Err(why) => ("False", why),
        };
        let now = self.world.clock.rfc3339();
        set_condition(&mut wanted.status.conditions, READY, ready, ("", message), &now);
        match status {
            Some(status) if status == wanted => Ok(status),
            Some(_) => Ok(self.statuses.replace(&name_of(name, &self.node), &writing(), &wanted).await?),
            None => Ok(self.statuses.create(&writing(), &wanted).await?),
        }
    }
}

/// Whether the uplink has been there, as this configuration or an earlier state of it says.
fn has_been_ready(status: &VlanStatus, config: &VlanConfig) -> bool {
    let noted = status.metadata.annotations.as_ref().and_then(|all| all.get(READY_ONCE_ANNOTATION));
    noted.is_some() && noted == config.metadata.uid.as_ref()
}

fn writing() -> PostParams {
    PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() }
}

/// By cluster network, the configurations that this node is to follow. Of two the older one, whom a controller will tell so.
fn wished<'a>(configs: &'a [VlanConfig], node: &str) -> BTreeMap<String, &'a VlanConfig> {
    let age = |config: &VlanConfig| {
        let made = config.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (made, config.metadata.name.clone())
    };
    let is_for = |config: &&VlanConfig| {
        let is_going = config.metadata.deletion_timestamp.is_some();
        !is_going && matched_nodes(config.metadata.annotations.as_ref()).contains(node)
    };
    let mut wished: BTreeMap<String, &VlanConfig> = BTreeMap::new();
    for config in configs.iter().filter(is_for) {
        let held = wished.entry(config.spec.cluster_network.clone()).or_insert(config);
        if age(config) < age(held) {
            *held = config;
        }
    }
    wished
}

/// What it is about, in all the places where that is said.
fn describe(status: &mut VlanStatus, cluster_network: &str, node: &str, config: &VlanConfig) {
    let vlan_config = config.metadata.name.clone().unwrap_or_default();
    let labels = [
        (CLUSTER_NETWORK_LABEL, cluster_network),
        (VLAN_CONFIG_LABEL, vlan_config.as_str()),
        (NODE_LABEL, node),
    ];
    let owner = OwnerReference {
        api_version: <VlanConfig as k8s_openapi::Resource>::API_VERSION.to_owned(),
        kind: <VlanConfig as k8s_openapi::Resource>::KIND.to_owned(),
        name: vlan_config.clone(),
        uid: config.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    status.metadata = ObjectMeta {
        name: Some(name_of(cluster_network, node)),
        labels: Some(labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()),
        owner_references: Some(vec![owner]),
        ..std::mem::take(&mut status.metadata)
    };
    status.status = VlanStatusStatus {
        cluster_network: cluster_network.to_owned(),
        vlan_config,
        link_monitor: cluster_network.to_owned(),
        node: node.to_owned(),
        local_areas: Vec::new(),
        conditions: std::mem::take(&mut status.status.conditions),
    };
}

/// Which labels of a node change so that they say it leads to these cluster networks and to no others. `mgmt` is the
/// node's own, always.
fn changed_labels(held: &Labels, ready: &BTreeMap<String, VlanConfig>) -> Value {
    let mut wanted: BTreeMap<String, String> =
        ready.keys().map(|name| (format!("{NODE_LABEL_PREFIX}{name}"), "true".to_owned())).collect();
    // There is one place for it, and there may be several of them.
    if let Some(config) = ready.values().next() {
        let name = config.metadata.name.clone().unwrap_or_default();
        wanted.insert(VLAN_CONFIG_LABEL.to_owned(), name);
    }
    let says_so = |key: &str, value: &str| {
        let leads =
            key.strip_prefix(NODE_LABEL_PREFIX).is_some_and(|name| name != MANAGEMENT) && value == "true";
        leads || key == VLAN_CONFIG_LABEL
    };
    let mut changed = Map::new();
    for (key, _) in held.iter().filter(|(key, value)| says_so(key, value) && !wanted.contains_key(*key)) {
        changed.insert(key.clone(), Value::Null);
    }
    for (key, value) in wanted.iter().filter(|(key, value)| held.get(*key) != Some(*value)) {
        changed.insert(key.clone(), json!(value));
    }
    Value::Object(changed)
}

fn apply(labels: &mut Labels, changed: &Value) {
    for (key, value) in changed.as_object().into_iter().flatten() {
        match value.as_str() {
            Some(value) => labels.insert(key.clone(), value.to_owned()),
            None => labels.remove(key),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str, cluster_network: &str, nodes: &str, made: &str) -> VlanConfig {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": format!("u-{name}"), "creationTimestamp": made,
                "annotations": {"network.harvesterhci.io/matched-nodes": nodes}},
            "spec": {"clusterNetwork": cluster_network},
        }))
        .unwrap()
    }

    #[test]
    fn a_node_follows_what_names_it_and_of_two_the_older() {
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        let mut configs = vec![
            config("b", "lab", r#"["n1"]"#, new),
            config("a", "lab", r#"["n1"]"#, old),
            config("c", "far", r#"["n2"]"#, old),
            config("d", "dmz", r#"["n1","n2"]"#, old),
        ];
        let names = |configs: &[VlanConfig]| {
            let wished = wished(configs, "n1");
            wished
                .iter()
                .map(|(on, one)| format!("{on}:{}", one.metadata.name.as_ref().unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&configs), ["dmz:d", "lab:a"]);
        configs[3].metadata.deletion_timestamp = serde_json::from_value(json!(new)).unwrap();
        assert_eq!(names(&configs), ["lab:a"]);
    }

    #[test]
    fn labels_say_where_the_node_leads_and_no_more_and_those_of_others_stay() {
        let held: Labels = [
            ("kubernetes.io/hostname", "n1"),
            ("network.harvesterhci.io/mgmt", "true"),
            ("network.harvesterhci.io/old", "true"),
            ("network.harvesterhci.io/note", "mine"),
            ("network.harvesterhci.io/vlanconfig", "x"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let lab = BTreeMap::from([("lab".to_owned(), config("a", "lab", "[]", "2026-01-01T00:00:00Z"))]);
        let changed = changed_labels(&held, &lab);
        assert_eq!(
            changed,
            json!({"network.harvesterhci.io/old": null, "network.harvesterhci.io/lab": "true",
                "network.harvesterhci.io/vlanconfig": "a"})
        );
        let mut then = held.clone();
        apply(&mut then, &changed);
        assert_eq!(changed_labels(&then, &lab), json!({}), "at rest nothing is written");
        assert_eq!(
            changed_labels(&then, &BTreeMap::new()),
            json!({"network.harvesterhci.io/lab": null, "network.harvesterhci.io/vlanconfig": null})
        );
    }

    #[test]
    fn a_status_is_described_the_same_every_time() {
        let config = config("a", "lab", "[]", "2026-01-01T00:00:00Z");
        let mut status = VlanStatus::default();
        describe(&mut status, "lab", "n1", &config);
        let once = status.clone();
        describe(&mut status, "lab", "n1", &config);
        assert_eq!(status, once);
        assert_eq!(status.metadata.owner_references.as_ref().unwrap()[0].uid, "u-a");
    }
}
