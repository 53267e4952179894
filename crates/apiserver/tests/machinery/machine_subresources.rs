//! `subresources.kubevirt.io` through the door, with an agent that only notes what it is asked.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_apiserver::{
    identity::User,
    machines::agents::{AgentConnection, DialAgent},
};

use crate::house::House;

const VMS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
const SUBRESOURCES: &str = "/apis/subresources.kubevirt.io/v1/namespaces/default";

/// Answers every question alike and notes it.
#[derive(Default)]
struct Agent {
    asked: Arc<Mutex<Vec<String>>>,
    answer: Mutex<(u16, &'static str)>,
}

#[async_trait]
impl DialAgent for Agent {
    async fn dial(&self, node: &str, address: SocketAddr) -> io::Result<Box<dyn AgentConnection>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let (asked, node, answer) = (self.asked.clone(), node.to_owned(), *self.answer.lock());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                asked.lock().push(format!("{node} {address} {} {}", request.method(), request.uri()));
                let response = Response::builder()
                    .status(answer.0)
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::from_static(answer.1.as_bytes())))
                    .unwrap();
                async move { Ok::<_, Infallible>(response) }
            });
            let _ = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).await;
        });
        Ok(Box::new(ours))
    }
}

async fn house() -> (House, Arc<Agent>) {
    let agent = Arc::new(Agent::default());
    *agent.answer.lock() = (200, "{}");
    let house = House::reaching(agent.clone()).await;
    house.join_node().await;
    (house, agent)
}

fn domain() -> Value {
    json!({"domain": {"cpu": {"cores": 1}, "memory": {"guest": "64Mi"}, "devices": {}}})
}

async fn vm(house: &House, strategy: &str) -> Value {
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "vm1"},
        "spec": {"runStrategy": strategy, "template": {"spec": domain()}},
    });
    house.post(VMS, vm).await.ok()
}

async fn instance(house: &House, status: Value) -> Value {
    let instance = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm1"},
        "spec": domain(),
    });
    house.post(VMIS, instance).await.ok();
    house.patch(&format!("{VMIS}/vm1"), "merge-patch", json!({"status": status})).await.ok()
}

fn running() -> Value {
    json!({"phase": "Running", "nodeName": "n1"})
}

fn of_vm(what: &str) -> String {
    format!("{SUBRESOURCES}/virtualmachines/vm1/{what}")
}

fn of_vmi(what: &str) -> String {
    format!("{SUBRESOURCES}/virtualmachineinstances/vm1/{what}")
}

#[tokio::test(start_paused = true)]
async fn discovery_shows_what_is_served_and_nothing_else() {
    let (house, _) = house().await;
    let groups = house.get("/apis").await.ok();
    let names: Vec<&str> =
        groups["groups"].as_array().unwrap().iter().filter_map(|group| group["name"].as_str()).collect();
    assert!(names.contains(&"subresources.kubevirt.io") && names.is_sorted(), "{names:?}");
    let group = house.get("/apis/subresources.kubevirt.io").await.ok();
    assert_eq!(group["kind"], "APIGroup");
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let list = house.get("/apis/subresources.kubevirt.io/v1").await.ok().to_string();
    assert!(list.contains("virtualmachineinstances/vnc/screenshot") && !list.contains("migrate"), "{list}");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let aggregated = house.send(Method::GET, "/apis", &[("accept", accept)], "").await.ok();
    let items = aggregated["items"].as_array().unwrap();
    assert!(items.iter().any(|group| group["metadata"]["name"] == "subresources.kubevirt.io"));
}

#[tokio::test(start_paused = true)]
async fn everybody_sees_the_version_and_that_it_is_well() {
    let (mut house, _) = house().await;
    house.user = User { name: "system:anonymous".into(), ..User::default() };
    let version = house.get("/apis/subresources.kubevirt.io/v1/version").await.ok();
    assert_eq!(version["gitVersion"], "v1.7.0");
    assert_eq!(house.get("/apis/subresources.kubevirt.io/v1alpha3/healthz").await.code, 200);
    assert_eq!(house.put(&of_vm("start"), json!({})).await.refusal(), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn a_halted_machine_is_started_and_a_running_one_stopped_by_its_run_strategy() {
    let (house, _) = house().await;
    assert_eq!(house.put(&of_vm("start"), json!({})).await.refusal(), (404, "NotFound"));
    vm(&house, "Halted").await;
    let started = house.send(Method::PUT, &of_vm("start"), &[], "").await;
    assert_eq!((started.code, started.body), (202, json!("")));
    let strategy = house.get(&format!("{VMS}/vm1")).await.ok()["spec"]["runStrategy"].clone();
    assert_ne!(strategy, "Halted");

    house.patch(&format!("{VMS}/vm1"), "merge-patch", json!({"spec": {"runStrategy": "Always"}})).await.ok();
    instance(&house, running()).await;
    let again = house.put(&of_vm("start"), json!({})).await;
    assert_eq!(again.refusal(), (409, "Conflict"));
    assert_eq!(
        again.message(),
        "Operation cannot be fulfilled on virtualmachine.kubevirt.io \"vm1\": VM is already running"
    );
    assert_eq!(house.put(&of_vm("stop"), json!({"gracePeriod": 0})).await.code, 202);
    assert_eq!(house.get(&format!("{VMS}/vm1")).await.ok()["spec"]["runStrategy"], "Halted");
    let shortened = house.get(&format!("{VMIS}/vm1")).await.ok();
    assert_eq!(shortened["spec"]["terminationGracePeriodSeconds"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_noted_in_the_status_and_ends_the_wait_after_failures() {
    let (house, _) = house().await;
    vm(&house, "Manual").await;
    let failing =
        json!({"status": {"startFailure": {"consecutiveFailCount": 3}, "printableStatus": "Stopped"}});
    house.patch(&format!("{VMS}/vm1/status"), "merge-patch", failing).await.ok();
    assert_eq!(house.put(&of_vm("start"), json!({"dryRun": ["All"]})).await.code, 202);
    let untouched = house.get(&format!("{VMS}/vm1")).await.ok();
    assert_eq!(untouched["status"]["stateChangeRequests"], Value::Null);

    assert_eq!(house.put(&of_vm("start"), json!({"paused": true})).await.code, 202);
    let vm = house.get(&format!("{VMS}/vm1")).await.ok();
    let wanted = json!([{"action": "Start", "data": {"paused": "true"}}]);
    assert_eq!(vm["status"]["stateChangeRequests"], wanted);
    assert_eq!(vm["status"]["startFailure"], Value::Null);
    assert_eq!(vm["status"]["printableStatus"], "Stopped");
    assert_eq!(vm["spec"]["runStrategy"], "Manual");

    let again = house.put(&of_vm("start"), json!({})).await;
    assert_eq!(again.refusal(), (500, "InternalError"));
    assert!(again.message().contains("stop/start already underway"));
    assert_eq!(house.put(&of_vm("stop"), json!({"gracePeriod": "soon"})).await.code, 400);
    assert_eq!(house.send(Method::PUT, &of_vm("stop"), &[], "[]").await.code, 400);
}

#[tokio::test(start_paused = true)]
async fn a_start_survives_others_who_write_at_the_same_time() {
    let (house, _) = house().await;
    vm(&house, "Manual").await;
    let path = format!("{VMS}/vm1");
    let others = async {
        for number in 0..20 {
            let label = json!({"metadata": {"labels": {format!("l{number}"): "x"}}});
            house.patch(&path, "merge-patch", label).await.ok();
        }
    };
    let start_path = of_vm("start");
    let (started, ()) = tokio::join!(house.put(&start_path, json!({})), others);
    assert_eq!(started.code, 202, "{started:?}");
    let vm = house.get(&path).await.ok();
    assert_eq!(vm["status"]["stateChangeRequests"][0]["action"], "Start");
    assert_eq!(vm["metadata"]["labels"].as_object().unwrap().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn who_may_start_may_not_therefore_stop() {
    let (mut house, _) = house().await;
    vm(&house, "Halted").await;
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let role = json!({
        "metadata": {"name": "starter"},
        "rules": [{
            "apiGroups": ["subresources.kubevirt.io"], "verbs": ["update", "get"],
            "resources": ["virtualmachines/start", "virtualmachineinstances/portforward"],
        }],
    });
    house.post(&format!("{rbac}/roles"), role).await.ok();
    let binding = json!({
        "metadata": {"name": "starter"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "starter"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jo"}],
    });
    house.post(&format!("{rbac}/rolebindings"), binding).await.ok();
    house.user = User { name: "jo".into(), ..User::default() };
    assert_eq!(house.put(&of_vm("stop"), json!({})).await.refusal(), (403, "Forbidden"));
    assert_eq!(house.put(&of_vm("start"), json!({})).await.code, 202);
    // The port is no part of what a role names.
    assert_eq!(house.get(&of_vmi("portforward/22/tcp")).await.code, 404);
    assert_eq!(house.get(&of_vmi("console")).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn orders_reach_the_agent_of_the_instances_node() {
    let (house, agent) = house().await;
    assert_eq!(house.put(&of_vmi("pause"), json!({})).await.refusal(), (404, "NotFound"));
    let made = instance(&house, running()).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    assert_eq!(house.put(&of_vmi("pause"), json!({"dryRun": ["All"]})).await.code, 200);
    assert_eq!(*agent.asked.lock(), Vec::<String>::new());
    for (what, sent) in [("pause", "pause"), ("reset", "reset"), ("softreboot", "softreboot")] {
        let done = house.send(Method::PUT, &of_vmi(what), &[], "").await;
        assert_eq!((done.code, &done.body), (200, &json!("")), "{what}");
        let asked = agent.asked.lock().pop().unwrap();
        assert_eq!(asked, format!("n1 192.0.2.7:10250 PUT /v1/machines/{uid}/{sent}"));
    }
    house.put(&of_vmi("freeze"), json!({"unfreezeTimeout": "1m30s"})).await;
    assert!(agent.asked.lock().pop().unwrap().ends_with("freeze?unfreezeTimeoutSeconds=90"));
    assert_eq!(house.put(&of_vmi("unpause"), json!({})).await.refusal(), (409, "Conflict"));

    *agent.answer.lock() = (409, "somebody is connected");
    let refused = house.put(&of_vmi("reset"), json!({})).await;
    assert_eq!(refused.refusal(), (409, "Conflict"));
    assert!(refused.message().ends_with("somebody is connected"));
    *agent.answer.lock() = (500, "QEMU would not");
    assert_eq!(
        house.put(&of_vmi("reset"), json!({})).await.message(),
        "Internal error occurred: QEMU would not"
    );
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_asked_only_when_its_agent_is_connected() {
    let (house, agent) = house().await;
    *agent.answer.lock() = (200, r#"{"guestAgentVersion":"7.2"}"#);
    instance(&house, json!({"phase": "Scheduling"})).await;
    assert!(house.get(&of_vmi("guestosinfo")).await.message().ends_with("VMI is not running"));
    let path = format!("{VMIS}/vm1");
    house.patch(&path, "merge-patch", json!({"status": running()})).await.ok();
    let refused = house.get(&of_vmi("userlist")).await;
    assert_eq!(refused.refusal(), (409, "Conflict"));
    assert!(refused.message().ends_with("VMI does not have guest agent connected"));
    let connected = json!({"status": {"conditions": [{"type": "AgentConnected", "status": "True"}]}});
    house.patch(&path, "merge-patch", connected).await.ok();
    assert_eq!(house.get(&of_vmi("guestosinfo")).await.ok()["guestAgentVersion"], "7.2");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_refused_with_a_reason_before_it_begins() {
    let (house, agent) = house().await;
    instance(&house, json!({"phase": "Scheduled", "nodeName": "n1"})).await;
    let path = format!("{VMIS}/vm1");
    // virtctl tries again on exactly this code.
    assert_eq!(house.get(&of_vmi("console")).await.refusal(), (400, "BadRequest"));
    assert_eq!(house.get(&of_vmi("vnc")).await.message(), "VMI is not running");
    house.patch(&path, "merge-patch", json!({"status": {"phase": "Failed"}})).await.ok();
    assert!(house.get(&of_vmi("console")).await.message().ends_with("VMI is in failed status"));
    assert_eq!(house.get(&of_vm("portforward/22")).await.refusal(), (404, "NotFound"));
    house.patch(&path, "merge-patch", json!({"status": running()})).await.ok();
    let plain = house.get(&of_vmi("console")).await;
    assert_eq!(plain.refusal(), (400, "BadRequest"));
    assert!(plain.message().contains("WebSocket"), "{}", plain.message());
    assert_eq!(*agent.asked.lock(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_yet_says_so() {
    let (house, _) = house().await;
    vm(&house, "Halted").await;
    let migrate = house.put(&of_vm("migrate"), json!({})).await;
    assert_eq!(migrate.refusal(), (404, "NotFound"));
    let said = migrate.message().to_owned();
    assert!(said.starts_with("virtualmachines/migrate is not served yet: a machine stays"), "{said}");
    assert_eq!(house.get(&of_vm("start")).await.refusal(), (405, "MethodNotAllowed"));
    assert_eq!(house.put(&of_vm("explode"), json!({})).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn the_last_hour_of_an_instance_comes_from_the_agent_of_its_node() {
    let (mut house, agent) = house().await;
    *agent.answer.lock() = (200, r#"{"interval":10,"points":[]}"#);
    assert_eq!(house.get(&of_vmi("history")).await.refusal(), (404, "NotFound"));
    let made = instance(&house, running()).await;
    let uid = made["metadata"]["uid"].as_str().unwrap();
    // Its guest has no agent, and need not have one.
    assert_eq!(house.get(&of_vmi("history")).await.ok()["interval"], 10);
    let asked = agent.asked.lock().pop().unwrap();
    assert_eq!(asked, format!("n1 192.0.2.7:10250 GET /v1/machines/{uid}/history"));
    *agent.answer.lock() = (404, "machine has no history here");
    let unknown = house.get(&of_vmi("history")).await;
    assert_eq!(unknown.refusal(), (500, "InternalError"));
    assert!(unknown.message().ends_with("machine has no history here"), "{}", unknown.message());
    assert_eq!(house.put(&of_vmi("history"), json!({})).await.refusal(), (405, "MethodNotAllowed"));
    let list = house.get("/apis/subresources.kubevirt.io/v1").await.ok().to_string();
    assert!(list.contains("virtualmachineinstances/history"), "{list}");
    house.user = User { name: "jo".into(), ..User::default() };
    assert_eq!(house.get(&of_vmi("history")).await.refusal(), (403, "Forbidden"));
}

#[tokio::test(start_paused = true)]
async fn metrics_say_which_instances_there_are_and_what_others_count() {
    let (house, _) = house().await;
    let page = async || match house.get("/metrics").await.ok() {
        Value::String(page) => page,
        other => panic!("{other}"),
    };
    assert!(!page().await.contains("kubevirt_vmi"), "there is none yet");
    let status = json!({
        "phase": "Running", "nodeName": "n1", "machine": {"type": "pc-q35-7.2"},
        "guestOSInfo": {"name": "Debian \"12\"", "versionId": "12", "kernelRelease": "6.1", "machine": "x86_64"},
    });
    instance(&house, status).await;
    let guest = r#"guest_os_kernel_release="6.1",guest_os_machine="pc-q35-7.2",guest_os_arch="x86_64",guest_os_name="Debian \"12\"",guest_os_version_id="12""#;
    let page = page().await;
    let info = format!(
        r#"kubevirt_vmi_info{{node="n1",namespace="default",name="vm1",phase="running",{guest},evictable="true",outdated="false"}} 1"#
    );
    assert!(page.lines().any(|line| line == info), "{info}\n{page}");
    let count = format!(r#"kubevirt_vmi_phase_count{{node="n1",phase="running",{guest}}} 1"#);
    assert!(page.lines().any(|line| line == count), "{count}\n{page}");
    assert!(page.contains("# TYPE kubevirt_vmi_info gauge\n") && page.contains("apiserver_request_total"));
    assert!(page.ends_with("\nof_somebody_else 1\n") && !page.contains("# EOF"), "{page}");
}

fn data(name: &str, claim: &str) -> Value {
    json!({"name": name, "disk": {"name": "", "disk": {"bus": "scsi"}, "serial": name},
        "volumeSource": {"persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}}})
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_asked_for_is_the_machines_from_then_on_and_goes_when_it_is_asked_away() {
    let (house, _) = house().await;
    vm(&house, "Halted").await;
    let spec = |vm: &Value| vm["spec"]["template"]["spec"].clone();
    let only_tried = {
        let mut body = data("data", "c-data");
        body["dryRun"] = json!(["All"]);
        body
    };
    assert_eq!(house.put(&of_vm("addvolume"), only_tried).await.code, 202);
    assert!(spec(&house.get(&format!("{VMS}/vm1")).await.ok())["volumes"].is_null());
    let added = house.put(&of_vm("addvolume"), data("data", "c-data")).await;
    assert_eq!(added.code, 202);
    let now = spec(&house.get(&format!("{VMS}/vm1")).await.ok());
    assert_eq!(now["volumes"][0]["persistentVolumeClaim"]["hotpluggable"], true);
    assert_eq!(now["domain"]["devices"]["disks"][0]["name"], "data");
    for (body, code, said) in [
        (data("data", "other"), 409, "volume with that name already exists"),
        (data("other", "c-data"), 409, "Unable to add volume source [c-data] because it already exists"),
        (json!({}), 400, "AddVolumeOptions requires name to be set"),
    ] {
        let refused = house.put(&of_vm("addvolume"), body).await;
        assert_eq!(refused.code, code);
        assert!(refused.body.to_string().contains(said), "{}", refused.body);
    }
    assert_eq!(house.put(&of_vm("removevolume"), json!({"name": "data"})).await.code, 202);
    assert_eq!(spec(&house.get(&format!("{VMS}/vm1")).await.ok())["volumes"], Value::Null);
    assert_eq!(house.put(&of_vm("removevolume"), json!({"name": "data"})).await.code, 409);
    let nobodys = of_vm("addvolume").replace("vm1", "nobody");
    assert_eq!(house.put(&nobodys, data("data", "c-data")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_an_instance_alone_is_noted_as_such_and_only_a_running_one_takes_it() {
    let (house, _) = house().await;
    instance(&house, json!({"phase": "Scheduled", "nodeName": "n1"})).await;
    assert_eq!(house.put(&of_vmi("addvolume"), data("data", "c-data")).await.code, 409);
    house.patch(&format!("{VMIS}/vm1"), "merge-patch", json!({"status": running()})).await.ok();
    assert_eq!(house.put(&of_vmi("addvolume"), data("data", "c-data")).await.code, 202);
    let now = house.get(&format!("{VMIS}/vm1")).await.ok();
    assert_eq!(now["metadata"]["annotations"]["kubevirt.io/ephemeral-hotplug-volumes"], r#"["data"]"#);
    assert_eq!(now["spec"]["volumes"][0]["name"], "data");
    assert_eq!(house.put(&of_vmi("removevolume"), json!({"name": "data"})).await.code, 202);
    let now = house.get(&format!("{VMIS}/vm1")).await.ok();
    assert!(now["metadata"]["annotations"]["kubevirt.io/ephemeral-hotplug-volumes"].is_null());
    // A claim is one machine's, however it comes to it.
    house.put(&of_vmi("addvolume"), data("data", "c-data")).await;
    let other = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "vm2"}, "spec": domain(),
    });
    house.post(VMIS, other).await.ok();
    house.patch(&format!("{VMIS}/vm2"), "merge-patch", json!({"status": running()})).await.ok();
    let second = house.put(&of_vmi("addvolume").replace("vm1", "vm2"), data("data", "c-data")).await;
    assert_eq!(second.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_refers_to_nothing_is_expanded_to_itself_and_one_that_does_is_refused() {
    let (house, _) = house().await;
    assert_eq!(house.get(&of_vm("expand-spec")).await.refusal(), (404, "NotFound"));
    let made = vm(&house, "Halted").await;
    assert_eq!(house.get(&of_vm("expand-spec")).await.ok(), made);

    let expand = format!("{SUBRESOURCES}/expand-vm-spec");
    let sent = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "only-sent"},
        "spec": {"runStrategy": "Halted", "template": {"spec": domain()}},
    });
    let expanded = house.put(&expand, sent.clone()).await.ok();
    assert_eq!(expanded["metadata"]["namespace"], "default");
    assert_eq!(expanded["spec"], sent["spec"]);
    assert_eq!(house.get(&format!("{VMS}/only-sent")).await.code, 404, "nothing is written");
    let wrong = [
        ("/spec/instancetype", json!({"name": "u1.small"}), "there are no instance types"),
        ("/spec/preference", json!({"name": "linux"}), "there are no preferences"),
        ("/kind", json!("Pod"), "not a valid VirtualMachine"),
        ("/metadata/namespace", json!("elsewhere"), "must be empty or default"),
        ("/spec/template", json!("none"), "not a valid VirtualMachine"),
    ];
    for (field, value, why) in wrong {
        let mut wrong = sent.clone();
        let (parent, name) = field.rsplit_once('/').unwrap();
        wrong.pointer_mut(parent).unwrap()[name] = value;
        let refused = house.put(&expand, wrong).await;
        assert_eq!(refused.refusal(), (400, "BadRequest"), "{field}");
        assert!(refused.message().contains(why), "{field}: {}", refused.message());
    }
    assert_eq!(house.get(&expand).await.refusal(), (405, "MethodNotAllowed"));
}
