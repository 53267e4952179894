//! What is left of objects, kind by kind.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const MARK: &str = "hunter2";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn left(group: &str, plural: &str, mut object: Value) -> Value {
    redact(group, plural, &mut object);
    object
}

#[test]
fn of_secrets_and_config_maps_the_names_of_their_values_are_left() {
    let object = |kind: &str| {
        json!({
            "apiVersion": "v1", "kind": kind, "type": "Opaque", "immutable": true,
            "metadata": {"name": "s", "labels": {"app": "x"}, "annotations": {"a": MARK, LAST_APPLIED: MARK},
                "managedFields": [{"fieldsV1": {MARK: {}}}]},
            "data": {"password": MARK}, "binaryData": {"b": MARK}, "stringData": {"c": MARK}, "else": MARK,
        })
    };
    assert_eq!(
        left("", "secrets", object("Secret")),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
            "metadata": {"name": "s", "labels": {"app": "x"}, "annotations": {"a": "redacted"}},
            "data": {"password": "redacted"}, "binaryData": {"b": "redacted"}, "stringData": {"c": "redacted"},
        })
    );
    assert!(!left("", "configmaps", object("ConfigMap")).to_string().contains(MARK));
}

#[test]
fn a_machine_shows_what_it_is_and_not_what_its_guest_is_told() {
    let machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "vm", "namespace": "a", "annotations": {"harvesterhci.io/volumeClaimTemplates": MARK}},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"annotations": {"x": MARK}}, "spec": {
            "domain": {"cpu": {"cores": 2}, "firmware": {"kernelBoot": {"kernelArgs": MARK}}},
            "accessCredentials": [{"userPassword": {"source": {"secret": {"secretName": "pw"}}}}],
            "volumes": [
                {"name": "seed", "cloudInitNoCloud": {"userData": MARK, "networkDataBase64": MARK,
                    "secretRef": {"name": "seed", "other": MARK}}},
                {"name": "root", "persistentVolumeClaim": {"claimName": "root"}},
                {"name": "odd", "somethingNew": {"value": MARK}},
                {"name": "keys", "secret": {"secretName": "keys"}},
            ],
        }}},
    });
    let shown = left("kubevirt.io", "virtualmachines", machine);
    assert!(!shown.to_string().contains(MARK), "{shown:#}");
    let spec = &shown["spec"]["template"]["spec"];
    assert_eq!(spec["domain"]["cpu"]["cores"], 2);
    assert_eq!(spec["volumes"][0]["cloudInitNoCloud"]["secretRef"], json!({"name": "seed"}));
    assert_eq!(spec["volumes"][1]["persistentVolumeClaim"]["claimName"], "root");
    assert_eq!(spec["volumes"][3]["secret"]["secretName"], "keys");
}

#[test]
fn a_setting_shows_its_value_where_that_cannot_be_a_secret() {
    let setting =
        |name: &str, value: &str| json!({"metadata": {"name": name}, "value": value, "default": "{}"});
    assert_eq!(
        left("harvesterhci.io", "settings", setting("overcommit-config", r#"{"cpu":1000}"#))["value"],
        r#"{"cpu":1000}"#
    );
    for name in ["http-proxy", "backup-target", "ssl-certificates", "containerd-registry", "somebody-elses"] {
        let shown = left("harvesterhci.io", "settings", setting(name, MARK));
        assert_eq!((&shown["value"], &shown["metadata"]["name"]), (&json!("redacted"), &json!(name)));
        assert_eq!(left("harvesterhci.io", "settings", setting(name, ""))["value"], "");
    }
}

#[test]
fn a_kind_that_nobody_thought_about_shows_its_shape_and_how_it_fares() {
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Database", "metadata": {"name": "db"},
        "spec": {"replicas": 3, "admin": MARK, "list": [MARK, {"deep": MARK}], "tls": true},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoDisk", "message": MARK}]},
    });
    assert_eq!(
        left("example.com", "databases", object),
        json!({
            "apiVersion": "example.com/v1", "kind": "Database", "metadata": {"name": "db"},
            "spec": {"replicas": 3, "admin": "redacted", "list": ["redacted", {"deep": "redacted"}], "tls": true},
            "status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "NoDisk", "message": "redacted"}]},
        })
    );
}

#[test]
fn an_event_is_told_without_what_it_quotes() {
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "reason": "Failed",
        "message": "cannot fetch https://jo:hunter2@host/a.img?sig=hunter2: password=hunter2 was refused\nsecond line",
        "involvedObject": {"kind": "VirtualMachine", "name": "vm"},
    });
    let shown = left("", "events", event);
    assert!(!shown.to_string().contains(MARK), "{shown:#}");
    assert!(shown["message"].as_str().unwrap().contains("cannot fetch https://host/a.img"), "{shown:#}");
    assert_eq!(shown["involvedObject"]["name"], "vm");
}

#[test]
fn a_definition_shows_its_schema_without_defaults() {
    let definition = json!({
        "metadata": {"name": "databases.example.com"},
        "spec": {"group": "example.com", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "user": {"type": "string", "default": MARK, "example": MARK}}}}}}}]},
    });
    let shown = left("apiextensions.k8s.io", "customresourcedefinitions", definition);
    assert!(!shown.to_string().contains(MARK), "{shown:#}");
    assert_eq!(shown["spec"]["group"], "example.com");
}

#[test]
fn a_network_shows_its_configuration_and_no_more_than_that() {
    let network = |config: &str| json!({"metadata": {"name": "n"}, "spec": {"config": config}});
    let shown = |config: &str| {
        left("k8s.cni.cncf.io", "network-attachment-definitions", network(config))["spec"]["config"].clone()
    };
    assert_eq!(shown(r#"{"type":"bridge","vlan":7,"key":"a"}"#), r#"{"key":"a","type":"bridge","vlan":7}"#);
    assert!(!shown(r#"{"password":"hunter2"}"#).to_string().contains(MARK));
    assert_eq!(shown("password hunter2"), "redacted");
}

/// Where the secrets of each kind are known to be, as JSON pointers into an object of it.
const PLACES: &[(&str, &str, &str)] = &[
    ("", "secrets", "/data/x"),
    ("", "secrets", "/stringData/x"),
    ("", "secrets", "/metadata/annotations/x"),
    ("", "secrets", "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration"),
    ("", "secrets", "/metadata/managedFields/x"),
    ("", "configmaps", "/data/x"),
    ("", "configmaps", "/binaryData/x"),
    ("", "pods", "/spec/containers/0/env/0/value"),
    ("", "pods", "/spec/containers/0/args/0"),
    ("", "pods", "/spec/containers/0/command/0"),
    ("", "serviceaccounts", "/metadata/annotations/x"),
    ("", "persistentvolumes", "/spec/csi/volumeAttributes/x"),
    ("storage.k8s.io", "storageclasses", "/parameters/x"),
    ("management.cattle.io", "users", "/password"),
    ("management.cattle.io", "users", "/passwordHash"),
    ("management.cattle.io", "users", "/x"),
    ("management.cattle.io", "tokens", "/token"),
    ("management.cattle.io", "tokens", "/x"),
    ("harvesterhci.io", "settings", "/value"),
    ("harvesterhci.io", "settings", "/default"),
    ("harvesterhci.io", "settings", "/status/conditions/0/message"),
    ("harvesterhci.io", "keypairs", "/spec/publicKey"),
    ("harvesterhci.io", "virtualmachineimages", "/spec/storageClassParameters/x"),
    ("harvesterhci.io", "virtualmachineimages", "/metadata/annotations/x"),
    (
        "harvesterhci.io",
        "virtualmachinebackups",
        "/status/source/spec/template/spec/volumes/0/cloudInitNoCloud/userData",
    ),
    (
        "harvesterhci.io",
        "virtualmachinetemplateversions",
        "/spec/vm/spec/template/spec/volumes/0/cloudInitNoCloud/userData",
    ),
    ("harvesterhci.io", "addons", "/spec/valuesContent"),
    ("kubevirt.io", "virtualmachines", "/spec/template/spec/volumes/0/cloudInitNoCloud/userData"),
    ("kubevirt.io", "virtualmachines", "/spec/template/spec/volumes/0/cloudInitNoCloud/userDataBase64"),
    ("kubevirt.io", "virtualmachines", "/spec/template/spec/volumes/0/cloudInitConfigDrive/networkData"),
    ("kubevirt.io", "virtualmachines", "/spec/template/spec/volumes/0/sysprep/x"),
    ("kubevirt.io", "virtualmachines", "/spec/template/spec/domain/firmware/kernelBoot/kernelArgs"),
    ("kubevirt.io", "virtualmachines", "/spec/template/metadata/annotations/x"),
    ("kubevirt.io", "virtualmachines", "/metadata/annotations/x"),
    ("kubevirt.io", "virtualmachineinstances", "/spec/volumes/0/cloudInitNoCloud/networkDataBase64"),
    ("kubevirt.io", "virtualmachineinstances", "/spec/volumes/0/cloudInitNoCloud/secretRef/x"),
    ("example.com", "databases", "/spec/x"),
    ("example.com", "databases", "/status/conditions/0/message"),
    ("example.com", "databases", "/x"),
    ("loadbalancer.harvesterhci.io", "loadbalancers", "/spec/x/0"),
];

/// Puts a value where a pointer says, making what is missing on the way; arrays have the one element that is named.
fn put(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    let steps: Vec<String> = pointer.split('/').skip(1).map(|step| step.replace("~1", "/")).collect();
    for step in steps {
        at = match step.parse::<usize>() {
            Ok(index) => {
                if !at.is_array() {
                    *at = json!([]);
                }
                let elements = at.as_array_mut().unwrap();
                while elements.len() <= index {
                    elements.push(Value::Null);
                }
                &mut elements[index]
            }
            Err(_) => {
                if !at.is_object() {
                    *at = json!({});
                }
                at.as_object_mut().unwrap().entry(step).or_insert(Value::Null)
            }
        };
    }
    *at = value;
}

/// A secret as it is put somewhere: as it is, within a text, encoded, or deeper.
fn dressed(secret: &str, dress: u8) -> Value {
    match dress {
        0 => json!(secret),
        1 => json!(format!("#cloud-config\npassword: {secret}\n")),
        2 => json!(STANDARD.encode(secret)),
        3 => json!({"deeper": [{"still": secret}]}),
        _ => json!([secret, format!("and {secret}")]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_secret_survives_in_any_of_the_places_where_they_are(
        (group, plural, pointer) in prop::sample::select(PLACES),
        secret in "[A-Za-z0-9+/!]{10,60}",
        dress in 0..5u8,
    ) {
        let mut object = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "somebody", "namespace": "a"}});
        put(&mut object, pointer, dressed(&secret, dress));
        let shown = left(group, plural, object).to_string();
        prop_assert!(!shown.contains(&secret), "{}", shown);
        prop_assert!(!shown.contains(&STANDARD.encode(&secret)), "{}", shown);
        prop_assert!(shown.contains("\"somebody\""), "{}", shown);
    }

    #[test]
    fn what_is_named_a_secret_is_hidden_wherever_it_is_and_in_every_kind(
        (group, plural, _) in prop::sample::select(PLACES),
        path in prop::collection::vec("[a-z]{1,8}|[0-2]", 0..5),
        name in prop::sample::select(vec!["password", "adminPassword", "token", "clientSecret", "private_key", "userData"]),
        secret in "[A-Za-z0-9]{10,60}",
    ) {
        let mut object = json!({"metadata": {"name": "somebody"}});
        put(&mut object, &format!("/spec/{}", [path.join("/"), name.to_owned()].join("/")), json!(secret));
        let shown = left(group, plural, object).to_string();
        prop_assert!(!shown.contains(&secret), "{}", shown);
    }
}
