//! What a running guest sees of its hardware, on every bus.

use std::{path::Path, process::Command};

use sheaf_hypervisor::{
    Capabilities, Descriptors,
    machine::{
        Backend, Bus, Cache, Disk, DiskKind, Format, HostForward, Layer, LayerStorage, Nic, NicModel,
        Protocol, SystemInformation,
    },
};

use crate::house::{
    Console, House, disk, guest_with_every_bus, layer, machine, read_only, tiny_guest, turn, writable,
};

/// As long as a claim's name: `pvc-` and a uuid.
const CLAIM: &str = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";

fn nic(name: &str, mac: &str, model: NicModel) -> Nic {
    let (name, mac) = (name.parse().unwrap(), mac.parse().unwrap());
    Nic { name, mac, model, backend: Backend::User { forwards: vec![] }, boot_index: None, mtu: None }
}

#[tokio::test]
async fn a_guest_finds_every_disk_and_nic_where_it_belongs() {
    let _turn = turn().await;
    let house = House::new();
    let (mut machine, mut descriptors) = guest_with_every_bus("buses", 6);
    machine.rng = true;
    machine.balloon = true;
    machine.guest_agent = true;
    machine.graphics = true;
    machine.tablet = true;
    machine.virtio_tablet = true;
    machine.cpu.sockets = 2;
    machine.cpu.max_sockets = 4;
    machine.system = SystemInformation { serial: Some("serial,with,commas".into()), ..Default::default() };
    for (number, (name, bus, kind)) in [
        ("root", Bus::Virtio, DiskKind::Disk),
        ("data", Bus::Scsi, DiskKind::Disk),
        ("old", Bus::Sata, DiskKind::Disk),
        ("install", Bus::Sata, DiskKind::Cdrom),
        ("seed", Bus::Scsi, DiskKind::Cdrom),
        ("stick", Bus::Usb, DiskKind::Disk),
    ]
    .into_iter()
    .enumerate()
    {
        let image = house.image(name, number as u64 + 1, name.as_bytes());
        let mut disk = disk(name, bus, kind);
        match name {
            "root" => {
                disk.serial = Some("root-serial".into());
                disk.io_thread = true;
            }
            "data" => {
                disk.device_id = Some(CLAIM.into());
                disk.io_thread = true;
            }
            _ => {}
        }
        let open = if kind == DiskKind::Cdrom { read_only(&image) } else { writable(&image) };
        descriptors.insert(layer(name, 0), open);
        machine.disks.push(disk);
    }
    machine.nics = vec![
        nic("default", "52:54:00:00:00:01", NicModel::Virtio),
        nic("second", "52:54:00:00:00:02", NicModel::E1000e),
        nic("third", "52:54:00:00:00:03", NicModel::Rtl8139),
        nic("fourth", "52:54:00:00:00:04", NicModel::Ne2kPci),
        nic("fifth", "52:54:00:00:00:05", NicModel::Pcnet),
    ];
    let monitor = house.launch(&machine, descriptors).await;
    let mut console = Console::of(&house, &machine.id);
    let report = console.report().await;
    let said = report.join("\n");

    let has = |line: &str| report.iter().any(|said| said.starts_with(line));
    for line in [
        // The layout of the bus is a promise: see `command_line::pci`.
        "pci 00:01.0 1234:1111",
        "pci 00:02.0 1b36:000c 060400 pcieport",
        "pci 00:02.1 1b36:000c 060400 pcieport",
        "pci 00:04.0 1b36:000c 060400 pcieport",
        "pci 00:08.7 1b36:000c 060400 pcieport",
        "pci 00:18.0 1af4:1048 010000 virtio-pci",
        "pci 00:19.0 1af4:1043",
        "pci 00:1a.0 1af4:1045",
        "pci 00:1b.0 1af4:1044",
        "pci 00:1c.0 1b36:000d 0c0330 xhci_hcd",
        "pci 00:1e.0 1af4:1052",
        "pci 04:00.0 10ec:8029",
        "pci 05:00.0 1022:2000",
        "pci 00:1f.2 8086:2922 010601 ahci",
        "nic eth0 52:54:00:00:00:01 virtio_net 01:00.0",
        "cpus 2",
        "port org.qemu.guest_agent.0",
        "rng virtio_rng.0",
    ] {
        assert!(has(line), "{line:?} is not in what the guest sees:\n{said}");
    }
    for (mac, driver, place) in
        [("52:54:00:00:00:02", "e1000e", "02:00.0"), ("52:54:00:00:00:03", "8139cp", "03:00.0")]
    {
        assert!(said.contains(&format!("{mac} {driver} {place}")), "{mac} is not there:\n{said}");
    }
    let disk = |bus: &str, kind: &str, mib: u64| {
        let begin = format!(" {bus} {} ", mib << 20);
        let line = report.iter().find(|line| line.starts_with("disk ") && line.contains(&begin));
        let line = line.unwrap_or_else(|| panic!("no {kind} of {mib} MiB on {bus}:\n{said}"));
        assert!(line.contains(&format!(" {kind} ")), "{line}");
        line.clone()
    };
    assert!(disk("virtio", "disk", 1).contains("serial=root-serial"));
    let scsi = disk("scsi", "disk", 2);
    assert!(scsi.contains(CLAIM), "page 0x83 does not hold the whole claim's name: {scsi}");
    disk("sata", "disk", 3);
    disk("sata", "cdrom", 4);
    disk("scsi", "cdrom", 5);
    disk("usb", "disk", 6);
    assert!(said.contains("serial,with,commas"), "the serial number was mangled:\n{said}");

    // What the guest writes is in the file, and what is in the file the guest reads.
    console.until("tiny guest is up").await;
    console.type_line("read sda").await;
    console.until("content ").await;
    assert_eq!(console.until("\n").await.trim(), "data");
    console.type_line("write vda from inside the guest").await;
    console.until("written").await;
    let numbers = monitor.disk_numbers().await.unwrap();
    let root = numbers.iter().find(|disk| disk.device == "disk-root").unwrap();
    assert!(root.writes > 0 && root.flushes > 0, "{root:?}");
    assert_eq!(numbers.len(), 6, "{numbers:?}");
    monitor.quit().await.unwrap();
    monitor.closed().await;
    let content = std::fs::read(house.beside("root")).unwrap();
    assert!(content.starts_with(b"from inside the guest"), "{:?}", &content[..32]);
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_guest_writes_to_its_topmost_layer_and_reads_through_to_the_others() {
    let _turn = turn().await;
    let house = House::new();
    let capabilities = Capabilities::ask("/usr/bin/qemu-system-x86_64".as_ref(), None).await.unwrap();
    let (mut machine, mut descriptors) = tiny_guest("layers", 2);
    let layer_of = |format, read_only| Layer { number: None, format, storage: LayerStorage::File, read_only };
    let base = house.image("base", 1, b"at the very bottom");
    for (name, cache) in [("cached", Cache::WriteBack), ("direct", Cache::None)] {
        let mut disk = disk(name, Bus::Virtio, DiskKind::Disk);
        disk.layers =
            vec![layer_of(Format::Raw, true), layer_of(Format::Qcow2, true), layer_of(Format::Qcow2, false)];
        (disk.cache, disk.aio, disk.io_thread) = (cache, capabilities.best_aio(cache), true);
        machine.disks.push(disk);
        descriptors.insert(layer(name, 0), read_only(&base));
        for (index, open) in [(1, read_only as fn(&Path) -> _), (2, writable)] {
            let image = house.beside(&format!("{name}-{index}"));
            let made =
                Command::new("qemu-img").args(["create", "-q", "-f", "qcow2"]).arg(&image).arg("1M").status();
            assert!(made.unwrap().success());
            descriptors.insert(layer(name, index), open(&image));
        }
    }
    let _monitor = house.launch(&machine, descriptors).await;
    let mut console = Console::of(&house, &machine.id);
    console.until("tiny guest is up").await;
    for disk in ["vda", "vdb"] {
        console.type_line(&format!("read {disk}")).await;
        console.until("content ").await;
        assert_eq!(console.until("\n").await.trim(), "at the very bottom");
        console.type_line(&format!("write {disk} on top of the others")).await;
        console.until("written").await;
        console.type_line(&format!("read {disk}")).await;
        console.until("content ").await;
        assert!(console.until("\n").await.starts_with("on top of the others"));
    }
    house.end(&machine.id).await;
    assert!(std::fs::read(base).unwrap().starts_with(b"at the very bottom"), "a shared layer was written to");
}

#[tokio::test]
async fn qemu_takes_what_is_seldom_asked_for() {
    let house = House::new();
    let mut machine = machine("seldom");
    machine.start_paused = true;
    let mut descriptors = Descriptors::new();
    let mut add = |disk: Disk| {
        let image = house.image(disk.name.as_str(), 1, b"");
        let open = if disk.kind == DiskKind::Cdrom { read_only(&image) } else { writable(&image) };
        if !disk.layers.is_empty() {
            descriptors.insert(layer(disk.name.as_str(), 0), open);
        }
        machine.disks.push(disk);
    };
    // More than q35's own controller has ports for.
    (0..7).for_each(|number| add(disk(&format!("sata{number}"), Bus::Sata, DiskKind::Disk)));
    add(Disk { layers: vec![], ..disk("empty", Bus::Sata, DiskKind::Cdrom) });
    add(disk("usb-cdrom", Bus::Usb, DiskKind::Cdrom));
    (0..9).for_each(|number| add(disk(&format!("virtio{number}"), Bus::Virtio, DiskKind::Disk)));
    machine.nics = (0..9)
        .map(|number| nic(&format!("nic{number}"), &format!("52:54:00:00:01:0{number}"), NicModel::E1000))
        .collect();
    machine.nics[0].boot_index = Some(1);
    let forward = HostForward {
        protocol: Protocol::Udp,
        host_address: "127.0.0.1".parse().unwrap(),
        host_port: 0,
        guest_port: 53,
    };
    machine.nics[1].backend = Backend::User { forwards: vec![forward] };
    let monitor = house.launch(&machine, descriptors).await;
    assert_eq!(monitor.disk_numbers().await.unwrap().len(), machine.disks.len());
    monitor.set_link("nic-nic3", false).await.unwrap();
    house.end(&machine.id).await;
}
