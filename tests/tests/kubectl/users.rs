//! People, groups and roles as an operator gives them, and what the scripts of guest clusters do: typed at a terminal.

use std::process::Command;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sheaf_tests::{http::Credentials, kubectl::Kubectl, node, patience::until};

use crate::{kubectl_in, node};

const LOGIN: &str = "/v3-public/localProviders/local?action=login";
const KUBECONFIG: &str = "/v3/clusters/local?action=generateKubeconfig";

/// Runs `sheaf user ...` as the shared node's administrator; answers its code and what it says.
fn sheaf(args: &[&str]) -> (i32, String) {
    let output = Command::new(node::binary())
        .arg("user")
        .args(args)
        .arg("--kubeconfig")
        .arg(node().admin_kubeconfig())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(said).unwrap())
}

#[track_caller]
fn done(args: &[&str]) -> String {
    let (code, said) = sheaf(args);
    assert_eq!(code, 0, "{args:?}: {said}");
    said
}

/// Signs in for the first time, with a password of their own from then on; answers kubectl with the kubeconfig that the
/// server makes.
fn sign_in(kubectl: &Kubectl, name: &str, first: &str) -> Kubectl {
    let anonymous = Credentials::anonymous(node());
    let answer = anonymous.connect(node()).post(LOGIN, &json!({"username": name, "password": first}));
    assert_eq!((answer.code, &answer.json()["mustChangePassword"]), (201, &json!(true)), "{}", answer.text());
    let session = anonymous.with_token(answer.json()["token"].as_str().unwrap());
    let refused = session.connect(node()).post(KUBECONFIG, &json!({}));
    assert_eq!(refused.code, 403, "{}", refused.text());
    let change = json!({"currentPassword": first, "newPassword": format!("{name} chose this one")});
    assert_eq!(session.connect(node()).post("/v3/users?action=changepassword", &change).code, 200);
    let config = session.connect(node()).post(KUBECONFIG, &json!({})).object();
    let config: Value = serde_yaml_ng::from_str(config["config"].as_str().unwrap()).unwrap();
    kubectl.with_kubeconfig(&format!("{name}.kubeconfig"), &config)
}

fn drawn(said: &str) -> String {
    said.trim_end().rsplit(' ').next().unwrap().to_owned()
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn anna_runs_machines_in_one_namespace_and_nothing_else() {
    let admin = kubectl_in("users-web");
    let said = done(&["create", "anna", "--display-name", "Anna A."]);
    assert!(said.contains("user anna is made"), "{said}");
    done(&["grant", "anna", "edit", "--namespace", "users-web"]);
    done(&["grant", "anna", "edit", "--namespace", "users-web"]);
    // A slip gives nobody anything; who is known elsewhere is said to be.
    let (code, slip) = sheaf(&["grant", "ana", "edit", "--namespace", "users-web"]);
    assert!(code != 0 && slip.contains("no user \"ana\": did you mean anna?"), "{slip}");
    done(&["grant", "robot", "view", "--namespace", "users-web", "--elsewhere"]);
    done(&["revoke", "robot", "view", "--namespace", "users-web"]);
    assert!(done(&["list"]).contains("anna   "));
    let anna = sign_in(&admin, "anna", &drawn(&said)).with(&["--namespace", "users-web"]);
    assert_eq!(anna.json(&["auth", "whoami"])["status"]["userInfo"]["username"], "anna");
    let can = |what: &[&str]| anna.run(&[&["auth", "can-i"], what].concat()).stdout.trim().to_owned();
    for may in [
        &["create", "virtualmachines.kubevirt.io"][..],
        &["create", "persistentvolumeclaims"],
        &["create", "virtualmachineimages.harvesterhci.io"],
    ] {
        assert_eq!(can(may), "yes", "{may:?}");
    }
    // kubectl knows no group that has subresources alone; the server does.
    for (verb, resource, subresource, namespace, allowed) in [
        ("update", "virtualmachines", "start", "users-web", "true"),
        ("get", "virtualmachineinstances", "console", "users-web", "true"),
        ("get", "virtualmachineinstances", "console", "default", "false"),
    ] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
                "group": "subresources.kubevirt.io", "verb": verb, "resource": resource, "subresource": subresource,
                "namespace": namespace,
            }},
        });
        let asked = ["create", "--validate=false", "-f", "-", "-o", "jsonpath={.status.allowed}"];
        let ended = anna.run_with_input(&asked, &review.to_string());
        assert_eq!(ended.stdout, allowed, "{ended:?}");
    }
    for not in [
        &["create", "virtualmachines.kubevirt.io", "--namespace=default"][..],
        &["list", "secrets", "--namespace=kube-system"],
        &["list", "nodes"],
        &["create", "rolebindings"],
        &["list", "users.management.cattle.io"],
        &["create", "tokens.management.cattle.io"],
        &["impersonate", "users"],
    ] {
        assert!(can(not).starts_with("no"), "{not:?}");
    }
    anna.says(&["create", "configmap", "book", "--from-literal=title=Sheaves"]);
    assert!(
        anna.complains(&["get", "users.management.cattle.io"]).contains("cannot list resource \"users\"")
    );

    // A group gives its members what is bound to it, from the moment they are in it.
    let said = done(&["create", "bert"]);
    let bert = sign_in(&admin, "bert", &drawn(&said)).with(&["--namespace", "users-web"]);
    admin.says(&["create", "rolebinding", "team-views", "--clusterrole=view", "--group=web-team"]);
    assert!(bert.complains(&["get", "configmaps"]).contains("forbidden"));
    admin.says(&[
        "patch",
        "users.management.cattle.io",
        "bert",
        "--type=merge",
        "-p",
        r#"{"groups": ["web-team"]}"#,
    ]);
    assert_eq!(bert.says(&["get", "configmap", "book", "-o", "name"]), "configmap/book\n");
    assert!(bert.complains(&["delete", "configmap", "book"]).contains("forbidden"));

    // What was given is taken, and who goes takes along what was bound.
    done(&["revoke", "anna", "edit", "--namespace", "users-web"]);
    assert!(anna.complains(&["get", "configmaps"]).contains("forbidden"));
    done(&["grant", "anna", "edit", "--namespace", "users-web"]);
    done(&["delete", "anna", "--yes"]);
    assert!(anna.complains(&["get", "configmaps"]).contains("You must be logged in"));
    until("the user is gone", || {
        (admin.run(&["get", "users.management.cattle.io", "anna"]).code != 0).then_some(())
    });
    assert_eq!(
        admin.says(&["get", "rolebindings", "-o", "name"]),
        "rolebinding.rbac.authorization.k8s.io/team-views\n"
    );
    let said = done(&["create", "anna"]);
    let next = sign_in(&admin, "anna", &drawn(&said)).with(&["--namespace", "users-web"]);
    assert!(next.complains(&["get", "configmaps"]).contains("forbidden"));
    let (code, said) = sheaf(&["create", "anna"]);
    assert!(code != 0 && said.contains("Username is already in use."), "{said}");
    // A password that an operator sets ends what was there.
    let said = done(&["passwd", "anna"]);
    assert!(next.complains(&["get", "configmaps"]).contains("You must be logged in"));
    sign_in(&admin, "anna", &drawn(&said));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_browser_keeps_a_session_over_the_network() {
    let password = "a password from a file";
    let path = node().scratch().join("password");
    std::fs::write(&path, password).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    done(&["create", "carla", "--password-file", path.to_str().unwrap()]);
    let anonymous = Credentials::anonymous(node());
    let wish = json!({"username": "carla", "password": password, "responseType": "cookie"});
    let answer = anonymous.connect(node()).post(LOGIN, &wish);
    assert_eq!(answer.code, 200, "{}", answer.text());
    let cookie = |name: &str| {
        let all = answer.headers.iter().filter(|(header, _)| header == "set-cookie");
        let mut found = all.filter_map(|(_, value)| value.strip_prefix(&format!("{name}=")));
        found.next().unwrap().split(';').next().unwrap().to_owned()
    };
    let (session, word) = (format!("R_SESS={}", cookie("R_SESS")), cookie("CSRF"));
    let ask = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let all = [&[("Cookie", session.as_str()), ("Content-Type", "application/json")], headers].concat();
        anonymous.connect(node()).ask(method, path, &all, b"{}").code
    };
    assert_eq!(ask("GET", "/v3/users?me=true", &[]), 200);
    // What these tests call their host.
    assert_eq!(ask("GET", "/v3/users?me=true", &[("Origin", "https://sheaf")]), 200);
    assert_eq!(ask("GET", "/v3/users?me=true", &[("Origin", "https://evil.example")]), 422);
    assert_eq!(ask("POST", "/v3/tokens", &[]), 422);
    assert_eq!(ask("POST", "/v3/tokens", &[("X-API-CSRF", &word)]), 201);
    assert_eq!(ask("POST", "/v3/tokens?action=logout", &[("X-API-CSRF", &word)]), 200);
    assert_eq!(ask("GET", "/v3/users?me=true", &[]), 401);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn the_scripts_that_make_kubeconfigs_for_guest_clusters_find_what_they_look_for() {
    let kubectl = kubectl_in("users-guest");
    let made = |args: &[&str]| {
        let manifest = kubectl.says(&[args, &["--dry-run=client", "-o", "yaml"]].concat());
        kubectl.apply(&manifest)
    };
    for _ in 0..2 {
        made(&["create", "serviceaccount", "rke2"]);
        made(&[
            "create",
            "rolebinding",
            "users-guest-rke2",
            "--clusterrole=harvesterhci.io:cloudprovider",
            "--serviceaccount=users-guest:rke2",
        ]);
        made(&[
            "create",
            "clusterrolebinding",
            "users-guest-rke2",
            "--clusterrole=harvesterhci.io:csi-driver",
            "--serviceaccount=users-guest:rke2",
        ]);
    }
    // Scripts compare these as numbers.
    let version = kubectl.json(&["version", "-o", "json"])["serverVersion"].clone();
    for part in ["major", "minor"] {
        version[part].as_str().unwrap().parse::<u32>().unwrap();
    }
    let uid = kubectl.says(&["get", "sa", "rke2", "-o", "jsonpath={.metadata.uid}"]);
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {{name: rke2-token, \
         annotations: {{kubernetes.io/service-account.name: rke2, kubernetes.io/service-account.uid: {uid}}}, \
         ownerReferences: [{{apiVersion: v1, kind: ServiceAccount, name: rke2, uid: {uid}}}]}}}}"
    ));
    let field = |key: &str| {
        until("the token comes", || {
            let said =
                kubectl.says(&["get", "secret", "rke2-token", "-o", &format!("jsonpath={{.data.{key}}}")]);
            (!said.is_empty()).then_some(said)
        })
    };
    let (authority, token) = (field("ca\\.crt"), field("token"));
    let address =
        kubectl.says(&["get", "cm", "vip", "--namespace=harvester-system", "-o", "jsonpath={.data.ip}"]);
    assert_eq!(address, node().address().rsplit_once(':').unwrap().0);

    // What the endpoint answers is the same kubeconfig, and it does what the two clients need.
    let admin = node().admin();
    let wish = json!({"namespace": "users-guest", "serviceAccountName": "rke2", "clusterRoleName": "harvesterhci.io:cloudprovider"});
    let answer = admin.connect(node()).post("/v1/harvester/kubeconfig", &wish);
    assert_eq!(answer.code, 200, "{}", answer.text());
    let config: Value = serde_yaml_ng::from_str(answer.json().as_str().unwrap()).unwrap();
    let decoded = String::from_utf8(STANDARD.decode(&token).unwrap()).unwrap();
    assert_eq!(config["users"][0]["user"]["token"], decoded);
    assert_eq!(config["clusters"][0]["cluster"]["certificate-authority-data"], authority);
    let guest = kubectl.with_kubeconfig("guest.kubeconfig", &config);
    assert_eq!(
        guest.says(&["get", "settings.harvesterhci.io", "server-version", "-o", "jsonpath={.value}"]),
        "v1.8.1"
    );
    assert_eq!(guest.run(&["get", "virtualmachineinstances"]).code, 0);
    assert_eq!(guest.run(&["get", "persistentvolumeclaims"]).code, 0);
    assert_eq!(guest.run(&["get", "storageclasses"]).code, 0);
    assert!(guest.complains(&["get", "secrets"]).contains("forbidden"));
    assert!(guest.complains(&["get", "virtualmachines", "--namespace=default"]).contains("forbidden"));

    // Made from nothing, the server waits for the token itself.
    let wish = json!({"namespace": "users-guest", "serviceAccountName": "k3s"});
    let answer = admin.connect(node()).post("/v1/harvester/kubeconfig", &wish);
    assert_eq!(answer.code, 200, "{}", answer.text());
    let config: Value = serde_yaml_ng::from_str(answer.json().as_str().unwrap()).unwrap();
    let guest = kubectl.with_kubeconfig("k3s.kubeconfig", &config);
    let who = guest.json(&["auth", "whoami"]);
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:users-guest:k3s");
}
