//! Tells what happened to an instance, in events that a person reads beside it.

use k8s_openapi::api::core::v1::Event;
use kube::{Client, api::PostParams};
use serde_json::json;
use sheaf_client::objects::Objects;
use sheaf_resources::kinds::virtual_machine_instance::VirtualMachineInstance;
use sheaf_world::World;

/// The name under which the original's agent reports.
const COMPONENT: &str = "virt-handler";

pub struct Events<'a> {
    pub client: &'a Client,
    pub world: &'a World,
    pub node: &'a str,
}

impl Events<'_> {
    /// Tells one. What cannot be told is logged: an event is never worth a machine.
    pub async fn tell(&self, about: &VirtualMachineInstance, (sort, reason, message): (&str, &str, &str)) {
        let metadata = &about.metadata;
        let (namespace, name) =
            (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default());
        let now = self.world.clock.rfc3339();
        let event = json!({
            "metadata": {"name": format!("{name}.{}", self.world.chance.name_suffix()), "namespace": namespace},
            "involvedObject": {
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name,
                "namespace": namespace, "uid": metadata.uid, "resourceVersion": metadata.resource_version,
            },
            "type": sort, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": COMPONENT, "host": self.node},
            "reportingComponent": COMPONENT, "reportingInstance": self.node,
        });
        let told = match serde_json::from_value::<Event>(event) {
            Ok(event) => {
                let events: Objects<Event> = Objects::namespaced(self.client.clone(), namespace);
                events.create(&PostParams::default(), &event).await.map(drop).map_err(|why| why.to_string())
            }
            Err(why) => Err(why.to_string()),
        };
        if let Err(why) = told {
            tracing::warn!(namespace, name, reason, why, "an event could not be told");
        }
    }
}
