//! Support bundles of the real binary: everything by name, no secret in any form, also when the node dies on the way.

use std::{
    fs::{self, File},
    io::Read,
    process::{Command, Output, Stdio},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sheaf_tests::{
    addresses,
    http::Credentials,
    machines::{Farm, MACHINES, SECRETS, machine},
    node::{self, Node},
    patience::until,
};

const BUNDLES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/supportbundles";

fn sheaf(words: &[&str]) -> Output {
    Command::new(node::binary()).args(words).stdin(Stdio::null()).output().unwrap()
}

fn bundle(name: &str) -> Value {
    json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "SupportBundle", "metadata": {"name": name},
        "spec": {"description": "it hangs"}})
}

/// The paths in a zip file and all that is in them.
fn unzipped(file: File) -> (Vec<String>, String) {
    let mut zip = zip::ZipArchive::new(file).unwrap();
    let (mut paths, mut all) = (Vec::new(), Vec::new());
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        assert!(entry.enclosed_name().is_some(), "{name} leads out of it");
        paths.push(name.split_once('/').unwrap().1.to_owned());
        all.extend_from_slice(name.as_bytes());
        entry.read_to_end(&mut all).unwrap();
    }
    (paths, String::from_utf8_lossy(&all).into_owned())
}

/// Makes a secret of every kind that there is; answers them.
fn plant(farm: &Farm) -> Vec<(&'static str, String)> {
    let mut api = farm.api();
    let mut planted = Vec::new();
    let mut plant = |what, secret: &str| {
        planted.push((what, secret.to_owned()));
        secret.to_owned()
    };
    let text = plant("stringData of a Secret", "Tulip-stringdata-4711");
    let data = plant("data of a Secret", "Tulip-data-4712");
    let seed = plant("cloud-init in a Secret", "Tulip-seed-4713");
    let inline = plant("cloud-init in a machine", "Tulip-inline-4714");
    let map = plant("data of a ConfigMap", "Tulip-map-4715");
    let proxy = plant("a proxy's password in a setting", "Tulip-proxy-4716");
    let note = plant("an annotation", "Tulip-note-4717");
    let (private, public) = farm.ssh_key("planted");
    plant("a public key", public.split(' ').nth(1).unwrap());
    for line in fs::read_to_string(private).unwrap().lines().filter(|line| line.len() > 40) {
        plant("a private key", line);
    }

    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": note, "mine": note});
    let secret = json!({"metadata": {"name": "a-secret", "annotations": annotations},
        "stringData": {"text": text}, "data": {"data": STANDARD.encode(&data)}});
    api.post(SECRETS, &secret).object();
    let userdata = format!("#cloud-config\npassword: {seed}\n");
    api.post(SECRETS, &json!({"metadata": {"name": "seed"}, "stringData": {"userdata": userdata}})).object();
    let config = json!({"metadata": {"name": "a-map"}, "data": {"script": map}});
    api.post("/api/v1/namespaces/default/configmaps", &config).object();
    let pair = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "a-pair"},
        "spec": {"publicKey": public}});
    api.post("/apis/harvesterhci.io/v1beta1/namespaces/default/keypairs", &pair).object();
    let value = json!({"httpProxy": format!("http://jo:{proxy}@127.0.0.1:3128")}).to_string();
    let change = json!({"value": value}).to_string();
    api.patch("/apis/harvesterhci.io/v1beta1/settings/http-proxy", "merge", &change).object();

    let mut vm = machine("told", "77777777-0000-4000-8000-000000000001", None);
    vm["metadata"]["annotations"]["mine"] = json!(note);
    vm["spec"]["runStrategy"] = json!("Always");
    vm["spec"]["template"]["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] =
        json!(format!("#cloud-config\npassword: {inline}\n"));
    api.post(MACHINES, &vm).object();
    let mut vm = machine("referring", "77777777-0000-4000-8000-000000000002", None);
    vm["spec"]["template"]["spec"]["volumes"][1] =
        json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "seed"}}});
    api.post(MACHINES, &vm).object();
    farm.running("told");

    // A password, and the token that it is exchanged for.
    let password = fs::read_to_string(farm.node.data_dir().join("admin-password")).unwrap().trim().to_owned();
    let login = json!({"username": "admin", "password": password}).to_string();
    let path = "/v3-public/localProviders/local?action=login";
    let token = api.ask("POST", path, &[("content-type", "application/json")], login.as_bytes()).object();
    let token = token["token"].as_str().unwrap().to_owned();
    plant("a user's password", &password);
    plant("an API token", token.split_once(':').unwrap().1);

    // Tokens of service accounts, with and without an end.
    let account = "/api/v1/namespaces/default/serviceaccounts";
    api.post(account, &json!({"metadata": {"name": "robot"}})).object();
    let asked = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let given = api.post(&format!("{account}/robot/token"), &asked).object();
    plant("a service account's token", given["status"]["token"].as_str().unwrap());
    let endless = json!({"metadata": {"name": "robot-token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    api.post(SECRETS, &endless).object();
    let endless = until("a token without an end", || {
        let secret = api.get(&format!("{SECRETS}/robot-token")).object();
        Some(STANDARD.decode(secret["data"]["token"].as_str()?).unwrap())
    });
    plant("a service account's token without an end", std::str::from_utf8(&endless).unwrap());

    // What the node itself must never give away.
    for file in ["pki/ca.key", "pki/admin.key", "pki/apiserver.key", "keys/service-account.pem"] {
        let text =
            fs::read_to_string(farm.node.data_dir().join(file)).unwrap_or_else(|why| panic!("{file}: {why}"));
        for line in text.lines().filter(|line| line.len() > 40) {
            plant("a key of the cluster", line);
        }
    }
    let keys: Value =
        serde_json::from_slice(&fs::read(farm.node.data_dir().join("keys/encryption.json")).unwrap())
            .unwrap();
    for key in texts(&keys).into_iter().filter(|text| text.len() > 30) {
        plant("a key for secrets at rest", &key);
    }
    planted
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(elements) => elements.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

#[test]
fn a_bundle_has_everything_by_name_and_no_secret_in_any_form() {
    let network = addresses::next_network();
    // What is logged is most at this level.
    let node = Node::start_with(&["--vm-cidr", &network, "--audit-level", "RequestResponse"]);
    let farm = Farm::with_node(node, &network);
    let planted = plant(&farm);
    assert!(planted.len() > 15, "{}", planted.len());

    let (file, kubeconfig) = (farm.node.scratch().join("b.zip"), farm.node.admin_kubeconfig());
    let words =
        ["support-bundle", "--description", "it hangs", "--output", file.to_str().unwrap(), "--kubeconfig"];
    let ended = sheaf(&[&words[..], &[kubeconfig.to_str().unwrap()]].concat());
    let (told, why) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success(), "{why}\n{}", farm.node.log());
    assert!(told.contains("every object, without secrets") && told.contains("Not in it"), "{told}");

    let (paths, all) = unzipped(File::open(&file).unwrap());
    for (what, secret) in &planted {
        assert!(!all.contains(secret.as_str()), "{what} is in the bundle");
        let encoded = STANDARD.encode(secret);
        assert!(!all.contains(encoded.trim_end_matches('=')), "{what} is in the bundle, encoded");
    }
    assert!(!all.contains("PRIVATE KEY"));
    for name in ["a-secret", "a-map", "a-pair", "robot-token", "told", "referring", "it hangs"] {
        assert!(all.contains(name), "{name}");
    }
    for path in [
        "README.txt",
        "metadata.yaml",
        "metrics.txt",
        "bundleGenerationError.log",
        "yamls/cluster/v1/nodes.yaml",
        "yamls/cluster/harvesterhci.io/v1beta1/settings.yaml",
        "yamls/cluster/management.cattle.io/v3/users.yaml",
        "yamls/namespaced/default/v1/secrets.yaml",
        "yamls/namespaced/default/v1/events.yaml",
        "yamls/namespaced/default/kubevirt.io/v1/virtualmachines.yaml",
        "yamls/namespaced/default/kubevirt.io/v1/virtualmachineinstances.yaml",
        "nodes/n1/host/version.txt",
        "nodes/n1/host/proc/meminfo",
        "nodes/n1/host/links.txt",
        "nodes/n1/host/qemu.txt",
        "nodes/n1/host/data-directory.txt",
        "nodes/n1/logs/sheaf.txt",
        "nodes/n1/logs/audit.jsonl",
    ] {
        assert!(paths.iter().any(|found| found == path), "{path} is not in {paths:#?}");
    }
    for ending in ["/machine.json", "/process.txt", "/qemu.log"] {
        assert!(
            paths.iter().any(|path| path.starts_with("nodes/n1/machines/") && path.ends_with(ending)),
            "{ending}"
        );
    }

    // The cluster forgets it, and so does the disk.
    let mut api = farm.api();
    assert_eq!(api.get(BUNDLES).object()["items"], json!([]));
    let kept = farm.node.data_dir().join("support-bundles");
    until("the file to go", || fs::read_dir(&kept).unwrap().next().is_none().then_some(()));

    // Who edits one namespace makes none and fetches none.
    let binding = json!({"metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    api.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).object();
    let token = &planted.iter().find(|(what, _)| *what == "a service account's token").unwrap().1;
    let mut robot = Credentials::anonymous(&farm.node).with_token(token).connect(&farm.node);
    assert_eq!(robot.get(SECRETS).code, 200);
    assert_eq!(robot.post(BUNDLES, &bundle("mine")).code, 403);
    assert_eq!(robot.post(&BUNDLES.replace("harvester-system", "default"), &bundle("mine")).code, 403);
    api.post(BUNDLES, &bundle("theirs")).object();
    for what in ["download", "cluster"] {
        assert_eq!(robot.get(&format!("/v1/harvester/supportbundles/theirs/{what}")).code, 403);
    }
    let nowhere = robot.get("/v1/harvester/supportbundles/../../../etc/passwd/download");
    assert!([403, 404].contains(&nowhere.code), "{}", nowhere.code);
}

#[test]
fn a_bundle_arrives_whole_whichever_step_the_node_dies_at() {
    let mut node = Node::start();
    let kept = node.data_dir().join("support-bundles");
    let order = node.scratch().join("order");
    // What is nobody's goes.
    for stray in ["0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c11.zip", "0b1d9c3e-6d56-4f5f-8d7c-8a2f3f1f0c12.new"] {
        fs::write(kept.join(stray), "left by somebody").unwrap();
    }
    for step in ["BeginBundle", "GatherBundle", "KeepBundle"] {
        node.kill();
        let place = node.into_place();
        let arguments = ["--die-as-told-in", order.to_str().unwrap()];
        let mut mortal = Node::start_mortal(&place, &arguments).unwrap();
        fs::write(order.with_extension("new"), step).unwrap();
        fs::rename(order.with_extension("new"), &order).unwrap();
        let name = step.to_lowercase();
        mortal.admin().connect(&mortal).post(BUNDLES, &bundle(&name)).object();
        until(format!("the node to die after {step}"), || mortal.has_ended().then_some(()));
        node = Node::start_mortal(&mortal.into_place(), &[]).unwrap();
        let mut api = node.admin().connect(&node);
        let made = until(format!("the bundle after {step}"), || {
            let bundle = api.get(&format!("{BUNDLES}/{name}")).object();
            assert_ne!(bundle["status"]["state"], "error", "{bundle:#}");
            (bundle["status"]["state"] == "ready").then_some(bundle)
        });
        let uid = made["metadata"]["uid"].as_str().unwrap();
        let found: Vec<String> = fs::read_dir(&kept)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(found, [format!("{uid}.zip")], "after {step}");

        let path = format!("/v1/harvester/supportbundles/{name}/download");
        let answer = api.get(&path);
        assert_eq!((answer.code, made["status"]["filesize"].as_u64()), (200, Some(answer.body.len() as u64)));
        let disposition = answer.header("content-disposition").unwrap();
        assert_eq!(
            disposition,
            format!("attachment; filename={}", made["status"]["filename"].as_str().unwrap())
        );
        let file = node.scratch().join("fetched.zip");
        fs::write(&file, &answer.body).unwrap();
        let (paths, _) = unzipped(File::open(&file).unwrap());
        assert!(paths.iter().any(|path| path == "yamls/cluster/v1/nodes.yaml"));
        // Fetched, it is there to be fetched again; deleted, it is gone, here and there.
        assert_eq!(api.get(&path).body.len(), answer.body.len());
        assert_eq!(api.delete(&format!("{BUNDLES}/{name}")).code, 200);
        until("the bundle to go", || (api.get(&path).code == 404).then_some(()));
        until("its file to go", || fs::read_dir(&kept).unwrap().next().is_none().then_some(()));
    }
}
