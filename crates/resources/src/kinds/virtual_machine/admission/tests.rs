//! Each default by name, and that nothing given is ever given twice.

use serde_json::json;

use super::{super::HOTPLUG_ANNOTATION, *};

/// Completes with counted bytes for chance, so that every draw differs and none is random.
fn completed(vm: &Value, old: Option<&Value>) -> Value {
    completed_with(vm, old, &MachineDefaults::default(), 0)
}

fn completed_with(vm: &Value, old: Option<&Value>, defaults: &MachineDefaults, seed: u8) -> Value {
    let mut next = seed;
    let mut vm = vm.clone();
    let mut random = |bytes: &mut [u8]| {
        for byte in bytes {
            next = next.wrapping_add(1);
            *byte = next;
        }
    };
    let mut surroundings = Surroundings {
        defaults,
        cluster_network_of: &|namespace, name| {
            (namespace == "default" && name == "vlan1").then(|| "mgmt".into())
        },
        random: &mut random,
    };
    complete(&mut vm, old, &mut surroundings).unwrap();
    vm
}

/// What the node driver sends: limits, and next to nothing else.
fn machine() -> Value {
    json!({
        "metadata": {"name": "vm", "namespace": "default"},
        "spec": {"runStrategy": "RerunOnFailure", "template": {
            "metadata": {"labels": {"harvesterhci.io/vmName": "vm"}},
            "spec": {
                "domain": {
                    "resources": {"limits": {"cpu": "4", "memory": "4Gi"}},
                    "devices": {"interfaces": [{"name": "nic-0", "model": "virtio"}]},
                },
                "networks": [{"name": "nic-0", "multus": {"networkName": "vlan1"}}],
            },
        }},
    })
}

fn spec(vm: &Value) -> &Value {
    &vm["spec"]["template"]["spec"]
}

#[test]
fn everything_clients_read_without_looking_is_there() {
    let vm = completed(&machine(), None);
    let domain = &spec(&vm)["domain"];
    assert_eq!(domain["machine"]["type"], "q35");
    assert_eq!(domain["cpu"], json!({"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 1}));
    assert_eq!(domain["memory"]["guest"], "4Gi");
    assert_eq!(spec(&vm)["architecture"], "amd64");
    assert_eq!(spec(&vm)["terminationGracePeriodSeconds"], 120);
    assert_eq!(vm["metadata"]["annotations"][RUN_STRATEGY_ANNOTATION], "RerunOnFailure");
    assert_eq!(vm["spec"]["template"]["metadata"]["annotations"], json!({SSH_NAMES_ANNOTATION: "[]"}));
}

#[test]
fn completing_twice_changes_nothing() {
    let once = completed(&machine(), None);
    assert_eq!(completed(&once, Some(&once)), once);
    assert_eq!(completed(&once, None), once);
}

#[test]
fn requests_follow_limits_by_the_overcommit() {
    let vm = completed(&machine(), None);
    // 4 cores * 100/1000, 4096 MiB * 100/150 cut to whole MiB.
    assert_eq!(spec(&vm)["domain"]["resources"]["requests"], json!({"cpu": "400m", "memory": "2730Mi"}));
    let defaults = MachineDefaults {
        overcommit: Overcommit::parse(r#"{"cpu":100,"memory":200}"#),
        ..MachineDefaults::default()
    };
    let vm = completed_with(&machine(), None, &defaults, 0);
    assert_eq!(spec(&vm)["domain"]["resources"]["requests"], json!({"cpu": "4", "memory": "2Gi"}));
}

#[test]
fn requests_change_only_when_the_limits_do() {
    let old = completed(&machine(), None);
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["domain"]["resources"]["requests"]["cpu"] = json!("1");
    new["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(spec(&completed(&new, Some(&old)))["domain"]["resources"]["requests"]["cpu"], "1");
    new["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["cpu"] = json!("8");
    assert_eq!(spec(&completed(&new, Some(&old)))["domain"]["resources"]["requests"]["cpu"], "800m");
}

#[test]
fn a_broken_overcommit_setting_is_as_none() {
    for broken in ["", "{", "[]", r#"{"cpu": 0, "memory": -5, "storage": 99}"#, r#"{"cpu": "lots"}"#] {
        assert_eq!(Overcommit::parse(broken), Overcommit::default(), "{broken}");
    }
    assert_eq!(Overcommit::default().storage_percent, 100);
    assert_eq!(Overcommit::parse(r#"{"storage": 250}"#).storage_percent, 250);
}

#[test]
fn the_guest_gets_the_limit_less_what_is_reserved() {
    let mut vm = machine();
    vm["metadata"]["annotations"] = json!({RESERVED_MEMORY_ANNOTATION: "256Mi"});
    assert_eq!(spec(&completed(&vm, None))["domain"]["memory"]["guest"], "3840Mi");
    let legacy = MachineDefaults { reserved_bytes: reserved_by_ratio("0"), ..MachineDefaults::default() };
    assert_eq!(spec(&completed_with(&machine(), None, &legacy, 0))["domain"]["memory"]["guest"], "3996Mi");
    assert_eq!(reserved_by_ratio(""), 100 * MIB);
    assert_eq!(reserved_by_ratio("1.5"), 0);
}

#[test]
fn a_machine_that_only_asks_gets_what_it_asks_for() {
    let mut vm = machine();
    vm["spec"]["template"]["spec"]["domain"]["resources"] = json!({"requests": {"memory": "64Mi"}});
    let vm = completed(&vm, None);
    assert_eq!(spec(&vm)["domain"]["memory"]["guest"], "64Mi");
    assert_eq!(spec(&vm)["domain"]["resources"]["requests"], json!({"memory": "64Mi"}));
}

#[test]
fn the_firmware_id_is_drawn_once_and_kept() {
    let old = completed(&machine(), None);
    let firmware = &spec(&old)["domain"]["firmware"];
    let uuid = firmware["uuid"].as_str().unwrap();
    assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    assert_ne!(firmware["uuid"], firmware["serial"]);
    // A client that writes its own, shorter idea of the machine does not change who it is.
    let again = completed_with(&machine(), Some(&old), &MachineDefaults::default(), 77);
    assert_eq!(&spec(&again)["domain"]["firmware"], firmware);
    let mut own = machine();
    own["spec"]["template"]["spec"]["domain"]["firmware"] =
        json!({"uuid": "11111111-2222-4333-8444-555555555555"});
    assert_eq!(
        spec(&completed(&own, None))["domain"]["firmware"]["uuid"],
        "11111111-2222-4333-8444-555555555555"
    );
}

#[test]
fn an_interface_without_an_address_is_given_one_and_keeps_it() {
    let old = completed(&machine(), None);
    let mac = &spec(&old)["domain"]["devices"]["interfaces"][0]["macAddress"];
    let bytes = mac_address::normalised(mac.as_str().unwrap()).unwrap();
    assert!(mac_address::is_unicast(&bytes));
    let again = completed_with(&machine(), Some(&old), &MachineDefaults::default(), 77);
    assert_eq!(&spec(&again)["domain"]["devices"]["interfaces"][0]["macAddress"], mac);
}

#[test]
fn an_address_noted_while_it_ran_is_not_drawn_again() {
    let mut vm = machine();
    vm["metadata"]["annotations"] = json!({MAC_ADDRESS_ANNOTATION: r#"{"nic-0":"02:00:00:00:00:07"}"#});
    let vm = completed(&vm, None);
    assert!(spec(&vm)["domain"]["devices"]["interfaces"][0]["macAddress"].is_null());
    let mut broken = machine();
    broken["metadata"]["annotations"] = json!({MAC_ADDRESS_ANNOTATION: "nonsense"});
    assert!(spec(&completed(&broken, None))["domain"]["devices"]["interfaces"][0]["macAddress"].is_string());
}

#[test]
fn an_interface_without_a_binding_is_bridged() {
    let vm = completed(&machine(), None);
    assert_eq!(spec(&vm)["domain"]["devices"]["interfaces"][0]["bridge"], json!({}));
}

#[test]
fn a_machine_goes_only_where_its_networks_are() {
    let vm = completed(&machine(), None);
    let wanted = json!([{"matchExpressions": [
        {"key": "network.harvesterhci.io/mgmt", "operator": "In", "values": ["true"]}]}]);
    let required = |vm: &Value| {
        spec(vm)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            ["nodeSelectorTerms"]
            .clone()
    };
    assert_eq!(required(&vm), wanted);
    // Somebody takes it out; it comes back. A network that is left is no longer asked for.
    let mut edited = vm.clone();
    edited["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "disk", "operator": "Exists"},
            {"key": "network.harvesterhci.io/other", "operator": "In", "values": ["true"]}]}]}}});
    assert_eq!(
        required(&completed(&edited, Some(&vm))),
        json!([{"matchExpressions": [
            {"key": "disk", "operator": "Exists"},
            {"key": "network.harvesterhci.io/mgmt", "operator": "In", "values": ["true"]}]}])
    );
    let mut alone = vm.clone();
    alone["spec"]["template"]["spec"]["networks"] = json!([{"name": "nic-0", "pod": {}}]);
    assert!(spec(&completed(&alone, Some(&vm)))["affinity"].is_null());
}

#[test]
fn running_becomes_a_run_strategy() {
    for (running, strategy) in [(true, "Always"), (false, "Halted")] {
        let mut vm = machine();
        vm["spec"]["runStrategy"] = json!(null);
        vm["spec"]["running"] = json!(running);
        let vm = completed(&vm, None);
        assert_eq!(vm["spec"]["runStrategy"], strategy);
        assert!(vm["spec"]["running"].is_null());
    }
}

#[test]
fn running_beside_a_run_strategy_is_left_for_validation_to_refuse() {
    let mut vm = machine();
    vm["spec"]["running"] = json!(true);
    assert_eq!(completed(&vm, None)["spec"]["running"], true);
}

#[test]
fn a_halted_machine_goes_back_to_what_it_ran_by() {
    let ran = {
        let mut vm = machine();
        vm["spec"]["runStrategy"] = json!("Manual");
        completed(&vm, None)
    };
    let mut halted = ran.clone();
    halted["spec"]["runStrategy"] = json!("Halted");
    let halted = completed(&halted, Some(&ran));
    assert_eq!(halted["metadata"]["annotations"][RUN_STRATEGY_ANNOTATION], "Manual");
    let mut started = halted.clone();
    started["spec"]["runStrategy"] = json!("Always");
    assert_eq!(completed(&started, Some(&halted))["spec"]["runStrategy"], "Manual");
}

#[test]
fn a_machine_born_halted_has_a_strategy_to_be_started_by() {
    let mut vm = machine();
    vm["spec"]["runStrategy"] = json!("Halted");
    let vm = completed(&vm, None);
    assert_eq!(vm["metadata"]["annotations"][RUN_STRATEGY_ANNOTATION], "RerunOnFailure");
}

#[test]
fn an_arm_machine_is_an_arm_machine() {
    let mut vm = machine();
    vm["spec"]["template"]["spec"]["architecture"] = json!("arm64");
    let vm = completed(&vm, None);
    assert_eq!(spec(&vm)["domain"]["machine"]["type"], "virt");
    assert!(spec(&vm)["domain"]["cpu"]["maxSockets"].is_null());
}

#[test]
fn a_machine_that_goes_is_left_alone() {
    let mut vm = machine();
    vm["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(completed(&vm, None), vm);
}

#[test]
fn whether_efi_boots_only_what_is_signed_is_always_said() {
    let mut vm = machine();
    for (given, kept) in [(json!({}), true), (json!({"secureBoot": false}), false)] {
        vm["spec"]["template"]["spec"]["domain"]["firmware"] = json!({"bootloader": {"efi": given}});
        let vm = completed(&vm, None);
        assert_eq!(spec(&vm)["domain"]["firmware"]["bootloader"]["efi"], json!({"secureBoot": kept}));
    }
    assert!(spec(&completed(&machine(), None))["domain"]["firmware"]["bootloader"].is_null());
}

#[test]
fn a_client_that_leaves_out_what_follows_from_limits_gets_it_back() {
    let old = completed(&machine(), None);
    let again = completed(&machine(), Some(&old));
    assert_eq!(spec(&again)["domain"], spec(&old)["domain"]);
}

#[test]
fn a_machine_that_is_to_grow_is_given_room_for_it_once() {
    let mut vm = machine();
    vm["metadata"]["annotations"] = json!({HOTPLUG_ANNOTATION: "true"});
    spec_mut(&mut vm)["domain"]["cpu"] = json!({"sockets": 2});
    spec_mut(&mut vm)["domain"]["memory"] = json!({"guest": "1Gi"});
    let given = completed(&vm, None);
    let domain = &spec(&given)["domain"];
    assert_eq!(domain["cpu"]["maxSockets"], 8);
    assert_eq!(
        domain["memory"],
        json!({"guest": "1Gi", "maxGuest": "4Gi"}),
        "limits are what it may come to"
    );
    // As many as it may have, which is no reason to let it have more.
    let mut full = given.clone();
    spec_mut(&mut full)["domain"]["cpu"]["sockets"] = json!(8);
    let full = completed(&full, Some(&given));
    assert_eq!(spec(&completed(&full, Some(&full)))["domain"]["cpu"]["maxSockets"], 8);
}

#[test]
fn a_maximum_that_was_given_follows_the_sockets_and_one_that_was_chosen_stays() {
    let plain = completed(&machine(), None);
    let mut more = plain.clone();
    spec_mut(&mut more)["domain"]["cpu"]["sockets"] = json!(3);
    assert_eq!(spec(&completed(&more, Some(&plain)))["domain"]["cpu"]["maxSockets"], 3);
    let mut roomy = machine();
    spec_mut(&mut roomy)["domain"]["cpu"] = json!({"sockets": 1, "maxSockets": 4});
    let roomy = completed(&roomy, None);
    let mut more = roomy.clone();
    spec_mut(&mut more)["domain"]["cpu"]["sockets"] = json!(2);
    assert_eq!(spec(&completed(&more, Some(&roomy)))["domain"]["cpu"]["maxSockets"], 4);
}

fn spec_mut(vm: &mut Value) -> &mut Value {
    &mut vm["spec"]["template"]["spec"]
}
