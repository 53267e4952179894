//! What is left of bodies, kind by kind.

use http::Method;
use serde_json::json;

use super::*;
use crate::request::{Query, Target, target};

const MARK: &str = "hunter2";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn request(uri: &str) -> ResourceRequest {
    match target(&Method::POST, uri, &Query::default()) {
        Target::Resource(request) => request,
        Target::Path(path) => panic!("{path} is no resource"),
    }
}

fn left(uri: &str, body: Value) -> Value {
    left_of(uri, "application/json", &body.to_string())
}

fn left_of(uri: &str, media: &str, body: &str) -> Value {
    match sent(&request(uri), media, &Bytes::copy_from_slice(body.as_bytes())) {
        Shown::Value(value) => value,
        other => panic!("{other:?}"),
    }
}

const SECRETS: &str = "/api/v1/namespaces/a/secrets";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const VMS: &str = "/apis/kubevirt.io/v1/namespaces/a/virtualmachines";

#[test]
fn of_a_secret_nothing_is_left_but_what_it_is_called_and_of_which_type() {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {
            "name": "s", "labels": {"a": "b"}, "annotations": {"x": MARK, LAST_APPLIED: MARK},
            "managedFields": [{"fieldsV1": {"f:data": {}}}],
        },
        "data": {"a": MARK}, "stringData": {"b": MARK}, "unknown": MARK, "other": {"c": MARK},
    });
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {"name": "s", "labels": {"a": "b"}},
    });
    assert_eq!(left(SECRETS, secret.clone()), expected);
    // Wherever it was sent to, and in whatever list.
    assert_eq!(left(MAPS, secret.clone()), expected);
    let bare = json!({"kind": "SecretList", "items": [{"metadata": {"name": "s"}, "data": {"a": MARK}}]});
    assert_eq!(left(SECRETS, bare), json!({"kind": "SecretList", "items": [{"metadata": {"name": "s"}}]}));
    let list = json!({"kind": "List", "items": [secret], "extra": MARK});
    assert_eq!(left(MAPS, list), json!({"kind": "List", "items": [expected]}));
}

#[test]
fn a_table_of_secrets_shows_no_cells() {
    let table = json!({
        "kind": "Table", "columnDefinitions": [{"name": "x"}],
        "rows": [{"cells": [MARK], "object": {"kind": "Secret", "data": {"a": MARK}}}, MARK],
    });
    assert_eq!(left(SECRETS, table), json!({"kind": "Table", "rows": [{"object": {"kind": "Secret"}}]}));
}

#[test]
fn a_patch_of_a_secret_shows_where_it_changes_something() {
    let json_patch = json!([
        {"op": "replace", "path": "/data/a", "value": MARK},
        {"op": "test", "path": "", "value": {"data": MARK}},
        {"op": "remove", "path": "/data/b"},
        MARK,
    ]);
    assert_eq!(
        left_of(SECRETS, "application/json-patch+json", &json_patch.to_string()),
        json!([
            {"op": "replace", "path": "/data/a", "value": "redacted"},
            {"op": "test", "path": "", "value": "redacted"},
            {"op": "remove", "path": "/data/b"},
            "redacted",
        ])
    );
    for media in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let patch = json!({"stringData": {"a": MARK}, "metadata": {"annotations": {"a": MARK}}}).to_string();
        assert_eq!(left_of(SECRETS, media, &patch), json!({"metadata": {}}));
    }
    let applied = "kind: Secret\nmetadata: {name: s}\nstringData:\n  a: hunter2\n";
    assert_eq!(
        left_of(SECRETS, "application/apply-patch+yaml", applied),
        json!({"kind": "Secret", "metadata": {"name": "s"}})
    );
}

#[test]
fn tokens_are_not_in_what_is_asked_about_them_nor_in_the_answer() {
    let review = json!({
        "kind": "TokenReview", "spec": {"token": MARK, "audiences": ["a"]},
        "status": {"authenticated": false, "error": MARK, "user": {"username": "jo"}},
    });
    assert_eq!(
        left("/apis/authentication.k8s.io/v1/tokenreviews", review),
        json!({
            "kind": "TokenReview", "spec": {"audiences": ["a"]},
            "status": {"authenticated": false, "user": {"username": "jo"}},
        })
    );
    let token = json!({
        "kind": "TokenRequest", "spec": {"expirationSeconds": 600},
        "status": {"token": MARK, "expirationTimestamp": "2030-01-01T00:00:00Z"},
    });
    assert_eq!(
        left("/api/v1/namespaces/a/serviceaccounts/default/token", token),
        json!({
            "kind": "TokenRequest", "spec": {"expirationSeconds": 600},
            "status": {"expirationTimestamp": "2030-01-01T00:00:00Z"},
        })
    );
    let tokens = "/apis/management.cattle.io/v3/tokens";
    assert_eq!(left(tokens, json!({"userId": "u", "token": MARK})), json!({"userId": "u"}));
    let users = "/apis/management.cattle.io/v3/users";
    assert_eq!(left(users, json!({"username": "jo", "password": MARK})), json!({"username": "jo"}));
    let settings = "/apis/harvesterhci.io/v1beta1/settings";
    assert_eq!(left(settings, json!({"value": MARK, "default": MARK})), json!({}));
    let registrations = "/apis/management.cattle.io/v3/clusterregistrationtokens";
    assert_eq!(left(registrations, json!({"status": {"command": MARK}})), json!({}));
}

fn machine(volumes: Value) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "m", "annotations": {"harvesterhci.io/x": MARK}},
        "spec": {"runStrategy": "Always", "template": {"spec": {"volumes": volumes}}},
    })
}

#[test]
fn of_a_machine_all_is_left_but_its_seeds() {
    let volumes = json!([
        {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "a", "cloudInitNoCloud": {
            "userData": MARK, "networkDataBase64": MARK, "userdata": MARK, "other": {"x": MARK},
            "secretRef": {"name": "s", "extra": MARK}, "networkDataSecretRef": {"name": "n"},
        }},
        {"name": "b", "cloudInitConfigDrive": {"userDataBase64": MARK}},
        {"name": "c", "cloudinitnocloud": MARK},
        {"name": "d", "sysprep": {"answers": MARK}},
        MARK,
    ]);
    assert_eq!(
        left(VMS, machine(volumes)),
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "m", "annotations": {"harvesterhci.io/x": "redacted"}},
            "spec": {"runStrategy": "Always", "template": {"spec": {"volumes": [
                {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "a", "cloudInitNoCloud": {
                    "userData": "redacted", "networkDataBase64": "redacted", "userdata": "redacted",
                    "other": "redacted", "secretRef": {"name": "s"}, "networkDataSecretRef": {"name": "n"},
                }},
                {"name": "b", "cloudInitConfigDrive": {"userDataBase64": "redacted"}},
                {"name": "c", "cloudinitnocloud": "redacted"},
                {"name": "d", "sysprep": "redacted"},
                "redacted",
            ]}}},
        })
    );
}

#[test]
fn what_is_misplaced_in_a_machine_is_not_shown_either() {
    let long = format!("{MARK}{}", "x".repeat(600));
    for body in [
        json!({"spec": {"userData": MARK}}),
        json!({"spec": {"template": {"spec": {"password": MARK}}}}),
        json!({"spec": {"description": format!("two\nlines {MARK}")}}),
        json!({"spec": {"description": long}}),
        json!({"spec": {"template": {"metadata": {"annotations": {"a": MARK}}}}}),
        json!({"spec": {"volumes": [{"odd": MARK}]}}),
        json!({"spec": {"volumes": {"name": [{"cloudInitNoCloud": {"userData": MARK}}]}}}),
        json!({"spec": {"url": format!("https://jo:{MARK}@host/x?token={MARK}")}}),
    ] {
        let shown = left(VMS, body.clone()).to_string();
        assert!(!shown.contains(MARK), "{body} became {shown}");
    }
}

#[test]
fn a_patch_of_a_machine_hides_what_goes_to_a_secret_place() {
    let shown = |path: &str, value: Value| {
        let patch = json!([{"op": "add", "path": path, "value": value}]).to_string();
        left_of(VMS, "application/json-patch+json", &patch)[0]["value"].clone()
    };
    let seed = json!({"name": "a", "cloudInitNoCloud": {"userData": MARK}});
    let left = json!({"name": "a", "cloudInitNoCloud": {"userData": "redacted"}});
    assert_eq!(shown("/spec/template/spec/volumes/-", seed.clone()), left);
    assert_eq!(shown("/spec/template/spec/volumes", json!([seed])), json!([left]));
    assert_eq!(shown("/spec/template/spec", json!({"volumes": [seed]})), json!({"volumes": [left]}));
    assert_eq!(shown("", json!({"spec": {"volumes": [seed]}})), json!({"spec": {"volumes": [left]}}));
    for path in [
        "/spec/template/spec/volumes/0/cloudInitNoCloud/userData",
        "/spec/template/spec/volumes/0/cloudInitNoCloud",
        "/spec/template/spec/volumes/0/odd",
        "/metadata/annotations/a~1b",
    ] {
        assert_eq!(shown(path, json!(MARK)), "redacted", "{path}");
    }
    assert_eq!(shown("/spec/runStrategy", json!("Halted")), "Halted");
}

#[test]
fn what_is_open_is_shown_but_for_what_looks_secret() {
    let map = json!({
        "kind": "ConfigMap",
        "metadata": {"name": "m", "annotations": {"note": "kept", LAST_APPLIED: MARK}, "managedFields": []},
        "data": {
            "note": "kept", "password": MARK, "kubeconfig": MARK,
            "config": format!("users:\n- user: {{client-key-data: {MARK}}}"),
            "seed": format!("#cloud-config\npassword: {MARK}"),
        },
    });
    assert_eq!(
        left(MAPS, map),
        json!({
            "kind": "ConfigMap", "metadata": {"name": "m", "annotations": {"note": "kept"}},
            "data": {
                "note": "kept", "password": "redacted", "kubeconfig": "redacted", "config": "redacted",
                "seed": "redacted",
            },
        })
    );
    let patch = json!([
        {"op": "add", "path": "/data/note", "value": "kept"},
        {"op": "add", "path": "/data/password", "value": MARK},
    ]);
    assert_eq!(left_of(MAPS, "application/json-patch+json", &patch.to_string())[0]["value"], "kept");
    assert!(!left_of(MAPS, "application/json-patch+json", &patch.to_string()).to_string().contains(MARK));
}

#[test]
fn what_cannot_be_read_or_is_large_is_not_shown() {
    let of = |media: &str, body: Vec<u8>| sent(&request(MAPS), media, &Bytes::from(body));
    assert_eq!(of("application/json", b"{\"data\": hunter2".to_vec()), Shown::Nothing);
    assert_eq!(of("application/vnd.kubernetes.protobuf", b"hunter2".to_vec()), Shown::Nothing);
    assert_eq!(of("application/json", Vec::new()), Shown::Nothing);
    assert_eq!(of("application/json", vec![b' '; LARGEST + 1]), Shown::TooLarge);
}

#[test]
fn a_refusal_does_not_quote_what_is_secret() {
    let errors = [sheaf_resources::field_error::FieldError::invalid(
        &sheaf_resources::field_error::FieldPath::new("data"),
        MARK,
        MARK,
    )];
    let error = ApiError::invalid("", "Secret", "s", &errors);
    let shown = refusal(Some(&request(SECRETS)), &error);
    assert!(!shown.to_string().contains(MARK), "{shown}");
    assert_eq!(
        (&shown["reason"], &shown["details"]["causes"][0]["field"]),
        (&json!("Invalid"), &json!("data"))
    );
    // What it is about may hold a secret, whatever it is.
    assert!(!refusal(Some(&request(MAPS)), &error).to_string().contains(MARK));
    let refused = ApiError::not_found(crate::status::Named { group: "", resource: "secrets" }, "s");
    assert_eq!(refusal(Some(&request(SECRETS)), &refused)["message"], "secrets \"s\" not found");
}

proptest::proptest! {
    #[test]
    fn no_body_makes_it_panic(text in "[\\[\\]{}\",:a-z0-9]{0,80}", kind in "Secret|VirtualMachine|Table|List|x") {
        for uri in [SECRETS, MAPS, VMS] {
            for body in [text.clone(), format!("{{\"kind\":\"{kind}\",\"items\":[{text}],\"rows\":[{text}]}}")] {
                let bytes = Bytes::from(body);
                let _ = sent(&request(uri), "application/json", &bytes);
                let _ = sent(&request(uri), "application/json-patch+json", &bytes);
            }
        }
    }
}
