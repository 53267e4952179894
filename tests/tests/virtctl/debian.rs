//! What needs a whole guest: cloud-init, SSH and the guest agent, in one Debian that boots once.

use std::{fs, os::unix::fs::PermissionsExt, process::Command};

use serde_json::{Value, json};
use sheaf_testbed::guests;
use sheaf_tests::{
    machines::{Farm, MACHINES, machine},
    patience::until_within,
    virtctl::Virtctl,
};

/// From power on to the end of cloud-init under emulation, on a machine that has other things to do.
const BOOT: std::time::Duration = std::time::Duration::from_secs(600);

#[test]
#[ignore = "needs the real virtctl: scripts/test brings it"]
fn a_whole_guest_is_reached_by_ssh_and_says_who_it_is() {
    let Some(image) = guests::debian() else { return };
    let farm = Farm::start();
    farm.image("debian", &image);
    let scratch = farm.node.scratch();
    let key = scratch.join("key");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status().unwrap();
    assert!(made.success());
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let public = fs::read_to_string(scratch.join("key.pub")).unwrap();

    // The key comes from a Secret, at boot; a second one through the agent, once it is there.
    let second = scratch.join("second");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&second)
        .status()
        .unwrap();
    assert!(made.success());
    let second_public = fs::read_to_string(scratch.join("second.pub")).unwrap();
    for (name, data) in [
        (
            "seed",
            json!({"userdata": format!("#cloud-config\nssh_authorized_keys: [\"{}\"]\n", public.trim())}),
        ),
        ("keys", json!({"key": second_public})),
    ] {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data});
        farm.api().post("/api/v1/namespaces/default/secrets", &secret).object();
    }
    let mut vm = machine("whole", "44444444-0000-4000-8000-000000000001", Some("debian"));
    let mut claims: Value = serde_json::from_str(
        vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap(),
    )
    .unwrap();
    claims[0]["spec"]["resources"]["requests"]["storage"] = "3Gi".into();
    vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"] = claims.to_string().into();
    vm["spec"]["runStrategy"] = "RerunOnFailure".into();
    let spec = &mut vm["spec"]["template"]["spec"];
    spec["domain"]["memory"]["guest"] = "512Mi".into();
    spec["domain"]["cpu"]["cores"] = 2.into();
    spec["volumes"][1] = json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}});
    spec["accessCredentials"] = json!([{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}},
        "propagationMethod": {"qemuGuestAgent": {"users": ["root"]}}}}]);
    spec["terminationGracePeriodSeconds"] = 120.into();
    farm.api().post(MACHINES, &vm).object();
    farm.running("whole");

    let is_true = |kind: &str| {
        let instance = farm.instance("whole").unwrap();
        let all = instance["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    until_within(BOOT, "the agent in the guest", || is_true("AgentConnected").then_some(()));
    let virtctl = Virtctl::admin(&farm.node, "whole");
    let info: Value = serde_json::from_str(&virtctl.says(&["guestosinfo", "whole"])).unwrap();
    assert_eq!(info["os"]["id"], "debian");
    assert_eq!(info["hostname"], "whole");
    let mounted: Value = serde_json::from_str(&virtctl.says(&["fslist", "whole"])).unwrap();
    let mounted = mounted["items"].as_array().unwrap().clone();
    assert!(mounted.iter().any(|one| one["mountPoint"] == "/"), "{mounted:?}");
    virtctl.says(&["userlist", "whole"]);

    let options = [
        "-o StrictHostKeyChecking=no",
        "-o UserKnownHostsFile=/dev/null",
        "-o ConnectTimeout=30",
        "-o LogLevel=ERROR",
    ];
    let by = |user: &str, key: &std::path::Path, command: &str| {
        let target = format!("{user}@vm/whole");
        let identity = format!("--identity-file={}", key.display());
        let mut arguments = vec![
            "ssh".to_owned(),
            target,
            identity,
            "--known-hosts=".to_owned(),
            format!("--command={command}"),
        ];
        arguments.extend(options.iter().map(|option| format!("--local-ssh-opts={option}")));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        virtctl.run(&arguments)
    };
    let said = until_within(BOOT, "SSH to let the key of the seed in", || {
        let ended = by(
            "debian",
            &key,
            "cloud-init status --wait; hostname; lsblk --noheadings --bytes --output NAME,SIZE",
        );
        (ended.code == 0).then_some(ended.stdout)
    });
    assert!(said.contains("status: done") && said.contains("whole"), "{said}");
    assert!(said.contains("vda") && said.contains("3221225472"), "{said}");
    until_within(BOOT, "the credentials to be told", || {
        is_true("AccessCredentialsSynchronized").then_some(())
    });
    let ended = by("root", &second, "id --user");
    assert_eq!((ended.code, ended.stdout.trim()), (0, "0"), "{}", ended.stderr);

    // The guest goes when it is asked to, and its address is there again when it comes back.
    let address = farm.instance("whole").unwrap()["status"]["interfaces"][0]["ipAddress"].clone();
    virtctl.says(&["stop", "whole"]);
    until_within(BOOT, "it to stop", || farm.instance("whole").is_none().then_some(()));
    virtctl.says(&["start", "whole"]);
    assert_eq!(farm.running("whole")["status"]["interfaces"][0]["ipAddress"], address);
}
