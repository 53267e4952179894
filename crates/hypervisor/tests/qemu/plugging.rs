//! What is plugged into and pulled out of a machine that runs, and what becomes of it when whoever does it dies.

use std::{
    os::fd::OwnedFd,
    panic,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sheaf_hypervisor::{
    Descriptors, Hypervisor, HypervisorConfig, Launcher, MachineId, Monitor, Step,
    command_line::{disk_device_id, nic_device_id},
    machine::{Backend, Bus, Disk, DiskKind, Nic, NicModel},
    qmp::PluggedDisk,
};

use crate::house::{
    AGENT, Console, House, disk, guest_with_every_bus, layer, machine, read_only, tiny_guest, turn, writable,
};

/// As long as a claim's name: `pvc-` and a uuid. Clients call the disk so, too.
const CLAIM: &str = "pvc-0e9ad7f6-6f2c-4a3e-9d8c-0a1b2c3d4e5f";

fn scsi(name: &str, source: &str) -> Disk {
    Disk {
        device_id: Some(CLAIM.into()),
        source: Some(source.into()),
        ..disk(name, Bus::Scsi, DiskKind::Disk)
    }
}

async fn found(monitor: &Monitor, name: &str) -> Option<PluggedDisk> {
    monitor.plugged().await.unwrap().disks.remove(&name.parse().unwrap())
}

/// Waits until a device is gone and takes away what was held for it.
async fn pull(house: &House, id: &MachineId, monitor: &Monitor, disk: &Disk) {
    house.hypervisor.pull_device(id, monitor, &disk_device_id(disk)).await.unwrap();
    for _ in 0..200 {
        let Some(held) = found(monitor, disk.name.as_str()).await else { return };
        if held.driver.is_none() {
            house.hypervisor.drop_disk(id, monitor, &held).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the guest keeps disk {}", disk.name);
}

#[tokio::test]
async fn a_guest_finds_a_disk_by_the_name_of_its_claim_and_again_with_what_it_wrote() {
    let _turn = turn().await;
    let house = House::new();
    let (machine, descriptors) = tiny_guest("plugged", 0);
    let monitor = house.launch(&machine, descriptors).await;
    let mut console = Console::of(&house, &machine.id);
    console.until("tiny guest is up").await;
    let image = house.image("data", 4, b"");
    let data = scsi(CLAIM, "one");
    for (number, written) in ["", "kept over an unplug"].into_iter().enumerate() {
        house.hypervisor.plug_disk(&machine.id, &monitor, &data, vec![writable(&image)]).await.unwrap();
        let there = found(&monitor, CLAIM).await.unwrap();
        assert_eq!((there.driver.as_deref(), there.source.as_deref()), (Some("scsi-hd"), Some("one")));
        assert_eq!(there.medium.unwrap().bytes, 4 << 20);
        console.type_line("run until [ -e /sys/block/sd? ]; do sleep 0.1; done").await;
        console.until("ran 0").await;
        console.type_line("report").await;
        let report = console.report().await.join("\n");
        assert!(report.contains("scsi 4194304 ro=0") && report.contains(CLAIM), "{report}");
        console.type_line("read sda").await;
        console.until("content ").await;
        assert_eq!(console.until("\n").await.trim(), written, "time {number}");
        console.type_line("write sda kept over an unplug").await;
        console.until("written").await;
        pull(&house, &machine.id, &monitor, &data).await;
        assert_eq!(found(&monitor, CLAIM).await, None, "nothing is held for it");
        console.type_line("run while [ -e /sys/block/sd? ]; do sleep 0.1; done").await;
        console.until("ran 0").await;
    }
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_guest_is_given_and_gives_back_a_virtio_disk_and_a_nic_and_sees_a_disk_grow_and_discs_change() {
    let _turn = turn().await;
    let house = House::new();
    let (mut machine, descriptors) = guest_with_every_bus("ports", 0);
    machine.disks.push(Disk { layers: vec![], ..disk("drive", Bus::Sata, DiskKind::Cdrom) });
    let monitor = house.launch(&machine, descriptors).await;
    let mut console = Console::of(&house, &machine.id);
    console.until("tiny guest is up").await;
    let (id, hypervisor) = (&machine.id, &house.hypervisor);
    let image = house.image("fast", 2, b"");
    let fast = disk("fast", Bus::Virtio, DiskKind::Disk);
    hypervisor.plug_disk(id, &monitor, &fast, vec![writable(&image)]).await.unwrap();
    let late = Nic {
        name: "late".parse().unwrap(),
        mac: "52:54:00:00:02:01".parse().unwrap(),
        model: NicModel::Virtio,
        backend: Backend::User { forwards: vec![] },
        boot_index: None,
        mtu: None,
    };
    hypervisor.plug_nic(id, &monitor, &late, None).await.unwrap();
    console.type_line("run until [ -e /sys/block/vda -a -e /sys/class/net/eth0 ]; do sleep 0.1; done").await;
    console.until("ran 0").await;
    console.type_line("report").await;
    let report = console.report().await.join("\n");
    assert!(report.contains("vda virtio 2097152"), "{report}");
    assert!(report.contains("52:54:00:00:02:01 virtio_net"), "{report}");

    let node = found(&monitor, "fast").await.unwrap().medium.unwrap().node;
    hypervisor.grow_node(id, &monitor, &node, 3 << 20).await.unwrap();
    console.type_line("run until [ $(cat /sys/block/vda/size) = 6144 ]; do sleep 0.1; done").await;
    console.until("ran 0").await;

    hypervisor.pull_device(id, &monitor, &nic_device_id(&late)).await.unwrap();
    // Asking again does no harm.
    hypervisor.pull_device(id, &monitor, &nic_device_id(&late)).await.unwrap();
    pull(&house, id, &monitor, &fast).await;
    let gone = async {
        loop {
            let nic = monitor.plugged().await.unwrap().nics.remove(&late.name).unwrap();
            if !nic.device {
                return nic;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().backend);
    hypervisor.drop_nic(id, &monitor, &late.name).await.unwrap();
    assert!(monitor.plugged().await.unwrap().nics.is_empty());
    every_disc_is_found_by_a_guest_that_keeps_looking(&house, id, &monitor, &mut console).await;
    house.end(id).await;
}

/// It shuts the tray whenever it finds it open, before we do, and has the disc all the same.
async fn every_disc_is_found_by_a_guest_that_keeps_looking(
    house: &House,
    id: &MachineId,
    monitor: &Monitor,
    console: &mut Console,
) {
    let launcher = Launcher { program: AGENT.into(), arguments: vec!["launch".into()] };
    let mut config = HypervisorConfig::of_host(house.path(), launcher);
    config.after_step = Arc::new(|step| {
        if matches!(step, Step::MediumInserted | Step::MediumRemoved) {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    let slow = Hypervisor::new(config);
    console.type_line("run (while :; do head -c 1 /dev/sr0; usleep 20000; done) >/dev/null 2>&1 &").await;
    console.until("ran 0").await;
    for mib in [2, 3, 2] {
        let image = house.image(&format!("disc-{mib}"), mib, b"");
        let disc = Disk { source: Some("disc".into()), ..disk("drive", Bus::Sata, DiskKind::Cdrom) };
        slow.insert(id, monitor, &disc, vec![read_only(&image)]).await.unwrap();
        let sectors = mib * 2048;
        console
            .type_line(&format!(
                "run until [ $(cat /sys/block/sr0/size) = {sectors} ]; do usleep 20000; done"
            ))
            .await;
        console.until("ran 0").await;
        assert!(slow.eject(id, monitor, &disc, true).await.unwrap());
        let held = found(monitor, "drive").await.unwrap();
        slow.drop_disk(id, monitor, &held).await.unwrap();
    }
}

#[tokio::test]
async fn processors_and_memory_come_to_a_guest_that_runs() {
    let _turn = turn().await;
    let house = House::new();
    let (mut machine, descriptors) = tiny_guest("grows", 0);
    (machine.cpu.max_sockets, machine.cpu.cores) = (3, 1);
    machine.max_memory_mib = Some(machine.memory_mib + 257);
    let monitor = house.launch(&machine, descriptors).await;
    let mut console = Console::of(&house, &machine.id);
    console.until("tiny guest is up").await;
    let (id, hypervisor) = (&machine.id, &house.hypervisor);
    let limit = |house: &House| -> Vec<u64> {
        let limits = house.cgroups.limits(id).into_iter();
        let memory = limits.filter(|(file, _)| file.to_string_lossy().contains("memory"));
        memory.filter_map(|(_, bytes)| bytes.parse().ok()).collect()
    };
    let before = limit(&house);
    hypervisor.plug_processors(id, &monitor, 2).await.unwrap();
    // Once there are as many there are no more.
    hypervisor.plug_processors(id, &monitor, 2).await.unwrap();
    assert_eq!(monitor.cpu_threads().await.unwrap().len(), 2);
    console
        .type_line("run until echo 1 >/sys/devices/system/cpu/cpu1/online; do sleep 0.1; done 2>/dev/null")
        .await;
    console.until("ran 0").await;
    console.type_line("run grep -c ^processor /proc/cpuinfo").await;
    console.until("\n2\n").await;

    hypervisor.ask_for_memory(&machine, &monitor, 256).await.unwrap();
    for (now, then) in limit(&house).iter().zip(&before) {
        assert_eq!(now - then, 258 << 20, "there is room for it, and for the kernel's tables");
    }
    let all = async {
        loop {
            let added = monitor.added_memory().await.unwrap().unwrap();
            assert_eq!(added.requested_bytes, 256 << 20);
            if added.bytes == added.requested_bytes {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.expect("the guest takes the memory");
    house.end(id).await;
}

#[tokio::test]
async fn a_disc_is_taken_out_and_another_put_in() {
    let house = House::new();
    let mut machine = machine("discs");
    let first = Disk { source: Some("first".into()), ..disk("install", Bus::Sata, DiskKind::Cdrom) };
    machine.disks = vec![first.clone(), Disk { layers: vec![], ..disk("empty", Bus::Scsi, DiskKind::Cdrom) }];
    let descriptors = Descriptors::from([(layer("install", 0), read_only(&house.image("one", 1, b"one")))]);
    let monitor = house.launch(&machine, descriptors).await;
    let (id, hypervisor) = (&machine.id, &house.hypervisor);
    let begun = found(&monitor, "install").await.unwrap();
    assert_eq!((begun.source.as_deref(), begun.driver.as_deref()), (Some("first"), Some("ide-cd")));

    assert!(hypervisor.eject(id, &monitor, &first, false).await.unwrap(), "nobody holds the tray");
    let empty = found(&monitor, "install").await.unwrap();
    assert_eq!(empty.medium, None);
    assert!(hypervisor.drop_disk(id, &monitor, &empty).await.unwrap());
    for name in ["install", "empty"] {
        let bus = if name == "empty" { Bus::Scsi } else { Bus::Sata };
        let second = Disk { source: Some("second".into()), ..disk(name, bus, DiskKind::Cdrom) };
        let image = house.image(name, 2, b"two");
        hypervisor.insert(id, &monitor, &second, vec![read_only(&image)]).await.unwrap();
        let now = found(&monitor, name).await.unwrap();
        assert_eq!((now.source.as_deref(), now.tray_is_open), (Some("second"), false), "{name}");
        assert_eq!(now.medium.unwrap().bytes, 2 << 20);
        assert_eq!(now.nodes.len(), 2);
    }
    house.end(id).await;
}

/// A hypervisor on the same host that ends after so many steps, as if it were killed.
fn mortal(house: &House, steps: usize) -> Hypervisor {
    let launcher = Launcher { program: AGENT.into(), arguments: vec!["launch".into()] };
    let mut config = HypervisorConfig::of_host(house.path(), launcher);
    let left = Arc::new(AtomicUsize::new(steps));
    config.after_step = Arc::new(move |_| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            panic::resume_unwind(Box::new("killed"));
        }
    });
    Hypervisor::new(config)
}

/// Plugs a disk in, or pulls it out, from whatever QEMU says there is.
async fn converge(hypervisor: &Hypervisor, id: &MachineId, disk: &Disk, image: &Path, wanted: bool) {
    let monitor = hypervisor.monitor(id).await.unwrap();
    loop {
        let held = found(&monitor, disk.name.as_str()).await;
        match held {
            Some(held) if held.driver.is_some() && wanted => return,
            Some(held) if held.driver.is_some() => {
                hypervisor.pull_device(id, &monitor, &disk_device_id(disk)).await.unwrap();
            }
            Some(held) => drop(hypervisor.drop_disk(id, &monitor, &held).await.unwrap()),
            None if wanted => {
                let layers: Vec<OwnedFd> = vec![read_only(image), writable(&image.with_extension("top"))];
                hypervisor.plug_disk(id, &monitor, disk, layers).await.unwrap();
            }
            None => return,
        }
    }
}

#[tokio::test]
async fn whoever_dies_while_plugging_leaves_what_the_next_one_finds_and_finishes() {
    let house = House::new();
    let machine = machine("mortal");
    drop(house.launch(&machine, Descriptors::new()).await);
    let image = house.image("layered", 1, b"");
    let mut make = std::process::Command::new("qemu-img");
    make.args(["create", "-q", "-f", "qcow2"]).arg(image.with_extension("top")).arg("1M");
    assert!(make.status().unwrap().success());
    let mut data = scsi("data", "one");
    data.layers = vec![
        sheaf_hypervisor::machine::Layer { read_only: true, ..data.layers[0] },
        sheaf_hypervisor::machine::Layer {
            format: sheaf_hypervisor::machine::Format::Qcow2,
            ..data.layers[0]
        },
    ];
    let mut most = 0;
    for wanted in [true, false] {
        for steps in 1.. {
            assert!(steps < 40, "it never comes to its end");
            converge(&house.hypervisor, &machine.id, &data, &image, !wanted).await;
            let hypervisor = mortal(&house, steps);
            let (id, disk, file) = (machine.id.clone(), data.clone(), image.clone());
            let died = tokio::spawn(async move { converge(&hypervisor, &id, &disk, &file, wanted).await })
                .await
                .is_err();
            converge(&house.hypervisor, &machine.id, &data, &image, wanted).await;
            let monitor = house.hypervisor.monitor(&machine.id).await.unwrap();
            let plugged = monitor.plugged().await.unwrap();
            match wanted {
                true => {
                    let held = &plugged.disks[&data.name];
                    assert_eq!((held.nodes.len(), held.sets.len()), (4, 2), "after {steps} steps: {held:?}");
                }
                false => assert!(plugged.disks.is_empty(), "after {steps} steps: {plugged:?}"),
            }
            if !died {
                break;
            }
            most = most.max(steps);
        }
    }
    assert!(most >= 7, "there are more steps than {most}");
    house.end(&machine.id).await;
}
