//! The claims a machine brings along: an annotation with a JSON list, as Harvester's
//! clients write it.
//!
//! Each claim that is missing is made in the machine's namespace, without an owner: claims
//! outlive machines. One that is there and smaller is grown; none is ever shrunk.

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

use super::super::{persistent_volume_claim, text};
use crate::{
    field_error::{FieldError, FieldPath},
    names, quantity,
};

pub const ANNOTATION: &str = "harvesterhci.io/volumeClaimTemplates";

/// Why the annotation cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ClaimTemplatesError {
    #[error("the volumeClaimTemplates annotation is invalid: {reason}")]
    NotAList { reason: String },
    #[error("PVC name is required")]
    Nameless,
    #[error("targetVolume of {claim} is not supported by Sheaf yet")]
    TargetVolume { claim: String },
}

/// The claims in the annotation's text. An empty text is an empty list.
pub fn parse(annotation: &str) -> Result<Vec<PersistentVolumeClaim>, ClaimTemplatesError> {
    if annotation.trim().is_empty() {
        return Ok(Vec::new());
    }
    let not_a_list = |why: serde_json::Error| ClaimTemplatesError::NotAList { reason: why.to_string() };
    let entries: Vec<Value> = serde_json::from_str(annotation).map_err(not_a_list)?;
    let mut claims = Vec::new();
    for entry in entries {
        let claim: PersistentVolumeClaim = serde_json::from_value(with_type(&entry)).map_err(not_a_list)?;
        let name = claim.metadata.name.clone().unwrap_or_default();
        if name.is_empty() {
            return Err(ClaimTemplatesError::Nameless);
        }
        if !text(&entry["targetVolume"]).is_empty() {
            return Err(ClaimTemplatesError::TargetVolume { claim: name });
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Entries seldom say what they are, and the decoder insists.
fn with_type(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(fields) = entry.as_object_mut() {
        fields.insert("apiVersion".into(), "v1".into());
        fields.insert("kind".into(), "PersistentVolumeClaim".into());
    }
    entry
}

/// The claim to create: what the template says, in the machine's namespace, and nothing
/// that ties it to the machine.
pub fn claim_to_create(template: &PersistentVolumeClaim, namespace: &str) -> PersistentVolumeClaim {
    let wanted = &template.metadata;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: wanted.name.clone(),
            namespace: Some(namespace.to_owned()),
            labels: wanted.labels.clone(),
            annotations: wanted.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The bytes a claim asks for.
pub fn requested_bytes(claim: &PersistentVolumeClaim) -> Option<i64> {
    let requests = claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?;
    quantity::value(&requests.get("storage")?.0)
}

pub(super) fn validate(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let annotation = text(&new["metadata"]["annotations"][ANNOTATION]);
    let at = FieldPath::new("metadata").child("annotations").key(ANNOTATION);
    let claims = match parse(annotation) {
        Ok(claims) => claims,
        Err(why) => return vec![FieldError::invalid(&at, "<annotation>", why.to_string())],
    };
    let before = old.map(|old| text(&old["metadata"]["annotations"][ANNOTATION])).unwrap_or_default();
    let before = parse(before).unwrap_or_default();
    let mut errors = Vec::new();
    for (n, claim) in claims.iter().enumerate() {
        let name = name_of(claim);
        for why in names::dns_subdomain_problems(name) {
            errors.push(FieldError::invalid(&at, name, why));
        }
        if claims[..n].iter().any(|other| name_of(other) == name) {
            errors.push(FieldError::duplicate(&at, name));
        }
        if requested_bytes(claim).is_none_or(|size| size <= 0) {
            errors.push(FieldError::invalid(&at, name, "must request storage"));
            continue;
        }
        let former = before.iter().find(|former| name_of(former) == name);
        if former != Some(claim) {
            // What would be refused as a claim is refused here, where its author reads it.
            let whole = serde_json::to_value(claim_to_create(claim, "")).unwrap_or_default();
            for why in persistent_volume_claim::validate(&whole, None) {
                errors.push(FieldError::invalid(&at, name, why.to_string()));
            }
        }
        let Some(former) = former else { continue };
        if requested_bytes(claim) < requested_bytes(former) {
            let why = format!("{name} PVC requests storage can't be less than previous value");
            errors.push(FieldError::invalid(&at, name, why));
        }
        if class_of(claim) != class_of(former) {
            let why = format!("the storage class of PVC {name} cannot be changed");
            errors.push(FieldError::invalid(&at, name, why));
        }
    }
    errors
}

fn name_of(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.name.as_deref().unwrap_or_default()
}

fn class_of(claim: &PersistentVolumeClaim) -> &str {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    class.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(name: &str, size: &str, class: &str) -> Value {
        json!({
            "metadata": {"name": name, "annotations": {"harvesterhci.io/imageId": "default/image-1"}},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
                "resources": {"requests": {"storage": size}}},
        })
    }

    fn machine(templates: Value) -> Value {
        json!({"metadata": {"annotations": {ANNOTATION: templates.to_string()}}})
    }

    #[test]
    fn a_template_that_would_be_refused_as_a_claim_is_refused_at_once() {
        let mut cases = Vec::new();
        for (field, value) in
            [("accessModes", json!([])), ("volumeMode", json!("Tape")), ("selector", json!({}))]
        {
            let mut template = template("d", "1Gi", "");
            template["spec"][field] = value;
            cases.push((field, template));
        }
        for (field, template) in cases {
            let new = machine(json!([template]));
            let errors = validate(&new, None);
            assert!(errors.iter().any(|error| error.to_string().contains(field)), "{field}: {errors:?}");
            // One that is there already is not held against who changes something else.
            assert!(validate(&new, Some(&new)).is_empty());
        }
    }

    #[test]
    fn what_the_node_driver_writes_is_read() {
        let text = json!([template("vm-disk-0-abcde", "10Gi", "longhorn-image-1")]).to_string();
        let claims = parse(&text).unwrap();
        assert_eq!(requested_bytes(&claims[0]), Some(10 << 30));
        let claim = claim_to_create(&claims[0], "web");
        assert_eq!(claim.metadata.namespace.as_deref(), Some("web"));
        assert_eq!(claim.metadata.owner_references, None, "claims outlive machines");
        assert_eq!(claim.metadata.annotations.unwrap()["harvesterhci.io/imageId"], "default/image-1");
    }

    #[test]
    fn no_annotation_is_no_claims_and_nonsense_is_refused() {
        assert!(parse("").unwrap().is_empty());
        assert!(parse("[]").unwrap().is_empty());
        for (text, words) in [
            ("{", "the volumeClaimTemplates annotation is invalid"),
            ("{}", "the volumeClaimTemplates annotation is invalid"),
            ("[{}]", "PVC name is required"),
            (r#"[{"metadata": {"name": "a"}, "targetVolume": "b"}]"#, "not supported by Sheaf yet"),
        ] {
            assert!(parse(text).unwrap_err().to_string().contains(words), "{text}");
        }
    }

    #[test]
    fn a_claim_grows_and_never_shrinks() {
        let old = machine(json!([template("a", "10Gi", "c")]));
        assert_eq!(validate(&machine(json!([template("a", "20Gi", "c")])), Some(&old)), []);
        let errors = validate(&machine(json!([template("a", "5Gi", "c")])), Some(&old));
        assert_eq!(errors[0].detail, "a PVC requests storage can't be less than previous value");
    }

    #[test]
    fn a_claim_stays_in_its_class() {
        let old = machine(json!([template("a", "10Gi", "c")]));
        assert_eq!(validate(&machine(json!([template("a", "10Gi", "d")])), Some(&old)).len(), 1);
    }

    #[test]
    fn a_claim_has_a_name_of_its_own_and_a_size() {
        let twice = machine(json!([template("a", "1Gi", "c"), template("a", "1Gi", "c")]));
        assert_eq!(validate(&twice, None).len(), 1);
        let sizeless = machine(json!([{"metadata": {"name": "a"}}]));
        assert_eq!(validate(&sizeless, None)[0].detail, "must request storage");
    }
}
