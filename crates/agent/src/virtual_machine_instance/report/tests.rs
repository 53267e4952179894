//! What is told of an instance.

use serde_json::json;
use sheaf_planner::virtual_machine_instance::Exit;

use super::*;

fn instance() -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
        "spec": {
            "domain": {"devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "scsi"}},
                    {"name": "seed", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "second", "macAddress": "02:00:00:00:00:02"},
                    {"name": "first", "macAddress": "02:00:00:00:00:01"}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
                {"name": "seed", "cloudInitNoCloud": {"userData": "x"}}],
        },
        "status": {"phase": "Scheduled", "nodeName": "n1"},
    }))
    .unwrap()
}

fn given() -> BTreeMap<String, Vec<Ipv4Addr>> {
    let address = |last| vec![Ipv4Addr::new(10, 52, 0, last)];
    BTreeMap::from([
        ("02:00:00:00:00:01".to_owned(), address(11)),
        ("02:00:00:00:00:02".to_owned(), address(12)),
    ])
}

fn report(
    instance: &VirtualMachineInstance,
    seen: Seen,
    phase: Phase,
    guest: Option<&GuestFacts>,
    trouble: Option<&str>,
) -> VirtualMachineInstanceStatus {
    let addresses = given();
    let claims =
        BTreeMap::from([("root".into(), ClaimInfo { claim_name: "c".into(), ..ClaimInfo::default() })]);
    let seeds = BTreeMap::from([("seed".into(), 366 << 10)]);
    let observed = Observed {
        seen,
        phase,
        now: Timestamp::UNIX_EPOCH,
        machine: None,
        user: Some(7),
        addresses: &addresses,
        guest,
        claims: &claims,
        seeds: &seeds,
        plugged: None,
        disk_failed: false,
        trouble,
        credentials: None,
    };
    status_of(instance, &observed)
}

const RUNNING: Seen = Seen::Running { paused: false };

#[test]
fn trap_2_a_running_machine_has_its_addresses_from_the_first_moment_in_the_order_of_the_spec() {
    let status = report(&instance(), RUNNING, Phase::Running, None, None);
    let seen: Vec<_> = status.interfaces.iter().map(|i| (i.name.as_str(), i.ip_address.as_str())).collect();
    assert_eq!(seen, [("second", "10.52.0.12"), ("first", "10.52.0.11")]);
    assert_eq!(status.interfaces[0].info_source, "domain");
    assert!(status.is("Ready"));
    assert_eq!(status.phase_transition_timestamps.len(), 1);
}

#[test]
fn volumes_are_told_by_name_with_their_target_and_what_is_behind_them() {
    let status = report(&instance(), RUNNING, Phase::Running, None, None);
    let told: Vec<_> = status
        .volume_status
        .iter()
        .map(|volume| {
            let claim = volume.persistent_volume_claim_info.as_ref().map(|claim| claim.claim_name.as_str());
            (volume.name.as_str(), volume.target.as_str(), claim, volume.size, volume.phase.as_str())
        })
        .collect();
    let wanted = [
        // Its claim could not be read.
        ("data", "sda", None, 0, ""),
        ("root", "vda", Some("c"), 0, ""),
        ("seed", "vdb", None, 366 << 10, ""),
    ];
    assert_eq!(told, wanted);
}

#[test]
fn what_the_guest_says_comes_after_what_it_was_given() {
    let inside = |name: &str, mac: &str, addresses: &[&str]| GuestInterface {
        name: name.into(),
        mac: mac.into(),
        addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
    };
    let facts = GuestFacts {
        interfaces: vec![
            inside("eth0", "02:00:00:00:00:02", &["fe80::1", "10.52.0.12"]),
            inside("eth1", "02:00:00:00:00:01", &["fe80::2"]),
            inside("docker0", "02:42:00:00:00:01", &["172.17.0.1"]),
        ],
        ..GuestFacts::default()
    };
    let status = report(&instance(), RUNNING, Phase::Running, Some(&facts), None);
    assert_eq!(status.interfaces[0].ip_addresses, ["10.52.0.12", "fe80::1"]);
    assert_eq!(status.interfaces[0].interface_name, "eth0");
    // It has not asked for its address yet, and will get this one.
    assert_eq!(status.interfaces[1].ip_addresses, ["10.52.0.11", "fe80::2"]);
    assert_eq!(
        (status.interfaces[2].name.as_str(), status.interfaces[2].interface_name.as_str()),
        ("", "docker0")
    );
    assert!(status.is("AgentConnected"));
}

#[test]
fn a_second_look_at_the_same_machine_says_the_same() {
    let mut instance = instance();
    instance.status = report(&instance, RUNNING, Phase::Running, None, Some("x"));
    assert_eq!(report(&instance, RUNNING, Phase::Running, None, Some("x")), instance.status);
}

#[test]
fn a_pause_and_its_end_are_told() {
    let mut instance = instance();
    instance.status = report(&instance, Seen::Running { paused: true }, Phase::Running, None, None);
    assert!(instance.status.is("Paused") && !instance.status.is("Ready"));
    let after = report(&instance, RUNNING, Phase::Running, None, None);
    assert!(after.condition("Paused").is_none() && after.is("Ready"));
}

#[test]
fn a_full_disk_is_an_event_when_it_stops_a_machine_and_when_it_does_not_any_more() {
    let mut full = report(&instance(), RUNNING, Phase::Running, None, None);
    let mut by_user = full.clone();
    let paused = |reason: &str| Some(("True", reason.to_owned(), "300 MiB are missing"));
    for (status, reason) in [(&mut full, "PausedIOError"), (&mut by_user, "PausedByUser")] {
        let truth = paused(reason);
        let truth = truth.as_ref().map(|(truth, reason, why)| (*truth, reason.as_str(), *why));
        set_condition(&mut status.conditions, "Paused", truth, Timestamp::UNIX_EPOCH);
    }
    let running = report(&instance(), RUNNING, Phase::Running, None, None);
    let told = |before, now| event_of_full_disk(before, now).map(|(sort, reason, _)| (sort, reason));
    assert_eq!(
        event_of_full_disk(&running, &full),
        Some(("Warning", "PausedIOError", "300 MiB are missing"))
    );
    assert_eq!(told(&full, &running), Some(("Normal", "Resumed")));
    assert_eq!((told(&full, &full), told(&running, &running), told(&running, &by_user)), (None, None, None));
}

#[test]
fn what_stands_in_the_way_is_told_in_its_own_words_until_it_is_gone() {
    let mut instance = instance();
    let words = "QEMU refused the configuration: no such CPU";
    instance.status = report(&instance, Seen::Prepared, Phase::Scheduled, None, Some(words));
    let condition = instance.status.condition("Synchronized").unwrap();
    assert_eq!((condition.status.as_str(), condition.message.as_str()), ("False", words));
    assert!(report(&instance, RUNNING, Phase::Running, None, None).condition("Synchronized").is_none());
}

#[test]
fn a_machine_that_is_over_keeps_what_was_last_known_of_it() {
    let mut instance = instance();
    instance.status = report(&instance, RUNNING, Phase::Running, None, None);
    let over = report(&instance, Seen::Exited { how: Exit::ShutDown }, Phase::Succeeded, None, None);
    assert_eq!(over.interfaces, instance.status.interfaces);
    assert!(!over.is("Ready"));
    assert_eq!(over.phase_transition_timestamps.len(), 2);
}
