//! The facade under `/v1`: what it shows, whom, and what comes back to it.

use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::identity::User;

use crate::{
    house::{House, MAPS},
    machine::{MACHINES, claim, machine},
};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Somebody who may look around in one namespace, and nothing else. There is no controller here that gathers roles, so
/// these are its parts.
pub async fn as_viewer(house: &mut House, namespace: &str) {
    for role in ["system:aggregate-to-view", "kubevirt.io:view", "harvesterhci.io:view"] {
        let binding = json!({
            "metadata": {"name": format!("jo-{role}")},
            "subjects": [{"kind": "User", "name": "jo", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
        });
        house.post(&format!("{ROLES}/namespaces/{namespace}/rolebindings"), binding).await.ok();
    }
    house.user = jo();
}

pub fn jo() -> User {
    User { name: "jo".into(), groups: vec!["system:authenticated".into()], ..User::default() }
}

/// Lets somebody do this one thing in a namespace.
pub async fn allow(house: &House, namespace: &str, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    house.post(&format!("{ROLES}/namespaces/{namespace}/roles"), role).await.ok();
    let binding = json!({
        "metadata": {"name": name},
        "subjects": [{"kind": "User", "name": "jo", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "Role", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
    });
    house.post(&format!("{ROLES}/namespaces/{namespace}/rolebindings"), binding).await.ok();
}

pub async fn namespace(house: &House, name: &str) {
    house.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.ok();
}

pub fn ids(collection: &Value) -> Vec<&str> {
    collection["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect()
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn an_object_has_what_a_console_needs_and_can_be_sent_back() {
    let house = House::new().await;
    let secret = json!({"type": "secret", "_type": "Opaque", "metadata": {"name": "a", "namespace": "default"},
        "stringData": {"k": "v"}});
    let made =
        house.send(Method::POST, "/v1/secrets", &[("host", "sheaf.example:6443")], secret.to_string()).await;
    assert_eq!(made.code, 201, "{:#}", made.body);
    let mut shown = house.get("/v1/harvester/secret/default/a").await.ok();
    assert_eq!(
        (&shown["id"], &shown["type"], &shown["_type"]),
        (&json!("default/a"), &json!("secret"), &json!("Opaque"))
    );
    assert_eq!(shown["metadata"]["state"]["name"], "active");
    assert_eq!(shown["metadata"]["fields"][0], "a");
    assert_eq!(shown["metadata"]["relationships"], json!([]));
    let own = "https://127.0.0.1:6443/v1/harvester/secrets/default/a";
    assert_eq!(
        shown["links"],
        json!({"self": own, "update": own, "patch": own, "remove": own,
            "view": "https://127.0.0.1:6443/api/v1/namespaces/default/secrets/a"})
    );
    assert_eq!(shown["actions"], json!({}));
    assert_eq!(made.body["links"]["self"], "https://sheaf.example:6443/v1/secrets/default/a");

    shown["metadata"]["labels"] = json!({"x": "y"});
    let changed = house.put("/v1/secrets/default/a", shown).await.ok();
    assert_eq!(changed["metadata"]["labels"], json!({"x": "y"}));
    // What is stored is what it was, and no more.
    let stored = house.get("/api/v1/namespaces/default/secrets/a").await.ok();
    assert_eq!(stored["type"], "Opaque");
    assert!(stored["id"].is_null() && stored["links"].is_null() && stored["metadata"]["state"].is_null());
    let patched = house
        .patch("/v1/secrets/default/a", "merge-patch", json!({"metadata": {"labels": {"x": null}}}))
        .await;
    assert!(patched.ok()["metadata"]["labels"]["x"].is_null());
    assert_eq!(house.delete("/v1/secrets/default/a").await.code, 204);
    assert_eq!(house.get("/v1/secrets/default/a").await.code, 404);
}

#[tokio::test]
async fn both_roots_and_the_clusters_prefix_lead_to_the_same() {
    let house = House::new().await;
    house.config_map("a", json!({})).await;
    for prefix in ["/v1", "/v1/harvester", "/k8s/clusters/local/v1", "/k8s/clusters/local/v1/harvester"] {
        for word in ["configmap", "configmaps", "ConfigMaps"] {
            let shown = house.get(&format!("{prefix}/{word}/default/a")).await.ok();
            assert_eq!(
                shown["links"]["self"],
                format!("https://127.0.0.1:6443{prefix}/configmaps/default/a")
            );
        }
    }
    let view = house.get("/k8s/clusters/local/v1/configmaps/default/a").await.ok();
    assert_eq!(
        view["links"]["view"],
        "https://127.0.0.1:6443/k8s/clusters/local/api/v1/namespaces/default/configmaps/a"
    );
}

#[tokio::test]
async fn custom_resources_are_shown_like_all_others() {
    let house = House::new().await;
    let heaps = house.establish_heaps().await;
    house.post(heaps, json!({"apiVersion": "example.com/v1", "kind": "Heap", "metadata": {"name": "h"}, "spec": {"id": 7}, "id": "own"})).await.ok();
    let shown = house.get("/v1/example.com.heaps/h").await.ok();
    assert_eq!(
        (&shown["id"], &shown["_id"], &shown["type"]),
        (&json!("h"), &json!("own"), &json!("example.com.heap"))
    );
    let schema = house.get("/v1/schemas/example.com.heap").await.ok();
    assert_eq!(
        (&schema["attributes"]["kind"], &schema["pluralName"]),
        (&json!("Heap"), &json!("example.com.heaps"))
    );
}

#[tokio::test]
async fn errors_have_the_shape_of_the_facade() {
    let house = House::new().await;
    let unknown = house.get("/v1/example.com.nothing").await;
    assert_eq!(
        (unknown.code, &unknown.body["type"], &unknown.body["code"]),
        (404, &json!("error"), &json!("NotFound"))
    );
    assert_eq!(unknown.body["status"], 404);
    let absent = house.get("/v1/configmaps/default/none").await;
    assert_eq!((absent.code, absent.message()), (404, "configmaps \"none\" not found"));
    let invalid =
        house.post("/v1/configmaps", json!({"metadata": {"name": "A B", "namespace": "default"}})).await;
    assert_eq!((invalid.code, &invalid.body["code"]), (422, &json!("Invalid")));
    let homeless = house.post("/v1/configmaps", json!({"metadata": {"name": "a"}})).await;
    assert_eq!((homeless.code, homeless.message()), (422, "metadata.namespace is required"));
    let blind = house.put("/v1/configmaps/default/a", json!({"metadata": {"name": "a"}})).await;
    assert_eq!((blind.code, blind.message()), (422, "metadata.resourceVersion is required for update"));
    let none = house.post("/v1/configmaps/default/a?action=explode", json!({})).await;
    assert_eq!((none.code, &none.body), (405, &json!("Invalid action: explode")));
    let link = house.get("/v1/configmaps/default/a?link=nowhere").await;
    assert_eq!((link.code, &link.body["type"]), (404, &json!("error")));
    assert_eq!(house.send(Method::POST, "/v1/configmaps/default/a", &[], "{}").await.code, 405);
    assert_eq!(house.get("/v1/configmaps/default/a/b/c").await.code, 404);
    let broken = house.get("/v1/configmaps?filter=a%5Bb").await;
    assert_eq!((broken.code, &broken.body["code"]), (400, &json!("BadRequest")));
}

#[tokio::test]
async fn who_has_not_said_who_they_are_sees_nothing() {
    let mut house = House::new().await;
    house.user = User {
        name: "system:anonymous".into(),
        groups: vec!["system:unauthenticated".into()],
        ..User::default()
    };
    for path in ["/v1", "/v1/schemas", "/v1/secrets", "/v1/harvester/nodes", "/v1/subscribe"] {
        let refused = house.get(path).await;
        assert_eq!((refused.code, &refused.body["type"]), (401, &json!("error")), "{path}");
    }
}

#[tokio::test]
async fn a_collection_is_filtered_sorted_and_paged() {
    let house = House::new().await;
    for (name, size) in [("web-1", "9"), ("web-2", "10"), ("db-1", "7"), ("web-3", "9")] {
        let object =
            json!({"metadata": {"name": name, "labels": {"app.io/part": name}}, "data": {"size": size}});
        house.post(MAPS, object).await.ok();
    }
    let list = async |query: &str| house.get(&format!("/v1/configmaps/default?{query}")).await.ok();
    let names = |collection: &Value| -> Vec<String> {
        collection["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = list("filter=metadata.name=-").await;
    assert_eq!(
        (&all["type"], &all["resourceType"], &all["count"]),
        (&json!("collection"), &json!("configmap"), &json!(4))
    );
    assert!(all["revision"].as_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(all["createTypes"]["configmap"], "https://127.0.0.1:6443/v1/configmaps");
    assert!(
        all["links"]["self"].as_str().unwrap().starts_with("https://127.0.0.1:6443/v1/configmaps/default")
    );
    assert_eq!(
        names(&list("filter=metadata.name=web&sort=-data.size,-metadata.name").await),
        ["web-2", "web-3", "web-1"]
    );
    assert_eq!(names(&list("filter=metadata.labels[app.io/part]='db-1'").await), ["db-1"]);
    assert_eq!(names(&list("filter=metadata.fields[0]=db").await), ["db-1"]);
    assert_eq!(names(&list("filter=id=default/web-2").await), ["web-2"]);
    assert_eq!(names(&list("labelSelector=app.io/part%3Dweb-3").await), ["web-3"]);

    let first = list("filter=metadata.name=web&pagesize=2").await;
    assert_eq!(
        (names(&first).as_slice(), &first["pages"], &first["count"]),
        (["web-1".to_owned(), "web-2".to_owned()].as_slice(), &json!(2), &json!(3))
    );
    house.delete(&format!("{MAPS}/web-1")).await.ok();
    let revision = first["revision"].as_str().unwrap();
    let second = list(&format!("filter=metadata.name=web&pagesize=2&page=2&revision={revision}")).await;
    assert_eq!(names(&second), ["web-3"], "of the same moment as the first");
    assert!(names(&list("filter=metadata.name=web&pagesize=2&page=9").await).is_empty());

    let chunk = list("limit=2").await;
    let rest = list(&format!("limit=100&continue={}", chunk["continue"].as_str().unwrap())).await;
    assert_eq!(chunk["data"].as_array().unwrap().len(), 2);
    assert!(rest["continue"].is_null() && !names(&rest).contains(&names(&chunk)[0]));

    let bare = list("filter=metadata.name=db&include=metadata.name").await;
    assert_eq!(keys(&bare["data"][0]), ["actions", "id", "links", "metadata", "type"]);
    assert_eq!(keys(&bare["data"][0]["metadata"]), ["name"]);
    let without = list("filter=metadata.name=db&exclude=metadata.managedFields&excludeValues=data").await;
    assert!(without["data"][0]["metadata"]["managedFields"].is_null());
    assert_eq!(without["data"][0]["data"], json!({"size": ""}));
}

#[tokio::test]
async fn a_large_collection_is_whole() {
    let house = House::new().await;
    let filler = "x".repeat(2000);
    for n in 0..120 {
        house.config_map(&format!("m-{n:03}"), json!({"filler": filler})).await;
    }
    let all = house.get("/v1/configmaps/default?filter=metadata.name=m-&sort=-metadata.name").await.ok();
    assert_eq!((all["data"].as_array().unwrap().len(), &all["count"]), (120, &json!(120)));
    assert_eq!(all["data"][0]["metadata"]["name"], "m-119");
}

#[tokio::test]
async fn collections_show_projects_and_namespaces_that_were_asked_for() {
    let house = House::new().await;
    namespace(&house, "a").await;
    let of_project = json!({"metadata": {"name": "b", "labels": {"field.cattle.io/projectId": "p1"}}});
    house.post("/api/v1/namespaces", of_project).await.ok();
    for name in ["a", "b", "default"] {
        house
            .post(&format!("/api/v1/namespaces/{name}/configmaps"), json!({"metadata": {"name": "m"}}))
            .await
            .ok();
    }
    let list = async |query: &str| {
        let found = house.get(&format!("/v1/configmaps?filter=metadata.name='m'&{query}")).await.ok();
        ids(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(list("projectsornamespaces=p1,default").await, ["b/m", "default/m"]);
    assert_eq!(list("projectsornamespaces!=p1,default").await, ["a/m"]);
}

#[tokio::test]
async fn who_has_a_role_in_one_namespace_sees_that_and_no_more() {
    let mut house = House::new().await;
    for name in ["team", "other"] {
        namespace(&house, name).await;
        let maps = format!("/api/v1/namespaces/{name}/configmaps");
        for map in ["m1", "m2", "m3"] {
            house.post(&maps, json!({"metadata": {"name": map}})).await.ok();
        }
    }
    let admin = house.user.clone();
    as_viewer(&mut house, "team").await;
    assert_eq!(ids(&house.get("/v1/configmaps").await.ok()), ["team/m1", "team/m2", "team/m3"]);
    assert_eq!(ids(&house.get("/v1/namespaces").await.ok()), ["team"]);
    let refused = house.get("/v1/configmaps/other").await;
    assert_eq!((refused.code, &refused.body["code"]), (403, &json!("Forbidden")));
    assert_eq!(house.get("/v1/configmaps/other/m1").await.code, 403);
    let secrets = house.get("/v1/secrets").await;
    assert_eq!((secrets.code, &secrets.body["type"]), (403, &json!("error")));
    // Pages of what was gathered go on where they ended.
    let chunk = house.get("/v1/configmaps?limit=2").await.ok();
    assert_eq!(ids(&chunk), ["team/m1", "team/m2"]);
    let rest = house
        .get(&format!("/v1/configmaps?limit=2&continue={}", chunk["continue"].as_str().unwrap()))
        .await
        .ok();
    assert_eq!(ids(&rest), ["team/m3"]);
    assert!(rest["continue"].is_null());
    assert_eq!(house.get("/v1/configmaps?continue=after.%21").await.code, 400);

    let shown = house.get("/v1/configmaps/team/m1").await.ok();
    assert_eq!(keys(&shown["links"]), ["self", "view"], "nothing that they may not");
    assert!(house.get("/v1/configmaps").await.ok()["createTypes"].as_object().unwrap().is_empty());
    assert_eq!(house.delete("/v1/configmaps/team/m1").await.code, 403);
    // Who may make some in one namespace is not told that they may in another.
    let viewer = std::mem::replace(&mut house.user, admin);
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"]}]);
    allow(&house, "other", "maker", rules).await;
    house.user = viewer;
    for (collection, makes) in [("configmaps", true), ("configmaps/other", true), ("configmaps/team", false)]
    {
        let listed = house.get(&format!("/v1/{collection}")).await.ok();
        assert_eq!(!listed["createTypes"].as_object().unwrap().is_empty(), makes, "{collection}");
    }
    assert_eq!(house.put("/v1/configmaps/team/m1", shown).await.code, 403);
    // Settings are read by name.
    let settings = house.get("/v1/harvesterhci.io.settings").await.ok();
    assert!(ids(&settings).contains(&"server-version") && !ids(&settings).contains(&"http-proxy"));
}

#[tokio::test]
async fn schemas_say_what_their_reader_may_do() {
    let mut house = House::new().await;
    namespace(&house, "team").await;
    let all = house.get("/v1/harvester/schemas").await.ok();
    let of =
        |all: &Value, id: &str| all["data"].as_array().unwrap().iter().find(|one| one["id"] == id).cloned();
    let machines = of(&all, "kubevirt.io.virtualmachine").unwrap();
    assert_eq!(machines["attributes"]["resource"], "virtualmachines");
    assert_eq!(machines["attributes"]["columns"][0]["field"], "$.metadata.fields[0]");
    assert_eq!(machines["attributes"]["access"]["list"], json!([{"namespace": "*", "resourceName": "*"}]));
    assert_eq!(machines["resourceActions"]["clone"]["input"], "cloneInput");
    assert!(machines["resourceActions"]["migrate"].is_null());
    assert_eq!(machines["resourceFields"]["spec"]["type"], "kubevirt.io.virtualmachine.spec");
    assert!(of(&all, "cloneInput").unwrap()["resourceFields"]["targetVm"].is_object());
    assert_eq!(
        machines["links"]["collection"],
        "https://127.0.0.1:6443/v1/harvester/kubevirt.io.virtualmachines"
    );
    let definition = house.get("/v1/schemaDefinitions/kubevirt.io.virtualmachine").await.ok();
    assert!(
        definition["definitions"]["kubevirt.io.virtualmachine.spec"]["resourceFields"]["template"]
            .is_object()
    );

    as_viewer(&mut house, "team").await;
    let few = house.get("/v1/schemas").await.ok();
    let machines = of(&few, "kubevirt.io.virtualmachine").unwrap();
    assert_eq!(
        (&machines["collectionMethods"], &machines["resourceMethods"]),
        (&json!(["GET"]), &json!(["GET"]))
    );
    assert_eq!(machines["attributes"]["access"]["list"], json!([{"namespace": "team", "resourceName": "*"}]));
    assert!(of(&few, "secret").is_none() && of(&few, "node").is_none() && of(&few, "namespace").is_some());
    assert_eq!(house.get("/v1/schemas/secret").await.code, 404);
    assert_eq!(house.get("/v1/schemaDefinitions/secret").await.code, 404);
    let root = house.get("/v1").await.ok();
    assert!(root["data"][0]["links"]["kubevirt.io.virtualmachines"].is_string());
}

#[tokio::test]
async fn owners_are_told_as_relationships() {
    let house = House::new().await;
    let vm = house.post(MACHINES, machine("m")).await.ok();
    let mut owned = claim("c");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "name": "m", "uid": vm["metadata"]["uid"]}]);
    house.post(crate::machine::CLAIMS, owned).await.ok();
    let shown = house.get("/v1/persistentvolumeclaims/default/c").await.ok();
    assert_eq!(
        shown["metadata"]["relationships"],
        json!([{"rel": "owner", "fromType": "kubevirt.io.virtualmachine", "fromId": "default/m"}])
    );
}

#[tokio::test]
async fn what_is_never_deleted_has_no_link_to_remove_it() {
    let house = House::new().await;
    for kept in [
        "harvesterhci.io.settings/server-version",
        "harvester/harvesterhci.io.settings/server-version",
        "namespaces/kube-system",
    ] {
        let path = format!("/v1/{kept}");
        let shown = house.get(&path).await.ok();
        assert!(shown["links"]["remove"].is_null() && shown["links"]["update"].is_string(), "{kept}");
        assert_eq!(house.delete(&path).await.code, 403, "{kept}");
    }
    let addons = house.get("/v1/harvesterhci.io.addons").await.ok();
    let shipped = &addons["data"][0];
    assert!(shipped["links"]["self"].is_string() && shipped["links"]["remove"].is_null(), "{shipped}");
    house.config_map("own", json!({})).await;
    assert!(house.get("/v1/configmaps/default/own").await.ok()["links"]["remove"].is_string());
}
