//! Bodies that are broken, too large, too deep, of the wrong type or of the wrong kind.

use serde_json::{Value, json};

use crate::{Request, Untouched, config_map, delete, post, put};

#[test]
fn malformed_and_truncated_bodies_are_bad_requests() {
    let mut there = Untouched::new("malformed");
    let (path, one) = (there.path.clone(), there.one());
    let whole = config_map("new").to_string();
    let cut = whole.len() / 2;
    for body in [
        "",
        "{",
        "nonsense",
        "[]",
        "\"text\"",
        "1",
        "null",
        "\u{0}\u{1}",
        &whole[..cut],
        &format!("{whole}x"),
    ] {
        there.refuses(post(&path, body.as_bytes()), 400, "BadRequest", "");
        there.refuses(put(&one, body.as_bytes()), 400, "BadRequest", "");
    }
    there.refuses(post(&path, b"{\"kind\":\"ConfigMap\xff\"}"), 400, "BadRequest", "");
    let says = "the object provided is unrecognized (must be of type ";
    there.refuses(post(&path, b"{"), 400, "BadRequest", says);
    for yaml in ["a: [", "\t- x", "- 1\n- 2\n", "a: &x 1\nb: *y\n"] {
        let request =
            Request { method: "POST", path: &path, media_type: "application/yaml", body: yaml.as_bytes() };
        there.refuses(request, 400, "BadRequest", "");
    }
    there.refuses(delete(&one, b"{\"kind\":"), 400, "BadRequest", "");
}

#[test]
fn fields_of_the_wrong_type_are_bad_requests() {
    let mut there = Untouched::new("wrong-types");
    let path = there.path.clone();
    for (pointer, value) in [
        ("/data", json!("text")),
        ("/data", json!({"a": 1})),
        ("/metadata", json!([])),
        ("/metadata/labels", json!({"a": {"b": "c"}})),
        ("/metadata/name", json!(7)),
        ("/metadata/finalizers", json!("one")),
        ("/immutable", json!("yes")),
    ] {
        let mut object = config_map("new");
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let body = object.to_string();
        let says = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
        there.refuses(post(&path, body.as_bytes()), 400, "BadRequest", says);
    }
}

#[test]
fn a_body_over_three_mebibytes_is_refused() {
    let mut there = Untouched::new("oversized");
    let (path, one) = (there.path.clone(), there.one());
    let mut object = config_map("new");
    object["data"]["a"] = "".into();
    let padding = 3 * 1024 * 1024 + 1 - object.to_string().len();
    object["data"]["a"] = "x".repeat(padding).into();
    let body = object.to_string();
    assert_eq!(body.len(), 3 * 1024 * 1024 + 1);
    let says = "Request entity too large: limit is 3145728";
    there.refuses(post(&path, body.as_bytes()), 413, "RequestEntityTooLarge", says);
    there.refuses(put(&one, body.as_bytes()), 413, "RequestEntityTooLarge", says);
    let patch = json!({"data": {"a": "x".repeat(3 * 1024 * 1024)}}).to_string();
    let request = Request {
        method: "PATCH",
        path: &one,
        media_type: "application/merge-patch+json",
        body: patch.as_bytes(),
    };
    there.refuses(request, 413, "RequestEntityTooLarge", says);
    // Within the limit of bodies, but not of this kind.
    let mut object = config_map("new");
    object["data"]["a"] = "x".repeat(1024 * 1024 + 1).into();
    let says = "Too long: may not be more than 1048576 bytes";
    there.refuses(post(&path, object.to_string().as_bytes()), 422, "Invalid", says);
}

#[test]
fn deep_nesting_is_refused_before_it_is_followed() {
    let mut there = Untouched::new("deep");
    let path = there.path.clone();
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [10_001, 100_000, 1_000_000] {
        let body = format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"x\":{}}}", deep(depth));
        there.refuses(post(&path, body.as_bytes()), 400, "BadRequest", "");
        let yaml =
            Request { method: "POST", path: &path, media_type: "application/yaml", body: body.as_bytes() };
        there.refuses(yaml, 400, "BadRequest", "");
        let dashes = "- ".repeat(depth);
        let yaml =
            Request { method: "POST", path: &path, media_type: "application/yaml", body: dashes.as_bytes() };
        there.refuses(yaml, 400, "BadRequest", "");
    }
    let objects = format!("{}1{}", "{\"a\":".repeat(400_000), "}".repeat(400_000));
    there.refuses(post(&path, objects.as_bytes()), 400, "BadRequest", "");
    let mut bomb = String::from("apiVersion: v1\nkind: ConfigMap\na0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for n in 1..12 {
        let previous = vec![format!("*a{}", n - 1); 9].join(",");
        bomb += &format!("a{n}: &a{n} [{previous}]\n");
    }
    let yaml = Request { method: "POST", path: &path, media_type: "application/yaml", body: bomb.as_bytes() };
    there.refuses(yaml, 400, "BadRequest", "");
}

#[test]
fn content_types_nobody_speaks_are_refused() {
    let mut there = Untouched::new("media-types");
    let (path, one) = (there.path.clone(), there.one());
    let body = config_map("new").to_string();
    let says =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    for media_type in ["text/plain", "application/xml", "multipart/form-data", "application/json-patch+json"]
    {
        let request = Request { method: "POST", path: &path, media_type, body: body.as_bytes() };
        there.refuses(request, 415, "UnsupportedMediaType", says);
    }
    for media_type in ["application/json", "application/yaml", "text/plain", "application/merge-patch"] {
        let request = Request { method: "PATCH", path: &one, media_type, body: b"{}" };
        there.refuses(request, 415, "UnsupportedMediaType", "application/strategic-merge-patch+json");
    }
    let answer = there.connection.ask("GET", &one, &[("accept", "image/png")], b"");
    let (code, reason, message) = answer.refusal();
    assert_eq!((code, reason.as_str()), (406, "NotAcceptable"));
    assert!(
        message.starts_with("only the following media types are accepted: application/json"),
        "{message}"
    );
}

#[test]
fn an_object_of_another_kind_version_or_namespace_is_refused() {
    let mut there = Untouched::new("elsewhere");
    let path = there.path.clone();
    let mut send = |change: &dyn Fn(&mut Value), says: &str| {
        let mut object = config_map("new");
        change(&mut object);
        there.refuses(post(&path, object.to_string().as_bytes()), 400, "BadRequest", says);
    };
    send(
        &|object| object["kind"] = "Secret".into(),
        "Secret in version \"v1\" cannot be handled as a ConfigMap",
    );
    send(&|object| object["apiVersion"] = "v2".into(), "");
    send(&|object| object["apiVersion"] = "a/b/c".into(), "");
    send(&|object| object["kind"] = 7.into(), "");
    send(
        &|object| object["metadata"]["namespace"] = "default".into(),
        "the namespace of the provided object does not match the namespace sent on the request",
    );
    let body = config_map("new").to_string();
    let nowhere = "/api/v1/namespaces/nowhere/configmaps";
    there.refuses(post(nowhere, body.as_bytes()), 404, "NotFound", "namespaces \"nowhere\" not found");
}

#[test]
fn stale_and_foreign_versions_conflict() {
    let mut there = Untouched::new("stale");
    let (path, one) = (there.path.clone(), there.one());
    let current = there.connection.get(&one).object();
    let version: u64 = current["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    let with = |pointer: &str, value: Value| {
        let mut object = current.clone();
        object["data"]["a"] = "changed".into();
        *object.pointer_mut(pointer).unwrap() = value;
        object.to_string()
    };
    let says = "Operation cannot be fulfilled on configmaps \"there\": the object has been modified";
    for stale in [version - 1, version + 1000] {
        let body = with("/metadata/resourceVersion", stale.to_string().into());
        there.refuses(put(&one, body.as_bytes()), 409, "Conflict", says);
        let patch =
            json!({"metadata": {"resourceVersion": stale.to_string()}, "data": {"a": "changed"}}).to_string();
        let request = Request {
            method: "PATCH",
            path: &one,
            media_type: "application/merge-patch+json",
            body: patch.as_bytes(),
        };
        there.refuses(request, 409, "Conflict", says);
    }
    let body = with("/metadata/uid", "11111111-1111-1111-1111-111111111111".into());
    there.refuses(put(&one, body.as_bytes()), 409, "Conflict", "Precondition failed: UID in precondition: ");
    let body = with("/metadata/name", "another".into());
    let says = "the name of the object (another) does not match the name on the URL (there)";
    there.refuses(put(&one, body.as_bytes()), 400, "BadRequest", says);

    let body = config_map("there").to_string();
    there.refuses(post(&path, body.as_bytes()), 409, "AlreadyExists", "configmaps \"there\" already exists");
    let mut versioned = config_map("new");
    versioned["metadata"]["resourceVersion"] = "5".into();
    let says = "resourceVersion should not be set on objects to be created";
    there.refuses(post(&path, versioned.to_string().as_bytes()), 400, "BadRequest", says);
    let body = json!({"preconditions": {"uid": "22222222-2222-2222-2222-222222222222"}}).to_string();
    there.refuses(delete(&one, body.as_bytes()), 409, "Conflict", "the UID in the precondition");
    let body = json!({"preconditions": {"resourceVersion": "1"}}).to_string();
    there.refuses(delete(&one, body.as_bytes()), 409, "Conflict", "the ResourceVersion in the precondition");
    let absent = format!("{path}/absent");
    there.refuses(
        put(&absent, config_map("absent").to_string().as_bytes()),
        404,
        "NotFound",
        "configmaps \"absent\" not found",
    );
    there.refuses(delete(&absent, b""), 404, "NotFound", "configmaps \"absent\" not found");
}
