//! What Harvester's clients stumble over without a word when it is otherwise. Most such traps are shown where the thing
//! itself is tested; here are those that are nobody else's. Each is called `trap_` and the number it has in the list of them:
//!
//! | | | shown in |
//! |---|---|---|
//! | 1 | bodies in protobuf | here |
//! | 2 | `Running` with no interface, or in another order | the agent's `report` |
//! | 3 | what Terraform follows without looking | here |
//! | 4 | an instance that lingers after a stop | `controllers`, machines |
//! | 5 | read, write, delete with no second try | `controllers`, machines |
//! | 6 | the end of a VlanConfig, watched for afterwards | `controllers`, uplinks |
//! | 7 | a balancer's address that does not stick | `load_balancers` |
//! | 8 | a disk that is not found by its claim's name | the agent's `hardware` |
//! | 9, 11 | which release it is, read by everybody | here |
//! | 10 | a claim without a class | here |
//! | 12 | PUTs that say nothing of their body | here |
//! | 13 | an image that is not there yet, with words | the planner's `image` |
//! | 14 | an address that is shown and not had | `tests`, machines |
//! | 15 | a version that is no number | here |
//! | 16 | a Secret that comes after its machine | here |

use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::identity::{AUTHENTICATED, User};
use sheaf_resources::protobuf::MEDIA_TYPE;

use crate::{
    house::House,
    machine::{CLAIMS, INSTANCES, MACHINES, SETTINGS, claim, instance, machine},
    protobuf_bodies::{envelope, message},
};

/// What clients have generated types of they send in protobuf, and ask for nothing else.
#[tokio::test(start_paused = true)]
async fn trap_1_secrets_claims_and_classes_are_taken_in_protobuf() {
    let house = House::new().await;
    let named = |name: &str| message(&[(1, name.as_bytes())]);
    let entry = |key: &[u8], value: &[u8]| message(&[(1, key), (2, value)]);
    let asks = message(&[(2, &entry(b"storage", &message(&[(1, b"1Gi")])))]);
    let (seed, claim, class) = (named("seed"), named("disk"), named("class"));
    for (uri, version, kind, raw) in [
        (
            "/api/v1/namespaces/default/secrets",
            "v1",
            "Secret",
            message(&[(1, &seed), (2, &entry(b"userdata", b"#cloud-config")), (3, b"Opaque")]),
        ),
        (
            CLAIMS,
            "v1",
            "PersistentVolumeClaim",
            message(&[(1, &claim), (2, &message(&[(1, b"ReadWriteMany"), (2, &asks)]))]),
        ),
        (
            "/apis/storage.k8s.io/v1/storageclasses",
            "storage.k8s.io/v1",
            "StorageClass",
            message(&[(1, &class), (2, b"driver.longhorn.io"), (3, &entry(b"numberOfReplicas", b"1"))]),
        ),
    ] {
        let headers = [("content-type", MEDIA_TYPE)];
        let body = envelope(version, kind, &raw);
        let made = house.send(Method::POST, uri, &headers, body).await;
        assert_eq!((made.code, &made.body["kind"]), (201, &json!(kind)), "{:#}", made.body);
    }
    let secret = house.get("/api/v1/namespaces/default/secrets/seed").await.ok();
    assert_eq!(secret["data"]["userdata"], "I2Nsb3VkLWNvbmZpZw==");
    let disk = house.get(&format!("{CLAIMS}/disk")).await.ok();
    assert_eq!(disk["spec"]["resources"]["requests"]["storage"], "1Gi");
}

/// Terraform follows these without looking whether they are there, and ends in a panic when they are not.
#[tokio::test(start_paused = true)]
async fn trap_3_whatever_terraform_follows_is_there() {
    let house = House::new().await;
    let mut bare = machine("m");
    let domain = bare.pointer_mut("/spec/template/spec/domain").unwrap().as_object_mut().unwrap();
    for field in ["machine", "cpu"] {
        domain.remove(field);
    }
    domain.insert("firmware".into(), json!({"bootloader": {"efi": {"secureBoot": false}}}));
    bare["spec"]["template"]["metadata"] = json!({});
    let made = house.post(MACHINES, bare).await.ok();
    for shown in [made, house.get(&format!("{MACHINES}/m")).await.ok()] {
        let template = &shown["spec"]["template"];
        let domain = &template["spec"]["domain"];
        assert!(domain["machine"]["type"].as_str().is_some_and(|sort| !sort.is_empty()), "{domain:#}");
        assert!(domain["cpu"]["cores"].as_u64().is_some_and(|cores| cores > 0), "{domain:#}");
        assert_eq!(domain["firmware"]["bootloader"]["efi"]["secureBoot"], false, "and not left out");
        let names = template["metadata"]["annotations"]["harvesterhci.io/sshNames"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Vec<String>>(names).unwrap(), Vec::<String>::new());
    }
    let mut odd = machine("odd");
    odd["spec"]["template"]["metadata"] = json!({"annotations": {"harvesterhci.io/sshNames": "key"}});
    let refused = house.post(MACHINES, odd).await;
    assert_eq!(refused.code, 422, "what it could not read is not stored: {:#}", refused.body);
    let class = json!({"metadata": {"name": "plain"}, "provisioner": "driver.longhorn.io"});
    let class = house.post("/apis/storage.k8s.io/v1/storageclasses", class).await.ok();
    for field in ["reclaimPolicy", "volumeBindingMode"] {
        assert!(class[field].is_string(), "{field} of {class:#}");
    }
    assert!(class["allowVolumeExpansion"].is_boolean(), "{class:#}");
}

/// The scripts that make a guest cluster's kubeconfig compare these as numbers: `33+` is none.
#[tokio::test(start_paused = true)]
async fn trap_15_the_version_is_told_in_plain_numbers() {
    let house = House::new().await;
    let version = house.get("/version").await.ok();
    for part in ["major", "minor"] {
        let told = version[part].as_str().unwrap();
        assert!(told.parse::<u32>().is_ok(), "{part} is {told:?}");
    }
}

/// The CSI driver takes the class of a claim apart as soon as it made one, of whatever mode.
#[tokio::test(start_paused = true)]
async fn trap_10_a_claim_of_no_class_is_answered_with_the_default_one() {
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
async fn trap_3_no_machine_is_without_annotations() {
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
async fn trap_9_and_11_every_account_reads_a_release_that_plugs_disks_into_the_machine() {
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
async fn trap_12_an_order_need_not_say_what_its_body_is() {
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
async fn trap_16_the_secret_of_a_machine_may_come_after_it() {
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
