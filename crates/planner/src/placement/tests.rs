//! Where instances go, and what is said when they cannot.

use serde_json::{Value, json};

use super::*;

fn node(name: &str, zone: &str, cpu: &str, memory: &str) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": zone}},
        "status": {"allocatable": {"cpu": cpu, "memory": memory}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap()
}

fn spec(more: Value) -> VirtualMachineInstanceSpec {
    let mut spec =
        json!({"domain": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}, "devices": {}}});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

fn choose(
    spec: &VirtualMachineInstanceSpec,
    nodes: &[Node],
    neighbours: &[Neighbour],
) -> Result<String, String> {
    choose_near(spec, nodes, neighbours, &[])
}

fn choose_near(
    spec: &VirtualMachineInstanceSpec,
    nodes: &[Node],
    neighbours: &[Neighbour],
    volumes: &[NodeSelector],
) -> Result<String, String> {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let wanted = Wanted { spec, namespace: "default", labels: &labels, volumes, unplaced_bytes: 0 };
    choose_node(&wanted, nodes, neighbours, &Rooms::of(nodes, [], 100)).map_err(|why| why.to_string())
}

fn neighbour(node: &str, app: &str) -> Neighbour {
    Neighbour {
        namespace: "default".into(),
        labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        node: node.into(),
        share: Share { cpu_milli: 1000, memory_bytes: 1 << 30 },
    }
}

#[test]
fn an_instance_goes_to_the_emptiest_node_and_else_to_the_first() {
    let nodes = [node("b", "z", "4", "8Gi"), node("a", "z", "4", "8Gi")];
    assert_eq!(choose(&spec(json!({})), &nodes, &[]), Ok("a".into()));
    assert_eq!(choose(&spec(json!({})), &nodes, &[neighbour("a", "db")]), Ok("b".into()));
}

#[test]
fn what_does_not_fit_says_how_much_is_missing() {
    let nodes = [node("a", "z", "1", "8Gi"), node("b", "z", "4", "512Mi")];
    let said = choose(&spec(json!({})), &nodes, &[neighbour("a", "db")]).unwrap_err();
    assert_eq!(
        said,
        "0/2 nodes are available: 1 Insufficient cpu (asks for 1, 0 left), 1 Insufficient memory (asks for 1024Mi, \
         512Mi left)."
    );
    assert_eq!(choose(&spec(json!({})), &[], &[]).unwrap_err(), "no nodes available to schedule pods");
}

#[test]
fn nobody_is_sent_where_nobody_should_go() {
    let mut unready = node("a", "z", "4", "8Gi");
    unready.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "Unknown".into();
    let mut cordoned = node("b", "z", "4", "8Gi");
    cordoned.spec = serde_json::from_value(json!({"unschedulable": true})).unwrap();
    let mut tainted = node("c", "z", "4", "8Gi");
    tainted.spec =
        serde_json::from_value(json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}))
            .unwrap();
    let nodes = [unready, cordoned, tainted];
    let said = choose(&spec(json!({})), &nodes, &[]).unwrap_err();
    assert_eq!(
        said,
        "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were not ready, 1 node(s) were \
         unschedulable."
    );
    assert_eq!(any_node(&nodes), Some("c"));
    for toleration in [json!({"key": "k", "value": "v"}), json!({"operator": "Exists"})] {
        assert_eq!(choose(&spec(json!({"tolerations": [toleration]})), &nodes, &[]), Ok("c".into()));
    }
}

#[test]
fn labels_choose_the_node() {
    let nodes = [node("a", "east", "4", "8Gi"), node("b", "west", "4", "8Gi")];
    assert_eq!(choose(&spec(json!({"nodeSelector": {"zone": "west"}})), &nodes, &[]), Ok("b".into()));
    let required = |expression: Value| {
        spec(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}}))
    };
    let west = required(json!({"key": "zone", "operator": "NotIn", "values": ["east"]}));
    assert_eq!(choose(&west, &nodes, &[]), Ok("b".into()));
    let nowhere = required(json!({"key": "disk", "operator": "Exists"}));
    assert!(
        choose(&nowhere, &nodes, &[])
            .unwrap_err()
            .contains("2 node(s) didn't match Pod's node affinity/selector")
    );
    let preferred = spec(
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["west"]}]}}]}}}),
    );
    assert_eq!(choose(&preferred, &nodes, &[]), Ok("b".into()));
}

#[test]
fn an_instance_goes_where_its_volume_is_or_nowhere() {
    let nodes = [node("a", "z", "4", "8Gi"), node("b", "z", "4", "8Gi")];
    let on = |name: &str| -> NodeSelector {
        serde_json::from_value(json!({"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]}))
        .unwrap()
    };
    assert_eq!(choose_near(&spec(json!({})), &nodes, &[], &[on("b")]), Ok("b".into()));
    let said = choose_near(&spec(json!({})), &nodes, &[], &[on("a"), on("b")]).unwrap_err();
    assert_eq!(said, "0/2 nodes are available: 2 node(s) had volume node affinity conflict.");
}

#[test]
fn instances_keep_together_or_apart_as_they_are_told() {
    let nodes = [node("a", "east", "4", "8Gi"), node("b", "east", "4", "8Gi"), node("c", "west", "4", "8Gi")];
    let term =
        |app: &str, key: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
    let rule = |sort: &str, term: Value| {
        spec(json!({"affinity": {sort: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}))
    };
    let there = [neighbour("b", "db")];
    let apart = rule("podAntiAffinity", term("db", "zone"));
    assert_eq!(choose(&apart, &nodes, &there), Ok("c".into()));
    let together = rule("podAffinity", term("db", "kubernetes.io/hostname"));
    assert_eq!(choose(&together, &nodes, &there), Ok("b".into()));
    assert!(
        choose(&together, &nodes, &[]).unwrap_err().contains("3 node(s) didn't match pod affinity rules")
    );
    // The first of its group has nobody to go to.
    assert_eq!(choose(&rule("podAffinity", term("web", "zone")), &nodes, &[]), Ok("a".into()));
    let preferred =
        spec(json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution":
        [{"weight": 1, "podAffinityTerm": term("db", "zone")}]}}}));
    assert_eq!(choose(&preferred, &nodes, &there), Ok("c".into()));
}

#[test]
fn a_machine_that_does_not_say_asks_for_its_memory_and_a_tenth_of_its_processors() {
    let plain: VirtualMachineInstanceSpec = serde_json::from_value(
        json!({"domain": {"cpu": {"cores": 2, "sockets": 2}, "memory": {"guest": "64Mi"}, "devices": {}}}),
    )
    .unwrap();
    assert_eq!(Demand::of(&plain).requested, Share { cpu_milli: 400, memory_bytes: 64 << 20 });
    let limited: VirtualMachineInstanceSpec = serde_json::from_value(
        json!({"domain": {"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "devices": {}}}),
    )
    .unwrap();
    assert_eq!(Demand::of(&limited).requested, Share { cpu_milli: 2000, memory_bytes: 1 << 30 });
}

#[test]
fn volumes_that_are_nowhere_yet_go_where_there_is_room_for_all_of_them() {
    let with_disk = |name: &str, memory: &str, disk: &str| {
        let mut node = node(name, "z", "4", memory);
        let allocatable = node.status.as_mut().unwrap().allocatable.as_mut().unwrap();
        allocatable.insert(VOLUME_STORAGE.into(), quantity::Quantity(disk.into()));
        node
    };
    let nodes = [with_disk("a", "16Gi", "10Gi"), with_disk("b", "8Gi", "20Gi")];
    let (spec, labels) = (spec(json!({})), BTreeMap::new());
    let choose = |bytes: i64| {
        let wanted = Wanted {
            spec: &spec,
            namespace: "default",
            labels: &labels,
            volumes: &[],
            unplaced_bytes: bytes,
        };
        choose_node(&wanted, &nodes, &[], &Rooms::of(&nodes, [], 100)).map_err(|why| why.to_string())
    };
    assert_eq!(choose(10 << 30), Ok("a".into()), "the emptiest that has room");
    assert_eq!(choose(11 << 30), Ok("b".into()), "the only one that has room");
    assert_eq!(
        choose(21 << 30).unwrap_err(),
        "0/2 nodes are available: 1 Insufficient sheaf.io/volume-storage (asks for 21Gi, 10Gi left), 1 Insufficient \
         sheaf.io/volume-storage (asks for 21Gi, 20Gi left)."
    );
}
