//! What a machine's process is allowed, read from the kernel.

use std::fs;

use sheaf_hypervisor::machine::{Bus, DiskKind};

use crate::house::{House, disk, layer, machine, writable};

fn field(pid: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

#[tokio::test]
async fn a_machines_process_has_a_user_of_its_own_and_no_way_up() {
    let house = House::new();
    let (one, two) = (machine("one"), machine("two"));
    let _monitors =
        [house.launch(&one, Default::default()).await, house.launch(&two, Default::default()).await];
    let mut users = Vec::new();
    for machine in [&one, &two] {
        let pid = house.hypervisor.pid(&machine.id).unwrap().unwrap();
        assert_eq!(field(pid, "NoNewPrivs"), "1");
        assert_eq!(field(pid, "Seccomp"), "2", "no filter of system calls");
        if rustix::process::geteuid().is_root() {
            let ids: Vec<u32> = field(pid, "Uid").split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert!(ids.iter().all(|id| *id == ids[0] && *id >= 0x7000_0000), "{ids:?}");
            let groups: Vec<u32> =
                field(pid, "Gid").split_whitespace().map(|id| id.parse().unwrap()).collect();
            assert_eq!(groups, ids);
            assert_eq!(field(pid, "Groups"), "", "supplementary groups were kept");
            assert_eq!(field(pid, "CapEff"), "0000000000000000");
            assert_eq!(field(pid, "CapPrm"), "0000000000000000");
            users.push(ids[0]);
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
        assert_eq!(fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), b"");
    }
    users.dedup();
    assert_ne!(users.len(), 1, "two machines share a user");
    for machine in [&one, &two] {
        house.hypervisor.kill(&machine.id).await.unwrap();
        house.hypervisor.forget(&machine.id).await.unwrap();
    }
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_machines_process_has_only_its_own_descriptors_and_we_keep_none() {
    let house = House::new();
    let mut machine = machine("frugal");
    machine.disks = vec![disk("root", Bus::Virtio, DiskKind::Disk)];
    let image = house.image("root", 1, b"");
    // Something of ours that it must not get.
    let _ours = fs::File::open("/etc/passwd").unwrap();
    let _monitor = house.launch(&machine, [(layer("root", 0), writable(&image))].into()).await;
    let pid = house.hypervisor.pid(&machine.id).unwrap().unwrap();

    let open = |pid: i32| -> Vec<String> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets.map(|target| target.display().to_string()).collect()
    };
    let directory = house.hypervisor.directory_of(&machine.id);
    let image = image.display().to_string();
    let allowed = |target: &str| {
        ["socket:", "anon_inode:", "pipe:", "/dev/null", "/memfd:"]
            .iter()
            .any(|kind| target.starts_with(kind))
            || target == image
            || target == directory.join("lock").display().to_string()
            || target == directory.join("log").display().to_string()
    };
    let theirs = open(pid);
    let strange: Vec<&String> = theirs.iter().filter(|target| !allowed(target)).collect();
    assert!(strange.is_empty(), "QEMU has {strange:?} open");
    assert!(theirs.contains(&image));
    let ours = open(rustix::process::getpid().as_raw_nonzero().get());
    assert!(!ours.contains(&image), "we kept a disk open");
    assert!(!ours.iter().any(|target| target.starts_with(&*directory.to_string_lossy())), "{ours:?}");
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_machine_is_in_its_cgroups_with_room_for_qemu_itself() {
    let house = House::new();
    let machine = machine("limited");
    let _monitor = house.launch(&machine, Default::default()).await;
    let pid = house.hypervisor.pid(&machine.id).unwrap().unwrap();
    let limits = house.cgroups.limits(&machine.id);
    for (file, value) in &limits {
        if file.ends_with("memory.max") || file.ends_with("memory.limit_in_bytes") {
            let bytes: u64 = value.parse().unwrap();
            assert!(bytes > (machine.memory_mib + 100) << 20, "{}: {bytes}", file.display());
            assert!(bytes < (machine.memory_mib + 1024) << 20, "{}: {bytes}", file.display());
        }
    }
    // All machines together weigh as much as the host's processors, not as much as one process.
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    for (name, most, of_one) in [("cpu.shares", 262_144, 1024), ("cpu.weight", 10_000, 100)] {
        for (file, _) in limits.iter().filter(|(file, _)| file.ends_with(name)) {
            let parent = file.parent().unwrap().parent().unwrap();
            let together = std::fs::read_to_string(parent.join(name)).unwrap();
            assert_eq!(together.trim(), (processors * of_one).min(most).to_string(), "{}", file.display());
        }
    }
    // A host may have no cgroups, or none for us; then there is nothing to be in.
    if !limits.is_empty() {
        assert_eq!(house.cgroups.processes(&machine.id), [pid]);
    }
    house.end(&machine.id).await;
}
