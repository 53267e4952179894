//! The facade has no door of its own: what is refused, counted and written down is so whichever way it came.

use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::{audit::Level, identity::MASTERS};

use crate::{
    audit_log::{Audited, known},
    facade::{as_viewer, jo, namespace},
    house::House,
    machine::{MACHINES, machine},
};

const JSON: &[(&str, &str)] = &[("content-type", "application/json"), ("user-agent", "console/1.0")];

#[tokio::test]
async fn secrets_pass_through_and_stay_out_of_the_log() {
    let log = Audited::at(Level::RequestResponse).await;
    let root = known("root", &[MASTERS]);
    let mark = "Qx00001vK7zR2mN";
    let secret = json!({"_type": "Opaque", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"k": mark}});
    let made = log.ask(&root, Method::POST, "/v1/secrets", JSON, secret.to_string()).await;
    assert_eq!(made.code, 201);
    let mut shown = log.ask(&root, Method::GET, "/v1/harvester/secrets/default/s", &[], "").await.json();
    shown["stringData"] = json!({"k2": mark});
    assert_eq!(log.ask(&root, Method::PUT, "/v1/secrets/default/s", JSON, shown.to_string()).await.code, 200);
    let patch = json!({"stringData": {"k3": mark}});
    assert_eq!(
        log.ask(&root, Method::PATCH, "/v1/secrets/default/s", JSON, patch.to_string()).await.code,
        200
    );
    let filter = format!("/v1/secrets?filter=stringData.k={mark}");
    for uri in ["/v1/secrets", "/v1/secrets/default", &filter] {
        assert_eq!(log.ask(&root, Method::GET, uri, &[], "").await.code, 200);
    }
    assert_eq!(log.ask(&root, Method::POST, "/v1/secrets", JSON, secret.to_string()).await.code, 409);
    let encoded = "UXgwMDAwMXZLN3pSMm1O";
    for file in log.files() {
        assert!(!file.contains(mark) && !file.contains(encoded), "{file}");
    }
    let [event] = log.events_of(&made.id).try_into().unwrap();
    let event: Value = event;
    assert_eq!(event["objectRef"]["resource"], "secrets");
    assert_eq!(
        (&event["objectRef"]["namespace"], &event["objectRef"]["name"]),
        (&json!("default"), &json!("s"))
    );
    assert_eq!((&event["verb"], &event["requestURI"]), (&json!("create"), &json!("/v1/secrets")));
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(event["requestObject"]["metadata"]["name"], "s");
}

#[tokio::test]
async fn an_action_has_its_line_and_so_has_everything_that_it_does() {
    let log = Audited::at(Level::Request).await;
    log.house.post(MACHINES, machine("m")).await.ok();
    let root = known("root", &[MASTERS]);
    let uri = "/v1/harvester/kubevirt.io.virtualmachines/default/m?action=stop";
    let stopped = log.ask(&root, Method::POST, uri, JSON, "{}").await;
    assert_eq!(stopped.code, 204);
    let events = log.events_of(&stopped.id);
    let of = |verb: &str| {
        events.iter().find(|event| event["verb"] == verb).unwrap_or_else(|| panic!("{verb}: {events:#?}"))
    };
    assert_eq!(of("create")["objectRef"]["subresource"], "stop");
    assert_eq!(of("create")["requestURI"], uri);
    let written = of("update");
    assert_eq!(written["requestURI"], "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/m");
    assert_eq!(written["requestObject"]["spec"]["runStrategy"], "Halted");
    for event in &events {
        assert_eq!(
            (&event["user"]["username"], &event["sourceIPs"]),
            (&json!("root"), &json!(["192.0.2.7"]))
        );
        assert_eq!(event["userAgent"], "console/1.0");
    }
    // What was written belongs to the program that asked.
    let vm = log.house.get(&format!("{MACHINES}/m")).await.ok();
    let managers = vm["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().any(|one| one["manager"] == "console"), "{managers:#?}");
}

#[tokio::test]
async fn who_is_turned_away_has_a_line() {
    let mut log = Audited::at(Level::Metadata).await;
    namespace(&log.house, "team").await;
    as_viewer(&mut log.house, "team").await;
    let jo = known(&jo().name, &["system:authenticated"]);
    for (method, uri, code) in [
        (Method::GET, "/v1/secrets", 403),
        (Method::GET, "/v1/secrets/team/x", 403),
        (Method::DELETE, "/v1/configmaps/team/x", 403),
        (Method::POST, "/v1/kubevirt.io.virtualmachines/default/m?action=start", 403),
    ] {
        let refused = log.ask(&jo, method, uri, &[], "").await;
        assert_eq!(refused.code, code, "{uri}");
        let events = log.events_of(&refused.id);
        assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "forbid", "{uri}");
        assert_eq!(events[0]["responseStatus"]["code"], 403, "{uri}");
    }
}

#[tokio::test]
async fn quotas_and_admission_hold_whichever_way_somebody_comes() {
    let house = House::new().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}});
    house.post("/api/v1/namespaces/default/resourcequotas", quota).await.ok();
    let mut refused = None;
    for n in 0..3 {
        let map = json!({"metadata": {"name": format!("m{n}"), "namespace": "default"}});
        let answer = house.post("/v1/configmaps", map).await;
        if answer.code != 201 {
            refused = Some(answer);
            break;
        }
    }
    let refused = refused.expect("the quota holds");
    assert_eq!((refused.code, &refused.body["type"]), (403, &json!("error")));
    assert!(refused.message().contains("exceeded quota"), "{}", refused.message());
    let mut unsupported = machine("m");
    unsupported["metadata"]["namespace"] = json!("default");
    unsupported["spec"]["template"]["spec"]["domain"]["devices"]["tpm"] = json!({});
    let refused = house.post("/v1/kubevirt.io.virtualmachine", unsupported).await;
    assert_eq!((refused.code, &refused.body["code"]), (422, &json!("Invalid")));
    // What is dry changes nothing.
    let dry = json!({"metadata": {"name": "dry", "namespace": "default"}});
    assert_eq!(house.post("/v1/serviceaccounts?dryRun=All", dry).await.code, 201);
    assert_eq!(house.get("/v1/serviceaccounts/default/dry").await.code, 404);
}

#[tokio::test]
async fn who_may_change_a_machine_and_not_delete_it_leaves_no_note_by_trying() {
    let mut house = House::new().await;
    house.post(MACHINES, machine("m")).await.ok();
    let root = house.user.clone();
    crate::facade::allow(
        &house,
        "default",
        "patches",
        json!([{"apiGroups": ["kubevirt.io"],
        "resources": ["virtualmachines"], "verbs": ["get", "patch", "update"]}]),
    )
    .await;
    house.user = jo();
    let refused = house.delete("/v1/kubevirt.io.virtualmachines/default/m?removedDisks=disk-0").await;
    assert_eq!(refused.code, 403);
    house.user = root;
    let vm = house.get(&format!("{MACHINES}/m")).await.ok();
    assert!(vm["metadata"]["annotations"]["harvesterhci.io/removedPersistentVolumeClaims"].is_null());
}

#[tokio::test(start_paused = true)]
async fn what_names_an_action_does_nothing_else_to_the_object() {
    let house = House::new().await;
    house.post(MACHINES, machine("m")).await.ok();
    let vm = "/v1/harvester/kubevirt.io.virtualmachines/default/m?action=";
    let before = house.get(&format!("{MACHINES}/m")).await.ok();
    for method in [Method::DELETE, Method::GET, Method::PUT, Method::PATCH] {
        for action in ["stop", "none"] {
            let answer = house.send(method.clone(), &format!("{vm}{action}"), JSON, "{}").await;
            assert_eq!(answer.code, 405, "{method} {action}: {:#}", answer.body);
        }
    }
    let collection = "/v1/harvester/kubevirt.io.virtualmachines?action=none";
    assert_eq!(house.send(Method::DELETE, collection, JSON, "{}").await.code, 405);
    assert_eq!(house.get(&format!("{MACHINES}/m")).await.ok(), before, "it is there, and as it was");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_ready_when_a_node_is() {
    let mut house = House::new().await;
    let readiness = "/v1/harvester/readyz";
    let not_yet = house.get(readiness).await.ok();
    assert_eq!((&not_yet["ready"], &not_yet["msg"]), (&json!(false), &json!("no node is ready")));
    assert!(not_yet["timestamp"].as_str().unwrap().ends_with('Z'), "{not_yet}");
    house.join_node().await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    house.patch("/api/v1/nodes/n1/status", "merge-patch", ready).await.ok();
    let now = house.get(readiness).await.ok();
    assert_eq!((&now["ready"], &now["msg"]), (&json!(true), &Value::Null));
    assert_eq!(house.post(readiness, json!({})).await.code, 405);
    house.user = sheaf_apiserver::identity::User { name: "system:anonymous".into(), ..Default::default() };
    assert_eq!(house.get(readiness).await.code, 401);
}

#[tokio::test(start_paused = true)]
async fn a_backup_target_is_never_said_to_be_well() {
    let house = House::new().await;
    let target = "/v1/harvester/backuptarget/healthz";
    let unset = house.get(target).await;
    assert_eq!((unset.code, unset.body.as_str().unwrap()), (422, "backup-target setting is not set"));
    let value = json!({"value": r#"{"type":"nfs","endpoint":"nfs://server:/share"}"#});
    house.patch("/apis/harvesterhci.io/v1beta1/settings/backup-target", "merge-patch", value).await.ok();
    let set = house.get(target).await;
    assert!(set.code == 422 && set.body.as_str().unwrap().contains("can't connect"), "{:#}", set.body);
}

#[tokio::test(start_paused = true)]
async fn objects_are_counted_for_those_who_may_list_them() {
    let mut house = House::new().await;
    namespace(&house, "a").await;
    namespace(&house, "b").await;
    for place in ["a", "b", "b"] {
        let map = json!({"metadata": {"generateName": "m-"}});
        house.post(&format!("/api/v1/namespaces/{place}/configmaps"), map).await.ok();
    }
    let counts = house.get("/v1/counts").await.ok();
    assert_eq!((&counts["type"], &counts["resourceType"]), (&json!("collection"), &json!("count")));
    let of = |counts: &Value| counts["data"][0]["counts"]["configmap"].clone();
    let maps = of(&counts);
    let listed = house.get("/api/v1/configmaps").await.ok()["items"].as_array().unwrap().len();
    assert_eq!(maps["summary"]["count"], listed);
    assert_eq!(
        (&maps["namespaces"]["a"], &maps["namespaces"]["b"]),
        (&json!({"count": 1}), &json!({"count": 2}))
    );
    assert!(counts["data"][0]["counts"]["namespace"]["namespaces"].is_null());
    let one = house.get("/v1/harvester/counts/count").await.ok();
    assert_eq!((&one["id"], &one["type"]), (&json!("count"), &json!("count")));
    assert_eq!(one["counts"]["configmap"], maps);
    assert_eq!(house.get("/v1/schemas/count").await.ok()["pluralName"], "counts");
    as_viewer(&mut house, "a").await;
    let maps = of(&house.get("/v1/counts").await.ok());
    assert_eq!(maps, json!({"summary": {"count": 1}, "namespaces": {"a": {"count": 1}}}));
    let all = house.get("/v1/counts").await.ok()["data"][0]["counts"].clone();
    assert!(all["secret"].is_null(), "what may not be listed is not counted: {all}");
}
