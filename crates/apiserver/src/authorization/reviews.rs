//! Questions about rights, asked through the API: may I, may they, what may I.
//!
//! Each function takes the body of a creation and answers it filled in; nothing is stored.

use serde_json::{Value, json};
use sheaf_resources::rbac::{Attributes, rules_review};

use super::{Authorizer, Decision};
use crate::identity::{
    Cause, Refusal, User,
    objects::{text, texts},
};

const GROUP: &str = "authorization.k8s.io";

/// May I?
pub fn self_subject_access_review(
    authorizer: &Authorizer,
    user: &User,
    body: &Value,
) -> Result<Value, Refusal> {
    let kind = "SelfSubjectAccessReview";
    refuse(kind, [attributes_causes(body), metadata_causes(body, false)].concat())?;
    Ok(answered(authorizer, kind, user, body))
}

/// May they?
pub fn subject_access_review(authorizer: &Authorizer, body: &Value) -> Result<Value, Refusal> {
    let kind = "SubjectAccessReview";
    let causes = [attributes_causes(body), subject_causes(body), metadata_causes(body, false)];
    refuse(kind, causes.concat())?;
    Ok(answered(authorizer, kind, &subject(body), body))
}

/// May they, in the namespace the question is put in?
pub fn local_subject_access_review(
    authorizer: &Authorizer,
    namespace: &str,
    body: &Value,
) -> Result<Value, Refusal> {
    let kind = "LocalSubjectAccessReview";
    let mut causes = [attributes_causes(body), subject_causes(body), metadata_causes(body, true)].concat();
    let stated = text(body, "/metadata/namespace");
    let asked = text(body, "/spec/resourceAttributes/namespace");
    if given(body, "/spec/resourceAttributes").is_some() && asked != stated {
        let detail = "must match metadata.namespace";
        causes.push(Cause::new("spec.resourceAttributes.namespace", json!(asked), detail));
    }
    if let Some(paths) = given(body, "/spec/nonResourceAttributes") {
        let detail = "disallowed on this kind of request";
        causes.push(Cause::new("spec.nonResourceAttributes", paths.clone(), detail));
    }
    refuse(kind, causes)?;
    if stated != namespace {
        let message = format!("spec.resourceAttributes.namespace must match namespace: {namespace}");
        return Err(Refusal::BadRequest { message });
    }
    Ok(answered(authorizer, kind, &subject(body), body))
}

/// What may I, in a namespace?
pub fn self_subject_rules_review(
    authorizer: &Authorizer,
    user: &User,
    body: &Value,
) -> Result<Value, Refusal> {
    let namespace = text(body, "/spec/namespace");
    if namespace.is_empty() {
        return Err(Refusal::BadRequest { message: "no namespace on request".to_owned() });
    }
    let (resource_rules, non_resource_rules) = rules_review(&authorizer.rules_for(user, namespace));
    let node = user.node_name().map(|_| "node authorizer does not support user rule resolution".to_owned());
    let password = user.must_change_password().then(|| super::password_change::REASON.to_owned());
    let errors: Vec<String> =
        password.into_iter().chain(node).chain(authorizer.unknown_for(user, namespace)).collect();
    let mut status = json!({
        "resourceRules": resource_rules,
        "nonResourceRules": non_resource_rules,
        "incomplete": !errors.is_empty(),
    });
    match errors.as_slice() {
        [] => {}
        [only] => status["evaluationError"] = json!(only),
        many => status["evaluationError"] = json!(format!("[{}]", many.join(", "))),
    }
    Ok(json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": { "creationTimestamp": null },
        "spec": {},
        "status": status,
    }))
}

fn answered(authorizer: &Authorizer, kind: &str, user: &User, body: &Value) -> Value {
    let status = match authorizer.authorize(user, &asked(body)) {
        Decision::Allow { reason } if reason.is_empty() => json!({ "allowed": true }),
        Decision::Allow { reason } => json!({ "allowed": true, "reason": &*reason }),
        Decision::Deny { reason } if reason.is_empty() => json!({ "allowed": false }),
        Decision::Deny { reason } => json!({ "allowed": false, "reason": reason }),
    };
    let mut answer = body.clone();
    answer["apiVersion"] = json!("authorization.k8s.io/v1");
    answer["kind"] = json!(kind);
    if given(body, "/metadata").is_none() {
        answer["metadata"] = json!({ "creationTimestamp": null });
    }
    answer["status"] = status;
    answer
}

fn asked(body: &Value) -> Attributes<'_> {
    if let Some(paths) = given(body, "/spec/nonResourceAttributes") {
        return Attributes {
            verb: text(paths, "/verb"),
            path: Some(text(paths, "/path")),
            ..Attributes::default()
        };
    }
    let of = |field: &str| text(body, &format!("/spec/resourceAttributes/{field}"));
    Attributes {
        verb: of("verb"),
        group: of("group"),
        resource: of("resource"),
        subresource: of("subresource"),
        namespace: of("namespace"),
        name: of("name"),
        bound_to: "",
        path: None,
    }
}

fn subject(body: &Value) -> User {
    let extra = body.pointer("/spec/extra").and_then(Value::as_object);
    let listed = |values: &Value| texts(&json!({ "values": values }), "/values");
    User {
        name: text(body, "/spec/user").to_owned(),
        uid: text(body, "/spec/uid").to_owned(),
        groups: texts(body, "/spec/groups"),
        extra: extra.into_iter().flatten().map(|(key, values)| (key.clone(), listed(values))).collect(),
    }
}

fn attributes_causes(body: &Value) -> Vec<Cause> {
    let paths = given(body, "/spec/nonResourceAttributes");
    match (given(body, "/spec/resourceAttributes"), paths) {
        (Some(_), Some(paths)) => {
            let detail = "cannot be specified in combination with resourceAttributes";
            vec![Cause::new("spec.nonResourceAttributes", paths.clone(), detail)]
        }
        (None, None) => {
            let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            vec![Cause::new("spec.resourceAttributes", Value::Null, detail)]
        }
        _ => Vec::new(),
    }
}

fn subject_causes(body: &Value) -> Vec<Cause> {
    if text(body, "/spec/user").is_empty() && texts(body, "/spec/groups").is_empty() {
        return vec![Cause::new("spec.user", json!(""), "at least one of user or group must be specified")];
    }
    Vec::new()
}

fn metadata_causes(body: &Value, with_namespace: bool) -> Vec<Cause> {
    let metadata = body.get("metadata").and_then(Value::as_object);
    let empty = metadata.into_iter().flatten().all(|(field, value)| {
        let ignored = field == "managedFields" || (with_namespace && field == "namespace");
        ignored || value.is_null() || value == &json!("") || value == &json!({}) || value == &json!([])
    });
    if empty {
        return Vec::new();
    }
    let detail = if with_namespace { "must be empty except for namespace" } else { "must be empty" };
    vec![Cause::new("metadata", body["metadata"].clone(), detail)]
}

fn given<'a>(body: &'a Value, pointer: &str) -> Option<&'a Value> {
    body.pointer(pointer).filter(|value| !value.is_null())
}

fn refuse(kind: &'static str, causes: Vec<Cause>) -> Result<(), Refusal> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Refusal::Invalid { group: GROUP, kind, name: String::new(), causes })
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
