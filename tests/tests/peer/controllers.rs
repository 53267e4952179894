//! The other way round: Sheaf's own controllers on a server that is not Sheaf. They come to the same results there, object by
//! object, which proves that they use no private door.
//!
//! The original serves Sheaf's kinds from definitions and has Sheaf's roles. A simulated node says what an agent would.
//! What Sheaf's admission makes of a machine is asked of Sheaf and made so on both; on another server it would be a
//! webhook's work.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sheaf_controllers::Settings;
use sheaf_resources::{kinds::virtual_machine, rbac};
use sheaf_testbed::{Cluster, in_virtual_time, kubectl::Kubectl, simulated_node::*};
use sheaf_tests::{original::Original, program::Program};
use sheaf_world::World;
use tokio::time::sleep;

use crate::define_our_kinds;

/// Longer than a controller waits before it looks again at what it could not do.
const QUIET: Duration = Duration::from_secs(7);
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// All that a machine's life touches. Left out are Pods, which are Sheaf's to write and nobody's to run: another server
/// lets anybody write them, takes no status with a creation, and waits for a kubelet to let them go.
const COLLECTIONS: [&str; 6] = [VMS, VMIS, CLAIMS, VOLUMES, CONFIGS, POOLS];

/// Objects by kind and name.
type Snapshot = BTreeMap<String, Value>;

#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn controllers_lead_a_machine_through_life_as_they_do_on_sheaf() {
    let (vm, on_sheaf) = in_virtual_time(async {
        let cluster = Cluster::start(5).await;
        let kubectl = Kubectl(cluster.client());
        let controllers = cluster.start_controllers();
        let vm = admitted(&kubectl).await;
        let told = life(&kubectl, &vm, async || _ = cluster.settle().await).await;
        controllers.stop().await;
        (vm, told)
    });
    let on_original = on_the_original(&vm);
    let mut found = Vec::new();
    for ((moment, sheaf), (_, original)) in on_sheaf.iter().zip(&on_original) {
        let names: BTreeSet<_> = sheaf.keys().chain(original.keys()).collect();
        for name in names {
            let [ours, theirs] = [sheaf, original].map(|there| there.get(name).unwrap_or(&Value::Null));
            found.extend(differences(ours, theirs, &format!("{moment}: {name}")));
        }
    }
    assert_eq!(found, Vec::<String>::new());
    let [made, running, stopped, deleted] = &on_sheaf[..] else { panic!("four moments") };
    // What was compared is a life, and not four times nothing.
    assert_eq!(made.1["VirtualMachine vm"]["status"]["printableStatus"], "Stopped");
    assert_eq!(running.1["VirtualMachineInstance vm"]["status"]["phase"], "Running");
    assert!(!stopped.1.contains_key("VirtualMachineInstance vm"));
    assert_eq!(deleted.1.keys().collect::<Vec<_>>(), ["Events", "IPPool default"]);
}

/// Theirs are in a program that does not run here; Sheaf's do their work.
#[test]
#[ignore = "needs the original: make test-peer builds it"]
fn what_is_owned_goes_with_its_owner_when_sheafs_controllers_see_to_it() {
    let original = Original::start();
    hosting(&original, async |_| {
        let client = Program::of_admin("client-go", "SHEAF_CLIENT_GO", &original, "owners");
        tokio::task::spawn_blocking(move || client.says(&["owners"])).await.unwrap();
    });
}

/// A machine as Sheaf's admission has it made, with the finalizer that it puts on when one is deleted.
async fn admitted(kubectl: &Kubectl) -> Value {
    let mut vm = machine("vm", 1, "Halted");
    vm["metadata"]["finalizers"] = json!([virtual_machine::FINALIZER]);
    vm["metadata"]["annotations"][virtual_machine::REMOVED_CLAIMS_ANNOTATION] = json!("vm-root");
    let mut vm = kubectl.create(&format!("{VMS}?dryRun=All"), &vm).await;
    let metadata = vm["metadata"].as_object_mut().unwrap();
    metadata.retain(|name, _| ["annotations", "finalizers", "labels", "name"].contains(&name.as_str()));
    vm.as_object_mut().unwrap().remove("status");
    vm
}

fn on_the_original(vm: &Value) -> Vec<(&'static str, Snapshot)> {
    let original = Original::start();
    hosting(&original, async |kubectl| life(&kubectl, vm, async || settle(&kubectl).await).await)
}

/// Tells a story while Sheaf's controllers run on the original.
fn hosting<T>(original: &Original, story: impl AsyncFnOnce(Kubectl) -> T) -> T {
    define_our_kinds(original);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let kubeconfig = fs::read_to_string(original.admin_kubeconfig()).unwrap();
        let client = sheaf_client::from_kubeconfig(&kubeconfig).await.unwrap();
        let kubectl = Kubectl(client.clone());
        furnish_as_sheaf_does(&kubectl).await;
        let settings = Settings {
            ca_pem: "there is none to hand on".into(),
            legacy_token: Arc::new(|_, _, _, _| "nobody asks for one".into()),
            event_lifetime: sheaf_controllers::EVENT_LIFETIME,
            set_log_level: Arc::new(|_| Ok(())),
        };
        let controllers = sheaf_controllers::build(client, World::real(), settings);
        let running = tokio::spawn(controllers.run(std::future::pending()));
        let told = story(kubectl).await;
        running.abort();
        told
    })
}

/// What Sheaf makes at its first start: a role for each controller, which is a user of its own, and the pool of addresses.
async fn furnish_as_sheaf_does(kubectl: &Kubectl) {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-system"}});
    kubectl.create("/api/v1/namespaces", &namespace).await;
    let pool = json!({
        "apiVersion": "network.harvesterhci.io/v1alpha1", "kind": "IPPool", "metadata": {"name": "default"},
        "spec": {"networkName": "harvester-system/default", "ipv4Config": {
            "cidr": "10.52.0.0/16", "router": "10.52.0.1", "serverIP": "10.52.0.1", "dns": ["10.52.0.1"], "pool": {},
        }},
    });
    kubectl.create(POOLS, &pool).await;
    let of_controllers =
        |object: &Value| object["metadata"]["name"].as_str().unwrap().starts_with(&rbac::controller_user(""));
    for (plural, objects) in
        [("clusterroles", rbac::cluster_roles()), ("clusterrolebindings", rbac::cluster_role_bindings())]
    {
        for object in objects.iter().filter(|object| of_controllers(object)) {
            kubectl.create(&format!("/apis/rbac.authorization.k8s.io/v1/{plural}"), object).await;
        }
    }
}

/// Waits until nothing has been written for a while, in the time that there is.
async fn settle(kubectl: &Kubectl) {
    let began = Instant::now();
    let (mut last, mut since) = (Vec::new(), Instant::now());
    while since.elapsed() < QUIET {
        assert!(began.elapsed() < PATIENCE, "the controllers never come to rest");
        let mut now = Vec::new();
        for path in COLLECTIONS {
            now.extend(
                items(kubectl, path).await.iter().map(|item| item["metadata"]["resourceVersion"].clone()),
            );
        }
        if now != last {
            (last, since) = (now, Instant::now());
        }
        sleep(Duration::from_millis(300)).await;
    }
}

/// Makes a machine, starts it, stops it and deletes it with its disk; tells all there is at each moment.
async fn life(kubectl: &Kubectl, vm: &Value, settle: impl AsyncFn()) -> Vec<(&'static str, Snapshot)> {
    settle().await;
    furnish_without_nodes(kubectl).await;
    add_node(kubectl, "n1", "8Gi").await;
    // The original gives every new node a taint, and another program of its makers takes it off.
    kubectl.patch(&format!("{NODES}/n1"), &json!({"spec": {"taints": null}})).await;
    play_agent_every(LOOK_EVERY, kubectl, "n1");
    settle().await;

    let mut names = Names::default();
    let mut told = Vec::new();
    kubectl.create(VMS, vm).await;
    settle().await;
    told.push(("made", names.snapshot(kubectl).await));
    for (moment, strategy) in [("running", "Always"), ("stopped", "Halted")] {
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": strategy}})).await;
        settle().await;
        told.push((moment, names.snapshot(kubectl).await));
    }
    kubectl.delete(&format!("{VMS}/vm"), "Background").await;
    settle().await;
    told.push(("deleted", names.snapshot(kubectl).await));
    told
}

/// What each identity that a server drew is called instead.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// All there is, without what no two servers share: identities, times and versions.
    async fn snapshot(&mut self, kubectl: &Kubectl) -> Snapshot {
        let mut found = Vec::new();
        for path in COLLECTIONS {
            let list = kubectl.get(path).await.unwrap();
            let kind = list["kind"].as_str().unwrap().trim_end_matches("List").to_owned();
            for object in list["items"].as_array().unwrap() {
                let name = object["metadata"]["name"].as_str().unwrap();
                let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
                self.0
                    .entry(uid)
                    .or_insert_with(|| format!("uid-of-{kind}-{}", name.split('-').next().unwrap()));
                found.push((kind.clone(), object.clone()));
            }
        }
        let events = items(kubectl, EVENTS).await;
        let mut snapshot: Snapshot = found
            .into_iter()
            .map(|(kind, object)| {
                let mut object = self.named(&object);
                without_what_differs(&mut object);
                (format!("{kind} {}", object["metadata"]["name"].as_str().unwrap()), object)
            })
            .collect();
        snapshot.insert("Events".into(), self.named(&summary(&events)));
        snapshot
    }

    fn named(&self, object: &Value) -> Value {
        let mut text = object.to_string();
        for (uid, name) in &self.0 {
            text = text.replace(uid, name);
        }
        serde_json::from_str(&text).unwrap()
    }
}

/// What was told, and of whom, in an order of its own: their names are drawn.
fn summary(events: &[Value]) -> Value {
    let mut told: Vec<String> = events
        .iter()
        .map(|event| {
            let about = &event["involvedObject"];
            format!("{} {}: {} {}", about["kind"], about["name"], event["reason"], event["message"])
        })
        .collect();
    told.sort();
    told.into()
}

fn without_what_differs(object: &mut Value) {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["resourceVersion", "managedFields", "creationTimestamp"] {
        metadata.remove(field);
    }
    // Put on by the original when a claim is made, by Sheaf when one that is used is deleted.
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|finalizer| finalizer != "kubernetes.io/pvc-protection");
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        }
    }
    // An item of a list need not say what it is.
    for field in ["apiVersion", "kind"] {
        object.as_object_mut().unwrap().remove(field);
    }
    // The original notes it by itself when a volume changes; Sheaf does not.
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("lastPhaseTransitionTime");
    }
    hide_times(object);
}

fn hide_times(value: &mut Value) {
    match value {
        Value::String(text) if text.parse::<sheaf_world::Timestamp>().is_ok() => *text = "a time".into(),
        Value::Object(fields) => fields.values_mut().for_each(hide_times),
        Value::Array(items) => items.iter_mut().for_each(hide_times),
        _ => {}
    }
}

/// Where two objects are not the same, in words.
fn differences(sheaf: &Value, original: &Value, path: &str) -> Vec<String> {
    match (sheaf, original) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
            let field = |object: &serde_json::Map<String, Value>, name: &String| {
                object.get(name).cloned().unwrap_or_default()
            };
            names
                .iter()
                .flat_map(|name| {
                    differences(&field(ours, name), &field(theirs, name), &format!("{path}.{name}"))
                })
                .collect()
        }
        (ours, theirs) if ours == theirs => Vec::new(),
        (ours, theirs) => vec![format!("{path}: {ours} on Sheaf, {theirs} on the original")],
    }
}
