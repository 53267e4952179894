//! harvesterhci.io/v1beta1 Version: a release.
//!
//! In the original these are releases that a cluster could be upgraded to. Nothing upgrades a cluster from within here yet,
//! so none can be made: there is the one that runs, for clients that list them. See decision 0026.

use serde_json::{Value, json};

use super::{age_column, name_column, namespace::HARVESTER_SYSTEM, setting::HARVESTER_VERSION, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind, Verbs},
    wire::{root_type, wire_type},
};

/// On the release that runs.
pub const RUNNING_TAG: &str = "running";

root_type! {
    /// A release.
    Version = "io.harvesterhci.v1beta1.Version",
    "harvesterhci.io" / "v1beta1" "versions" NamespaceResourceScope {
        /// Where it is, and from which releases one gets to it.
        spec: VersionSpec,
    }
}

wire_type! {
    /// A release.
    VersionSpec = "io.harvesterhci.v1beta1.VersionSpec" {
        /// Where its disc is.
        #[serde(rename = "isoURL")]
        iso_url: String,
        /// The SHA-512 of the disc.
        iso_checksum: String,
        /// When it was made.
        release_date: String,
        /// The oldest release that can be upgraded to it.
        min_upgradable_version: String,
        /// What is to be known of it.
        tags: Vec<String>,
    }
}

/// The release that runs.
pub fn running() -> Value {
    json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "Version",
        "metadata": {"name": HARVESTER_VERSION, "namespace": HARVESTER_SYSTEM},
        "spec": {"isoURL": "", "tags": [RUNNING_TAG]},
    })
}

pub fn kind() -> Kind {
    let kind = Kind { verbs: Verbs::ReadOnly, ..Kind::of_type::<Version>("versions") };
    kind.columns(vec![
        name_column(),
        Column::computed("ISO-URL", |version, _| version["spec"]["isoURL"].clone()),
        Column::computed("ReleaseDate", |version, _| version["spec"]["releaseDate"].clone()),
        Column::computed("MinUpgradableVersion", |version, _| {
            version["spec"]["minUpgradableVersion"].clone()
        }),
        age_column(),
    ])
    .behaving(Behaviour { validate, generation: true, ..Behaviour::PLAIN })
}

fn validate(new: &Value, _old: Option<&Value>) -> Vec<FieldError> {
    let at = FieldPath::new("spec").child("isoChecksum");
    let checksum = text(&new["spec"]["isoChecksum"]);
    let is_sha512 =
        checksum.len() == 128 && checksum.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match checksum.is_empty() || is_sha512 {
        true => Vec::new(),
        false => vec![FieldError::invalid(&at, checksum, format!("invalid isoChecksum {checksum}"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_a_sha_512() {
        assert_eq!(validate(&running(), None), []);
        for (checksum, fits) in [("a".repeat(128), true), ("a".repeat(64), false), ("G".repeat(128), false)] {
            let mut version = running();
            version["spec"]["isoChecksum"] = json!(checksum);
            assert_eq!(validate(&version, None).is_empty(), fits, "{checksum}");
        }
    }
}
