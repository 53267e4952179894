//! Every kind of secret goes through the API in every form it can, at the level that logs most; none is in the log.

use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::{Value, json};
use sheaf_apiserver::{
    audit::{Level, Limits},
    identity::{MASTERS, users::NewUser},
};

use crate::{
    audit_log::{Answered, Audited, known, stranger},
    house::MAPS,
    machine::{IMAGES, INSTANCES, MACHINES, SETTINGS, image, instance, machine},
};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const USERS: &str = "/apis/management.cattle.io/v3/users";
const TOKENS: &str = "/apis/management.cattle.io/v3/tokens";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/robot";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Every form a patch can have.
const PATCHES: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A server, and every secret that it was told or has told.
struct Told {
    log: Audited,
    marks: Vec<String>,
    asked: usize,
}

impl Told {
    /// A secret that nobody had before.
    fn mark(&mut self) -> String {
        let mark = format!("Qx{:05}vK7zR2mN", self.marks.len() * 7919 + 1);
        self.marks.push(mark.clone());
        mark
    }

    async fn ask(
        &mut self,
        method: Method,
        uri: &str,
        media: &str,
        body: impl Into<bytes::Bytes>,
    ) -> Answered {
        self.asked += 1;
        let peer = known("root", &[MASTERS]);
        self.log.ask(&peer, method, uri, &[("content-type", media)], body).await
    }

    async fn post(&mut self, uri: &str, body: Value) -> Answered {
        self.ask(Method::POST, uri, "application/json", body.to_string()).await
    }

    /// Reads something in every form there is.
    async fn read(&mut self, collection: &str, name: &str) {
        let peer = known("root", &[MASTERS]);
        let accepts = [
            "application/json",
            "application/yaml",
            "application/json;as=Table;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        ];
        for accept in accepts {
            for uri in [
                format!("{collection}/{name}"),
                collection.into(),
                format!("{collection}?includeObject=Object"),
            ] {
                let answer = self.log.ask(&peer, Method::GET, &uri, &[("accept", accept)], "").await;
                assert!(answer.code < 410, "{uri} as {accept}: {}", answer.code);
                self.asked += 1;
            }
        }
    }

    fn everything(&self) -> String {
        self.log.files().concat()
    }
}

/// A mark as it can stand in a text in base64, wherever in it it began.
fn encoded(mark: &str) -> Vec<String> {
    let within = |skip: usize| {
        let padded = format!("{}{mark}", "x".repeat(skip));
        let whole = STANDARD.encode(&padded);
        // What also depends on the neighbours is left off on both sides.
        let (from, to) = ((skip * 8).div_ceil(6), padded.len() * 8 / 6);
        whole[from..to].to_owned()
    };
    (0..3).map(within).collect()
}

/// A message of protobuf, of fields that are bytes.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, bytes) in fields {
        out.push(number << 3 | 2);
        assert!(bytes.len() < 128);
        out.push(bytes.len() as u8);
        out.extend_from_slice(bytes);
    }
    out
}

fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [&b"k8s\0"[..], &message(&[(1, &meta), (2, raw)])].concat()
}

async fn told() -> Told {
    // Small files, so that the log is rotated many times, and none of them goes.
    let log = Audited::new(Level::RequestResponse, Limits { file_bytes: 8_000, files: 1_000 }).await;
    Told { log, marks: Vec::new(), asked: 0 }
}

async fn secrets(told: &mut Told) {
    let (data, plain, note) = (told.mark(), told.mark(), told.mark());
    let secret = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "annotations": {"note": note, LAST_APPLIED: format!("{{\"data\":\"{note}\"}}")}},
            "data": {"a": STANDARD.encode(&data)}, "stringData": {"b": plain},
        })
    };
    assert_eq!(told.post(SECRETS, secret("in-json")).await.code, 201);
    let text = serde_yaml_text(&secret("in-yaml"));
    assert_eq!(told.ask(Method::POST, SECRETS, "application/yaml", text).await.code, 201);
    let of_protobuf = told.mark();
    let entry = message(&[(1, b"k"), (2, of_protobuf.as_bytes())]);
    let raw = message(&[(1, &message(&[(1, b"in-protobuf")])), (2, &entry), (4, &entry)]);
    let body = envelope("v1", "Secret", &raw);
    assert_eq!(told.ask(Method::POST, SECRETS, PROTOBUF, body).await.code, 201);
    assert_eq!(
        told.ask(
            Method::PUT,
            &format!("{SECRETS}/in-json"),
            "application/json",
            secret("in-json").to_string()
        )
        .await
        .code,
        200
    );
    for media in PATCHES {
        let mark = told.mark();
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "in-json", "annotations": {"n": mark}},
            "stringData": {"b": mark},
        });
        let steps = json!([
            {"op": "add", "path": "/data/c", "value": STANDARD.encode(&mark)},
            {"op": "add", "path": "/stringData", "value": {"d": mark}},
        ]);
        let body = if media == PATCHES[0] { steps } else { object };
        let uri = format!("{SECRETS}/in-json?fieldManager=me&force=true");
        let uri = if media == PATCHES[3] { uri } else { uri.replace("&force=true", "") };
        let answer = told.ask(Method::PATCH, &uri, media, body.to_string()).await;
        assert_eq!(answer.code, 200, "{media}: {}", answer.json());
    }
    told.read(SECRETS, "in-json").await;
    // What is refused is quoted in the answer, and must not be in the log.
    let refused = told.mark();
    let broken = json!({"metadata": {"name": "x"}, "data": {"a": format!("{refused}!")}, "odd": refused});
    assert!(told.post(&format!("{SECRETS}?fieldValidation=Strict"), broken).await.code >= 400);
    let broken = format!("{{\"data\": {{\"a\": {refused}}}");
    assert_eq!(told.ask(Method::POST, SECRETS, "application/json", broken).await.code, 400);
    assert!(told.post(MAPS, secret("misplaced")).await.code >= 400);
    assert_eq!(told.ask(Method::POST, SECRETS, "text/plain", refused).await.code, 415);
    told.ask(Method::DELETE, &format!("{SECRETS}/in-yaml"), "application/json", "").await;
}

async fn people(told: &mut Told) {
    let (first, second, wrong, typed) = (told.mark(), told.mark(), told.mark(), told.mark());
    let jo = NewUser { id: "user-jo".into(), username: "jo".into(), ..NewUser::default() };
    told.log.house.server.users().create(&jo, &first).await.unwrap();
    told.post(
        USERS,
        json!({"metadata": {"name": "u"}, "username": "u", "password": typed, "description": typed}),
    )
    .await;
    told.read(USERS, "user-jo").await;
    told.read("/api/v1/namespaces/cattle-local-user-passwords/secrets", "user-jo").await;
    let login = "/v3-public/localProviders/local?action=login";
    let json_body = [("content-type", "application/json")];
    let sign_in = |password: &str| json!({"username": "jo", "password": password}).to_string();
    let refused = told.log.ask(&stranger(), Method::POST, login, &json_body, sign_in(&wrong)).await;
    assert_eq!(refused.code, 401);
    let signed_in = told.log.ask(&stranger(), Method::POST, login, &json_body, sign_in(&first)).await;
    assert_eq!(signed_in.code, 201);
    let bearer = signed_in.json()["token"].as_str().unwrap().to_owned();
    told.marks.push(bearer.split_once(':').unwrap().1.to_owned());
    let authorization = format!("Bearer {bearer}");
    let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
    let change = json!({"currentPassword": first, "newPassword": second}).to_string();
    let uri = "/v3/users?action=changepassword";
    assert_eq!(told.log.ask(&stranger(), Method::POST, uri, &headers, change).await.code, 200);
    // A token where it does not belong.
    for uri in [format!("{MAPS}?token={bearer}"), format!("{MAPS}?watch=0&access_token={bearer}")] {
        assert_eq!(told.log.ask(&stranger(), Method::GET, &uri, &headers, "").await.code, 403);
    }
    let hash = told.mark();
    let token = json!({"metadata": {"name": "t"}, "userId": "user-jo", "token": format!("sha256:{hash}"), "description": hash});
    told.post(TOKENS, token).await;
    told.read(TOKENS, "t").await;
}

async fn tokens(told: &mut Told) {
    let account = json!({"metadata": {"name": "robot"}});
    let accounts = ACCOUNT.trim_end_matches("/robot");
    assert_eq!(told.post(accounts, account).await.code, 201);
    let given = told.post(&format!("{ACCOUNT}/token"), json!({"spec": {"expirationSeconds": 3600}})).await;
    assert_eq!(given.code, 201);
    let token = given.json()["status"]["token"].as_str().unwrap().to_owned();
    // All of it, and the part without which the rest is worth nothing.
    told.marks.push(token.rsplit('.').next().unwrap().to_owned());
    let reviewed = told.post(REVIEWS, json!({"spec": {"token": token}})).await;
    assert_eq!(reviewed.json()["status"]["authenticated"], true);
    let guessed = told.mark();
    let body = envelope(
        "authentication.k8s.io/v1",
        "TokenReview",
        &message(&[(2, &message(&[(1, guessed.as_bytes())]))]),
    );
    assert_eq!(told.ask(Method::POST, REVIEWS, PROTOBUF, body).await.code, 201);
    let as_robot = format!("Bearer {token}");
    told.log.ask(&stranger(), Method::GET, MAPS, &[("authorization", &as_robot)], "").await;
    told.log.ask(&stranger(), Method::GET, MAPS, &[("authorization", &format!("Basic {guessed}"))], "").await;
}

async fn machines(told: &mut Told) {
    let mut made = 0;
    for form in ["cloudInitNoCloud", "cloudInitConfigDrive"] {
        for field in ["userData", "userDataBase64", "networkData", "networkDataBase64", "misspelt"] {
            let mark = told.mark();
            let text = format!("#cloud-config\npassword: {mark}\n");
            let text = if field.ends_with("Base64") { STANDARD.encode(&text) } else { text };
            let volumes = json!([{"name": "seed", form: {field: text}}]);
            let disks = json!([{"name": "seed", "disk": {"bus": "virtio"}}]);
            made += 1;
            let name = format!("m{made}");
            let mut vm = machine(&name);
            vm["apiVersion"] = "kubevirt.io/v1".into();
            vm["kind"] = "VirtualMachine".into();
            vm["metadata"]["annotations"] = json!({LAST_APPLIED: text, "mine": mark});
            let spec = &mut vm["spec"]["template"]["spec"];
            spec["volumes"] = volumes.clone();
            spec["domain"]["devices"]["disks"] = disks.clone();
            told.post(MACHINES, vm.clone()).await;
            told.ask(Method::PUT, &format!("{MACHINES}/{name}"), "application/yaml", serde_yaml_text(&vm))
                .await;
            for media in PATCHES {
                let seed = &volumes[0][form][field];
                let path = format!("/spec/template/spec/volumes/0/{form}/{field}");
                let steps = json!([
                    {"op": "add", "path": path, "value": seed},
                    {"op": "add", "path": "/spec/template/spec/volumes", "value": volumes},
                    {"op": "test", "path": "", "value": vm},
                ]);
                let body = if media == PATCHES[0] { steps } else { vm.clone() };
                told.ask(
                    Method::PATCH,
                    &format!("{MACHINES}/{name}?fieldManager=me"),
                    media,
                    body.to_string(),
                )
                .await;
            }
            let mut vmi = instance(&name);
            vmi["spec"]["volumes"] = volumes;
            vmi["spec"]["domain"]["devices"]["disks"] = disks;
            vmi["spec"]["odd"] = format!("#cloud-config {mark}").into();
            told.post(INSTANCES, vmi).await;
        }
    }
    told.read(MACHINES, "m1").await;
    told.read(INSTANCES, "m1").await;
}

async fn others(told: &mut Told) {
    let (key, inside, value) = (told.mark(), told.mark(), told.mark());
    let kubeconfig = format!("apiVersion: v1\nkind: Config\nusers:\n- user:\n    client-key-data: {key}\n");
    told.post(MAPS, json!({"metadata": {"name": "kube"}, "data": {"kubeconfig": "x", "admin": kubeconfig}}))
        .await;
    told.read(MAPS, "kube").await;
    let mut with_password = image("img", "img");
    with_password["spec"]["url"] = format!("https://jo:{inside}@example.com/a.img?signature={inside}").into();
    told.post(IMAGES, with_password).await;
    told.read(IMAGES, "img").await;
    let setting = json!({"value": value}).to_string();
    told.ask(Method::PATCH, &format!("{SETTINGS}/cluster-registration-url"), PATCHES[1], setting).await;
}

fn serde_yaml_text(value: &Value) -> String {
    // JSON that no reader takes for JSON is YAML.
    format!("# yaml\n{value:#}\n")
}

#[tokio::test(start_paused = true)]
async fn no_secret_that_went_through_the_api_is_in_the_log() {
    let mut told = told().await;
    secrets(&mut told).await;
    people(&mut told).await;
    tokens(&mut told).await;
    machines(&mut told).await;
    others(&mut told).await;
    let log = told.everything();
    assert!(told.log.files().len() > 10, "it was rotated");
    assert!(told.marks.len() > 25);
    for mark in &told.marks {
        for found in encoded(mark).iter().chain([mark]) {
            let line = log.lines().find(|line| line.contains(found.as_str()));
            assert!(line.is_none(), "{mark} is in the log, as {found}: {}", line.unwrap_or_default());
        }
    }
    // It could have been: all of it was logged, with bodies.
    assert!(log.lines().count() >= told.asked, "{} lines of {} requests", log.lines().count(), told.asked);
    let bodies = |field: &str, kind: &str| {
        log.lines()
            .filter(|line| line.contains(field) && line.contains(&format!("\"kind\":\"{kind}\"")))
            .count()
    };
    for kind in ["Secret", "VirtualMachine", "TokenRequest", "TokenReview", "User"] {
        assert!(bodies("responseObject", kind) > 0, "{kind}");
    }
    for kind in ["Secret", "VirtualMachine", "TokenReview"] {
        assert!(bodies("requestObject", kind) > 0, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_secret_is_in_the_log_whatever_form_it_came_in() {
    let mut told = told().await;
    let (json_note, yaml_note, protobuf_note) = ("jsonnote", "yamlnote", "protobufnote");
    told.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"n": json_note}})).await;
    told.ask(
        Method::POST,
        MAPS,
        "application/yaml",
        format!("metadata: {{name: b}}\ndata: {{n: {yaml_note}}}"),
    )
    .await;
    let entry = message(&[(1, b"n"), (2, protobuf_note.as_bytes())]);
    let raw = message(&[(1, &message(&[(1, b"c")])), (2, &entry)]);
    told.ask(Method::POST, MAPS, PROTOBUF, envelope("v1", "ConfigMap", &raw)).await;
    for (n, media) in PATCHES.into_iter().enumerate() {
        let steps = json!([{"op": "add", "path": "/data/n", "value": format!("patchnote{n}")}]);
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": format!("patchnote{n}")}});
        let body = if n == 0 { steps } else { object };
        let uri = format!("{MAPS}/a?fieldManager=me{}", if n == 3 { "&force=true" } else { "" });
        assert_eq!(told.ask(Method::PATCH, &uri, media, body.to_string()).await.code, 200, "{media}");
    }
    told.ask(Method::GET, &format!("{MAPS}/c"), "", "").await;
    let events = told.log.events();
    for (field, note) in [
        ("requestObject", json_note),
        ("responseObject", json_note),
        ("requestObject", yaml_note),
        ("requestObject", protobuf_note),
        ("responseObject", protobuf_note),
        ("requestObject", "patchnote0"),
        ("requestObject", "patchnote1"),
        ("requestObject", "patchnote2"),
        ("requestObject", "patchnote3"),
    ] {
        assert!(events.iter().any(|event| event[field].to_string().contains(note)), "{note} in {field}");
    }
}
