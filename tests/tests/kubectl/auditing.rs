//! Everything secret that kubectl can send or be sent goes through a node that logs as much as it can, and none of it is in
//! the log.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sheaf_tests::{
    audit_log::{AuditLog, Secrets},
    http::Credentials,
    kubectl::Kubectl,
    node::Node,
};

/// A machine that is not started, with everything that a seed can be made of.
fn machine(name: &str, secrets: &mut Secrets) -> Value {
    let text = |secret: String| format!("#cloud-config\npassword: {secret}\n");
    let seeds = json!([
        {"name": "a", "cloudInitNoCloud": {
            "userData": text(secrets.draw()), "networkData": format!("version: 2\nnote: {}\n", secrets.draw())}},
        {"name": "b", "cloudInitConfigDrive": {
            "userDataBase64": STANDARD.encode(text(secrets.draw())),
            "networkDataBase64": STANDARD.encode(text(secrets.draw()))}},
    ]);
    let devices = json!({"disks": [
        {"name": "a", "disk": {"bus": "virtio"}}, {"name": "b", "disk": {"bus": "virtio"}},
    ]});
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name},
        "spec": {"runStrategy": "Halted", "template": {"spec": {
            "domain": {"devices": devices, "resources": {"requests": {"memory": "64Mi"}}}, "volumes": seeds,
        }}},
    })
}

fn secret(name: &str, secrets: &mut Secrets) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": {"note": secrets.draw()}},
        "stringData": {"plain": secrets.draw()}, "data": {"encoded": STANDARD.encode(secrets.draw())},
    })
}

fn created_and_applied(kubectl: &Kubectl, secrets: &mut Secrets) {
    let from_literal = format!("--from-literal=a={}", secrets.draw());
    let from_file = format!("--from-file=b={}", kubectl.file("secret", &secrets.draw()));
    kubectl.says(&["create", "secret", "generic", "made", &from_literal, &from_file]);
    let password = format!("--docker-password={}", secrets.draw());
    let registry = ["--docker-server=example.com", "--docker-username=jo", &password];
    kubectl.says(&[&["create", "secret", "docker-registry", "registry"][..], &registry].concat());
    // Once more with other contents: a patch, and what was applied before is in an annotation.
    for _ in 0..2 {
        kubectl.apply(&secret("applied", secrets).to_string());
        kubectl.apply(&machine("applied", secrets).to_string());
    }
    let server_side = ["apply", "--server-side", "-f", "-"];
    for _ in 0..2 {
        kubectl.run_with_input(&server_side, &secret("server-side", secrets).to_string()).succeeded();
        kubectl.run_with_input(&server_side, &machine("server-side", secrets).to_string()).succeeded();
    }
    let key = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", secrets.draw());
    kubectl.says(&["create", "configmap", "key", &format!("--from-literal=tls.key={key}")]);
}

fn changed(kubectl: &Kubectl, secrets: &mut Secrets) {
    for kind in ["strategic", "merge"] {
        let patch =
            json!({"stringData": {"b": secrets.draw()}, "data": {"c": STANDARD.encode(secrets.draw())}});
        kubectl.says(&["patch", "secret", "made", "--type", kind, "-p", &patch.to_string()]);
        let patch = json!({"metadata": {"annotations": {"mine": secrets.draw()}}});
        kubectl.says(&["patch", "vm", "applied", "--type", "merge", "-p", &patch.to_string()]);
    }
    let steps = json!([{"op": "add", "path": "/data/d", "value": STANDARD.encode(secrets.draw())}]);
    kubectl.says(&["patch", "secret", "made", "--type", "json", "-p", &steps.to_string()]);
    let seed = "/spec/template/spec/volumes/0/cloudInitNoCloud/userData";
    let steps = json!([{"op": "replace", "path": seed, "value": format!("password: {}", secrets.draw())}]);
    kubectl.says(&["patch", "vm", "applied", "--type", "json", "-p", &steps.to_string()]);
    let (old, new) = (kubectl.json(&["get", "secret", "made"])["data"]["d"].clone(), secrets.draw());
    let editor = format!("sed -i s/{}/{}/", old.as_str().unwrap(), STANDARD.encode(&new));
    kubectl.editing_with(&editor).says(&["edit", "secret", "made"]);
    assert_eq!(kubectl.json(&["get", "secret", "made"])["data"]["d"], STANDARD.encode(new));
    let replacement = secret("made", secrets).to_string();
    kubectl.run_with_input(&["replace", "-f", "-"], &replacement).succeeded();
    kubectl.says(&["annotate", "secret", "made", &format!("another={}", secrets.draw())]);
}

/// What is refused is quoted in the answer.
fn refused(kubectl: &Kubectl, secrets: &mut Secrets) {
    let mut unknown = secret("refused", secrets);
    unknown["odd"] = secrets.draw().into();
    let mut broken = secret("refused", secrets);
    broken["data"]["encoded"] = format!("{}!", secrets.draw()).into();
    for object in [unknown, broken] {
        assert_ne!(kubectl.run_with_input(&["create", "-f", "-"], &object.to_string()).code, 0);
    }
    // What is sent to where it does not belong is what it says it is, and what belongs nowhere is nothing.
    let misplaced = kubectl.file("misplaced", &secret("refused", secrets).to_string());
    for uri in ["/api/v1/namespaces/default/configmaps", "/apis/example.com/v1/namespaces/default/vaults"] {
        assert_ne!(kubectl.run(&["create", "--raw", uri, "-f", &misplaced]).code, 0, "{uri}");
    }
}

fn signed_in(kubectl: &Kubectl, secrets: &mut Secrets, node: &Node) {
    kubectl.says(&["create", "serviceaccount", "robot"]);
    let token = kubectl.says(&["create", "token", "robot"]);
    // All of it, and the part without which the rest is worth nothing.
    secrets.add(token.trim());
    secrets.add(token.trim().rsplit('.').next().unwrap());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token.trim()}});
    let reviewed =
        kubectl.run_with_input(&["create", "-f", "-", "-o", "json"], &review.to_string()).succeeded();
    assert!(reviewed.stdout.contains("\"authenticated\": true"), "{}", reviewed.stdout);
    let mut kubeconfig = kubectl.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    let robot = kubectl.with_kubeconfig("robot.kubeconfig", &kubeconfig);
    robot.complains(&["get", "secrets"]);

    let password = std::fs::read_to_string(node.data_dir().join("admin-password")).unwrap();
    let (password, chosen) = (password.trim().to_owned(), secrets.draw());
    secrets.add(&password);
    let login = |password: &str| json!({"username": "admin", "password": password}).to_string();
    let post = |uri: &str, body: &str| {
        let file = kubectl.file("posted", body);
        kubectl.run(&["create", "--raw", uri, "-f", &file])
    };
    let uri = "/v3-public/localProviders/local?action=login";
    assert_ne!(post(uri, &login(&secrets.draw())).code, 0);
    let session: Value = serde_json::from_str(&post(uri, &login(&password)).succeeded().stdout).unwrap();
    let bearer = session["token"].as_str().unwrap();
    secrets.add(bearer.split_once(':').unwrap().1);
    let change = json!({"currentPassword": password, "newPassword": chosen});
    let admin = Credentials::anonymous(node).with_token(bearer);
    let changed = admin.connect(node).post("/v3/users?action=changepassword", &change);
    assert_eq!(changed.code, 200, "{}", changed.text());
    kubeconfig["users"][0]["user"] = json!({"token": bearer});
    kubectl.with_kubeconfig("login.kubeconfig", &kubeconfig).says(&["get", "secrets", "-o", "yaml"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn no_secret_that_kubectl_sent_or_was_sent_is_in_the_audit_log() {
    let node = Node::start_with(&["--audit-level", "RequestResponse"]);
    let kubectl = Kubectl::admin(&node, "auditing").with(&["--namespace", "default"]);
    let mut secrets = Secrets::default();
    created_and_applied(&kubectl, &mut secrets);
    changed(&kubectl, &mut secrets);
    refused(&kubectl, &mut secrets);
    signed_in(&kubectl, &mut secrets, &node);
    kubectl.says(&["get", "secrets,vm,cm", "-o", "json"]);
    kubectl.says(&["describe", "secret", "made"]);
    kubectl.says(&["delete", "secret", "made", "registry"]);

    let log = AuditLog::of(&node);
    assert!(secrets.len() > 50, "{}", secrets.len());
    log.assert_without(&secrets);
    // They could have been in it: what was done is, with bodies.
    for (verb, resource, least) in [
        ("create", "secrets", 3),
        ("patch", "secrets", 7),
        ("update", "secrets", 1),
        ("get", "secrets", 5),
        ("list", "secrets", 2),
        ("delete", "secrets", 2),
        ("create", "virtualmachines", 1),
        ("patch", "virtualmachines", 5),
        ("create", "serviceaccounts/token", 1),
        ("create", "tokenreviews", 1),
    ] {
        let found = log.count("kubectl", verb, resource);
        assert!(found >= least, "{found} of {verb} {resource}");
    }
    for field in ["requestObject", "responseObject"] {
        for resource in ["secrets", "virtualmachines", "tokenreviews", "serviceaccounts/token"] {
            assert!(log.shown(field, resource) > 0, "{resource} in {field}");
        }
    }
    let signed_in = |event: &&Value| event["annotations"]["sheaf.io/signed-in-user"].is_string();
    assert_eq!(log.events.iter().filter(signed_in).count(), 1);
    let chose = |event: &&Value| event["requestURI"] == "/v3/users?action=changepassword";
    assert_eq!(log.events.iter().filter(chose).count(), 1);
}
