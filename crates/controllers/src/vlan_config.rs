//! Keeps true for which nodes a configuration of uplinks is, and lets go of one that is deleted once no node has anything of
//! it any more.
//!
//! The decisions are [`sheaf_planner::vlan_config`]. The uplinks themselves are the work of the nodes' agents, which say in
//! a VlanStatus each how that goes and take it away when they are done.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{api::core::v1, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::vlan_config::{Node, Seen, Step, next_step};
use sheaf_resources::kinds::{
    vlan_config::{MATCHED_NODES, UPLINK_FINALIZER, VLAN_CONFIG_LABEL, VlanConfig},
    vlan_status::VlanStatus,
};

use crate::{
    Context,
    object::{Eyes, Object},
};

pub const NAME: &str = "vlan-config";
/// More than there are steps to take, but for nodes that are gone.
const MOST_STEPS: usize = 64;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    reconciling::run(Configs { context }, client).await;
}

struct Configs {
    context: Context,
}

impl Reconciler for Configs {
    type Key = String;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![memory.of::<VlanConfig>(), memory.of::<VlanStatus>(), memory.of::<v1::Node>()]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<String> {
        match watch {
            1 => {
                let labels = metadata.labels.as_ref();
                labels.and_then(|labels| labels.get(VLAN_CONFIG_LABEL).cloned()).into_iter().collect()
            }
            // What one of them lets go of may be another's. What cannot be read is told by whoever looks at it.
            _ => {
                let all = self.context.memory.of::<VlanConfig>().list("").unwrap_or_default();
                all.iter().filter_map(|config| config.metadata.name.clone()).collect()
            }
        }
    }

    async fn reconcile(&mut self, name: &String) -> Result<Next<String>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let config: Option<Object<VlanConfig>> = eyes.find("", name).await?;
            let Some(config) = config else { return Ok(Next::rest()) };
            match self.decide(&eyes, &config).await? {
                Step::Rest => return Ok(Next::rest()),
                Step::Wait(secs) => return Ok(Next::again_after(Duration::from_secs(secs))),
                // Most of them rest on what is absent, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::Match(nodes) => {
                    let nodes = json!(nodes).to_string();
                    config.merge(json!({"metadata": {"annotations": {MATCHED_NODES: nodes}}})).await?;
                }
                Step::ForgetNode(status) => {
                    let status: Option<Object<VlanStatus>> = eyes.find("", &status).await?;
                    if let Some(status) = status {
                        status.delete().await?;
                    }
                }
                Step::RemoveFinalizer => config.remove_finalizer(UPLINK_FINALIZER).await?,
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

impl Configs {
    async fn decide(&self, eyes: &Eyes, config: &Object<VlanConfig>) -> Result<Step, ReconcileError> {
        let configs: Vec<Arc<VlanConfig>> = eyes.list("").await?;
        let statuses: Vec<Arc<VlanStatus>> = eyes.list("").await?;
        let nodes: Vec<Arc<v1::Node>> = eyes.list("").await?;
        let nodes: Vec<Node> = nodes
            .iter()
            .map(|node| Node {
                name: node.metadata.name.clone().unwrap_or_default(),
                labels: node.metadata.labels.clone().unwrap_or_default(),
            })
            .collect();
        Ok(next_step(&Seen {
            config: &config.typed,
            configs: &configs.iter().map(|config| &**config).collect::<Vec<_>>(),
            statuses: &statuses.iter().map(|status| &**status).collect::<Vec<_>>(),
            nodes: &nodes,
            now: self.context.world.clock.now().as_second(),
        }))
    }
}
