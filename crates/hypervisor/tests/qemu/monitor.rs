//! What can be asked of a running machine.

use std::time::Duration;

use sheaf_hypervisor::{
    Capabilities, DescriptorName, QmpError, State,
    firmware::{self, CATALOGUE},
    machine::Firmware,
    qmp::RunState,
};
use tokio::{io::AsyncReadExt, time::timeout};

use crate::house::{Console, House, machine, qemus, read_only, tiny_guest, turn, writable};

#[tokio::test]
async fn a_guest_can_be_paused_resumed_reset_and_powered_off() {
    let _turn = turn().await;
    let house = House::new();
    let (mut machine, descriptors) = tiny_guest("obedient", 0);
    machine.balloon = true;
    let monitor = house.launch(&machine, descriptors).await;
    let mut events = monitor.events();
    let mut console = Console::of(&house, &machine.id);
    console.until("tiny guest is up").await;

    monitor.pause().await.unwrap();
    assert_eq!(monitor.status().await.unwrap(), RunState::Paused);
    monitor.resume().await.unwrap();
    assert_eq!(monitor.status().await.unwrap(), RunState::Running);

    monitor.poll_memory(1).await.unwrap();
    assert_eq!(monitor.balloon_bytes().await.unwrap(), machine.memory_mib << 20);
    assert_eq!(monitor.cpu_threads().await.unwrap().len(), 1);
    for _ in 0..100 {
        if monitor.memory_numbers().await.unwrap().stat_total_memory.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let memory = monitor.memory_numbers().await.unwrap();
    let total = memory.stat_total_memory.unwrap();
    assert!(total > 64 << 20 && total <= machine.memory_mib << 20, "{memory:?}");

    // There is a second monitor for who looks in meanwhile.
    let tools = house.hypervisor.tools_monitor(&machine.id).await.unwrap();
    assert_eq!(tools.status().await.unwrap(), RunState::Running);

    monitor.reset().await.unwrap();
    console.until("tiny guest is up").await;

    monitor.power_button().await.unwrap();
    console.until("power button").await;
    // The guest is off and its process waits to be asked about it.
    let shutdown = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.name == "SHUTDOWN" {
                return event;
            }
        }
    };
    let event = timeout(Duration::from_secs(60), shutdown).await.unwrap();
    assert_eq!(event.data["guest"], true);
    assert_eq!(monitor.status().await.unwrap(), RunState::Shutdown);
    monitor.quit().await.unwrap();
    timeout(Duration::from_secs(20), monitor.closed()).await.unwrap();
    house.hypervisor.kill(&machine.id).await.unwrap();
    let found = house.hypervisor.look(machine.id.clone()).unwrap();
    assert!(matches!(found.state, State::Exited { .. }), "{found:?}");
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_screen_can_be_watched_and_photographed_without_a_port_or_a_path() {
    let house = House::new();
    let mut machine = machine("screen");
    machine.graphics = true;
    let monitor = house.launch(&machine, Default::default()).await;
    for _ in 0..2 {
        let mut viewer = monitor.add_vnc_client().await.unwrap();
        let mut greeting = [0; 12];
        viewer.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting, b"RFB 003.008\n");
    }
    let image = monitor.screenshot().await.unwrap();
    assert!(image.starts_with(b"\x89PNG\r\n\x1a\n"), "{:?}", &image[..8.min(image.len())]);
    assert!(image.ends_with(b"IEND\xaeB`\x82"), "the image was cut off");
    house.end(&machine.id).await;
}

#[tokio::test]
async fn a_machine_that_starts_paused_waits_to_be_let_go() {
    let house = House::new();
    let mut machine = machine("waiting");
    machine.start_paused = true;
    let monitor = house.launch(&machine, Default::default()).await;
    assert_eq!(monitor.status().await.unwrap(), RunState::Prelaunch);
    monitor.resume().await.unwrap();
    assert_eq!(monitor.status().await.unwrap(), RunState::Running);
    house.end(&machine.id).await;
}

#[tokio::test]
async fn what_qemu_will_not_do_comes_back_with_its_class_and_words() {
    let house = House::new();
    let machine = machine("stubborn");
    let monitor = house.launch(&machine, Default::default()).await;
    let Err(QmpError::Refused { class, desc, .. }) = monitor.remove_device("nothing").await else {
        panic!("a device that is not there was removed")
    };
    assert_eq!(class, "DeviceNotFound");
    assert!(desc.contains("nothing"), "{desc}");
    house.hypervisor.kill(&machine.id).await.unwrap();
    assert!(matches!(monitor.status().await, Err(QmpError::Closed | QmpError::Io(_))));
    house.end(&machine.id).await;
}

#[tokio::test]
async fn uefi_firmware_runs_with_and_without_secure_boot() {
    for secure_boot in [false, true] {
        let _turn = turn().await;
        let house = House::new();
        let mut machine = machine(&format!("uefi-{secure_boot}"));
        machine.firmware = Firmware::Uefi { secure_boot };
        machine.memory_mib = 256;
        let files = firmware::find(CATALOGUE.as_ref(), secure_boot).unwrap();
        let variables = house.beside("variables");
        std::fs::copy(&files.variables_template, &variables).unwrap();
        let descriptors = [
            (DescriptorName::FirmwareCode, read_only(&files.code)),
            (DescriptorName::FirmwareVariables, writable(&variables)),
        ];
        let _monitor = house.launch(&machine, descriptors.into()).await;
        let mut console = Console::of(&house, &machine.id);
        // With nothing to boot from, this is as far as it gets.
        console.until("BdsDxe").await;
        house.end(&machine.id).await;
        assert_eq!(qemus(&machine.id), [0; 0]);
    }
}

#[tokio::test]
async fn qemu_tells_what_it_can_do() {
    let capabilities = Capabilities::ask("/usr/bin/qemu-system-x86_64".as_ref(), None).await.unwrap();
    let default = capabilities.machine_type("q35").unwrap();
    assert!(default.starts_with("pc-q35-"));
    assert!(capabilities.machine_types.contains(&"pc-q35-7.2".to_owned()));
    assert_eq!(capabilities.machine_type("pc-q35-7.2"), Some("pc-q35-7.2"));
    assert_eq!(capabilities.machine_type("z80"), None);
    assert!(capabilities.cpu_models.contains(&"qemu64".to_owned()));
}
