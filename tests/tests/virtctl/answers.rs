//! What needs no guest: commands that are answered from what the server knows, and those that are refused in words a
//! person at a terminal can do something with.

use std::sync::OnceLock;

use serde_json::{Value, json};
use sheaf_tests::{
    machines::{CLAIMS, Farm, MACHINES, machine},
    virtctl::Virtctl,
};

fn farm() -> &'static Farm {
    static FARM: OnceLock<Farm> = OnceLock::new();
    FARM.get_or_init(Farm::start)
}

/// A machine that stays off.
fn make(farm: &Farm, name: &str, number: u32) -> Virtctl {
    let vm = machine(name, &format!("55555555-0000-4000-8000-{number:012}"), None);
    farm.api().post(MACHINES, &vm).object();
    Virtctl::admin(&farm.node, name)
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_machine_is_expanded_to_itself_whether_it_exists_or_is_sent() {
    let farm = farm();
    let virtctl = make(farm, "whole", 1);
    let vm: Value = serde_json::from_str(&virtctl.says(&["expand", "--vm=whole", "--output=json"])).unwrap();
    let stored = farm.api().get(&format!("{MACHINES}/whole")).object();
    assert_eq!(vm["spec"]["template"]["spec"]["volumes"], stored["spec"]["template"]["spec"]["volumes"]);
    assert!(virtctl.complains(&["expand", "--vm=nobody"]).contains("\"nobody\" not found"));

    let mut sent = machine("sent", "55555555-0000-4000-8000-000000000099", None);
    let file = virtctl.file("sent.json", &sent.to_string());
    let vm: Value =
        serde_json::from_str(&virtctl.says(&["expand", "--file", &file, "--output=json"])).unwrap();
    assert_eq!(vm["metadata"]["name"], "sent");
    assert_eq!(farm.api().get(&format!("{MACHINES}/sent")).code, 404, "nothing is written");
    sent["spec"]["instancetype"] = json!({"name": "u1.small"});
    let file = virtctl.file("typed.json", &sent.to_string());
    let refused = virtctl.complains(&["expand", "--file", &file]);
    assert!(refused.contains("there are no instance types"), "{refused}");
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn what_there_is_nothing_behind_is_refused_and_the_person_told_why() {
    let farm = farm();
    let virtctl = make(farm, "stays", 2);
    for (command, why) in [
        (&["migrate", "stays"][..], "a machine stays on the node where it runs"),
        (&["evacuate-cancel", "vm", "stays"], "a machine stays on the node where it runs"),
        (
            &["migrate-cancel", "stays"],
            "could not find the requested resource (get virtualmachineinstancemigrations",
        ),
        (&["objectgraph", "stays"], "virtualmachines/objectgraph is not served yet"),
        (&["memory-dump", "get", "stays", "--claim-name=stays"], "cannot be written into a claim"),
        (&["memory-dump", "remove", "stays"], "cannot be written into a claim"),
        (
            &["vmexport", "create", "one", "--vm=stays"],
            "could not find the requested resource (post virtualmachineexports",
        ),
        (
            &["expose", "vm", "stays", "--name=door", "--port=22"],
            "could not find the requested resource (post services)",
        ),
        (&["adm", "log-verbosity", "--virt-api=5"], "developerConfiguration"),
        (&["guestfs", "stays"], "could not get guestfs image info"),
        (&["console", "nobody"], "\"nobody\" not found"),
        (&["vnc", "nobody", "--proxy-only"], "\"nobody\" not found"),
        (&["guestosinfo", "nobody"], "could not find the requested resource"),
        (&["addvolume", "stays", "--volume-name=none"], "is not a DataVolume or PersistentVolumeClaim"),
    ] {
        let said = virtctl.complains(command);
        assert!(said.contains(why), "virtctl {command:?} says {said}");
    }
    let file = virtctl.file("image", "bytes");
    for (kind, why) in
        [("pvc", "VirtualMachineImage of sourceType upload"), ("dv", "post datavolumes.cdi.kubevirt.io")]
    {
        let upload = ["image-upload", kind, "upload", "--size=1Gi", "--insecure", "--image-path", &file];
        let said = virtctl.complains(&upload);
        assert!(said.contains(why), "virtctl {upload:?} says {said}");
    }
    assert_eq!(farm.api().get(&format!("{CLAIMS}/upload")).code, 404, "and left nothing behind");
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn what_virtctl_makes_a_machine_of_is_taken() {
    let farm = farm();
    let virtctl = Virtctl::admin(&farm.node, "creates");
    let manifest =
        virtctl.says(&["create", "vm", "--name=created", "--run-strategy=Halted", "--memory=64Mi"]);
    let manifest: Value = serde_yaml_ng::from_str(&manifest).unwrap();
    let made = farm.api().post(MACHINES, &manifest).object();
    assert_eq!(made["spec"]["template"]["spec"]["domain"]["memory"]["guest"], "64Mi");
    let levels = virtctl.says(&["adm", "log-verbosity", "--all"]);
    assert!(levels.contains("virt-api=2"), "{levels}");
    assert!(
        virtctl.says(&["permitted-devices", "--namespace=harvester-system"]).contains("Permitted Devices")
    );
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_key_is_added_to_a_machine_that_is_off_and_taken_away_again() {
    let farm = farm();
    let virtctl = make(farm, "keyed", 3);
    let (_, key) = farm.ssh_key("keyed-key");
    virtctl.says(&["credentials", "add-ssh-key", "--user=root", "--value", &key, "keyed"]);
    let vm = farm.api().get(&format!("{MACHINES}/keyed")).object();
    let credential = &vm["spec"]["template"]["spec"]["accessCredentials"][0]["sshPublicKey"];
    assert_eq!(credential["propagationMethod"]["qemuGuestAgent"]["users"], json!(["root"]), "{vm}");
    let secret = credential["source"]["secret"]["secretName"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/default/secrets/{secret}");
    assert_eq!(farm.api().get(&path).object()["data"].as_object().unwrap().len(), 1);
    virtctl.says(&["credentials", "remove-ssh-key", "--user=root", "--value", &key, "keyed"]);
    assert_eq!(farm.api().get(&path).object()["data"].as_object().map_or(0, |data| data.len()), 0);
    let none = virtctl.complains(&["credentials", "set-password", "--user=root", "--password=p", "keyed"]);
    assert!(none.contains("no secrets assigned to UserPassword AccessCredentials"), "{none}");
}
