//! The templates that every cluster has for machines of common sorts, in the namespace that everybody may look at.
//!
//! The names are Harvester's. What is in them is ours: only what Sheaf runs, and user data that needs no Secret, so
//! that a machine made of one as it stands works. Whoever makes one names an image for the disk or the disc first.
//!
//! Deliberately absent: the disc with virtio drivers that Harvester's Windows template has. It is a container disk, which
//! Sheaf does not run; the description says what to do instead.

use serde_json::{Value, json};
use sheaf_resources::kinds::{namespace::HARVESTER_PUBLIC, virtual_machine::claim_templates};

const USER_DATA: &str = "#cloud-config
package_update: true
packages:
  - qemu-guest-agent
runcmd:
  - [systemctl, enable, --now, qemu-guest-agent.service]
";

/// One template and its only version.
struct Sort {
    name: &'static str,
    version: &'static str,
    description: &'static str,
    /// The size of a disc to boot from, if there is one.
    disc: Option<&'static str>,
    disk: &'static str,
    is_windows: bool,
}

const SORTS: [Sort; 4] = [
    Sort {
        name: "iso-image-base-template",
        version: "iso-image-base-version",
        description: "A machine that is installed from a disc: name the image of the disc, and its size.",
        disc: Some("10Gi"),
        disk: "10Gi",
        is_windows: false,
    },
    Sort {
        name: "raw-image-base-template",
        version: "raw-image-base-version",
        description: "A machine whose disk is a copy of a qcow2 or raw image: name the image.",
        disc: None,
        disk: "10Gi",
        is_windows: false,
    },
    Sort {
        name: "windows-raw-image-base-template",
        version: "windows-raw-image-base-version",
        description: "A Windows machine whose disk is a copy of a qcow2 or raw image that has the virtio drivers: name \
                      the image.",
        disc: None,
        disk: "32Gi",
        is_windows: true,
    },
    Sort {
        name: "windows-iso-image-base-template",
        version: "windows-iso-image-base-version",
        description: "A Windows machine that is installed from a disc: name the image of the disc, and its size. There \
                      is no disc with virtio drivers in it: add one as a second disc, or put the disk on the bus sata.",
        disc: Some("20Gi"),
        disk: "32Gi",
        is_windows: true,
    },
];

/// Each template, and the version that is made with it.
pub(super) fn all() -> Vec<(Value, Value)> {
    SORTS.iter().map(|sort| (template(sort), version(sort))).collect()
}

fn template(sort: &Sort) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplate",
        "metadata": {"name": sort.name, "namespace": HARVESTER_PUBLIC},
        "spec": {"description": sort.description},
    })
}

fn version(sort: &Sort) -> Value {
    let mut claims = Vec::new();
    let (mut disks, mut volumes) = (Vec::new(), Vec::new());
    if let Some(size) = sort.disc {
        claims.push(claim("pvc-cdrom-disk", size, true));
        // A new disk is empty, and the firmware goes on to the disc; an installed one is booted from.
        disks.push(json!({"name": "cdrom-disk", "bootOrder": 2, "cdrom": {"bus": "sata", "readonly": true}}));
        volumes.push(json!({"name": "cdrom-disk", "persistentVolumeClaim": {"claimName": "pvc-cdrom-disk"}}));
    }
    claims.push(claim("pvc-rootdisk", sort.disk, sort.disc.is_none()));
    disks.push(json!({"name": "rootdisk", "bootOrder": 1, "disk": {"bus": "virtio"}}));
    volumes.push(json!({"name": "rootdisk", "persistentVolumeClaim": {"claimName": "pvc-rootdisk"}}));
    let mut annotations = json!({claim_templates::ANNOTATION: Value::Array(claims).to_string()});
    let mut labels = json!({});
    let mut devices = json!({
        "interfaces": [{"name": "default", "masquerade": {}, "model": "virtio"}],
    });
    let memory = match sort.is_windows {
        true => {
            labels = json!({"harvesterhci.io/os": "windows"});
            annotations["harvesterhci.io/reservedMemory"] = json!("256Mi");
            devices["inputs"] = json!([{"name": "tablet", "bus": "usb", "type": "tablet"}]);
            devices["interfaces"][0]["model"] = json!(if sort.disc.is_some() { "e1000" } else { "virtio" });
            "4Gi"
        }
        false => {
            disks.push(json!({"name": "cloudinitdisk", "disk": {"bus": "virtio"}}));
            volumes.push(json!({"name": "cloudinitdisk", "cloudInitNoCloud": {"userData": USER_DATA}}));
            "2Gi"
        }
    };
    devices["disks"] = Value::Array(disks);
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
        "metadata": {"name": sort.version, "namespace": HARVESTER_PUBLIC},
        "spec": {
            "templateId": format!("{HARVESTER_PUBLIC}/{}", sort.name),
            "description": sort.description,
            "vm": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {
                    "evictionStrategy": "LiveMigrateIfPossible",
                    "domain": {
                        "cpu": {"cores": 1, "sockets": 1, "threads": 1},
                        "devices": devices,
                        "features": {"acpi": {"enabled": true}},
                        "resources": {"limits": {"cpu": "1", "memory": memory}},
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": volumes,
                }}},
            },
        },
    })
}

fn claim(name: &str, size: &str, is_copy: bool) -> Value {
    let mut claim = json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": size}}},
    });
    if is_copy {
        claim["metadata"]["annotations"] = json!({"harvesterhci.io/imageId": ""});
    }
    claim
}
