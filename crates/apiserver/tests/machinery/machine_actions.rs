//! What is done with machines through the facade: what is offered to whom, and what each comes to.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_apiserver::machines::agents::{AgentConnection, DialAgent};

use crate::{
    facade::{allow, as_viewer, jo, namespace},
    house::House,
    machine::{CLAIMS, IMAGES, INSTANCES, MACHINES, claim, instance, machine, with_claim},
};

const VM: &str = "/v1/harvester/kubevirt.io.virtualmachines/default/m";

/// Takes every order and notes it.
#[derive(Default)]
struct Agent(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl DialAgent for Agent {
    async fn dial(&self, _: &str, _: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let asked = self.0.clone();
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let what = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                asked.lock().push(what);
                async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        Ok(Box::new(ours))
    }
}

async fn house() -> (House, Arc<Agent>) {
    let agent = Arc::new(Agent::default());
    let house = House::reaching(agent.clone()).await;
    house.join_node().await;
    (house, agent)
}

async fn run(house: &House) {
    house.post(INSTANCES, instance("m")).await.ok();
    let status = json!({"status": {"phase": "Running", "nodeName": "n1"}});
    house.patch(&format!("{INSTANCES}/m"), "merge-patch", status).await.ok();
}

async fn offered(house: &House) -> Vec<String> {
    let shown = house.get(VM).await.ok();
    let actions = shown["actions"].as_object().unwrap();
    for (name, link) in actions {
        assert_eq!(link, &format!("https://127.0.0.1:6443{VM}?action={name}"));
    }
    // A collection offers the same.
    let listed = house.get("/v1/harvester/kubevirt.io.virtualmachines/default").await.ok();
    assert_eq!(listed["data"][0]["actions"], shown["actions"]);
    actions.keys().cloned().collect()
}

/// Does it, and must be answered without a word.
async fn act(house: &House, action: &str, body: Value) {
    let done = house.post(&format!("{VM}?action={action}"), body).await;
    assert_eq!((done.code, &done.body), (204, &json!("")), "{action}");
}

/// The code and the sentence of a refusal.
async fn refused(house: &House, action: &str, body: Value) -> (u16, String) {
    let refused = house.post(&format!("{VM}?action={action}"), body).await;
    let sentence = refused.body.as_str().unwrap_or_else(|| panic!("no plain text: {:#}", refused.body));
    (refused.code, sentence.to_owned())
}

async fn vm(house: &House) -> Value {
    house.get(&format!("{MACHINES}/m")).await.ok()
}

#[tokio::test(start_paused = true)]
async fn what_is_offered_follows_how_the_machine_stands() {
    let (house, agent) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    let off = [
        "addVolume",
        "clone",
        "createTemplate",
        "deleteResourceQuota",
        "removeVolume",
        "snapshot",
        "start",
        "updateResourceQuota",
    ];
    assert_eq!(offered(&house).await, off);
    run(&house).await;
    let on = [
        "addNic",
        "addVolume",
        "clone",
        "createTemplate",
        "deleteResourceQuota",
        "pause",
        "removeVolume",
        "restart",
        "snapshot",
        "softreboot",
        "stop",
        "updateResourceQuota",
    ];
    assert_eq!(offered(&house).await, on);
    act(&house, "pause", json!({})).await;
    act(&house, "softreboot", json!({})).await;
    assert_eq!(*agent.0.lock(), ["pause", "softreboot"]);
    let paused = json!({"status": {"conditions": [{"type": "Paused", "status": "True"}]}});
    house.patch(&format!("{INSTANCES}/m"), "merge-patch", paused).await.ok();
    let now = offered(&house).await;
    assert!(now.contains(&"unpause".to_owned()) && !now.contains(&"pause".to_owned()), "{now:?}");
    act(&house, "unpause", json!({})).await;
    assert_eq!(refused(&house, "pause", json!({})).await.0, 409);
}

#[tokio::test(start_paused = true)]
async fn power_is_what_the_subresources_make_of_it() {
    let (house, _) = house().await;
    let mut halted = machine("m");
    halted["spec"]["runStrategy"] = json!("Halted");
    house.post(MACHINES, halted).await.ok();
    act(&house, "start", json!({})).await;
    assert_ne!(vm(&house).await["spec"]["runStrategy"], "Halted");
    run(&house).await;
    let (code, why) = refused(&house, "start", json!({})).await;
    assert_eq!((code, why.contains("VM is already running")), (409, true), "{why}");
    act(&house, "stop", json!({})).await;
    assert_eq!(vm(&house).await["spec"]["runStrategy"], "Halted");
    act(&house, "stop", json!({})).await;
    act(&house, "forceStop", json!({})).await;
    assert_eq!(house.get(&format!("{INSTANCES}/m")).await.ok()["spec"]["terminationGracePeriodSeconds"], 0);
    act(&house, "forceStop", json!({})).await;
    assert_eq!(refused(&house, "restart", json!({})).await.0, 409);
    assert_eq!(
        house
            .post("/v1/harvester/kubevirt.io.virtualmachines/default/none?action=start", json!({}))
            .await
            .code,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_offered_that_its_reader_may_not_do() {
    let (mut house, _) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    run(&house).await;
    let root = house.user.clone();
    as_viewer(&mut house, "default").await;
    assert!(offered(&house).await.is_empty());
    for action in ["stop", "restart", "clone", "addVolume", "snapshot"] {
        let (code, why) =
            refused(&house, action, json!({"targetVm": "x", "diskName": "d", "volumeSourceName": "v"})).await;
        assert_eq!((code, why.contains("is forbidden")), (403, true), "{action}: {why}");
    }
    house.user = root;
    // The right to one is the right to one.
    allow(
        &house,
        "default",
        "restarts",
        json!([{"apiGroups": ["subresources.kubevirt.io"],
        "resources": ["virtualmachines/restart"], "verbs": ["update"]}]),
    )
    .await;
    house.user = jo();
    assert_eq!(offered(&house).await, ["restart"]);
    act(&house, "restart", json!({})).await;
    assert_eq!(refused(&house, "stop", json!({})).await.0, 403);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_see_the_instance_is_offered_nothing_that_depends_on_it() {
    let (mut house, _) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    run(&house).await;
    allow(
        &house,
        "default",
        "machines",
        json!([
        {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["*"]},
        {"apiGroups": ["subresources.kubevirt.io"], "resources": ["*"], "verbs": ["*"]}]),
    )
    .await;
    house.user = jo();
    assert_eq!(offered(&house).await, ["removeVolume"]);
}

#[tokio::test(start_paused = true)]
async fn a_volume_comes_and_goes_with_the_note_of_it() {
    let (house, _) = house().await;
    house.post(CLAIMS, claim("data")).await.ok();
    house.post(MACHINES, machine("m")).await.ok();
    act(&house, "addVolume", json!({"diskName": "d1", "volumeSourceName": "data"})).await;
    let now = vm(&house).await;
    let spec = &now["spec"]["template"]["spec"];
    assert_eq!(
        spec["volumes"][0]["persistentVolumeClaim"],
        json!({"claimName": "data", "hotpluggable": true})
    );
    assert_eq!(spec["domain"]["devices"]["disks"][0]["disk"]["bus"], "scsi");
    let note = now["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
    let note: Value = serde_json::from_str(note).unwrap();
    assert_eq!(
        (&note[0]["metadata"]["name"], &note[0]["spec"]["volumeMode"]),
        (&json!("data"), &json!("Block"))
    );
    assert_eq!(
        refused(&house, "addVolume", json!({"diskName": "d1", "volumeSourceName": "data"})).await.0,
        409
    );
    assert_eq!(
        refused(&house, "addVolume", json!({"diskName": "d2", "volumeSourceName": "none"})).await.0,
        404
    );
    assert_eq!(refused(&house, "addVolume", json!({"diskName": "d2"})).await.0, 422);
    assert_eq!(refused(&house, "removeVolume", json!({"diskName": "none"})).await.0, 409);
    act(&house, "removeVolume", json!({"diskName": "d1"})).await;
    let now = vm(&house).await;
    assert!(now["spec"]["template"]["spec"]["volumes"].is_null());
    assert_eq!(now["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"], "[]");
}

#[tokio::test(start_paused = true)]
async fn a_disc_is_put_into_a_drive_and_taken_out_again() {
    let (house, _) = house().await;
    house.post(IMAGES, crate::machine::image("disc", "disc.iso")).await.ok();
    let mut with_drive = machine("m");
    with_drive["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
        json!([{"name": "cd", "cdrom": {"bus": "sata"}}]);
    house.post(MACHINES, with_drive).await.ok();
    assert!(offered(&house).await.contains(&"insertCdRomVolume".to_owned()));
    let insert = json!({"deviceName": "cd", "imageName": "default/disc"});
    assert_eq!(refused(&house, "insertCdRomVolume", insert.clone()).await.0, 422, "it is not here yet");
    let status =
        json!({"status": {"storageClassName": "longhorn-disc", "size": 5, "virtualSize": 1073741825_i64}});
    house.patch(&format!("{IMAGES}/disc"), "merge-patch", status).await.ok();
    act(&house, "insertCdRomVolume", insert.clone()).await;
    let now = vm(&house).await;
    let claim = &now["spec"]["template"]["spec"]["volumes"][0]["persistentVolumeClaim"];
    assert_eq!(claim["hotpluggable"], true);
    let note = now["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"].as_str().unwrap();
    let note: Value = serde_json::from_str(note).unwrap();
    assert_eq!(note[0]["metadata"]["name"], claim["claimName"]);
    assert_eq!(note[0]["metadata"]["annotations"]["harvesterhci.io/imageId"], "default/disc");
    assert_eq!(note[0]["spec"]["resources"]["requests"]["storage"], "2Gi");
    assert_eq!(refused(&house, "insertCdRomVolume", insert).await.0, 422);
    let now = offered(&house).await;
    assert!(now.contains(&"ejectCdRomVolume".to_owned()) && !now.contains(&"insertCdRomVolume".to_owned()));
    act(&house, "ejectCdRomVolume", json!({"deviceName": "cd"})).await;
    let now = vm(&house).await;
    assert!(now["spec"]["template"]["spec"]["volumes"].is_null());
    let noted = now["metadata"]["annotations"]["sheaf.io/ejected-claims"].as_str().unwrap();
    assert!(noted.starts_with("m-cd-"), "its claim is for the controller to delete: {noted}");
    assert_eq!(now["spec"]["template"]["spec"]["domain"]["devices"]["disks"][0]["name"], "cd");
    assert_eq!(refused(&house, "ejectCdRomVolume", json!({"deviceName": "cd"})).await.0, 422);
}

#[tokio::test(start_paused = true)]
async fn nobody_has_a_claim_deleted_by_a_note_who_may_not_delete_it() {
    let (mut house, _) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    let rules =
        json!([{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["get", "patch"]}]);
    allow(&house, "default", "machines", rules).await;
    let admin = std::mem::replace(&mut house.user, jo());
    for annotation in ["sheaf.io/ejected-claims", "harvesterhci.io/removedPersistentVolumeClaims"] {
        let note = json!({"metadata": {"annotations": {annotation: "somebodys"}}});
        let refused = house.patch(&format!("{MACHINES}/m"), "merge-patch", note).await;
        assert_eq!(refused.code, 403, "{annotation}");
        assert!(refused.message().contains("may not have the claim somebodys deleted"), "{annotation}");
    }
    let jo = std::mem::replace(&mut house.user, admin);
    let rules = json!([{"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["delete"]}]);
    allow(&house, "default", "claims", rules).await;
    house.user = jo;
    let note = json!({"metadata": {"annotations": {"harvesterhci.io/removedPersistentVolumeClaims": "own"}}});
    house.patch(&format!("{MACHINES}/m"), "merge-patch", note).await.ok();
}

#[tokio::test(start_paused = true)]
async fn interfaces_and_processors_come_to_a_machine_that_runs() {
    let (house, _) = house().await;
    let mut grows = machine("m");
    grows["metadata"]["annotations"] = json!({"harvesterhci.io/enableCPUAndMemoryHotplug": "true"});
    house.post(MACHINES, grows).await.ok();
    run(&house).await;
    house.post(crate::machine::DEFINITIONS, crate::machine::definition("net", "mgmt-br")).await.ok();
    assert_eq!(refused(&house, "addNic", json!({"interfaceName": "nic-1"})).await.0, 422);
    act(&house, "addNic", json!({"interfaceName": "nic-1", "networkName": "default/net", "macAddress": ""}))
        .await;
    let found = house.post(&format!("{VM}?action=findHotunpluggableNics"), json!({})).await;
    assert_eq!((found.code, &found.body), (200, &json!({"interfaces": ["nic-0", "nic-1"]})));
    assert!(offered(&house).await.contains(&"removeNic".to_owned()));
    act(&house, "removeNic", json!({"interfaceName": "nic-1"})).await;
    assert_eq!(
        refused(&house, "removeNic", json!({"interfaceName": "nic-0"})).await.0,
        422,
        "the last one stays"
    );
    let interfaces = vm(&house).await["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"].clone();
    assert_eq!(interfaces[1]["state"], "absent");

    assert_eq!(
        refused(&house, "cpuAndMemoryHotplug", json!({"sockets": 2})).await.0,
        422,
        "it does not run yet"
    );
    let status = json!({"status": {"printableStatus": "Running"}});
    house.patch(&format!("{MACHINES}/m/status"), "merge-patch", status).await.ok();
    let cpu = vm(&house).await["spec"]["template"]["spec"]["domain"]["cpu"].clone();
    if cpu["cores"].as_u64().unwrap_or(1) == 1 {
        assert!(offered(&house).await.contains(&"cpuAndMemoryHotplug".to_owned()), "{cpu}");
        assert_eq!(refused(&house, "cpuAndMemoryHotplug", json!({"memory": "lots"})).await.0, 422);
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_an_object_that_goes_on_by_itself() {
    let (house, _) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    act(&house, "clone", json!({"targetVm": "copy"})).await;
    let clones =
        house.get("/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones").await.ok();
    let made = &clones["items"][0];
    assert_eq!(made["spec"]["target"]["name"], "copy");
    assert_eq!(
        made["metadata"]["annotations"]["sheaf.io/run-strategy"], "RerunOnFailure",
        "as the original runs"
    );
    assert_eq!(refused(&house, "clone", json!({"targetVm": "x", "runStrategy": "Often"})).await.0, 422);
    assert_eq!(refused(&house, "clone", json!({"targetVm": "m"})).await.0, 409);
    assert_eq!(refused(&house, "clone", json!({})).await, (422, "Parameter targetVm is required".to_owned()));
    assert_eq!(refused(&house, "clone", json!({"targetVm": 7})).await.0, 422);
    let garbage = house.send(http::Method::POST, &format!("{VM}?action=clone"), &[], "{").await;
    assert_eq!(garbage.code, 422);
}

#[tokio::test(start_paused = true)]
async fn disks_that_were_named_go_with_the_machine() {
    let (house, _) = house().await;
    house.post(CLAIMS, claim("c")).await.ok();
    house.post(MACHINES, with_claim(machine("m"), "c")).await.ok();
    let deleted = house.delete(&format!("{VM}?removedDisks=disk-0&removedDisks=none")).await;
    assert_eq!((deleted.code, &deleted.body["metadata"]["state"]["name"]), (200, &json!("removing")));
    let now = vm(&house).await;
    assert_eq!(now["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"], "c");
    assert!(offered(&house).await.is_empty(), "nothing is wanted of a machine that goes");
}

#[tokio::test(start_paused = true)]
async fn a_noted_claim_is_the_one_that_was_there_and_no_other_of_its_name() {
    let (house, _) = house().await;
    let first = house.post(CLAIMS, claim("c")).await.ok()["metadata"]["uid"].clone();
    house.post(MACHINES, machine("m")).await.ok();
    let uids = async || {
        let annotations = vm(&house).await["metadata"]["annotations"].clone();
        annotations["sheaf.io/noted-claim-uids"]
            .as_str()
            .map(|text| serde_json::from_str::<Value>(text).unwrap())
    };
    let note = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let removed = "harvesterhci.io/removedPersistentVolumeClaims";
    let own = format!("{MACHINES}/m");
    house.patch(&own, "merge-patch", note(json!({removed: "c,none"}))).await.ok();
    assert_eq!(uids().await, Some(json!({"c": first})));
    // It goes, and comes back as another.
    house.delete(&format!("{CLAIMS}/c")).await.ok();
    house.patch(&format!("{CLAIMS}/c"), "merge-patch", json!({"metadata": {"finalizers": null}})).await.ok();
    for name in ["c", "none"] {
        house.post(CLAIMS, claim(name)).await.ok();
    }
    house.patch(&own, "merge-patch", note(json!({"a": "b"}))).await.ok();
    assert_eq!(uids().await, Some(json!({"c": first})), "a write later means nothing else");
    let forged = json!({"c": "x", "none": "x"}).to_string();
    house.patch(&own, "merge-patch", note(json!({"sheaf.io/noted-claim-uids": forged}))).await.ok();
    assert_eq!(uids().await, Some(json!({"c": first})), "and nobody says so themselves");
    house.patch(&own, "merge-patch", note(json!({removed: null}))).await.ok();
    assert_eq!(uids().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dismissed_warning_is_gone() {
    let (house, _) = house().await;
    let mut warned = machine("m");
    warned["metadata"]["annotations"] = json!({"harvesterhci.io/insufficient-resource-quota": "why"});
    house.post(MACHINES, warned).await.ok();
    assert!(offered(&house).await.contains(&"dismissInsufficientResourceQuota".to_owned()));
    act(&house, "dismissInsufficientResourceQuota", json!({})).await;
    assert!(!offered(&house).await.contains(&"dismissInsufficientResourceQuota".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_drive_is_taken_away_with_a_restart() {
    let (house, _) = house().await;
    let mut with_drive = machine("m");
    with_drive["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
        json!([{"name": "cd", "cdrom": {"bus": "sata"}}]);
    house.post(MACHINES, with_drive).await.ok();
    run(&house).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    house.patch(&format!("{MACHINES}/m/status"), "merge-patch", ready).await.ok();
    assert!(offered(&house).await.contains(&"ejectCdRom".to_owned()));
    assert_eq!(refused(&house, "ejectCdRom", json!({"diskNames": []})).await.0, 422);
    assert_eq!(refused(&house, "ejectCdRom", json!({"diskNames": ["none"]})).await.0, 422);
    act(&house, "ejectCdRom", json!({"diskNames": ["cd"]})).await;
    let now = vm(&house).await;
    assert!(now["spec"]["template"]["spec"]["domain"]["devices"]["disks"].is_null());
    assert_eq!(now["status"]["stateChangeRequests"].as_array().unwrap().len(), 2, "off and on again");
}

#[tokio::test(start_paused = true)]
async fn a_machine_becomes_again_what_a_snapshot_says() {
    let (house, _) = house().await;
    namespace(&house, "elsewhere").await;
    let made = house.post(MACHINES, machine("m")).await.ok();
    let backups = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinebackups";
    let backup = json!({"metadata": {"name": "b"}, "spec": {"type": "snapshot",
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "m"}}});
    house.post(backups, backup).await.ok();
    assert!(!offered(&house).await.contains(&"restore".to_owned()));
    let status = json!({"status": {"readyToUse": true, "sourceUID": made["metadata"]["uid"],
        "source": {"metadata": {"name": "m", "namespace": "default"}, "spec": made["spec"]}}});
    house.patch(&format!("{backups}/b"), "merge-patch", status).await.ok();
    assert!(offered(&house).await.contains(&"restore".to_owned()));
    act(&house, "snapshot", json!({})).await;
    assert_eq!(refused(&house, "restore", json!({"name": "r"})).await.0, 422);
    let (code, why) = refused(&house, "restore", json!({"name": "r", "backupName": "none"})).await;
    assert_eq!((code, why.contains("does not exist")), (422, true), "{why}");
    act(&house, "restore", json!({"name": "r", "backupName": "b"})).await;
    let restores = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinerestores";
    let spec = house.get(&format!("{restores}/r")).await.ok()["spec"].clone();
    assert_eq!((&spec["target"]["name"], &spec["virtualMachineBackupName"]), (&json!("m"), &json!("b")));
    assert!(!spec["newVM"].as_bool().unwrap_or_default(), "it becomes what it was: {spec}");
}

const TEMPLATES: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/virtualmachinetemplates";

#[tokio::test(start_paused = true)]
async fn a_template_of_a_machine_is_one_write_that_says_what_is_to_be_done() {
    let (mut house, _) = house().await;
    house.post(CLAIMS, claim("c")).await.ok();
    let made = house.post(MACHINES, with_claim(machine("m"), "c")).await.ok();
    for (odd, words) in [
        (json!({}), "Template name is required"),
        (json!({"name": "t", "withData": "yes"}), "withData must be true or false"),
        (json!({"name": "t", "withData": true}), "the claim c is not bound"),
        (json!({"name": "no/name"}), "no/name"),
    ] {
        let (code, why) = refused(&house, "createTemplate", odd).await;
        assert_eq!((code, why.contains(words)), (422, true), "{why}");
    }
    assert!(house.get(TEMPLATES).await.ok()["items"].as_array().unwrap().is_empty());
    act(&house, "createTemplate", json!({"name": "t", "description": "of m"})).await;
    let template = house.get(&format!("{TEMPLATES}/t")).await.ok();
    assert_eq!(template["spec"]["description"], "of m");
    let note = |template: &Value| -> Value {
        serde_json::from_str(template["metadata"]["annotations"]["sheaf.io/made-of"].as_str().unwrap())
            .unwrap()
    };
    assert_eq!(note(&template), json!({"machine": "m", "uid": made["metadata"]["uid"]}));
    assert_eq!(refused(&house, "createTemplate", json!({"name": "t"})).await.0, 409);
    let bound = json!({"status": {"phase": "Bound"}});
    house.patch(&format!("{CLAIMS}/c/status"), "merge-patch", bound).await.ok();
    act(&house, "createTemplate", json!({"name": "whole", "withData": true})).await;
    assert_eq!(note(&house.get(&format!("{TEMPLATES}/whole")).await.ok())["claims"], json!(["c"]));
    // What is said when it is made is not said later, and what is left to copy by nobody but its controller.
    let later = json!({"metadata": {"annotations": {"sheaf.io/made-of": "{}"}}});
    assert_eq!(house.patch(&format!("{TEMPLATES}/t"), "merge-patch", later).await.refusal().0, 422);
    let rules = json!([
        {"apiGroups": ["harvesterhci.io"], "resources": ["virtualmachinetemplates"], "verbs": ["create", "get"]},
        {"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["get", "list"]},
    ]);
    allow(&house, "default", "half", rules).await;
    house.user = jo();
    assert!(!offered(&house).await.contains(&"createTemplate".to_owned()), "without versions it is none");
    assert_eq!(refused(&house, "createTemplate", json!({"name": "jos"})).await.0, 403);
    let by_hand = json!({"metadata": {"name": "jos", "annotations": {"sheaf.io/made-of":
        json!({"machine": "m", "uid": made["metadata"]["uid"]}).to_string()}}, "spec": {}});
    assert_eq!(house.post(TEMPLATES, by_hand).await.refusal().0, 403, "nor by another way");
}

#[tokio::test(start_paused = true)]
async fn nobody_has_secrets_copied_that_they_may_not_read() {
    let (mut house, _) = house().await;
    let mut with_seed = machine("m");
    with_seed["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "s"}}}]);
    with_seed["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
        json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
    let made = house.post(MACHINES, with_seed).await.ok();
    let rules = json!([
        {"apiGroups": ["harvesterhci.io", "kubevirt.io", "clone.kubevirt.io"], "resources": ["*"], "verbs": ["*"]},
    ]);
    allow(&house, "default", "all-but-secrets", rules).await;
    let note = |secrets: Value| {
        let note = json!({"machine": "m", "uid": made["metadata"]["uid"], "secrets": secrets});
        json!({"metadata": {"name": "by-hand", "annotations": {"sheaf.io/made-of": note.to_string()}}, "spec": {}})
    };
    let clone = json!({"metadata": {"name": "c"}, "spec": {
        "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "m"},
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "two"}}});
    let clones = "/apis/clone.kubevirt.io/v1beta1/namespaces/default/virtualmachineclones";
    let admin = std::mem::replace(&mut house.user, jo());
    let buttons = offered(&house).await;
    assert!(!buttons.contains(&"createTemplate".to_owned()) && !buttons.contains(&"clone".to_owned()));
    for (action, input) in [("createTemplate", json!({"name": "t"})), ("clone", json!({"targetVm": "two"}))] {
        let (code, why) = refused(&house, action, input).await;
        assert_eq!((code, why.contains("the right to get secrets \"s\"")), (403, true), "{why}");
    }
    assert_eq!(house.post(TEMPLATES, note(json!(["s"]))).await.refusal().0, 403, "nor by another way");
    assert_eq!(house.post(clones, clone.clone()).await.refusal().0, 403);
    // Who may read another one may not have this one.
    let other =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["o"], "verbs": ["get"]}]);
    house.user = admin.clone();
    allow(&house, "default", "other-secret", other).await;
    house.user = jo();
    assert_eq!(house.post(TEMPLATES, note(json!(["s"]))).await.refusal().0, 403);
    let this =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"], "verbs": ["get"]}]);
    house.user = admin.clone();
    allow(&house, "default", "this-secret", this).await;
    house.user = jo();
    assert!(offered(&house).await.contains(&"createTemplate".to_owned()));
    act(&house, "createTemplate", json!({"name": "t"})).await;
    house.post(clones, clone).await.ok();
    assert_eq!(house.get(TEMPLATES).await.ok()["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_template_is_made_by_those_who_may_read_what_it_gets_copies_of() {
    let (mut house, _) = house().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let owner = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineTemplateVersion",
        "name": "v", "uid": "u"});
    house.post(secrets, json!({"metadata": {"name": "t", "ownerReferences": [owner]}})).await.ok();
    house.post(secrets, json!({"metadata": {"name": "plain"}})).await.ok();
    let machine_with = |name: &str, secret: &str| {
        let mut vm = machine(name);
        vm["spec"]["template"]["spec"]["volumes"] =
            json!([{"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": secret}}}]);
        vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"] =
            json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
        vm
    };
    let rules = json!([{"apiGroups": ["kubevirt.io"], "resources": ["*"], "verbs": ["*"]}]);
    allow(&house, "default", "machines", rules).await;
    let admin = std::mem::replace(&mut house.user, jo());
    let refused = house.post(MACHINES, machine_with("m", "t")).await;
    assert_eq!(refused.code, 403);
    assert!(refused.message().contains("the right to get secrets \"t\""), "{}", refused.message());
    house.post(MACHINES, machine_with("plain", "plain")).await.ok();
    let change = machine_with("plain", "t")["spec"]["template"]["spec"]["volumes"].clone();
    let change = json!({"spec": {"template": {"spec": {"volumes": change}}}});
    assert_eq!(house.patch(&format!("{MACHINES}/plain"), "merge-patch", change).await.code, 403);
    house.user = admin;
    let made = house.post(MACHINES, machine_with("m", "t")).await.ok();
    let own = &made["spec"]["template"]["spec"]["volumes"][0]["cloudInitNoCloud"]["secretRef"]["name"];
    assert_ne!(own, "t");
    let note = made["metadata"]["annotations"]["sheaf.io/secrets-to-copy"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(note).unwrap(), json!({own.as_str().unwrap(): "t"}));
}

#[tokio::test(start_paused = true)]
async fn no_template_is_made_of_a_machine_that_is_coming_up() {
    let (house, _) = house().await;
    house.post(MACHINES, machine("m")).await.ok();
    house.post(INSTANCES, instance("m")).await.ok();
    house
        .patch(&format!("{INSTANCES}/m"), "merge-patch", json!({"status": {"phase": "Scheduling"}}))
        .await
        .ok();
    assert!(!offered(&house).await.contains(&"createTemplate".to_owned()));
    assert_eq!(refused(&house, "createTemplate", json!({"name": "t"})).await.0, 422);
    run_on(&house, "Running").await;
    act(&house, "createTemplate", json!({"name": "t"})).await;
}

async fn run_on(house: &House, phase: &str) {
    let status = json!({"status": {"phase": phase, "nodeName": "n1"}});
    house.patch(&format!("{INSTANCES}/m"), "merge-patch", status).await.ok();
}

#[tokio::test(start_paused = true)]
async fn disks_go_with_the_deletion_that_named_them_and_with_no_other() {
    let (house, _) = house().await;
    house.post(CLAIMS, claim("data")).await.ok();
    let mut kept = with_claim(machine("m"), "data");
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    house.post(MACHINES, kept).await.ok();
    let noted =
        |vm: &Value| vm["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"].clone();
    house.delete(&format!("{VM}?removedDisks=disk-0&dryRun=All")).await.ok();
    assert!(noted(&vm(&house).await).is_null(), "nothing is done, so nothing is noted");
    // What is left of a deletion that came to nothing.
    let left =
        json!({"metadata": {"annotations": {"harvesterhci.io/removedPersistentVolumeClaims": "data"}}});
    house.patch(&format!("{MACHINES}/m"), "merge-patch", left).await.ok();
    house.delete(VM).await.ok();
    let going = vm(&house).await;
    assert!(!going["metadata"]["deletionTimestamp"].is_null());
    assert!(noted(&going).is_null(), "no disk was named this time");
}
