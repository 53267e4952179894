//! What instances are, as metrics: which there are, where and in which phase.
//!
//! Names and labels are those of KubeVirt's controller. A label that would be empty is left out, as there. What its
//! objects do not say (instance types and preferences, which are not served) has no label at all.

use std::{collections::BTreeMap, fmt::Write};

use serde_json::Value;

use crate::cache::{Cache, Resource};

const INFO: &str = "kubevirt_vmi_info";
const COUNT: &str = "kubevirt_vmi_phase_count";
/// By which labels of [`INFO`] instances are counted.
const COUNTED_BY: &[&str] = &[
    "node",
    "phase",
    "os",
    "workload",
    "flavor",
    "guest_os_kernel_release",
    "guest_os_machine",
    "guest_os_arch",
    "guest_os_name",
    "guest_os_version_id",
];

/// Writes what there is to say of all instances.
pub fn write(text: &mut String, cache: &Cache) {
    let (instances, _) = cache.snapshot(&Resource::new("kubevirt.io", "virtualmachineinstances"));
    if instances.is_empty() {
        return;
    }
    let (pods, _) = cache.snapshot(&Resource::new("", "pods"));
    let launchers: BTreeMap<String, String> = pods
        .iter()
        .filter_map(|(_, pod)| {
            let made_for = pod.labels().find(|(key, _)| *key == "kubevirt.io/created-by")?.1;
            Some((made_for.to_owned(), pod.name().to_owned()))
        })
        .collect();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {INFO} What an instance is.\n# TYPE {INFO} gauge");
    for (_, instance) in instances.iter() {
        let labels = labels_of(&instance.to_value(), &launchers);
        let _ = writeln!(text, "{INFO}{{{}}} 1", joined(labels.iter()));
        let counted = labels.iter().filter(|(label, _)| COUNTED_BY.contains(label));
        *counts.entry(joined(counted)).or_default() += 1;
    }
    let _ = writeln!(text, "# HELP {COUNT} How many instances there are of a kind, by node and phase.");
    let _ = writeln!(text, "# TYPE {COUNT} gauge");
    for (labels, count) in counts {
        let _ = writeln!(text, "{COUNT}{{{labels}}} {count}");
    }
}

type Label = (&'static str, String);

fn labels_of(instance: &Value, launchers: &BTreeMap<String, String>) -> Vec<Label> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (metadata, status) = (&instance["metadata"], &instance["status"]);
    let annotation = |key: &str| text(&metadata["annotations"][format!("vm.kubevirt.io/{key}")]);
    let guest = &status["guestOSInfo"];
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let outdated = !metadata["labels"]["kubevirt.io/outdatedLauncherImage"].is_null();
    vec![
        ("node", text(&status["nodeName"])),
        ("namespace", text(&metadata["namespace"])),
        ("name", text(&metadata["name"])),
        ("phase", text(&status["phase"]).to_lowercase()),
        ("os", annotation("os")),
        ("workload", annotation("workload")),
        ("flavor", annotation("flavor")),
        ("guest_os_kernel_release", text(&guest["kernelRelease"])),
        ("guest_os_machine", text(&status["machine"]["type"])),
        ("guest_os_arch", text(&guest["machine"])),
        ("guest_os_name", text(&guest["name"])),
        ("guest_os_version_id", text(&guest["versionId"])),
        ("evictable", is_evictable(instance).to_string()),
        ("outdated", outdated.to_string()),
        ("vmi_pod", launchers.get(uid).cloned().unwrap_or_default()),
    ]
}

/// One that must be moved before its node is emptied, and cannot be, is in the way.
fn is_evictable(instance: &Value) -> bool {
    let must_move = instance["spec"]["evictionStrategy"] == "LiveMigrate";
    let conditions = instance["status"]["conditions"].as_array().into_iter().flatten();
    let can_move = conditions
        .filter(|condition| condition["type"] == "LiveMigratable")
        .any(|condition| condition["status"] == "True");
    !must_move || can_move
}

fn joined<'a>(labels: impl Iterator<Item = &'a Label>) -> String {
    let mut text = String::new();
    for (label, value) in labels.filter(|(_, value)| !value.is_empty()) {
        let comma = if text.is_empty() { "" } else { "," };
        let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        // Writing to a String cannot fail.
        let _ = write!(text, r#"{comma}{label}="{value}""#);
    }
    text
}
