//! Settings, templates of machines, addons and quotas of snapshots, as somebody at a terminal meets them.

use sheaf_tests::patience::until;

use crate::kubectl_in;

const TEMPLATE: &str = "{apiVersion: harvesterhci.io/v1beta1, kind: VirtualMachineTemplate, metadata: {name: small}, spec: \
    {description: a small one}}";

fn version(name: &str, namespace: &str, memory: &str) -> String {
    format!(
        "{{apiVersion: harvesterhci.io/v1beta1, kind: VirtualMachineTemplateVersion, metadata: {{name: {name}}}, spec: \
         {{templateId: {namespace}/small, vm: {{spec: {{runStrategy: Halted, template: {{spec: {{domain: {{resources: \
         {{limits: {{cpu: 1, memory: {memory}}}}}, devices: {{}}}}}}}}}}}}}}}}"
    )
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_setting_is_set_says_whether_it_acts_and_goes_back() {
    let kubectl = kubectl_in("harvester-settings");
    let setting = "settings.harvesterhci.io/ntp-servers";
    let value = r#"{"value":"{\"ntpServers\":[\"10.0.0.1\"]}"}"#;
    kubectl.says(&["patch", setting, "--type=merge", "-p", value]);
    let reason = "--for=jsonpath={.status.conditions[0].status}=False";
    kubectl.says(&["wait", reason, setting, "--timeout=60s"]);
    let message = kubectl.says(&["get", setting, "-o", "jsonpath={.status.conditions[0].message}"]);
    assert!(message.contains("does not act on this setting yet"), "{message}");
    let refused = kubectl.complains(&["patch", setting, "--type=merge", "-p", r#"{"value":"soon"}"#]);
    assert!(refused.contains("is not JSON"), "{refused}");
    kubectl.says(&["patch", setting, "--type=merge", "-p", r#"{"value":""}"#]);
    kubectl.says(&[
        "wait",
        "--for=jsonpath={.status.conditions[0].status}=Unknown",
        setting,
        "--timeout=60s",
    ]);
    let refused = kubectl.complains(&["delete", setting]);
    assert!(refused.contains("settings may not be deleted"), "{refused}");
    // The log of the node follows its setting, which says so once it does.
    let level = "settings.harvesterhci.io/log-level";
    kubectl.says(&["patch", level, "--type=merge", "-p", r#"{"value":"warn"}"#]);
    kubectl.says(&["wait", "--for=jsonpath={.value}=warn", level, "--timeout=60s"]);
    kubectl.says(&["patch", level, "--type=merge", "-p", r#"{"value":""}"#]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_template_lives_with_its_versions() {
    let namespace = "harvester-templates";
    let kubectl = kubectl_in(namespace);
    kubectl.apply(TEMPLATE);
    kubectl.apply(&version("one", namespace, "1Gi"));
    kubectl.says(&["wait", "--for=jsonpath={.status.defaultVersion}=1", "vmtemplate/small", "--timeout=60s"]);
    kubectl.apply(&version("two", namespace, "2Gi"));
    kubectl.says(&["wait", "--for=jsonpath={.status.latestVersion}=2", "vmtemplate/small", "--timeout=60s"]);
    let table = kubectl.says(&["get", "vmtemplateversions", "--no-headers"]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    let template = format!("{namespace}/small");
    assert_eq!(rows, [["one", &template, "1"], ["two", &template, "2"]]);
    let refused = kubectl.complains(&["delete", "vmtemplateversion", "one"]);
    assert!(refused.contains("Cannot delete the default templateVersion"), "{refused}");
    kubectl.says(&["delete", "vmtemplate", "small"]);
    kubectl.says(&["wait", "--for=delete", "vmtemplateversion/one", "--timeout=60s"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn addons_are_listed_and_quotas_of_snapshots_are_kept() {
    let kubectl = kubectl_in("harvester-addons");
    let off = r#"{"spec":{"enabled":true}}"#;
    let refused =
        kubectl.complains(&["patch", "addon/descheduler", "-n", "kube-system", "--type=merge", "-p", off]);
    assert!(refused.contains("Sheaf does not run the addon descheduler"), "{refused}");
    kubectl.apply(
        "{apiVersion: harvesterhci.io/v1beta1, kind: ResourceQuota, metadata: {name: default-resource-quota}, spec: \
         {snapshotLimit: {namespaceTotalSnapshotSizeQuota: 1024}}}",
    );
    let table = kubectl.says(&["get", "hrq", "--no-headers"]);
    assert_eq!(table.split_whitespace().take(2).collect::<Vec<_>>(), ["default-resource-quota", "1024"]);
    kubectl.says(&["delete", "hrq", "default-resource-quota"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn an_uplink_says_why_it_cannot_be_and_goes_when_it_is_deleted() {
    let kubectl = kubectl_in("harvester-uplinks");
    kubectl
        .apply("{apiVersion: network.harvesterhci.io/v1beta1, kind: ClusterNetwork, metadata: {name: lab}}");
    // A NIC that no host has: nothing of this host is touched.
    kubectl.apply(
        "{apiVersion: network.harvesterhci.io/v1beta1, kind: VlanConfig, metadata: {name: one}, spec: \
         {clusterNetwork: lab, description: the first, uplink: {nics: [no-such-nic0]}}}",
    );
    let table = kubectl.says(&["get", "vc", "--no-headers"]);
    assert_eq!(table.split_whitespace().take(3).collect::<Vec<_>>(), ["one", "lab", "the"]);
    let message = "jsonpath={.items[*].status.conditions[0].message}";
    let of_it = ["get", "vss", "-l", "network.harvesterhci.io/vlanconfig=one", "-o", message];
    until("the node says so", || {
        kubectl.says(&of_it).contains("this node has no NIC no-such-nic0").then_some(())
    });
    let refused = kubectl.complains(&["delete", "cn", "lab"]);
    assert!(refused.contains("vlanconfig(s) one under this clusternetwork are still existing"), "{refused}");
    kubectl.says(&["delete", "vc", "one", "--timeout=60s"]);
    assert_eq!(kubectl.says(&["get", "vss", "--no-headers", "--ignore-not-found"]), "");
    kubectl.says(&["delete", "cn", "lab"]);
    let rule = kubectl.says(&["get", "lm", "nic", "-o", "jsonpath={.spec.targetLinkRule.typeRule}"]);
    assert_eq!(rule, "device");
}
