//! Tells when a backend server goes down and when it is back, in events beside its load balancer.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::PostParams};
use serde_json::json;
use sheaf_resources::kinds::load_balancer::LoadBalancer;

use crate::virtual_machine_instance::Hands;

const COMPONENT: &str = "harvester-lb-controller";

/// What cannot be told is logged: nothing waits for it.
pub(super) async fn tell(hands: &Hands, about: &LoadBalancer, server: Ipv4Addr, is_well: bool) {
    let (sort, reason, message) = match is_well {
        true => {
            ("Normal", "BackendServerUp", format!("backend server {server} answers and gets connections"))
        }
        false => (
            "Warning",
            "BackendServerDown",
            format!("backend server {server} does not answer and gets no connections"),
        ),
    };
    let metadata = &about.metadata;
    let (namespace, name) =
        (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
    let now = hands.world.clock.rfc3339();
    let event = json!({
        "metadata": {"name": format!("{name}.{}", hands.world.chance.name_suffix()), "namespace": namespace},
        "involvedObject": {
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": name,
            "namespace": namespace, "uid": metadata.uid, "resourceVersion": metadata.resource_version,
        },
        "type": sort, "reason": reason, "message": message, "count": 1,
        "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": COMPONENT, "host": hands.node},
        "reportingComponent": COMPONENT, "reportingInstance": hands.node,
    });
    let told = match serde_json::from_value::<Event>(event) {
        Ok(event) => {
            let events: Api<Event> = Api::namespaced(hands.client.clone(), namespace);
            events.create(&PostParams::default(), &event).await.map(drop).map_err(|why| why.to_string())
        }
        Err(why) => Err(why.to_string()),
    };
    if let Err(why) = told {
        tracing::warn!(namespace, name, reason, why, "an event could not be told");
    }
}
