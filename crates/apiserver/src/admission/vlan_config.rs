//! Uplinks of cluster networks: which nodes they are for, that no two are for the same, and what may not change under
//! machines.
//!
//! The decisions about nodes are [`sheaf_planner::vlan_config`]; which nodes a configuration has is never taken from who
//! writes it.

use std::collections::BTreeSet;

use serde_json::Value;
use sheaf_planner::vlan_config::{Node, matched};
use sheaf_resources::{
    kinds::{
        cluster_network::{MANAGEMENT, MTU_ANNOTATION},
        network_attachment_definition::CLUSTER_NETWORK_LABEL,
        vlan_config::{self, DEFAULT_MTU, GROUP, VLAN_CONFIGS, VlanConfig, matched_nodes, same_mtu},
        vlan_status::VLAN_STATUSES,
    },
    object_meta,
};

use super::{machines, speaks_for_the_cluster};
use crate::{
    ApiServer,
    cache::place,
    rest::{Call, options::Freshness},
    status::ApiError,
};

impl ApiServer {
    pub(super) async fn admit_vlan_config(
        &self,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let Ok(mut config) = serde_json::from_value::<VlanConfig>(new.clone()) else {
            // Validation says what is wrong with it.
            return Ok(());
        };
        if object_meta::is_being_deleted(new) {
            // Which nodes it had is what they go by.
            return Ok(());
        }
        let before = old.and_then(|old| serde_json::from_value::<VlanConfig>(old.clone()).ok());
        // Whatever is said of it: who has which nodes is in what is stored. What it has of another network is not this one's.
        let stays = |before: &&VlanConfig| before.spec.cluster_network == config.spec.cluster_network;
        config.metadata.annotations =
            before.as_ref().filter(stays).and_then(|before| before.metadata.annotations.clone());
        let is_settled = before.as_ref().is_some_and(|before| before.spec == config.spec);
        let attempted = if old.is_some() { "update" } else { "create" };
        let name = name_of(new);
        let refused = |why: String| {
            ApiError::unprocessable(format!("can't {attempted} vlanConfig {name} because {why}"))
        };

        // What this rests on may have been made a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let configs: Vec<VlanConfig> = self.vlan_configs();
        let now = matched(&config, &configs, &self.nodes());
        if !is_settled {
            // Validation says it of that of the nodes, and of none.
            let network = &config.spec.cluster_network;
            let is_there =
                |one: &Value| one["metadata"]["name"] == *network && !object_meta::is_being_deleted(one);
            let is_named = !network.is_empty() && network != MANAGEMENT;
            if is_named && !self.all(GROUP, "clusternetworks").iter().any(is_there) {
                return Err(refused(format!("it refers to a none-existing cluster network {network}")));
            }
            check_mtu(&config, &configs).map_err(&refused)?;
            if !now.held_by_others.is_empty() {
                let nodes = now.held_by_others.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(refused(format!("it overlaps with other vlanconfigs matching node(s) {nodes}")));
            }
        }
        if let Some(before) = before.filter(|_| !is_settled) {
            let had = matched_nodes(before.metadata.annotations.as_ref());
            let is_elsewhere = before.spec.cluster_network != config.spec.cluster_network
                || before.spec.uplink != config.spec.uplink;
            let affected = if is_elsewhere { had } else { had.difference(&now.nodes).cloned().collect() };
            self.check_machines(&before.spec.cluster_network, &affected).map_err(&refused)?;
        }
        vlan_config::set_matched_nodes(new, &now.nodes);
        Ok(())
    }

    pub(super) async fn admit_vlan_config_deletion(&self, old: &Value) -> Result<(), ApiError> {
        let Ok(config) = serde_json::from_value::<VlanConfig>(old.clone()) else { return Ok(()) };
        self.reach(Freshness::Latest).await?;
        let nodes = matched_nodes(config.metadata.annotations.as_ref());
        self.check_machines(&config.spec.cluster_network, &nodes).map_err(|why| {
            ApiError::unprocessable(format!("can't delete vlanConfig {} because {why}", name_of(old)))
        })
    }

    /// The size of frames on a cluster network is what its uplinks say, and nothing else.
    pub(super) fn admit_cluster_network(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let said = |network: Option<&Value>| {
            network
                .map(|network| network["metadata"]["annotations"][MTU_ANNOTATION].clone())
                .unwrap_or_default()
        };
        let (mtu, before) = (said(Some(new)), said(old));
        let is_ours = call.user.name.starts_with(&sheaf_resources::rbac::controller_user(""));
        if mtu == before || is_ours {
            return Ok(());
        }
        let attempted = if old.is_some() { "update" } else { "create" };
        let name = name_of(new);
        let refused = |why: String| {
            Err(ApiError::unprocessable(format!("can't {attempted} cluster network {name} because {why}")))
        };
        if old.is_none() {
            return refused(format!("annotation {MTU_ANNOTATION} can't be added"));
        }
        let Some(mtu) = mtu.as_str().map_or(Some(DEFAULT_MTU), |mtu| mtu.parse::<u32>().ok()) else {
            return refused(format!("annotation {MTU_ANNOTATION} value is not an integer"));
        };
        if name == MANAGEMENT && !same_mtu(mtu, DEFAULT_MTU) {
            return refused(format!(
                "another MTU than {DEFAULT_MTU} on {MANAGEMENT} is not supported by Sheaf yet"
            ));
        }
        let configs: Vec<VlanConfig> = self.vlan_configs();
        let of_it = |config: &&VlanConfig| config.spec.cluster_network == name;
        match configs.iter().filter(of_it).find(|config| !same_mtu(config.spec.mtu(), mtu)) {
            None => Ok(()),
            Some(config) => refused(format!(
                "clusternetwork has MTU {mtu}, but the vlanconfigs {} has another MTU {}",
                config.metadata.name.as_deref().unwrap_or_default(),
                config.spec.mtu()
            )),
        }
    }

    /// The configurations of a cluster network, and the nodes that have something of one that is gone.
    pub(super) fn uplinks_of(&self, cluster_network: &str) -> Vec<String> {
        let configs = self.all(GROUP, VLAN_CONFIGS);
        let of_it = configs.iter().filter(|config| config["spec"]["clusterNetwork"] == cluster_network);
        let mut users: Vec<String> = of_it.map(|config| name_of(config).to_owned()).collect();
        let statuses = self.all(GROUP, VLAN_STATUSES);
        let on_nodes = statuses.iter().filter(|status| status["status"]["clusterNetwork"] == cluster_network);
        users
            .extend(on_nodes.filter_map(|status| status["status"]["vlanConfig"].as_str().map(str::to_owned)));
        users.sort();
        users.dedup();
        users
    }

    fn check_machines(&self, cluster_network: &str, nodes: &BTreeSet<String>) -> Result<(), String> {
        if nodes.is_empty() {
            return Ok(());
        }
        let definitions = self.all("k8s.cni.cncf.io", "network-attachment-definitions");
        let on_it: BTreeSet<String> = definitions
            .iter()
            .filter(|nad| nad["metadata"]["labels"][CLUSTER_NETWORK_LABEL] == cluster_network)
            .map(|nad| place(nad["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(nad)))
            .collect();
        let machines: Vec<String> = self
            .all(machines::GROUP, machines::INSTANCES)
            .iter()
            .filter(|vmi| {
                let node = vmi["status"]["nodeName"].as_str().unwrap_or_default();
                let is_over = matches!(vmi["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                let uses = machines::Uses::of_instance(vmi);
                nodes.contains(node) && !is_over && uses.networks.iter().any(|one| on_it.contains(one))
            })
            .map(|vmi| place(vmi["metadata"]["namespace"].as_str().unwrap_or_default(), name_of(vmi)))
            .collect();
        match machines.is_empty() {
            true => Ok(()),
            false => {
                Err(format!("it is blocked by VM(s) {} which must be stopped at first", machines.join(", ")))
            }
        }
    }

    fn nodes(&self) -> Vec<Node> {
        let read = |node: Value| {
            let labels = serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default();
            Node { name: name_of(&node).to_owned(), labels }
        };
        self.all("", "nodes").into_iter().map(read).collect()
    }

    /// What cannot be read is nobody's.
    fn vlan_configs(&self) -> Vec<VlanConfig> {
        self.all(GROUP, VLAN_CONFIGS).into_iter().filter_map(|one| serde_json::from_value(one).ok()).collect()
    }
}

/// Nobody but a node says how an uplink fares there.
pub(super) fn admit_vlan_status(call: &Call<'_>) -> Result<(), ApiError> {
    match speaks_for_the_cluster(call.user) {
        true => Ok(()),
        false => {
            Err(ApiError::refused(call.named(), &call.request.name, "only nodes say how their uplinks fare"))
        }
    }
}

fn check_mtu(config: &VlanConfig, configs: &[VlanConfig]) -> Result<(), String> {
    let is_beside = |other: &&VlanConfig| {
        other.metadata.name != config.metadata.name
            && other.spec.cluster_network == config.spec.cluster_network
    };
    match configs.iter().filter(is_beside).find(|other| !same_mtu(other.spec.mtu(), config.spec.mtu())) {
        None => Ok(()),
        Some(other) => Err(format!(
            "the vlanconfig {} MTU {} is different with another vlanconfig {} MTU {}, all vlanconfigs on one \
             clusternetwork need to have same MTU",
            config.metadata.name.as_deref().unwrap_or_default(),
            config.spec.mtu(),
            other.metadata.name.as_deref().unwrap_or_default(),
            other.spec.mtu()
        )),
    }
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
