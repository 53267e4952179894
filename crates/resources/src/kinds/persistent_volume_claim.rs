//! core/v1 PersistentVolumeClaim: somebody wants a disk.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use serde_json::{Value, json};

use super::{age_column, name_column, storage_class, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    quantity,
};

/// Who makes the volume: the provisioner of the claim's class.
pub const PROVISIONER_ANNOTATION: &str = "volume.kubernetes.io/storage-provisioner";
/// `namespace/name` of the image that the volume is a copy of.
pub const IMAGE_ANNOTATION: &str = "harvesterhci.io/imageId";
/// The condition of a claim whose volume is still to be made larger by its node.
pub const RESIZE_PENDING: &str = "FileSystemResizePending";
/// Keeps a claim while a machine uses it.
pub const PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// `(namespace, name)` of the image that a claim is a copy of: what its annotation says, else what its class is for.
pub fn image_of<'a>(annotation: &'a str, class_is_for: &'a str) -> Option<(&'a str, &'a str)> {
    let image = if annotation.is_empty() { class_is_for } else { annotation };
    image.split_once('/')
}

pub(super) const ACCESS_MODES: [(&str, &str); 4] = [
    ("ReadWriteOnce", "RWO"),
    ("ReadOnlyMany", "ROX"),
    ("ReadWriteMany", "RWX"),
    ("ReadWriteOncePod", "RWOP"),
];

pub fn kind() -> Kind {
    Kind::of_type::<PersistentVolumeClaim>("persistentvolumeclaims")
        .short(&["pvc"])
        .with_status()
        .columns(vec![
            name_column(),
            Column::computed("Status", |claim, _| match claim["metadata"]["deletionTimestamp"].is_null() {
                true => claim["status"]["phase"].clone(),
                false => "Terminating".into(),
            }),
            Column::computed("Volume", |claim, _| claim["spec"]["volumeName"].clone()),
            Column::computed("Capacity", |claim, _| bound(claim, &claim["status"]["capacity"]["storage"])),
            Column::computed("Access Modes", |claim, _| {
                bound(claim, &short_access_modes(&claim["status"]["accessModes"]).into())
            }),
            Column::computed("StorageClass", |claim, _| text(&claim["spec"]["storageClassName"]).into()),
            Column::computed("VolumeAttributesClass", |claim, _| {
                match text(&claim["spec"]["volumeAttributesClassName"]) {
                    "" => "<unset>".into(),
                    class => class.into(),
                }
            }),
            age_column(),
            Column::computed("VolumeMode", |claim, _| volume_mode(&claim["spec"])).wide(),
        ])
        .behaving(Behaviour {
            default,
            prepare_create,
            validate,
            finalizer_on_delete: Some(PROTECTION_FINALIZER),
            ..Behaviour::PLAIN
        })
}

/// Shown only once there is a volume to show it of.
fn bound(claim: &Value, value: &Value) -> Value {
    if text(&claim["spec"]["volumeName"]).is_empty() { "".into() } else { value.clone() }
}

pub(super) fn volume_mode(spec: &Value) -> Value {
    match text(&spec["volumeMode"]) {
        "" => "<unset>".into(),
        mode => mode.into(),
    }
}

/// `RWO,RWX`, in the order in which kubectl shows them.
pub(super) fn short_access_modes(modes: &Value) -> String {
    let there = |mode: &str| modes.as_array().into_iter().flatten().any(|found| found == mode);
    let short: Vec<&str> =
        ACCESS_MODES.iter().filter(|(mode, _)| there(mode)).map(|(_, short)| *short).collect();
    short.join(",")
}

fn default(claim: &mut Value) {
    if claim["spec"].is_object() && text(&claim["spec"]["volumeMode"]).is_empty() {
        claim["spec"]["volumeMode"] = "Filesystem".into();
    }
}

/// A claim begins unbound, whatever its maker says.
fn prepare_create(claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
}

/// Gives a claim without a class the default one. The classes are `(name, is default)`,
/// newest first, as the original chooses; an empty class name asks for none and gets none.
pub fn complete(claim: &mut Value, classes: &[(String, bool)]) {
    if claim["spec"].is_object()
        && claim["spec"]["storageClassName"].is_null()
        && let Some((name, _)) = classes.iter().find(|(_, is_default)| *is_default)
    {
        claim["spec"]["storageClassName"] = name.as_str().into();
    }
}

/// Whether a class is the one claims get that name none.
pub fn is_default_class(class: &Value) -> bool {
    class["metadata"]["annotations"][storage_class::DEFAULT_CLASS] == "true"
}

pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let modes = path.child("accessModes");
    if new["spec"]["accessModes"].as_array().is_none_or(Vec::is_empty) {
        errors.push(FieldError::required(&modes, "at least 1 access mode is required"));
    }
    let known = || ACCESS_MODES.iter().map(|(mode, _)| *mode);
    for mode in new["spec"]["accessModes"].as_array().into_iter().flatten() {
        if !known().any(|known| mode == known) {
            errors.push(FieldError::not_supported(&modes, text(mode), known()));
        }
    }
    let storage = path.child("resources").child("requests").key("storage");
    let asked = requested(new);
    match asked {
        None => errors.push(FieldError::required(&storage, "")),
        Some(size) if size <= 0 => {
            let value = new["spec"]["resources"]["requests"]["storage"].clone();
            errors.push(FieldError::invalid(&storage, value, "must be greater than zero"));
        }
        Some(_) => {}
    }
    let mode = text(&new["spec"]["volumeMode"]);
    if !["", "Block", "Filesystem"].contains(&mode) {
        errors.push(FieldError::not_supported(&path.child("volumeMode"), mode, ["Block", "Filesystem"]));
    }
    // Selecting volumes by label and filling claims from others come with what acts on them.
    for field in ["selector", "dataSource", "dataSourceRef", "volumeAttributesClassName"] {
        if !new["spec"][field].is_null() {
            errors.push(FieldError::forbidden(&path.child(field), "is not supported by Sheaf yet"));
        }
    }
    if let Some(old) = old {
        errors.extend(validate_update(new, old, asked));
    }
    errors
}

/// Only the size may change, upwards, and the volume's name once.
fn validate_update(new: &Value, old: &Value, asked: Option<i64>) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let mut errors = Vec::new();
    let settled = |claim: &Value| {
        let mut spec = claim["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.remove("resources");
            if text(&old["spec"]["volumeName"]).is_empty() {
                fields.remove("volumeName");
            }
            if old["spec"]["storageClassName"].is_null() {
                fields.remove("storageClassName");
            }
        }
        spec
    };
    if settled(new) != settled(old) {
        errors.push(FieldError::forbidden(
            &path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims",
        ));
    }
    let storage = path.child("resources").child("requests").child("storage");
    let (before, bound) = (requested(old), old["status"]["phase"] == "Bound");
    if asked < before {
        errors.push(FieldError::forbidden(&storage, "field can not be less than previous value"));
    }
    if asked > before && !bound && text(&new["spec"]["volumeName"]).is_empty() {
        errors.push(FieldError::forbidden(
            &path,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims",
        ));
    }
    errors
}

/// The bytes a claim of this spec asks for.
pub fn requested_by(spec: &PersistentVolumeClaimSpec) -> Option<i64> {
    quantity::value(&spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.0)
}

/// The bytes a claim asks for.
pub fn requested(claim: &Value) -> Option<i64> {
    match &claim["spec"]["resources"]["requests"]["storage"] {
        Value::String(text) => quantity::value(text),
        Value::Number(number) => quantity::value(&number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(size: &str) -> Value {
        json!({"metadata": {"name": "a"}, "status": {"phase": "Bound"}, "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "c", "volumeName": "pv",
            "resources": {"requests": {"storage": size}}}})
    }

    #[test]
    fn a_claim_grows_and_never_shrinks() {
        assert_eq!(validate(&claim("2Gi"), Some(&claim("1Gi"))), []);
        let errors = validate(&claim("1Gi"), Some(&claim("2Gi")));
        assert_eq!(
            errors[0].to_string(),
            "spec.resources.requests.storage: Forbidden: field can not be less than previous value"
        );
    }

    #[test]
    fn a_claim_that_waits_does_not_change() {
        let mut old = claim("1Gi");
        old["status"]["phase"] = json!("Pending");
        old["spec"].as_object_mut().unwrap().remove("volumeName");
        let mut new = old.clone();
        new["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        assert_eq!(validate(&new, Some(&old)).len(), 1);
        let mut bound = old.clone();
        bound["spec"]["volumeName"] = json!("pv");
        assert_eq!(validate(&bound, Some(&old)), [], "binding it is no change of what is wanted");
    }

    #[test]
    fn what_a_claim_is_stays() {
        for (field, value) in [
            ("volumeMode", json!("Filesystem")),
            ("storageClassName", json!("d")),
            ("volumeName", json!("q")),
        ] {
            let mut new = claim("1Gi");
            new["spec"][field] = value;
            assert_eq!(validate(&new, Some(&claim("1Gi"))).len(), 1, "{field}");
        }
    }

    #[test]
    fn a_claim_says_how_much_and_how() {
        let said: Vec<String> =
            validate(&json!({"spec": {}}), None).iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                "spec.resources.requests[storage]: Required value"
            ]
        );
        let mut odd = claim("0");
        odd["spec"]["accessModes"] = json!(["Sometimes"]);
        odd["spec"]["volumeMode"] = json!("Tape");
        odd["spec"]["dataSource"] = json!({"kind": "PersistentVolumeClaim", "name": "b"});
        assert_eq!(validate(&odd, None).len(), 4);
    }

    #[test]
    fn a_claim_without_a_class_gets_the_default_one() {
        let classes = [("a".to_owned(), false), ("b".to_owned(), true), ("c".to_owned(), true)];
        let mut claim = claim("1Gi");
        claim["spec"]["storageClassName"] = json!(null);
        complete(&mut claim, &classes);
        assert_eq!(claim["spec"]["storageClassName"], "b");
        claim["spec"]["storageClassName"] = json!("");
        complete(&mut claim, &classes);
        assert_eq!(claim["spec"]["storageClassName"], "", "an empty class asks for none");
    }

    #[test]
    fn a_new_claim_is_pending_whatever_its_maker_says() {
        let mut claim = claim("1Gi");
        prepare_create(&mut claim);
        assert_eq!(claim["status"], json!({"phase": "Pending"}));
    }

    #[test]
    fn kubectl_shows_a_bound_claim_as_it_knows_it() {
        let mut shown = claim("1Gi");
        shown["status"] = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany", "ReadWriteOnce"]});
        let cells: Vec<Value> = kind()
            .columns
            .iter()
            .filter(|column| column.name != "Age")
            .map(|column| match column.cell {
                crate::kind::Cell::Computed(compute) => compute(&shown, 0),
                crate::kind::Cell::Declared(_) => Value::Null,
            })
            .collect();
        assert_eq!(json!(cells), json!(["a", "Bound", "pv", "1Gi", "RWO,RWX", "c", "<unset>", "Block"]));
    }
}
