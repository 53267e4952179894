//! What needs a whole guest: cloud-init, SSH, firmware and the guest agent, in Debians that boot once.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};
use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, MACHINES, machine},
    patience::until_within,
    program::Ended,
    virtctl::Virtctl,
};

/// From power on to the end of cloud-init under emulation, on a machine that has other things to do.
const BOOT: Duration = Duration::from_secs(600);
/// What the disk of a guest is grown to.
const DISK_BYTES: &str = "3221225472";

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_whole_guest_is_reached_by_ssh_and_says_who_it_is() {
    let Some(image) = guests::debian() else { return };
    let farm = Farm::start();
    farm.image("debian", &image);
    // One key comes from a Secret, at boot; a second one through the agent, once it is there.
    let (first, first_public) = farm.ssh_key("first");
    let (second, second_public) = farm.ssh_key("second");
    let user_data = format!("#cloud-config\nssh_authorized_keys: [\"{first_public}\"]\n");
    let mac = "02:00:00:00:44:01";
    let network_data = format!(
        "version: 2\nethernets:\n  any:\n    match: {{macaddress: \"{mac}\"}}\n    set-name: front0\n    dhcp4: true\n"
    );
    secret(&farm, "seed", json!({"userdata": user_data, "networkdata": network_data}));
    secret(&farm, "keys", json!({"key": second_public}));
    let mut vm = whole("whole", "44444444-0000-4000-8000-000000000001");
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["devices"]["interfaces"][0]["macAddress"] = mac.into();
    spec["volumes"][1] = json!({"name": "seed", "cloudInitNoCloud": {
        "secretRef": {"name": "seed"}, "networkDataSecretRef": {"name": "seed"}}});
    spec["accessCredentials"] = json!([{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}},
        "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}}]);
    farm.api().post(MACHINES, &vm).object();
    farm.running("whole");

    until_true(&farm, "whole", "AgentConnected");
    let virtctl = Virtctl::admin(&farm.node, "whole");
    let info: Value = serde_json::from_str(&virtctl.says(&["guestosinfo", "whole"])).unwrap();
    assert_eq!(info["os"]["id"], "debian");
    assert_eq!(info["hostname"], "whole");
    let mounted: Value = serde_json::from_str(&virtctl.says(&["fslist", "whole"])).unwrap();
    let mounted = mounted["items"].as_array().unwrap().clone();
    assert!(mounted.iter().any(|one| one["mountPoint"] == "/"), "{mounted:?}");
    virtctl.says(&["userlist", "whole"]);

    let said = until_within(BOOT, "SSH to let the key of the seed in", || {
        let looks = "cloud-init status --wait; hostname; ls /sys/class/net; lsblk --noheadings --bytes --output NAME,SIZE";
        let ended = by_ssh(&virtctl, "whole", "debian", &first, looks);
        (ended.code == 0).then_some(ended.stdout)
    });
    assert!(said.contains("status: done") && said.contains("whole"), "{said}");
    assert!(said.contains("vda") && said.contains(DISK_BYTES), "{said}");
    assert!(said.contains("front0"), "the network data names the card: {said}");
    until_true(&farm, "whole", "AccessCredentialsSynchronized");
    let ended = by_ssh(&virtctl, "whole", "root", &second, "id --user");
    assert_eq!((ended.code, ended.stdout.trim()), (0, "0"), "{}", ended.stderr);
    // What the guest itself calls its card is told, with the address that it has.
    let instance = farm.instance("whole").unwrap();
    let interface = &instance["status"]["interfaces"][0];
    assert_eq!(interface["interfaceName"], "front0", "{interface}");

    // The guest goes when it is asked to, and its address is there again when it comes back.
    let address = interface["ipAddress"].clone();
    virtctl.says(&["stop", "whole"]);
    until_within(BOOT, "it to stop", || farm.instance("whole").is_none().then_some(()));
    virtctl.says(&["start", "whole"]);
    assert_eq!(farm.running("whole")["status"]["interfaces"][0]["ipAddress"], address);
}

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_guest_with_efi_reads_its_config_drive_and_takes_a_password_from_a_secret() {
    let Some(image) = guests::debian() else { return };
    let farm = Farm::start();
    farm.image("debian", &image);
    let (key, public) = farm.ssh_key("key");
    secret(&farm, "passwords", json!({"debian": "paper boat 7"}));
    let mac = "02:00:00:00:44:02";
    let mut vm = whole("modern", "44444444-0000-4000-8000-000000000002");
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["firmware"]["bootloader"] = json!({"efi": {"secureBoot": false}});
    spec["domain"]["devices"]["interfaces"][0]["macAddress"] = mac.into();
    // The form that a config drive has for networks is OpenStack's.
    let network_data = json!({
        "links": [{"id": "back0", "name": "back0", "type": "phy", "ethernet_mac_address": mac}],
        "networks": [{"id": "one", "link": "back0", "type": "ipv4_dhcp"}], "services": []});
    spec["volumes"][1] = json!({"name": "seed", "cloudInitConfigDrive": {
        "userData": format!("#cloud-config\nssh_authorized_keys: [\"{public}\"]\n"),
        "networkData": network_data.to_string()}});
    spec["accessCredentials"] = json!([{"userPassword": {"source": {"secret": {"secretName": "passwords"}},
        "propagationMethod": {"qemuGuestAgent": {}}}}]);
    farm.api().post(MACHINES, &vm).object();
    farm.running("modern");

    let virtctl = Virtctl::admin(&farm.node, "modern");
    let said = until_within(BOOT, "SSH to let the key of the drive in", || {
        let looks = "cloud-init status --wait; cloud-id; ls /sys/firmware/efi /sys/class/net";
        let ended = by_ssh(&virtctl, "modern", "debian", &key, looks);
        (ended.code == 0).then_some(ended.stdout)
    });
    assert!(said.contains("status: done"), "{said}");
    assert!(said.contains("configdrive") || said.contains("openstack"), "{said}");
    assert!(said.contains("efivars"), "{said}");
    assert!(said.contains("back0"), "{said}");

    until_true(&farm, "modern", "AccessCredentialsSynchronized");
    let mut console = virtctl.console("modern");
    console.types("\n");
    console.hears_within("login: ", BOOT);
    console.types("debian\n");
    console.hears_within("Password: ", BOOT);
    console.types("paper boat 7\n");
    console.hears_within("debian@modern", BOOT);
    console.types("echo $((6 * 7))\n");
    console.hears_within("42", BOOT);
    console.leave();
}

/// A machine with a whole Debian in it. Its volume `seed` and the firmware are the test's to choose.
fn whole(name: &str, uuid: &str) -> Value {
    let mut vm = machine(name, uuid, Some("debian"));
    let mut claims: Value = serde_json::from_str(
        vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap(),
    )
    .unwrap();
    claims[0]["spec"]["resources"]["requests"]["storage"] = DISK_BYTES.into();
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = claims.to_string().into();
    vm["spec"]["runStrategy"] = "RerunOnFailure".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["memory"]["guest"] = "512Mi".into();
    spec["domain"]["cpu"]["cores"] = 2.into();
    spec["terminationGracePeriodSeconds"] = 120.into();
    vm
}

fn secret(farm: &Farm, name: &str, data: Value) {
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
    farm.api().post("/api/v1/namespaces/default/secrets", &secret).object();
}

/// Runs a command in a guest over `virtctl ssh`.
fn by_ssh(virtctl: &Virtctl, machine: &str, user: &str, key: &Path, command: &str) -> Ended {
    let options =
        ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "ConnectTimeout=30", "LogLevel=ERROR"];
    let mut arguments = vec![
        "ssh".to_owned(),
        format!("{user}@vm/{machine}"),
        format!("--identity-file={}", key.display()),
        "--known-hosts=".to_owned(),
        format!("--command={command}"),
    ];
    arguments.extend(options.iter().map(|option| format!("--local-ssh-opts=-o {option}")));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    virtctl.run(&arguments)
}

/// Waits until a condition of an instance is true.
fn until_true(farm: &Farm, machine: &str, condition: &str) {
    until_within(BOOT, format!("{condition} of {machine}"), || {
        let instance = farm.instance(machine).unwrap();
        let all = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["type"] == condition && one["status"] == "True").then_some(())
    });
}
