//! Load balancers and their pools: who asks, what no two pools share, and whose word counts for what.
//!
//! Neither kind has a status subresource, as in the original. So that nobody gives themselves an address, or a node, what
//! stands in the status is the cluster's to say; but for `address` of one that is for a cluster in machines, which that
//! cluster's cloud provider writes with the rest.

use serde_json::{Value, json};
use sheaf_planner::load_balancer::pool::Block;
use sheaf_resources::kinds::{
    ip_pool::IpPoolSpec,
    load_balancer::{self, CLUSTER, CLUSTER_ANNOTATION, NETWORK_ANNOTATION},
    load_balancer_ip_pool::{self, LoadBalancerIpPoolSpec},
};

use super::{machines, speaks_for_the_cluster};
use crate::{
    ApiServer,
    cache::place,
    rest::{Call, options::Freshness},
    status::ApiError,
};

pub(super) const GROUP: &str = load_balancer::GROUP;
pub(super) const BALANCERS: &str = load_balancer::LOAD_BALANCERS;
pub(super) const POOLS: &str = "ippools";

/// Where a namespace says which project it is in: `cluster:project`.
const PROJECT_OF_NAMESPACE: &str = "field.cattle.io/projectId";
const CREATOR_LABEL: &str = "harvesterhci.io/creator";
const NODE_DRIVER: &str = "docker-machine-driver-harvester";

impl ApiServer {
    pub(super) fn admit_balancer(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        keep_status(call, new, old);
        // One on its way out is nobody who asks any more.
        if new["metadata"]["deletionTimestamp"].is_null() {
            let (project, network) = (self.project_of(call), self.network_of_cluster(call, new));
            load_balancer::complete(new, &project, &network);
        }
        Ok(())
    }

    /// No two pools give the same address, and none gives what machines may get.
    pub(super) async fn admit_balancer_pool(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let is_settled = old.is_some_and(|old| old["spec"] == new["spec"]);
        let Ok(spec) = serde_json::from_value::<LoadBalancerIpPoolSpec>(new["spec"].clone()) else {
            // Validation says what is wrong with it.
            return Ok(());
        };
        if is_settled || !new["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        // It may have been made a moment ago, through another server.
        self.reach(Freshness::Latest).await?;
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let others: Vec<(String, LoadBalancerIpPoolSpec)> = self
            .all(GROUP, POOLS)
            .into_iter()
            .filter_map(|pool| {
                let name = pool["metadata"]["name"].as_str()?.to_owned();
                Some((name, serde_json::from_value(pool["spec"].clone()).ok()?))
            })
            .collect();
        let conflict = load_balancer_ip_pool::conflict_with(name, &spec, &others);
        match conflict.or_else(|| self.overlap_with_machines(&spec)) {
            None => Ok(()),
            Some(why) => {
                let what = if old.is_some() { "update" } else { "create" };
                Err(ApiError::refused(
                    call.named(),
                    name,
                    format!("could not {what} IPPool {name}, error: {why}"),
                ))
            }
        }
    }

    fn overlap_with_machines(&self, spec: &LoadBalancerIpPoolSpec) -> Option<String> {
        self.all("network.harvesterhci.io", "ippools").into_iter().find_map(|pool| {
            let machines = serde_json::from_value::<IpPoolSpec>(pool["spec"].clone()).ok()?;
            let blocks = Block::of_machines(&machines);
            let ranges = spec.address_ranges();
            let range = ranges.iter().find(|range| blocks.iter().any(|block| block.overlaps(range)))?;
            Some(format!(
                "machines on network {} may get addresses from {} to {}; exclude those there first",
                machines.network_name, range.first, range.last
            ))
        })
    }

    fn project_of(&self, call: &Call<'_>) -> String {
        let resource = crate::cache::Resource::new("", "namespaces");
        let namespace = self.cache.get(&resource, &place("", &call.request.namespace));
        let namespace = namespace.map(|namespace| namespace.to_value()).unwrap_or_default();
        let project = namespace["metadata"]["annotations"][PROJECT_OF_NAMESPACE].as_str().unwrap_or_default();
        project.replacen(':', "/", 1)
    }

    /// The first network of the machines that a cluster is made of, where it named none.
    fn network_of_cluster(&self, call: &Call<'_>, balancer: &Value) -> String {
        let annotations = &balancer["metadata"]["annotations"];
        let cluster = annotations[CLUSTER_ANNOTATION].as_str().unwrap_or_default();
        let is_named = annotations[NETWORK_ANNOTATION].as_str().is_some_and(|network| !network.is_empty());
        if balancer["spec"]["workloadType"] != CLUSTER || cluster.is_empty() || is_named {
            return String::new();
        }
        let is_of_cluster = |instance: &Value| {
            let metadata = &instance["metadata"];
            metadata["namespace"] == call.request.namespace.as_str()
                && metadata["labels"][CREATOR_LABEL] == NODE_DRIVER
                && metadata["name"].as_str().is_some_and(|name| name.starts_with(cluster))
        };
        let instances = self.all(machines::GROUP, machines::INSTANCES);
        let networks = instances.iter().filter(|instance| is_of_cluster(instance));
        let mut networks =
            networks.flat_map(|instance| instance["spec"]["networks"].as_array().into_iter().flatten());
        let first = networks.find_map(|network| network["multus"]["networkName"].as_str());
        first.unwrap_or_default().to_owned()
    }
}

/// An address that somebody has would be given to somebody else by the next pool of that range.
pub(super) fn admit_pool_deletion(pool: &Value) -> Result<(), ApiError> {
    let allocated = pool["status"]["allocated"].as_object();
    match allocated.and_then(|allocated| allocated.iter().next()) {
        None => Ok(()),
        Some((address, holder)) => Err(ApiError::unprocessable(format!(
            "can't delete pool before releasing all the allocated IP: {address} is that of load balancer {}",
            holder.as_str().unwrap_or_default()
        ))),
    }
}

fn keep_status(call: &Call<'_>, new: &mut Value, old: Option<&Value>) {
    if speaks_for_the_cluster(call.user) {
        return;
    }
    let said = new["status"]["address"].as_str().unwrap_or_default().to_owned();
    let mut status =
        old.map(|old| old["status"].clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
    if new["spec"]["workloadType"] == CLUSTER {
        match said.is_empty() {
            true => drop(status.as_object_mut().and_then(|status| status.remove("address"))),
            false => status["address"] = json!(said),
        }
    }
    match status.as_object().is_some_and(|status| !status.is_empty()) {
        true => new["status"] = status,
        false => drop(new.as_object_mut().and_then(|fields| fields.remove("status"))),
    }
}
