//! A machine before it is made: what was typed, as objects. Pure.
//!
//! The shape is the one that the console's form makes, too: claims in Harvester's annotation, so that a machine's disks are
//! made with it; keys in the user data and named beside it; user data that does not fit into a machine in a Secret.

use serde_json::{Value, json};

use super::standing::{CLAIM_TEMPLATES, DESCRIPTION, IMAGE_ID};
use crate::asking::facts::text;

const SSH_NAMES: &str = "harvesterhci.io/sshNames";
const ROOT: &str = "disk-0";
const SEED: &str = "cloudinitdisk";
const GIB: i64 = 1 << 30;
const LEAST_DISK_GIB: i64 = 10;
/// More than that does not fit into a machine.
const INLINE_BYTES: usize = 2048;
const HEAD: &str = "#cloud-config";
/// What is one machine's own, and nobody else's.
const OWN: [&str; 2] = ["harvesterhci.io/mac-address", "harvesterhci.io/vmRunStrategy"];

/// What a machine boots from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// `NAMESPACE/NAME`.
    pub id: String,
    pub storage_class: String,
    pub virtual_size: i64,
    pub is_disc: bool,
}

/// A public key, and what it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub id: String,
    pub public_key: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Firmware {
    #[default]
    Bios,
    Uefi,
    SecureBoot,
}

/// What was typed, as far as it was: what is none is the template's, or what is usual.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub cpus: Option<u32>,
    /// As a quantity.
    pub memory: Option<String>,
    pub image: Option<Image>,
    pub disk_gib: Option<i64>,
    pub data_disks_gib: Vec<i64>,
    /// Claims that are there already.
    pub volumes: Vec<String>,
    /// `NAMESPACE/NAME`; empty for the default network alone.
    pub networks: Vec<String>,
    pub keys: Vec<Key>,
    pub user_data: Option<String>,
    pub network_data: Option<String>,
    pub firmware: Option<Firmware>,
    pub description: Option<String>,
    pub labels: Vec<(String, String)>,
    pub run_strategy: Option<String>,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub vm: Value,
    pub secret: Option<Value>,
}

/// One that nothing is known of yet.
pub fn fresh(namespace: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "", "namespace": namespace, "annotations": {}},
        "spec": {
            "runStrategy": "RerunOnFailure",
            "template": {"metadata": {"annotations": {}}, "spec": {
                "evictionStrategy": "LiveMigrateIfPossible",
                "domain": {
                    "cpu": {"cores": 2, "sockets": 1, "threads": 1},
                    "devices": {
                        "disks": [],
                        "interfaces": [{"name": "default", "model": "virtio", "masquerade": {}}],
                        "inputs": [{"name": "tablet", "type": "tablet", "bus": "usb"}],
                    },
                    "resources": {"limits": {"cpu": "2", "memory": "2Gi"}},
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [],
            }},
        },
    })
}

/// One of a version of a template.
pub fn of_template(version: &Value, namespace: &str) -> Value {
    let source = &version["spec"]["vm"];
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "", "namespace": namespace, "annotations": source["metadata"]["annotations"]},
        "spec": source["spec"],
    });
    if source["metadata"]["labels"].is_object() {
        vm["metadata"]["labels"] = source["metadata"]["labels"].clone();
    }
    match vm["metadata"]["annotations"].as_object_mut() {
        Some(annotations) => annotations.retain(|name, _| !OWN.contains(&name.as_str())),
        None => vm["metadata"]["annotations"] = json!({}),
    }
    let spec = &mut vm["spec"]["template"]["spec"];
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("hostname");
    }
    for interface in spec["domain"]["devices"]["interfaces"].as_array_mut().into_iter().flatten() {
        if let Some(interface) = interface.as_object_mut() {
            interface.remove("macAddress");
        }
    }
    vm
}

/// Whether the template leaves it to whoever makes a machine what is on its first disk.
pub fn asks_for_image(draft: &Value) -> bool {
    claims_of(draft).first().is_some_and(|claim| claim["metadata"]["annotations"][IMAGE_ID] == "")
}

/// Writes what was typed into a draft. What the draft says and nobody typed stays.
pub fn dress(draft: &mut Value, wanted: &Wanted) -> Result<(), String> {
    if let Some(cpus) = wanted.cpus {
        let domain = &mut draft["spec"]["template"]["spec"]["domain"];
        for (part, count) in [("cores", cpus), ("sockets", 1), ("threads", 1)] {
            domain["cpu"][part] = count.into();
        }
        domain["resources"]["limits"]["cpu"] = cpus.to_string().into();
    }
    if let Some(memory) = &wanted.memory {
        let domain = &mut draft["spec"]["template"]["spec"]["domain"];
        domain["resources"]["limits"]["memory"] = memory.as_str().into();
        if let Some(domain) = domain.as_object_mut() {
            domain.remove("memory");
        }
    }
    disks(draft, wanted)?;
    networks(draft, &wanted.networks);
    seed(draft, wanted)?;
    firmware(draft, wanted);
    if let Some(text) = &wanted.description {
        draft["metadata"]["annotations"][DESCRIPTION] = text.as_str().into();
    }
    for (name, value) in &wanted.labels {
        draft["metadata"]["labels"][name] = value.as_str().into();
    }
    if let Some(strategy) = &wanted.run_strategy {
        draft["spec"]["runStrategy"] = strategy.as_str().into();
        if let Some(spec) = draft["spec"].as_object_mut() {
            spec.remove("running");
        }
    }
    Ok(())
}

fn disks(draft: &mut Value, wanted: &Wanted) -> Result<(), String> {
    let mut claims = claims_of(draft);
    let least = wanted.image.as_ref().map_or(1, |image| ((image.virtual_size + GIB - 1) / GIB).max(1));
    if let Some(size) = wanted.disk_gib
        && wanted.image.as_ref().is_some_and(|image| !image.is_disc)
        && size < least
    {
        return Err(format!("--disk {size}Gi is less than the image holds, which is {least}Gi"));
    }
    let usual = wanted.disk_gib.unwrap_or(LEAST_DISK_GIB);
    if claims.is_empty() && (wanted.image.is_some() || wanted.disk_gib.is_some()) {
        let is_disc = wanted.image.as_ref().is_some_and(|image| image.is_disc);
        if is_disc {
            // What is installed needs somewhere to be, and comes first once it is there.
            add_disk(draft, &mut claims, ROOT, "disk", "virtio", usual, Some(1));
            add_disk(draft, &mut claims, "cdrom-0", "cdrom", "sata", least, Some(2));
        } else {
            add_disk(draft, &mut claims, ROOT, "disk", "virtio", usual.max(least), Some(1));
        }
        if let Some(image) = &wanted.image {
            let at = usize::from(is_disc);
            of_image(&mut claims[at], image);
        }
    } else if let Some(first) = claims.first_mut() {
        if let Some(image) = &wanted.image {
            of_image(first, image);
        }
        let had = sheaf_resources::quantity::value(text(first, "/spec/resources/requests/storage"));
        let had_gib = had.map_or(0, |bytes| (bytes + GIB - 1) / GIB);
        let size = wanted.disk_gib.unwrap_or_else(|| had_gib.max(least));
        first["spec"]["resources"]["requests"]["storage"] = format!("{size}Gi").into();
    }
    for (number, size) in wanted.data_disks_gib.iter().enumerate() {
        let name = free_disk_name(draft, number + 1);
        add_disk(draft, &mut claims, &name, "disk", "virtio", *size, None);
    }
    put_claims(draft, &claims);
    for claim in &wanted.volumes {
        let name = free_disk_name(draft, 1);
        push(draft, "domain/devices/disks", json!({"name": name, "disk": {"bus": "virtio"}}));
        push(draft, "volumes", json!({"name": name, "persistentVolumeClaim": {"claimName": claim}}));
    }
    Ok(())
}

fn add_disk(
    draft: &mut Value,
    claims: &mut Vec<Value>,
    name: &str,
    kind: &str,
    bus: &str,
    gib: i64,
    boot_order: Option<u32>,
) {
    claims.push(json!({
        "metadata": {"name": format!("-{name}")},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block",
            "resources": {"requests": {"storage": format!("{gib}Gi")}},
        },
    }));
    let mut disk = json!({"name": name, kind: {"bus": bus}});
    if let Some(order) = boot_order {
        disk["bootOrder"] = order.into();
    }
    push(draft, "domain/devices/disks", disk);
    push(draft, "volumes", json!({"name": name, "persistentVolumeClaim": {"claimName": format!("-{name}")}}));
}

fn of_image(claim: &mut Value, image: &Image) {
    claim["metadata"]["annotations"][IMAGE_ID] = image.id.as_str().into();
    claim["spec"]["storageClassName"] = image.storage_class.as_str().into();
}

fn free_disk_name(draft: &Value, from: usize) -> String {
    let taken = |name: &String| {
        let volumes = &draft["spec"]["template"]["spec"]["volumes"];
        volumes.as_array().into_iter().flatten().any(|volume| volume["name"] == name.as_str())
    };
    let mut number = from;
    loop {
        let name = format!("disk-{number}");
        if !taken(&name) {
            return name;
        }
        number += 1;
    }
}

fn networks(draft: &mut Value, wanted: &[String]) {
    if wanted.is_empty() {
        return;
    }
    let spec = &mut draft["spec"]["template"]["spec"];
    let mut interfaces = Vec::new();
    let mut networks = Vec::new();
    for (number, network) in wanted.iter().enumerate() {
        let name = if number == 0 { "default".to_owned() } else { format!("nic-{number}") };
        if network == "default" {
            interfaces.push(json!({"name": name, "model": "virtio", "masquerade": {}}));
            networks.push(json!({"name": name, "pod": {}}));
        } else {
            interfaces.push(json!({"name": name, "model": "virtio", "bridge": {}}));
            networks.push(json!({"name": name, "multus": {"networkName": network}}));
        }
    }
    spec["domain"]["devices"]["interfaces"] = interfaces.into();
    spec["networks"] = networks.into();
}

fn seed(draft: &mut Value, wanted: &Wanted) -> Result<(), String> {
    let nothing = wanted.user_data.is_none() && wanted.network_data.is_none() && wanted.keys.is_empty();
    if nothing {
        return Ok(());
    }
    let volumes = &draft["spec"]["template"]["spec"]["volumes"];
    let at = volumes.as_array().into_iter().flatten().position(|one| one["cloudInitNoCloud"].is_object());
    let at = match at {
        Some(at) => at,
        None => {
            push(draft, "domain/devices/disks", json!({"name": SEED, "disk": {"bus": "virtio"}}));
            push(draft, "volumes", json!({"name": SEED, "cloudInitNoCloud": {}}));
            draft["spec"]["template"]["spec"]["volumes"].as_array().map_or(0, |all| all.len() - 1)
        }
    };
    let cloud_init = &mut draft["spec"]["template"]["spec"]["volumes"][at]["cloudInitNoCloud"];
    if !wanted.keys.is_empty() && wanted.user_data.is_none() && cloud_init["secretRef"].is_object() {
        return Err(
            "keys cannot be added to user data that is in a Secret of the template: give --user-data, too"
                .into(),
        );
    }
    let written = wanted.user_data.clone().unwrap_or_else(|| text(cloud_init, "/userData").to_owned());
    let user_data = with_keys(&written, &wanted.keys)?;
    let fields = [
        ("userData", "secretRef", (!user_data.is_empty()).then_some(user_data)),
        ("networkData", "networkDataSecretRef", wanted.network_data.clone()),
    ];
    for (field, secret, value) in fields {
        let Some(value) = value else { continue };
        cloud_init[field] = value.into();
        // A seed has its text from one place.
        if let Some(cloud_init) = cloud_init.as_object_mut() {
            cloud_init.remove(secret);
        }
    }
    if !wanted.keys.is_empty() {
        let names: Vec<&str> = wanted.keys.iter().map(|key| key.id.as_str()).collect();
        draft["spec"]["template"]["metadata"]["annotations"][SSH_NAMES] = json!(names).to_string().into();
    }
    Ok(())
}

/// The user data with these keys among those that may log in.
fn with_keys(user_data: &str, keys: &[Key]) -> Result<String, String> {
    if keys.is_empty() {
        return Ok(user_data.to_owned());
    }
    let is_empty = user_data.trim().is_empty();
    if !is_empty && !user_data.starts_with(HEAD) {
        return Err(format!(
            "keys cannot be written into user data that does not begin with {HEAD}: put them there yourself"
        ));
    }
    let rest = user_data.strip_prefix(HEAD).unwrap_or_default();
    let mut tree: Value = match rest.trim().is_empty() {
        true => json!({}),
        false => serde_yaml_ng::from_str(rest).map_err(|why| format!("the user data is not YAML: {why}"))?,
    };
    if !tree.is_object() {
        return Err(format!("the user data is no map below {HEAD}"));
    }
    let mut all: Vec<Value> = tree["ssh_authorized_keys"].as_array().cloned().unwrap_or_default();
    for key in keys {
        let line = key.public_key.trim();
        if !all.iter().any(|known| known.as_str().map(str::trim) == Some(line)) {
            all.push(line.into());
        }
    }
    tree["ssh_authorized_keys"] = all.into();
    let written = serde_yaml_ng::to_string(&tree).map_err(|why| why.to_string())?;
    Ok(format!("{HEAD}\n{written}"))
}

fn firmware(draft: &mut Value, wanted: &Wanted) {
    let domain = &mut draft["spec"]["template"]["spec"]["domain"];
    match wanted.firmware {
        None => {}
        Some(Firmware::Bios) => {
            if let Some(firmware) = domain["firmware"].as_object_mut() {
                firmware.remove("bootloader");
            }
        }
        Some(Firmware::Uefi) => domain["firmware"]["bootloader"] = json!({"efi": {"secureBoot": false}}),
        Some(Firmware::SecureBoot) => {
            domain["firmware"]["bootloader"] = json!({"efi": {"secureBoot": true}});
            domain["features"]["smm"] = json!({"enabled": true});
        }
    }
}

/// The machine of this name. `mark` makes the name of what is made beside it one that nothing else has.
pub fn named(draft: &Value, name: &str, mark: &str) -> Made {
    let mut vm = draft.clone();
    let namespace = text(draft, "/metadata/namespace").to_owned();
    vm["metadata"]["name"] = name.into();
    let mut claims = claims_of(&vm);
    let spec = &mut vm["spec"]["template"]["spec"];
    if spec["hostname"].is_null() {
        spec["hostname"] = name.into();
    }
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        let disk = text(volume, "/name").to_owned();
        let used = text(volume, "/persistentVolumeClaim/claimName").to_owned();
        let Some(claim) = claims.iter_mut().find(|claim| text(claim, "/metadata/name") == used) else {
            continue;
        };
        let own = format!("{name}-{disk}");
        claim["metadata"]["name"] = own.as_str().into();
        volume["persistentVolumeClaim"]["claimName"] = own.into();
    }
    put_claims(&mut vm, &claims);
    let secret = large_seed(&mut vm, &namespace, &format!("{name}-cloud-init-{mark}"));
    Made { vm, secret }
}

fn large_seed(vm: &mut Value, namespace: &str, name: &str) -> Option<Value> {
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array_mut()?;
    let cloud_init = volumes.iter_mut().find(|one| one["cloudInitNoCloud"].is_object())?["cloudInitNoCloud"]
        .as_object_mut()?;
    let is_large = |field: &str| {
        cloud_init.get(field).and_then(Value::as_str).is_some_and(|text| text.len() > INLINE_BYTES)
    };
    if !is_large("userData") && !is_large("networkData") {
        return None;
    }
    let mut data = json!({});
    for (field, key, reference) in
        [("userData", "userdata", "secretRef"), ("networkData", "networkdata", "networkDataSecretRef")]
    {
        if let Some(text) = cloud_init.remove(field) {
            data[key] = text;
            cloud_init.insert(reference.to_owned(), json!({"name": name}));
        }
    }
    Some(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": {"harvesterhci.io/cloud-init-template": "harvester"}},
        "stringData": data,
    }))
}

fn claims_of(draft: &Value) -> Vec<Value> {
    let written = draft["metadata"]["annotations"][CLAIM_TEMPLATES].as_str().unwrap_or("[]");
    serde_json::from_str::<Vec<Value>>(written).unwrap_or_default()
}

fn put_claims(draft: &mut Value, claims: &[Value]) {
    let annotations = &mut draft["metadata"]["annotations"];
    match claims.is_empty() {
        true => {
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.remove(CLAIM_TEMPLATES);
            }
        }
        false => annotations[CLAIM_TEMPLATES] = json!(claims).to_string().into(),
    }
}

fn push(draft: &mut Value, list: &str, one: Value) {
    let mut place = &mut draft["spec"]["template"]["spec"];
    for part in list.split('/') {
        place = &mut place[part];
    }
    match place.as_array_mut() {
        Some(list) => list.push(one),
        None => *place = json!([one]),
    }
}

#[cfg(test)]
#[path = "draft_tests.rs"]
mod tests;
