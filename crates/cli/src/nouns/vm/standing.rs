//! How a machine stands, in words and colours, and what can be read off it.

use serde_json::Value;

use crate::asking::{
    facts::{amount, list, text},
    table::Tone,
};

/// What claims are made for it, in an annotation as Harvester writes it.
pub const CLAIM_TEMPLATES: &str = "harvesterhci.io/volumeClaimTemplates";
pub const DESCRIPTION: &str = "field.cattle.io/description";
pub const IMAGE_ID: &str = "harvesterhci.io/imageId";

pub fn status(vm: &Value) -> &str {
    match text(vm, "/status/printableStatus") {
        "" => "New",
        said => said,
    }
}

pub fn tone(status: &str) -> Tone {
    match status {
        "Running" => Tone::Good,
        "Stopped" => Tone::Quiet,
        "Paused"
        | "Starting"
        | "Provisioning"
        | "Stopping"
        | "Terminating"
        | "Migrating"
        | "WaitingForVolumeBinding"
        | "WaitingForReceiver"
        | "New" => Tone::Busy,
        _ => Tone::Bad,
    }
}

pub fn cpus(vm: &Value) -> u64 {
    let cpu = &vm["spec"]["template"]["spec"]["domain"]["cpu"];
    ["cores", "sockets", "threads"].iter().map(|part| cpu[*part].as_u64().unwrap_or(1)).product()
}

/// As it was asked for.
pub fn memory(vm: &Value) -> &str {
    let domain = "/spec/template/spec/domain";
    ["resources/limits/memory", "memory/guest", "resources/requests/memory"]
        .iter()
        .map(|place| text(vm, &format!("{domain}/{place}")))
        .find(|said| !said.is_empty())
        .unwrap_or_default()
}

pub fn memory_in_words(vm: &Value) -> String {
    amount(memory(vm))
}

/// Addresses that somebody could reach it at.
pub fn addresses(instance: &Value) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for one in list(instance, "/status/interfaces") {
        let all = list(one, "/ipAddresses").filter_map(Value::as_str);
        for address in all.chain(one["ipAddress"].as_str()) {
            let is_usable = !address.is_empty() && !address.starts_with("fe80:");
            if is_usable && !found.iter().any(|known| known == address) {
                found.push(address.to_owned());
            }
        }
    }
    found
}

/// Its disks with the claims behind them: `(disk, claim)`.
pub fn claims(vm: &Value) -> Vec<(String, String)> {
    list(vm, "/spec/template/spec/volumes")
        .filter_map(|volume| {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str()?;
            Some((text(volume, "/name").to_owned(), claim.to_owned()))
        })
        .collect()
}

/// What a condition is about where it is bad news, and what to do about it.
pub fn trouble(condition: &Value) -> Option<String> {
    let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
    let message = match text(condition, "/message") {
        "" => text(condition, "/reason"),
        message => message,
    };
    let is_bad = match kind {
        "Failure"
        | "RestartRequired"
        | "Synchronized"
        | "PodScheduled"
        | "DataVolumesReady"
        | "StorageExceedsQuota" => {
            (status == "True") == matches!(kind, "Failure" | "RestartRequired" | "StorageExceedsQuota")
        }
        _ => false,
    };
    is_bad.then(|| format!("{kind}: {message}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_tells_its_size_however_it_was_asked_for() {
        let vm = json!({"spec": {"template": {"spec": {"domain": {
            "cpu": {"cores": 2, "sockets": 3}, "memory": {"guest": "1Gi"}, "resources": {"limits": {"memory": "2Gi"}}}}}}});
        assert_eq!((cpus(&vm), memory(&vm)), (6, "2Gi"));
        assert_eq!(memory_in_words(&vm), "2 GiB");
        assert_eq!((cpus(&json!({})), memory(&json!({}))), (1, ""));
    }

    #[test]
    fn addresses_are_told_once_and_those_of_the_link_never() {
        let instance = json!({"status": {"interfaces": [
            {"ipAddress": "10.52.0.9", "ipAddresses": ["10.52.0.9", "fe80::1", "2001:db8::9"]}, {"ipAddress": ""}]}});
        assert_eq!(addresses(&instance), ["10.52.0.9", "2001:db8::9"]);
    }

    #[test]
    fn good_news_are_no_trouble() {
        let condition =
            |kind: &str, status: &str| trouble(&json!({"type": kind, "status": status, "message": "why"}));
        assert_eq!(condition("Failure", "True").as_deref(), Some("Failure: why"));
        assert_eq!(condition("Synchronized", "False").as_deref(), Some("Synchronized: why"));
        for (kind, status) in [("Ready", "False"), ("Failure", "False"), ("PodScheduled", "True")] {
            assert_eq!(condition(kind, status), None, "{kind}");
        }
    }
}
