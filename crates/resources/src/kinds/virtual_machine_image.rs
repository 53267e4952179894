//! harvesterhci.io/v1beta1 VirtualMachineImage: what disks are copied from.
//!
//! Today an image comes from a URL (`download`) or from an upload. Other sources are known
//! and refused until something acts on them.

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
/// True once it is known where the image comes from. False with a message is final for Terraform.
pub const INITIALIZED: &str = "Initialized";
/// True once the image is here.
pub const IMPORTED: &str = "Imported";
/// True once nothing is tried any more.
pub const RETRY_LIMIT_EXCEEDED: &str = "RetryLimitExceeded";

const SOURCES: [&str; 2] = ["download", "upload"];
const LATER_SOURCES: [&str; 3] = ["export-from-volume", "restore", "clone"];
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
        /// `download` or `upload`.
        source_type: String,
        /// Where it is downloaded from.
        url: String,
        /// SHA-512 of the file, in hexadecimal.
        checksum: String,
        /// How often a failed download is tried again.
        retry: Option<i64>,
        /// Parameters of the class that its disks are made by.
        storage_class_parameters: BTreeMap<String, String>,
        /// The class whose parameters are taken over.
        target_storage_class_name: String,
        /// Not served yet.
        pvc_name: NotYet,
        /// Not served yet.
        pvc_namespace: NotYet,
        /// Not served yet.
        security_parameters: NotYet,
    }
}

wire_type! {
    /// How far an image is.
    VirtualMachineImageStatus = "io.harvesterhci.v1beta1.VirtualMachineImageStatus" {
        /// The URL it was or is being downloaded from.
        applied_url: String,
        /// Hundredths that are here.
        progress: i64,
        /// Bytes of the file.
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
        "download" if url.is_empty() => {
            errors.push(FieldError::required(&path.child("url"), "url is required"))
        }
        "download" if !is_web_address(url) => {
            errors.push(FieldError::invalid(
                &path.child("url"),
                url,
                "url is invalid: it begins with http:// or https://",
            ));
        }
        "upload" if !url.is_empty() => {
            let why = "url should be empty when image source type is \"upload\"";
            errors.push(FieldError::invalid(&path.child("url"), url, why));
        }
        _ => {}
    }
    if !["", "backingimage", "cdi"].contains(&text(&spec["backend"])) {
        let at = path.child("backend");
        errors.push(FieldError::not_supported(&at, text(&spec["backend"]), ["backingimage", "cdi"]));
    }
    let checksum = text(&spec["checksum"]);
    if !checksum.is_empty() && (checksum.len() != 128 || !checksum.bytes().all(|b| b.is_ascii_hexdigit())) {
        let why = "must be a SHA-512 in hexadecimal";
        errors.push(FieldError::invalid(&path.child("checksum"), checksum, why));
    }
    if let Some(retry) = spec["retry"].as_i64().filter(|retry| !(0..=MAX_RETRY).contains(retry)) {
        let why = format!("must be between 0 and {MAX_RETRY}");
        errors.push(FieldError::invalid(&path.child("retry"), retry, why));
    }
    if let Some(old) = old {
        for field in ["displayName", "sourceType", "url", "storageClassParameters"] {
            if spec[field] != old["spec"][field] {
                let why = format!("{field} cannot be modified");
                errors.push(FieldError::forbidden(&path.child(field), why));
            }
        }
    }
    errors
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
            ("sourceType", json!("clone"), "clone is not supported by Sheaf yet"),
            ("sourceType", json!("magic"), "Unsupported value"),
            ("sourceType", json!("upload"), "url should be empty"),
            ("url", json!(""), "url is required"),
            ("url", json!("file:///etc/shadow"), "url is invalid"),
            ("url", json!("https:///x"), "url is invalid"),
            ("checksum", json!("abc"), "SHA-512"),
            ("retry", json!(11), "must be between 0 and 10"),
            ("backend", json!("tape"), "Unsupported value"),
            ("securityParameters", json!({"cryptoOperation": "encrypt"}), "is not supported by Sheaf yet"),
        ] {
            let mut image = image();
            image["spec"][field] = value;
            let said: Vec<String> = validate(&image, None).iter().map(ToString::to_string).collect();
            assert!(said.iter().any(|line| line.contains(words)), "{field}: {said:?}");
        }
        let mut moved = image();
        moved["spec"]["url"] = json!("https://example.com/other");
        assert!(validate(&moved, Some(&image()))[0].detail.contains("url cannot be modified"));
    }
}
