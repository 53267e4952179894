//! Which objects a list, watch or collection delete is about.

use std::collections::BTreeMap;

use serde_json::Value;
use sheaf_resources::{
    kind::Kind,
    quote::quoted,
    selector::{FieldOperator, FieldSelector, FieldTerm, LabelSelector},
};

use crate::{cache::object::CachedObject, request::Query, status::ApiError};

#[derive(Clone, Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Whether a field selector looks beyond name and namespace, so that objects must be read.
    looks_inside: bool,
}

impl Selection {
    pub fn parse(query: &Query, kind: &Kind) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())
            .map_err(|why| ApiError::bad_request(format!("unable to parse requirement: {why}")))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default())
            .map_err(|why| ApiError::bad_request(why.to_string()))?;
        let mut looks_inside = false;
        for term in fields.terms() {
            match term.field.as_str() {
                "metadata.name" => {}
                "metadata.namespace" if kind.namespaced() => {}
                field if kind.selectable_fields.iter().any(|f| f == field) => looks_inside = true,
                field => return Err(ApiError::bad_request(unknown(kind, field))),
            }
        }
        Ok(Selection { labels, fields, looks_inside })
    }

    /// The same, of one object only.
    pub fn and_name(self, name: &str) -> Self {
        let mut terms = self.fields.terms().to_vec();
        terms.push(FieldTerm {
            field: "metadata.name".into(),
            operator: FieldOperator::Equals,
            value: name.into(),
        });
        Selection { fields: FieldSelector::all_of(terms), ..self }
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    pub fn matches(&self, kind: &Kind, object: &CachedObject) -> bool {
        if !self.labels.matches(&*object.labels) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let inside = if self.looks_inside { self.read_fields(kind, object) } else { BTreeMap::new() };
        self.fields.matches(|field| match field {
            "metadata.name" => Some(object.name()),
            "metadata.namespace" => Some(object.namespace()),
            field => inside.get(field).map(String::as_str),
        })
    }

    fn read_fields(&self, kind: &Kind, object: &CachedObject) -> BTreeMap<String, String> {
        let mut value = object.to_value();
        if let Some(conversion) = &kind.conversion {
            (conversion.from_stored)(&mut value);
        }
        let terms = self.fields.terms().iter().map(|term| term.field.clone());
        terms.map(|field| (field.clone(), text_at(&value, &field))).collect()
    }
}

/// Why a field cannot be selected by, in the words of the original, which has others for kinds with fields of their own.
fn unknown(kind: &Kind, field: &str) -> String {
    if kind.custom || !kind.selectable_fields.is_empty() {
        return format!("field label not supported: {field}");
    }
    format!("{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", quoted(field))
}

/// A field as a selector compares it: text as it is, numbers and booleans written out, absent as empty.
fn text_at(object: &Value, path: &str) -> String {
    let path = path.trim_start_matches('.');
    let found = path.split('.').try_fold(object, |value, segment| value.get(segment));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(truth)) => truth.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        // The original compares an event's source by its component alone.
        Some(Value::Object(members)) => {
            members.get("component").and_then(Value::as_str).unwrap_or_default().to_string()
        }
        _ if path == "spec.unschedulable" => "false".into(),
        _ => String::new(),
    }
}
