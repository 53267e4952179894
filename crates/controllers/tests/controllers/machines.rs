//! How machines run, stop, fail, and go.

use serde_json::{Value, json};
use sheaf_testbed::{Cluster, kubectl::Kubectl};

use crate::{
    scenario::{Scenario, on_a_cluster},
    simulated_node::*,
};

async fn vm(kubectl: &Kubectl, name: &str) -> Value {
    kubectl.get(&format!("{VMS}/{name}")).await.unwrap()
}

async fn vmi(kubectl: &Kubectl, name: &str) -> Option<Value> {
    kubectl.get(&format!("{VMIS}/{name}")).await
}

async fn word(kubectl: &Kubectl, name: &str) -> String {
    vm(kubectl, name).await["status"]["printableStatus"].as_str().unwrap_or_default().to_owned()
}

/// The guest ends by itself.
async fn guest_ends(cluster: &Cluster, kubectl: &Kubectl, name: &str, phase: &str) {
    kubectl.patch(&format!("{VMIS}/{name}"), &json!({"status": {"phase": phase}})).await;
    cluster.settle().await;
}

async fn run(cluster: &Cluster, kubectl: &Kubectl, strategy: &str) -> Value {
    furnish(kubectl).await;
    kubectl.create(VMS, &machine("vm", 1, strategy)).await;
    cluster.settle().await;
    vm(kubectl, "vm").await
}

fn start() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| furnish(kubectl).await,
        happens: async |kubectl: &Kubectl| {
            kubectl.create(VMS, &machine("vm", 1, "RerunOnFailure")).await;
        },
        ends: async |kubectl: &Kubectl| {
            let (vm, vmi) = (vm(kubectl, "vm").await, vmi(kubectl, "vm").await.unwrap());
            assert_eq!(vm["status"]["printableStatus"], "Running", "{vm}");
            assert_eq!((&vm["status"]["created"], &vm["status"]["ready"]), (&json!(true), &json!(true)));
            assert_eq!(vm["status"]["observedGeneration"], vm["metadata"]["generation"]);
            assert_eq!(
                vm["metadata"]["annotations"]["harvesterhci.io/mac-address"],
                json!({"nic": mac(1)}).to_string()
            );
            assert_eq!(
                (&vmi["status"]["phase"], &vmi["status"]["nodeName"]),
                (&json!("Running"), &json!("n1"))
            );
            assert_eq!(vmi["metadata"]["ownerReferences"][0]["uid"], vm["metadata"]["uid"]);
            assert_eq!(vmi["metadata"]["labels"]["kubevirt.io/nodeName"], "n1");
            let claim = kubectl.get(&format!("{CLAIMS}/vm-root")).await.unwrap();
            assert_eq!(claim["status"]["phase"], "Bound");
            assert_eq!(kubectl.names(VOLUMES).await.len(), 1, "one volume, however often it was interrupted");
            let pods = items(kubectl, PODS).await;
            assert_eq!((pods.len(), &pods[0]["status"]["phase"]), (1, &json!("Running")));
            assert!(!address_of(kubectl, "vm").await.is_empty());
        },
    }
}

fn stop() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            furnish(kubectl).await;
            kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.patch(&format!("{VMS}/vm"), &json!({"spec": {"runStrategy": "Halted"}})).await;
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(
                vmi(kubectl, "vm").await,
                None,
                "a stopped machine has no instance, not one that is over"
            );
            assert_eq!(word(kubectl, "vm").await, "Stopped");
            assert!(kubectl.names(PODS).await.is_empty());
            address_of(kubectl, "vm").await;
        },
    }
}

fn delete(removed: bool) -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async move |kubectl: &Kubectl| {
            furnish(kubectl).await;
            let mut vm = machine("vm", 1, "Always");
            if removed {
                vm["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] =
                    json!("vm-root,other");
            }
            kubectl.create(VMS, &vm).await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{VMS}/vm"), "Foreground").await;
        },
        ends: async move |kubectl: &Kubectl| {
            assert_eq!(kubectl.get(&format!("{VMS}/vm")).await, None);
            assert_eq!(vmi(kubectl, "vm").await, None);
            assert!(kubectl.names(PODS).await.is_empty());
            assert_eq!(kubectl.names(CLAIMS).await.is_empty(), removed, "what is not named stays");
            assert_eq!(kubectl.names(VOLUMES).await.is_empty(), removed);
            assert!(kubectl.names(CONFIGS).await.is_empty());
            let pool = kubectl.get(&format!("{POOLS}/default")).await.unwrap();
            assert!(
                !pool["status"]["ipv4"]["allocated"].to_string().contains(&mac(1)),
                "its address is free again"
            );
        },
    }
}

#[test]
fn a_machine_comes_up_with_disk_address_node_and_pod() {
    start().arrives_and_rests();
}

#[test]
fn a_machine_comes_up_however_its_controllers_are_interrupted() {
    start().arrives_however_interrupted();
}

#[test]
fn trap_4_a_stopped_machine_has_no_instance_and_keeps_its_address() {
    stop().arrives_and_rests();
    stop().arrives_however_interrupted();
}

#[test]
fn a_deleted_machine_leaves_its_disks() {
    // Interrupted at every write is the one below, which has these and more.
    delete(false).arrives_and_rests();
}

#[test]
fn a_deleted_machine_takes_the_claims_along_that_it_names() {
    delete(true).arrives_and_rests();
    delete(true).arrives_however_interrupted();
}

#[test]
fn a_machine_that_its_quota_has_no_room_for_says_so_and_starts_when_there_is() {
    const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(QUOTAS, &json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})).await;
        kubectl.create(VMS, &machine("first", 1, "Always")).await;
        cluster.settle().await;
        kubectl.create(VMS, &machine("vm", 2, "Always")).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "first").await, "Running");
        assert!(vmi(kubectl, "vm").await.is_none());
        assert!(reasons(kubectl, "VirtualMachine", "vm").await.contains(&"FailedCreate".into()));
        assert_eq!(
            word(kubectl, "vm").await,
            "Stopped",
            "one that cannot be started says at least how it is"
        );
        kubectl.delete(&format!("{VMS}/first"), "Background").await;
        cluster.settle().await;
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "vm").await, "Running");
        assert_eq!(kubectl.get(&format!("{QUOTAS}/q")).await.unwrap()["status"]["used"]["pods"], "1");
    });
}

#[test]
fn what_keeps_a_machine_from_coming_up_is_told_in_a_moment_whoever_writes_it_meanwhile() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let mut lost = machine("vm", 1, "Always");
        let spec = &mut lost["spec"]["template"]["spec"];
        spec["networks"] = json!([{"name": "nic", "multus": {"networkName": "default/nowhere"}}]);
        spec["domain"]["devices"]["interfaces"] = json!([{"name": "nic", "bridge": {}}]);
        cluster.settle().await;
        kubectl.create(VMS, &lost).await;
        let reason = async || {
            let conditions = vm(kubectl, "vm").await["status"]["conditions"].take();
            let told = conditions.as_array().into_iter().flatten().find(|one| one["type"] == "Synchronized");
            told.map(|told| told["reason"].clone())
        };
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!(reason().await, None, "it may be over in a moment");
        kubectl.patch(&format!("{VMS}/vm"), &json!({"metadata": {"labels": {"written": "over"}}})).await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert_eq!(reason().await, Some(json!("FailedCreate")));
    });
}

#[test]
fn a_deleted_machine_does_not_wait_for_claims_that_others_use() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("other", 2, "Always")).await;
        let mut vm = machine("vm", 1, "Always");
        let removed = json!("other-root,vm-root");
        vm["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] = removed;
        kubectl.create(VMS, &vm).await;
        cluster.settle().await;
        kubectl.delete(&format!("{VMS}/vm"), "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.names(VMS).await, ["other"]);
        assert_eq!(kubectl.names(CLAIMS).await, ["other-root"]);
        assert!(reasons(kubectl, "VirtualMachine", "vm").await.contains(&"FailedDelete".into()));
    });
}

#[test]
fn a_claim_that_was_made_anew_does_not_go_with_the_machine_that_had_noted_its_name() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Halted")).await;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "spare"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
        kubectl.create(CLAIMS, &claim).await;
        cluster.settle().await;
        let note = json!("spare,vm-root");
        let note =
            json!({"metadata": {"annotations": {"harvesterhci.io/removedPersistentVolumeClaims": note}}});
        kubectl.patch(&format!("{VMS}/vm"), &note).await;
        cluster.settle().await;
        kubectl.delete(&format!("{CLAIMS}/spare"), "Background").await;
        cluster.settle().await;
        kubectl.create(CLAIMS, &claim).await;
        cluster.settle().await;
        kubectl.delete(&format!("{VMS}/vm"), "Background").await;
        cluster.settle().await;
        assert!(kubectl.names(VMS).await.is_empty());
        assert_eq!(
            kubectl.names(CLAIMS).await,
            ["spare"],
            "it is another one, and vm-root the one that was meant"
        );
    });
}

/// Clients read a machine, write it and delete it, and try none of that again when somebody else wrote in between. The status
/// shares the version of the whole, so it is written when something is different and at no other time.
#[test]
fn trap_5_a_machine_at_rest_is_read_written_and_deleted_with_nobody_writing_in_between() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        for strategy in ["Always", "Halted"] {
            kubectl.create(VMS, &machine("vm", 1, strategy)).await;
            cluster.settle().await;
            let own = format!("{VMS}/vm");
            let mut read = kubectl.get(&own).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_secs(300)).await;
            cluster.settle().await;
            let later = kubectl.get(&own).await.unwrap();
            assert_eq!(
                later["metadata"]["resourceVersion"], read["metadata"]["resourceVersion"],
                "{strategy}"
            );
            read["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"] =
                json!("vm-root");
            let written = kubectl.try_it(http::Method::PUT, &own, Some(&read)).await;
            assert_eq!(written.0, 200, "{strategy}: {}", written.1);
            kubectl.delete(&own, "Foreground").await;
            cluster.settle().await;
            assert_eq!(kubectl.get(&own).await, None, "{strategy}");
            assert!(kubectl.names(CLAIMS).await.is_empty(), "{strategy}");
        }
    });
}

#[test]
fn a_machine_is_there_until_its_instance_is_gone() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "Always").await;
        let hold =
            json!({"metadata": {"finalizers": ["example.com/hold", "foregroundDeleteVirtualMachine"]}});
        kubectl.patch(&format!("{VMIS}/vm"), &hold).await;
        kubectl.delete(&format!("{VMS}/vm"), "Background").await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "vm").await, "Terminating");
        kubectl.patch(&format!("{VMIS}/vm"), &json!({"metadata": {"finalizers": null}})).await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{VMS}/vm")).await, None);
    });
}

#[test]
fn always_runs_again_whatever_happens() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "Always").await;
        for phase in ["Succeeded", "Failed"] {
            let before = vmi(kubectl, "vm").await.unwrap()["metadata"]["uid"].clone();
            guest_ends(cluster, kubectl, "vm", phase).await;
            let after = vmi(kubectl, "vm").await.unwrap();
            assert_eq!(after["status"]["phase"], "Running");
            assert_ne!(after["metadata"]["uid"], before);
        }
        let told = reasons(kubectl, "VirtualMachine", "vm").await;
        assert_eq!(told.iter().filter(|reason| *reason == "SuccessfulCreate").count(), 3, "{told:?}");
    });
}

#[test]
fn rerun_on_failure_runs_again_after_a_failure_and_rests_after_a_shutdown() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "RerunOnFailure").await;
        guest_ends(cluster, kubectl, "vm", "Failed").await;
        assert_eq!(word(kubectl, "vm").await, "Running");
        guest_ends(cluster, kubectl, "vm", "Succeeded").await;
        assert_eq!((vmi(kubectl, "vm").await, word(kubectl, "vm").await), (None, "Stopped".into()));
        request(kubectl, "vm", json!([{"action": "Start"}])).await;
        cluster.settle().await;
        assert_eq!(word(kubectl, "vm").await, "Running");
    });
}

#[test]
fn manual_runs_when_somebody_says_so() {
    on_a_cluster(async |cluster, kubectl| {
        assert_eq!(run(cluster, kubectl, "Manual").await["status"]["printableStatus"], "Stopped");
        request(kubectl, "vm", json!([{"action": "Start"}])).await;
        cluster.settle().await;
        let first = vmi(kubectl, "vm").await.unwrap()["metadata"]["uid"].clone();
        let address = address_of(kubectl, "vm").await;
        request(kubectl, "vm", json!([{"action": "Stop", "uid": first}, {"action": "Start"}])).await;
        cluster.settle().await;
        let second = vmi(kubectl, "vm").await.unwrap();
        assert_eq!(second["status"]["phase"], "Running");
        assert_ne!(second["metadata"]["uid"], first, "a restart is another instance");
        assert_eq!(address_of(kubectl, "vm").await, address, "and the same address");
        request(kubectl, "vm", json!([{"action": "Stop", "uid": second["metadata"]["uid"]}])).await;
        cluster.settle().await;
        assert_eq!(vmi(kubectl, "vm").await, None);
        let requests = &vm(kubectl, "vm").await["status"]["stateChangeRequests"];
        assert!(requests.is_null(), "what is done is not asked for any more: {requests}");
    });
}

#[test]
fn halted_makes_its_disks_and_does_not_run() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "Halted").await;
        assert_eq!((vmi(kubectl, "vm").await, word(kubectl, "vm").await), (None, "Stopped".into()));
        let claim = kubectl.get(&format!("{CLAIMS}/vm-root")).await.unwrap();
        assert_eq!(claim["status"]["phase"], "Bound");
        request(kubectl, "vm", json!([{"action": "Start", "data": {"paused": "true"}}])).await;
        cluster.settle().await;
        assert_eq!(vm(kubectl, "vm").await["spec"]["runStrategy"], "Always");
        assert_eq!(vmi(kubectl, "vm").await.unwrap()["spec"]["startStrategy"], "Paused");
    });
}

#[test]
fn once_runs_once_however_it_ends() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "Once").await;
        let first = vmi(kubectl, "vm").await.unwrap()["metadata"]["uid"].clone();
        guest_ends(cluster, kubectl, "vm", "Failed").await;
        let left = vmi(kubectl, "vm").await.unwrap();
        assert_eq!((&left["metadata"]["uid"], &left["status"]["phase"]), (&first, &json!("Failed")));
    });
}

#[test]
fn a_machine_that_never_comes_up_is_tried_less_and_less_often() {
    on_a_cluster(async |_, kubectl| {
        furnish_without_nodes(kubectl).await;
        add_node(kubectl, "n1", "8Gi").await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        let mut failed = Vec::new();
        let began = tokio::time::Instant::now();
        while failed.len() < 3 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let Some(there) = vmi(kubectl, "vm").await else { continue };
            if there["status"]["phase"] == "Scheduled" && there["metadata"]["deletionTimestamp"].is_null() {
                failed.push(began.elapsed().as_secs());
                let metadata = json!({"finalizers": ["kubevirt.io/virtualMachineControllerFinalize"]});
                let failed = json!({"metadata": metadata, "status": {"phase": "Failed"}});
                kubectl.patch(&format!("{VMIS}/vm"), &failed).await;
            }
        }
        let waits: Vec<u64> = failed.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(waits[0] >= 10 && waits[1] >= 40, "{waits:?}");
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let vm = vm(kubectl, "vm").await;
        assert_eq!(vm["status"]["printableStatus"], "CrashLoopBackOff");
        assert_eq!(vm["status"]["startFailure"]["consecutiveFailCount"], 3);
    });
}

#[test]
fn a_machine_that_dies_soon_after_it_came_up_is_tried_less_and_less_often() {
    on_a_cluster(async |_, kubectl| {
        furnish(kubectl).await;
        kubectl.create(VMS, &machine("vm", 1, "Always")).await;
        let mut died = Vec::new();
        let began = tokio::time::Instant::now();
        while died.len() < 4 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            let Some(there) = vmi(kubectl, "vm").await else { continue };
            if there["status"]["phase"] == "Running" && there["metadata"]["deletionTimestamp"].is_null() {
                died.push(began.elapsed().as_secs());
                kubectl.patch(&format!("{VMIS}/vm"), &json!({"status": {"phase": "Failed"}})).await;
            }
        }
        let waits: Vec<u64> = died.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // Its node takes some seconds for each.
        assert!(waits[0] < 20 && waits[1] >= 10 && waits[2] >= 40, "{waits:?}");
    });
}

#[test]
fn a_running_machine_takes_on_labels_and_says_when_it_must_be_restarted() {
    on_a_cluster(async |cluster, kubectl| {
        run(cluster, kubectl, "Always").await;
        let before = vmi(kubectl, "vm").await.unwrap()["metadata"]["uid"].clone();
        let labels = json!({"harvesterhci.io/vmName": "vm", "tag": "new"});
        kubectl
            .patch(&format!("{VMS}/vm"), &json!({"spec": {"template": {"metadata": {"labels": labels}}}}))
            .await;
        cluster.settle().await;
        let there = vmi(kubectl, "vm").await.unwrap();
        assert_eq!(
            (&there["metadata"]["labels"]["tag"], &there["metadata"]["uid"]),
            (&json!("new"), &before)
        );
        assert_eq!(there["metadata"]["labels"]["kubevirt.io/nodeName"], "n1");
        let required = |vm: &Value| vm["status"]["conditions"].to_string().contains("RestartRequired");
        assert!(!required(&vm(kubectl, "vm").await));
        let cpu = json!({"spec": {"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}});
        kubectl.patch(&format!("{VMS}/vm"), &cpu).await;
        cluster.settle().await;
        assert!(required(&vm(kubectl, "vm").await));
    });
}

#[test]
fn a_namespace_goes_with_the_machines_in_it() {
    on_a_cluster(async |cluster, kubectl| {
        furnish(kubectl).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "room"}});
        kubectl.create("/api/v1/namespaces", &namespace).await;
        let inside = VMS.replace("/default/", "/room/");
        kubectl.create(&inside, &machine("vm", 1, "Always")).await;
        cluster.settle().await;
        assert_eq!(
            kubectl.get(&format!("{inside}/vm")).await.unwrap()["status"]["printableStatus"],
            "Running"
        );
        kubectl.delete("/api/v1/namespaces/room", "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.get("/api/v1/namespaces/room").await, None);
        assert!(kubectl.names(VOLUMES).await.is_empty());
        let pool = kubectl.get(&format!("{POOLS}/default")).await.unwrap();
        assert!(!pool["status"]["ipv4"]["allocated"].to_string().contains(&mac(1)));
    });
}
