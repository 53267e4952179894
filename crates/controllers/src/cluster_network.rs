//! Says of cluster networks whether a node leads there and how large frames may be, and gives each of them a LinkMonitor.
//!
//! The decision is [`sheaf_planner::cluster_network`]. A LinkMonitor belongs to its cluster network, so garbage collection
//! takes it away with it; what one shows of a node that is no more is taken out here, since that node cannot.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::{Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::cluster_network;
use sheaf_resources::kinds::{
    cluster_network::{ClusterNetwork, MANAGEMENT, MTU_ANNOTATION, MTU_SOURCE_ANNOTATION, READY},
    harvester_condition::set_condition,
    link_monitor::{LinkMonitor, rule_of},
    vlan_config::VlanConfig,
    vlan_status::VlanStatus,
};

use crate::{Context, object::Object};

pub const NAME: &str = "cluster-network";

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Networks { context }, client).await;
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Network(String),
    Monitor(String),
}

struct Networks {
    context: Context,
}

impl Reconciler for Networks {
    type Key = Key;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<ClusterNetwork>(),
            memory.of::<VlanConfig>(),
            memory.of::<VlanStatus>(),
            memory.of::<LinkMonitor>(),
            memory.of::<Node>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Key> {
        let name = || metadata.name.clone().unwrap_or_default();
        let memory = &self.context.memory;
        match watch {
            0 => vec![Key::Network(name())],
            // A configuration may have been another network's before. What cannot be read is told by whoever looks.
            1 | 2 => {
                let all = memory.of::<ClusterNetwork>().list("").unwrap_or_default();
                all.iter().filter_map(|one| one.metadata.name.clone()).map(Key::Network).collect()
            }
            3 => vec![Key::Monitor(name()), Key::Network(name())],
            _ => {
                let all = memory.of::<LinkMonitor>().list("").unwrap_or_default();
                all.iter().filter_map(|one| one.metadata.name.clone()).map(Key::Monitor).collect()
            }
        }
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Next<Key>, ReconcileError> {
        match key {
            Key::Network(name) => self.reconcile_network(name).await?,
            Key::Monitor(name) => self.reconcile_monitor(name).await?,
        }
        Ok(Next::rest())
    }
}

impl Networks {
    async fn reconcile_network(&self, name: &str) -> Result<(), ReconcileError> {
        let eyes = self.context.eyes();
        let network: Option<Object<ClusterNetwork>> = eyes.find("", name).await?;
        let Some(network) = network.filter(|network| !network.is_being_deleted()) else { return Ok(()) };
        let monitor: Option<Object<LinkMonitor>> = eyes.find("", name).await?;
        if monitor.is_none() {
            eyes.create::<LinkMonitor>("", monitor_of(&network)).await?;
        }
        // Every node is on it from the start.
        if name == MANAGEMENT {
            return Ok(());
        }
        let configs: Vec<Arc<VlanConfig>> = eyes.list("").await?;
        let statuses: Vec<Arc<VlanStatus>> = eyes.list("").await?;
        let of_it: Vec<&VlanConfig> = configs
            .iter()
            .map(|config| &**config)
            .filter(|config| config.spec.cluster_network == name)
            .collect();
        let on_nodes: Vec<&VlanStatus> = statuses
            .iter()
            .map(|status| &**status)
            .filter(|status| status.status.cluster_network == name)
            .collect();
        let wanted = cluster_network::wanted(&of_it, &on_nodes);

        let mut status = network.typed.status.clone();
        let ready = if wanted.is_ready { "True" } else { "False" };
        let now = self.context.world.clock.rfc3339();
        set_condition(&mut status.conditions, READY, ready, ("", &wanted.why), &now);
        let (mtu, source) = match wanted.mtu {
            Some((mtu, source)) => (mtu.to_string(), source),
            None => (String::new(), String::new()),
        };
        let annotations = [(MTU_ANNOTATION, mtu), (MTU_SOURCE_ANNOTATION, source)];
        let is_said = annotations.iter().all(|(key, value)| network.annotation(key) == value);
        if is_said && status == network.typed.status {
            return Ok(());
        }
        let left_out = |value: &String| if value.is_empty() { Value::Null } else { json!(value) };
        let annotations: serde_json::Map<String, Value> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), left_out(value))).collect();
        network.merge(json!({"metadata": {"annotations": annotations}, "status": status})).await
    }

    /// Takes out what is said of nodes that are no more.
    async fn reconcile_monitor(&self, name: &str) -> Result<(), ReconcileError> {
        let eyes = self.context.eyes();
        let monitor: Option<Object<LinkMonitor>> = eyes.find("", name).await?;
        let Some(monitor) = monitor.filter(|monitor| !monitor.is_being_deleted()) else { return Ok(()) };
        let nodes: Vec<Arc<Node>> = eyes.list("").await?;
        let there: BTreeSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let mut gone = serde_json::Map::new();
        for node in monitor.typed.status.link_status.keys().filter(|node| !there.contains(node.as_str())) {
            // One that is only new to us is left alone.
            let found: Option<Object<Node>> = eyes.fresh().find("", node).await?;
            if found.is_none() {
                gone.insert(node.clone(), Value::Null);
            }
        }
        match gone.is_empty() {
            true => Ok(()),
            false => monitor.merge(json!({"status": {"linkStatus": gone}})).await,
        }
    }
}

fn monitor_of(network: &Object<ClusterNetwork>) -> Value {
    let owner = json!({
        "apiVersion": "network.harvesterhci.io/v1beta1", "kind": "ClusterNetwork", "name": network.name(),
        "uid": network.uid(),
    });
    json!({
        "metadata": {"name": network.name(), "ownerReferences": [owner]},
        "spec": {"targetLinkRule": {"nameRule": rule_of(network.name())}},
    })
}
