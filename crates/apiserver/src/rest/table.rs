//! Objects as rows for people: what `kubectl get` shows, computed here and not in the client.

use std::{borrow::Cow, sync::Arc};

use serde_json::{Value, json};
use sheaf_resources::{
    age,
    kind::{Cell, Column, Kind},
};

use super::{Call, list::Listed};
use crate::{
    ApiServer,
    cache::object::CachedObject,
    negotiate::Format,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// What each row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    pub fn parse(query: &crate::request::Query) -> Result<Self, ApiError> {
        match query.get("includeObject") {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::None),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "unrecognized includeObject value: \"{other}\": must be None, Metadata or Object"
            ))),
        }
    }
}

/// A Table of the objects; `page` when they came from a list.
pub fn response(
    server: &ApiServer,
    call: &Call<'_>,
    objects: &[Arc<CachedObject>],
    page: Option<&Listed>,
) -> Result<ApiResponse, ApiError> {
    let include = Include::parse(call.query)?;
    let metadata = match page {
        Some(page) => page.metadata(),
        None => {
            json!({"resourceVersion": objects.first().map(|object| object.revision.to_string()).unwrap_or_default()})
        }
    };
    let now = server.world.clock.since_epoch().as_secs() as i64;
    let rows: Vec<Value> =
        objects.iter().map(|object| row(&call.served.kind, object, include, now)).collect();
    let table = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": column_definitions(&call.served.kind), "rows": rows,
    });
    Ok(respond::value(success::OK, Format::Json, &table))
}

/// A Table of one object, as a watch sends it.
pub fn of_one(kind: &Kind, object: &CachedObject, include: Include, now: i64, with_columns: bool) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": object.revision.to_string()},
        "columnDefinitions": if with_columns { column_definitions(kind) } else { Value::Null },
        "rows": [row(kind, object, include, now)],
    })
}

fn columns(kind: &Kind) -> Cow<'_, [Column]> {
    if !kind.columns.is_empty() {
        return Cow::Borrowed(&kind.columns);
    }
    let name = Column::computed("Name", |object, _| object["metadata"]["name"].clone()).format("name");
    let created = Column::computed("Created At", |object, _| object["metadata"]["creationTimestamp"].clone());
    Cow::Owned(vec![name, created])
}

pub fn column_definitions(kind: &Kind) -> Value {
    let definition = |column: &Column| {
        json!({
            "name": column.name, "type": column.data_type, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    };
    columns(kind).iter().map(definition).collect()
}

/// The cells of an object's row.
pub fn cells(kind: &Kind, object: &Value, now: i64) -> Vec<Value> {
    columns(kind).iter().map(|column| cell(column, object, now)).collect()
}

fn row(kind: &Kind, object: &CachedObject, include: Include, now: i64) -> Value {
    let value = object.to_value();
    let mut row = json!({"cells": cells(kind, &value, now)});
    match include {
        Include::None => {}
        Include::Metadata => row["object"] = partial(&value),
        Include::Object => {
            let mut value = value;
            value["apiVersion"] = kind.api_version().into();
            row["object"] = value;
        }
    }
    row
}

fn cell(column: &Column, object: &Value, now: i64) -> Value {
    match &column.cell {
        Cell::Computed(compute) => compute(object, now),
        Cell::Declared(declared) => declared.cell(object, |time| age::since(time, now)),
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
