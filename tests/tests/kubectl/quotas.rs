//! Quotas and limit ranges as kubectl makes and shows them.

use crate::kubectl_in;

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_quota_is_made_shown_and_kept() {
    let kubectl = kubectl_in("quotas");
    kubectl.says(&["create", "quota", "small", "--hard=secrets=1,requests.storage=2Gi"]);
    kubectl.says(&["create", "secret", "generic", "one", "--from-literal=a=b"]);
    let refused = kubectl.complains(&["create", "secret", "generic", "two", "--from-literal=a=b"]);
    assert!(
        refused.contains(
            "secrets \"two\" is forbidden: exceeded quota: small, requested: secrets=1, used: secrets=1, limited: secrets=1"
        ),
        "{refused}"
    );
    let shown = kubectl.says(&["get", "quota", "small", "--no-headers"]);
    assert!(shown.contains("requests.storage: 0/2Gi, secrets: 1/1"), "{shown}");
    let described = kubectl.says(&["describe", "quota", "small"]);
    let row: Vec<&str> = described.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(row, ["secrets", "1", "1"], "{described}");
    kubectl.says(&["delete", "secret", "one"]);
    kubectl.says(&["create", "secret", "generic", "two", "--from-literal=a=b"]);
}

#[test]
#[ignore = "needs kubectl: make test builds it"]
fn a_claim_out_of_its_range_is_refused() {
    let kubectl = kubectl_in("ranges");
    let range = "{apiVersion: v1, kind: LimitRange, metadata: {name: disks}, spec: {limits: [
        {type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 2Gi}}]}}";
    kubectl.run_with_input(&["apply", "-f", "-"], range).succeeded();
    let claim = |size: &str| {
        format!(
            "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: disk}}, spec: {{accessModes: \
             [ReadWriteOnce], resources: {{requests: {{storage: {size}}}}}}}}}"
        )
    };
    let refused = kubectl.complains(&["apply", "-f", &kubectl.file("large.yaml", &claim("5Gi"))]);
    assert!(
        refused.contains("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi"),
        "{refused}"
    );
    kubectl.run_with_input(&["apply", "-f", "-"], &claim("2Gi")).succeeded();
    let described = kubectl.says(&["describe", "limits", "disks"]);
    assert!(described.contains("PersistentVolumeClaim"), "{described}");
}
