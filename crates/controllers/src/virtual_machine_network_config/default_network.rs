//! The default network: its pool, and which definitions lead to it.
//!
//! An interface is on it when it names none, or a definition that leads to the management bridge without a tag
//! and has no pool of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::json;
use sheaf_client::reconciling::ReconcileError;
use sheaf_planner::address::Pool;
use sheaf_resources::kinds::{
    cluster_network::MANAGEMENT,
    ip_pool::{DEFAULT_NETWORK, IPPool},
    network_attachment_definition::{self, NetworkAttachmentDefinition, Tagging},
    virtual_machine_instance::spec::VirtualMachineInstanceSpec,
};

use crate::object::{Eyes, Object, place_of};

pub(crate) struct DefaultNetwork {
    found: Option<Object<IPPool>>,
    /// By `namespace/name`: whether it is the default network. Those that are not here do not exist.
    definitions: BTreeMap<String, bool>,
}

/// The definitions a machine is plugged into, as `namespace/name`.
pub(crate) fn definitions(spec: &VirtualMachineInstanceSpec, namespace: &str) -> BTreeSet<String> {
    let networks = spec.networks.iter().filter_map(|network| network.multus.as_ref());
    let places = networks.filter_map(|network| network.definition(namespace));
    places.map(|(namespace, name)| format!("{namespace}/{name}")).collect()
}

impl DefaultNetwork {
    /// Reads the pool, and those definitions.
    pub async fn read(eyes: &Eyes, names: &BTreeSet<String>) -> Result<Self, ReconcileError> {
        // Only that a definition has no pool of its own rests on what is absent.
        let pools: Vec<Arc<IPPool>> =
            if names.is_empty() { eyes.remembered().list("").await? } else { eyes.list("").await? };
        let mut network = Self::read_definitions(eyes, names, &pools).await?;
        let of_default = pools.iter().filter(|pool| pool.spec.network_name == DEFAULT_NETWORK);
        // Somebody may make a second one; the first by name counts.
        let place = of_default.filter_map(|pool| place_of(&pool.metadata)).min();
        if let Some((namespace, name)) = place {
            network.found = eyes.find(&namespace, &name).await?;
        }
        Ok(network)
    }

    /// Reads those definitions, for who has no business with the pool. Most machines name none, and nothing is read.
    pub async fn without_pool(eyes: &Eyes, names: &BTreeSet<String>) -> Result<Self, ReconcileError> {
        let pools = if names.is_empty() { Vec::new() } else { eyes.list("").await? };
        Self::read_definitions(eyes, names, &pools).await
    }

    async fn read_definitions(
        eyes: &Eyes,
        names: &BTreeSet<String>,
        pools: &[Arc<IPPool>],
    ) -> Result<Self, ReconcileError> {
        let mut network = DefaultNetwork { found: None, definitions: BTreeMap::new() };
        for full in names {
            let Some((namespace, name)) = full.split_once('/') else { continue };
            let found: Option<Object<NetworkAttachmentDefinition>> = eyes.find(namespace, name).await?;
            let Some(found) = found else { continue };
            let own_pool = pools.iter().any(|pool| pool.spec.network_name == *full);
            let leads_here =
                network_attachment_definition::parse(&found.typed.spec.config).is_ok_and(|attachment| {
                    attachment.cluster_network == MANAGEMENT && attachment.tagging == Tagging::Untagged
                });
            network.definitions.insert(full.clone(), leads_here && !own_pool);
        }
        Ok(network)
    }

    pub fn of(found: Object<IPPool>) -> Self {
        DefaultNetwork { found: Some(found), definitions: BTreeMap::new() }
    }

    pub fn is_default(&self, definition: &str) -> bool {
        self.definitions.get(definition) == Some(&true)
    }

    pub fn exists(&self, definition: &str) -> bool {
        self.definitions.contains_key(definition)
    }

    /// `None` when there is none, or none that can be read.
    pub fn pool(&self) -> Option<Pool> {
        let pool = &self.found.as_ref()?.typed;
        match Pool::read(&pool.spec, pool.status.ipv4.as_ref()) {
            Ok(pool) => Some(pool),
            Err(why) => {
                tracing::warn!(%why, "the pool of the default network cannot be read");
                None
            }
        }
    }

    pub fn is_paused(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.typed.spec.paused == Some(true))
    }

    /// Whether the object describes the pool as it is.
    pub fn says(&self, pool: &Pool) -> bool {
        self.found.as_ref().is_some_and(|found| found.typed.status.ipv4.as_ref() == Some(&pool.into_wire()))
    }

    /// Writes the pool down, provided that nobody else wrote it since it was read.
    pub async fn write(&self, pool: &Pool, now: &str) -> Result<(), ReconcileError> {
        let Some(found) = &self.found else { return Ok(()) };
        // An address that was given back must go from the map, so it is not merged but replaced.
        let mut status = found.typed.status.clone();
        status.ipv4 = Some(pool.into_wire());
        status.last_update = now.to_owned();
        let mut changed = found.whole()?;
        changed.data["status"] = json!(status);
        found.write(&changed).await
    }
}
