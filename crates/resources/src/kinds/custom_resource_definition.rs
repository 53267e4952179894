//! CustomResourceDefinition (`apiextensions.k8s.io/v1`): a user's own kind.
//!
//! ```text
//!   write:  apply_defaults -> prune_schemas -> prepare_* -> validation::validate_*
//!   then:   status::next_status  (are the names free? then the kind is established)
//!   serve:  CustomResource::read (what the registry needs of it)
//! ```
//!
//! - The definition is the object in the store and nothing else: after a crash the registry
//!   reads it again and serves the same kind.
//! - Conversion is None only: every version is the same object under another name. Webhook
//!   conversion is refused on write, because accepting what is not
//!   done would be a lie.
//! - Deleting a definition deletes its objects; that is a controller's work and not here.

mod column;
mod keywords;
mod served;
pub mod status;
pub mod validation;

use std::sync::Arc;

use serde_json::{Map, Value, json};

pub use column::Column;
pub use keywords::prune_schemas;
pub use served::{CLEANUP_FINALIZER, kind, served_kinds};

use crate::schema::{JsonPath, JsonPathError, Schema, SchemaError};

/// A kind defined by a user, as the registry serves it.
#[derive(Clone, Debug)]
pub struct CustomResource {
    pub group: String,
    /// The names that were accepted; those asked for as long as none were.
    pub names: Names,
    pub scope: Scope,
    /// In the order of the definition.
    pub versions: Vec<Version>,
    /// Whether the kind may be served at all.
    pub established: bool,
}

/// What a kind is called, here and there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub kind: String,
    pub list_kind: String,
    pub categories: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// One version of a custom resource.
#[derive(Clone, Debug)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    /// What to tell whoever uses a deprecated version.
    pub warning: Option<String>,
    pub schema: Arc<Schema>,
    /// The printer columns after the name; Age where none are defined.
    pub columns: Vec<Column>,
    /// Whether status is a subresource.
    pub status: bool,
    pub scale: Option<Scale>,
    pub selectable_fields: Vec<SelectableField>,
}

/// Where the scale subresource finds its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Scale {
    pub spec_replicas: JsonPath,
    pub status_replicas: JsonPath,
    pub label_selector: Option<JsonPath>,
}

/// A field that field selectors may name.
#[derive(Clone, Debug, PartialEq)]
pub struct SelectableField {
    /// As it is written in a selector: `spec.color`.
    pub field: String,
    pub path: JsonPath,
}

/// Why a stored definition cannot be served. None of these pass validation, so they mean
/// that the store holds what this server never accepted.
#[derive(Debug, thiserror::Error)]
pub enum CustomResourceError {
    #[error("the definition {definition} has no version {version} that can be read")]
    Schema {
        definition: String,
        version: String,
        #[source]
        source: SchemaError,
    },
    #[error("the definition {definition} has a path that cannot be followed: {path:?}")]
    Path {
        definition: String,
        path: String,
        #[source]
        source: JsonPathError,
    },
    #[error("the definition {definition} lacks {what}")]
    Incomplete { definition: String, what: &'static str },
    #[error("the definition {definition} speaks of a resource that Sheaf itself serves")]
    BuiltIn { definition: String },
}

impl CustomResource {
    /// Reads a definition that has been accepted.
    pub fn read(crd: &Value) -> Result<Self, CustomResourceError> {
        let definition = text(&crd["metadata"]["name"]).to_owned();
        let spec = &crd["spec"];
        let accepted = &crd["status"]["acceptedNames"];
        let names = if text(&accepted["plural"]).is_empty() { &spec["names"] } else { accepted };
        let mut names = Names::read(names);
        // Where its objects are is never up to what somebody wrote into its status.
        names.plural = text(&spec["names"]["plural"]).to_owned();
        let group = text(&spec["group"]).to_owned();
        if super::is_built_in(&group, &names.plural) {
            return Err(CustomResourceError::BuiltIn { definition });
        }
        for (what, value) in [("a group", &group), ("a plural name", &names.plural), ("a kind", &names.kind)]
        {
            if value.is_empty() {
                return Err(CustomResourceError::Incomplete { definition, what });
            }
        }
        let read = Reading { definition: &definition, group: &group, kind: &names.kind };
        let versions = list(&spec["versions"]).iter().map(|version| read.version(version));
        Ok(Self {
            versions: versions.collect::<Result<_, _>>()?,
            scope: if text(&spec["scope"]) == "Cluster" { Scope::Cluster } else { Scope::Namespaced },
            established: status::is_true(crd, "Established"),
            group,
            names,
        })
    }

    /// The version in which objects are stored.
    pub fn storage_version(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl Names {
    pub fn read(names: &Value) -> Self {
        Self {
            plural: text(&names["plural"]).to_owned(),
            singular: text(&names["singular"]).to_owned(),
            short_names: texts(&names["shortNames"]),
            kind: text(&names["kind"]).to_owned(),
            list_kind: text(&names["listKind"]).to_owned(),
            categories: texts(&names["categories"]),
        }
    }

    /// As `status.acceptedNames` has them: what is empty is left out, but for plural and
    /// kind.
    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("kind".into(), self.kind.as_str().into());
        map.insert("plural".into(), self.plural.as_str().into());
        for (key, name) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !name.is_empty() {
                map.insert(key.into(), name.as_str().into());
            }
        }
        for (key, names) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !names.is_empty() {
                map.insert(key.into(), names.clone().into());
            }
        }
        Value::Object(map)
    }
}

/// What every version of one definition is read with.
struct Reading<'a> {
    definition: &'a str,
    group: &'a str,
    kind: &'a str,
}

impl Reading<'_> {
    fn version(&self, version: &Value) -> Result<Version, CustomResourceError> {
        let name = text(&version["name"]).to_owned();
        let openapi = &version["schema"]["openAPIV3Schema"];
        let schema = if openapi.is_null() { Ok(Schema::anything()) } else { Schema::parse(openapi) };
        let schema = schema.map_err(|source| CustomResourceError::Schema {
            definition: self.definition.to_owned(),
            version: name.clone(),
            source,
        })?;
        let deprecated = version["deprecated"].as_bool().unwrap_or(false);
        let warning = deprecated.then(|| match version["deprecationWarning"].as_str() {
            Some(warning) => warning.to_owned(),
            None => format!("{}/{name} {} is deprecated", self.group, self.kind),
        });
        let scale = match &version["subresources"]["scale"] {
            Value::Object(scale) => Some(self.scale(scale)?),
            _ => None,
        };
        let selectable = list(&version["selectableFields"]).iter().map(|field| {
            let path = text(&field["jsonPath"]);
            let field = path.trim_start_matches('.').to_owned();
            Ok(SelectableField { field, path: self.path(path)? })
        });
        Ok(Version {
            served: version["served"].as_bool().unwrap_or(false),
            storage: version["storage"].as_bool().unwrap_or(false),
            deprecated,
            warning,
            schema: Arc::new(schema),
            columns: column::read_all(&version["additionalPrinterColumns"]),
            status: version["subresources"]["status"].is_object(),
            scale,
            selectable_fields: selectable.collect::<Result<_, _>>()?,
            name,
        })
    }

    fn scale(&self, scale: &Map<String, Value>) -> Result<Scale, CustomResourceError> {
        let path = |key: &str| scale.get(key).and_then(Value::as_str).unwrap_or_default();
        let selector = path("labelSelectorPath");
        Ok(Scale {
            spec_replicas: self.path(path("specReplicasPath"))?,
            status_replicas: self.path(path("statusReplicasPath"))?,
            label_selector: if selector.is_empty() { None } else { Some(self.path(selector)?) },
        })
    }

    fn path(&self, path: &str) -> Result<JsonPath, CustomResourceError> {
        JsonPath::parse(path).map_err(|source| CustomResourceError::Path {
            definition: self.definition.to_owned(),
            path: path.to_owned(),
            source,
        })
    }
}

/// Fills in what a definition may leave out: singular, list kind and conversion.
pub fn apply_defaults(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").map_or("", text).to_owned();
        let absent =
            |names: &Map<String, Value>, key: &str| names.get(key).is_none_or(|v| text(v).is_empty());
        if absent(names, "singular") {
            names.insert("singular".into(), kind.to_lowercase().into());
        }
        if absent(names, "listKind") && !kind.is_empty() {
            names.insert("listKind".into(), format!("{kind}List").into());
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), json!({"strategy": "None"}));
    }
}

/// Readies a new definition: its status is ours to write, and begins with the version that
/// will be stored.
pub fn prepare_create(crd: &mut Value) {
    let stored: Vec<Value> = storage_version(crd).map(Value::from).into_iter().collect();
    if let Some(object) = crd.as_object_mut() {
        object.insert("status".into(), json!({"storedVersions": stored}));
    }
}

/// Readies an update of a definition: status is kept, and remembers every version that was
/// ever stored.
pub fn prepare_update(crd: &mut Value, old: &Value) {
    let mut status = old["status"].as_object().cloned().unwrap_or_default();
    let mut stored = status.get("storedVersions").map(texts).unwrap_or_default();
    if let Some(version) = storage_version(crd)
        && !stored.contains(&version)
    {
        stored.push(version);
    }
    status.insert("storedVersions".into(), stored.into());
    if let Some(object) = crd.as_object_mut() {
        object.insert("status".into(), Value::Object(status));
    }
}

fn storage_version(crd: &Value) -> Option<String> {
    let versions = list(&crd["spec"]["versions"]);
    versions
        .iter()
        .find(|version| version["storage"] == true)
        .map(|version| text(&version["name"]).to_owned())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(|entry| text(entry).to_owned()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A definition that passes every check.
    pub(super) fn widgets() -> Value {
        let mut crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {
                            "size": {"type": "integer"}, "color": {"type": "string"}}},
                        "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                    }}},
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                    "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                    "selectableFields": [{"jsonPath": ".spec.color"}],
                }],
            },
        });
        apply_defaults(&mut crd);
        prepare_create(&mut crd);
        crd
    }

    #[test]
    fn a_definition_may_leave_out_what_follows_from_the_kind() {
        let crd = widgets();
        assert_eq!(crd["spec"]["names"]["singular"], "widget");
        assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(crd["spec"]["conversion"], json!({"strategy": "None"}));
        assert_eq!(crd["status"], json!({"storedVersions": ["v1"]}));
    }

    #[test]
    fn defaulting_a_malformed_definition_changes_nothing_it_should_not() {
        for mut crd in [json!(null), json!([]), json!({"spec": 3}), json!({"spec": {"names": []}})] {
            apply_defaults(&mut crd);
            prepare_create(&mut crd);
        }
    }

    #[test]
    fn the_registry_reads_all_it_serves() {
        let resource = CustomResource::read(&widgets()).unwrap();
        assert_eq!((resource.group.as_str(), resource.scope), ("example.com", Scope::Namespaced));
        assert_eq!(resource.names.short_names, ["wd"]);
        assert!(!resource.established);
        let version = resource.storage_version().unwrap();
        assert!(version.served && version.status && !version.deprecated);
        assert_eq!(version.columns[0].name, "Size");
        assert_eq!(version.selectable_fields[0].field, "spec.color");
        let scale = version.scale.as_ref().unwrap();
        assert_eq!(scale.spec_replicas.first(&json!({"spec": {"size": 3}})), Some(&json!(3)));
        assert!(version.schema.properties.contains("spec"));
    }

    #[test]
    fn a_deprecated_version_warns_in_its_own_words_or_in_ours() {
        let mut crd = widgets();
        crd["spec"]["versions"][0]["deprecated"] = json!(true);
        let warning = |crd: &Value| CustomResource::read(crd).unwrap().versions[0].warning.clone();
        assert_eq!(warning(&crd).as_deref(), Some("example.com/v1 Widget is deprecated"));
        crd["spec"]["versions"][0]["deprecationWarning"] = json!("use v2");
        assert_eq!(warning(&crd).as_deref(), Some("use v2"));
    }

    #[test]
    fn an_update_keeps_the_status_and_remembers_every_stored_version() {
        let old = widgets();
        let mut new = old.clone();
        new["status"] = json!({"storedVersions": []});
        new["spec"]["versions"][0]["storage"] = json!(false);
        new["spec"]["versions"].as_array_mut().unwrap().push(json!({"name": "v2", "storage": true}));
        prepare_update(&mut new, &old);
        assert_eq!(new["status"]["storedVersions"], json!(["v1", "v2"]));
    }

    #[test]
    fn a_definition_that_cannot_be_served_says_what_it_lacks() {
        let mut crd = widgets();
        crd["spec"]["group"] = json!("");
        assert_eq!(
            CustomResource::read(&crd).unwrap_err().to_string(),
            "the definition widgets.example.com lacks a group"
        );
    }
}
