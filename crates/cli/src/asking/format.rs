//! How objects are printed: tables for people, and for scripts what they read.

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{Refusal, Resource};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Columns for people
    #[default]
    Table,
    /// More columns
    Wide,
    Json,
    Yaml,
    /// KIND/NAME, one on a line
    Name,
}

impl Format {
    pub fn is_for_people(self) -> bool {
        matches!(self, Format::Table | Format::Wide)
    }

    /// One object, for scripts. `None` where people read.
    pub fn one(self, resource: &Resource, object: &Value) -> Result<Option<String>, Refusal> {
        Ok(match self {
            Format::Table | Format::Wide => None,
            Format::Json => Some(json_text(object)),
            Format::Yaml => Some(yaml(object)?),
            Format::Name => Some(resource.name_of(object) + "\n"),
        })
    }

    /// Many of them: a list, as kubectl has it.
    pub fn many(self, resource: &Resource, objects: &[Value]) -> Result<Option<String>, Refusal> {
        let list = || json!({"apiVersion": "v1", "kind": "List", "items": objects});
        Ok(match self {
            Format::Table | Format::Wide => None,
            Format::Json => Some(json_text(&list())),
            Format::Yaml => Some(yaml(&list())?),
            Format::Name => Some(objects.iter().map(|object| resource.name_of(object) + "\n").collect()),
        })
    }
}

pub fn json_text(value: &Value) -> String {
    format!("{value:#}\n")
}

pub fn yaml(value: &Value) -> Result<String, Refusal> {
    serde_yaml_ng::to_string(value).map_err(|why| Refusal::cannot("write it as YAML", why))
}

/// What nobody reads who looks at an object: who owns which field.
pub fn without_owners(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    object
}
