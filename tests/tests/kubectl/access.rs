//! Who may do what: asked beforehand, tried as somebody else, and with a service account's token.

use serde_json::{Value, json};
use sheaf_tests::{kubectl::Kubectl, patience::until};

use crate::{kubectl_in, node};

/// A role that reads config maps, bound to user `ann`, to group `readers` and to a service account.
fn with_readers(namespace: &str) -> Kubectl {
    let kubectl = kubectl_in(namespace);
    kubectl.says(&["create", "serviceaccount", "robot"]);
    kubectl.says(&["create", "role", "reader", "--verb=get,list,watch", "--resource=configmaps"]);
    let account = format!("--serviceaccount={namespace}:robot");
    kubectl.says(&[
        "create",
        "rolebinding",
        "readers",
        "--role=reader",
        "--user=ann",
        "--group=readers",
        &account,
    ]);
    kubectl.says(&["create", "configmap", "book", "--from-literal=title=Sheaves"]);
    kubectl
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_somebody_may_do_can_be_asked_beforehand() {
    let kubectl = with_readers("access-asked");
    let can = |who: &[&str], what: &[&str]| {
        let ended = kubectl.with(who).run(&[&["auth", "can-i"], what].concat());
        // "no" comes with a reason in some cases; the first word is the answer.
        let answer = ended.stdout.split_whitespace().next().unwrap_or_default().to_owned();
        assert_eq!(ended.code, if answer == "yes" { 0 } else { 1 }, "{ended:?}");
        answer
    };
    assert_eq!(can(&[], &["delete", "nodes"]), "yes");
    assert_eq!(can(&[], &["*", "*", "--all-namespaces"]), "yes");
    assert_eq!(can(&["--as=ann"], &["get", "configmaps"]), "yes");
    assert_eq!(can(&["--as=ann"], &["get", "configmaps/book"]), "yes");
    assert_eq!(can(&["--as=ann"], &["delete", "configmaps"]), "no");
    assert_eq!(can(&["--as=ann"], &["get", "configmaps", "--namespace=default"]), "no");
    assert_eq!(can(&["--as=ann"], &["get", "secrets"]), "no");
    assert_eq!(can(&["--as=bob"], &["get", "configmaps"]), "no");
    assert_eq!(can(&["--as=bob", "--as-group=readers"], &["list", "configmaps"]), "yes");
    assert_eq!(can(&["--as=system:serviceaccount:access-asked:robot"], &["watch", "configmaps"]), "yes");
    assert_eq!(can(&["--as=ann"], &["get", "/version"]), "yes");
    assert_eq!(can(&["--as=ann"], &["get", "/metrics"]), "no");

    let list = kubectl.says(&["--as=ann", "auth", "can-i", "--list"]);
    let row = list.lines().find(|line| line.starts_with("configmaps ")).expect(&list);
    assert!(row.ends_with("[get list watch]"), "{row}");
    assert!(
        list.lines().any(|line| line.starts_with("selfsubjectaccessreviews.authorization.k8s.io")),
        "{list}"
    );
    assert!(!list.contains("secrets"), "{list}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_somebody_may_not_do_is_refused_in_full_sentences() {
    let kubectl = with_readers("access-refused");
    let ann = kubectl.with(&["--as=ann"]);
    assert_eq!(ann.says(&["get", "cm", "book", "-o", "jsonpath={.data.title}"]), "Sheaves");
    let why = ann.complains(&["delete", "cm", "book"]);
    assert_eq!(
        why,
        "Error from server (Forbidden): configmaps \"book\" is forbidden: User \"ann\" cannot delete resource \
         \"configmaps\" in API group \"\" in the namespace \"access-refused\"\n"
    );
    let why = ann.complains(&["get", "namespaces"]);
    assert_eq!(
        why,
        "Error from server (Forbidden): namespaces is forbidden: User \"ann\" cannot list resource \
         \"namespaces\" in API group \"\" at the cluster scope\n"
    );
    assert_eq!(kubectl.says(&["get", "cm", "book", "-o", "name"]), "configmap/book\n");

    // Nobody hands out more than they hold.
    kubectl.says(&[
        "create",
        "role",
        "gardener",
        "--verb=get,create,update",
        "--resource=roles,rolebindings",
    ]);
    kubectl.says(&["create", "rolebinding", "gardeners", "--role=gardener", "--user=ann"]);
    let why = ann.complains(&["create", "role", "thief", "--verb=get", "--resource=secrets"]);
    assert!(
        why.contains("is attempting to grant RBAC permissions not currently held:")
            && why.contains("{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"),
        "{why}"
    );
    ann.says(&["create", "role", "librarian", "--verb=get", "--resource=configmaps"]);
    // Nor does anybody become somebody else unasked.
    let mut kubeconfig = kubectl.kubeconfig();
    let token = kubectl.says(&["create", "token", "robot"]);
    kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    let robot = kubectl.with_kubeconfig("robot.kubeconfig", &kubeconfig);
    let why = robot.complains(&["get", "cm", "--as=ann"]);
    assert!(
        why.contains(
            "users \"ann\" is forbidden: User \"system:serviceaccount:access-refused:robot\" cannot impersonate resource \"users\""
        ),
        "{why}"
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_token_made_for_a_service_account_is_that_account() {
    let kubectl = with_readers("access-token");
    let token = kubectl.says(&["create", "token", "robot", "--duration=20m"]);
    let token = token.trim();
    assert_eq!(token.split('.').count(), 3, "{token}");

    let mut kubeconfig = kubectl.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": token});
    let robot = kubectl.with_kubeconfig("robot.kubeconfig", &kubeconfig);
    let who = robot.json(&["auth", "whoami"]);
    assert_eq!(who["status"]["userInfo"]["username"], "system:serviceaccount:access-token:robot");
    let groups = who["status"]["userInfo"]["groups"].as_array().unwrap();
    for group in ["system:serviceaccounts", "system:serviceaccounts:access-token", "system:authenticated"] {
        assert!(groups.contains(&group.into()), "{groups:?}");
    }
    assert_eq!(robot.says(&["get", "cm", "book", "-o", "jsonpath={.data.title}"]), "Sheaves");
    let why = robot.complains(&["get", "secrets"]);
    assert!(
        why.contains("User \"system:serviceaccount:access-token:robot\" cannot list resource \"secrets\""),
        "{why}"
    );

    kubeconfig["users"][0]["user"] = json!({"token": format!("{}x", &token[..token.len() - 1])});
    let forger = kubectl.with_kubeconfig("forger.kubeconfig", &kubeconfig);
    let why = forger.complains(&["get", "cm"]);
    assert!(why.contains("You must be logged in to the server"), "{why}");

    // The token dies with the account, even if another of that name takes its place.
    kubectl.says(&["delete", "sa", "robot"]);
    kubectl.says(&["create", "sa", "robot"]);
    until("the token of the old account is refused", || {
        robot.run(&["get", "cm"]).stderr.contains("You must be logged in").then_some(())
    });
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn every_namespace_gets_a_default_account_and_the_authority_to_trust() {
    let kubectl = kubectl_in("access-defaults");
    until("the default account comes", || (kubectl.run(&["get", "sa", "default"]).code == 0).then_some(()));
    until("the authority comes", || {
        (kubectl.run(&["get", "cm", "kube-root-ca.crt"]).code == 0).then_some(())
    });
    let authority = kubectl.json(&["get", "cm", "kube-root-ca.crt"])["data"]["ca.crt"].clone();
    assert!(authority.as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"), "{authority}");

    kubectl.apply(
        "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, \
         metadata: {name: long, annotations: {kubernetes.io/service-account.name: default}}}",
    );
    let secret = until("the token is filled in", || {
        let secret = kubectl.json(&["get", "secret", "long"]);
        secret["data"]["token"].is_string().then_some(secret)
    });
    assert!(
        secret["data"]["ca.crt"].is_string() && secret["data"]["namespace"] == "YWNjZXNzLWRlZmF1bHRz",
        "{secret}"
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_local_user_signs_in_and_is_who_they_are() {
    let anonymous = sheaf_tests::http::Credentials::anonymous(node());
    let password =
        std::fs::read_to_string(node().admin_kubeconfig().with_file_name("admin-password")).unwrap();
    let login = "/v3-public/localProviders/local?action=login";
    let answer =
        anonymous.connect(node()).post(login, &json!({"username": "admin", "password": password.trim()}));
    assert_eq!(answer.code, 201, "{}", answer.text());
    let token = answer.json()["token"].as_str().unwrap().to_owned();

    let kubectl = kubectl_in("access-login");
    let mut kubeconfig = kubectl.kubeconfig();
    kubeconfig["users"][0]["user"] = json!({"token": token});
    let admin = kubectl.with_kubeconfig("login.kubeconfig", &kubeconfig);
    assert_eq!(admin.json(&["auth", "whoami"])["status"]["userInfo"]["username"], "admin");
    // The password was made by a machine and lies in a file: first of all it is changed.
    let complaint = admin.complains(&["get", "nodes"]);
    assert!(complaint.contains("password"), "{complaint}");
    let chosen = "a password of my own choosing";
    let change = json!({"currentPassword": password.trim(), "newPassword": chosen});
    let session = anonymous.clone().with_token(&token);
    let changed = session.connect(node()).post("/v3/users?action=changepassword", &change);
    assert_eq!(changed.code, 200, "{}", changed.text());
    assert_eq!(admin.says(&["auth", "can-i", "delete", "nodes"]).trim(), "yes");
    let nodes = admin.json(&["get", "nodes"]);
    assert_eq!(nodes["kind"], "List");
    let old =
        anonymous.connect(node()).post(login, &json!({"username": "admin", "password": password.trim()}));
    assert_eq!(old.code, 401);
    let new = anonymous.connect(node()).post(login, &json!({"username": "admin", "password": chosen}));
    assert_eq!((new.code, new.json()["mustChangePassword"].clone()), (201, json!(false)));

    let refused = anonymous.connect(node()).post(login, &json!({"username": "admin", "password": "wrong"}));
    assert_eq!((refused.code, refused.json()["token"].clone()), (401, Value::Null));
}
