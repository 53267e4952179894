//! The transcoder against the original: bodies its own serializer wrote, and hostile ones.

use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use serde_json::json;

use super::*;

struct Vector {
    name: &'static str,
    body: Vec<u8>,
    json: Value,
}

/// What `scripts/generate-protobuf-tables` recorded: per kind an object with nothing set, a
/// hollow one (pointers to zero, lists of one zero) and one with every field different.
fn vectors() -> Vec<Vector> {
    let lines: Vec<&str> = include_str!("vectors.txt").lines().collect();
    let vector = |lines: &[&'static str]| Vector {
        name: lines[0],
        body: BASE64_STANDARD.decode(lines[1]).unwrap(),
        json: serde_json::from_str(lines[2]).unwrap(),
    };
    lines.chunks_exact(3).map(vector).collect()
}

fn vector(name: &str) -> Vector {
    vectors().into_iter().find(|vector| vector.name == name).unwrap()
}

/// A body around an object, as a client would send it.
fn enveloped(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let kind = [message(1, api_version.as_bytes()), message(2, kind.as_bytes())].concat();
    [PREFIX.to_vec(), message(1, &kind), message(2, object)].concat()
}

fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

fn why(body: &[u8]) -> String {
    decode(body).unwrap_err().to_string()
}

#[test]
fn every_kind_reads_as_the_original_reads_it() {
    let vectors = vectors();
    assert!(vectors.len() > 130, "only {} vectors", vectors.len());
    for Vector { name, body, json } in vectors {
        let decoded = decode(&body).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(decoded.value, json, "{name}");
        assert!(name.ends_with(&format!("{} {}", decoded.api_version, decoded.kind)), "{name}");
    }
}

#[test]
fn every_kind_has_a_vector_of_every_manner() {
    let vectors = vectors();
    for line in include_str!("tables.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let ["kind", api_version, kind, _] = words[..] else { continue };
        let api_version = if api_version == "*" { "v1" } else { api_version };
        for manner in ["unset", "hollow", "full"] {
            let name = format!("{manner} {api_version} {kind}");
            let is_told_by_items = manner == "full" && kind.ends_with("List");
            assert!(is_told_by_items || vectors.iter().any(|vector| vector.name == name), "no {name}");
        }
    }
}

#[test]
fn a_creation_time_that_was_never_set_is_not_there() {
    // What every client sends in a create: `creationTimestamp` as an empty message.
    let object = message(1, &[message(1, b"web"), message(8, b"")].concat());
    let decoded = decode(&enveloped("v1", "ConfigMap", &object)).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
    assert_eq!(decoded.value, expected);
}

#[test]
fn inlined_structs_have_no_name_in_json() {
    let pod = vector("full v1 Pod").json;
    let volume = decode(&vector("full v1 Pod").body).unwrap().value["spec"]["volumes"][0].clone();
    assert_eq!(volume, pod["spec"]["volumes"][0]);
    assert!(volume["configMap"]["name"].is_string(), "{volume}");
    assert!(volume.get("volumeSource").is_none(), "{volume}");
}

#[test]
fn fields_of_a_later_version_are_dropped() {
    let mut object = message(1, &message(1, b"web"));
    object.extend(message(15, b"from the future"));
    object.extend([0x78, 1]); // 15 again, as a number
    object.extend([0x73, 0x08, 1, 0x74]); // 14, as a group
    let decoded = decode(&enveloped("v1", "ConfigMap", &object)).unwrap();
    assert_eq!(decoded.value["metadata"], json!({"name": "web"}));
}

#[test]
fn a_message_that_comes_twice_is_merged_and_a_scalar_is_replaced() {
    let object =
        [message(1, &[message(1, b"web"), message(3, b"default")].concat()), message(1, &message(1, b"db"))]
            .concat();
    let decoded = decode(&enveloped("v1", "ConfigMap", &object)).unwrap();
    assert_eq!(decoded.value["metadata"], json!({"name": "db", "namespace": "default"}));
}

#[test]
fn numbers_come_one_by_one_or_packed() {
    let groups = |sent: &[u8]| {
        let pod = message(2, &message(14, sent));
        decode(&enveloped("v1", "Pod", &pod)).unwrap().value["spec"]["securityContext"].clone()
    };
    assert_eq!(groups(&[0x20, 1, 0x20, 0xac, 2]), json!({"supplementalGroups": [1, 300]}));
    assert_eq!(groups(&message(4, &[1, 0xac, 2])), json!({"supplementalGroups": [1, 300]}));
    assert_eq!(groups(&message(4, &[])), json!({}));
}

#[test]
fn json_in_an_envelope_is_refused_whatever_the_envelope_says() {
    let mut body = enveloped("v1", "ConfigMap", br#"{"data":{"a":"b"}}"#);
    body.extend(message(4, b"application/json"));
    assert!(why(&body).starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: "));
}

#[test]
fn what_is_no_body_is_refused_in_the_words_of_the_original() {
    assert_eq!(why(b""), "empty data");
    assert_eq!(why(b"k8s\0"), "empty body");
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(why(b"{}"), prefix);
    assert_eq!(why(&enveloped("v1", "Gadget", b"")), "no kind \"Gadget\" is registered for version \"v1\"");
    assert!(why(&enveloped("v1", "", b"")).starts_with("Object 'Kind' is missing in "));
    assert!(why(&enveloped("", "Pod", b"")).starts_with("Object 'apiVersion' is missing in "));
    let truncated = enveloped("rbac.authorization.k8s.io/v1", "Role", &[0x0a, 9]);
    assert_eq!(why(&truncated), "Role in version \"v1\" cannot be handled as a Role: unexpected EOF");
    let mistyped = enveloped("v1", "ConfigMap", &[0x08, 9]);
    assert!(why(&mistyped).ends_with("proto: wrong wireType = 0 for field metadata"), "{}", why(&mistyped));
}

#[test]
fn schemas_inside_schemas_are_followed_only_so_far() {
    // spec.versions.schema.openAPIV3Schema.not.not.not...
    let nested = |levels: usize| {
        let mut schema = Vec::new();
        for _ in 0..levels {
            // Field 28 takes a tag of two bytes.
            schema = [vec![0xe2, 0x01], message(1, &schema)[1..].to_vec()].concat();
        }
        let version = message(4, &message(1, &schema));
        enveloped("apiextensions.k8s.io/v1", "CustomResourceDefinition", &message(2, &message(7, &version)))
    };
    assert!(decode(&nested(50)).is_ok());
    assert!(why(&nested(10_000)).contains("nested deeper"), "{}", why(&nested(10_000)));
}

#[test]
fn few_bytes_cannot_become_many_objects() {
    let pods = [0x12, 0].repeat(1_500_000);
    assert!(why(&enveloped("v1", "PodList", &pods)).contains("more than"));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0u8.., 0..300)) {
        let _ = decode(&bytes);
        let _ = decode(&[PREFIX, &bytes].concat());
        for (api_version, kind) in
            [("v1", "Pod"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), ("v1", "Event")]
        {
            let _ = decode(&enveloped(api_version, kind, &bytes));
        }
    }

    #[test]
    fn no_truncated_or_changed_body_makes_it_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let vectors = vectors();
        let mut body = which.get(&vectors).body.clone();
        let _ = decode(&body[..cut.index(body.len())]);
        for (at, byte) in changes {
            let at = at.index(body.len());
            body[at] = byte;
            let _ = decode(&body);
        }
    }
}

/// What a kind's own schema does not know of a body that its table does would be dropped, or refused to who is strict.
#[test]
fn every_field_that_can_be_sent_is_one_of_its_kinds_schema() {
    let (mut seen, mut lacking) = (0, Vec::new());
    for kind in crate::kinds::built_in() {
        for manner in ["unset", "hollow", "full"] {
            let name = format!("{manner} {} {}", kind.api_version(), kind.kind);
            let Some(vector) = vectors().into_iter().find(|vector| vector.name == name) else { continue };
            seen += 1;
            let mut object = vector.json;
            let mut unknown = crate::object_meta::prune(&mut object);
            unknown.extend(crate::schema::prune(&mut object, &kind.schema.get(), true));
            unknown.extend((kind.behaviour.prune)(&mut object));
            lacking.extend(unknown.into_iter().map(|path| format!("{name}: {path}")));
        }
    }
    assert_eq!(lacking, Vec::<String>::new());
    assert!(seen > 60, "{seen}");
}
