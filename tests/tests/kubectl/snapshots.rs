//! Snapshots and what is made of them, from birth to death. Their node is one that is not there: whoever is at the terminal
//! says what it would say.

use serde_json::json;

use crate::kubectl_in;

/// A snapshot that some node keeps, for the VolumeSnapshot `kept` of a namespace.
fn content(namespace: &str) -> String {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
        "metadata": {"name": namespace, "annotations": {"sheaf.io/node": "elsewhere"}},
        "spec": {"driver": "driver.longhorn.io", "deletionPolicy": "Delete", "source": {"snapshotHandle": "snap-1"},
            "volumeSnapshotRef": {"namespace": namespace, "name": "kept"}},
    })
    .to_string()
}

fn snapshot(name: &str, source: &str) -> String {
    format!(
        "{{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshot, metadata: {{name: {name}}}, spec: {{source: \
         {{{source}}}}}}}"
    )
}

const CLAIM: &str = "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: restored}, spec: {accessModes: \
    [ReadWriteMany], volumeMode: Block, resources: {requests: {storage: 1Gi}}, dataSource: {apiGroup: \
    snapshot.storage.k8s.io, kind: VolumeSnapshot, name: kept}}}";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_snapshot_is_taken_over_copied_and_deleted_with_its_bytes() {
    let namespace = "snapshots-life";
    let kubectl = kubectl_in(namespace);
    kubectl.apply(&content(namespace));
    kubectl.apply(&snapshot("kept", &format!("volumeSnapshotContentName: {namespace}")));
    kubectl.says(&[
        "wait",
        "--for=jsonpath={.status.boundVolumeSnapshotContentName}",
        "vs/kept",
        "--timeout=60s",
    ]);
    let taken =
        r#"{"status":{"snapshotHandle":"snap-1","readyToUse":true,"restoreSize":1048576,"creationTime":1}}"#;
    kubectl.says(&["patch", "vsc", namespace, "--subresource=status", "--type=merge", "-p", taken]);
    kubectl.says(&["wait", "--for=jsonpath={.status.readyToUse}=true", "vs/kept", "--timeout=60s"]);
    let table = kubectl.says(&["get", "volumesnapshots"]);
    let mut lines = table.lines();
    assert_eq!(
        words(lines.next().unwrap())[..6],
        ["NAME", "READYTOUSE", "SOURCEPVC", "SOURCESNAPSHOTCONTENT", "RESTORESIZE", "SNAPSHOTCLASS"]
    );
    assert_eq!(words(lines.next().unwrap())[..4], ["kept", "true", namespace, "1Mi"]);

    kubectl.apply(CLAIM);
    kubectl.says(&["wait", "--for=create", "pvc/restored", "--timeout=60s"]);
    let uid = kubectl.says(&["get", "pvc", "restored", "-o", "jsonpath={.metadata.uid}"]);
    let volume = format!("pvc-{uid}");
    kubectl.says(&["wait", "--for=create", &format!("pv/{volume}"), "--timeout=60s"]);
    assert_eq!(kubectl.json(&["get", "pvc", "restored"])["status"]["phase"], "Pending");
    // It is still being copied, so what it is a copy of stays.
    kubectl.says(&["delete", "vs", "kept", "--wait=false"]);
    kubectl.says(&["annotate", "pv", &volume, "sheaf.io/made=true"]);
    kubectl.says(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/restored", "--timeout=60s"]);
    // Now its node would remove the bytes.
    let goes = "--for=jsonpath={.metadata.deletionTimestamp}";
    kubectl.says(&["wait", goes, &format!("vsc/{namespace}"), "--timeout=60s"]);
    kubectl.says(&["patch", "vsc", namespace, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    kubectl.says(&["wait", "--for=delete", "vs/kept", "--timeout=60s"]);
    kubectl.says(&["delete", "pvc", "restored"]);
    kubectl.says(&["patch", "pv", &volume, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn what_cannot_be_snapshotted_or_backed_up_says_why() {
    let kubectl = kubectl_in("snapshots-refused");
    let classes = kubectl.says(&["get", "vsclass", "-o", "name"]);
    assert!(classes.contains("/longhorn-snapshot") && classes.contains("/longhorn\n"), "{classes}");
    kubectl.apply(&snapshot("early", "persistentVolumeClaimName: nothing"));
    kubectl.says(&["wait", "--for=jsonpath={.status.error.message}", "vs/early", "--timeout=60s"]);
    let early = kubectl.json(&["get", "vs", "early"]);
    assert_eq!(early["status"]["error"]["message"], "the claim nothing does not exist");
    assert_eq!(early["spec"]["volumeSnapshotClassName"], "longhorn-snapshot");
    let source = r#"{"spec":{"source":{"persistentVolumeClaimName":"other"}}}"#;
    let refused = kubectl.run(&["patch", "vs", "early", "--type=merge", "-p", source]);
    assert!(refused.stderr.contains("persistentVolumeClaimName is immutable"), "{}", refused.stderr);
    kubectl.says(&["delete", "vs", "early"]);

    let backup = |sort: &str| {
        let source = json!({"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "nobody"});
        let backup = json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineBackup",
            "metadata": {"name": "b"}, "spec": {"type": sort, "source": source}});
        kubectl.run_with_input(&["apply", "-f", "-"], &backup.to_string()).stderr
    };
    assert!(backup("snapshot").contains("\"nobody\" not found"));
    assert!(backup("backup").contains("backup target is not set"));
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "a"},
        "spec": {"attacher": "driver.longhorn.io", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}}});
    let refused = kubectl.run_with_input(&["create", "-f", "-"], &attachment.to_string());
    assert!(
        refused.stderr.contains("does not allow this method"),
        "they are for reading: {}",
        refused.stderr
    );
}
