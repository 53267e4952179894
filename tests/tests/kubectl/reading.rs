//! Getting: every way of printing, selecting and following.

use sheaf_tests::kubectl::Kubectl;

use crate::kubectl_in;

const FRUIT: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: apple, labels: {tree: \"yes\", colour: red}}
data: {taste: sour, weight: '150'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cherry, labels: {tree: \"yes\", colour: red}}
data: {taste: sweet, weight: '8'}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: melon, labels: {colour: green}}
data: {taste: sweet, weight: '2000'}
";

fn orchard(namespace: &str) -> Kubectl {
    let kubectl = kubectl_in(namespace);
    kubectl.apply(FRUIT);
    kubectl
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// All but the last column, which is an age.
fn ageless(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| words(line).split_last().unwrap().1.to_vec()).collect()
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_list_is_printed_as_a_table_with_the_columns_of_the_kind() {
    let kubectl = orchard("reading-tables");
    let table = kubectl.says(&["get", "configmaps", "--selector", "colour"]);
    assert_eq!(ageless(&table), [["NAME", "DATA"], ["apple", "2"], ["cherry", "2"], ["melon", "2"]]);
    assert_eq!(words(table.lines().next().unwrap()).last(), Some(&"AGE"));

    let wide = kubectl.says(&["get", "cm", "apple", "-o", "wide", "--show-labels", "--no-headers"]);
    assert_eq!(words(&wide)[..2], ["apple", "2"]);
    assert_eq!(words(&wide).last(), Some(&"colour=red,tree=yes"));

    let labels = kubectl.says(&["get", "cm", "-l", "colour", "-L", "colour,tree"]);
    let rows: Vec<_> = labels.lines().map(|line| words(line)[3..].to_vec()).collect();
    assert_eq!(rows, [vec!["COLOUR", "TREE"], vec!["red", "yes"], vec!["red", "yes"], vec!["green"]]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn all_namespaces_are_told_apart_in_one_table() {
    let kubectl = orchard("reading-everywhere");
    let table = kubectl.says(&["get", "cm", "--all-namespaces", "--field-selector", "metadata.name=melon"]);
    assert!(ageless(&table).contains(&vec!["NAMESPACE", "NAME", "DATA"]), "{table}");
    assert!(ageless(&table).contains(&vec!["reading-everywhere", "melon", "2"]), "{table}");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn an_object_is_printed_in_every_format_with_the_same_content() {
    let kubectl = orchard("reading-formats");
    let json = kubectl.json(&["get", "cm", "apple"]);
    assert_eq!((&json["apiVersion"], &json["kind"]), (&"v1".into(), &"ConfigMap".into()));
    assert_eq!(json["data"], serde_json::json!({"taste": "sour", "weight": "150"}));
    assert_eq!(json["metadata"]["namespace"], "reading-formats");
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(json["metadata"][field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {json}");
    }

    let yaml = kubectl.says(&["get", "cm", "apple", "-o", "yaml"]);
    assert_eq!(serde_yaml_ng::from_str::<serde_json::Value>(&yaml).unwrap(), json);

    let path = "jsonpath={range .items[*]}{.metadata.name}={.data.weight}{\"\\n\"}{end}";
    assert_eq!(kubectl.says(&["get", "cm", "-l", "colour", "-o", path]), "apple=150\ncherry=8\nmelon=2000\n");
    let columns = "custom-columns=FRUIT:.metadata.name,TASTE:.data.taste,NOTHING:.data.nothing";
    let table = kubectl.says(&["get", "cm", "-l", "colour=red", "-o", columns]);
    let rows: Vec<_> = table.lines().map(words).collect();
    assert_eq!(
        rows,
        [["FRUIT", "TASTE", "NOTHING"], ["apple", "sour", "<none>"], ["cherry", "sweet", "<none>"]]
    );
    let template = "go-template={{range .items}}{{.metadata.name}} {{end}}";
    assert_eq!(kubectl.says(&["get", "cm", "-l", "tree", "-o", template]), "apple cherry ");
    assert_eq!(
        kubectl.says(&["get", "cm/apple", "cm/melon", "-o", "name"]),
        "configmap/apple\nconfigmap/melon\n"
    );
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn selectors_choose_and_what_is_not_there_is_said() {
    let kubectl = orchard("reading-selectors");
    let names = |args: &[&str]| {
        let text = kubectl.says(&[&["get", "cm", "-o", "name"], args].concat());
        text.lines().map(|line| line.strip_prefix("configmap/").unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&["-l", "colour in (red, blue)"]), ["apple", "cherry"]);
    assert_eq!(names(&["-l", "colour,!tree"]), ["melon"]);
    assert_eq!(names(&["-l", "colour!=red,colour"]), ["melon"]);
    assert_eq!(names(&["--field-selector", "metadata.name!=apple", "-l", "tree"]), ["cherry"]);
    let by_weight = ["-l", "colour", "--sort-by", "{.data.taste}"];
    assert_eq!(names(&by_weight)[0], "apple");

    let why = kubectl.complains(&["get", "cm", "durian"]);
    assert_eq!(why, "Error from server (NotFound): configmaps \"durian\" not found\n");
    let why = kubectl.complains(&["get", "cm", "--field-selector", "data.taste=sour"]);
    assert!(
        why.contains("(BadRequest)") && why.contains("\"data.taste\" is not a known field selector"),
        "{why}"
    );
    let why = kubectl.complains(&["get", "durians"]);
    assert_eq!(why, "error: the server doesn't have a resource type \"durians\"\n");
    let nothing = kubectl.run(&["get", "cm", "-l", "colour=black"]).succeeded();
    assert_eq!(nothing.stderr, "No resources found in reading-selectors namespace.\n");
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_followed_list_tells_every_change_in_order() {
    let kubectl = orchard("reading-watch");
    let form = "jsonpath={.type} {.object.metadata.name} {.object.data.weight}{\"\\n\"}";
    let follow = ["get", "cm", "-l", "colour", "--watch", "--output-watch-events", "-o", form];
    let events = kubectl.follow(&follow);
    let seen: Vec<_> = (0..3).map(|_| events.line()).collect();
    assert_eq!(seen, ["ADDED apple 150", "ADDED cherry 8", "ADDED melon 2000"]);

    for weight in 151..=155 {
        kubectl.says(&["patch", "cm", "apple", "-p", &format!("{{\"data\":{{\"weight\":\"{weight}\"}}}}")]);
    }
    kubectl.says(&["label", "cm", "melon", "colour-"]);
    kubectl.says(&["label", "cm", "melon", "colour=yellow"]);
    kubectl.says(&["delete", "cm", "cherry"]);
    let mut wanted: Vec<_> = (151..=155).map(|weight| format!("MODIFIED apple {weight}")).collect();
    // Out of view and into it again: for this selector, gone and come.
    wanted.extend(["DELETED melon 2000", "ADDED melon 2000", "DELETED cherry 8"].map(str::to_owned));
    let seen: Vec<_> = wanted.iter().map(|_| events.line()).collect();
    assert_eq!(seen, wanted);
    assert!(events.is_silent());
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_followed_table_has_its_heading_once() {
    let kubectl = orchard("reading-watch-table");
    let table = kubectl.follow(&["get", "cm", "apple", "--watch"]);
    assert_eq!(words(&table.line())[..2], ["NAME", "DATA"]);
    assert_eq!(words(&table.line())[..2], ["apple", "2"]);
    kubectl.says(&["patch", "cm", "apple", "-p", "{\"data\":{\"colour\":\"red\"}}"]);
    assert_eq!(words(&table.line())[..2], ["apple", "3"]);
    // Another object's changes are none of this watch's.
    kubectl.says(&["patch", "cm", "melon", "-p", "{\"data\":{\"colour\":\"green\"}}"]);
    assert!(table.is_silent());
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_is_served_is_listed_and_nothing_else() {
    let kubectl = kubectl_in("reading-discovery");
    let names = kubectl.says(&["api-resources", "-o", "name"]);
    let names: Vec<_> = names.lines().collect();
    for wanted in [
        "configmaps",
        "events",
        "namespaces",
        "nodes",
        "secrets",
        "serviceaccounts",
        "customresourcedefinitions.apiextensions.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "leases.coordination.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "storageclasses.storage.k8s.io",
    ] {
        assert!(names.contains(&wanted), "{wanted} is not among {names:?}");
    }
    // Nothing acts on these, so they are not there.
    for absent in ["deployments.apps", "replicationcontrollers", "jobs.batch"] {
        assert!(!names.contains(&absent), "{absent} is among {names:?}");
    }
    let short = kubectl.says(&["api-resources", "--namespaced=false", "--api-group=storage.k8s.io"]);
    assert!(short.lines().any(|line| words(line)[..2] == ["storageclasses", "sc"]), "{short}");
    let versions = kubectl.says(&["api-versions"]);
    assert!(versions.lines().any(|line| line == "coordination.k8s.io/v1"), "{versions}");
}
