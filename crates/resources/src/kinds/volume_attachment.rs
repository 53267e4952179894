//! storage.k8s.io/v1 VolumeAttachment: which volume is attached to which node.
//!
//! Sheaf attaches volumes without asking anybody. One object per volume of an instance that is on a node is shown for
//! those who ask where a volume is before they attach it elsewhere; nobody may make one.

use k8s_openapi::api::storage::v1::VolumeAttachment;
use serde_json::{Value, json};

use super::{age_column, name_column, storage_class::PROVISIONER};
use crate::{
    kind::{Column, Kind, Verbs},
    names::short_mark,
};

/// The `namespace/name` of the instance that has the volume.
pub const INSTANCE_ANNOTATION: &str = "sheaf.io/instance";

pub fn kind() -> Kind {
    Kind { verbs: Verbs::ReadOnly, ..Kind::of_type::<VolumeAttachment>("volumeattachments") }
        .cluster_scoped()
        .columns(vec![
            name_column(),
            Column::computed("Attacher", |attachment, _| attachment["spec"]["attacher"].clone()),
            Column::computed("PV", |attachment, _| {
                attachment["spec"]["source"]["persistentVolumeName"].clone()
            }),
            Column::computed("Node", |attachment, _| attachment["spec"]["nodeName"].clone()),
            Column::computed("Attached", |attachment, _| attachment["status"]["attached"].clone()),
            age_column(),
        ])
}

/// The name of the attachment of a volume to the node of an instance: the same for as long as it lasts.
fn name_of(volume: &str, node: &str, instance: &str) -> String {
    format!("csi-{}", short_mark(&format!("{volume}\0{PROVISIONER}\0{node}\0{instance}"), 32))
}

/// The attachment of a volume to the node of an instance (`namespace/name`) that has it.
pub fn attachment_of(volume: &str, node: &str, instance: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name_of(volume, node, instance), "annotations": {INSTANCE_ANNOTATION: instance}},
        "spec": {"attacher": PROVISIONER, "nodeName": node, "source": {"persistentVolumeName": volume}},
        "status": {"attached": true},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attachment_says_which_volume_is_where() {
        let attachment = attachment_of("pvc-u", "n1", "default/vm");
        let typed: VolumeAttachment = serde_json::from_value(attachment).unwrap();
        assert_eq!(typed.spec.source.persistent_volume_name.as_deref(), Some("pvc-u"));
        assert!(typed.status.unwrap().attached);
        assert_ne!(name_of("pvc-u", "n1", "default/vm"), name_of("pvc-u", "n2", "default/vm"));
        assert_eq!(name_of("pvc-u", "n1", "default/vm").len(), 36);
    }
}
