//! Amounts of what is counted, as whole numbers of its own unit.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::quantity;

/// By the name of what is counted: thousandths of cores, bytes, or pieces.
pub type Amounts = BTreeMap<String, i64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    MilliCores,
    Bytes,
    Pieces,
}

pub(super) fn unit_of(name: &str) -> Unit {
    if name.starts_with("count/") {
        return Unit::Pieces;
    }
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    let bare = last.strip_prefix("requests.").or_else(|| last.strip_prefix("limits.")).unwrap_or(last);
    match bare {
        "cpu" => Unit::MilliCores,
        "memory" | "storage" | "ephemeral-storage" => Unit::Bytes,
        _ if bare.starts_with("hugepages-") => Unit::Bytes,
        _ => Unit::Pieces,
    }
}

pub fn read(name: &str, amount: &Value) -> Option<i64> {
    let text = quantity::said(amount)?;
    match unit_of(name) {
        Unit::MilliCores => quantity::milli(&text),
        Unit::Bytes | Unit::Pieces => quantity::value(&text),
    }
}

pub(super) fn written(name: &str, amount: i64) -> String {
    match unit_of(name) {
        Unit::MilliCores => quantity::cores(amount).0,
        Unit::Bytes => quantity::bytes(amount).0,
        Unit::Pieces => amount.to_string(),
    }
}

/// What can be read of a list of amounts.
pub fn read_all(amounts: &Value) -> Amounts {
    let members = amounts.as_object().into_iter().flatten();
    members.filter_map(|(name, amount)| Some((name.clone(), read(name, amount)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_its_unit() {
        for (name, unit) in [
            ("cpu", Unit::MilliCores),
            ("limits.cpu", Unit::MilliCores),
            ("requests.storage", Unit::Bytes),
            ("fast.storageclass.storage.k8s.io/requests.storage", Unit::Bytes),
            ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", Unit::Pieces),
            ("hugepages-2Mi", Unit::Bytes),
            ("count/memory", Unit::Pieces),
            ("pods", Unit::Pieces),
        ] {
            assert_eq!(unit_of(name), unit, "{name}");
        }
        assert_eq!(written("requests.cpu", 1500), "1500m");
        assert_eq!(written("memory", 3 << 30), "3Gi");
    }
}
