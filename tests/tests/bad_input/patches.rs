//! Patches that are broken, do not apply, or lead somewhere forbidden.

use crate::{Request, Untouched};

fn patch<'a>(path: &'a str, media_type: &'a str, body: &'a str) -> Request<'a> {
    Request { method: "PATCH", path, media_type, body: body.as_bytes() }
}

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const REJECTED: &str = "the server rejected our request due to an error in our request";

#[test]
fn a_patch_that_cannot_be_read_is_a_bad_request() {
    let mut there = Untouched::new("patch-unread");
    let one = there.one();
    for body in ["", "{", "[{", "nonsense"] {
        for media_type in [JSON, MERGE, STRATEGIC] {
            there.refuses(patch(&one, media_type, body), 400, "BadRequest", "");
        }
    }
    there.refuses(patch(&one, JSON, "{}"), 400, "BadRequest", "");
    for media_type in [MERGE, STRATEGIC] {
        there.refuses(patch(&one, media_type, "[]"), 400, "BadRequest", "");
    }
}

#[test]
fn a_patch_that_does_not_apply_changes_nothing_of_what_it_says() {
    let mut there = Untouched::new("patch-unapplied");
    let one = there.one();
    for body in [
        r#"[{"op":"add","path":"/data/b","value":"2"},{"op":"test","path":"/data/a","value":"other"}]"#,
        r#"[{"op":"remove","path":"/data/absent"}]"#,
        r#"[{"op":"add","path":"/no/such/parent","value":"1"}]"#,
        r#"[{"op":"move","from":"/data/absent","path":"/data/b"}]"#,
        r#"[{"op":"explode","path":"/data/a"}]"#,
    ] {
        there.refuses(patch(&one, JSON, body), 422, "Invalid", REJECTED);
    }
    // A bomb of copies: each doubles what is there.
    let copies = vec![r#"{"op":"copy","from":"/data","path":"/data/a"}"#; 200].join(",");
    let answer = patch(&one, JSON, &format!("[{copies}]")).send(&mut there.connection);
    assert!((400..500).contains(&answer.code), "{}", answer.text());
    let many = vec![r#"{"op":"test","path":"/data/a","value":"1"}"#; 10_001].join(",");
    there.refuses(
        patch(&one, JSON, &format!("[{many}]")),
        413,
        "RequestEntityTooLarge",
        "The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
}

#[test]
fn a_patch_to_something_invalid_is_refused_like_the_thing_itself() {
    let mut there = Untouched::new("patch-invalid");
    let one = there.one();
    there.refuses(
        patch(&one, MERGE, r#"{"metadata":{"labels":{"made":"bad value!"}}}"#),
        422,
        "Invalid",
        "a valid label must be an empty string or consist of",
    );
    there.refuses(
        patch(&one, MERGE, r#"{"data":{"bad/key":"x"}}"#),
        422,
        "Invalid",
        "data[bad/key]: Invalid value",
    );
    // What is no object of the kind any more is the patch's fault.
    there.refuses(patch(&one, MERGE, r#"{"data":"text"}"#), 422, "Invalid", "patch: Invalid value: ");
    there.refuses(patch(&one, MERGE, r#"{"kind":"Secret"}"#), 422, "Invalid", "patch: Invalid value: ");
    let strict = format!("{one}?fieldValidation=Strict");
    let says = "strict decoding error: unknown field \"dta\"";
    there.refuses(patch(&strict, MERGE, r#"{"dta":{}}"#), 422, "Invalid", says);
    there.refuses(
        patch(&one, MERGE, r#"{"metadata":{"name":"other"}}"#),
        400,
        "BadRequest",
        "does not match the name on the URL",
    );
    there.refuses(
        patch(&one, MERGE, r#"{"metadata":{"uid":"33333333-3333-3333-3333-333333333333"}}"#),
        422,
        "Invalid",
        "metadata.uid: Invalid value: \"33333333-3333-3333-3333-333333333333\": field is immutable",
    );
    let absent = format!("{}/absent", there.path);
    there.refuses(patch(&absent, MERGE, "{}"), 404, "NotFound", "configmaps \"absent\" not found");
}
