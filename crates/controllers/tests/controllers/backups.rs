//! How whole machines are snapshotted, restored and cloned, and which volumes are said to be attached where.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::kubectl::Kubectl;

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const CLONES: &str = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// A machine with two disks that it brings along, and user data in a Secret.
fn two_disks(name: &str, strategy: &str) -> Value {
    let mut vm = machine(name, 1, strategy);
    let annotation = "harvesterhci.io/volumeClaimTemplates";
    let mut templates: Value =
        serde_json::from_str(vm["metadata"]["annotations"][annotation].as_str().unwrap()).unwrap();
    let mut data = templates[0].clone();
    data["metadata"]["name"] = json!(format!("{name}-data"));
    templates.as_array_mut().unwrap().push(data);
    vm["metadata"]["annotations"][annotation] = json!(templates.to_string());
    let spec = &mut vm["spec"]["template"]["spec"];
    let volumes = spec["volumes"].as_array_mut().unwrap();
    volumes.push(json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("{name}-data")}}));
    volumes.push(json!({"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"}}}));
    let disks = spec["domain"]["devices"]["disks"].as_array_mut().unwrap();
    disks.push(json!({"name": "data", "disk": {"bus": "virtio"}}));
    disks.push(json!({"name": "seed", "disk": {"bus": "virtio"}}));
    vm
}

/// That machine, and its Secret.
pub async fn add_machine(kubectl: &Kubectl, strategy: &str) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "user"},
        "stringData": {"userdata": "#cloud-config\npassword: hush"}});
    kubectl.create(SECRETS, &secret).await;
    kubectl.create(VMS, &two_disks("vm", strategy)).await;
}

fn backup() -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup", "metadata": {"name": "b"},
        "spec": {"type": "snapshot", "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}},
    })
}

fn restore(target: &str, new: bool) -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": "r"},
        "spec": {"target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": target}, "newVM": new,
            "virtualMachineBackupName": "b", "virtualMachineBackupNamespace": "default", "deletionPolicy": "retain"},
    })
}

async fn get(kubectl: &Kubectl, path: &str, name: &str) -> Value {
    kubectl.get(&format!("{path}/{name}")).await.unwrap()
}

async fn claims_of(kubectl: &Kubectl, vm: &str) -> Vec<String> {
    let vm = get(kubectl, VMS, vm).await;
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let claims = volumes.iter().filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    claims.map(str::to_owned).collect()
}

/// Where each claim's bytes come from, by the attribute that says so.
async fn origin(kubectl: &Kubectl, claim: &str, attribute: &str) -> String {
    let claim = get(kubectl, CLAIMS, claim).await;
    assert_eq!(claim["status"]["phase"], "Bound", "{claim}");
    let volume = get(kubectl, VOLUMES, claim["spec"]["volumeName"].as_str().unwrap()).await;
    volume["spec"]["csi"]["volumeAttributes"][attribute].as_str().unwrap_or_default().to_owned()
}

fn backing_up() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            add_machine(kubectl, "Always").await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.create(BACKUPS, &backup()).await;
        },
        ends: async |kubectl: &Kubectl| {
            let backup = get(kubectl, BACKUPS, "b").await;
            let status = &backup["status"];
            let vm = get(kubectl, VMS, "vm").await;
            assert_eq!((&status["readyToUse"], &status["sourceUID"]), (&json!(true), &vm["metadata"]["uid"]));
            assert_eq!(status["source"]["spec"]["template"], vm["spec"]["template"]);
            assert_eq!(kubectl.names(SNAPSHOTS).await, ["b-volume-vm-data", "b-volume-vm-root"]);
            let volumes = status["volumeBackups"].as_array().unwrap();
            assert!(volumes.len() == 2 && volumes.iter().all(|volume| volume["readyToUse"] == true));
            assert_eq!(volumes[0]["creationTime"], status["creationTime"]);
            for content in items(kubectl, CONTENTS).await {
                let annotations = &content["metadata"]["annotations"];
                assert_eq!(annotations["sheaf.io/together"], backup["metadata"]["uid"]);
                assert_eq!(annotations["sheaf.io/together-of"], "2");
            }
            // Who may read backups and no Secrets learns nothing from them.
            let secret = status["secretBackups"][0].clone();
            assert_eq!(secret["name"], "user");
            assert!(!backup.to_string().contains("hush") && secret["data"].is_null());
            let kept = get(kubectl, SECRETS, secret["secretName"].as_str().unwrap()).await;
            assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], backup["metadata"]["uid"]);
            assert_eq!(kept["data"], get(kubectl, SECRETS, "user").await["data"]);
        },
    }
}

fn restoring(new: bool) -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    let target = if new { "copy" } else { "vm" };
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            add_machine(kubectl, "Halted").await;
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
            kubectl.create(BACKUPS, &backup()).await;
        },
        happens: async move |kubectl: &Kubectl| {
            kubectl.delete(&format!("{SECRETS}/user"), "Background").await;
            kubectl.create(RESTORES, &restore(target, new)).await;
        },
        ends: async move |kubectl: &Kubectl| {
            let restore = get(kubectl, RESTORES, "r").await;
            assert_eq!(restore["status"]["complete"], true, "{}", restore["status"]);
            let vm = get(kubectl, VMS, target).await;
            assert_eq!(restore["status"]["targetUID"], vm["metadata"]["uid"]);
            assert_eq!(vm["metadata"]["annotations"]["restore.harvesterhci.io/name"], "r");
            let uid = restore["metadata"]["uid"].as_str().unwrap();
            let claims = claims_of(kubectl, target).await;
            assert_eq!(claims, [format!("restore-b-{uid}-root"), format!("restore-b-{uid}-data")]);
            for claim in &claims {
                assert!(origin(kubectl, claim, "sheaf.io/snapshotHandle").await.starts_with("snap-"));
                let claim = get(kubectl, CLAIMS, claim).await;
                assert!(
                    claim["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty),
                    "it is the machine's"
                );
            }
            let spec = &vm["spec"]["template"]["spec"];
            let secret = spec["volumes"][2]["cloudInitNoCloud"]["secretRef"]["name"].as_str().unwrap();
            assert_eq!(secret == "user", !new);
            assert!(get(kubectl, SECRETS, secret).await["data"]["userdata"].is_string());
            let mac = spec["domain"]["devices"]["interfaces"][0]["macAddress"].as_str().unwrap();
            assert_eq!(mac == super::simulated_node::mac(1), !new, "{mac}");
            // The disks that the machine had are there, and another machine's are untouched.
            assert_eq!(kubectl.names(CLAIMS).await.len(), 4);
        },
    }
}

fn cloning() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            add_machine(kubectl, "Always").await;
        },
        happens: async |kubectl: &Kubectl| {
            let machine =
                |name: &str| json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": name});
            let clone = json!({
                "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": {"name": "c"},
                "spec": {"source": machine("vm"), "target": machine("copy")},
            });
            kubectl.create(CLONES, &clone).await;
        },
        ends: async |kubectl: &Kubectl| {
            let status = get(kubectl, CLONES, "c").await["status"].clone();
            assert_eq!(
                (&status["phase"], &status["targetName"]),
                (&json!("Succeeded"), &json!("copy")),
                "{status}"
            );
            let (vm, copy) = (get(kubectl, VMS, "vm").await, get(kubectl, VMS, "copy").await);
            assert_eq!(copy["spec"]["runStrategy"], "Halted");
            let of =
                |vm: &Value, pointer: &str| vm["spec"]["template"]["spec"].pointer(pointer).cloned().unwrap();
            for own in [
                "/domain/devices/interfaces/0/macAddress",
                "/domain/firmware/uuid",
                "/domain/firmware/serial",
            ] {
                assert_ne!(of(&vm, own), of(&copy, own), "{own}");
                assert!(!of(&copy, own).as_str().unwrap().is_empty(), "{own}");
            }
            let handle = |claim: Value| format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap());
            let (old, new) = (claims_of(kubectl, "vm").await, claims_of(kubectl, "copy").await);
            for (old, new) in old.iter().zip(&new) {
                let source = handle(get(kubectl, CLAIMS, old).await);
                assert_eq!(origin(kubectl, new, "sheaf.io/cloneOf").await, source);
            }
            let secret = of(&copy, "/volumes/2/cloudInitNoCloud/secretRef/name");
            let secret = get(kubectl, SECRETS, secret.as_str().unwrap()).await;
            assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], copy["metadata"]["uid"]);
            assert_eq!(kubectl.names(CLAIMS).await.len(), 4);
        },
    }
}

#[test]
fn a_running_machine_is_backed_up_with_all_its_disks_at_once() {
    backing_up().arrives_and_rests();
    backing_up().arrives_however_interrupted();
}

#[test]
fn a_machine_that_is_off_becomes_what_it_was() {
    restoring(false).arrives_and_rests();
    restoring(false).arrives_however_interrupted();
}

#[test]
fn another_machine_is_made_of_what_one_was() {
    restoring(true).arrives_and_rests();
    restoring(true).arrives_however_interrupted();
}

#[test]
fn a_clone_is_another_machine_with_copies_of_the_disks() {
    cloning().arrives_and_rests();
    cloning().arrives_however_interrupted();
}

#[test]
fn a_backup_of_which_one_disk_fails_says_so_and_goes_with_its_snapshots() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Always").await;
        cluster.settle().await;
        let claim = get(kubectl, CLAIMS, "vm-data").await;
        let breaks = json!({"metadata": {"annotations": {"test/broken": claim["spec"]["volumeName"]}}});
        kubectl.patch(&format!("{NODES}/n1"), &breaks).await;
        kubectl.create(BACKUPS, &backup()).await;
        cluster.settle().await;
        let status = get(kubectl, BACKUPS, "b").await["status"].clone();
        assert_eq!(
            (&status["readyToUse"], &status["error"]["message"]),
            (&json!(false), &json!("the disk of n1 is full"))
        );
        let (code, answer) = kubectl.try_it(Method::POST, RESTORES, Some(&restore("copy", true))).await;
        assert!(
            code == 422 && answer["message"].as_str().unwrap().contains("is not ready"),
            "{code} {answer}"
        );
        kubectl.delete(&format!("{BACKUPS}/b"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(SNAPSHOTS).await.is_empty() && kubectl.names(CONTENTS).await.is_empty());
        assert_eq!(kubectl.names(SECRETS).await, ["user"], "nor is a copy of a Secret left");
    });
}

#[test]
fn a_backup_that_stays_in_the_cluster_goes_with_its_machine() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Always").await;
        cluster.settle().await;
        kubectl.create(BACKUPS, &backup()).await;
        cluster.settle().await;
        kubectl.delete(&format!("{VMS}/vm"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(BACKUPS).await.is_empty() && kubectl.names(CONTENTS).await.is_empty());
        assert_eq!(kubectl.names(CLAIMS).await, ["vm-data", "vm-root"], "claims outlive machines");
    });
}

#[test]
fn a_machine_that_was_started_meanwhile_is_restored_when_it_is_off() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Halted").await;
        cluster.settle().await;
        kubectl.create(BACKUPS, &backup()).await;
        cluster.settle().await;
        kubectl.create(RESTORES, &restore("vm", false)).await;
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Always"}})).await;
        cluster.settle().await;
        let status = get(kubectl, RESTORES, "r").await["status"].clone();
        assert_eq!(status["complete"], false);
        assert!(status["conditions"][0]["message"].as_str().unwrap().contains("to be stopped"), "{status}");
        assert_eq!(
            claims_of(kubectl, "vm").await,
            ["vm-root", "vm-data"],
            "it keeps its disks as long as it runs"
        );
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        cluster.settle().await;
        assert_eq!(get(kubectl, RESTORES, "r").await["status"]["complete"], true);
    });
}

#[test]
fn a_restore_that_is_given_up_leaves_nothing_behind() {
    on_a_cluster(async |cluster, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "8Gi").await;
        add_machine(kubectl, "Halted").await;
        cluster.settle().await;
        kubectl.create(BACKUPS, &backup()).await;
        cluster.settle().await;
        // The node takes snapshots and makes no copies.
        for content in items(kubectl, CONTENTS).await {
            let uid = content["spec"]["volumeSnapshotRef"]["uid"].as_str().unwrap();
            let taken = json!({"status": {"readyToUse": true, "snapshotHandle": format!("snap-{uid}"),
                "restoreSize": 1 << 30, "creationTime": 1_900_000_000_000_000_000_i64}});
            kubectl
                .patch(
                    &format!("{CONTENTS}/{}/status", content["metadata"]["name"].as_str().unwrap()),
                    &taken,
                )
                .await;
        }
        cluster.settle().await;
        kubectl.create(RESTORES, &restore("copy", true)).await;
        cluster.settle().await;
        assert_eq!((kubectl.names(CLAIMS).await.len(), kubectl.names(VMS).await.len()), (4, 1));
        kubectl.delete(&format!("{RESTORES}/r"), "Background").await;
        play_agent(kubectl, "n1");
        cluster.settle().await;
        assert_eq!(kubectl.names(CLAIMS).await, ["vm-data", "vm-root"]);
    });
}

#[test]
fn volumes_of_a_machine_are_attached_where_it_is_and_nobody_else_says_so() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        add_machine(kubectl, "Always").await;
        cluster.settle().await;
        let attachments = items(kubectl, ATTACHMENTS).await;
        assert_eq!(attachments.len(), 2);
        for claim in ["vm-root", "vm-data"] {
            let volume = get(kubectl, CLAIMS, claim).await["spec"]["volumeName"].clone();
            let of_it = |one: &&Value| one["spec"]["source"]["persistentVolumeName"] == volume;
            let attachment = attachments.iter().find(of_it).unwrap();
            assert_eq!(
                (
                    &attachment["spec"]["nodeName"],
                    &attachment["spec"]["attacher"],
                    &attachment["status"]["attached"]
                ),
                (&json!("n1"), &json!("driver.longhorn.io"), &json!(true))
            );
        }
        assert_eq!(kubectl.try_it(Method::POST, ATTACHMENTS, Some(&attachments[0])).await.0, 405);
        kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        cluster.settle().await;
        assert!(kubectl.names(ATTACHMENTS).await.is_empty());
    });
}
