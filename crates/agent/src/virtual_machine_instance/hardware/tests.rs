//! What each spec becomes.

use serde_json::{Value, json};
use sheaf_hypervisor::{
    capabilities::Version,
    machine::{Aio, Format, LayerStorage},
};

use sheaf_resources::kinds::virtual_machine_instance::devices::INTERFACE_MODELS;

use super::*;

fn host() -> Abilities {
    Abilities {
        capabilities: Capabilities {
            version: Version { major: 7, minor: 2, micro: 0 },
            machine_types: vec!["pc-q35-7.1".into(), "pc-q35-7.2".into()],
            default_machine_type: "pc-q35-7.2".into(),
            cpu_models: vec!["Nehalem".into()],
            io_uring: false,
            native_aio: true,
        },
        kvm: false,
        taps: true,
        direct_io: true,
    }
}

fn instance(domain: Value, volumes: Value) -> VirtualMachineInstance {
    let mut domain = domain;
    for (field, value) in [("memory", json!({"guest": "1Gi"})), ("devices", json!({}))] {
        if domain[field].is_null() {
            domain[field] = value;
        }
    }
    serde_json::from_value(json!({
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {"domain": domain, "volumes": volumes},
    }))
    .unwrap()
}

fn build_on(instance: &VirtualMachineInstance, host: &Abilities) -> Result<Machine, Unbuildable> {
    let layer =
        |read_only| Layer { number: None, format: Format::Raw, storage: LayerStorage::File, read_only };
    let names = instance.spec.volumes.iter();
    let files = names.map(|volume| {
        let layers = vec![layer(volume.cloud_init().is_some())];
        (volume.name.clone(), Files { layers, source: None })
    });
    let id = "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f".parse().unwrap();
    let machine = machine_of(instance, id, &files.collect(), false, host)?;
    Ok(machine)
}

fn build(instance: &VirtualMachineInstance) -> Machine {
    build_on(instance, &host()).unwrap()
}

#[test]
fn what_is_left_open_is_settled() {
    let machine = build(&instance(json!({}), json!([])));
    assert_eq!(machine.machine_type, "pc-q35-7.2");
    assert_eq!((machine.cpu.model.as_str(), machine.cpu.count()), ("max", 1));
    assert_eq!((machine.memory_mib, machine.firmware), (1024, Firmware::Bios));
    assert!(
        machine.balloon && machine.serial_console && machine.graphics && machine.guest_agent && machine.acpi
    );
    assert!(!machine.rng && !machine.tablet);
    assert_eq!(machine.uuid, "0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f");
}

#[test]
fn the_host_model_is_the_hosts_where_there_is_kvm_and_all_that_can_be_emulated_elsewhere() {
    for model in ["", "host-model", "host-passthrough"] {
        let asked = instance(json!({"cpu": {"model": model}}), json!([]));
        assert_eq!(build(&asked).cpu.model, "max");
        let with_kvm = build_on(&asked, &Abilities { kvm: true, ..host() }).unwrap();
        assert_eq!((with_kvm.cpu.model.as_str(), with_kvm.accelerator), ("host", Accelerator::Kvm));
    }
    assert_eq!(build(&instance(json!({"cpu": {"model": "Nehalem"}}), json!([]))).cpu.model, "Nehalem");
}

#[test]
fn what_this_nodes_qemu_does_not_have_is_said_by_name() {
    for (domain, said) in [
        (json!({"cpu": {"model": "Weitek"}}), "this node's QEMU 7.2.0 has no CPU model \"Weitek\""),
        (
            json!({"machine": {"type": "pc-q35-9.9"}}),
            "this node's QEMU 7.2.0 has no machine type \"pc-q35-9.9\"",
        ),
        (json!({"memory": {"guest": "1Ki"}}), "1Ki of guest memory is not an amount of memory"),
    ] {
        let why = build_on(&instance(domain, json!([])), &host()).unwrap_err();
        assert_eq!(why.to_string(), said);
    }
}

#[test]
fn processors_come_from_the_topology_else_from_the_limit() {
    let cpu = |domain: Value| build(&instance(domain, json!([]))).cpu;
    let said = cpu(json!({"cpu": {"cores": 2, "sockets": 2, "threads": 2, "maxSockets": 4}}));
    assert_eq!((said.count(), said.max_count()), (8, 16));
    assert_eq!(cpu(json!({"resources": {"limits": {"cpu": "2500m"}}})).count(), 3);
    assert_eq!(cpu(json!({"cpu": {"cores": 1}, "resources": {"limits": {"cpu": "4"}}})).count(), 1);
}

#[test]
fn a_limit_below_the_processors_is_kept_and_processors_are_a_limit_by_themselves() {
    let limit = |domain: Value| build(&instance(domain, json!([]))).cpu.limit_milli;
    let of =
        |cores: u32, limit: &str| json!({"cpu": {"cores": cores}, "resources": {"limits": {"cpu": limit}}});
    assert_eq!(limit(of(4, "1500m")), Some(1500));
    assert_eq!(limit(of(2, "2")), None);
    assert_eq!(limit(of(2, "8")), None);
    assert_eq!(limit(json!({"resources": {"limits": {"cpu": "2500m"}}})), Some(2500));
    assert_eq!(limit(json!({"cpu": {"cores": 4}, "resources": {"requests": {"cpu": "1"}}})), None);
}

#[test]
fn a_disk_that_must_bypass_the_page_cache_is_refused_where_that_cannot_be() {
    let without = Abilities { direct_io: false, ..host() };
    let with = |cache: Value| {
        let disks = json!([{"name": "a", "disk": {"bus": "virtio"}, "cache": cache}]);
        let claim = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]);
        instance(json!({"devices": {"disks": disks}}), claim)
    };
    let why = build_on(&with(json!("none")), &without).unwrap_err();
    assert!(why.to_string().contains("disk a is to bypass the page cache (cache: none)"), "{why}");
    assert_eq!(build(&with(json!("none"))).disks[0].cache, Cache::None);
    // Who does not say gets the best there is.
    assert_eq!(build_on(&with(json!("")), &without).unwrap().disks[0].cache, Cache::WriteBack);
}

#[test]
fn a_tablet_is_on_the_bus_it_was_asked_for() {
    let tablets = |inputs: Value| {
        let machine = build(&instance(json!({"devices": {"inputs": inputs}}), json!([])));
        (machine.tablet, machine.virtio_tablet)
    };
    let on = |bus: &str| json!([{"name": "t", "type": "tablet", "bus": bus}]);
    assert_eq!((tablets(on("")), tablets(on("usb"))), ((true, false), (true, false)));
    assert_eq!((tablets(on("virtio")), tablets(json!([]))), ((false, true), (false, false)));
}

#[test]
fn every_model_that_is_admitted_can_be_built() {
    for model in INTERFACE_MODELS {
        let nic = json!([{"name": "n", "model": model, "macAddress": "02:00:00:00:00:01", "bridge": {}}]);
        build(&instance(json!({"devices": {"interfaces": nic}}), json!([])));
    }
}

#[test]
fn memory_is_the_guests_else_what_is_set_aside() {
    let memory = |domain: Value| build(&instance(domain, json!([]))).memory_mib;
    assert_eq!(memory(json!({"memory": {}, "resources": {"requests": {"memory": "64Mi"}}})), 64);
    assert_eq!(memory(json!({"memory": {"guest": "96Mi"}, "resources": {"limits": {"memory": "1Gi"}}})), 96);
}

#[test]
fn every_bus_becomes_what_it_is_called() {
    let claim =
        |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("claim-{name}")}});
    let machine = build(&instance(
        json!({"devices": {"disks": [
            {"name": "a", "disk": {"bus": "virtio"}},
            {"name": "b", "disk": {"bus": "scsi"}, "serial": "S1"},
            {"name": "c", "disk": {"bus": "sata"}, "cache": "writethrough"},
            {"name": "d", "cdrom": {"bus": "sata"}},
            {"name": "seed", "disk": {"bus": "virtio"}}]}}),
        json!([claim("a"), claim("b"), claim("c"), claim("d"),
            {"name": "seed", "cloudInitNoCloud": {"userData": "x"}}]),
    ));
    let seen: Vec<_> =
        machine.disks.iter().map(|disk| (disk.name.as_str(), disk.bus, disk.kind, disk.cache)).collect();
    assert_eq!(
        seen,
        [
            ("a", Bus::Virtio, DiskKind::Disk, Cache::None),
            ("b", Bus::Scsi, DiskKind::Disk, Cache::None),
            ("c", Bus::Sata, DiskKind::Disk, Cache::WriteThrough),
            ("d", Bus::Sata, DiskKind::Cdrom, Cache::None),
            ("seed", Bus::Virtio, DiskKind::Disk, Cache::WriteBack),
        ]
    );
    assert_eq!(machine.disks[1].device_id.as_deref(), Some("claim-b"));
    assert_eq!(machine.disks[1].serial.as_deref(), Some("S1"));
    assert_eq!(machine.disks[0].device_id, None);
    assert_eq!((machine.disks[0].aio, machine.disks[4].aio), (Aio::Native, Aio::Threads));
    assert!(machine.disks[0].io_thread && !machine.disks[2].io_thread);
}

#[test]
fn a_seed_on_sata_is_a_disc_since_sata_has_no_read_only_disks() {
    let machine = build(&instance(
        json!({"devices": {"disks": [{"name": "seed", "disk": {"bus": "sata"}}]}}),
        json!([{"name": "seed", "cloudInitNoCloud": {"userData": "x"}}]),
    ));
    assert_eq!(machine.disks[0].kind, DiskKind::Cdrom);
    assert_eq!(machine.validate(), Ok(()));
}

#[test]
fn a_machine_boots_in_the_order_said_else_in_the_order_listed() {
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let order = |first: Value, second: Value| -> Vec<Option<u32>> {
        let machine =
            build(&instance(json!({"devices": {"disks": [first, second]}}), json!([claim("a"), claim("b")])));
        machine.disks.iter().map(|disk| disk.boot_index).collect()
    };
    let disk = |name: &str| json!({"name": name, "disk": {"bus": "virtio"}});
    assert_eq!(order(disk("a"), disk("b")), [Some(1), Some(2)]);
    let mut second = disk("b");
    second["bootOrder"] = json!(1);
    assert_eq!(order(disk("a"), second), [None, Some(1)]);
}

#[test]
fn without_taps_nics_are_behind_qemus_own_network() {
    let asked = instance(
        json!({"devices": {"interfaces": [{"name": "default", "macAddress": "02:00:00:00:00:01", "model": "e1000e"}]}}),
        json!([]),
    );
    assert_eq!(build(&asked).nics[0].backend, Backend::Tap { vhost: false });
    let without = build_on(&asked, &Abilities { taps: false, ..host() }).unwrap();
    assert_eq!(without.nics[0].backend, Backend::User { forwards: Vec::new() });
    assert_eq!(without.nics[0].model, NicModel::E1000e);
}

#[test]
fn efi_boots_securely_unless_told_otherwise() {
    let firmware =
        |efi: Value| build(&instance(json!({"firmware": {"bootloader": {"efi": efi}}}), json!([]))).firmware;
    assert_eq!(firmware(json!({"secureBoot": false})), Firmware::Uefi { secure_boot: false });
    assert_eq!(firmware(json!({"secureBoot": true})), Firmware::Uefi { secure_boot: true });
}

#[test]
fn disks_are_called_what_most_guests_call_them() {
    let instance = instance(
        json!({"devices": {"disks": [
            {"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "disk": {"bus": "scsi"}},
            {"name": "c", "disk": {"bus": "virtio"}}, {"name": "d", "cdrom": {"bus": "sata"}}]}}),
        json!([]),
    );
    let devices = &instance.spec.domain.devices;
    let told = BTreeMap::from([("d", "sdb")]);
    assert_eq!(targets(devices, &told)["d"], "sdb", "what was told stays");
    let targets: Vec<String> = targets(devices, &BTreeMap::new()).into_values().collect();
    assert_eq!(targets, ["vda", "sda", "vdb", "sdb"]);
}

#[test]
fn a_drive_may_be_empty_and_a_disk_may_not() {
    let with = |disk: Value| instance(json!({"devices": {"disks": [disk]}}), json!([]));
    let drive = build(&with(json!({"name": "disc", "cdrom": {"bus": "sata"}})));
    assert_eq!((drive.disks[0].kind, drive.disks[0].layers.len()), (DiskKind::Cdrom, 0));
    let disk = with(json!({"name": "disk", "disk": {"bus": "scsi"}}));
    assert!(matches!(build_on(&disk, &host()), Err(Unbuildable::NoVolume { .. })));
}

#[test]
fn a_serial_number_that_is_only_the_name_is_cut_and_one_that_was_chosen_is_not() {
    let name = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
    let serial = |serial: &str| {
        let disks = json!([{"name": name, "disk": {"bus": "scsi"}, "serial": serial}]);
        let volumes = json!([{"name": name, "persistentVolumeClaim": {"claimName": name}}]);
        build(&instance(json!({"devices": {"disks": disks}}), volumes)).disks[0].serial.clone().unwrap()
    };
    assert_eq!(serial(name), &name[..36]);
    let chosen = "x".repeat(40);
    assert_eq!(serial(&chosen), chosen);
}

/// The CSI driver looks for a link below `/dev/disk/by-id` that has the whole name of the claim in it, which udev makes of the
/// identification of a SCSI disk. A serial number has not so much room, and a virtio disk has nothing else.
#[test]
fn trap_8_a_disk_on_scsi_is_found_by_the_whole_name_of_its_claim() {
    let claim = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";
    assert_eq!(claim.len(), 40);
    let id = |bus: &str, serial: &str| {
        let disks = json!([{"name": "data", "disk": {"bus": bus}, "serial": serial}]);
        let volumes =
            json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}}]);
        build(&instance(json!({"devices": {"disks": disks}}), volumes)).disks[0].device_id.clone()
    };
    assert_eq!(id("scsi", "").as_deref(), Some(claim));
    assert_eq!(id("scsi", "data").as_deref(), Some(claim), "whatever serial number it was given");
    assert_eq!(id("virtio", ""), None);
}

#[test]
fn memory_has_room_to_grow_only_where_more_was_declared() {
    let most = |memory: Value| build(&instance(json!({"memory": memory}), json!([]))).max_memory_mib;
    assert_eq!(most(json!({"guest": "1Gi", "maxGuest": "4Gi"})), Some(4096));
    assert_eq!(most(json!({"guest": "1Gi", "maxGuest": "1Gi"})), None);
    assert_eq!(most(json!({"guest": "1Gi"})), None);
}
