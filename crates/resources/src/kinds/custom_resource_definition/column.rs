//! The printer columns of a custom resource: what `kubectl get` shows of it.

use serde_json::Value;

use super::{list, text};
use crate::schema::JsonPath;
use crate::schema::json_path::as_text;

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub kind: String,
    pub format: String,
    pub description: String,
    /// Columns above 0 are shown with `-o wide` only.
    pub priority: i64,
    pub path: JsonPath,
}

impl Column {
    /// What stands in this column for `object`; null where there is nothing to show. `age`
    /// says how long ago a timestamp was, since only the caller knows the time.
    pub fn cell(&self, object: &Value, age: impl FnOnce(&str) -> String) -> Value {
        let Some(value) = self.path.first(object).filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match (self.kind.as_str(), value) {
            ("string", value) => as_text(value).into(),
            ("integer", Value::Number(number)) => match number.as_i64() {
                Some(integer) => integer.into(),
                // As the original does: cut off, not rounded.
                None => number.as_f64().map_or(Value::Null, |float| (float as i64).into()),
            },
            ("number", Value::Number(number)) => number.as_f64().map_or(Value::Null, Value::from),
            ("boolean", Value::Bool(flag)) => (*flag).into(),
            ("date", Value::String(timestamp)) => age(timestamp).into(),
            _ => Value::Null,
        }
    }
}

/// The columns of a version. A path that cannot be read ends the list, as in the original;
/// a version without columns shows its age.
pub(super) fn read_all(columns: &Value) -> Vec<Column> {
    let columns = list(columns);
    if columns.is_empty() {
        return age().into_iter().collect();
    }
    columns.iter().map_while(read).collect()
}

fn read(column: &Value) -> Option<Column> {
    let path = text(&column["jsonPath"]);
    let description = match text(&column["description"]) {
        "" => format!("Custom resource definition column (in JSONPath format): {path}"),
        description => description.to_owned(),
    };
    Some(Column {
        name: text(&column["name"]).to_owned(),
        kind: text(&column["type"]).to_owned(),
        format: text(&column["format"]).to_owned(),
        description,
        priority: column["priority"].as_i64().unwrap_or(0),
        path: JsonPath::parse(path).ok()?,
    })
}

fn age() -> Option<Column> {
    Some(Column {
        name: "Age".to_owned(),
        kind: "date".to_owned(),
        format: String::new(),
        description: "CreationTimestamp is a timestamp representing the server time when this object was \
            created. It is not guaranteed to be set in happens-before order across separate operations. \
            Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated \
            by the system. Read-only. Null for lists. More info: \
            https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
            .to_owned(),
        priority: 0,
        path: JsonPath::parse(".metadata.creationTimestamp").ok()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cell(kind: &str, path: &str, object: &Value) -> Value {
        let columns = read_all(&json!([{"name": "C", "type": kind, "jsonPath": path}]));
        columns[0].cell(object, |timestamp| format!("since {timestamp}"))
    }

    #[test]
    fn a_cell_has_the_type_of_its_column_or_is_empty() {
        let object =
            json!({"s": "x", "n": 3, "f": 2.9, "b": true, "o": {"k": [1]}, "t": "2024-01-01T00:00:00Z"});
        assert_eq!(cell("string", ".s", &object), "x");
        assert_eq!(cell("string", ".n", &object), "3");
        assert_eq!(cell("string", ".o", &object), r#"{"k":[1]}"#);
        assert_eq!(cell("integer", ".f", &object), 2);
        assert_eq!(cell("number", ".n", &object), 3.0);
        assert_eq!(cell("boolean", ".b", &object), true);
        assert_eq!(cell("date", ".t", &object), "since 2024-01-01T00:00:00Z");
        assert_eq!(cell("integer", ".s", &object), Value::Null);
        assert_eq!(cell("string", ".missing", &object), Value::Null);
    }

    #[test]
    fn a_version_without_columns_shows_its_age() {
        let columns = read_all(&Value::Null);
        assert_eq!(columns.len(), 1);
        assert_eq!((columns[0].name.as_str(), columns[0].kind.as_str()), ("Age", "date"));
    }

    #[test]
    fn an_unreadable_path_ends_the_columns() {
        let columns = read_all(&json!([
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "string", "jsonPath": ".b["},
            {"name": "C", "type": "string", "jsonPath": ".c"}]));
        assert_eq!(columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["A"]);
    }
}
