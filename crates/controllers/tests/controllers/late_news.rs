//! What controllers remember may be late, and of one kind more than of another: nobody loses anything by that.

use std::time::Duration;

use serde_json::{Value, json};
use sheaf_testbed::{kubectl::Kubectl, late::hears_late};

use crate::{scenario::on_a_cluster, simulated_node::*};

const KINDS: [&str; 9] = [
    "virtualmachines",
    "virtualmachineinstances",
    "persistentvolumeclaims",
    "persistentvolumes",
    "virtualmachinenetworkconfigs",
    "ippools",
    "storageclasses",
    "nodes",
    "pods",
];
/// More than a machine takes from its creation until it runs.
const LATE: Duration = Duration::from_secs(30);

/// Which objects there are of a machine; their uids say whether they are still the same ones.
async fn all_of_it(kubectl: &Kubectl) -> Vec<Value> {
    let mut uids = Vec::new();
    for path in [VMIS, CLAIMS, VOLUMES, CONFIGS, PODS] {
        let all = items(kubectl, path).await;
        assert_eq!(all.len(), 1, "{path}");
        uids.push(all[0]["metadata"]["uid"].clone());
    }
    uids
}

fn interfaces_of(vm: &mut Value) -> &mut Vec<Value> {
    vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"].as_array_mut().unwrap()
}

#[test]
fn controllers_whose_news_of_one_kind_are_late_take_nothing_away() {
    for kind in KINDS {
        on_a_cluster(async |cluster, kubectl| {
            furnish(kubectl).await;
            let client = cluster.client_of("system:sheaf:controllers", &["system:masters"]);
            let (client, removed) = hears_late(client, kind, LATE);
            // Beside those of the cluster, which make everything before these hear of it.
            let late = cluster.start_controllers_with(client);
            cluster.settle().await;
            let mut vm = machine("vm", 1, "RerunOnFailure");
            // Its address is drawn, so only its instance says which one it has.
            for interface in interfaces_of(&mut vm) {
                interface.as_object_mut().unwrap().remove("macAddress");
            }
            kubectl.create(VMS, &vm).await;
            tokio::time::sleep(LATE / 2).await;
            let before = all_of_it(kubectl).await;
            cluster.settle().await;
            assert_eq!(all_of_it(kubectl).await, before, "{kind}");
            assert_eq!(*removed.lock(), Vec::<String>::new(), "{kind}");
            // What somebody changes or asks for is done once, and stays done.
            let labels = json!({"spec": {"template": {"metadata": {"labels": {"tier": "web"}}}}});
            kubectl.patch(&format!("{VMS}/vm"), &labels).await;
            cluster.settle().await;
            assert_eq!(instance(kubectl).await.unwrap()["metadata"]["labels"]["tier"], "web", "{kind}");
            request(kubectl, "vm", json!([{"action": "Stop", "uid": before[0]}])).await;
            cluster.settle().await;
            assert_eq!((instance(kubectl).await, word(kubectl).await), (None, json!("Stopped")), "{kind}");
            request(kubectl, "vm", json!([{"action": "Start"}])).await;
            cluster.settle().await;
            let second = instance(kubectl).await.unwrap()["metadata"]["uid"].clone();
            assert_eq!(word(kubectl).await, "Running", "{kind}");
            // One that ends as it should is not started again because its machine still looks as it did.
            kubectl.patch(&format!("{VMIS}/vm"), &json!({"status": {"phase": "Succeeded"}})).await;
            cluster.settle().await;
            assert_eq!(word(kubectl).await, "Stopped", "{kind}");
            let left = items(kubectl, VMIS).await;
            assert!(left.iter().all(|vmi| vmi["metadata"]["uid"] == second), "{kind}: {left:?}");
            late.stop().await;
        });
    }
}

async fn instance(kubectl: &Kubectl) -> Option<Value> {
    items(kubectl, VMIS).await.pop()
}

async fn word(kubectl: &Kubectl) -> Value {
    kubectl.get(&format!("{VMS}/vm")).await.unwrap()["status"]["printableStatus"].clone()
}
