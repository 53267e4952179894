//! What Harvester's clients stumble over without a word when it is otherwise. Most such traps are shown where the thing
//! itself is tested; here are those that are nobody else's. Each is called `trap_`.

use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};

use crate::{
    house::House,
    machine::{CLAIMS, INSTANCES, MACHINES, SETTINGS, claim, instance, machine},
};

/// The scripts that make a guest cluster's kubeconfig compare these as numbers: `33+` is none.
#[tokio::test(start_paused = true)]
async fn trap_the_version_is_told_in_plain_numbers() {
    let house = House::new().await;
    let version = house.get("/version").await.ok();
    for part in ["major", "minor"] {
        let told = version[part].as_str().unwrap();
        assert!(told.parse::<u32>().is_ok(), "{part} is {told:?}");
    }
}

/// The CSI driver takes the class of a claim apart as soon as it made one, of whatever mode.
#[tokio::test(start_paused = true)]
async fn trap_a_claim_of_no_class_is_answered_with_the_default_one() {
    let house = House::new().await;
    for mode in ["Block", "Filesystem"] {
        let mut wanted = claim(&mode.to_lowercase());
        wanted["spec"]["volumeMode"] = json!(mode);
        let made = house.post(CLAIMS, wanted).await.ok();
        assert_eq!(made["spec"]["storageClassName"], "harvester-longhorn", "{mode}");
        assert_eq!(made["spec"]["volumeMode"], mode);
    }
}

/// Terraform and the node driver write into the annotations of a machine without looking whether it has any.
#[tokio::test(start_paused = true)]
async fn trap_no_machine_is_without_annotations() {
    let house = House::new().await;
    let made = house.post(MACHINES, machine("m")).await.ok();
    assert!(made["metadata"]["annotations"].as_object().is_some_and(|all| !all.is_empty()), "{made:#}");
    let mut bare = made;
    bare["metadata"].as_object_mut().unwrap().remove("annotations");
    let after = house.put(&format!("{MACHINES}/m"), bare).await.ok();
    assert!(after["metadata"]["annotations"].as_object().is_some_and(|all| !all.is_empty()), "{after:#}");
}

/// The CSI driver ends at its start when it cannot read this, and by it chooses how disks are plugged in: as part of the
/// machine, from v1.8 on.
#[tokio::test(start_paused = true)]
async fn trap_every_account_reads_a_release_that_plugs_disks_into_the_machine() {
    let mut house = House::new().await;
    house.user = User {
        name: "system:serviceaccount:default:csi".into(),
        groups: vec![
            "system:serviceaccounts".into(),
            "system:serviceaccounts:default".into(),
            AUTHENTICATED.into(),
        ],
        ..User::default()
    };
    let setting = house.get(&format!("{SETTINGS}/server-version")).await.ok();
    let told = setting["value"].as_str().unwrap();
    let numbers: Vec<u32> =
        told.strip_prefix('v').unwrap().split('.').map(|number| number.parse().unwrap()).collect();
    assert!((numbers[0], numbers[1]) >= (1, 8), "{told}");
}

/// The node driver and virtctl send PUTs that say nothing of what they bring, and some bring nothing.
#[tokio::test(start_paused = true)]
async fn trap_an_order_need_not_say_what_its_body_is() {
    let house = House::new().await;
    let mut off = machine("m");
    off["spec"]["runStrategy"] = json!("Halted");
    house.post(MACHINES, off).await.ok();
    let orders = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/m";
    let started = house.send(Method::PUT, &format!("{orders}/start"), &[], "").await;
    assert_eq!((started.code, &started.body), (202, &json!("")), "{:#}", started.body);
    let stopped = house.send(Method::PUT, &format!("{orders}/stop"), &[], "{\"gracePeriod\":0}").await;
    assert!(stopped.code == 202 || stopped.code == 409, "it was read: {} {:#}", stopped.code, stopped.body);
}

/// Clients make the Secret with the user data after the machine that names it.
#[tokio::test(start_paused = true)]
async fn trap_the_secret_of_a_machine_may_come_after_it() {
    let house = House::new().await;
    let seed = json!([{"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "later"}}}]);
    let disks = json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
    let with_seed = |mut object: Value, spec: &str| {
        let spec = object.pointer_mut(spec).unwrap();
        spec["volumes"] = seed.clone();
        spec["domain"]["devices"]["disks"] = disks.clone();
        object
    };
    house.post(MACHINES, with_seed(machine("m"), "/spec/template/spec")).await.ok();
    house.post(INSTANCES, with_seed(instance("m"), "/spec")).await.ok();
}
