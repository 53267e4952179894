//! What QEMU will not run comes back with its own reason, and leaves nothing behind.

use sheaf_hypervisor::{
    HypervisorError, State,
    machine::{Bus, DiskKind, Format},
};

use crate::house::{House, disk, layer, machine, qemus, read_only, writable};

#[tokio::test]
async fn a_cpu_model_that_qemu_does_not_know_is_refused_in_qemus_words() {
    let house = House::new();
    let mut machine = machine("refused");
    machine.cpu.model = "z80".into();
    house.hypervisor.define(&machine).await.unwrap();
    let Err(HypervisorError::Refused { reason, .. }) =
        house.hypervisor.launch(&machine.id, Default::default()).await
    else {
        panic!("QEMU ran a Z80")
    };
    assert_eq!(reason, "unable to find CPU model 'z80'");

    assert_eq!(house.hypervisor.look(machine.id.clone()).unwrap().state, State::Defined);
    assert_eq!(qemus(&machine.id), [0; 0]);
    assert_eq!(house.cgroups.machines(), []);

    // What is wrong can be put right.
    machine.cpu.model = "qemu64".into();
    drop(house.launch(&machine, Default::default()).await);
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_descriptor_opened_the_wrong_way_is_refused() {
    let house = House::new();
    let mut machine = machine("wrong-way");
    machine.disks = vec![disk("root", Bus::Virtio, DiskKind::Disk)];
    let image = house.image("root", 1, b"");
    house.hypervisor.define(&machine).await.unwrap();
    let outcome = house.hypervisor.launch(&machine.id, [(layer("root", 0), read_only(&image))].into()).await;
    assert!(matches!(outcome, Err(HypervisorError::Refused { .. })));

    let outcome = house.hypervisor.launch(&machine.id, Default::default()).await;
    assert!(matches!(outcome, Err(HypervisorError::Missing { .. })));
    house.end(&machine.id).await;
}

#[tokio::test]
async fn an_image_whose_header_leads_elsewhere_is_never_opened() {
    let house = House::new();
    let mut machine = machine("elsewhere");
    let mut root = disk("root", Bus::Virtio, DiskKind::Disk);
    root.layers[0].format = Format::Qcow2;
    machine.disks = vec![root];
    let (image, data) = (house.beside("image"), house.image("data", 1, b"somebody else's"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", &format!("data_file={}", data.display())], &image);
    house.hypervisor.define(&machine).await.unwrap();
    let outcome = house.hypervisor.launch(&machine.id, [(layer("root", 0), writable(&image))].into()).await;
    assert!(matches!(outcome, Err(HypervisorError::Image { .. })));
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_backing_file_named_in_a_header_is_not_followed() {
    let house = House::new();
    let mut machine = machine("backed");
    let mut root = disk("root", Bus::Virtio, DiskKind::Disk);
    root.layers[0].format = Format::Qcow2;
    machine.disks = vec![root];
    let (image, secret) = (house.beside("image"), house.image("secret", 1, b"somebody else's"));
    let backing = secret.display().to_string();
    qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &backing], &image);
    let monitor = house.launch(&machine, [(layer("root", 0), writable(&image))].into()).await;
    let nodes =
        monitor.execute("query-named-block-nodes", serde_json::json!({ "flat": true })).await.unwrap();
    let files: Vec<&str> =
        nodes.as_array().unwrap().iter().filter_map(|node| node["file"].as_str()).collect();
    assert!(!files.is_empty() && files.iter().all(|file| !file.contains("secret")), "{files:?}");
    house.end(&machine.id).await;
}

fn qemu_img(arguments: &[&str], image: &std::path::Path) {
    let status =
        std::process::Command::new("qemu-img").args(arguments).arg(image).arg("1M").status().unwrap();
    assert!(status.success());
}
