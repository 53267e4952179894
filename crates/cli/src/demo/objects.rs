//! What the demo makes: a key pair and a machine. Pure.

use serde_json::{Value, json};

/// Who logs in: an account of our own, so that it is there whatever the image calls its own.
pub const USER: &str = "demo";

const GIB: i64 = 1 << 30;
/// Room for a guest to do something in.
const LEAST_DISK_GIB: i64 = 4;

/// What the machine is made of.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub namespace: &'a str,
    /// Of the machine, its image and its key alike.
    pub name: &'a str,
    pub public_key: &'a str,
    pub storage_class: &'a str,
    /// Bytes of the disk inside the image.
    pub image_size: i64,
}

pub fn key_pair(wanted: Wanted<'_>) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair",
        "metadata": {"name": wanted.name, "namespace": wanted.namespace},
        "spec": {"publicKey": wanted.public_key},
    })
}

pub fn machine(wanted: Wanted<'_>) -> Value {
    let Wanted { namespace, name, storage_class, image_size, .. } = wanted;
    let disk = format!("{name}-disk");
    let size_gib = (image_size.saturating_add(GIB - 1) / GIB).max(LEAST_DISK_GIB);
    let claims = json!([{
        "metadata": {"name": disk, "annotations": {"harvesterhci.io/imageId": format!("{namespace}/{name}")}},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": storage_class,
            "resources": {"requests": {"storage": format!("{size_gib}Gi")}},
        },
    }]);
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {
            "name": name, "namespace": namespace,
            "annotations": {
                "harvesterhci.io/volumeClaimTemplates": claims.to_string(),
                "harvesterhci.io/sshNames": json!([format!("{namespace}/{name}")]).to_string(),
            },
        },
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {"spec": {
                "hostname": name,
                "domain": {
                    "cpu": {"cores": 1},
                    "memory": {"guest": "512Mi"},
                    "devices": {
                        "disks": [
                            {"name": "disk", "disk": {"bus": "virtio"}, "bootOrder": 1},
                            {"name": "cloud-init", "disk": {"bus": "virtio"}},
                        ],
                        "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "disk", "persistentVolumeClaim": {"claimName": disk}},
                    {"name": "cloud-init", "cloudInitNoCloud": {"userData": user_data(wanted)}},
                ],
            }},
        },
    })
}

/// A user with a key and without a password. On the serial console, which only those reach who may open it through the
/// API, they are logged in at once: there is no password that they could type.
fn user_data(wanted: Wanted<'_>) -> String {
    let public_key = wanted.public_key;
    format!(
        "#cloud-config
users:
  - name: {USER}
    gecos: {USER}
    shell: /bin/bash
    sudo: ALL=(ALL) NOPASSWD:ALL
    lock_passwd: true
    ssh_authorized_keys:
      - {public_key}
ssh_pwauth: false
write_files:
  - path: /etc/systemd/system/serial-getty@ttyS0.service.d/autologin.conf
    content: |
      [Service]
      ExecStart=
      ExecStart=-/sbin/agetty --autologin {USER} --keep-baud 115200,57600,38400,9600 - $TERM
runcmd:
  - systemctl daemon-reload
  - systemctl restart serial-getty@ttyS0.service
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted<'static> = Wanted {
        namespace: "default",
        name: "demo",
        public_key: "ssh-ed25519 AAAA demo",
        storage_class: "longhorn-demo",
        image_size: 2 * GIB,
    };

    #[test]
    fn the_disk_is_never_smaller_than_what_it_is_a_copy_of() {
        let asked = |image_size| {
            let machine = machine(Wanted { image_size, ..WANTED });
            let claims = machine["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].clone();
            let claims: Value = serde_json::from_str(claims.as_str().unwrap()).unwrap();
            claims[0]["spec"]["resources"]["requests"]["storage"].as_str().unwrap().to_owned()
        };
        assert_eq!(asked(2 * GIB), "4Gi");
        assert_eq!(asked(10 * GIB), "10Gi");
        assert_eq!(asked(10 * GIB + 1), "11Gi");
    }

    #[test]
    fn cloud_init_brings_the_key_and_no_password() {
        let machine = machine(WANTED);
        let volumes = &machine["spec"]["template"]["spec"]["volumes"];
        let text = volumes[1]["cloudInitNoCloud"]["userData"].as_str().unwrap();
        assert!(text.starts_with("#cloud-config\n"));
        let read: Value = serde_yaml_ng::from_str(text).unwrap();
        assert_eq!(read["users"][0]["ssh_authorized_keys"], json!(["ssh-ed25519 AAAA demo"]));
        assert_eq!((&read["users"][0]["lock_passwd"], &read["ssh_pwauth"]), (&json!(true), &json!(false)));
        assert!(!text.contains("passwd:\n") && read["chpasswd"].is_null());
        // What KubeVirt takes inline, in base64 and all.
        assert!(text.len() < 2048, "{}", text.len());
    }
}
