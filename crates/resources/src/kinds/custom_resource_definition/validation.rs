//! Says what is wrong with a definition, before anything is built on it.
//!
//! The definition has passed the type check and has been defaulted and prepared. Where all
//! versions agree on a schema, subresources, columns or selectable fields, the original
//! looks at them once and calls them `spec.validation`, `spec.subresources` and so on; the
//! paths here are the same. What is wrong with the metadata beyond the name is checked for
//! every kind alike, elsewhere.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Names, list, status, storage_version, text, texts};
use crate::field_error::{FieldError, FieldPath};
use crate::kinds;
use crate::names::{dns_1035_label_problems, dns_subdomain_problems};
use crate::quote::quoted;
use crate::schema::{Schema, SchemaType, is_recognised_format, structural};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

const MAX_SELECTABLE_FIELDS: usize = 8;

const APPROVAL: &str = "api-approved.kubernetes.io";
/// The group of webhooks and policies. Who writes one of its objects relies on its being asked about other people's requests.
const OF_WEBHOOKS: &str = "admissionregistration.k8s.io";

/// Everything wrong with a new definition.
pub fn validate_create(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    name(crd, &mut errors);
    whole(crd, None, &mut errors);
    errors
}

/// Everything wrong with a changed definition.
pub fn validate_update(crd: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let fixed: &[&[&str]] = if status::is_true(old, "Established") {
        // These decide how objects are stored.
        &[&["scope"], &["names", "kind"], &["group"], &["names", "plural"]]
    } else {
        // These are the definition's own name.
        &[&["group"], &["names", "plural"]]
    };
    whole(crd, Some(old), &mut errors);
    for path in fixed {
        let pointer = format!("/spec/{}", path.join("/"));
        let (new, old) = (crd.pointer(&pointer), old.pointer(&pointer));
        if new != old {
            let field = FieldPath::new("spec").child(&path.join("."));
            let new = new.cloned().unwrap_or(Value::Null);
            errors.push(FieldError::invalid(&field, new, "field is immutable"));
        }
    }
    errors
}

/// Everything wrong with a status that somebody wrote.
pub fn validate_status(crd: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let accepted = Names::read(&crd["status"]["acceptedNames"]);
    names(&accepted, &FieldPath::new("status").child("acceptedNames"), &mut errors);
    errors
}

/// What is no error and yet probably not meant: formats that will never be checked. Those
/// the old definition had already are not told again.
pub fn warnings(crd: &Value, old: Option<&Value>) -> Vec<String> {
    let mut unknown = unrecognised_formats(crd);
    if let Some(old) = old {
        let before = unrecognised_formats(old);
        unknown.retain(|format| !before.contains(format));
    }
    unknown.into_iter().map(|format| format!("unrecognized format {}", quoted(&format))).collect()
}

fn unrecognised_formats(crd: &Value) -> BTreeSet<String> {
    let mut formats = BTreeSet::new();
    for version in list(&crd["spec"]["versions"]) {
        if let Ok(schema) = Schema::parse(&version["schema"]["openAPIV3Schema"]) {
            schema.visit(&mut |schema| {
                let format = schema.format.as_deref().unwrap_or_default();
                if !format.is_empty() && !is_recognised_format(schema.kind.as_ref(), format) {
                    formats.insert(format.to_owned());
                }
            });
        }
    }
    formats
}

fn name(crd: &Value, errors: &mut Vec<FieldError>) {
    let name = text(&crd["metadata"]["name"]);
    let here = FieldPath::new("metadata").child("name");
    let mut problems = dns_subdomain_problems(name);
    let spec = &crd["spec"];
    if name != format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])) {
        problems.push("must be spec.names.plural+\".\"+spec.group".to_owned());
    }
    errors.extend(problems.into_iter().map(|problem| FieldError::invalid(&here, name, problem)));
    if kinds::is_built_in(text(&spec["group"]), text(&spec["names"]["plural"])) {
        let why = format!("{name} is served by Sheaf itself and cannot be defined anew");
        errors.push(FieldError::forbidden(&FieldPath::new("spec").child("names").child("plural"), why));
    }
    if text(&spec["group"]) == OF_WEBHOOKS {
        let why = "admission webhooks and policies are not served yet, and objects that look like them would be \
            obeyed by nobody";
        errors.push(FieldError::forbidden(&FieldPath::new("spec").child("group"), why));
    }
}

fn whole(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &crd["spec"];
    let path = FieldPath::new("spec");
    group(text(&spec["group"]), &path.child("group"), errors);
    one_of(text(&spec["scope"]), &["Cluster", "Namespaced"], &path.child("scope"), errors);
    versions(spec, &path, errors);
    let asked = Names::read(&spec["names"]);
    let names_path = path.child("names");
    let required = [
        ("plural", &asked.plural),
        ("singular", &asked.singular),
        ("kind", &asked.kind),
        ("listKind", &asked.list_kind),
    ];
    for (key, value) in required {
        if value.is_empty() {
            errors.push(FieldError::required(&names_path.child(key), ""));
        }
    }
    names(&asked, &names_path, errors);
    shared(spec, &path, errors);
    conversion(&spec["conversion"], &path.child("conversion"), errors);
    errors.extend(validate_status(crd));
    stored_versions(crd, errors);
    approval(crd, old, errors);
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
            spec.versions[*].schema instead";
        errors.push(FieldError::invalid(&path.child("preserveUnknownFields"), true, detail));
    }
}

fn group(group: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let problems = dns_subdomain_problems(group);
    if group.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !problems.is_empty() {
        errors.push(FieldError::invalid(path, group, problems.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(path, group, "should be a domain with at least one dot"));
    }
}

fn one_of(value: &str, accepted: &[&str], path: &FieldPath, errors: &mut Vec<FieldError>) {
    if value.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !accepted.contains(&value) {
        errors.push(FieldError::not_supported(path, value, accepted));
    }
}

/// What the versions have in common, by field; `None` where they differ.
fn agreed<'a>(versions: &'a [Value], field: &str) -> Option<&'a Value> {
    let first = &versions.first()?[field];
    versions.iter().all(|version| version[field] == *first).then_some(first)
}

fn versions(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let versions = list(&spec["versions"]);
    let here = path.child("versions");
    for (index, version) in versions.iter().enumerate() {
        if version["schema"]["openAPIV3Schema"].is_null() {
            let field = here.index(index).child("schema").child("openAPIV3Schema");
            errors.push(FieldError::required(&field, "schemas are required"));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let at = here.index(index);
        let name = text(&version["name"]);
        let problems = dns_1035_label_problems(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&at.child("name"), name, problems.join(",")));
        }
        deprecation(version, &at.child("deprecationWarning"), errors);
        let subresources = &version["subresources"];
        if agreed(versions, "schema").is_none() {
            let with_status = subresources["status"].is_object();
            schema(&version["schema"], with_status, &at.child("schema"), errors);
        }
        if agreed(versions, "subresources").is_none() {
            self::subresources(subresources, &at.child("subresources"), errors);
        }
        if agreed(versions, "additionalPrinterColumns").is_none() {
            let columns = at.child("additionalPrinterColumns");
            self::columns(&version["additionalPrinterColumns"], &columns, errors);
        }
        if agreed(versions, "selectableFields").is_none() {
            let fields = at.child("selectableFields");
            selectable(&version["selectableFields"], &version["schema"], &fields, errors);
        }
    }
    let all: Vec<&str> = versions.iter().map(|version| text(&version["name"])).collect();
    if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
        errors.push(FieldError::invalid(&here, all.clone(), "must contain unique version names"));
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(&here, all, detail));
    }
}

/// What all versions agree on.
fn shared(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let versions = list(&spec["versions"]);
    if let Some(shared) = agreed(versions, "schema") {
        let with_status = versions.iter().any(|version| version["subresources"]["status"].is_object());
        schema(shared, with_status, &path.child("validation"), errors);
    }
    if let Some(shared) = agreed(versions, "subresources") {
        subresources(shared, &path.child("subresources"), errors);
    }
    if let Some(shared) = agreed(versions, "additionalPrinterColumns") {
        columns(shared, &path.child("additionalPrinterColumns"), errors);
    }
    if let Some(shared) = agreed(versions, "selectableFields") {
        let fields = path.child("selectableFields");
        // Fields in common need not mean a schema in common: they must fit every one.
        let schemas: Vec<&Value> = match agreed(versions, "schema") {
            Some(schema) => vec![schema],
            None => versions.iter().map(|version| &version["schema"]).collect(),
        };
        schemas.into_iter().for_each(|schema| selectable(shared, schema, &fields, errors));
    }
}

fn schema(validation: &Value, with_status: bool, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let openapi = &validation["openAPIV3Schema"];
    if openapi.is_null() {
        return;
    }
    let here = path.child("openAPIV3Schema");
    match Schema::parse(openapi) {
        Ok(schema) => errors.extend(structural::check(&schema, &here, with_status)),
        Err(why) => errors.push(FieldError::invalid(&here, "", why.to_string())),
    }
}

fn deprecation(version: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(warning) = version["deprecationWarning"].as_str() else { return };
    let mut refuse = |detail: String| errors.push(FieldError::invalid(path, warning, detail));
    if version["deprecated"] != true {
        refuse("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning.len() > 256 {
        refuse("must be <= 256 characters long".to_owned());
    }
    if warning.is_empty() {
        refuse("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| c.is_control()) {
        refuse(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

fn names(names: &Names, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut label = |field: FieldPath, name: &str| {
        let problems = dns_1035_label_problems(name);
        if !problems.is_empty() {
            errors.push(FieldError::invalid(&field, name, problems.join(",")));
        }
    };
    for (key, name) in [("plural", &names.plural), ("singular", &names.singular)] {
        if !name.is_empty() {
            label(path.child(key), name);
        }
    }
    for (index, name) in names.short_names.iter().enumerate() {
        label(path.child("shortNames").index(index), name);
    }
    for (index, name) in names.categories.iter().enumerate() {
        label(path.child("categories").index(index), name);
    }
    for (key, name) in [("kind", &names.kind), ("listKind", &names.list_kind)] {
        let problems = dns_1035_label_problems(&name.to_lowercase());
        if !name.is_empty() && !problems.is_empty() {
            let detail = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
            errors.push(FieldError::invalid(&path.child(key), name.as_str(), detail));
        }
    }
    if !names.kind.is_empty() && names.kind == names.list_kind {
        let here = path.child("listKind");
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&here, names.list_kind.as_str(), detail));
    }
}

fn subresources(subresources: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let scale = &subresources["scale"];
    if !scale.is_object() {
        return;
    }
    let required = [("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")];
    for (key, under) in required {
        let here = path.child("scale").child(key);
        let value = text(&scale[key]);
        if value.is_empty() {
            errors.push(FieldError::required(&here, ""));
        } else if simple_path(value, &here, errors) && !value.starts_with(&format!("{under}.")) {
            let detail = format!("should be a json path under {under}");
            errors.push(FieldError::invalid(&here, value, detail));
        }
    }
    let selector = text(&scale["labelSelectorPath"]);
    let here = path.child("scale").child("labelSelectorPath");
    if !selector.is_empty()
        && simple_path(selector, &here, errors)
        && !selector.starts_with(".spec.")
        && !selector.starts_with(".status.")
    {
        let detail = "should be a json path under either .spec or .status";
        errors.push(FieldError::invalid(&here, selector, detail));
    }
}

fn simple_path(value: &str, path: &FieldPath, errors: &mut Vec<FieldError>) -> bool {
    let simple = value.starts_with('.');
    if !simple {
        errors.push(FieldError::invalid(path, value, "must be a simple json path starting with ."));
    }
    simple
}

fn columns(columns: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, column) in list(columns).iter().enumerate() {
        let here = path.index(index);
        if text(&column["name"]).is_empty() {
            errors.push(FieldError::required(&here.child("name"), ""));
        }
        let kind = text(&column["type"]);
        let detail = format!("must be one of {}", COLUMN_TYPES.join(","));
        if kind.is_empty() {
            errors.push(FieldError::required(&here.child("type"), detail));
        } else if !COLUMN_TYPES.contains(&kind) {
            errors.push(FieldError::invalid(&here.child("type"), kind, detail));
        }
        let format = text(&column["format"]);
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let detail = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(FieldError::invalid(&here.child("format"), format, detail));
        }
        // The original spells this one with capitals.
        let field = here.child("JSONPath");
        match text(&column["jsonPath"]) {
            "" => errors.push(FieldError::required(&field, "")),
            json_path => {
                simple_path(json_path, &field, errors);
            }
        }
    }
}

fn selectable(fields: &Value, validation: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let fields = list(fields);
    if fields.is_empty() {
        return;
    }
    // What is wrong with the schema itself is said where the schema is.
    let Ok(schema) = Schema::parse(&validation["openAPIV3Schema"]) else { return };
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let here = path.index(index).child("jsonPath");
        let json_path = text(&field["jsonPath"]);
        if json_path.is_empty() {
            errors.push(FieldError::required(&here, ""));
            continue;
        }
        let found = match schema_at(json_path, &schema) {
            Ok(found) => found,
            Err(why) => {
                errors.push(FieldError::invalid(&here, json_path, format!("is an invalid path: {why}")));
                continue;
            }
        };
        if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            errors.push(FieldError::invalid(&here, json_path, "must not point to fields in metadata"));
        }
        if !matches!(found.kind, Some(SchemaType::String | SchemaType::Boolean | SchemaType::Integer)) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                strings with formats are allowed.";
            errors.push(FieldError::invalid(&here, json_path, detail));
        }
        if !seen.insert(json_path) {
            errors.push(FieldError::duplicate(&here, json_path));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        errors.push(FieldError::too_many(path, seen.len() as u64, MAX_SELECTABLE_FIELDS as u64));
    }
}

/// The schema of the field that a dotted path names.
fn schema_at<'a>(json_path: &str, schema: &'a Schema) -> Result<&'a Schema, String> {
    let Some(names) = json_path.strip_prefix('.') else {
        let found = json_path.split(['.', '[', ']']).next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {found}"));
    };
    if names.contains(['[', ']']) {
        return Err("array notation is not allowed".to_owned());
    }
    names.split('.').try_fold(schema, |schema, name| match name {
        "" => Err("unexpected end of JSON path".to_owned()),
        name if schema.properties.is_empty() => {
            schema.field(name).ok_or_else(|| "does not refer to a valid field".to_owned())
        }
        name => schema.properties.get(name).ok_or_else(|| "does not refer to a valid field".to_owned()),
    })
}

fn conversion(conversion: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if conversion.is_null() {
        return;
    }
    let strategy = text(&conversion["strategy"]);
    let here = path.child("strategy");
    one_of(strategy, &["None", "Webhook"], &here, errors);
    if strategy == "Webhook" {
        let detail = "conversion webhooks are not served yet: set spec.conversion.strategy to None, which \
            serves every version as the same object under another apiVersion";
        errors.push(FieldError::forbidden(&here, detail));
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    let webhook = &conversion["webhook"];
    if !webhook["clientConfig"].is_null() {
        errors.push(FieldError::forbidden(&path.child("webhookClientConfig"), detail));
    }
    if !list(&webhook["conversionReviewVersions"]).is_empty() {
        errors.push(FieldError::forbidden(&path.child("conversionReviewVersions"), detail));
    }
}

/// A version that objects are stored in may not go while they are.
fn stored_versions(crd: &Value, errors: &mut Vec<FieldError>) {
    let here = FieldPath::new("status").child("storedVersions");
    let stored = texts(&crd["status"]["storedVersions"]);
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(FieldError::invalid(&here, Value::Array(Vec::new()), detail));
        return;
    }
    if let Some(version) = storage_version(crd)
        && !stored.contains(&version)
    {
        let detail = format!("must have the storage version {version}");
        errors.push(FieldError::invalid(&here, stored.clone(), detail));
    }
    let versions: Vec<&str> =
        list(&crd["spec"]["versions"]).iter().map(|version| text(&version["name"])).collect();
    for (index, version) in stored.iter().enumerate() {
        if !versions.contains(&version.as_str()) {
            let detail = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {version} and \
                 removes {version} from status.storedVersions"
            );
            errors.push(FieldError::invalid(&here.index(index), version.as_str(), detail));
        }
    }
}

/// How a definition in a group of the Kubernetes community shows that it was approved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Approval {
    Missing,
    Bypassed,
    Approved,
    Invalid,
}

impl Approval {
    fn of(crd: &Value) -> Self {
        match text(&crd["metadata"]["annotations"][APPROVAL]) {
            "" => Self::Missing,
            value if value.starts_with("unapproved") => Self::Bypassed,
            value if value.split_once("://").is_some_and(|(scheme, rest)| is_url(scheme, rest)) => {
                Self::Approved
            }
            _ => Self::Invalid,
        }
    }
}

fn is_url(scheme: &str, rest: &str) -> bool {
    !scheme.is_empty()
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
        && rest.bytes().next().is_some_and(|b| b != b'/' && b != b'?')
}

fn approval(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let group = text(&crd["spec"]["group"]);
    let protected = |domain: &str| group == domain || group.ends_with(&format!(".{domain}"));
    let state = Approval::of(crd);
    // Nobody is asked again for what was let pass before.
    if !(protected("k8s.io") || protected("kubernetes.io"))
        || old.is_some_and(|old| Approval::of(old) == state)
    {
        return;
    }
    let here = FieldPath::new("metadata").child("annotations").key(APPROVAL);
    let must = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    let see = "see https://github.com/kubernetes/enhancements/pull/1111";
    match state {
        Approval::Approved | Approval::Bypassed => {}
        Approval::Missing => errors.push(FieldError::required(&here, format!("{must}, {see}"))),
        Approval::Invalid => {
            let value = text(&crd["metadata"]["annotations"][APPROVAL]);
            let detail = format!("{must} with either a URL or a reason starting with \"unapproved\", {see}");
            errors.push(FieldError::invalid(&here, value, detail));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::custom_resource_definition::tests::widgets;
    use crate::kinds::custom_resource_definition::{prepare_create, prepare_update};

    /// The errors after `change`, with the status prepared as on a write.
    fn after(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut crd = widgets();
        change(&mut crd);
        prepare_create(&mut crd);
        texts_of(validate_create(&crd))
    }

    fn texts_of(errors: Vec<FieldError>) -> Vec<String> {
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_definition_has_nothing_wrong() {
        assert_eq!(after(|_| {}), Vec::<String>::new());
    }

    #[test]
    fn the_name_is_plural_and_group() {
        assert_eq!(
            after(|crd| crd["metadata"]["name"] = json!("other.example.com")),
            [
                r#"metadata.name: Invalid value: "other.example.com": must be spec.names.plural+"."+spec.group"#
            ]
        );
    }

    #[test]
    fn groups_scopes_and_names_are_checked() {
        let errors = after(|crd| {
            crd["metadata"]["name"] = json!("widgets.example");
            crd["spec"]["group"] = json!("example");
            crd["spec"]["scope"] = json!("Everywhere");
            crd["spec"]["names"]["listKind"] = json!("Widget");
            crd["spec"]["names"]["shortNames"] = json!(["Wd"]);
        });
        assert_eq!(
            errors[0],
            r#"spec.group: Invalid value: "example": should be a domain with at least one dot"#
        );
        assert_eq!(
            errors[1],
            r#"spec.scope: Unsupported value: "Everywhere": supported values: "Cluster", "Namespaced""#
        );
        assert!(errors[2].starts_with(
            r#"spec.names.shortNames[0]: Invalid value: "Wd": a DNS-1035 label must consist of"#
        ));
        assert_eq!(
            errors[3],
            r#"spec.names.listKind: Invalid value: "Widget": kind and listKind may not be the same"#
        );
    }

    #[test]
    fn exactly_one_version_is_stored_and_names_are_unique() {
        let errors = after(|crd| {
            let version = crd["spec"]["versions"][0].clone();
            crd["spec"]["versions"].as_array_mut().unwrap().push(version);
        });
        assert_eq!(
            errors,
            [
                r#"spec.versions: Invalid value: ["v1","v1"]: must contain unique version names"#,
                r#"spec.versions: Invalid value: ["v1","v1"]: must have exactly one version marked as storage version"#,
            ]
        );
    }

    #[test]
    fn a_schema_is_required_and_structural() {
        assert_eq!(
            after(|crd| drop(crd["spec"]["versions"][0].as_object_mut().unwrap().remove("schema")))[0],
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required"
        );
        assert_eq!(
            after(|crd| {
                crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({});
            }),
            [
                "spec.validation.openAPIV3Schema.properties[status].type: Required value: must not be empty for specified object fields"
            ]
        );
    }

    #[test]
    fn where_versions_differ_the_path_says_which() {
        let errors = after(|crd| {
            let mut version = crd["spec"]["versions"][0].clone();
            version["name"] = json!("v2");
            version["storage"] = json!(false);
            version["schema"]["openAPIV3Schema"]["properties"]["spec"]["type"] = json!("odd");
            crd["spec"]["versions"].as_array_mut().unwrap().push(version);
        });
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with(
            "spec.versions[1].schema.openAPIV3Schema.properties[spec].type: Unsupported value: \"odd\""
        ));
    }

    #[test]
    fn what_is_not_served_yet_is_refused_with_a_reason() {
        let errors = after(|crd| {
            crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {"clientConfig": {}}});
        });
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0]
                .starts_with("spec.conversion.strategy: Forbidden: conversion webhooks are not served yet")
        );
    }

    #[test]
    fn a_rule_names_the_function_that_is_not_served() {
        let errors = after(|crd| {
            crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] =
                json!([{"rule": "self.spec.color.reverse() == 'der'"}]);
        });
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("undeclared reference to 'reverse'"), "{}", errors[0]);
    }

    #[test]
    fn subresources_columns_and_selectable_fields_are_checked() {
        let errors = after(|crd| {
            let version = &mut crd["spec"]["versions"][0];
            version["subresources"]["scale"] =
                json!({"specReplicasPath": ".status.x", "statusReplicasPath": "x"});
            version["additionalPrinterColumns"] = json!([{"name": "", "type": "text", "jsonPath": ""}]);
            version["selectableFields"] = json!([{"jsonPath": ".spec.nope"}, {"jsonPath": ".spec"},
                {"jsonPath": ".spec.color"}, {"jsonPath": ".spec.color"}, {"jsonPath": ".spec['color']"}]);
        });
        assert_eq!(
            errors,
            [
                r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#,
                r#"spec.subresources.scale.statusReplicasPath: Invalid value: "x": must be a simple json path starting with ."#,
                "spec.additionalPrinterColumns[0].name: Required value",
                r#"spec.additionalPrinterColumns[0].type: Invalid value: "text": must be one of boolean,date,integer,number,string"#,
                "spec.additionalPrinterColumns[0].JSONPath: Required value",
                r#"spec.selectableFields[0].jsonPath: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field"#,
                r#"spec.selectableFields[1].jsonPath: Invalid value: ".spec": must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."#,
                r#"spec.selectableFields[3].jsonPath: Duplicate value: ".spec.color""#,
                r#"spec.selectableFields[4].jsonPath: Invalid value: ".spec['color']": is an invalid path: array notation is not allowed"#,
            ]
        );
    }

    #[test]
    fn a_warning_is_for_deprecated_versions() {
        assert_eq!(
            after(|crd| crd["spec"]["versions"][0]["deprecationWarning"] = json!("old")),
            [
                r#"spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions"#
            ]
        );
    }

    #[test]
    fn community_groups_need_an_approval() {
        let in_group = |annotation: Value| {
            after(|crd| {
                crd["spec"]["group"] = json!("x.k8s.io");
                crd["metadata"] = json!({"name": "widgets.x.k8s.io", "annotations": {APPROVAL: annotation}});
            })
        };
        assert!(in_group(json!("https://github.com/kubernetes/x/pull/1")).is_empty());
        assert!(in_group(json!("unapproved, experimental")).is_empty());
        assert!(in_group(json!(null))[0].starts_with(
            r#"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval"#
        ));
        assert!(in_group(json!("yes"))[0].contains("with either a URL or a reason"));
    }

    #[test]
    fn what_decides_storage_cannot_change_once_established() {
        let mut old = widgets();
        let mut new = old.clone();
        new["spec"]["scope"] = json!("Cluster");
        new["spec"]["names"]["kind"] = json!("Gadget");
        assert!(validate_update(&new, &old).is_empty());
        old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
        assert_eq!(
            texts_of(validate_update(&new, &old)),
            [
                r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
                r#"spec.names.kind: Invalid value: "Gadget": field is immutable"#,
            ]
        );
        let mut new = old.clone();
        new["spec"]["group"] = json!("example.org");
        assert_eq!(
            texts_of(validate_update(&new, &old)),
            [r#"spec.group: Invalid value: "example.org": field is immutable"#]
        );
    }

    #[test]
    fn a_stored_version_cannot_be_dropped() {
        let old = widgets();
        let mut new = old.clone();
        new["spec"]["versions"][0]["name"] = json!("v2");
        prepare_update(&mut new, &old);
        let errors = texts_of(validate_update(&new, &old));
        assert_eq!(errors.len(), 1);
        assert!(errors[0].starts_with(
            r#"status.storedVersions[0]: Invalid value: "v1": missing from spec.versions; v1 was previously"#
        ));
    }

    #[test]
    fn a_format_that_means_nothing_is_warned_about_once() {
        let old = widgets();
        let mut new = old.clone();
        new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["color"]
            ["format"] = json!("hue");
        assert_eq!(warnings(&new, Some(&old)), [r#"unrecognized format "hue""#]);
        assert!(warnings(&new, Some(&new)).is_empty());
    }

    #[test]
    fn nothing_malformed_makes_validation_panic() {
        for crd in [json!(null), json!([]), json!({"spec": []}), json!({"spec": {"versions": [1, null, {}]}})]
        {
            assert!(!validate_create(&crd).is_empty());
            validate_update(&crd, &widgets());
        }
    }
}
