//! What a real guest uses, as it is counted and told.

use std::{fs::OpenOptions, sync::Arc, time::Duration};

use http::Method;
use serde_json::Value;
use sheaf_agent::{metrics::KnownMachines, stream_port::NoImages};
use sheaf_hypervisor::{
    DescriptorName,
    machine::{Aio, Backend, Bus, Cache, Disk, DiskKind, Format, Layer, LayerStorage, Nic, NicModel},
};
use tokio::time::{Instant, sleep};

use crate::house::{House, PATIENCE, bare, text, tiny_guest};

const UID: &str = "5c0fb4a2-8f1e-4c39-9f3e-7a1de0c5b1aa";

/// The number on the line that begins like this.
fn number(house: &House, line: &str) -> Option<f64> {
    let mut page = String::new();
    house.metrics.write(&mut page);
    let line = page.lines().find(|candidate| candidate.starts_with(line))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

fn raw_disk(name: &str) -> Disk {
    Disk {
        name: name.parse().unwrap(),
        bus: Bus::Virtio,
        kind: DiskKind::Disk,
        layers: vec![Layer {
            number: None,
            format: Format::Raw,
            storage: LayerStorage::File,
            read_only: false,
        }],
        boot_index: None,
        serial: None,
        device_id: None,
        cache: Cache::WriteBack,
        aio: Aio::Threads,
        source: None,
        io_thread: false,
    }
}

#[tokio::test]
async fn what_a_guest_uses_is_counted_while_it_runs_and_told_for_graphs() {
    let house = House::new(Arc::new(NoImages)).await;
    let (mut machine, mut descriptors) = tiny_guest(UID);
    machine.balloon = true;
    machine.disks = vec![raw_disk("root")];
    machine.nics = vec![Nic {
        name: "default".parse().unwrap(),
        mac: "52:54:00:12:34:56".parse().unwrap(),
        model: NicModel::Virtio,
        backend: Backend::User { forwards: vec![] },
        boot_index: None,
        mtu: None,
    }];
    let image =
        OpenOptions::new().create_new(true).read(true).write(true).open(house.beside("root.img")).unwrap();
    image.set_len(8 << 20).unwrap();
    let layer = DescriptorName::Layer { disk: "root".parse().unwrap(), layer: 0 };
    descriptors.insert(layer, image.into());
    house.launch(&machine, descriptors).await;
    let notes = house.note(&machine.id, "default", "vm");
    let path = format!("/v1/machines/{UID}/history");
    let nothing = text(house.ask(Method::GET, &path).await).await;
    assert_eq!(nothing, r#"{"interval":10,"points":[]}"#, "nothing was measured yet");

    // Any interface will do to see that it is asked for by the NIC's number.
    let sampler = house.sampler(&notes, Some(Arc::new(|_, nic| ["lo"][usize::from(nic)].to_owned())));
    let mut known = KnownMachines::default();
    let labels = r#"{node="n1",namespace="default",name="vm""#;
    let reads = format!("kubevirt_vmi_storage_read_traffic_bytes_total{labels},drive=\"root\"}}");
    let said = format!("kubevirt_vmi_memory_available_bytes{labels}}}");
    let busy = format!("kubevirt_vmi_vcpu_seconds_total{labels},id=\"0\",state=\"running\"}}");
    sampler.measure(&mut known).await;
    let busy_at_first = number(&house, &busy).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while number(&house, &said).is_none() || number(&house, &reads).is_none_or(|bytes| bytes == 0.0) {
        assert!(Instant::now() < deadline, "the guest never said what memory it has, or read no disk");
        sleep(Duration::from_millis(300)).await;
        sampler.measure(&mut known).await;
    }
    let memory = number(&house, &said).unwrap();
    assert!(memory > 64e6 && memory <= 192.0 * 1048576.0, "{memory}");
    assert!(number(&house, &busy).unwrap() > busy_at_first);
    let whole = number(&house, &format!("kubevirt_vmi_cpu_usage_seconds_total{labels}}}")).unwrap();
    assert!(whole > 0.0);
    let resident = number(&house, &format!("kubevirt_vmi_memory_resident_bytes{labels}}}")).unwrap();
    assert!(resident > 16e6, "{resident}");
    assert_eq!(
        number(&house, &format!("kubevirt_vmi_memory_actual_balloon_bytes{labels}}}")),
        Some(192.0 * 1048576.0)
    );
    let received = format!("kubevirt_vmi_network_receive_bytes_total{labels},interface=\"default\"}}");
    assert!(number(&house, &received).is_some());

    let answer = house.ask(Method::GET, &path).await;
    assert_eq!(answer.status(), 200);
    let told: Value = serde_json::from_str(&text(answer).await).unwrap();
    let points = told["points"].as_array().unwrap();
    assert!(points.iter().any(|point| point["cpu"].as_f64().is_some_and(|cores| cores > 0.05)), "{told}");
    assert!(points.iter().any(|point| point["diskReadBps"].as_f64().is_some_and(|bps| bps > 0.0)), "{told}");
    assert!(points.iter().all(|point| point["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 16 << 20)));

    // The monitor was only borrowed: others still find it free.
    assert_eq!(house.ask(Method::GET, &format!("/v1/machines/{UID}/screenshot")).await.status(), 200);

    house.end(&machine.id).await;
    sampler.measure(&mut known).await;
    assert_eq!(number(&house, "kubevirt_vmi_"), None, "it is gone");
    assert_eq!(house.ask(Method::GET, &path).await.status(), 200, "its history is not");
    notes.forget(&machine.id).unwrap();
    sampler.measure(&mut known).await;
    assert_eq!(house.ask(Method::GET, &path).await.status(), 404);
}

/// Two percent of a processor are what fifty machines may cost, all told; here in a build that is not optimised.
#[tokio::test]
async fn a_sample_of_a_machine_costs_less_than_its_part_of_two_percent() {
    const SAMPLES: u64 = 50;
    let house = House::new(Arc::new(NoImages)).await;
    let mut machine = bare("c1b6c2f4-3a77-4f0e-8a53-0d6f1f0e9b11");
    machine.balloon = true;
    house.launch(&machine, Default::default()).await;
    let notes = house.note(&machine.id, "default", "vm");
    let sampler = house.sampler(&notes, Some(Arc::new(|_, _| "lo".into())));
    let mut known = KnownMachines::default();
    sampler.measure(&mut known).await;
    // This test has one thread, and everything of ours runs on it.
    let spent_micros = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000
    };
    let before = spent_micros();
    for _ in 0..SAMPLES {
        sampler.measure(&mut known).await;
    }
    let each = (spent_micros() - before) / SAMPLES;
    println!("{each} µs of processor time per machine and sample");
    let budget = 10_000_000 * 2 / 100 / 50;
    assert!(each < budget, "{each} µs of {budget}");
    house.end(&machine.id).await;
}
