//! core/v1 PersistentVolumeClaim: somebody wants a disk.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};
use serde_json::{Value, json};

use super::{age_column, name_column, storage_class, text, volume_snapshot};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    quantity,
};

/// Who makes the volume: the provisioner of the claim's class.
pub const PROVISIONER_ANNOTATION: &str = "volume.kubernetes.io/storage-provisioner";
/// On a claim that somebody is to upload into, which `virtctl image-upload` then waits for.
const UPLOAD_ANNOTATION: &str = "cdi.kubevirt.io/storage.upload.target";
const NO_UPLOADS: &str = "nothing is uploaded into claims here: make a VirtualMachineImage of sourceType upload \
    (sheaf image upload does), and a claim of it";
/// `namespace/name` of the image that the volume is a copy of.
pub const IMAGE_ANNOTATION: &str = "harvesterhci.io/imageId";
/// The condition of a claim whose volume is still to be made larger by its node.
pub const RESIZE_PENDING: &str = "FileSystemResizePending";
/// The condition of a claim whose volume is not made because there is no room for it.
pub const PROVISIONING_FAILED: &str = "ProvisioningFailed";
/// The condition of a claim whose volume does not grow because there is no room for that.
pub const RESIZE_ERROR: &str = "ControllerResizeError";
/// The reason of both.
pub const NO_ROOM: &str = "InsufficientStorage";
/// Keeps a claim while a machine uses it.
pub const PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";

/// `(namespace, name)` of the image that a claim is a copy of: what its annotation says, else what its class is for.
pub fn image_of<'a>(annotation: &'a str, class_is_for: &'a str) -> Option<(&'a str, &'a str)> {
    let image = if annotation.is_empty() { class_is_for } else { annotation };
    image.split_once('/')
}

/// What a claim is to be a copy of, in its own namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DataSource {
    Snapshot(String),
    Claim(String),
}

/// What a claim of this spec is to be a copy of. Admission lets no other source in.
pub fn data_source_of(spec: &PersistentVolumeClaimSpec) -> Option<DataSource> {
    let (kind, name) = match (&spec.data_source_ref, &spec.data_source) {
        (Some(source), _) => (source.kind.as_str(), &source.name),
        (None, Some(source)) => (source.kind.as_str(), &source.name),
        (None, None) => return None,
    };
    match kind {
        SNAPSHOT_KIND => Some(DataSource::Snapshot(name.clone())),
        _ => Some(DataSource::Claim(name.clone())),
    }
}

const SNAPSHOT_KIND: &str = "VolumeSnapshot";
const CLAIM_KIND: &str = "PersistentVolumeClaim";

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
    // Each of the two stands for the other, as far as both can say it.
    let (source, reference) = (&claim["spec"]["dataSource"], &claim["spec"]["dataSourceRef"]);
    if !source.is_null() && reference.is_null() {
        claim["spec"]["dataSourceRef"] = source.clone();
    } else if source.is_null() && !reference.is_null() && text(&reference["namespace"]).is_empty() {
        claim["spec"]["dataSource"] = reference.clone();
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
    if old.is_none() && !new["metadata"]["annotations"][UPLOAD_ANNOTATION].is_null() {
        let at = FieldPath::new("metadata").child("annotations").key(UPLOAD_ANNOTATION);
        errors.push(FieldError::forbidden(&at, NO_UPLOADS));
    }
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
    // Selecting volumes by label comes with what acts on it.
    for field in ["selector", "volumeAttributesClassName"] {
        if !new["spec"][field].is_null() {
            errors.push(FieldError::forbidden(&path.child(field), "is not supported by Sheaf yet"));
        }
    }
    match old {
        Some(old) => errors.extend(validate_update(new, old, asked)),
        None => errors.extend(validate_data_source(new)),
    }
    errors
}

/// A claim is filled by what Sheaf has: a snapshot or a claim of its own namespace.
fn validate_data_source(claim: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let (source, reference) = (&claim["spec"]["dataSource"], &claim["spec"]["dataSourceRef"]);
    let (at, given) = if reference.is_null() {
        (path.child("dataSource"), source)
    } else {
        (path.child("dataSourceRef"), reference)
    };
    if given.is_null() {
        return Vec::new();
    }
    let mut errors = Vec::new();
    let same = |field: &str| text(&source[field]) == text(&reference[field]);
    if !source.is_null() && !reference.is_null() && !["apiGroup", "kind", "name"].into_iter().all(same) {
        errors.push(FieldError::invalid(&path, "<object>", "must match dataSourceRef"));
    }
    let (group, kind, name) = (text(&given["apiGroup"]), text(&given["kind"]), text(&given["name"]));
    if !matches!((group, kind), ("", CLAIM_KIND) | (volume_snapshot::GROUP, SNAPSHOT_KIND)) {
        let why = format!(
            "nobody here fills a claim from {kind:?} of group {group:?}: {SNAPSHOT_KIND} of {} and {CLAIM_KIND} are \
             served",
            volume_snapshot::GROUP
        );
        errors.push(FieldError::forbidden(&at.child("kind"), why));
    }
    if name.is_empty() {
        errors.push(FieldError::required(&at.child("name"), ""));
    } else if kind == CLAIM_KIND && claim["metadata"]["name"] == name {
        errors.push(FieldError::invalid(&at.child("name"), name, "a claim is no copy of itself"));
    }
    let namespace = text(&given["namespace"]);
    if !namespace.is_empty() && claim["metadata"]["namespace"] != namespace {
        let why = "a claim is filled from its own namespace alone";
        errors.push(FieldError::forbidden(&at.child("namespace"), why));
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
    fn nobody_waits_for_an_upload_into_a_claim_that_never_comes() {
        let mut asked = claim("1Gi");
        asked["metadata"]["annotations"] = json!({UPLOAD_ANNOTATION: ""});
        let errors = validate(&asked, None);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].to_string().contains("VirtualMachineImage of sourceType upload"), "{}", errors[0]);
        // What is there already, from before or from elsewhere, can still be changed.
        assert_eq!(validate(&asked, Some(&asked)), []);
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
        odd["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        assert_eq!(validate(&odd, None).len(), 4);
    }

    fn copy(source: Value) -> Value {
        let mut claim = claim("1Gi");
        claim["metadata"] = json!({"name": "a", "namespace": "default"});
        claim["spec"]["dataSource"] = source;
        default(&mut claim);
        claim
    }

    #[test]
    fn a_claim_is_filled_from_a_snapshot_or_a_claim_of_its_own_namespace_and_from_nothing_else() {
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
        for source in [snapshot.clone(), json!({"kind": "PersistentVolumeClaim", "name": "b"})] {
            assert_eq!(validate(&copy(source), None), []);
        }
        for (source, words) in [
            (json!({"kind": "VolumeSnapshot", "name": "s"}), "nobody here fills a claim"),
            (json!({"apiGroup": "a.b", "kind": "Populator", "name": "s"}), "nobody here fills a claim"),
            (json!({"kind": "PersistentVolumeClaim", "name": "a"}), "a claim is no copy of itself"),
            (json!({"kind": "PersistentVolumeClaim", "name": ""}), "Required value"),
        ] {
            let said: Vec<String> = validate(&copy(source), None).iter().map(ToString::to_string).collect();
            assert!(said.len() == 1 && said[0].contains(words), "{said:?}");
        }
        let mut foreign = copy(snapshot.clone());
        foreign["spec"]["dataSourceRef"]["namespace"] = json!("other");
        assert!(validate(&foreign, None)[0].to_string().contains("its own namespace alone"));
        let mut torn = copy(snapshot);
        torn["spec"]["dataSourceRef"]["name"] = json!("t");
        assert!(validate(&torn, None)[0].to_string().contains("must match dataSourceRef"));
    }

    #[test]
    fn the_two_ways_to_name_a_source_say_the_same() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "b"});
        let claim = copy(source.clone());
        assert_eq!(claim["spec"]["dataSourceRef"], source);
        let mut other = claim.clone();
        other["spec"].as_object_mut().unwrap().remove("dataSource");
        default(&mut other);
        assert_eq!(other, claim);
        let spec: PersistentVolumeClaimSpec = serde_json::from_value(claim["spec"].clone()).unwrap();
        assert_eq!(data_source_of(&spec), Some(DataSource::Claim("b".into())));
        let mut moved = claim.clone();
        moved["spec"]["dataSource"]["name"] = json!("c");
        moved["spec"]["dataSourceRef"]["name"] = json!("c");
        assert_eq!(validate(&moved, Some(&claim)).len(), 1, "what it is a copy of stays");
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
