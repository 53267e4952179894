//! Bodies in Kubernetes' protobuf: every kind of the original's that is served takes them, and what is odd in them is
//! judged as the original judges it.

use http::Method;
use serde_json::{Value, json};
use sheaf_resources::protobuf::{self, MEDIA_TYPE, ProtobufError};

use crate::house::{Answer, House, MAPS};

/// Groups whose kinds have no numbers for their fields in the original either: there they are custom resources, or served
/// by an extension that takes JSON alone.
const JSON_ALONE: [(&str, &str); 9] = [
    ("clone.kubevirt.io", "KubeVirt's, which defines it as custom resources"),
    ("harvesterhci.io", "Harvester's, which defines it as custom resources"),
    ("k8s.cni.cncf.io", "Multus', which defines it as custom resources"),
    ("kubevirt.io", "KubeVirt's, which defines it as custom resources"),
    ("loadbalancer.harvesterhci.io", "Harvester's, which defines it as custom resources"),
    ("management.cattle.io", "Rancher's, which defines it as custom resources"),
    ("network.harvesterhci.io", "Harvester's, which defines it as custom resources"),
    ("snapshot.storage.k8s.io", "the snapshot controller's, which defines it as custom resources"),
    ("subresources.kubevirt.io", "KubeVirt's own server's, which reads JSON alone"),
];

/// A message of protobuf, of fields that are bytes.
pub fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, bytes) in fields {
        assert!(*number < 16 && bytes.len() < 128);
        out.extend([number << 3 | 2, bytes.len() as u8]);
        out.extend_from_slice(bytes);
    }
    out
}

pub fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [&b"k8s\0"[..], &message(&[(1, &meta), (2, raw)])].concat()
}

/// `(apiVersion, kind)` of everything that can be written, as discovery tells it.
async fn written_kinds(house: &House) -> Vec<(String, String)> {
    let mut versions = vec!["v1".to_owned()];
    let groups = house.get("/apis").await.ok();
    for group in groups["groups"].as_array().unwrap() {
        if !JSON_ALONE.iter().any(|(name, _)| group["name"] == *name) {
            let of_group = group["versions"].as_array().unwrap().iter();
            versions.extend(of_group.map(|version| version["groupVersion"].as_str().unwrap().to_owned()));
        }
    }
    let mut kinds = Vec::new();
    for version in versions {
        let path = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let list = house.get(&path).await.ok();
        for resource in list["resources"].as_array().unwrap() {
            let writes = |verb: &Value| matches!(verb.as_str(), Some("create" | "update" | "patch"));
            if resource["verbs"].as_array().unwrap().iter().any(writes) {
                // A subresource may be of another group than what it belongs to.
                let text = |field: &str| resource[field].as_str().filter(|text| !text.is_empty());
                let of_its_own = match (text("group"), text("version")) {
                    (Some(group), Some(version)) => Some(format!("{group}/{version}")),
                    (None, Some(version)) => Some(version.to_owned()),
                    (_, None) => None,
                };
                let api_version = of_its_own.unwrap_or_else(|| version.clone());
                kinds.push((api_version, resource["kind"].as_str().unwrap().to_owned()));
            }
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_kubernetes_own_that_is_served_takes_protobuf() {
    let kinds = written_kinds(&House::new().await).await;
    for known in
        [("v1", "Secret"), ("authentication.k8s.io/v1", "TokenRequest"), ("events.k8s.io/v1", "Event")]
    {
        assert!(kinds.iter().any(|(version, kind)| (version.as_str(), kind.as_str()) == known), "{known:?}");
    }
    let lacking: Vec<_> = kinds
        .iter()
        .filter(|(version, kind)| {
            let read = protobuf::decode(&envelope(version, kind, b""));
            matches!(read, Err(ProtobufError::UnknownKind { .. }))
        })
        .collect();
    assert!(
        lacking.is_empty(),
        "typed clients send these as protobuf and are refused: {lacking:?}; name them in \
         tests/clients/protobuf-vectors/kinds.go and run scripts/generate-protobuf-tables"
    );
    assert!(kinds.len() > 20, "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn groups_without_protobuf_are_served_at_all() {
    let groups = House::new().await.get("/apis").await.ok();
    for (name, why) in JSON_ALONE {
        assert!(
            groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == name),
            "{name}: {why}"
        );
    }
}

async fn send(house: &House, method: Method, uri: &str, raw: &[u8]) -> Answer {
    let body = envelope("v1", "ConfigMap", raw);
    house.send(method, uri, &[("content-type", MEDIA_TYPE)], body).await
}

/// The original reads protobuf strictly no more than otherwise: it has no strict reader for it. What it has no field for
/// is dropped without a word, whatever is asked for.
#[tokio::test(start_paused = true)]
async fn fields_of_a_later_version_are_dropped_in_silence_however_strict_one_is() {
    let house = House::new().await;
    for (n, validation) in ["", "?fieldValidation=Ignore", "?fieldValidation=Warn", "?fieldValidation=Strict"]
        .into_iter()
        .enumerate()
    {
        let name = format!("m{n}");
        // Field 15 is none of a ConfigMap's, nor of its metadata's: that one was taken back.
        let metadata = message(&[(1, name.as_bytes()), (15, b"later")]);
        let entry = message(&[(1, b"k"), (2, b"v"), (3, b"later")]);
        let raw = message(&[(1, &metadata), (2, &entry), (15, b"later")]);
        let made = send(&house, Method::POST, &format!("{MAPS}{validation}"), &raw).await;
        assert_eq!((made.code, &made.warnings), (201, &Vec::new()), "{validation}: {:#}", made.body);
        assert_eq!(made.body["data"], json!({"k": "v"}), "{validation}");
        let put = send(&house, Method::PUT, &format!("{MAPS}/{name}{validation}"), &raw).await;
        assert_eq!((put.code, &put.warnings), (200, &Vec::new()), "{validation}: {:#}", put.body);
        let all = format!("{MAPS}/{name}{validation}");
        let options = envelope("v1", "DeleteOptions", &message(&[(15, b"later")]));
        let gone = house.send(Method::DELETE, &all, &[("content-type", MEDIA_TYPE)], options).await;
        assert_eq!(gone.code, 200, "{validation}: {:#}", gone.body);
    }
    let odd = format!("{MAPS}?fieldValidation=Sometimes");
    let raw = message(&[(1, &message(&[(1, b"m")]))]);
    assert_eq!(send(&house, Method::POST, &odd, &raw).await.code, 422);
}

#[tokio::test(start_paused = true)]
async fn a_field_twice_is_no_fault_in_protobuf_and_a_broken_one_is_however_lenient_one_is() {
    let house = House::new().await;
    let twice = message(&[(1, &message(&[(1, b"a"), (1, b"b")]))]);
    let made = send(&house, Method::POST, &format!("{MAPS}?fieldValidation=Strict"), &twice).await;
    assert_eq!((made.ok()["metadata"]["name"].clone(), ()), (json!("b"), ()));
    // The name of a ConfigMap's metadata as a number.
    let broken = [&message(&[(1, &[0x08, 1])])[..], &[]].concat();
    for validation in ["Ignore", "Warn", "Strict"] {
        let uri = format!("{MAPS}?fieldValidation={validation}");
        let refused = send(&house, Method::POST, &uri, &broken).await;
        assert_eq!(refused.refusal(), (400, "BadRequest"), "{validation}");
    }
}
