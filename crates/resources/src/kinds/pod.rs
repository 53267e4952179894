//! core/v1 Pod: what clients of KubeVirt look for beside a running machine.
//!
//! Sheaf runs no containers. One pod per running instance is shown for those who find a
//! machine, its node or its claims through it; nobody may make one.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{
    age_column, name_column, text,
    virtual_machine_instance::{VirtualMachineInstance, status::Phase},
};
use crate::kind::{Column, Kind, Subresource, Verbs};

pub fn kind() -> Kind {
    Kind { verbs: Verbs::ReadOnly, ..Kind::of_type::<Pod>("pods") }
        .short(&["po"])
        .with_subresource(Subresource { name: "log", body: None, verbs: &["get"] })
        .columns(vec![
            name_column(),
            Column::computed("Ready", |pod, _| {
                let statuses = pod["status"]["containerStatuses"].as_array();
                let ready = statuses.into_iter().flatten().filter(|status| status["ready"] == true).count();
                format!("{ready}/{}", super::count(&pod["spec"]["containers"])).into()
            }),
            Column::computed("Status", |pod, _| match pod["metadata"]["deletionTimestamp"].is_null() {
                true => pod["status"]["phase"].clone(),
                false => "Terminating".into(),
            }),
            Column::computed("Restarts", |_, _| "0".into()),
            age_column(),
            Column::computed("IP", |pod, _| or_none(&pod["status"]["podIP"])).wide(),
            Column::computed("Node", |pod, _| or_none(&pod["spec"]["nodeName"])).wide(),
            Column::computed("Nominated Node", |_, _| "<none>".into()).wide(),
            Column::computed("Readiness Gates", |_, _| "<none>".into()).wide(),
        ])
        .selectable(&["spec.nodeName", "status.phase"])
}

fn or_none(value: &Value) -> Value {
    match text(value) {
        "" => "<none>".into(),
        value => value.into(),
    }
}

/// The name of the pod that stands for an instance: the same for as long as it lives.
pub fn launcher_name(instance: &VirtualMachineInstance) -> String {
    let name = instance.metadata.name.as_deref().unwrap_or_default();
    let uid: String =
        instance.metadata.uid.iter().flat_map(|uid| uid.chars()).filter(|c| *c != '-').collect();
    format!("virt-launcher-{name}-{}", uid.get(..5).unwrap_or(&uid))
}

/// The pod that stands for an instance that is on a node; `None` for one that is not, or
/// not any more.
pub fn launcher_of(instance: &VirtualMachineInstance) -> Option<Value> {
    let status = &instance.status;
    if status.node_name.is_empty() || status.phase.is_final() {
        return None;
    }
    let metadata = &instance.metadata;
    let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
    let running = status.phase == Phase::Running;
    let mut labels = metadata.labels.clone().unwrap_or_default();
    labels.insert("kubevirt.io".into(), "virt-launcher".into());
    labels.insert("kubevirt.io/created-by".into(), uid.clone());
    labels.insert("kubevirt.io/domain".into(), name.clone());
    labels.insert("vm.kubevirt.io/name".into(), name.clone());
    let claims = instance.spec.volumes.iter().filter_map(|volume| {
        let claim = volume.persistent_volume_claim.as_ref()?;
        Some(json!({"name": volume.name, "persistentVolumeClaim": {"claimName": claim.claim_name}}))
    });
    let address = status.interfaces.first().map(|interface| interface.ip_address.clone()).unwrap_or_default();
    let condition = |sort: &str, so: bool| json!({"type": sort, "status": if so { "True" } else { "False" }});
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": launcher_name(instance),
            "namespace": metadata.namespace,
            // Another object than the instance, and still the same one at every look.
            "uid": uid,
            "creationTimestamp": metadata.creation_timestamp,
            "labels": labels,
            "annotations": {"kubevirt.io/domain": name},
            "ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": name,
                "uid": uid, "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "nodeName": status.node_name,
            "containers": [{"name": "compute", "image": "sheaf"}],
            "volumes": claims.collect::<Vec<_>>(),
        },
        "status": {
            "phase": if running { "Running" } else { "Pending" },
            "conditions": [condition("PodScheduled", true), condition("Initialized", running),
                condition("ContainersReady", running), condition("Ready", running)],
            "containerStatuses": [{"name": "compute", "ready": running, "restartCount": 0, "image": "sheaf",
                "imageID": ""}],
        },
    });
    if !address.is_empty() {
        pod["status"]["podIP"] = address.as_str().into();
        pod["status"]["podIPs"] = json!([{"ip": address}]);
    }
    Some(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(phase: &str) -> VirtualMachineInstance {
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "1b2c3d4e-0000-4000-8000-000000000000",
                "labels": {"harvesterhci.io/vmName": "vm"}},
            "spec": {"domain": {"devices": {}}, "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "x"}}]},
            "status": {"phase": phase, "nodeName": "n1", "interfaces": [{"ipAddress": "10.52.0.5"}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_running_machine_has_a_pod_that_names_its_claims() {
        let pod = launcher_of(&instance("Running")).unwrap();
        assert_eq!(pod["metadata"]["name"], "virt-launcher-vm-1b2c3");
        assert_eq!(pod["metadata"]["labels"]["harvesterhci.io/vmName"], "vm");
        assert_eq!(
            pod["spec"]["volumes"],
            json!([{"name": "root", "persistentVolumeClaim": {"claimName": "c"}}])
        );
        assert_eq!((&pod["status"]["podIP"], &pod["spec"]["nodeName"]), (&json!("10.52.0.5"), &json!("n1")));
        let typed: Result<Pod, _> = serde_json::from_value(pod);
        assert!(typed.is_ok());
    }

    #[test]
    fn a_machine_that_is_over_or_nowhere_has_none() {
        assert!(launcher_of(&instance("Succeeded")).is_none());
        assert!(launcher_of(&instance("Failed")).is_none());
        let mut nowhere = instance("Scheduling");
        nowhere.status.node_name.clear();
        assert!(launcher_of(&nowhere).is_none());
    }
}
