//! What is refused, completed and selected, word by word.

use super::*;

fn balancer() -> Value {
    json!({"metadata": {"name": "lb", "namespace": "default"}, "spec": {
        "workloadType": "vm", "ipam": "pool",
        "listeners": [
            {"name": "web", "port": 80, "protocol": "TCP", "backendPort": 8080},
            {"name": "names", "port": 53, "protocol": "UDP", "backendPort": 53}],
        "backendServerSelector": {"app": ["web"]},
        "healthCheck": {"port": 8080, "successThreshold": 1, "failureThreshold": 3, "periodSeconds": 5, "timeoutSeconds": 3},
    }})
}

fn said(new: &Value, old: Option<&Value>) -> String {
    validate(new, old).iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_balancer_is_refused_for_what_cannot_be_in_the_words_of_the_original() {
    assert_eq!(said(&balancer(), None), "");
    type Change = fn(&mut Value);
    let refused: [(Change, &str); 14] = [
        (|spec| spec["listeners"] = json!([]), "the loadbalancer needs to have at least one listener"),
        (|spec| spec["listeners"][1]["name"] = json!("web"), "listener has duplicate name web"),
        (
            |spec| spec["listeners"][1]["port"] = json!(80),
            "listener names has duplicate port 80 with listener web",
        ),
        (
            |spec| spec["listeners"][1]["backendPort"] = json!(8080),
            "listener names has duplicate backend port 8080 with listener web",
        ),
        (|spec| spec["listeners"][0]["port"] = json!(0), "listener port 0 must >= 1"),
        (|spec| spec["listeners"][0]["port"] = json!(65536), "listener port 65536 must <= 65535"),
        (
            |spec| spec["listeners"][0]["backendPort"] = json!(70000),
            "listener backend port 70000 must <= 65535",
        ),
        (|spec| spec["listeners"][0]["protocol"] = json!("SCTP"), "supported values: \"TCP\", \"UDP\""),
        (
            |spec| spec["healthCheck"]["port"] = json!(53),
            "healthcheck port 53 can only be a TCP backend port",
        ),
        (
            |spec| spec["healthCheck"]["port"] = json!(9),
            "healthcheck port 9 is not in listener backend port list",
        ),
        (
            |spec| spec["healthCheck"]["periodSeconds"] = json!(0),
            "healthcheck periodSeconds should be from 1",
        ),
        (|spec| spec["workloadType"] = json!("pod"), "supported values: \"vm\", \"cluster\""),
        (|spec| spec["ipam"] = json!("static"), "supported values: \"pool\", \"dhcp\""),
        (|spec| spec["backendServerSelector"]["app"] = json!([]), "so there must be one"),
    ];
    for (change, words) in refused {
        let mut bad = balancer();
        change(&mut bad["spec"]);
        let said = said(&bad, None);
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn what_a_cluster_listens_to_is_its_own_business() {
    let cluster = json!({"metadata": {"name": "lb"}, "spec": {"workloadType": "cluster", "ipam": "pool"}});
    assert_eq!(said(&cluster, None), "");
}

#[test]
fn where_an_address_comes_from_and_what_for_is_settled_when_created() {
    let mut other = balancer();
    other["spec"]["ipam"] = json!("dhcp");
    assert!(said(&other, Some(&balancer())).contains("can't change the IPAM from pool to dhcp"));
    let mut other = balancer();
    other["spec"]["workloadType"] = json!("cluster");
    assert!(said(&other, Some(&balancer())).contains("can't change the workloadType from vm to cluster"));
    let mut left_out = balancer();
    for field in ["ipam", "workloadType"] {
        left_out["spec"].as_object_mut().unwrap().remove(field);
    }
    assert_eq!(said(&left_out, Some(&balancer())), "", "left out is what it was");
}

#[test]
fn zeros_of_a_health_check_become_what_the_original_makes_of_them() {
    let mut zeros = balancer();
    zeros["spec"]["healthCheck"] = json!({"port": 8080, "failureThreshold": 0, "timeoutSeconds": 4});
    default(&mut zeros);
    let check = json!({"port": 8080, "successThreshold": 2, "failureThreshold": 2, "periodSeconds": 1, "timeoutSeconds": 4});
    assert_eq!(zeros["spec"]["healthCheck"], check);
    let before = zeros.clone();
    default(&mut zeros);
    assert_eq!(zeros, before);
    for without in [json!({}), json!({"healthCheck": {"port": 0}}), json!({"healthCheck": {}})] {
        let mut none = json!({"spec": without});
        default(&mut none);
        assert_eq!(none["spec"], without);
    }
}

#[test]
fn nobody_says_themselves_which_namespace_and_project_they_are() {
    let mut lies = balancer();
    lies["metadata"]["annotations"] = json!({NAMESPACE_ANNOTATION: "bank", PROJECT_ANNOTATION: "c/bank", NETWORK_ANNOTATION: "default/lan", "x": "y"});
    complete(&mut lies, "c-1/p-1", "");
    assert_eq!(
        lies["metadata"]["annotations"],
        json!({NAMESPACE_ANNOTATION: "default", PROJECT_ANNOTATION: "c-1/p-1", NETWORK_ANNOTATION: "default/lan", "x": "y"})
    );
    let mut cluster = balancer();
    cluster["spec"]["workloadType"] = json!("cluster");
    complete(&mut cluster, "", "default/vlan1");
    assert_eq!(cluster["metadata"]["annotations"][NETWORK_ANNOTATION], "default/vlan1");
    let before = cluster.clone();
    complete(&mut cluster, "", "default/vlan1");
    assert_eq!(cluster, before);
}

#[test]
fn a_machine_is_selected_by_one_value_of_every_label() {
    let spec = |selector: Value| {
        serde_json::from_value::<LoadBalancerSpec>(json!({"backendServerSelector": selector})).unwrap()
    };
    let labels =
        BTreeMap::from([("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "one".to_owned())]);
    assert!(spec(json!({"app": ["api", "web"]})).selects(&labels));
    assert!(spec(json!({"app": ["web"], "tier": ["one"]})).selects(&labels));
    assert!(!spec(json!({"app": ["web"], "tier": ["two"]})).selects(&labels));
    assert!(!spec(json!({"other": ["web"]})).selects(&labels));
    assert!(!spec(json!({})).selects(&labels), "without a selector none is");
}
