//! loadbalancer.harvesterhci.io/v1beta1 LoadBalancer: one address for several machines, or for a cluster in them.
//!
//! It has no status subresource, as in the original. Who writes what of the status: a controller the address that was
//! allocated, the node that holds it, the backend servers and `Ready`; that node `address`, `unhealthyServers` and
//! `Forwarding`. Of one for a cluster in machines `address` is that cluster's cloud provider's to write.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{age_column, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    wire::{root_type, wire_type},
};

pub const GROUP: &str = "loadbalancer.harvesterhci.io";
pub const LOAD_BALANCERS: &str = "loadbalancers";

/// Kept until the address is nobody's any more.
pub const ADDRESS_FINALIZER: &str = "sheaf.io/load-balancer-address";
/// Who asks, for pools that are for some and not for others. What they say is the API server's to say, but for the
/// network of a cluster and its name.
pub const NETWORK_ANNOTATION: &str = "loadbalancer.harvesterhci.io/network";
pub const PROJECT_ANNOTATION: &str = "loadbalancer.harvesterhci.io/project";
pub const NAMESPACE_ANNOTATION: &str = "loadbalancer.harvesterhci.io/namespace";
pub const CLUSTER_ANNOTATION: &str = "loadbalancer.harvesterhci.io/cluster";

/// For machines.
pub const VM: &str = "vm";
/// For a cluster in machines.
pub const CLUSTER: &str = "cluster";
/// Of a pool.
pub const POOL: &str = "pool";
/// Of a DHCP server.
pub const DHCP: &str = "dhcp";
/// The address that asks a DHCP server for one.
pub const ASK_DHCP: &str = "0.0.0.0";

/// Whether all is well.
pub const READY: &str = "Ready";
/// What the node says that holds the address.
pub const FORWARDING: &str = "Forwarding";

/// Every listener is a rule and every backend server a place in it.
const MOST_LISTENERS: usize = 100;
const MOST_SECONDS: u32 = 3600;
const MOST_TIMES: u32 = 1000;

root_type! {
    /// One address for several machines.
    LoadBalancer = "io.harvesterhci.loadbalancer.v1beta1.LoadBalancer",
    "loadbalancer.harvesterhci.io" / "v1beta1" "loadbalancers" NamespaceResourceScope {
        /// Which address, for what.
        spec: LoadBalancerSpec,
        /// How it stands.
        status: LoadBalancerStatus,
    }
}

wire_type! {
    /// Which address, for what.
    LoadBalancerSpec = "io.harvesterhci.loadbalancer.v1beta1.LoadBalancerSpec" {
        /// For people.
        description: String,
        /// vm or cluster; vm when left out. Settled when created.
        workload_type: String,
        /// pool or dhcp; pool when left out. Settled when created.
        ipam: String,
        /// The IPPool to take an address of; chosen when left out.
        ip_pool: String,
        /// What is listened to, for machines.
        listeners: Vec<Listener>,
        /// The machines: those that have one of the values of every label.
        backend_server_selector: BTreeMap<String, Vec<String>>,
        /// How to find out which of them are well.
        health_check: Option<HealthCheck>,
    }
}

wire_type! {
    /// A port that is listened to.
    Listener = "io.harvesterhci.loadbalancer.v1beta1.Listener" {
        /// Its name.
        name: String,
        /// The port at the load balancer's address.
        port: i32,
        /// TCP or UDP.
        protocol: String,
        /// The port of the machines.
        backend_port: i32,
    }
}

wire_type! {
    /// How to find out which machines are well: by connecting.
    HealthCheck = "io.harvesterhci.loadbalancer.v1beta1.HealthCheck" {
        /// The port to connect to; one of the machines' ports that is listened to.
        port: u32,
        /// So many times in a row it must go well for one that was not.
        success_threshold: u32,
        /// So many times in a row it must fail for one that was well.
        failure_threshold: u32,
        /// Seconds from one to the next.
        period_seconds: u32,
        /// Seconds that each may take.
        timeout_seconds: u32,
    }
}

wire_type! {
    /// How a load balancer stands.
    LoadBalancerStatus = "io.harvesterhci.loadbalancer.v1beta1.LoadBalancerStatus" {
        /// The addresses of the machines that run.
        backend_servers: Vec<String>,
        /// The address it was given.
        allocated_address: AllocatedAddress,
        /// The address it is reached at.
        address: String,
        /// The node that holds the address, for machines.
        node_name: String,
        /// Those of the backend servers that were found not to answer, and get no connections.
        unhealthy_servers: Vec<String>,
        /// Ready and Forwarding.
        conditions: Vec<HarvesterCondition>,
    }
}

wire_type! {
    /// An address of a pool.
    AllocatedAddress = "io.harvesterhci.loadbalancer.v1beta1.AllocatedAddress" {
        /// The pool.
        ip_pool: String,
        /// The address.
        ip: String,
        /// The mask of its network.
        mask: String,
        /// The way to everywhere else.
        gateway: String,
    }
}

impl LoadBalancerSpec {
    pub fn is_for_cluster(&self) -> bool {
        self.workload_type == CLUSTER
    }

    pub fn asks_dhcp(&self) -> bool {
        self.ipam == DHCP
    }

    /// The health check, where there is one.
    pub fn probe(&self) -> Option<&HealthCheck> {
        self.health_check.as_ref().filter(|check| check.port != 0)
    }

    /// Whether a machine with these labels is one of its machines. Without a selector none is.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.backend_server_selector.iter();
        !self.backend_server_selector.is_empty()
            && wanted.all(|(key, values)| labels.get(key).is_some_and(|value| values.contains(value)))
    }
}

impl LoadBalancerStatus {
    pub fn condition(&self, condition_type: &str) -> Option<&HarvesterCondition> {
        self.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }
}

pub fn kind() -> Kind {
    Kind::of_type::<LoadBalancer>(LOAD_BALANCERS)
        .short(&["lb", "lbs"])
        .columns(vec![
            name_column(),
            Column::computed("DESCRIPTION", |balancer, _| balancer["spec"]["description"].clone()),
            Column::computed("WORKLOADTYPE", |balancer, _| balancer["spec"]["workloadType"].clone()),
            Column::computed("IPAM", |balancer, _| balancer["spec"]["ipam"].clone()),
            Column::computed("ADDRESS", |balancer, _| balancer["status"]["address"].clone()),
            age_column(),
        ])
        .selectable(&["status.nodeName"])
        .behaving(Behaviour { default, validate, generation: true, ..Behaviour::PLAIN })
}

/// What an older client left at zero would mean nothing.
fn default(balancer: &mut Value) {
    let check = &mut balancer["spec"]["healthCheck"];
    if check["port"].as_u64().is_none_or(|port| port == 0) {
        // Looking made it; nothing was there.
        if check.is_null()
            && let Some(spec) = balancer["spec"].as_object_mut()
        {
            spec.remove("healthCheck");
        }
        return;
    }
    for (field, value) in
        [("successThreshold", 2), ("failureThreshold", 2), ("periodSeconds", 1), ("timeoutSeconds", 1)]
    {
        if check[field].as_u64().is_none_or(|given| given == 0) && !check[field].is_string() {
            check[field] = json!(value);
        }
    }
}

/// What the one who asks for an address is, from where it is: nobody says themselves which namespace and project they
/// are. `network` is that of a cluster's machines, where it named none.
pub fn complete(balancer: &mut Value, project: &str, network: &str) {
    let is_for_cluster = text(&balancer["spec"]["workloadType"]) == CLUSTER;
    let namespace = text(&balancer["metadata"]["namespace"]).to_owned();
    let annotations = &mut balancer["metadata"]["annotations"];
    if !annotations.is_null() && !annotations.is_object() {
        return;
    }
    annotations[NAMESPACE_ANNOTATION] = json!(namespace);
    annotations[PROJECT_ANNOTATION] = json!(project);
    if is_for_cluster && text(&annotations[NETWORK_ANNOTATION]).is_empty() {
        annotations[NETWORK_ANNOTATION] = json!(network);
    } else if annotations[NETWORK_ANNOTATION].is_null() {
        annotations[NETWORK_ANNOTATION] = json!("");
    }
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let read = |object: &Value| serde_json::from_value::<LoadBalancerSpec>(object["spec"].clone());
    let spec = match read(new) {
        Ok(spec) => spec,
        Err(why) => return vec![FieldError::invalid(&path, "<object>", why.to_string())],
    };
    let mut errors = Vec::new();
    if let Some(old) = old.and_then(|old| read(old).ok()) {
        check_settled(&old, &spec, &path, &mut errors);
    }
    // One on its way out is let go, whatever else it says. What is settled says who lets go of its address.
    if !new["metadata"]["deletionTimestamp"].is_null() {
        return errors;
    }
    for (field, value, known) in
        [("workloadType", &spec.workload_type, [VM, CLUSTER]), ("ipam", &spec.ipam, [POOL, DHCP])]
    {
        if !value.is_empty() && !known.contains(&value.as_str()) {
            errors.push(FieldError::not_supported(&path.child(field), value.as_str(), known));
        }
    }
    // What is listened to for a cluster is the cluster's own business.
    if !spec.is_for_cluster() {
        check_listeners(&spec, &path.child("listeners"), &mut errors);
        check_selector(&spec, &path.child("backendServerSelector"), &mut errors);
    }
    check_health(&spec, &path.child("healthCheck"), &mut errors);
    errors
}

fn check_settled(
    old: &LoadBalancerSpec,
    spec: &LoadBalancerSpec,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    if old.asks_dhcp() != spec.asks_dhcp() {
        let why = format!("can't change the IPAM from {} to {}", old.ipam, spec.ipam);
        errors.push(FieldError::invalid(&path.child("ipam"), spec.ipam.as_str(), why));
    }
    if old.is_for_cluster() != spec.is_for_cluster() {
        let why =
            format!("can't change the workloadType from {} to {}", old.workload_type, spec.workload_type);
        errors.push(FieldError::invalid(&path.child("workloadType"), spec.workload_type.as_str(), why));
    }
}

fn check_listeners(spec: &LoadBalancerSpec, at: &FieldPath, errors: &mut Vec<FieldError>) {
    if spec.listeners.is_empty() {
        errors.push(FieldError::required(at, "the loadbalancer needs to have at least one listener"));
    }
    if spec.listeners.len() > MOST_LISTENERS {
        errors.push(FieldError::too_many(at, spec.listeners.len() as u64, MOST_LISTENERS as u64));
        return;
    }
    let (mut names, mut ports, mut backends) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    for (n, listener) in spec.listeners.iter().enumerate() {
        let (at, name) = (at.index(n), listener.name.as_str());
        if !names.insert(name) {
            let why = format!("listener has duplicate name {name}");
            errors.push(FieldError::invalid(&at.child("name"), name, why));
        }
        if let Some(other) = ports.insert(listener.port, name) {
            let why = format!("listener {name} has duplicate port {} with listener {other}", listener.port);
            errors.push(FieldError::invalid(&at.child("port"), listener.port, why));
        }
        if let Some(other) = backends.insert(listener.backend_port, name) {
            let why = format!(
                "listener {name} has duplicate backend port {} with listener {other}",
                listener.backend_port
            );
            errors.push(FieldError::invalid(&at.child("backendPort"), listener.backend_port, why));
        }
        for (field, what, port) in [
            ("port", "listener port", listener.port),
            ("backendPort", "listener backend port", listener.backend_port),
        ] {
            if port > i32::from(u16::MAX) {
                let why = format!("{what} {port} must <= {}", u16::MAX);
                errors.push(FieldError::invalid(&at.child(field), port, why));
            } else if port < 1 {
                errors.push(FieldError::invalid(&at.child(field), port, format!("{what} {port} must >= 1")));
            }
        }
        if !["TCP", "UDP"].contains(&listener.protocol.as_str()) {
            let at = at.child("protocol");
            errors.push(FieldError::not_supported(&at, listener.protocol.as_str(), ["TCP", "UDP"]));
        }
    }
}

fn check_selector(spec: &LoadBalancerSpec, at: &FieldPath, errors: &mut Vec<FieldError>) {
    for (key, values) in &spec.backend_server_selector {
        if values.is_empty() {
            errors.push(FieldError::required(
                &at.key(key),
                "a label has one of these values, so there must be one",
            ));
        }
    }
}

fn check_health(spec: &LoadBalancerSpec, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(check) = spec.probe() else { return };
    let of_port = |listener: &&Listener| u32::try_from(listener.backend_port) == Ok(check.port);
    let at_port = at.child("port");
    match spec.listeners.iter().filter(of_port).map(|listener| listener.protocol == "TCP").max() {
        Some(true) => {}
        Some(false) => {
            let why = format!("healthcheck port {} can only be a TCP backend port", check.port);
            errors.push(FieldError::invalid(&at_port, check.port, why));
        }
        None => {
            let why = format!("healthcheck port {} is not in listener backend port list", check.port);
            errors.push(FieldError::invalid(&at_port, check.port, why));
        }
    }
    for (field, value, most) in [
        ("successThreshold", check.success_threshold, MOST_TIMES),
        ("failureThreshold", check.failure_threshold, MOST_TIMES),
        ("periodSeconds", check.period_seconds, MOST_SECONDS),
        ("timeoutSeconds", check.timeout_seconds, MOST_SECONDS),
    ] {
        if value == 0 || value > most {
            let why = format!("healthcheck {field} should be from 1 to {most}");
            errors.push(FieldError::invalid(&at.child(field), value, why));
        }
    }
}

#[cfg(test)]
mod tests;
