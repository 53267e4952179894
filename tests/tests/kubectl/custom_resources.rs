//! A custom resource from its definition to its end.

use serde_json::{Value, json};
use sheaf_tests::{kubectl::Kubectl, patience::until};

use crate::kubectl_in;

/// Boats, in a group of their own in every test, since definitions belong to the whole cluster.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [fleet-of-NAMESPACE]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.aboard, labelSelectorPath: .status.selector}
    additionalPrinterColumns:
    - {name: Sails, type: integer, jsonPath: .spec.sails, description: How many sails}
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Yard, type: string, jsonPath: .spec.yard, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [length]
            description: What the boat should be.
            properties:
              length: {type: integer, minimum: 1, maximum: 400, description: 'From bow to stern, in metres.'}
              sails: {type: integer, default: 2}
              crew: {type: integer, default: 1}
              yard: {type: string, maxLength: 10, pattern: '^[a-z]+$'}
              rig: {type: string, enum: [sloop, ketch], default: sloop}
              cargo:
                type: array
                maxItems: 2
                items:
                  type: object
                  required: [what]
                  properties: {what: {type: string}, boxes: {type: integer, default: 1}}
              papers: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties: {phase: {type: string}, aboard: {type: integer}, selector: {type: string}}
";

fn definition(group: &str) -> Value {
    let namespace = group.split('.').next().unwrap();
    let text = DEFINITION.replace("GROUP", group).replace("NAMESPACE", namespace);
    serde_yaml_ng::from_str(&text).unwrap()
}

fn boat(group: &str, name: &str, spec: Value) -> String {
    json!({"apiVersion": format!("{group}/v1"), "kind": "Boat", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

fn with_boats(namespace: &str) -> (Kubectl, String) {
    let (kubectl, group) = (kubectl_in(namespace), format!("{namespace}.example.com"));
    let said = kubectl.apply(&definition(&group).to_string());
    assert_eq!(said, format!("customresourcedefinition.apiextensions.k8s.io/boats.{group} created\n"));
    kubectl.says(&["wait", "--for=condition=Established", &format!("crd/boats.{group}"), "--timeout=20s"]);
    (kubectl, group)
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_new_kind_is_there_once_established_and_knows_its_names() {
    let (kubectl, group) = with_boats("boats-names");
    let crd = kubectl.json(&["get", "crd", &format!("boats.{group}")]);
    assert_eq!(crd["status"]["acceptedNames"]["shortNames"], json!(["bt"]));
    assert_eq!(crd["status"]["acceptedNames"]["listKind"], "BoatList");
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    let listed = kubectl.says(&["api-resources", "--api-group", &group, "--no-headers"]);
    let row: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(row, ["boats", "bt", &format!("{group}/v1"), "true", "Boat"]);

    kubectl.apply(&boat(&group, "dory", json!({"length": 5})));
    let full = format!("bt.{group}");
    for name in [format!("boats.{group}"), format!("boats.v1.{group}"), format!("boat.{group}"), full] {
        let said = kubectl.says(&["get", &name, "-o", "name"]);
        assert_eq!(said, format!("boat.{group}/dory\n"), "{name}");
    }
    assert_eq!(kubectl.says(&["get", "fleet-of-boats-names", "-o", "name"]), format!("boat.{group}/dory\n"));
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_is_left_out_is_filled_in_and_what_is_unknown_is_dropped() {
    let (kubectl, group) = with_boats("boats-defaults");
    let resource = format!("boats.{group}");
    let spec = json!({"length": 9, "cargo": [{"what": "tea"}], "papers": {"any": {"thing": 1}}, "wheels": 4});
    let manifest = boat(&group, "dory", spec);
    let ended = kubectl.run_with_input(&["apply", "-f", "-"], &manifest);
    assert!(
        ended.stderr.contains("strict decoding error: unknown field \"spec.wheels\""),
        "{}",
        ended.stderr
    );
    let ended = kubectl.run_with_input(&["apply", "--validate=warn", "-f", "-"], &manifest).succeeded();
    assert!(ended.stderr.contains("Warning: unknown field \"spec.wheels\""), "{}", ended.stderr);
    let made = kubectl.json(&["get", &resource, "dory"]);
    assert_eq!(
        made["spec"],
        json!({
            "length": 9, "sails": 2, "crew": 1, "rig": "sloop", "papers": {"any": {"thing": 1}},
            "cargo": [{"what": "tea", "boxes": 1}],
        })
    );
    assert_eq!(made["metadata"]["generation"], 1);

    // Applied again without a field that a default fills, it is filled again.
    kubectl.apply(&boat(&group, "dory", json!({"length": 10, "rig": "ketch"})));
    kubectl.apply(&boat(&group, "dory", json!({"length": 10})));
    let now = kubectl.json(&["get", &resource, "dory"]);
    assert_eq!(now["spec"], json!({"length": 10, "sails": 2, "crew": 1, "rig": "sloop"}));
    assert_eq!(now["metadata"]["generation"], 3);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_the_schema_forbids_is_refused_field_by_field() {
    let (kubectl, group) = with_boats("boats-invalid");
    let refused = |spec: Value| {
        let ended = kubectl.run_with_input(&["create", "-f", "-"], &boat(&group, "wreck", spec));
        assert_ne!(ended.code, 0, "{ended:?}");
        assert!(ended.stderr.starts_with("The Boat \"wreck\" is invalid: "), "{}", ended.stderr);
        ended.stderr
    };
    let why = refused(json!({"length": 500}));
    assert!(
        why.contains(
            "spec.length: Invalid value: 500: spec.length in body should be less than or equal to 400"
        ),
        "{why}"
    );
    let why = refused(json!({}));
    assert!(why.contains("spec.length: Required value"), "{why}");
    let why = refused(json!({"length": "long"}));
    assert!(
        why.contains(
            "spec.length: Invalid value: \"string\": spec.length in body must be of type integer: \"string\""
        ),
        "{why}"
    );
    let why = refused(json!({"length": 5, "rig": "raft"}));
    assert!(
        why.contains("spec.rig: Unsupported value: \"raft\": supported values: \"sloop\", \"ketch\""),
        "{why}"
    );
    let why = refused(json!({"length": 5, "yard": "Very Good Yard"}));
    assert!(why.contains("spec.yard: Too long: may not be more than 10 bytes"), "{why}");
    let why = refused(json!({"length": 5, "yard": "No Yard"}));
    assert!(
        why.contains("spec.yard: Invalid value: \"No Yard\": spec.yard in body should match '^[a-z]+$'"),
        "{why}"
    );
    let why = refused(json!({"length": 5, "cargo": [{"what": "a"}, {}, {"what": "c"}]}));
    assert!(why.contains("spec.cargo: Too many: 3: must have at most 2 items"), "{why}");
    assert!(why.contains("spec.cargo[1].what: Required value"), "{why}");
    assert_eq!(kubectl.says(&["get", &format!("boats.{group}"), "-o", "name"]), "");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn the_columns_it_asked_for_are_printed() {
    let (kubectl, group) = with_boats("boats-columns");
    kubectl.apply(&boat(&group, "dory", json!({"length": 5, "sails": 1, "yard": "north"})));
    let resource = format!("boats.{group}");
    let rows = |args: &[&str]| {
        let said = kubectl.says(&[&["get", &resource], args].concat());
        said.lines()
            .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    let table = rows(&[]);
    assert_eq!(table[0], ["NAME", "SAILS", "PHASE", "AGE"]);
    // No phase yet: the cell is empty.
    assert_eq!(table[1][..2], ["dory", "1"]);
    assert_eq!(table[1].len(), 3);
    let wide = rows(&["-o", "wide"]);
    assert_eq!(wide[0], ["NAME", "SAILS", "PHASE", "YARD", "AGE"]);
    assert_eq!(wide[1][2], "north");
    let described = kubectl.says(&["describe", &resource, "dory"]);
    assert!(described.contains("Yard:    north"), "{described}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn status_and_scale_are_written_through_their_own_doors() {
    let (kubectl, group) = with_boats("boats-doors");
    let resource = format!("boats.{group}");
    kubectl.apply(&boat(&group, "dory", json!({"length": 5})));
    let get = || kubectl.json(&["get", &resource, "dory"]);
    let status = r#"{"status":{"phase":"Afloat","aboard":1,"selector":"boat=dory"},"spec":{"length":7}}"#;
    kubectl.says(&["patch", &resource, "dory", "--subresource=status", "--type=merge", "-p", status]);
    let dory = get();
    assert_eq!(dory["status"], json!({"phase": "Afloat", "aboard": 1, "selector": "boat=dory"}));
    assert_eq!((&dory["spec"]["length"], &dory["metadata"]["generation"]), (&json!(5), &json!(1)));
    kubectl.says(&[
        "patch",
        &resource,
        "dory",
        "--type=merge",
        "-p",
        r#"{"status":{"phase":"Sunk"},"spec":{"length":6}}"#,
    ]);
    let dory = get();
    assert_eq!((&dory["status"]["phase"], &dory["spec"]["length"]), (&json!("Afloat"), &json!(6)));
    assert_eq!(dory["metadata"]["generation"], 2);
    kubectl.says(&[
        "wait",
        &format!("{resource}/dory"),
        "--for=jsonpath={.status.phase}=Afloat",
        "--timeout=5s",
    ]);

    let said = kubectl.says(&["scale", &format!("{resource}/dory"), "--replicas=5", "--current-replicas=1"]);
    assert_eq!(said, format!("boat.{group}/dory scaled\n"));
    assert_eq!(get()["spec"]["crew"], 5);
    let scale = kubectl.json(&["get", &resource, "dory", "--subresource=scale"]);
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&"Scale".into(), &"autoscaling/v1".into()));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 5}), &json!({"replicas": 1, "selector": "boat=dory"}))
    );
    let why =
        kubectl.complains(&["scale", &format!("{resource}/dory"), "--replicas=2", "--current-replicas=1"]);
    assert!(why.contains("Expected replicas to be 1, was 5"), "{why}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn its_fields_are_explained_and_its_patches_merge() {
    let (kubectl, group) = with_boats("boats-explain");
    let resource = format!("boats.{group}");
    // Every test has its boats: the group tells them apart, and a dotted name would mean a field.
    let version = format!("{group}/v1");
    let text = until("the schema is published", || {
        let ended = kubectl.run(&["explain", "boats", "--api-version", &version, "--recursive"]);
        (ended.code == 0).then_some(ended.stdout)
    });
    assert!(text.contains(&format!("GROUP:      {group}\nKIND:       Boat\nVERSION:    v1\n")), "{text}");
    for line in ["    length\t<integer> -required-", "    cargo\t<[]Object>", "      boxes\t<integer>"] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    let field = kubectl.says(&["explain", "boats.spec.length", "--api-version", &version]);
    assert!(field.contains("From bow to stern, in metres."), "{field}");

    kubectl.apply(&boat(&group, "dory", json!({"length": 5, "cargo": [{"what": "tea"}]})));
    // Lists of custom resources are replaced as a whole, and a strategic patch is not understood.
    kubectl.apply(&boat(&group, "dory", json!({"length": 5, "cargo": [{"what": "rum"}]})));
    assert_eq!(
        kubectl.json(&["get", &resource, "dory"])["spec"]["cargo"],
        json!([{"what": "rum", "boxes": 1}])
    );
    let why = kubectl.complains(&["patch", &resource, "dory", "--type=strategic", "-p", "{}"]);
    assert!(
        why.contains("the body of the request was in an unknown format")
            || why.contains("strategic merge patch is not supported"),
        "{why}"
    );
    let ended = kubectl.run_with_input(&["diff", "-f", "-"], &boat(&group, "dory", json!({"length": 6})));
    assert!(ended.code == 1 && ended.stdout.contains("+  length: 6"), "{ended:?}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_second_version_shows_the_same_objects() {
    let (kubectl, group) = with_boats("boats-versions");
    let resource = format!("boats.{group}");
    kubectl.apply(&boat(&group, "dory", json!({"length": 5})));
    let mut two = definition(&group);
    let mut next = two["spec"]["versions"][0].clone();
    next["name"] = "v2".into();
    next["storage"] = false.into();
    two["spec"]["versions"].as_array_mut().unwrap().push(next);
    kubectl.apply(&two.to_string());
    let shown = until("the second version is served", || {
        let ended = kubectl.run(&["get", &format!("boats.v2.{group}"), "dory", "-o", "json"]);
        serde_json::from_str::<Value>(&ended.stdout).ok()
    });
    assert_eq!(shown["apiVersion"], format!("{group}/v2"));
    let stored = kubectl.json(&["get", &format!("boats.v1.{group}"), "dory"]);
    assert_eq!((&stored["spec"], &stored["metadata"]["uid"]), (&shown["spec"], &shown["metadata"]["uid"]));
    // The one that people get unasked is the higher.
    let preferred = until("the higher version is preferred", || {
        let object = kubectl.json(&["get", &resource, "dory"]);
        (object["apiVersion"] == format!("{group}/v2")).then_some(object)
    });
    assert_eq!(preferred["spec"]["length"], 5);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn with_its_definition_go_all_its_objects() {
    let (kubectl, group) = with_boats("boats-end");
    let resource = format!("boats.{group}");
    for name in ["one", "two", "three"] {
        kubectl.apply(&boat(&group, name, json!({"length": 5})));
    }
    let events = kubectl.follow(&[
        "get",
        &resource,
        "--watch",
        "--output-watch-events",
        "-o",
        "jsonpath={.type} {.object.metadata.name}{\"\\n\"}",
    ]);
    for _ in 0..3 {
        assert!(events.line().starts_with("ADDED "));
    }
    let said = kubectl.says(&["delete", "crd", &format!("boats.{group}"), "--timeout=30s"]);
    assert_eq!(said, format!("customresourcedefinition.apiextensions.k8s.io \"boats.{group}\" deleted\n"));
    let mut gone: Vec<_> = (0..3).map(|_| events.line()).collect();
    gone.sort();
    assert_eq!(gone, ["DELETED one", "DELETED three", "DELETED two"]);
    until("the kind is gone", || {
        kubectl
            .run(&["get", &resource])
            .stderr
            .contains("the server doesn't have a resource type")
            .then_some(())
    });
    // Made anew, it is empty: nothing of the old one was kept.
    kubectl.apply(&definition(&group).to_string());
    kubectl.says(&["wait", "--for=condition=Established", &format!("crd/boats.{group}"), "--timeout=20s"]);
    until("the kind is back", || (kubectl.run(&["get", &resource]).code == 0).then_some(()));
    assert_eq!(kubectl.says(&["get", &resource, "-o", "name"]), "");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_definition_that_cannot_be_is_refused_with_reasons() {
    let kubectl = kubectl_in("boats-refused");
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut broken = definition("refused.example.com");
        change(&mut broken);
        let ended = kubectl.run_with_input(&["create", "-f", "-"], &broken.to_string());
        assert_ne!(ended.code, 0);
        ended.stderr
    };
    let why = refused(&|crd| crd["metadata"]["name"] = "ships.refused.example.com".into());
    assert!(
        why.contains("metadata.name: Invalid value: \"ships.refused.example.com\": must be spec.names.plural+\".\"+spec.group"),
        "{why}"
    );
    let why = refused(&|crd| crd["spec"]["versions"][0]["storage"] = false.into());
    assert!(
        why.contains("spec.versions: Invalid value: ")
            && why.contains("must have exactly one version marked as storage version"),
        "{why}"
    );
    let why = refused(&|crd| {
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
            .as_object_mut()
            .unwrap()
            .remove("type");
    });
    assert!(
        why.contains("properties[spec].type: Required value: must not be empty for specified object fields"),
        "{why}"
    );
    assert!(kubectl.complains(&["get", "crd", "boats.refused.example.com"]).contains("NotFound"));
}
