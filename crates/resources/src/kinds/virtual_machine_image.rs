//! harvesterhci.io/v1beta1 VirtualMachineImage: what disks are copied from.
//!
//! An image comes from a URL (`download`), from an `upload`, from another image (`clone`) or from a disk
//! (`export-from-volume`). Other sources are known and refused until something acts on them, and so is encryption.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::{Value, json};

use super::{age_column, harvester_condition::HarvesterCondition, name_column, text};
use crate::{
    field_error::{FieldError, FieldPath},
    kind::{Behaviour, Column, Kind},
    not_yet::{NotYet, Unsupported},
    wire::{root_type, wire_type},
};

/// The class whose parameters the image's own class takes over.
pub const STORAGE_CLASS_ANNOTATION: &str = "harvesterhci.io/storageClassName";
/// The node that fetches and keeps it.
pub const NODE_ANNOTATION: &str = "sheaf.io/node";
/// Keeps an image until its bytes are gone.
pub const DATA_FINALIZER: &str = "sheaf.io/image-data";
pub const DISPLAY_NAME_LABEL: &str = "harvesterhci.io/imageDisplayName";
/// What it is to be attached as: [`DISC`] or [`DISK`]. The system says so where nobody else did.
pub const IMAGE_TYPE_LABEL: &str = "harvesterhci.io/image-type";
pub const DISC: &str = "iso";
pub const DISK: &str = "raw_qcow2";
pub const DOWNLOAD: &str = "download";
pub const UPLOAD: &str = "upload";
pub const CLONE: &str = "clone";
pub const EXPORT: &str = "export-from-volume";
/// True once it is known where the image comes from. False with a message is final for Terraform.
pub const INITIALIZED: &str = "Initialized";
/// True once the image is here.
pub const IMPORTED: &str = "Imported";
/// True once nothing is tried any more.
pub const RETRY_LIMIT_EXCEEDED: &str = "RetryLimitExceeded";

const SOURCES: [&str; 4] = [DOWNLOAD, UPLOAD, CLONE, EXPORT];
const LATER_SOURCES: [&str; 1] = ["restore"];
/// What an image is made of is said once: who said so was asked then whether they may read it.
const FIXED: [&str; 7] = [
    "displayName",
    "sourceType",
    "url",
    "storageClassParameters",
    "pvcName",
    "pvcNamespace",
    "securityParameters",
];
const RETRY: i64 = 3;
const MAX_RETRY: i64 = 10;

root_type! {
    /// What disks are copied from.
    VirtualMachineImage = "io.harvesterhci.v1beta1.VirtualMachineImage",
    "harvesterhci.io" / "v1beta1" "virtualmachineimages" NamespaceResourceScope {
        /// Where it comes from.
        spec: VirtualMachineImageSpec,
        /// How far it is.
        status: VirtualMachineImageStatus,
    }
}

wire_type! {
    /// Where an image comes from.
    VirtualMachineImageSpec = "io.harvesterhci.v1beta1.VirtualMachineImageSpec" {
        /// `backingimage` or `cdi`; the same to Sheaf.
        backend: String,
        /// What it is, for people.
        description: String,
        /// Its name for people; no two in a namespace have the same.
        display_name: String,
        /// `download`, `upload`, `clone` or `export-from-volume`.
        source_type: String,
        /// Where it is downloaded from.
        url: String,
        /// SHA-512 or SHA-256 of the file as it is sent, in hexadecimal.
        checksum: String,
        /// How often a failed download is tried again.
        retry: Option<i64>,
        /// Parameters of the class that its disks are made by.
        storage_class_parameters: BTreeMap<String, String>,
        /// The class whose parameters are taken over.
        target_storage_class_name: String,
        /// The claim whose disk it is made of.
        pvc_name: String,
        /// That claim's namespace.
        pvc_namespace: String,
        /// The image it is a clone of.
        security_parameters: ImageSecurityParameters,
    }
}

wire_type! {
    /// Which image is cloned, and how.
    ImageSecurityParameters = "io.harvesterhci.v1beta1.VirtualMachineImageSecurityParameters" {
        /// Not served yet.
        crypto_operation: NotYet,
        /// The image that is cloned.
        source_image_name: String,
        /// That image's namespace.
        source_image_namespace: String,
    }
}

wire_type! {
    /// How far an image is.
    VirtualMachineImageStatus = "io.harvesterhci.v1beta1.VirtualMachineImageStatus" {
        /// The URL it was or is being downloaded from.
        applied_url: String,
        /// Hundredths that are here.
        progress: i64,
        /// Bytes of the file; while it arrives, of what comes, once that is known.
        size: i64,
        /// Bytes of the disk inside.
        virtual_size: i64,
        /// The class that disks of this image are made by.
        storage_class_name: String,
        /// How often it failed.
        failed: i64,
        /// When it last failed.
        last_failed_time: String,
        /// The class whose parameters were taken over.
        target_storage_class_name: String,
        /// Initialized, Imported and RetryLimitExceeded.
        conditions: Vec<HarvesterCondition>,
    }
}

impl VirtualMachineImage {
    /// Namespace and name of the image that this one is a clone of.
    pub fn original(&self) -> Option<(&str, &str)> {
        let named = &self.spec.security_parameters;
        let place = (named.source_image_namespace.as_str(), named.source_image_name.as_str());
        (self.spec.source_type == CLONE).then_some(place)
    }

    /// Namespace and name of the claim whose disk this image is made of.
    pub fn exported_claim(&self) -> Option<(&str, &str)> {
        let place = (self.spec.pvc_namespace.as_str(), self.spec.pvc_name.as_str());
        (self.spec.source_type == EXPORT).then_some(place)
    }

    pub fn retries(&self) -> i64 {
        self.spec.retry.unwrap_or(RETRY)
    }

    pub fn condition(&self, condition_type: &str) -> Option<&HarvesterCondition> {
        self.status.conditions.iter().find(|condition| condition.condition_type == condition_type)
    }

    pub fn is_imported(&self) -> bool {
        self.condition(IMPORTED).is_some_and(|condition| condition.status == "True")
    }
}

/// The class that disks of an image are made by. Terraform's volumes have it written into them.
pub fn storage_class_name(image: &str) -> String {
    format!("longhorn-{image}")
}

pub fn kind() -> Kind {
    Kind::of_type::<VirtualMachineImage>("virtualmachineimages")
        .short(&["vmimage", "vmimages"])
        .columns(vec![
            name_column(),
            Column::computed("Backend", |image, _| image["spec"]["backend"].clone()),
            Column::computed("Display-Name", |image, _| image["spec"]["displayName"].clone()),
            Column::computed("Size", |image, _| image["status"]["size"].clone()).integer(),
            Column::computed("VirtualSize", |image, _| image["status"]["virtualSize"].clone()).integer(),
            age_column(),
        ])
        .behaving(Behaviour { default, validate, generation: true, ..Behaviour::PLAIN })
}

fn default(image: &mut Value) {
    if let Some(spec) = image["spec"].as_object_mut() {
        spec.entry("backend").or_insert_with(|| "backingimage".into());
        spec.entry("retry").or_insert_with(|| json!(RETRY));
    }
    // A label's value is shorter and plainer than a name may be.
    let name = image["spec"]["displayName"].clone();
    if !text(&name).is_empty() && crate::names::label_value_problems(text(&name)).is_empty() {
        if !image["metadata"]["labels"].is_object() {
            image["metadata"]["labels"] = json!({});
        }
        image["metadata"]["labels"][DISPLAY_NAME_LABEL] = name;
    }
}

/// What an image is given from other objects: the default class, by name and parameters,
/// unless it names one itself. `class_parameters` are those of the class it will follow.
pub fn complete(
    image: &mut Value,
    default_class: Option<&str>,
    class_parameters: &dyn Fn(&str) -> Option<Value>,
) {
    let named = text(&image["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION]);
    let target = text(&image["spec"]["targetStorageClassName"]);
    let class =
        [named, target, default_class.unwrap_or_default()].into_iter().find(|class| !class.is_empty());
    let Some(class) = class.map(str::to_owned) else { return };
    if !image["metadata"]["annotations"].is_object() {
        image["metadata"]["annotations"] = json!({});
    }
    if image["spec"]["storageClassParameters"].as_object().is_none_or(|parameters| parameters.is_empty())
        && let Some(parameters) = class_parameters(&class).filter(Value::is_object)
    {
        image["spec"]["storageClassParameters"] = parameters;
    }
    image["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION] = class.as_str().into();
    image["spec"]["targetStorageClassName"] = class.into();
}

fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    static UNSUPPORTED: LazyLock<Unsupported> = LazyLock::new(Unsupported::of::<VirtualMachineImage>);
    let mut errors = UNSUPPORTED.refuse(new);
    let path = FieldPath::new("spec");
    let spec = &new["spec"];
    if text(&spec["displayName"]).is_empty() {
        errors.push(FieldError::required(&path.child("displayName"), "displayName is required"));
    }
    let (source, url) = (text(&spec["sourceType"]), text(&spec["url"]));
    if LATER_SOURCES.contains(&source) {
        errors.push(FieldError::forbidden(
            &path.child("sourceType"),
            format!("{source} is not supported by Sheaf yet"),
        ));
    } else if !SOURCES.contains(&source) {
        errors.push(FieldError::not_supported(&path.child("sourceType"), source, SOURCES));
    }
    match source {
        DOWNLOAD if url.is_empty() => {
            errors.push(FieldError::required(&path.child("url"), "url is required"))
        }
        DOWNLOAD if !is_web_address(url) => {
            errors.push(FieldError::invalid(
                &path.child("url"),
                url,
                "url is invalid: it begins with http:// or https://",
            ));
        }
        UPLOAD | CLONE | EXPORT if !url.is_empty() => {
            let why = format!("url should be empty when image source type is {source:?}");
            errors.push(FieldError::invalid(&path.child("url"), url, why));
        }
        _ => {}
    }
    errors.extend(missing_source(source, spec));
    if !["", "backingimage", "cdi"].contains(&text(&spec["backend"])) {
        let at = path.child("backend");
        errors.push(FieldError::not_supported(&at, text(&spec["backend"]), ["backingimage", "cdi"]));
    }
    let checksum = text(&spec["checksum"]);
    let is_digest = [64, 128].contains(&checksum.len()) && checksum.bytes().all(|b| b.is_ascii_hexdigit());
    if !checksum.is_empty() && !is_digest {
        let why = "must be a SHA-512 or a SHA-256 in hexadecimal";
        errors.push(FieldError::invalid(&path.child("checksum"), checksum, why));
    }
    if let Some(retry) = spec["retry"].as_i64().filter(|retry| !(0..=MAX_RETRY).contains(retry)) {
        let why = format!("must be between 0 and {MAX_RETRY}");
        errors.push(FieldError::invalid(&path.child("retry"), retry, why));
    }
    if let Some(old) = old {
        // Clients that write the whole of an image say nothing in many words.
        let said = |spec: &Value, field: &str| Some(spec[field].clone()).filter(|said| !says_nothing(said));
        for field in FIXED {
            if said(spec, field) != said(&old["spec"], field) {
                let why = format!("{field} cannot be modified");
                errors.push(FieldError::forbidden(&path.child(field), why));
            }
        }
    }
    errors
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.values().all(says_nothing),
        value => value.is_null() || *value == "",
    }
}

/// What a source must name and does not, and what it names that is no name.
fn missing_source(source: &str, spec: &Value) -> Vec<FieldError> {
    let path = FieldPath::new("spec");
    let (named, at) = match source {
        CLONE => (&spec["securityParameters"], path.child("securityParameters")),
        EXPORT => (spec, path),
        _ => return Vec::new(),
    };
    let fields = match source {
        CLONE => [("sourceImageName", false), ("sourceImageNamespace", true)],
        _ => [("pvcName", false), ("pvcNamespace", true)],
    };
    let wrong = |(field, is_namespace): (&str, bool)| {
        let name = text(&named[field]);
        let problems = match is_namespace {
            true => crate::names::dns_label_problems(name),
            false => crate::names::dns_subdomain_problems(name),
        };
        match problems.into_iter().next() {
            _ if name.is_empty() => {
                Some(FieldError::required(&at.child(field), format!("{field} is required for {source}")))
            }
            Some(why) => Some(FieldError::invalid(&at.child(field), name, why)),
            None => None,
        }
    };
    fields.into_iter().filter_map(wrong).collect()
}

/// Only these are fetched: a path or another scheme would read what the host can read.
fn is_web_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '['))
        && !url.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Value {
        json!({"metadata": {"name": "image-1"}, "spec": {"displayName": "debian-12", "sourceType": "download",
            "url": "https://example.com/debian.qcow2"}})
    }

    #[test]
    fn an_image_is_given_what_it_lacks_once() {
        let mut image = image();
        default(&mut image);
        assert_eq!((&image["spec"]["backend"], &image["spec"]["retry"]), (&json!("backingimage"), &json!(3)));
        assert_eq!(image["metadata"]["labels"][DISPLAY_NAME_LABEL], "debian-12");
        let once = image.clone();
        default(&mut image);
        assert_eq!(image, once);
        assert_eq!(validate(&image, None), []);
    }

    #[test]
    fn an_image_follows_the_class_it_names_else_the_default_one() {
        let parameters = |class: &str| (class == "fast").then(|| json!({"numberOfReplicas": "3"}));
        let mut plain = image();
        complete(&mut plain, Some("fast"), &parameters);
        assert_eq!(plain["metadata"]["annotations"][STORAGE_CLASS_ANNOTATION], "fast");
        assert_eq!(plain["spec"]["targetStorageClassName"], "fast");
        assert_eq!(plain["spec"]["storageClassParameters"], json!({"numberOfReplicas": "3"}));
        let mut own = image();
        own["metadata"]["annotations"] = json!({STORAGE_CLASS_ANNOTATION: "slow"});
        complete(&mut own, Some("fast"), &parameters);
        assert_eq!(own["spec"]["targetStorageClassName"], "slow");
        let mut none = image();
        complete(&mut none, None, &parameters);
        assert_eq!(none, image());
    }

    #[test]
    fn where_an_image_comes_from_makes_sense_and_stays() {
        for (field, value, words) in [
            ("displayName", json!(""), "displayName is required"),
            ("sourceType", json!("restore"), "restore is not supported by Sheaf yet"),
            ("sourceType", json!("clone"), "sourceImageName is required for clone"),
            ("sourceType", json!("export-from-volume"), "pvcNamespace is required for export-from-volume"),
            ("sourceType", json!("magic"), "Unsupported value"),
            ("sourceType", json!("upload"), "url should be empty"),
            ("url", json!(""), "url is required"),
            ("url", json!("file:///etc/shadow"), "url is invalid"),
            ("url", json!("https:///x"), "url is invalid"),
            ("checksum", json!("abc"), "SHA-512 or a SHA-256"),
            ("checksum", json!("x".repeat(64)), "SHA-512 or a SHA-256"),
            ("retry", json!(11), "must be between 0 and 10"),
            ("backend", json!("tape"), "Unsupported value"),
            ("securityParameters", json!({"cryptoOperation": "encrypt"}), "is not supported by Sheaf yet"),
        ] {
            let mut image = image();
            image["spec"][field] = value;
            let said: Vec<String> = validate(&image, None).iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|line| line.contains(words)), "{field}: {said:?}");
        }
        for (source, fields) in [
            ("clone", json!({"securityParameters": {"sourceImageName": "a", "sourceImageNamespace": "b"}})),
            ("export-from-volume", json!({"pvcName": "a", "pvcNamespace": "b"})),
        ] {
            let mut image = json!({"metadata": {"name": "i"}, "spec": fields});
            image["spec"]["displayName"] = json!("d");
            image["spec"]["sourceType"] = json!(source);
            assert_eq!(validate(&image, None), [], "{source}");
            let mut elsewhere = image.clone();
            for (field, bad) in [("pvcName", "../b"), ("pvcNamespace", "a/b")] {
                elsewhere["spec"][field] = json!(bad);
            }
            elsewhere["spec"]["securityParameters"] =
                json!({"sourceImageName": "..", "sourceImageNamespace": "a/../b"});
            assert_eq!(validate(&elsewhere, None).len(), 2, "{source}");
            assert!(!validate(&elsewhere, Some(&image)).is_empty(), "{source} is moved");
        }
        for length in [64, 128] {
            let mut checked = image();
            checked["spec"]["checksum"] = json!("aB".repeat(length / 2));
            assert_eq!(validate(&checked, None), []);
        }
        let mut wordy = image();
        wordy["spec"]["pvcName"] = json!("");
        wordy["spec"]["securityParameters"] = json!({"sourceImageName": ""});
        assert_eq!(validate(&wordy, Some(&image())), []);
        let mut moved = image();
        moved["spec"]["url"] = json!("https://example.com/other");
        assert!(validate(&moved, Some(&image()))[0].detail.contains("url cannot be modified"));
    }
}
