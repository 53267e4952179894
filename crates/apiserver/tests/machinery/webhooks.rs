//! Webhooks are not asked yet, and nobody is led to believe that they are.

use http::Method;
use serde_json::{Value, json};

use crate::house::{DEFINITIONS, House};

const GROUP: &str = "/apis/admissionregistration.k8s.io";

fn configuration(kind: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "guard"},
        "webhooks": [{
            "name": "guard.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "clientConfig": {"url": "https://guard.example.com"},
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}],
        }],
    })
}

#[tokio::test(start_paused = true)]
async fn a_configuration_of_webhooks_is_not_taken_in_silence() {
    let house = House::new().await;
    let groups = house.get("/apis").await.ok();
    let names = groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]);
    assert!(names.into_iter().all(|name| name != "admissionregistration.k8s.io"));
    assert_eq!(house.get(&format!("{GROUP}/v1")).await.code, 404);
    for (plural, kind) in [
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    ] {
        let all = format!("{GROUP}/v1/{plural}");
        assert_eq!(house.post(&all, configuration(kind)).await.code, 404, "{kind}");
        let one = format!("{all}/guard?fieldManager=me");
        let applied = [("content-type", "application/apply-patch+yaml")];
        let answer = house.send(Method::PATCH, &one, &applied, configuration(kind).to_string()).await;
        assert_eq!(answer.code, 404, "{kind}");
        assert_eq!(house.get(&all).await.code, 404, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_definition_makes_webhooks_look_served() {
    let house = House::new().await;
    let (plural, group) = ("validatingwebhookconfigurations", "admissionregistration.k8s.io");
    let mut definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
        "spec": {"group": group, "scope": "Cluster",
            "names": {"plural": plural, "kind": "ValidatingWebhookConfiguration"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    let refused = house.post(DEFINITIONS, definition.clone()).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
    let why = "spec.group: Forbidden: admission webhooks and policies are not served yet";
    assert!(refused.message().contains(why), "{}", refused.message());

    definition["metadata"] = json!({"name": "widgets.example.com"});
    definition["spec"]["group"] = "example.com".into();
    definition["spec"]["names"] = json!({"plural": "widgets", "kind": "Widget"});
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"url": "https://convert.example.com"}, "conversionReviewVersions": ["v1"]}});
    let refused = house.post(DEFINITIONS, definition).await;
    assert_eq!(refused.refusal(), (422, "Invalid"));
    let why = "spec.conversion.strategy: Forbidden: conversion webhooks are not served yet";
    assert!(refused.message().contains(why), "{}", refused.message());
}
