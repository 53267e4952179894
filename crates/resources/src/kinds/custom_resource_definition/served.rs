//! From a definition to rows of the table: its own, and those it adds.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition as Wire;
use serde_json::Value;

use super::{CustomResource, CustomResourceError, Scope, Version, validation};
use crate::{
    kind::{self, Behaviour, Cell, Column, Kind, SchemaSource, Verbs},
    kinds::{created_at_column, name_column},
};

/// Holds a definition that is being deleted until its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The row of definitions themselves.
pub fn kind() -> Kind {
    Kind::of_type::<Wire>("customresourcedefinitions")
        .cluster_scoped()
        .short(&["crd", "crds"])
        .with_status()
        .columns(vec![name_column(), created_at_column()])
        .behaving(Behaviour {
            unconditional_update: false,
            prune: super::prune_schemas,
            default: super::apply_defaults,
            prepare_create: super::prepare_create,
            prepare_update: super::prepare_update,
            warnings: validation::warnings,
            validate: |new, old| match old {
                None => validation::validate_create(new),
                Some(old) => validation::validate_update(new, old),
            },
            generation: true,
            finalizer_on_delete: Some(CLEANUP_FINALIZER),
            ..Behaviour::PLAIN
        })
}

/// The rows a definition adds: one per served version.
pub fn served_kinds(definition: &Value) -> Result<Vec<Kind>, CustomResourceError> {
    let custom = CustomResource::read(definition)?;
    let stored = custom.storage_version().map(|version| version.name.clone()).unwrap_or_default();
    let versions = custom.versions.iter().filter(|version| version.served);
    Ok(versions.map(|version| row(&custom, version, &stored)).collect())
}

fn row(custom: &CustomResource, version: &Version, stored: &str) -> Kind {
    let names = &custom.names;
    let selectable = version.selectable_fields.iter().map(|field| field.field.clone());
    Kind {
        group: custom.group.clone(),
        version: version.name.clone(),
        kind: names.kind.clone(),
        list_kind: names.list_kind.clone(),
        plural: names.plural.clone(),
        singular: names.singular.clone(),
        short_names: names.short_names.clone(),
        categories: names.categories.clone(),
        scope: match custom.scope {
            Scope::Cluster => kind::Scope::Cluster,
            Scope::Namespaced => kind::Scope::Namespaced,
        },
        verbs: Verbs::All,
        status: version.status,
        scale: version.scale.clone(),
        subresources: Vec::new(),
        schema: SchemaSource::Custom(version.schema.clone()),
        rules: Arc::default(),
        columns: std::iter::once(name_column()).chain(version.columns.iter().map(column)).collect(),
        selectable_fields: selectable.collect(),
        behaviour: Behaviour { generation: true, unconditional_update: false, ..Behaviour::PLAIN },
        custom: true,
        stored_under: (custom.group.clone(), names.plural.clone()),
        stored_version: kind::api_version(&custom.group, stored),
        conversion: None,
        deprecation: version.warning.clone(),
    }
}

fn column(column: &super::Column) -> Column {
    Column {
        name: column.name.clone(),
        data_type: column.kind.clone(),
        format: column.format.clone(),
        description: column.description.clone(),
        priority: i32::try_from(column.priority).unwrap_or(i32::MAX),
        cell: Cell::Declared(column.clone()),
    }
}
