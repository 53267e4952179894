//! storage.k8s.io/v1 StorageClass: which backend makes a volume, and how.

use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};

use super::{age_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
};

pub const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// On a class that the cluster itself needs.
pub const RESERVED_CLASS: &str = "harvesterhci.io/is-reserved-storageclass";
/// The class of a cluster in which nobody made another one.
pub const HARVESTER_LONGHORN: &str = "harvester-longhorn";
/// Who makes volumes here, by the name that Harvester's clients know.
pub const PROVISIONER: &str = "driver.longhorn.io";
/// Among the parameters of an image's class: the uid of the image.
pub const IMAGE_UID_PARAMETER: &str = "sheaf.io/imageUid";
/// Among the parameters of an image's class, and its annotations: `namespace/name` of the image.
pub const IMAGE_PARAMETER: &str = "sheaf.io/image";
/// What never changes once a class exists: volumes were made by it.
const FIXED: [&str; 4] = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];

pub fn kind() -> Kind {
    Kind::of_type::<StorageClass>("storageclasses")
        .cluster_scoped()
        .short(&["sc"])
        .columns(vec![
            Column::computed("Name", |class, _| {
                let default = class["metadata"]["annotations"][DEFAULT_CLASS] == "true";
                let name = text(&class["metadata"]["name"]);
                if default { format!("{name} (default)").into() } else { name.into() }
            })
            .format("name"),
            Column::computed("Provisioner", |class, _| class["provisioner"].clone()),
            Column::computed("ReclaimPolicy", |class, _| class["reclaimPolicy"].clone()),
            Column::computed("VolumeBindingMode", |class, _| class["volumeBindingMode"].clone()),
            Column::computed("AllowVolumeExpansion", |class, _| json!(class["allowVolumeExpansion"] == true)),
            age_column(),
        ])
        .behaving(Behaviour { default, validate, ..Behaviour::PLAIN })
}

fn default(class: &mut Value) {
    let Some(fields) = class.as_object_mut() else { return };
    fields.entry("reclaimPolicy").or_insert_with(|| "Delete".into());
    fields.entry("volumeBindingMode").or_insert_with(|| "Immediate".into());
    // The original leaves this one out. Harvester's Terraform provider takes all three apart without a look, and that
    // nothing was said means no in both.
    fields.entry("allowVolumeExpansion").or_insert_with(|| false.into());
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if text(&new["provisioner"]).is_empty() {
        errors.push(FieldError::required(&FieldPath::new("provisioner"), ""));
    }
    for (field, allowed) in [
        ("reclaimPolicy", ["Delete", "Retain"]),
        ("volumeBindingMode", ["Immediate", "WaitForFirstConsumer"]),
    ] {
        let value = text(&new[field]);
        if !allowed.contains(&value) {
            errors.push(FieldError::not_supported(&FieldPath::new(field), value, allowed.as_slice()));
        }
    }
    for field in FIXED.iter().filter(|field| old.is_some_and(|old| old[**field] != new[**field])) {
        errors.push(FieldError::forbidden(&FieldPath::new(field), "updates to this field are forbidden."));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads a class may take these three apart without a look, as the Terraform provider does.
    #[test]
    fn a_class_that_says_next_to_nothing_says_what_that_means() {
        let mut class = json!({"provisioner": "a"});
        default(&mut class);
        assert_eq!(
            class,
            json!({"provisioner": "a", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
                "allowVolumeExpansion": false})
        );
        let mut said = json!({"provisioner": "a", "allowVolumeExpansion": true});
        default(&mut said);
        assert_eq!(said["allowVolumeExpansion"], true);
    }

    #[test]
    fn a_class_does_not_change_under_its_volumes() {
        let mut class = json!({"provisioner": "a"});
        default(&mut class);
        assert!(validate(&class, None).is_empty());
        let mut other = class.clone();
        other["provisioner"] = "b".into();
        assert_eq!(validate(&other, Some(&class)).len(), 1);
        other = class.clone();
        other["allowVolumeExpansion"] = true.into();
        assert!(validate(&other, Some(&class)).is_empty());
    }
}
