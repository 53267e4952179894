//! Each refusal by its field and its words.

use serde_json::{Value, json};

use super::*;

fn machine() -> Value {
    json!({
        "domain": {
            "cpu": {"cores": 2, "sockets": 1, "threads": 1},
            "memory": {"guest": "1Gi"},
            "machine": {"type": "q35"},
            "resources": {"limits": {"cpu": "2", "memory": "1124Mi"}, "requests": {"cpu": "200m", "memory": "700Mi"}},
            "devices": {
                "disks": [
                    {"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1},
                    {"name": "seed", "disk": {"bus": "virtio"}},
                ],
                "interfaces": [
                    {"name": "default", "masquerade": {}, "model": "virtio", "macAddress": "02:00:00:00:00:01"},
                    {"name": "nic-1", "bridge": {}},
                ],
                "inputs": [{"bus": "usb", "name": "tablet", "type": "tablet"}],
            },
        },
        "networks": [
            {"name": "default", "pod": {}},
            {"name": "nic-1", "multus": {"networkName": "default/vlan1"}},
        ],
        "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "vm-disk-0-abcde"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
        ],
        "evictionStrategy": "LiveMigrateIfPossible",
        "terminationGracePeriodSeconds": 120,
        "architecture": "amd64",
    })
}

/// What is said when `value` stands at `pointer`.
fn said(pointer: &str, value: Value) -> Vec<String> {
    let mut machine = machine();
    place(&mut machine, pointer, value);
    let spec = VirtualMachineInstanceSpec::deserialize_from(&machine).unwrap();
    validate_spec(&spec, &FieldPath::new("spec")).iter().map(ToString::to_string).collect()
}

fn place(root: &mut Value, pointer: &str, value: Value) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match root.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[name.parse::<usize>().unwrap()] = value,
        object => object[name] = value,
    }
}

fn refused(pointer: &str, value: Value, words: &str) {
    let said = said(pointer, value);
    assert!(said.iter().any(|line| line.contains(words)), "{words}: {said:?}");
}

#[test]
fn an_ordinary_machine_passes() {
    assert_eq!(said("/hostname", json!("web-1")), Vec::<String>::new());
}

#[test]
fn a_disk_has_its_volume_and_a_volume_its_disk() {
    refused(
        "/domain/devices/disks/1/name",
        json!("other"),
        "spec.domain.devices.disks[1].name: Invalid value: \"other\": spec.domain.devices.disks[1].name 'other' not found.",
    );
    refused("/volumes/1/name", json!("other"), "spec.volumes[1].name 'other' not found.");
}

#[test]
fn names_are_given_once() {
    refused("/volumes/1/name", json!("root"), "must not have the same Name.");
    refused("/domain/devices/disks/1/name", json!("root"), "must not have the same Name.");
    refused("/networks/1/name", json!("default"), "every network must have a unique name");
    refused("/domain/devices/interfaces/1/name", json!("default"), "Only one interface can be connected");
}

#[test]
fn a_volume_has_exactly_one_source() {
    refused("/volumes/0", json!({"name": "root"}), "must have exactly one source type set");
    refused(
        "/volumes/0/cloudInitNoCloud",
        json!({"userData": "x"}),
        "spec.volumes[0]: Invalid value: \"root\": must have exactly one source type set",
    );
    refused("/volumes/0/persistentVolumeClaim/claimName", json!(""), "claimName: Required value");
    refused("/volumes/0/persistentVolumeClaim/claimName", json!("../etc"), "claimName: Invalid value");
}

#[test]
fn cloud_init_data_comes_from_one_place_and_large_data_from_a_secret() {
    let seed = "/volumes/1/cloudInitNoCloud";
    refused(seed, json!({}), "must have at least one userdatasource or one networkdatasource set.");
    refused(
        seed,
        json!({"userData": "a", "secretRef": {"name": "s"}}),
        "must have only one userdatasource set.",
    );
    refused(
        seed,
        json!({"networkData": "a", "networkDataBase64": "YQ=="}),
        "must have only one networkdata source set.",
    );
    refused(
        seed,
        json!({"userDataBase64": "%"}),
        "userDataBase64: Invalid value: \"<bytes>\": is not a valid base64",
    );
    refused(
        seed,
        json!({"userData": "a".repeat(2049)}),
        "userdata exceeds 2048 byte limit. Should use UserDataSecretRef for larger data.",
    );
    refused(seed, json!({"secretRef": {}}), "secretRef.name: Required value");
    assert!(said(seed, json!({"userData": "a".repeat(2048)})).is_empty());
    assert!(
        said(seed, json!({"secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "s"}})).is_empty()
    );
}

#[test]
fn an_interface_has_its_network_and_a_network_its_interface() {
    refused("/domain/devices/interfaces/1/name", json!("other"), "interfaces[1].name 'other' not found.");
    refused("/networks/1/name", json!("other"), "spec.networks[1].name 'other' not found.");
    refused("/networks/1", json!({"name": "nic-1"}), "should have a network type");
    refused("/networks/1/multus", json!({}), "CNI delegating plugin must have a networkName");
    refused("/networks/1/multus/networkName", json!("a/b/c"), "invalid network name a/b/c");
}

#[test]
fn a_machine_is_on_the_default_network_once_at_most() {
    refused(
        "/networks/1",
        json!({"name": "nic-1", "pod": {}}),
        "more than one interface is connected to a pod network in spec.domain.devices.interfaces",
    );
    refused(
        "/domain/devices/interfaces/1",
        json!({"name": "nic-1", "masquerade": {}}),
        "Masquerade interface only implemented with pod network",
    );
}

#[test]
fn hardware_addresses_are_addresses_and_used_once() {
    let mac = "/domain/devices/interfaces/1/macAddress";
    refused(mac, json!("nonsense"), "has malformed MAC address (nonsense).");
    refused(mac, json!("01:00:5e:00:00:01"), "is the address of a group");
    refused(mac, json!("02-00-00-00-00-01"), "interfaces[1].macAddress: Duplicate value");
    refused("/domain/devices/interfaces/1/model", json!("quick"), "uses model quick that is not supported.");
    refused("/domain/devices/interfaces/1/name", json!("a b"), "can only contain alphabetical characters");
}

#[test]
fn no_two_devices_boot_at_the_same_place() {
    refused(
        "/domain/devices/interfaces/1/bootOrder",
        json!(1),
        "Boot order for spec.domain.devices.interfaces[1].bootOrder already set for a different device.",
    );
    refused("/domain/devices/disks/1/bootOrder", json!(0), "must have a boot order > 0, if supplied");
}

#[test]
fn memory_is_stated_and_fits_its_limit() {
    refused("/domain/memory/guest", json!("2Gi"), "must be equal to or less than the memory limit");
    refused("/domain/memory/guest", json!("9Mi"), "under the minimum requirement (10 Mi)");
    refused("/domain/memory/guest", json!("much"), "is not a quantity");
    let nothing = json!({"memory": null, "devices": {}});
    let spec = VirtualMachineInstanceSpec::deserialize_from(&json!({"domain": nothing})).unwrap();
    let errors = validate_spec(&spec, &FieldPath::new("spec"));
    assert_eq!(errors[0].detail, "either memory.guest or resources.limits.memory must be set");
}

#[test]
fn what_is_asked_for_never_exceeds_the_limit() {
    refused(
        "/domain/resources/requests/cpu",
        json!("3"),
        "spec.domain.resources.requests.cpu: Invalid value: \"3\": is greater than spec.domain.resources.limits.cpu '2'",
    );
    refused("/domain/resources/limits/memory", json!("-1"), "must be greater than or equal to 0.");
}

#[test]
fn the_processor_is_one_that_can_be_built() {
    assert!(said("/domain/cpu/maxSockets", json!(0)).is_empty());
    refused(
        "/domain/cpu",
        json!({"sockets": 4, "maxSockets": 2}),
        "greater than the maximum sockets allowed",
    );
    refused("/domain/cpu/cores", json!(300), "must be at most 288 processors in all");
    refused("/domain/cpu/model", json!("host,hack=on"), "is not a CPU model");
    refused("/domain/machine/type", json!("isapc"), "is not supported: isapc");
    refused("/domain/machine/type", json!("q35,accel=x"), "is not supported");
}

#[test]
fn firmware_is_one_of_two_and_secure_boot_needs_smm() {
    let firmware = "/domain/firmware";
    refused(firmware, json!({"uuid": "x"}), "spec.domain.firmware.uuid: Invalid value: \"x\": is not a UUID");
    refused(firmware, json!({"serial": "a,b"}), "without spaces and commas");
    refused(
        firmware,
        json!({"bootloader": {"bios": {}, "efi": {"secureBoot": false}}}),
        "mutually exclusive",
    );
    refused(firmware, json!({"bootloader": {"efi": {}}}), "SecureBoot requires SMM");
    assert!(said(firmware, json!({"bootloader": {"efi": {"secureBoot": false}}})).is_empty());
}

#[test]
fn disks_are_on_buses_there_are() {
    refused(
        "/domain/devices/disks/0/disk/bus",
        json!("ide"),
        "supported values: \"virtio\", \"scsi\", \"sata\"",
    );
    refused(
        "/domain/devices/disks/0",
        json!({"name": "root", "cdrom": {"bus": "virtio"}}),
        "supported values: \"sata\", \"scsi\"",
    );
    refused(
        "/domain/devices/disks/0",
        json!({"name": "root", "cdrom": {"readonly": false}}),
        "can only be read",
    );
    refused("/domain/devices/disks/0/cdrom", json!({}), "either disk or cdrom");
    refused("/domain/devices/disks/0/cache", json!("unsafe"), "cache: Unsupported value");
    refused("/domain/devices/disks/0/serial", json!("a b"), "[A-Za-z0-9_.+-]");
}

#[test]
fn words_are_words_the_original_knows() {
    refused("/evictionStrategy", json!("Sometimes"), "evictionStrategy: Unsupported value");
    refused("/startStrategy", json!("Fast"), "supported values: \"Paused\"");
    refused("/architecture", json!("vax"), "architecture: Unsupported value");
    refused("/hostname", json!("Not A Name"), "DNS_LABEL");
    refused("/terminationGracePeriodSeconds", json!(-1), "can't be negative");
    refused("/domain/devices/inputs/0/type", json!("mouse"), "only tablet type");
    refused("/domain/devices/inputs/0/bus", json!("ps2"), "only virtio or usb bus");
}

#[test]
fn a_credential_has_one_sort_one_source_and_one_way_in() {
    let at = "/accessCredentials";
    let secret = json!({"secret": {"secretName": "keys"}});
    refused(at, json!([{}]), "must have exactly one access credential type set");
    refused(
        at,
        json!([{"sshPublicKey": {"source": secret, "propagationMethod": {}}}]),
        "must have exactly one propagationMethod set",
    );
    refused(
        at,
        json!([{"sshPublicKey": {"source": secret, "propagationMethod": {"configDrive": {}}}}]),
        "requires a configDrive volume to exist",
    );
    refused(
        at,
        json!([{"sshPublicKey": {"source": secret, "propagationMethod": {"qemuGuestAgent": {"users": []}}}}]),
        "requires at least one user",
    );
    refused(
        at,
        json!([{"userPassword": {"source": {}, "propagationMethod": {"qemuGuestAgent": {}}}}]),
        "must have exactly one source set",
    );
    let fine = json!([
        {"sshPublicKey": {"source": secret, "propagationMethod": {"noCloud": {}}}},
        {"userPassword": {"source": secret, "propagationMethod": {"qemuGuestAgent": {}}}},
    ]);
    assert!(said(at, fine).is_empty());
}
