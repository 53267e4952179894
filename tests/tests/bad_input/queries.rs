//! Query parameters that do not parse, contradict each other, or ask for the future.

use sheaf_tests::patience::TOO_LONG;
use std::time::{Duration, Instant};

use crate::{Request, Untouched, config_map, delete, get, node, post};

#[test]
fn selectors_that_do_not_parse_are_bad_requests() {
    let mut there = Untouched::new("selectors");
    let path = there.path.clone();
    for (selector, says) in [
        (
            "labelSelector=a%3Db%3Dc",
            "unable to parse requirement: found '=', expected: ',' or 'end of string'",
        ),
        ("labelSelector=a+in+(b", "unable to parse requirement"),
        ("labelSelector=!!a", "unable to parse requirement"),
        ("labelSelector=a+in+()x", "unable to parse requirement"),
        ("labelSelector=bad%20key%3Da", "unable to parse requirement"),
        ("labelSelector=a%3D-bad-", "a valid label must be an empty string or consist of"),
        ("fieldSelector=a", "invalid selector: 'a'; can't understand 'a'"),
        ("fieldSelector=data.a%3D1", "\"data.a\" is not a known field selector"),
    ] {
        for query in [format!("{path}?{selector}"), format!("{path}?watch=1&{selector}")] {
            there.refuses(get(&query), 400, "BadRequest", says);
        }
        there.refuses(delete(&format!("{path}?{selector}"), b""), 400, "BadRequest", says);
    }
}

#[test]
fn options_that_do_not_exist_are_refused() {
    let mut there = Untouched::new("options");
    let (path, one, body) = (there.path.clone(), there.one(), config_map("new").to_string());
    let query = |query: &str| format!("{path}?{query}");
    there.refuses(
        post(&query("dryRun=Some"), body.as_bytes()),
        422,
        "Invalid",
        "dryRun: Unsupported value: \"Some\": supported values: \"All\"",
    );
    there.refuses(
        post(&query("fieldValidation=Sometimes"), body.as_bytes()),
        422,
        "Invalid",
        "fieldValidation: Unsupported value: \"Sometimes\": supported values: ",
    );
    there.refuses(get(&query("limit=many")), 400, "BadRequest", "many");
    there.refuses(get(&query("timeoutSeconds=soon")), 400, "BadRequest", "soon");
    there.refuses(get(&query("continue=nonsense")), 400, "BadRequest", "continue");
    there.refuses(
        get(&query("resourceVersionMatch=Exact")),
        422,
        "Invalid",
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    );
    there.refuses(
        get(&query("resourceVersion=1&resourceVersionMatch=Nearly")),
        422,
        "Invalid",
        "resourceVersionMatch: Unsupported value: \"Nearly\"",
    );
    there.refuses(
        get(&query("resourceVersion=0&resourceVersionMatch=Exact")),
        422,
        "Invalid",
        "resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
    );
    there.refuses(
        get(&query("watch=1&sendInitialEvents=true")),
        422,
        "Invalid",
        "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
    );
    there.refuses(
        get(&query("sendInitialEvents=true")),
        422,
        "Invalid",
        "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
    );
    let says = "propagationPolicy: Unsupported value: \"Sideways\": supported values: ";
    there.refuses(delete(&format!("{one}?propagationPolicy=Sideways"), b""), 422, "Invalid", says);
    let both = delete(&one, br#"{"orphanDependents":true,"propagationPolicy":"Foreground"}"#);
    there.refuses(both, 422, "Invalid", "orphanDependents and deletionPropagation cannot be both set");
}

#[test]
fn the_future_is_waited_for_a_little_and_then_refused() {
    let mut there = Untouched::new("future");
    let (path, one) = (there.path.clone(), there.one());
    let future = u64::from(u32::MAX);
    for query in [
        format!("{path}?resourceVersion={future}"),
        format!("{path}?resourceVersion={future}&resourceVersionMatch=NotOlderThan"),
        format!("{one}?resourceVersion={future}"),
    ] {
        let asked = Instant::now();
        let answer = get(&query).send(&mut there.connection);
        let (code, reason, message) = answer.refusal();
        assert_eq!((code, reason.as_str()), (504, "Timeout"), "{query}");
        assert!(
            message.starts_with(&format!("Too large resource version: {future}, current: ")),
            "{message}"
        );
        let cause = &answer.json()["details"]["causes"][0];
        assert_eq!(cause["reason"], "ResourceVersionTooLarge");
        assert!(asked.elapsed() < TOO_LONG);
    }
    // A watch from the future is opened, says nothing, and ends when it was told to.
    let watch = format!("{path}?watch=1&resourceVersion={future}&timeoutSeconds=1");
    let mut watch = node().admin().connect(node()).watch(&watch);
    let asked = Instant::now();
    let mut object = config_map("new");
    object["metadata"]["labels"] = serde_json::json!({});
    there.connection.post(&path, &object).object();
    assert_eq!(watch.next(), None);
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert_eq!(there.look(), there.before);
}

#[test]
fn verbs_that_do_not_fit_the_place_are_refused() {
    let mut there = Untouched::new("verbs");
    let (path, one, body) = (there.path.clone(), there.one(), config_map("there").to_string());
    let ask = |method: &'static str, path: &'static str| Request {
        method,
        path,
        media_type: "application/json",
        body: b"{}",
    };
    let path: &'static str = path.leak();
    let one: &'static str = one.leak();
    let says = "the server does not allow this method on the requested resource";
    there.refuses(Request { body: body.as_bytes(), ..ask("POST", one) }, 405, "MethodNotAllowed", says);
    there.refuses(ask("PUT", path), 405, "MethodNotAllowed", says);
    there.refuses(ask("PATCH", path), 405, "MethodNotAllowed", says);
    there.refuses(ask("DELETE", "/api/v1/namespaces"), 405, "MethodNotAllowed", says);
    let answer = there.connection.get(&format!("{one}/scale"));
    assert_eq!((answer.code, answer.text()), (404, "404 page not found\n"));
}
