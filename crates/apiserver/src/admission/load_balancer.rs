//! Load balancers and their pools: who asks, what no two pools share, and whose word counts for what.
//!
//! Neither kind has a status subresource, as in the original. So that nobody gives themselves an address, or a node, what
//! stands in the status is the cluster's to say; but for `address` of one that is for a cluster in machines, which that
//! cluster's cloud provider writes with the rest.

use serde_json::{Value, json};
use sheaf_planner::{
    load_balancer::pool::Block,
    topology::{CREATOR_LABEL, NODE_DRIVER},
};
use sheaf_resources::{
    kinds::{
        ip_pool::IpPoolSpec,
        load_balancer::{self, ADDRESS_FINALIZER, CLUSTER, CLUSTER_ANNOTATION, NETWORK_ANNOTATION},
        load_balancer_ip_pool::{self, AddressRange, LoadBalancerIpPoolSpec},
    },
    object_meta,
    rbac::Attributes,
};

use super::{keep_status, machines, speaks_for_the_cluster};
use crate::{
    ApiServer,
    cache::place,
    request::Verb,
    rest::{Call, options::Freshness},
    status::ApiError,
};

pub(super) const GROUP: &str = load_balancer::GROUP;
pub(super) const BALANCERS: &str = load_balancer::LOAD_BALANCERS;
pub(super) const POOLS: &str = "ippools";

/// Where a namespace says which project it is in: `cluster:project`.
const PROJECT_OF_NAMESPACE: &str = "field.cattle.io/projectId";

impl ApiServer {
    pub(super) fn admit_balancer(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        keep_all_but_address(call, new, old);
        self.keep_finalizer(call, new, old)?;
        // One on its way out is nobody who asks any more.
        if new["metadata"]["deletionTimestamp"].is_null() {
            let (project, network) = (self.project_of(call), self.network_of_cluster(call, new));
            load_balancer::complete(new, &project, &network);
        }
        Ok(())
    }

    /// What its node holds must not be given to others because its owner said so: the finalizer goes when the address is
    /// nobody's. Who administers the addresses may take it away all the same, from one whose node never comes back.
    fn keep_finalizer(&self, call: &Call<'_>, new: &mut Value, old: Option<&Value>) -> Result<(), ApiError> {
        let has = |balancer: &Value| object_meta::finalizers(balancer).contains(&ADDRESS_FINALIZER);
        if speaks_for_the_cluster(call.user) || !old.is_some_and(has) || has(new) {
            return Ok(());
        }
        // Who writes the whole of it and leaves this out meant nothing by it.
        if call.request.verb == Verb::Update && !object_meta::is_being_deleted(new) {
            match new["metadata"]["finalizers"].as_array_mut() {
                Some(finalizers) => finalizers.push(ADDRESS_FINALIZER.into()),
                None => new["metadata"]["finalizers"] = json!([ADDRESS_FINALIZER]),
            }
            return Ok(());
        }
        let asked = Attributes { verb: "update", group: GROUP, resource: POOLS, ..Attributes::default() };
        match self.authorizer.authorize(call.user, &asked).is_allowed() {
            true => Ok(()),
            false => {
                let why = format!(
                    "the finalizer {ADDRESS_FINALIZER} goes by itself once no node holds the address; who may update \
                     {POOLS}.{GROUP} can take it away"
                );
                Err(ApiError::refused(call.named(), &call.request.name, why))
            }
        }
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

    /// The other way round: machines get nothing that a pool of balancers gives. What was so before may stay so.
    pub(super) async fn admit_machine_pool(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let read = |pool: &Value| serde_json::from_value::<IpPoolSpec>(pool["spec"].clone());
        let Ok(spec) = read(new) else {
            // Validation says what is wrong with it.
            return Ok(());
        };
        let is_settled = old.is_some_and(|old| old["spec"] == new["spec"]);
        if is_settled || !new["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let before = old.and_then(|old| read(old).ok());
        for pool in self.all(GROUP, POOLS) {
            let Ok(balancers) = serde_json::from_value::<LoadBalancerIpPoolSpec>(pool["spec"].clone()) else {
                continue;
            };
            let was = before.as_ref().and_then(|before| shared(before, &balancers));
            if let (Some(range), None) = (shared(&spec, &balancers), was) {
                let name = pool["metadata"]["name"].as_str().unwrap_or_default();
                let why = format!(
                    "load balancers may get addresses from {} to {} of IPPool {name}: exclude those here first",
                    range.first, range.last
                );
                return Err(ApiError::refused(call.named(), text_of(&new["metadata"]["name"]), why));
            }
        }
        Ok(())
    }

    fn overlap_with_machines(&self, spec: &LoadBalancerIpPoolSpec) -> Option<String> {
        self.all("network.harvesterhci.io", "ippools").into_iter().find_map(|pool| {
            let machines = serde_json::from_value::<IpPoolSpec>(pool["spec"].clone()).ok()?;
            let range = shared(&machines, spec)?;
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

/// A range of the balancers' of which machines may get something.
fn shared(machines: &IpPoolSpec, balancers: &LoadBalancerIpPoolSpec) -> Option<AddressRange> {
    let blocks = Block::of_machines(machines);
    let mut ranges = balancers.address_ranges().into_iter();
    ranges.find(|range| blocks.iter().any(|block| block.overlaps(range)))
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The address of one for a cluster in machines is that cluster's to say; whether it is one was settled when it was made.
fn keep_all_but_address(call: &Call<'_>, new: &mut Value, old: Option<&Value>) {
    let said = new["status"]["address"].as_str().unwrap_or_default().to_owned();
    keep_status(call, new, old);
    let workload = old.unwrap_or(new)["spec"]["workloadType"].as_str();
    if speaks_for_the_cluster(call.user) || workload != Some(CLUSTER) {
        return;
    }
    match said.is_empty() {
        true => drop(new["status"].as_object_mut().and_then(|status| status.remove("address"))),
        false => new["status"]["address"] = json!(said),
    }
    let is_empty = new["status"].as_object().is_none_or(|status| status.is_empty());
    if is_empty && let Some(fields) = new.as_object_mut() {
        fields.remove("status");
    }
}
