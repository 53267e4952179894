//! What is promised of a node's disk: never more than may be, whoever asks, and whoever waits for room gets it.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

const SETTING: &str = "/apis/harvesterhci.io/v1beta1/settings/overcommit-config";

fn claim(name: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": CLASS,
            "resources": {"requests": {"storage": size}}},
    })
}

/// A node gives so much to volumes.
async fn give(kubectl: &Kubectl, node: &str, size: &str) {
    let status = json!({"status": {"allocatable": {"sheaf.io/volume-storage": size}}});
    kubectl.patch(&format!("{NODES}/{node}/status"), &status).await;
}

async fn set_percent(kubectl: &Kubectl, percent: u32) {
    let value = json!({"cpu": 1000, "memory": 150, "storage": percent}).to_string();
    kubectl.patch(SETTING, &json!({"value": value})).await;
}

async fn status_of(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{CLAIMS}/{name}")).await.unwrap()["status"].clone()
}

async fn is_bound(kubectl: &Kubectl, name: &str) -> bool {
    status_of(kubectl, name).await["phase"] == "Bound"
}

/// What events about an object say, of those that give this reason.
async fn messages(kubectl: &Kubectl, name: &str, reason: &str) -> Vec<String> {
    let events = items(kubectl, EVENTS).await;
    let about = events.iter().filter(|one| one["involvedObject"]["name"] == name && one["reason"] == reason);
    about.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

async fn halve(kubectl: &Kubectl) {
    furnish(kubectl).await;
    give(kubectl, "n1", "3Gi").await;
    kubectl.create(CLAIMS, &claim("there", "2Gi")).await;
}

#[test]
fn a_claim_that_does_not_fit_waits_with_the_numbers_and_is_bound_when_a_volume_goes() {
    on_a_cluster(async |cluster, kubectl| {
        halve(kubectl).await;
        cluster.settle().await;
        kubectl.create(CLAIMS, &claim("waits", "2Gi")).await;
        kubectl.create(CLAIMS, &claim("fits", "1Gi")).await;
        cluster.settle().await;
        assert!(is_bound(kubectl, "there").await && is_bound(kubectl, "fits").await);
        let status = status_of(kubectl, "waits").await;
        assert_eq!(status["phase"], "Pending");
        let condition = &status["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("ProvisioningFailed"), &json!("InsufficientStorage"))
        );
        let told = messages(kubectl, "waits", "ProvisioningFailed").await;
        let last = told.last().unwrap();
        for number in
            ["asks for 2Gi", "node n1 has 3Gi for volumes", "100 % may be promised", "overcommit-config"]
        {
            assert!(last.contains(number), "{number}: {last}");
        }
        kubectl.delete(&format!("{CLAIMS}/there"), "Background").await;
        cluster.settle().await;
        let status = status_of(kubectl, "waits").await;
        assert_eq!((&status["phase"], &status["conditions"]), (&json!("Bound"), &json!([])));
    });
}

#[test]
fn who_waits_for_room_gets_it_from_the_setting_and_from_a_larger_disk() {
    on_a_cluster(async |cluster, kubectl| {
        halve(kubectl).await;
        cluster.settle().await;
        for name in ["one", "two"] {
            kubectl.create(CLAIMS, &claim(name, "2Gi")).await;
        }
        cluster.settle().await;
        set_percent(kubectl, 140).await;
        cluster.settle().await;
        let bound = async || (is_bound(kubectl, "one").await, is_bound(kubectl, "two").await);
        let (one, two) = bound().await;
        assert!(one != two, "4.2Gi are room for one of them: {one} {two}");
        give(kubectl, "n1", "5Gi").await;
        cluster.settle().await;
        assert_eq!(bound().await, (true, true));
        // What was promised stays so.
        set_percent(kubectl, 100).await;
        give(kubectl, "n1", "1Gi").await;
        cluster.settle().await;
        assert_eq!(bound().await, (true, true));
    });
}

#[test]
fn of_many_claims_at_once_as_many_are_bound_as_there_is_room_for() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        give(kubectl, "n1", "7Gi").await;
        let names: Vec<String> = (0..24).map(|n| format!("c{n}")).collect();
        for name in &names {
            kubectl.create(CLAIMS, &claim(name, "1Gi")).await;
        }
        cluster.settle().await;
        let bound = async || {
            let claims = items(kubectl, CLAIMS).await;
            claims.iter().filter(|claim| claim["status"]["phase"] == "Bound").count()
        };
        assert_eq!((bound().await, kubectl.names(VOLUMES).await.len()), (7, 7));
        set_percent(kubectl, 200).await;
        cluster.settle().await;
        assert_eq!((bound().await, kubectl.names(VOLUMES).await.len()), (14, 14));
        let told = items(kubectl, EVENTS).await.len();
        assert!(told < 100, "{told} events for 24 claims");
    });
}

fn waiting() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            halve(kubectl).await;
            kubectl.create(CLAIMS, &claim("comes", "1Gi")).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.create(CLAIMS, &claim("waits", "2Gi")).await;
            kubectl.create(CLAIMS, &claim("never", "9Gi")).await;
            kubectl.delete(&format!("{CLAIMS}/there"), "Background").await;
        },
        ends: async |kubectl: &Kubectl| {
            assert!(is_bound(kubectl, "waits").await && is_bound(kubectl, "comes").await);
            let waits = status_of(kubectl, "never").await;
            assert!(waits["conditions"][0]["message"].as_str().unwrap().contains("asks for 9Gi"), "{waits}");
        },
    }
}

#[test]
fn waiting_for_room_is_rest_and_ends_however_interrupted() {
    waiting().arrives_and_rests();
    waiting().arrives_however_interrupted();
}

#[test]
fn a_machine_whose_disk_has_no_room_says_so_and_comes_up_when_there_is_some() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        give(kubectl, "n1", "1500Mi").await;
        for (name, number) in [("first", 1), ("second", 2)] {
            kubectl.create(VMS, &machine(name, number, "Always")).await;
            cluster.settle().await;
        }
        let word = async |name: &str| {
            kubectl.get(&format!("{VMS}/{name}")).await.unwrap()["status"]["printableStatus"].clone()
        };
        assert_eq!(
            (word("first").await, word("second").await),
            ("Running".into(), "ErrorUnschedulable".into())
        );
        let instance = kubectl.get(&format!("{VMIS}/second")).await.unwrap();
        let conditions = instance["status"]["conditions"].as_array().unwrap();
        let why = conditions.iter().find(|one| one["type"] == "PodScheduled").unwrap();
        let message = why["message"].as_str().unwrap();
        assert!(
            message.starts_with("claim default/second-root: not enough room: it asks for 1Gi"),
            "{message}"
        );
        let node = kubectl.get(&format!("{NODES}/n1")).await.unwrap();
        assert_eq!(node["metadata"]["annotations"]["sheaf.io/volume-storage-promised"], "1Gi");
        give(kubectl, "n1", "2Gi").await;
        cluster.settle().await;
        assert_eq!(word("second").await, "Running");
        let node = kubectl.get(&format!("{NODES}/n1")).await.unwrap();
        assert_eq!(node["metadata"]["annotations"]["sheaf.io/volume-storage-promised"], "2Gi");
    });
}

#[test]
fn a_machine_goes_where_there_is_room_for_its_disks() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        for (node, memory, disk) in [("n1", "16Gi", "1500Mi"), ("n2", "4Gi", "2500Mi")] {
            add_node(kubectl, node, memory).await;
            give(kubectl, node, disk).await;
            play_agent(kubectl, node);
        }
        let mut places = Vec::new();
        for (name, number) in [("a", 1), ("b", 2), ("c", 3)] {
            kubectl.create(VMS, &machine(name, number, "Always")).await;
            cluster.settle().await;
            let instance = kubectl.get(&format!("{VMIS}/{name}")).await.unwrap();
            places.push(instance["status"]["nodeName"].clone());
        }
        assert_eq!(places, ["n1", "n2", "n2"], "n1 has more memory, and room for one disk");
        kubectl.create(CLAIMS, &claim("nowhere", "600Mi")).await;
        cluster.settle().await;
        let told = messages(kubectl, "nowhere", "ProvisioningFailed").await;
        assert!(told[0].contains("node n1 has 1.4Gi") && told[0].contains("node n2 has 2.4Gi"), "{told:?}");
    });
}

#[test]
fn a_growth_that_does_not_fit_is_refused_with_the_numbers_and_holds_up_nothing() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        give(kubectl, "n1", "3Gi").await;
        let vm = machine("vm", 1, "Halted");
        kubectl.create(VMS, &vm).await;
        cluster.settle().await;
        let larger = json!({"spec": {"resources": {"requests": {"storage": "4Gi"}}}});
        let path = format!("{CLAIMS}/vm-root");
        let (code, answer) = kubectl.try_it(Method::PATCH, &path, Some(&larger)).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(code, 422, "{answer}");
        assert!(message.contains("pvc default/vm-root cannot grow"), "{message}");
        assert!(message.contains("asks for 3Gi more than its 1Gi"), "{message}");
        assert!(message.contains("node n1 has 3Gi for volumes"), "{message}");

        // What a machine says of its disks is not refused at the door; the claim says what became of it.
        let annotation =
            vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
        let grown = json!({"metadata": {"annotations": {
            "harvesterhci.io/volumeClaimTemplates": annotation.replace("1Gi", "4Gi")}}});
        kubectl.patch(&format!("{VMS}/vm"), &grown).await;
        cluster.settle().await;
        let status = status_of(kubectl, "vm-root").await;
        assert_eq!((&status["phase"], &status["capacity"]["storage"]), (&json!("Bound"), &json!("1Gi")));
        assert_eq!(status["conditions"][0]["type"], "ControllerResizeError");
        assert_eq!(messages(kubectl, "vm-root", "VolumeResizeFailed").await.len(), 1);
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Always"}})).await;
        kubectl.create(CLAIMS, &claim("other", "1Gi")).await;
        cluster.settle().await;
        let machine = kubectl.get(&format!("{VMS}/vm")).await.unwrap();
        assert_eq!(machine["status"]["printableStatus"], "Running", "it runs with the disk it has");
        assert!(is_bound(kubectl, "other").await);

        set_percent(kubectl, 200).await;
        cluster.settle().await;
        let status = status_of(kubectl, "vm-root").await;
        assert_eq!(status["conditions"].as_array().map_or(0, Vec::len), 1, "{status}");
        assert_eq!(status["conditions"][0]["type"], "FileSystemResizePending");
        let claim = kubectl.get(&path).await.unwrap();
        let volume =
            kubectl.get(&format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap())).await;
        assert_eq!(volume.unwrap()["spec"]["capacity"]["storage"], "4Gi");
    });
}

#[test]
fn copies_take_room_as_what_they_are_copies_of() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        give(kubectl, "n1", "1500Mi").await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        let mut copy = claim("copy", "1Gi");
        copy["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "vm-root"});
        kubectl.create(CLAIMS, &copy).await;
        cluster.settle().await;
        let told = messages(kubectl, "copy", "ProvisioningFailed").await;
        assert!(told[0].contains("it asks for 1Gi, and node n1 has 1.4Gi"), "{told:?}");
        give(kubectl, "n1", "2Gi").await;
        cluster.settle().await;
        assert!(is_bound(kubectl, "copy").await);
    });
}
