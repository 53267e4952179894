//! What a machine is given when it is written, and what nobody else may have then.

use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::House,
    machine::{
        CLAIMS, CLASSES, DEFINITIONS, IMAGES, INSTANCES, MACHINES, SETTINGS, claim, definition, image,
        instance, machine, on_network, with_claim,
    },
};

const KEYS: &str = "/apis/harvesterhci.io/v1beta1/namespaces/default/keypairs";
const KEY: &str = include_str!("../../../resources/src/kinds/key_pair/ed25519.pub");

fn domain(machine: &Value) -> &Value {
    &machine["spec"]["template"]["spec"]["domain"]
}

async fn set(house: &House, name: &str, value: &str) {
    house.patch(&format!("{SETTINGS}/{name}"), "merge-patch", json!({"value": value})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_machine_comes_back_with_all_that_clients_read_without_looking() {
    let house = House::new().await;
    let vm = house.post(MACHINES, machine("vm")).await.ok();
    assert_eq!(domain(&vm)["machine"]["type"], "q35");
    assert_eq!(domain(&vm)["cpu"], json!({"cores": 1, "sockets": 1, "threads": 1, "maxSockets": 1}));
    assert_eq!(domain(&vm)["memory"]["guest"], "2Gi");
    assert_eq!(domain(&vm)["resources"]["requests"], json!({"cpu": "200m", "memory": "1365Mi"}));
    assert_eq!(vm["metadata"]["annotations"]["harvesterhci.io/vmRunStrategy"], "RerunOnFailure");
    assert_eq!(vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 120);
    for drawn in ["/firmware/uuid", "/firmware/serial", "/devices/interfaces/0/macAddress"] {
        assert!(
            domain(&vm).pointer(drawn).and_then(Value::as_str).is_some_and(|id| !id.is_empty()),
            "{drawn}"
        );
    }
    let mut efi = machine("efi");
    efi["spec"]["template"]["spec"]["domain"]["firmware"] =
        json!({"bootloader": {"efi": {"secureBoot": false}}});
    let efi = house.post(MACHINES, efi).await.ok();
    assert_eq!(domain(&efi)["firmware"]["bootloader"]["efi"]["secureBoot"], false);
}

#[tokio::test(start_paused = true)]
async fn what_was_drawn_stays_when_a_client_leaves_it_out() {
    let house = House::new().await;
    let first = house.post(MACHINES, machine("vm")).await.ok();
    let again = house.put(&format!("{MACHINES}/vm"), machine("vm")).await.ok();
    assert_eq!(domain(&again), domain(&first));
    // Nothing new was wished for, so nothing is to be done.
    assert_eq!(again["metadata"]["generation"], first["metadata"]["generation"]);
    let mut larger = machine("vm");
    larger["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["cpu"] = json!("4");
    let larger = house.put(&format!("{MACHINES}/vm"), larger).await.ok();
    assert_eq!(domain(&larger)["resources"]["requests"]["cpu"], "400m");
    assert_eq!(larger["metadata"]["generation"], 2);
}

#[tokio::test(start_paused = true)]
async fn settings_decide_what_a_machine_is_given() {
    let house = House::new().await;
    set(&house, "overcommit-config", r#"{"cpu":200,"memory":200,"storage":100}"#).await;
    set(&house, "default-vm-termination-grace-period-seconds", "7").await;
    set(&house, "additional-guest-memory-overhead-ratio", "0").await;
    let vm = house.post(MACHINES, machine("vm")).await.ok();
    assert_eq!(domain(&vm)["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
    assert_eq!(domain(&vm)["memory"]["guest"], "1948Mi");
    assert_eq!(vm["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_where_its_network_is() {
    let house = House::new().await;
    let made = house.post(DEFINITIONS, definition("vlan7", "mgmt-br")).await.ok();
    let labels = &made["metadata"]["labels"];
    assert_eq!(labels["network.harvesterhci.io/vlan-id"], "7");
    assert_eq!(labels["network.harvesterhci.io/type"], "L2VlanNetwork");
    let vm = house.post(MACHINES, on_network(machine("vm"), "vlan7")).await.ok();
    let required = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    assert_eq!(
        vm.pointer(required).unwrap()["nodeSelectorTerms"][0]["matchExpressions"][0]["key"],
        "network.harvesterhci.io/mgmt"
    );
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_a_machine_is_given_what_a_template_would_be() {
    let mut house = House::new().await;
    let vmi = house.post(INSTANCES, instance("bare")).await.ok();
    assert_eq!(vmi["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(vmi["spec"]["domain"]["resources"]["requests"]["cpu"], "200m");
    for drawn in ["/spec/domain/firmware/uuid", "/spec/domain/devices/interfaces/0/macAddress"] {
        assert!(vmi.pointer(drawn).and_then(Value::as_str).is_some_and(|id| !id.is_empty()), "{drawn}");
    }
    // What a VirtualMachine settled is not settled again.
    let mut owned = instance("owned");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "name": "owned", "uid": "u", "controller": true}]);
    owned["spec"]["domain"]["resources"]["requests"] = json!({"cpu": "1500m", "memory": "2Gi"});
    let owned = house.post(INSTANCES, owned).await.ok();
    assert_eq!(owned["spec"]["domain"]["resources"]["requests"]["cpu"], "1500m");

    // How it stands is not for people to say.
    let role = json!({"metadata": {"name": "jo"}, "subjects": [{"kind": "User", "name": "jo",
        "apiGroup": "rbac.authorization.k8s.io"}], "roleRef": {"kind": "ClusterRole", "name": "kubevirt.io:edit",
        "apiGroup": "rbac.authorization.k8s.io"}});
    house.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", role).await.ok();
    house.user = User { name: "jo".into(), groups: vec![AUTHENTICATED.into()], ..User::default() };
    let mut placed = instance("placed");
    placed["status"] = json!({"nodeName": "n1", "phase": "Running"});
    let placed = house.post(INSTANCES, placed).await.ok();
    assert_eq!(placed["status"]["nodeName"], Value::Null);
    let claimed = json!({"metadata": {"labels": {"a": "b"}}, "status": {"nodeName": "n1"}});
    let patched = house.patch(&format!("{INSTANCES}/placed"), "merge-patch", claimed).await.ok();
    assert_eq!(
        (&patched["status"]["nodeName"], &patched["metadata"]["labels"]["a"]),
        (&Value::Null, &json!("b"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_hardware_address_belongs_to_one_machine() {
    let house = House::new().await;
    let address = "/spec/template/spec/domain/devices/interfaces/0";
    let with = |name: &str, mac: &str| {
        let mut vm = machine(name);
        vm.pointer_mut(address).unwrap()["macAddress"] = json!(mac);
        vm
    };
    house.post(MACHINES, with("one", "02:00:00:00:00:01")).await.ok();
    let other = house.post(MACHINES, with("two", "02-00-00-00-00-01")).await;
    assert_eq!(other.refusal(), (422, "Invalid"));
    assert!(other.message().contains("already used by VM default/one"), "{}", other.message());
    assert_eq!(
        other.body["details"]["causes"][0]["field"],
        "spec.template.spec.domain.devices.interfaces[0].macAddress"
    );
    let mut twice = with("two", "02:00:00:00:00:02");
    let second = json!({"name": "nic-1", "bridge": {}, "macAddress": "02:00:00:00:00:02"});
    twice["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"].as_array_mut().unwrap().push(second);
    twice["spec"]["template"]["spec"]["networks"] =
        json!([{"name": "nic-0", "pod": {}}, {"name": "nic-1", "multus": {"networkName": "vlan7"}}]);
    assert_eq!(house.post(MACHINES, twice).await.refusal(), (422, "Invalid"));

    house.post(MACHINES, with("two", "02:00:00:00:00:02")).await.ok();
    let taken =
        json!([{"op": "replace", "path": format!("{address}/macAddress"), "value": "02:00:00:00:00:01"}]);
    let changed = house.patch(&format!("{MACHINES}/two"), "json-patch", taken).await;
    assert_eq!(changed.refusal(), (422, "Invalid"));
    // What it has already is its own, and its instance's.
    let mut running = instance("one");
    running["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
    house.post(INSTANCES, running).await.ok();
    house
        .patch(&format!("{MACHINES}/one"), "merge-patch", json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .ok();
    // Nor may an instance without a machine take it.
    let mut bare = instance("bare");
    bare["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] = json!("02:00:00:00:00:01");
    assert_eq!(house.post(INSTANCES, bare).await.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_the_disk_of_one_machine() {
    let house = House::new().await;
    house.post(CLAIMS, claim("disk")).await.ok();
    house.post(MACHINES, with_claim(machine("one"), "disk")).await.ok();
    let other = house.post(MACHINES, with_claim(machine("two"), "disk")).await;
    assert_eq!(other.refusal(), (422, "Invalid"));
    assert!(
        other.message().contains("the volume disk is already used by VM default/one"),
        "{}",
        other.message()
    );
    house.post(MACHINES, with_claim(machine("two"), "disk-2")).await.ok();
    let spec = with_claim(machine("two"), "disk")["spec"]["template"]["spec"]["volumes"].clone();
    let taken = json!({"spec": {"template": {"spec": {"volumes": spec}}}});
    let taken = house.patch(&format!("{MACHINES}/two"), "merge-patch", taken).await;
    assert_eq!(taken.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_a_class_gets_the_default_one() {
    let house = House::new().await;
    let plain = house.post(CLAIMS, claim("plain")).await.ok();
    assert_eq!(plain["spec"]["storageClassName"], "harvester-longhorn");
    let mut none = claim("none");
    none["spec"]["storageClassName"] = json!("");
    assert_eq!(house.post(CLAIMS, none).await.ok()["spec"]["storageClassName"], "");
}

#[tokio::test(start_paused = true)]
async fn there_is_one_default_class() {
    let house = House::new().await;
    let default = "storageclass.kubernetes.io/is-default-class";
    let class =
        |is: &str| json!({"metadata": {"name": "fast", "annotations": {default: is}}, "provisioner": "p"});
    let second = house.post(CLASSES, class("true")).await;
    assert_eq!(second.refusal(), (422, "Invalid"));
    assert!(second.message().contains("default storage class harvester-longhorn already exists"));
    house.post(CLASSES, class("false")).await.ok();
    let not = json!({"metadata": {"annotations": {default: "false"}}});
    house.patch(&format!("{CLASSES}/harvester-longhorn"), "merge-patch", not).await.ok();
    let now = json!({"metadata": {"annotations": {default: "true"}}});
    house.patch(&format!("{CLASSES}/fast"), "merge-patch", now).await.ok();
    assert_eq!(house.post(CLAIMS, claim("c")).await.ok()["spec"]["storageClassName"], "fast");
}

#[tokio::test(start_paused = true)]
async fn an_image_follows_the_default_class_and_its_name_is_its_own() {
    let house = House::new().await;
    let made = house.post(IMAGES, image("image-1", "debian")).await.ok();
    assert_eq!(made["metadata"]["annotations"]["harvesterhci.io/storageClassName"], "harvester-longhorn");
    assert_eq!(made["spec"]["storageClassParameters"]["migratable"], "true");
    let same = house.post(IMAGES, image("image-2", "debian")).await;
    assert_eq!(same.refusal(), (422, "Invalid"));
    assert_eq!(same.body["details"]["causes"][0]["field"], "spec.displayName");
    house.post(IMAGES, image("image-2", "debian-2")).await.ok();
    let elsewhere = IMAGES.replace("default", "harvester-public");
    house.post(&elsewhere, image("image-1", "debian")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_validated_in_the_answer_to_its_create() {
    let house = House::new().await;
    let key = house.post(KEYS, json!({"metadata": {"name": "k"}, "spec": {"publicKey": KEY}})).await.ok();
    assert_eq!(
        (&key["status"]["conditions"][0]["type"], &key["status"]["conditions"][0]["status"]),
        (&json!("validated"), &json!("True"))
    );
    assert!(key["status"]["fingerPrint"].as_str().unwrap().len() == 47);
    let forged = json!({"status": {"fingerPrint": "mine"}});
    let forged = house.patch(&format!("{KEYS}/k"), "merge-patch", forged).await.ok();
    assert_eq!(forged["status"]["fingerPrint"], key["status"]["fingerPrint"]);
}

#[tokio::test(start_paused = true)]
async fn a_setting_takes_only_what_somebody_can_act_on() {
    let house = House::new().await;
    for (name, value) in [
        ("overcommit-config", r#"{"cpu":10}"#),
        ("default-vm-termination-grace-period-seconds", "soon"),
        ("additional-guest-memory-overhead-ratio", "99"),
        ("server-version", "v9"),
    ] {
        let path = format!("{SETTINGS}/{name}");
        let refused = house.patch(&path, "merge-patch", json!({"value": value})).await;
        assert_eq!(refused.refusal(), (422, "Invalid"), "{name}");
    }
    let unknown = house.post(SETTINGS, json!({"metadata": {"name": "mine"}, "value": "x"})).await;
    assert_eq!(unknown.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_had_is_free_once_it_is_gone() {
    let house = House::new().await;
    let with = |name: &str| {
        let mut vm = with_claim(machine(name), "disk");
        vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0]["macAddress"] =
            json!("02:00:00:00:00:01");
        vm
    };
    house.post(MACHINES, with("one")).await.ok();
    assert_eq!(house.post(MACHINES, with("two")).await.refusal(), (422, "Invalid"));
    house.delete(&format!("{MACHINES}/one")).await.ok();
    // On its way out it still has them.
    assert_eq!(house.post(MACHINES, with("two")).await.refusal(), (422, "Invalid"));
    let freed = json!({"metadata": {"finalizers": null}});
    house.patch(&format!("{MACHINES}/one"), "merge-patch", freed).await.ok();
    house.post(MACHINES, with("two")).await.ok();
}
