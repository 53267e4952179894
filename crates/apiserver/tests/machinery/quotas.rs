//! Quotas and limit ranges: exact, whoever writes at the same moment and through whichever server.

use std::rc::Rc;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    house::{Answer, House, MAPS},
    machine::{CLAIMS, INSTANCES, claim, instance},
};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const RANGES: &str = "/api/v1/namespaces/default/limitranges";

async fn limit(house: &House, hard: Value) {
    house.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await.ok();
}

async fn used(house: &House, what: &str) -> String {
    let quota = house.get(&format!("{QUOTAS}/q")).await.ok();
    quota["status"]["used"][what].as_str().unwrap_or("nothing known").to_owned()
}

async fn maps(house: &House) -> usize {
    house.get(MAPS).await.ok()["items"].as_array().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn of_many_creates_at_once_exactly_as_many_succeed_as_there_may_be() {
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    limit(&one, json!({"count/configmaps": "10", "configmaps": "12"})).await;
    let creates = (0..64).map(|n| {
        let house = if n % 2 == 0 { &one } else { &other };
        house.post(MAPS, json!({"metadata": {"name": format!("m{n}")}}))
    });
    let answers = join_all(creates).await;
    let made = answers.iter().filter(|answer| answer.code == 201).count();
    assert_eq!((made, maps(&one).await), (10, 10));
    let refused = answers.iter().find(|answer| answer.code != 201).unwrap();
    assert_eq!(refused.refusal(), (403, "Forbidden"));
    assert!(
        refused.message().ends_with(
            "is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=10, limited: count/configmaps=10"
        ),
        "{}",
        refused.message()
    );
    assert_eq!(
        (used(&one, "count/configmaps").await, used(&other, "configmaps").await),
        ("10".into(), "10".into())
    );
}

#[tokio::test(start_paused = true)]
async fn of_many_disks_and_machines_at_once_exactly_those_are_made_that_fit() {
    let one = House::new().await;
    let other = House::on(one.store.clone()).await;
    // A claim takes 1 GiB, an instance two processors and 2 GiB.
    limit(&one, json!({"requests.storage": "7Gi", "limits.memory": "11Gi", "limits.cpu": "100"})).await;
    let through = |n: usize| if n.is_multiple_of(2) { &one } else { &other };
    let disks = join_all((0..32).map(|n| through(n).post(CLAIMS, claim(&format!("c{n}")))));
    let machines = join_all((0..32).map(|n| through(n).post(INSTANCES, instance(&format!("i{n}")))));
    let (disks, machines) = futures::future::join(disks, machines).await;
    let made = |answers: &[Answer]| answers.iter().filter(|answer| answer.code == 201).count();
    assert_eq!((made(&disks), made(&machines)), (7, 5));
    for what in [("requests.storage", "7Gi"), ("limits.memory", "10Gi"), ("limits.cpu", "10")] {
        assert_eq!(used(&other, what.0).await, what.1, "{}", what.0);
    }
}

#[tokio::test(start_paused = true)]
async fn creates_and_deletes_of_many_never_lose_count() {
    let one = Rc::new(House::new().await);
    let other = Rc::new(House::on(one.store.clone()).await);
    limit(&one, json!({"count/configmaps": "7"})).await;
    let workers = (0..16).map(|worker| {
        let house = if worker % 2 == 0 { one.clone() } else { other.clone() };
        async move {
            for round in 0..6 {
                let name = format!("m{worker}-{round}");
                let made = house.post(MAPS, json!({"metadata": {"name": name}})).await;
                if made.code == 201 && round % 3 != 0 {
                    house.delete(&format!("{MAPS}/{name}")).await.ok();
                }
            }
        }
    });
    join_all(workers).await;
    let there = maps(&one).await;
    assert!(there <= 7, "{there}");
    assert_eq!(used(&one, "count/configmaps").await, there.to_string());
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_comes_while_others_create_counts_them_all() {
    for round in 0..10 {
        let one = House::new().await;
        let other = House::on(one.store.clone()).await;
        let creates = join_all((0..20).map(|n| {
            let house = if n % 2 == round % 2 { &one } else { &other };
            house.post(MAPS, json!({"metadata": {"name": format!("m{n}")}}))
        }));
        let limiting = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            limit(&one, json!({"count/configmaps": "10"})).await;
        };
        tokio::join!(creates, limiting);
        let there = maps(&one).await;
        assert_eq!(used(&one, "count/configmaps").await, there.to_string(), "round {round}");
        // Those that came before the quota stay; of the others no more than there is room for came in.
        let next = one.post(MAPS, json!({"metadata": {"name": "next"}})).await;
        assert_eq!(next.code == 201, there < 10, "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_what_was_there_before_it_and_what_else_it_is_changed_to_limit() {
    let house = House::new().await;
    house.config_map("before", json!({})).await;
    limit(&house, json!({"count/configmaps": "2"})).await;
    assert_eq!(used(&house, "count/configmaps").await, "1");
    house.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}})).await.ok();
    let more = json!({"spec": {"hard": {"secrets": "1"}}});
    house.patch(&format!("{QUOTAS}/q"), "merge-patch", more).await.ok();
    assert_eq!(
        (used(&house, "secrets").await, used(&house, "count/configmaps").await),
        ("1".into(), "1".into())
    );
    let second = house.post("/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "t"}})).await;
    assert_eq!(second.refusal(), (403, "Forbidden"));
    house.config_map("second", json!({})).await;
    assert_eq!(house.post(MAPS, json!({"metadata": {"name": "third"}})).await.code, 403);
    house.delete(&format!("{MAPS}/before")).await.ok();
    assert_eq!(used(&house, "count/configmaps").await, "1");
    house.config_map("third", json!({})).await;
    let table = house.get(&format!("{QUOTAS}/q")).await.ok();
    assert_eq!(table["status"]["hard"], json!({"count/configmaps": "2", "secrets": "1"}));
}

#[tokio::test(start_paused = true)]
async fn custom_resources_and_quotas_themselves_are_counted() {
    let house = House::new().await;
    house
        .establish(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        }))
        .await;
    limit(&house, json!({"count/widgets.example.com": "1", "resourcequotas": "2"})).await;
    let uri = "/apis/example.com/v1/namespaces/default/widgets";
    let widget =
        |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    house.post(uri, widget("a")).await.ok();
    assert_eq!(house.post(uri, widget("b")).await.refusal(), (403, "Forbidden"));
    assert_eq!(used(&house, "resourcequotas").await, "1");
    house.post(QUOTAS, json!({"metadata": {"name": "r"}, "spec": {}})).await.ok();
    assert_eq!(house.post(QUOTAS, json!({"metadata": {"name": "s"}, "spec": {}})).await.code, 403);
    house.delete(&format!("{QUOTAS}/q")).await.ok();
    house.post(QUOTAS, json!({"metadata": {"name": "s"}, "spec": {}})).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_refused_as_well_and_takes_nothing() {
    let house = House::new().await;
    limit(&house, json!({"configmaps": "1"})).await;
    house.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "a"}})).await.ok();
    assert_eq!(used(&house, "configmaps").await, "0");
    house.config_map("a", json!({})).await;
    assert_eq!(house.post(&format!("{MAPS}?dryRun=All"), json!({"metadata": {"name": "b"}})).await.code, 403);
    // A name that is taken takes nothing either.
    assert_eq!(house.post(MAPS, json!({"metadata": {"name": "a"}})).await.code, 403);
    assert_eq!(used(&house, "configmaps").await, "1");
}

#[tokio::test(start_paused = true)]
async fn what_is_used_is_nobodys_to_say() {
    let house = House::new().await;
    limit(&house, json!({"configmaps": "1"})).await;
    let lie = json!({"status": {"used": {"configmaps": "0"}}});
    let answer = house.patch(&format!("{QUOTAS}/q/status"), "merge-patch", lie.clone()).await;
    assert_eq!(answer.refusal(), (403, "Forbidden"));
    house.config_map("a", json!({})).await;
    house.patch(&format!("{QUOTAS}/q"), "merge-patch", lie).await.ok();
    assert_eq!(used(&house, "configmaps").await, "1");
}

#[tokio::test(start_paused = true)]
async fn disks_take_storage_until_they_are_gone() {
    let house = House::new().await;
    limit(&house, json!({"requests.storage": "3Gi", "persistentvolumeclaims": "5"})).await;
    house.post(CLAIMS, claim("a")).await.ok();
    house.post(CLAIMS, claim("b")).await.ok();
    let mut large = claim("c");
    large["spec"]["resources"]["requests"]["storage"] = "1025Mi".into();
    let refused = house.post(CLAIMS, large).await;
    assert!(
        refused.message().ends_with(
            "exceeded quota: q, requested: requests.storage=1025Mi, used: requests.storage=2Gi, limited: requests.storage=3Gi"
        ),
        "{}",
        refused.message()
    );
    house.delete(&format!("{CLAIMS}/a")).await.ok();
    assert_eq!(
        used(&house, "requests.storage").await,
        "2Gi",
        "a finalizer holds it, and its bytes are there"
    );
    house.patch(&format!("{CLAIMS}/a"), "merge-patch", json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(
        (used(&house, "requests.storage").await, used(&house, "persistentvolumeclaims").await),
        ("1Gi".into(), "1".into())
    );
}

#[tokio::test(start_paused = true)]
async fn machines_take_processors_and_memory_until_they_are_over() {
    let house = House::new().await;
    limit(&house, json!({"limits.memory": "4Gi", "limits.cpu": "4", "pods": "3"})).await;
    for name in ["a", "b"] {
        house.post(INSTANCES, instance(name)).await.ok();
    }
    assert_eq!(used(&house, "limits.memory").await, "4Gi", "nothing is added to what a machine says");
    let third = house.post(INSTANCES, instance("c")).await;
    assert!(third.message().contains("requested: limits.cpu=2,limits.memory=2Gi"), "{}", third.message());
    let over = json!({"status": {"phase": "Succeeded"}});
    house.patch(&format!("{INSTANCES}/a"), "merge-patch", over).await.ok();
    assert_eq!((used(&house, "limits.cpu").await, used(&house, "pods").await), ("2".into(), "1".into()));
    house.post(INSTANCES, instance("c")).await.ok();
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_about_other_machines_now_counts_those() {
    let house = House::new().await;
    let about = |operator: &str| {
        json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator}]},
            "hard": {"pods": "5"}})
    };
    house.post(INSTANCES, instance("plain")).await.ok();
    let made = house.post(QUOTAS, json!({"metadata": {"name": "q"}, "spec": about("Exists")})).await.ok();
    assert_eq!(made["status"]["used"]["pods"], "0", "the answer says what is used");
    let mut changed = made;
    changed["spec"] = about("DoesNotExist");
    let changed = house.put(&format!("{QUOTAS}/q"), changed).await.ok();
    assert_eq!(changed["status"]["used"]["pods"], "1");
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_by_with_odd_amounts() {
    let house = House::new().await;
    limit(&house, json!({"limits.memory": "4Gi", "limits.cpu": 4, "requests.storage": "1Gi"})).await;
    let mut free = instance("free");
    free["spec"]["domain"] = json!({"cpu": {"cores": 8}, "memory": {"guest": "8Gi"}, "devices": {},
        "resources": {"limits": {"cpu": "0", "memory": "0"}}});
    free["spec"]["networks"] = json!([]);
    let refused = house.post(INSTANCES, free).await;
    assert_eq!(refused.code, 403, "{:#}", refused.body);
    let mut bare = claim("bare");
    bare["spec"]["resources"]["requests"]["storage"] = json!(2_i64 << 30);
    assert_eq!(house.post(CLAIMS, bare).await.code, 403);
    let huge = json!({"metadata": {"name": "h"}, "spec": {"hard": {"requests.storage": "10Ei"}}});
    assert_eq!(house.post(QUOTAS, huge).await.refusal(), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_nobody_counted_is_counted_when_the_server_comes_back() {
    use sheaf_store::{Transaction, Write};
    let house = House::new().await;
    house.config_map("a", json!({})).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default",
        "uid": "4e3e3ab2-0000-4000-8000-000000000001", "creationTimestamp": "2030-01-01T00:00:00Z"},
        "spec": {"hard": {"configmaps": "1"}}});
    let put = Write::Put { key: "/o/core/resourcequotas/default/q".into(), value: quota.to_string().into() };
    house.store.commit(Transaction { expect: Vec::new(), writes: vec![put] }).await.unwrap();
    let again = House::on(house.store.clone()).await;
    assert_eq!(used(&again, "configmaps").await, "1");
}

#[tokio::test(start_paused = true)]
async fn one_machine_and_one_disk_are_within_their_ranges() {
    let house = House::new().await;
    let range = json!({"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "max": {"memory": "2Gi"}, "min": {"cpu": "10m"}, "default": {"memory": "1Gi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}},
    ]}});
    house.post(RANGES, range).await.ok();
    house.post(INSTANCES, instance("fits")).await.ok();
    let mut large = instance("large");
    large["spec"]["domain"]["resources"]["limits"]["memory"] = "3Gi".into();
    let refused = house.post(INSTANCES, large).await;
    assert_eq!(refused.refusal(), (403, "Forbidden"));
    assert!(
        refused.message().ends_with("maximum memory usage per Container is 2Gi, but limit is 3Gi"),
        "{}",
        refused.message()
    );
    let mut silent = instance("silent");
    silent["spec"]["domain"]["resources"] = json!({});
    let silent = house.post(INSTANCES, silent).await.ok();
    assert_eq!(silent["spec"]["domain"]["resources"]["limits"]["memory"], "1Gi");
    house.post(CLAIMS, claim("fits")).await.ok();
    let mut large = claim("large");
    large["spec"]["resources"]["requests"]["storage"] = "5Gi".into();
    let refused = house.post(CLAIMS, large).await;
    assert!(
        refused
            .message()
            .ends_with("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"),
        "{}",
        refused.message()
    );
    let bad = json!({"metadata": {"name": "bad"}, "spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}});
    assert_eq!(house.post(RANGES, bad).await.refusal(), (422, "Invalid"));
}
