//! What the cloud provider and the CSI driver of a guest cluster sign in with.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};

use crate::{
    house::House,
    visitors::{ask, bearing, bind, give, join, join_admin},
};

const KUBECONFIG: &str = "/v1/harvester/kubeconfig";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ACCOUNTS: &str = "/api/v1/namespaces/guest/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/guest/secrets";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/guest/rolebindings";

fn wish() -> Value {
    json!({
        "clusterRoleName": "harvesterhci.io:cloudprovider", "namespace": "guest", "serviceAccountName": "rke2",
        "csiclusterRoleName": "harvesterhci.io:csi-driver",
    })
}

async fn house() -> House {
    let house = House::new().await;
    house.post("/api/v1/namespaces", json!({"metadata": {"name": "guest"}})).await.ok();
    house
}

/// Does what the controller of such Secrets does, once there is one.
async fn fill(house: &House) {
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let secret = house.get(&format!("{SECRETS}/rke2-token")).await;
        if secret.code == 200 && secret.body["data"].get("token").is_none() {
            let encoded = |text: &str| STANDARD.encode(text);
            let data = json!({"data": {"token": encoded("a.b.c"), "ca.crt": encoded("PEM"), "namespace": encoded("guest")}});
            house.patch(&format!("{SECRETS}/rke2-token"), "merge-patch", data).await.ok();
        }
    }
}

async fn asked(house: &House, token: &str, method: Method, uri: &str, body: Value) -> crate::visitors::Said {
    tokio::select! {
        biased;
        said = bearing(house, token, method, uri, body) => said,
        () = fill(house) => unreachable!("it goes on"),
    }
}

/// What there is of it.
async fn made(house: &House) -> Vec<String> {
    let mut found = Vec::new();
    for uri in [ACCOUNTS, SECRETS, BINDINGS, &format!("{RBAC}/clusterrolebindings")] {
        let all = house.get(uri).await.ok();
        let names =
            all["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap());
        found.extend(names.filter(|name| name.contains("rke2")).map(str::to_owned));
    }
    found
}

#[tokio::test(start_paused = true)]
async fn a_guest_cluster_is_given_an_account_two_bindings_and_a_kubeconfig() {
    let house = house().await;
    let root = join_admin(&house, "root").await;
    let said = asked(&house, &root, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!((said.code, said.media.as_str()), (200, "application/json"), "{}", said.text);
    let config: Value = serde_yaml_ng::from_str(said.body.as_str().expect("a JSON string")).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:6443");
    assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], STANDARD.encode("PEM"));
    assert_eq!(config["users"][0]["user"]["token"], "a.b.c");
    let context = json!({"cluster": "default", "user": "default", "namespace": "guest"});
    assert_eq!(
        (&config["contexts"][0]["context"], &config["current-context"]),
        (&context, &json!("default"))
    );

    let account = house.get(&format!("{ACCOUNTS}/rke2")).await.ok();
    let secret = house.get(&format!("{SECRETS}/rke2-token")).await.ok();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], account["metadata"]["uid"]);
    assert_eq!(
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    for (uri, role) in [
        (format!("{BINDINGS}/guest-rke2"), "harvesterhci.io:cloudprovider"),
        (format!("{RBAC}/clusterrolebindings/guest-rke2"), "harvesterhci.io:csi-driver"),
    ] {
        let binding = house.get(&uri).await.ok();
        assert_eq!(binding["roleRef"]["name"], role);
        assert_eq!(
            binding["subjects"],
            json!([{"kind": "ServiceAccount", "name": "rke2", "namespace": "guest"}])
        );
        assert_eq!(binding["metadata"]["ownerReferences"][0]["uid"], account["metadata"]["uid"]);
    }

    // Asked again, it is the same; and it can be read again.
    let again = asked(&house, &root, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!((again.code, &again.body), (200, &said.body));
    let get = format!("{KUBECONFIG}?namespace=guest&serviceAccountName=rke2");
    assert_eq!(bearing(&house, &root, Method::GET, &get, Value::Null).await.body, said.body);
    let prefixed = format!("/k8s/clusters/local{get}");
    assert_eq!(bearing(&house, &root, Method::GET, &prefixed, Value::Null).await.body, said.body);
    let yaml = bearing(&house, &root, Method::GET, &format!("{get}&outputFormat=yaml"), Value::Null).await;
    assert_eq!((yaml.code, yaml.media.as_str()), (200, "application/x-yaml"));
    let files: Value = serde_yaml_ng::from_str(&yaml.text).unwrap();
    let paths: Vec<&str> =
        files["write_files"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        ["/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"]
    );
    let content = STANDARD.decode(files["write_files"][0]["content"].as_str().unwrap()).unwrap();
    assert_eq!(String::from_utf8(content).unwrap(), said.body.as_str().unwrap());
}

#[tokio::test(start_paused = true)]
async fn who_may_not_make_or_bind_it_gets_nothing_and_makes_nothing() {
    let house = house().await;
    assert_eq!(ask(&house, Method::POST, KUBECONFIG, &[], &wish().to_string()).await.code, 401);
    let anna = join(&house, "anna").await;
    let refused = bearing(&house, &anna, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(
        refused.media.starts_with("text/plain") && refused.text.contains("serviceaccounts"),
        "{}",
        refused.text
    );

    // An editor of everything makes accounts and Secrets, but binds no roles.
    let bert = join(&house, "bert").await;
    bind(&house, "bert", "edit").await;
    assert_eq!(bearing(&house, &bert, Method::POST, KUBECONFIG, wish()).await.code, 403);
    assert_eq!(made(&house).await, [""; 0]);

    // Who may write bindings, but holds less than the roles give, may not bind them.
    let carl = join(&house, "carl").await;
    give(&house, "carl", json!([
        {"apiGroups": [""], "resources": ["serviceaccounts", "secrets"], "verbs": ["create", "get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "clusterrolebindings"], "verbs": ["create", "get"]},
    ]))
    .await;
    let refused = bearing(&house, &carl, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!(refused.code, 403, "{}", refused.text);
    assert!(refused.text.contains("attempting to grant"), "{}", refused.text);
    assert_eq!(made(&house).await, [""; 0]);

    // Who may bind exactly these two may.
    let dora = join(&house, "dora").await;
    give(&house, "dora", json!([
        {"apiGroups": [""], "resources": ["serviceaccounts", "secrets"], "verbs": ["create", "get"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "clusterrolebindings"], "verbs": ["create"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
            "resourceNames": ["harvesterhci.io:cloudprovider", "harvesterhci.io:csi-driver"]},
    ]))
    .await;
    assert_eq!(asked(&house, &dora, Method::POST, KUBECONFIG, wish()).await.code, 200);
    // And who may not read the Secret reads no kubeconfig of it.
    let get = format!("{KUBECONFIG}?namespace=guest&serviceAccountName=rke2");
    assert_eq!(bearing(&house, &anna, Method::GET, &get, Value::Null).await.code, 403);
}

#[tokio::test(start_paused = true)]
async fn what_somebody_put_in_the_way_is_never_taken_for_what_was_asked_for() {
    let house = house().await;
    let root = join_admin(&house, "root").await;
    // A Secret that its author filled, with a server and a token of their own.
    let planted = json!({
        "metadata": {"name": "rke2-token"}, "type": "Opaque",
        "data": {"token": STANDARD.encode("evil"), "ca.crt": STANDARD.encode("evil")},
    });
    house.post(SECRETS, planted).await.ok();
    house.post(ACCOUNTS, json!({"metadata": {"name": "rke2"}})).await.ok();
    let said = bearing(&house, &root, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!(said.code, 409, "{}", said.text);
    assert!(!said.text.contains("evil"));
    let get = format!("{KUBECONFIG}?namespace=guest&serviceAccountName=rke2");
    assert_eq!(bearing(&house, &root, Method::GET, &get, Value::Null).await.code, 409);
    house.delete(&format!("{SECRETS}/rke2-token")).await.ok();

    // A binding of the same name that binds somebody else.
    let other = json!({
        "metadata": {"name": "guest-rke2"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "x"}],
    });
    house.post(&format!("{RBAC}/clusterrolebindings"), other).await.ok();
    assert_eq!(bearing(&house, &root, Method::POST, KUBECONFIG, wish()).await.code, 409);
    assert_eq!(made(&house).await, ["rke2", "guest-rke2"], "and nothing else was made");
}

#[tokio::test(start_paused = true)]
async fn bad_wishes_change_nothing() {
    let house = house().await;
    let root = join_admin(&house, "root").await;
    for (field, value, code) in [
        ("clusterRoleName", "cluster-admin", 422),
        ("csiclusterRoleName", "cluster-admin", 422),
        ("namespace", "", 422),
        ("serviceAccountName", "", 422),
        ("outputFormat", "xml", 422),
        ("namespace", "nowhere", 404),
        ("serviceAccountName", "Not A Name", 422),
        ("namespace", "../guest", 400),
    ] {
        let mut wish = wish();
        wish[field] = value.into();
        let said = bearing(&house, &root, Method::POST, KUBECONFIG, wish).await;
        assert_eq!(said.code, code, "{field} {value}: {}", said.text);
    }
    assert_eq!(made(&house).await, [""; 0]);
    assert_eq!(bearing(&house, &root, Method::DELETE, KUBECONFIG, Value::Null).await.code, 405);
    let get = format!("{KUBECONFIG}?namespace=guest&serviceAccountName=rke2");
    assert_eq!(bearing(&house, &root, Method::GET, &get, Value::Null).await.code, 404);
    // Nobody fills the Secret: that is said, instead of half a kubeconfig.
    let said = bearing(&house, &root, Method::POST, KUBECONFIG, wish()).await;
    assert_eq!(said.code, 409, "{}", said.text);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_read_bindings_learns_nothing_of_them() {
    let house = house().await;
    let stranger = join(&house, "stranger").await;
    // May make all of it, and see nothing of what is there.
    give(
        &house,
        "maker",
        json!([
            {"apiGroups": [""], "resources": ["serviceaccounts", "secrets"], "verbs": ["create", "get"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "clusterrolebindings"],
                "verbs": ["create"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"]},
        ]),
    )
    .await;
    let maker = join(&house, "maker").await;
    let before = bearing(&house, &stranger, Method::POST, KUBECONFIG, wish()).await;
    let binding = |role: &str| {
        json!({
            "metadata": {"name": "guest-rke2"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "rke2", "namespace": "guest"}],
        })
    };
    let mut answers = Vec::new();
    for role in ["view", "harvesterhci.io:csi-driver"] {
        let uri = format!("{RBAC}/clusterrolebindings");
        house.post(&uri, binding(role)).await.ok();
        let after = bearing(&house, &stranger, Method::POST, KUBECONFIG, wish()).await;
        assert_eq!((before.code, &before.text), (after.code, &after.text));
        let said = bearing(&house, &maker, Method::POST, KUBECONFIG, wish()).await;
        answers.push((said.code, said.text));
        house.delete(&format!("{uri}/guest-rke2")).await.ok();
    }
    assert_eq!(before.code, 403, "{}", before.text);
    assert_eq!(answers[0], answers[1], "what it binds is nothing for who may not read it");
    assert_eq!(answers[0].0, 409);
    assert_eq!(made(&house).await, [""; 0]);
}
