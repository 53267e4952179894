//! Whether an object of a built-in kind could be decoded into that kind at all.
//!
//! Go's decoder refuses a string where a number belongs before any validation runs, and
//! clients know its words: `json: cannot unmarshal string into Go struct field
//! DeploymentSpec.spec.replicas of type int32`. [`check_types`] finds the first such
//! mismatch. A null fits everywhere; a field nobody knows is for [`super::prune()`].

use serde_json::{Number, Value};

use super::parse::json_type;
use super::{Additional, Schema, SchemaType, format};
use crate::quote::quoted;

/// Why a body is not an object of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("json: cannot unmarshal {found} into Go {place} of type {wanted}")]
    WrongType { found: String, place: String, wanted: String },
    #[error("{0}")]
    Time(String),
    #[error("illegal base64 data at input byte {at}")]
    Base64 { at: usize },
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Quantity,
}

/// The first place where `value` does not fit the types of `schema`.
pub fn check_types(value: &Value, schema: &Schema) -> Result<(), DecodeError> {
    Decoder { fields: Vec::new(), owner: None }.value(value, schema)
}

struct Decoder<'a> {
    fields: Vec<&'a str>,
    owner: Option<&'a str>,
}

impl<'a> Decoder<'a> {
    fn value(&mut self, value: &'a Value, schema: &'a Schema) -> Result<(), DecodeError> {
        if value.is_null() {
            return Ok(());
        }
        if schema.int_or_string {
            return self.int_or_string(value, schema);
        }
        match (&schema.kind, value) {
            (None | Some(SchemaType::Other(_)), _) => Ok(()),
            (Some(SchemaType::String), Value::String(text)) => check_text(text, schema),
            (Some(SchemaType::Boolean), Value::Bool(_)) => Ok(()),
            (Some(SchemaType::Number), Value::Number(_)) => Ok(()),
            (Some(SchemaType::Integer), Value::Number(number)) => {
                if fits_integer(number, schema) {
                    Ok(())
                } else {
                    Err(self.wrong(format!("number {number}"), schema))
                }
            }
            (Some(SchemaType::Array), Value::Array(list)) => match schema.items.as_deref() {
                Some(items) => list.iter().try_for_each(|item| self.value(item, items)),
                None => Ok(()),
            },
            (Some(SchemaType::Object), Value::Object(map)) => {
                let owner = self.owner;
                if let Some(name) = struct_name(schema) {
                    self.owner = Some(name);
                }
                for (name, inner) in schema.properties.iter() {
                    if let Some(value) = map.get(name) {
                        self.fields.push(name);
                        self.value(value, inner)?;
                        self.fields.pop();
                    }
                }
                if let Some(Additional::Schema(inner)) = &schema.additional_properties {
                    for (_, value) in map.iter().filter(|(name, _)| !schema.properties.contains(name)) {
                        self.value(value, inner)?;
                    }
                }
                self.owner = owner;
                Ok(())
            }
            (Some(_), found) => Err(self.wrong(json_type(found).to_owned(), schema)),
        }
    }

    fn int_or_string(&self, value: &Value, schema: &Schema) -> Result<(), DecodeError> {
        let quantity = go_name(schema).is_some_and(|name| name.ends_with("Quantity"));
        match value {
            Value::String(text) if quantity && !is_quantity(text) => Err(DecodeError::Quantity),
            Value::String(_) => Ok(()),
            Value::Number(_) if quantity => Ok(()),
            _ if quantity => Err(DecodeError::Quantity),
            Value::Number(number) if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
            Value::Number(number) => Err(not_int32(format!("number {number}"))),
            other => Err(not_int32(json_type(other).to_owned())),
        }
    }

    fn wrong(&self, found: String, schema: &Schema) -> DecodeError {
        let place = match (self.owner, self.fields.is_empty()) {
            (_, true) => "value".to_owned(),
            (Some(owner), false) => format!("struct field {owner}.{}", self.fields.join(".")),
            (None, false) => format!("struct field .{}", self.fields.join(".")),
        };
        DecodeError::WrongType { found, place, wanted: go_type(schema) }
    }
}

/// The number of an IntOrString is decoded by itself, so its error does not name the field.
fn not_int32(found: String) -> DecodeError {
    DecodeError::WrongType { found, place: "value".to_owned(), wanted: "int32".to_owned() }
}

fn check_text(text: &str, schema: &Schema) -> Result<(), DecodeError> {
    match schema.format.as_deref() {
        Some("date-time") => time_fault(text).map_or(Ok(()), |fault| Err(DecodeError::Time(fault))),
        Some("byte") => base64_fault(text).map_or(Ok(()), |at| Err(DecodeError::Base64 { at })),
        _ => Ok(()),
    }
}

fn fits_integer(number: &Number, schema: &Schema) -> bool {
    number
        .as_i64()
        .is_some_and(|integer| schema.format.as_deref() != Some("int32") || i32::try_from(integer).is_ok())
}

fn go_name(schema: &Schema) -> Option<&str> {
    schema.extra.as_ref()?.go_type.as_deref()
}

/// `ObjectMeta` of `v1.ObjectMeta`.
fn struct_name(schema: &Schema) -> Option<&str> {
    go_name(schema).map(|name| name.rsplit('.').next().unwrap_or(name))
}

/// The type of a field as Go names it.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = go_name(schema) {
        return name.to_owned();
    }
    match &schema.kind {
        Some(SchemaType::String) if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Some(SchemaType::String) => "string".to_owned(),
        Some(SchemaType::Boolean) => "bool".to_owned(),
        Some(SchemaType::Integer) => schema.format.as_deref().unwrap_or("int").to_owned(),
        Some(SchemaType::Number) => "float64".to_owned(),
        Some(SchemaType::Array) => format!("[]{}", schema.items.as_deref().map_or_else(any, go_type)),
        Some(SchemaType::Object) => {
            let values = schema.additional_properties.as_ref().and_then(Additional::schema);
            format!("map[string]{}", values.map_or_else(any, go_type))
        }
        Some(SchemaType::Other(_)) | None => any(),
    }
}

fn any() -> String {
    "interface {}".to_owned()
}

fn is_quantity(text: &str) -> bool {
    let body = text.trim();
    let unsigned = body.strip_prefix(['+', '-']).unwrap_or(body);
    let digits = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = unsigned.split_at(digits);
    let number_ok = number.bytes().any(|b| b.is_ascii_digit()) && number.matches('.').count() <= 1;
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    });
    let unit = matches!(
        suffix,
        "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
    );
    number_ok && (unit || exponent)
}

/// Where standard base64 stops being base64, counted as Go counts; line breaks are skipped.
fn base64_fault(text: &str) -> Option<usize> {
    let bytes: Vec<(usize, u8)> =
        text.bytes().enumerate().filter(|(_, b)| *b != b'\n' && *b != b'\r').collect();
    let member = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let body = bytes.iter().take_while(|(_, b)| member(*b)).count();
    let padding = &bytes[body..];
    let wanted = match body % 4 {
        0 => 0,
        1 => return Some(bytes.get(body).map_or(text.len(), |(at, _)| *at)),
        remainder => 4 - remainder,
    };
    if padding.len() < wanted && padding.iter().all(|(_, b)| *b == b'=') {
        return Some(text.len());
    }
    let stray = padding.iter().enumerate().find(|(index, (_, b))| *index >= wanted || *b != b'=');
    stray.map(|(_, (at, _))| *at)
}

/// What Go's `time.Parse(time.RFC3339, text)` would say.
pub(crate) fn time_fault(text: &str) -> Option<String> {
    const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
    let mut rest = text;
    let fault = |rest: &str, element: &str| {
        let (text, rest, element) = (quoted(text), quoted(rest), quoted(element));
        Some(format!("parsing time {text} as \"{LAYOUT}\": cannot parse {rest} as {element}"))
    };
    for element in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let taken = rest.get(..element.len()).filter(|part| match element {
            "-" | "T" | ":" => *part == element,
            _ => part.bytes().all(|b| b.is_ascii_digit()),
        });
        match taken {
            Some(_) => rest = &rest[element.len()..],
            None => return fault(rest, element),
        }
    }
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            rest = &fraction[digits..];
        }
    }
    let zone = rest == "Z" || (rest.starts_with(['+', '-']) && rest.len() == 6);
    if !zone {
        return fault(rest, "Z07:00");
    }
    if format::is_date_time(text) {
        return None;
    }
    let month = &text[5..7];
    let part = match () {
        () if !("01"..="12").contains(&month) => "month",
        () if !format::is_date(&text[..10]) => "day",
        () if &text[11..13] > "23" => "hour",
        () if &text[14..16] > "59" => "minute",
        () if &text[17..19] > "59" => "second",
        () => return fault(rest, "Z07:00"),
    };
    Some(format!("parsing time {}: {part} out of range", quoted(text)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Secret};
    use serde_json::json;

    use super::*;
    use crate::schema::from_k8s_openapi;

    fn fault<T: schemars::JsonSchema>(value: Value) -> String {
        check_types(&value, &from_k8s_openapi::<T>()).unwrap_err().to_string()
    }

    #[test]
    fn a_mismatch_names_struct_field_and_type_as_go_does() {
        assert_eq!(
            fault::<Secret>(json!({"metadata": {"labels": "x"}})),
            "json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map[string]string"
        );
        assert_eq!(
            fault::<Secret>(json!({"metadata": {"labels": {"a": 1}}})),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"
        );
        assert_eq!(
            fault::<Pod>(json!({"spec": {"containers": [{"name": "a"}, {"image": true}]}})),
            "json: cannot unmarshal bool into Go struct field Container.spec.containers.image of type string"
        );
        assert_eq!(
            fault::<Pod>(json!({"spec": {"containers": {}}})),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        );
        assert_eq!(
            fault::<Pod>(json!({"spec": {"priority": 3_000_000_000_i64}})),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32"
        );
        assert_eq!(fault::<Pod>(json!([])), "json: cannot unmarshal array into Go value of type v1.Pod");
    }

    #[test]
    fn special_scalars_are_read_as_their_types_read_them() {
        assert_eq!(fault::<Secret>(json!({"data": {"a": "Y"}})), "illegal base64 data at input byte 1");
        assert_eq!(fault::<Secret>(json!({"data": {"a": "YQ"}})), "illegal base64 data at input byte 2");
        assert_eq!(fault::<Secret>(json!({"data": {"a": "Y-=="}})), "illegal base64 data at input byte 1");
        assert_eq!(
            fault::<Secret>(json!({"metadata": {"creationTimestamp": "now"}})),
            r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#
        );
        assert_eq!(
            fault::<Secret>(json!({"metadata": {"creationTimestamp": "2024-13-01T00:00:00Z"}})),
            r#"parsing time "2024-13-01T00:00:00Z": month out of range"#
        );
        let limits =
            |quantity: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": quantity}}}]}});
        assert!(fault::<Pod>(limits(json!("1x"))).starts_with("quantities must match"));
        for fine in [json!("1Gi"), json!(2), json!(1.5), json!("100m"), json!("1e3"), json!("-.5")] {
            assert_eq!(check_types(&limits(fine), &from_k8s_openapi::<Pod>()), Ok(()));
        }
    }

    #[test]
    fn what_go_would_decode_passes() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "unknown": {"x": 1},
            "metadata": {"name": "n", "labels": null, "creationTimestamp": "2024-01-01T00:00:00Z"},
            "data": {"a": "YQ==", "b": "", "c": "YWJj"}});
        assert_eq!(check_types(&secret, &from_k8s_openapi::<Secret>()), Ok(()));
    }
}
