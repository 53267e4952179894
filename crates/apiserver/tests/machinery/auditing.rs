//! What the audit log says of requests.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use sheaf_apiserver::{
    audit::{Level, Limits},
    dispatch::Peer,
    identity::{MASTERS, users::NewUser},
};

use crate::{
    audit_log::{Audited, known, stranger},
    house::{House, MAPS},
};

const JSON: (&str, &str) = ("content-type", "application/json");

fn root() -> Peer {
    known("root", &[MASTERS])
}

#[tokio::test(start_paused = true)]
async fn a_request_has_one_line_that_says_who_what_when_and_from_where() {
    let log = Audited::at(Level::Metadata).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"note": "not at this level"}}).to_string();
    let headers = [JSON, ("user-agent", "kubectl/v1"), ("x-forwarded-for", "10.1.1.1, nonsense")];
    let made = log.ask(&root(), Method::POST, &format!("{MAPS}?fieldManager=me"), &headers, map).await;
    assert_eq!(made.code, 201);
    let events = log.events_of(&made.id);
    let event = &events[0];
    assert_eq!(events.len(), 1);
    assert_eq!(
        *event,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": made.id,
            "stage": "ResponseComplete", "requestURI": format!("{MAPS}?fieldManager=me"), "verb": "create",
            "user": {"username": "root", "groups": [MASTERS]},
            "sourceIPs": ["10.1.1.1", "192.0.2.7"], "userAgent": "kubectl/v1",
            "objectRef": {"resource": "configmaps", "namespace": "default", "name": "m", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestReceivedTimestamp": event["requestReceivedTimestamp"],
            "stageTimestamp": event["stageTimestamp"],
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    assert_eq!(event["stageTimestamp"].as_str().unwrap().len(), "2030-01-01T00:00:00.000000Z".len());
}

#[tokio::test(start_paused = true)]
async fn levels_add_what_was_sent_and_what_was_answered() {
    let map = json!({"metadata": {"name": "m"}, "data": {"note": "kept"}});
    for (level, sent, answered) in
        [(Level::Metadata, false, false), (Level::Request, true, false), (Level::RequestResponse, true, true)]
    {
        let log = Audited::at(level).await;
        let made = log.ask(&root(), Method::POST, MAPS, &[JSON], map.to_string()).await;
        let event = log.events_of(&made.id).remove(0);
        assert_eq!(event["level"], level.as_str());
        let note = |field: &str| event[field]["data"]["note"].as_str() == Some("kept");
        assert_eq!((note("requestObject"), note("responseObject")), (sent, answered));
        assert!(event["responseObject"]["metadata"].get("managedFields").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_to_a_resource_that_nobody_serves_has_a_line_without_it() {
    let log = Audited::at(Level::RequestResponse).await;
    let body = json!({"metadata": {"name": "m"}, "spec": {"note": "of no known kind"}}).to_string();
    for (method, uri) in [
        (Method::POST, "/apis/example.com/v1/namespaces/default/vaults"),
        (Method::PUT, "/apis/example.com/v1/namespaces/default/vaults/m"),
        (Method::POST, "/api/v2/namespaces/default/secrets"),
    ] {
        let refused = log.ask(&root(), method, uri, &[JSON], body.clone()).await;
        assert_eq!(refused.code, 404, "{uri}");
        let event = log.events_of(&refused.id).remove(0);
        assert_eq!((&event["requestURI"], &event["responseStatus"]["code"]), (&json!(uri), &json!(404)));
        assert!(event.get("requestObject").is_none(), "{event}");
    }
    assert!(!log.files().concat().contains("of no known kind"));
}

#[tokio::test(start_paused = true)]
async fn who_acts_as_another_is_named_with_the_other() {
    let log = Audited::at(Level::Metadata).await;
    let headers = [("impersonate-user", "jo"), ("impersonate-group", "team")];
    let refused = log.ask(&root(), Method::GET, MAPS, &headers, "").await;
    assert_eq!(refused.code, 403);
    let event = log.events_of(&refused.id).remove(0);
    assert_eq!(event["user"]["username"], "root");
    assert_eq!(event["impersonatedUser"]["username"], "jo");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(event["responseStatus"]["code"], 403);
    assert_eq!(event["responseStatus"]["reason"], "Forbidden");
}

#[tokio::test(start_paused = true)]
async fn who_is_turned_away_has_a_line_wherever_they_knocked() {
    let log = Audited::at(Level::Metadata).await;
    let bad = [("authorization", "Bearer nonsense")];
    for (headers, uri, code) in [(&bad[..], "/healthz", 401), (&[], "/metrics", 403), (&[], MAPS, 403)] {
        let refused = log.ask(&stranger(), Method::GET, uri, headers, "").await;
        assert_eq!(refused.code, code, "{uri}");
        let event = log.events_of(&refused.id).remove(0);
        assert_eq!(event["responseStatus"]["code"], code);
        assert_eq!(event["sourceIPs"], json!(["192.0.2.8"]));
    }
    let well = log.ask(&stranger(), Method::GET, "/healthz", &[], "").await;
    assert_eq!((well.code, log.events_of(&well.id).len()), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn a_watch_has_a_line_when_it_begins_and_one_when_it_ends() {
    let log = Audited::at(Level::RequestResponse).await;
    let request = Request::get(format!("{MAPS}?watch=1")).body(Full::new(Bytes::new())).unwrap();
    let response = log.house.server.handle(request, &root()).await;
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    let stages = |log: &Audited| -> Vec<String> {
        log.events_of(&id).iter().map(|event| event["stage"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stages(&log), ["ResponseStarted"]);
    log.house.config_map("m", json!({})).await;
    let mut body = response.into_body();
    assert!(body.frame().await.is_some());
    drop(body);
    assert_eq!(stages(&log), ["ResponseStarted", "ResponseComplete"]);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_before_the_answer_has_a_line() {
    let log = Audited::at(Level::Metadata).await;
    let request = Request::post(MAPS).header("audit-id", "left-early");
    let body = http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<Bytes>, std::io::Error>,
    >());
    let peer = root();
    {
        let mut asking = Box::pin(log.house.server.handle(request.body(body).unwrap(), &peer));
        assert!(futures::poll!(&mut asking).is_pending());
    }
    let event = log.events_of("left-early").remove(0);
    assert_eq!(event["stage"], "ResponseComplete");
    assert_eq!(event["user"]["username"], "root");
    assert_eq!(event["responseStatus"]["message"], "the client left before it was answered");
}

#[tokio::test(start_paused = true)]
async fn a_panic_has_a_line() {
    let log = Audited::at(Level::Metadata).await;
    // A body that panics when it is read.
    let body = http_body_util::StreamBody::new(futures::stream::poll_fn(
        |_| -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            panic!("on purpose")
        },
    ));
    let request = Request::post(MAPS).header("audit-id", "panics").body(body).unwrap();
    let server = log.house.server.clone();
    let handled = tokio::spawn(async move { server.handle(request, &root()).await.status() });
    assert!(handled.await.unwrap_err().is_panic());
    let event = log.events_of("panics").remove(0);
    assert_eq!(event["stage"], "Panic");
    assert_eq!(event["responseStatus"]["code"], 500);
}

#[tokio::test(start_paused = true)]
async fn a_sane_id_of_the_clients_is_kept_and_another_is_not() {
    let log = Audited::at(Level::Metadata).await;
    let mine = log.ask(&root(), Method::GET, MAPS, &[("audit-id", "my-trace-1")], "").await;
    assert_eq!((mine.id.as_str(), log.events_of("my-trace-1").len()), ("my-trace-1", 1));
    let odd = log.ask(&root(), Method::GET, MAPS, &[("audit-id", "two words")], "").await;
    assert_eq!(odd.id.len(), 36);
    // Also where nothing is logged.
    let house = House::new().await;
    let request = Request::get(MAPS).body(Full::new(Bytes::new())).unwrap();
    let answer = house.server.handle(request, &house.peer()).await;
    assert_eq!(answer.headers()["audit-id"].len(), 36);
}

#[tokio::test(start_paused = true)]
async fn what_the_cluster_does_all_day_is_not_in_it() {
    let log = Audited::at(Level::RequestResponse).await;
    let own = known("system:sheaf:controllers", &[MASTERS]);
    let node = known("system:node:n1", &["system:nodes", "system:authenticated"]);
    let read = log.ask(&own, Method::GET, MAPS, &[], "").await;
    let lease = json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}}).to_string();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let made = log.ask(&node, Method::POST, leases, &[JSON], lease.clone()).await;
    let merge = [("content-type", "application/merge-patch+json")];
    let renewed = log.ask(&node, Method::PATCH, &format!("{leases}/n1"), &merge, lease).await;
    assert_eq!((read.code, made.code, renewed.code), (200, 201, 200));
    assert_eq!(log.events_of(&read.id).len(), 0);
    assert_eq!(log.events_of(&made.id).len(), 1, "that there is a new one is worth a line");
    assert_eq!(log.events_of(&renewed.id).len(), 0);
    let map = json!({"metadata": {"name": "m"}}).to_string();
    let written = log.ask(&own, Method::POST, MAPS, &[JSON], map).await;
    assert_eq!(log.events_of(&written.id).len(), 1);
    // Nobody hides behind its name.
    let as_own = [("impersonate-user", "system:sheaf:controllers"), ("impersonate-group", MASTERS)];
    let hidden = log.ask(&root(), Method::GET, MAPS, &as_own, "").await;
    assert_eq!((hidden.code, log.events_of(&hidden.id).len()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_login_says_who_signed_in_and_nothing_of_what_was_typed() {
    let log = Audited::at(Level::RequestResponse).await;
    let jo = NewUser { id: "user-jo".into(), username: "jo".into(), ..NewUser::default() };
    log.house.server.users().create(&jo, "correct horse battery").await.unwrap();
    let login = "/v3-public/localProviders/local?action=login";
    let wish = |password: &str| json!({"username": "jo", "password": password}).to_string();
    let good = log.ask(&stranger(), Method::POST, login, &[JSON], wish("correct horse battery")).await;
    let bad = log.ask(&stranger(), Method::POST, login, &[JSON], wish("wrong horse battery")).await;
    assert_eq!((good.code, bad.code), (201, 401));
    let event = log.events_of(&good.id).remove(0);
    assert_eq!(event["annotations"]["sheaf.io/signed-in-user"], "user-jo");
    assert_eq!(event["verb"], "post");
    assert!(event.get("requestObject").is_none() && event.get("responseObject").is_none());
    assert_eq!(log.events_of(&bad.id)[0]["responseStatus"]["code"], 401);
    assert!(!log.files().concat().contains("horse"));
}

#[tokio::test(start_paused = true)]
async fn large_bodies_are_left_out_and_it_says_so() {
    let log = Audited::at(Level::RequestResponse).await;
    let map = json!({"metadata": {"name": "m"}, "data": {"note": "x".repeat(300_000)}}).to_string();
    let made = log.ask(&root(), Method::POST, MAPS, &[JSON], map).await;
    assert_eq!(made.code, 201);
    let event = log.events_of(&made.id).remove(0);
    assert_eq!(event["annotations"]["audit.k8s.io/truncated"], "true");
    assert_eq!((event.get("requestObject"), event.get("responseObject")), (None, None));
    let listed = log.ask(&root(), Method::GET, MAPS, &[], "").await;
    assert_eq!(log.events_of(&listed.id)[0]["annotations"]["audit.k8s.io/truncated"], "true");
}

#[tokio::test(start_paused = true)]
async fn metrics_count_lines_and_seats() {
    let log = Audited::new(Level::Metadata, Limits::default()).await;
    log.ask(&root(), Method::GET, MAPS, &[], "").await;
    let page = log.ask(&root(), Method::GET, "/metrics", &[], "").await;
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let number = |name: &str| -> Value {
        let line =
            page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert_eq!(number("apiserver_audit_event_total"), 1);
    assert_eq!(number("apiserver_audit_error_total{plugin=\"buffered\"}"), 0);
    let level = "{priority_level=\"global-default\",flow_schema=\"global-default\"";
    assert_eq!(number(&format!("apiserver_flowcontrol_dispatched_requests_total{level}}}")), 2);
    assert_eq!(number(&format!("apiserver_flowcontrol_current_executing_requests{level}}}")), 1);
    assert_eq!(number(&format!("apiserver_flowcontrol_current_inqueue_requests{level}}}")), 0);
    let refused = format!("apiserver_flowcontrol_rejected_requests_total{level},reason=\"queue-full\"}}");
    assert_eq!(number(&refused), 0);
    assert_eq!(number("apiserver_flowcontrol_nominal_limit_seats{priority_level=\"global-default\"}"), 128);
}

#[tokio::test(start_paused = true)]
async fn what_is_done_in_ranchers_words_has_a_line_for_every_object() {
    let log = Audited::at(Level::RequestResponse).await;
    log.house.post("/api/v1/namespaces", json!({"metadata": {"name": "guest"}})).await.ok();
    let lines = |id: &str| -> Vec<String> {
        let of = |event: &Value| {
            let about = &event["objectRef"];
            let part = |name: &str| about[name].as_str().unwrap_or_default().to_owned();
            let acting = event["impersonatedUser"]["username"].as_str().unwrap_or_default();
            assert_eq!(event["user"]["username"].as_str().unwrap(), "root", "{event}");
            let verb = event["verb"].as_str().unwrap();
            format!("{verb} {} {}/{} {acting}", part("resource"), part("namespace"), part("name"))
        };
        let events = log.events_of(id);
        events.iter().filter(|event| event.get("objectRef").is_some()).map(of).collect()
    };
    let new = json!({"username": "jo", "password": "correct horse battery"}).to_string();
    let made = log.ask(&root(), Method::POST, "/v3/users", &[JSON], new).await;
    assert_eq!(made.code, 201, "{}", made.json());
    assert_eq!(
        lines(&made.id),
        ["create users /jo ", "create secrets cattle-local-user-passwords/jo system:apiserver"]
    );
    let set = json!({"newPassword": "another horse battery"}).to_string();
    let set = log.ask(&root(), Method::POST, "/v3/users/jo?action=setpassword", &[JSON], set).await;
    assert_eq!(set.code, 200, "{}", set.json());
    let said = lines(&set.id);
    assert!(
        said.contains(&"update secrets cattle-local-user-passwords/jo system:apiserver".to_owned()),
        "{said:?}"
    );
    let wish = json!({"namespace": "guest", "serviceAccountName": "rke2"}).to_string();
    let asked = log.ask(&root(), Method::POST, "/v1/harvester/kubeconfig", &[JSON], wish).await;
    assert_eq!(asked.code, 409, "nobody fills the Secret here");
    let said = lines(&asked.id);
    for line in [
        "create serviceaccounts guest/rke2 ",
        "create secrets guest/rke2-token ",
        "create rolebindings guest/guest-rke2 ",
        "create clusterrolebindings /guest-rke2 ",
    ] {
        assert!(said.iter().any(|one| one == line), "{line}: {said:?}");
    }
    let gone = log.ask(&root(), Method::DELETE, "/v3/users/jo", &[], "").await;
    assert!(lines(&gone.id).contains(&"delete users /jo ".to_owned()));
    assert!(!log.files().concat().contains("horse"));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_somebody_makes_for_themselves_has_a_line_without_its_secret() {
    let log = Audited::at(Level::RequestResponse).await;
    let jo = NewUser { id: "jo".into(), username: "jo".into(), ..NewUser::default() };
    log.house.server.users().create(&jo, "correct horse battery").await.unwrap();
    let login = "/v3-public/localProviders/local?action=login";
    let wish = json!({"username": "jo", "password": "correct horse battery"}).to_string();
    let session = log.ask(&stranger(), Method::POST, login, &[JSON], wish).await.json();
    let session = session["token"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {session}");
    let headers = [JSON, ("authorization", bearer.as_str())];
    let made = log.ask(&stranger(), Method::POST, "/v3/tokens", &headers, "{}").await;
    assert_eq!(made.code, 201);
    let name = made.json()["name"].as_str().unwrap().to_owned();
    let events = log.events_of(&made.id);
    let line = events.iter().find(|event| event["objectRef"]["resource"] == "tokens").unwrap();
    assert_eq!((&line["verb"], &line["objectRef"]["name"]), (&json!("create"), &json!(name)));
    assert_eq!(line["user"]["username"], "jo");
    let config = "/v3/clusters/local?action=generateKubeconfig";
    let config = log.ask(&stranger(), Method::POST, config, &headers, "{}").await;
    assert_eq!(config.code, 200);
    let text = log.files().concat();
    let secret = |token: &str| token.split_once(':').unwrap().1.to_owned();
    assert!(!text.contains(&secret(&session)));
    assert!(!text.contains(&secret(made.json()["token"].as_str().unwrap())));
    let config: Value = serde_yaml_ng::from_str(config.json()["config"].as_str().unwrap()).unwrap();
    assert!(!text.contains(&secret(config["users"][0]["user"]["token"].as_str().unwrap())));
}
