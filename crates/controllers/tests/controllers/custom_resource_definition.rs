//! Definitions from birth to death.

use http::Method;
use serde_json::{Value, json};
use sheaf_testbed::{kubectl::Kubectl, simulation};

use crate::scenario::{Scenario, on_a_cluster};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn named(plural: &str, kind: &str) -> Value {
    let mut definition = simulation::widgets();
    definition["metadata"]["name"] = json!(format!("{plural}.example.com"));
    definition["spec"]["names"] = json!({"plural": plural, "kind": kind});
    definition
}

fn condition(definition: &Value, kind: &str) -> Value {
    let all = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or_default()
}

async fn make_widget(kubectl: &Kubectl, name: &str) {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    kubectl.create(WIDGETS, &widget).await;
}

fn birth() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |_: &Kubectl| {},
        happens: async |kubectl: &Kubectl| {
            kubectl.create(DEFINITIONS, &simulation::widgets()).await;
            let (code, _) = kubectl.try_it(Method::GET, WIDGETS, None).await;
            assert_eq!(code, 404, "nothing is served before its names are accepted");
        },
        ends: async |kubectl: &Kubectl| {
            let definition = kubectl.get(&format!("{DEFINITIONS}/widgets.example.com")).await.unwrap();
            assert_eq!(condition(&definition, "Established")["status"], "True");
            assert_eq!(condition(&definition, "NamesAccepted")["status"], "True");
            assert_eq!(definition["status"]["acceptedNames"]["kind"], "Widget");
            assert_eq!(kubectl.names(WIDGETS).await, [""; 0]);
        },
    }
}

fn death() -> Scenario<impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl), impl AsyncFn(&Kubectl)> {
    Scenario {
        prepared: async |kubectl: &Kubectl| {
            kubectl.create(DEFINITIONS, &simulation::widgets()).await;
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            make_widget(kubectl, "a").await;
            make_widget(kubectl, "b").await;
        },
        happens: async |kubectl: &Kubectl| {
            kubectl.delete(&format!("{DEFINITIONS}/widgets.example.com"), "Background").await;
            let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "c"}});
            let (code, _) = kubectl.try_it(Method::POST, WIDGETS, Some(&widget)).await;
            assert_eq!(code, 405, "nothing is added to a kind that goes");
        },
        ends: async |kubectl: &Kubectl| {
            assert_eq!(kubectl.get(&format!("{DEFINITIONS}/widgets.example.com")).await, None);
            assert_eq!(kubectl.try_it(Method::GET, WIDGETS, None).await.0, 404);
        },
    }
}

#[test]
fn a_definition_whose_names_are_free_is_established() {
    birth().arrives_and_rests();
    birth().arrives_however_interrupted();
}

#[test]
fn a_definition_takes_its_objects_along() {
    death().arrives_and_rests();
    death().arrives_however_interrupted();
}

#[test]
fn a_kind_defined_again_begins_without_objects() {
    on_a_cluster(async |cluster, kubectl| {
        for _ in 0..2 {
            kubectl.create(DEFINITIONS, &simulation::widgets()).await;
            cluster.settle().await;
            assert_eq!(kubectl.names(WIDGETS).await, [""; 0]);
            make_widget(kubectl, "a").await;
            kubectl.delete(&format!("{DEFINITIONS}/widgets.example.com"), "Background").await;
            cluster.settle().await;
        }
    });
}

#[test]
fn a_definition_waits_for_objects_that_something_holds() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(DEFINITIONS, &simulation::widgets()).await;
        cluster.settle().await;
        make_widget(kubectl, "held").await;
        make_widget(kubectl, "free").await;
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        kubectl.patch(&format!("{WIDGETS}/held"), &hold).await;
        kubectl.delete(&format!("{DEFINITIONS}/widgets.example.com"), "Background").await;
        cluster.settle().await;
        let definition = kubectl.get(&format!("{DEFINITIONS}/widgets.example.com")).await.unwrap();
        let terminating = condition(&definition, "Terminating");
        assert_eq!(terminating["status"], "True");
        assert_eq!(terminating["reason"], "InstanceDeletionInProgress");
        assert_eq!(kubectl.names(WIDGETS).await, ["held"]);
        kubectl.patch(&format!("{WIDGETS}/held"), &json!({"metadata": {"finalizers": null}})).await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&format!("{DEFINITIONS}/widgets.example.com")).await, None);
    });
}

#[test]
fn of_two_definitions_that_want_one_name_the_second_waits_until_it_is_free() {
    on_a_cluster(async |cluster, kubectl| {
        kubectl.create(DEFINITIONS, &named("gadgets", "Gadget")).await;
        kubectl.create(DEFINITIONS, &named("gizmos", "Gadget")).await;
        cluster.settle().await;
        let second = format!("{DEFINITIONS}/gizmos.example.com");
        let definition = kubectl.get(&second).await.unwrap();
        assert_eq!(condition(&definition, "Established")["status"], "False");
        let refused = condition(&definition, "NamesAccepted");
        assert_eq!((&refused["status"], &refused["reason"]), (&json!("False"), &json!("ListKindConflict")));
        kubectl.delete(&format!("{DEFINITIONS}/gadgets.example.com"), "Background").await;
        cluster.settle().await;
        let definition = kubectl.get(&second).await.unwrap();
        assert_eq!(condition(&definition, "Established")["status"], "True");
    });
}

#[test]
fn a_definition_that_serves_nothing_still_takes_its_objects_along() {
    on_a_cluster(async |cluster, kubectl| {
        let path = format!("{DEFINITIONS}/widgets.example.com");
        kubectl.create(DEFINITIONS, &simulation::widgets()).await;
        cluster.settle().await;
        make_widget(kubectl, "hidden").await;
        let mut versions = simulation::widgets()["spec"]["versions"].clone();
        versions[0]["served"] = json!(false);
        kubectl.patch(&path, &json!({"spec": {"versions": versions}})).await;
        kubectl.delete(&path, "Background").await;
        cluster.settle().await;
        assert_eq!(kubectl.get(&path).await, None);
        kubectl.create(DEFINITIONS, &simulation::widgets()).await;
        cluster.settle().await;
        assert_eq!(kubectl.names(WIDGETS).await, [""; 0]);
    });
}
