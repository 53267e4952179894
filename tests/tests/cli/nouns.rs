//! Verbs on nouns, where no machine has to run.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;
use sheaf_tests::{node::Node, patience};

use crate::{
    golden::is_golden,
    person::{Person, shared},
};

#[test]
fn the_nouns_and_their_verbs_are_told() {
    let anybody = Person::in_namespace("cli-help");
    for words in [&["--help"][..], &["vm", "--help"], &["vm", "create", "--help"], &["login", "--help"]] {
        let name = format!("help-{}", words[..words.len() - 1].join("-"));
        is_golden(name.trim_end_matches('-'), &anybody.says(words));
    }
}

#[test]
fn a_volume_is_made_shown_and_deleted() {
    let anna = Person::in_namespace("cli-volumes");
    assert_eq!(
        anna.says(&["volume", "list"]),
        "there is no volume in namespace cli-volumes; `sheaf volume create NAME --size 20Gi` makes one\n"
    );
    anna.says(&["volume", "create", "data", "--size", "1Gi", "--wait"]);
    is_golden("volume-list", &anna.says(&["volume", "list", "-o", "wide"]));
    is_golden("volume-show", &anna.says(&["volume", "show", "data"]));
    assert_eq!(anna.says(&["volume", "list", "-o", "name"]), "persistentvolumeclaim/data\n");
    let list: Value = serde_json::from_str(&anna.says(&["volume", "list", "-o", "json"])).unwrap();
    assert_eq!((&list["kind"], &list["items"][0]["metadata"]["name"]), (&"List".into(), &"data".into()));
    assert!(list["items"][0]["metadata"]["managedFields"].is_null());
    let shown: Value =
        serde_yaml_ng::from_str(&anna.says(&["volume", "show", "data", "-o", "yaml"])).unwrap();
    assert_eq!(shown["kind"], "PersistentVolumeClaim");
    // A volume that nobody runs with is not waited for.
    assert_eq!(
        anna.says(&["volume", "resize", "data", "2Gi", "--wait"]),
        "volume cli-volumes/data has 2 GiB from when its machine next starts\n"
    );
    let smaller = anna.complains(&["volume", "resize", "data", "1Gi"], 1);
    assert!(smaller.starts_with("sheaf: cannot change the volume cli-volumes/data: "), "{smaller}");
    let asked = anna.complains(&["volume", "delete", "data"], 2);
    assert!(asked.contains("What is on it is lost") && asked.contains("--yes"), "{asked}");
    assert_eq!(
        anna.says(&["volume", "delete", "data", "--yes", "--wait"]),
        "volume cli-volumes/data is gone\n"
    );
}

#[test]
fn a_machine_that_is_off_is_made_listed_and_deleted_with_what_it_says() {
    let anna = Person::in_namespace("cli-machines");
    anna.says(&["volume", "create", "disk", "--size", "1Gi"]);
    let made = anna.says(&[
        "vm",
        "create",
        "web",
        "--volume",
        "disk",
        "--cpus",
        "1",
        "--memory",
        "256Mi",
        "--stopped",
        "--description",
        "for the shop",
        "--label",
        "app=web",
    ]);
    is_golden("vm-create", &made);
    is_golden("vm-list", &anna.says(&["vm", "list", "-o", "wide"]));
    is_golden("vm-show", &anna.says(&["vm", "show", "web"]));
    assert!(anna.says(&["vm", "list", "-l", "app=web"]).contains("web"));
    assert!(anna.says(&["vm", "list", "-l", "app=db"]).starts_with("there is no virtual machine"));
    assert!(anna.says(&["vm", "list", "-A"]).contains("cli-machines   web"));
    assert_eq!(
        anna.says(&["vm", "resize", "web", "--cpus", "3", "--memory", "512Mi"]),
        "virtual machine cli-machines/web is resized\n"
    );
    assert!(anna.says(&["vm", "list"]).contains("web    Stopped   3      512 MiB"));
    // Nothing of what holds data goes unasked.
    let gone = anna.says(&["vm", "delete", "web", "--yes", "--wait"]);
    assert_eq!(gone, "virtual machine cli-machines/web is gone; its disks stay: disk\n");
    assert!(anna.says(&["volume", "list"]).contains("disk"));
}

#[test]
fn many_machines_are_made_at_once_with_disks_of_their_own() {
    let anna = Person::in_namespace("cli-many");
    let made = anna.complains(&["vm", "create", "row", "--count", "3", "--stopped"], 2);
    assert!(made.contains("say what it boots from"), "{made}");
    let file = anna.home.path().join("small.raw");
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    anna.says(&["image", "upload", file.to_str().unwrap(), "--name", "small"]);
    let made =
        anna.says(&["vm", "create", "row", "--count", "3", "--stopped", "--image", "small", "--disk", "1Gi"]);
    assert_eq!(made.lines().count(), 3, "{made}");
    let names = anna.says(&["vm", "list", "-o", "name"]);
    assert_eq!(
        names,
        "virtualmachine.kubevirt.io/row-1\nvirtualmachine.kubevirt.io/row-2\nvirtualmachine.kubevirt.io/row-3\n"
    );
    let volumes = anna.says(&["volume", "list", "-o", "name"]);
    assert!(volumes.contains("row-1-disk-0") && volumes.contains("row-3-disk-0"), "{volumes}");
    let long = "x".repeat(62);
    let why = anna.complains(&["vm", "create", &long, "--count", "10", "--image", "small"], 2);
    assert!(why.contains("too long"), "{why}");
    let shared = anna.complains(&["vm", "create", "a", "--count", "2", "--volume", "row-1-disk-0"], 2);
    assert!(shared.contains("a volume is one machine's"), "{shared}");
}

#[test]
fn what_would_be_made_is_printed_and_can_be_applied() {
    let anna = Person::in_namespace("cli-dry");
    anna.says(&["volume", "create", "disk", "--size", "1Gi"]);
    let words = ["vm", "create", "web", "--volume", "disk", "--stopped", "--dry-run"];
    let yaml = anna.says(&words);
    assert!(anna.says(&["vm", "list"]).starts_with("there is no virtual machine"));
    let applied = anna.runs_with_input(&["apply", "-f", "-"], &yaml);
    assert_eq!(
        (applied.code, applied.stdout.as_str()),
        (0, "virtualmachine.kubevirt.io/web made\n"),
        "{applied:?}"
    );
}

#[test]
fn user_data_with_a_key_is_brought_and_a_private_key_is_not() {
    let anna = Person::in_namespace("cli-keys");
    let private = anna.home.path().join("id");
    let drawn = anna.says(&["key", "create", "drawn", "--generate", private.to_str().unwrap()]);
    assert!(drawn.contains("nowhere else"), "{drawn}");
    assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&private).unwrap();
    assert!(text.starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"), "{text}");
    let twice = anna.complains(&["key", "create", "again", "--generate", private.to_str().unwrap()], 2);
    assert!(twice.contains("is not written over"), "{twice}");
    let wrong = anna.complains(&["key", "create", "wrong", "--public-key", private.to_str().unwrap()], 2);
    assert!(wrong.contains("private half") && wrong.contains("nothing was sent"), "{wrong}");
    let list = anna.says(&["key", "list"]);
    assert!(list.contains("drawn") && !list.contains("wrong"), "{list}");

    anna.says(&["volume", "create", "disk", "--size", "1Gi"]);
    let yaml =
        anna.says(&["vm", "create", "web", "--volume", "disk", "--stopped", "--dry-run", "--key", "drawn"]);
    assert!(yaml.contains("ssh_authorized_keys") && yaml.contains("cli-keys/drawn"), "{yaml}");
    let no_key = anna.complains(&["vm", "create", "web", "--volume", "disk", "--key", "drwan"], 3);
    assert!(no_key.contains("did you mean drawn?"), "{no_key}");
}

#[test]
fn networks_templates_settings_and_hosts_are_looked_at() {
    let anna = Person::in_namespace("cli-rest");
    anna.says(&["network", "create", "lan"]);
    is_golden("network-list", &anna.says(&["network", "list"]));
    is_golden("network-show", &anna.says(&["network", "show", "lan"]));
    is_golden("template-list", &anna.says(&["template", "list", "-A"]));
    assert!(anna.says(&["host", "list"]).contains("ready"));
    let hosts = anna.says(&["host", "list", "-o", "name"]);
    let host = hosts.trim().trim_start_matches("node/");
    assert!(anna.says(&["host", "show", host]).contains("Room for volumes:"));

    assert_eq!(anna.says(&["setting", "get", "log-level"]), "info\n");
    anna.says(&["setting", "set", "log-level", "debug"]);
    assert_eq!(anna.says(&["setting", "get", "log-level"]), "debug\n");
    let typed = anna.runs_with_input(&["setting", "set", "log-level", "--file", "-"], "trace\n");
    assert_eq!(typed.code, 0, "{typed:?}");
    assert_eq!(anna.says(&["setting", "get", "log-level"]), "trace\n");
    anna.complains(&["setting", "set", "log-level"], 2);
    let nothing = anna.runs_with_input(&["setting", "set", "log-level", "--file", "-"], "\n");
    assert!(nothing.code == 2 && nothing.stderr.contains("sheaf setting reset"), "{nothing:?}");
    assert_eq!(anna.says(&["setting", "get", "log-level"]), "trace\n");
    anna.says(&["setting", "reset", "log-level"]);
    assert_eq!(anna.says(&["setting", "get", "log-level"]), "info\n");
    let wrong = anna.complains(&["setting", "set", "log-level", "loud"], 1);
    assert!(wrong.contains("must be one of"), "{wrong}");
    let idle = anna.says(&["setting", "list"]);
    assert!(idle.contains("none yet") && idle.contains("acts"), "{idle}");
}

#[test]
fn what_is_there_is_copied_exported_made_a_template_of_and_deleted() {
    let node = Node::start();
    let anna = Person::of(&node, "default");
    anna.says(&["volume", "create", "data", "--size", "1Gi", "--wait"]);
    let copied = anna.says(&["volume", "clone", "data", "copy", "--wait"]);
    assert_eq!(copied, "volume default/copy is a copy of data\n");
    let exported = anna.says(&["volume", "export", "data", "shot", "--wait"]);
    assert!(exported.ends_with("(shot) is an image of the volume data\n"), "{exported}");
    let images = anna.says(&["image", "list", "-o", "name"]);
    let image = images.trim().rsplit('/').next().unwrap();
    let shown = anna.says(&["image", "show", image]);
    assert!(shown.contains("shot") && shown.contains("1 GiB"), "{shown}");
    anna.says(&["image", "delete", image, "--yes", "--wait"]);
    let unreachable =
        anna.runs(&["image", "import", "http://127.0.0.1:1/a.raw", "--name", "never", "--wait"]);
    assert_eq!(unreachable.code, 1, "{unreachable:?}");
    // The reason, and not only that it was tried often enough.
    let said = &unreachable.stderr;
    assert!(
        said.contains("default/never") && said.contains("nothing is fetched from 127.0.0.1,"),
        "{unreachable:?}"
    );

    anna.says(&["vm", "create", "web", "--volume", "copy", "--stopped"]);
    anna.says(&["template", "create", "webby", "--from", "web"]);
    patience::until("the template", || {
        let shown = anna.runs(&["template", "show", "webby"]);
        (shown.code == 0 && shown.stdout.contains("webby")).then_some(())
    });
    assert_eq!(
        anna.says(&["template", "delete", "webby", "--yes", "--wait"]),
        "template default/webby is gone\n"
    );
    anna.says(&["network", "create", "lan"]);
    assert_eq!(anna.says(&["network", "delete", "lan", "--yes", "--wait"]), "network default/lan is gone\n");
    let key = anna.home.path().join("id");
    anna.says(&["key", "create", "mine", "--generate", key.to_str().unwrap()]);
    assert_eq!(anna.says(&["key", "delete", "mine", "--yes", "--wait"]), "key default/mine is gone\n");

    assert_eq!(
        anna.says(&["host", "cordon", "n1"]),
        "host n1 gets no more machines; those that run there run on\n"
    );
    assert!(anna.says(&["host", "list"]).contains("cordoned"));
    assert_eq!(anna.says(&["host", "uncordon", "n1"]), "host n1 gets machines again\n");
    assert!(!anna.says(&["host", "list"]).contains("cordoned"));
}

#[test]
fn who_waits_in_vain_is_told_so_with_a_code_of_its_own() {
    let anna = Person::in_namespace("cli-held");
    let held = "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/held]}}";
    assert_eq!(anna.runs_with_input(&["apply", "-f", "-"], held).code, 0);
    let ended = anna.runs(&["delete", "configmap", "held", "--yes", "--wait", "--timeout", "1s"]);
    assert_eq!(ended.code, 7, "{ended:?}");
    assert!(ended.stderr.contains("held") && ended.stderr.contains("waited 1"), "{ended:?}");
    let free = r#"{"metadata": {"finalizers": null}}"#;
    let address = "/api/v1/namespaces/cli-held/configmaps/held";
    assert!(shared().admin().connect(shared()).patch(address, "merge", free).code < 300);
}
