//! The fields of a kind in the words of Rancher's schemas: `string`, `int`, `array[string]`, `map[string]`, and names of
//! definitions for what has fields of its own.

use serde_json::{Map, Value, json};
use sheaf_resources::schema::{Additional, Schema, SchemaType};

/// Deeper than any real kind nests.
const MAX_DEPTH: usize = 24;

/// The fields of one object.
pub fn fields(name: &str, schema: &Schema) -> Value {
    let of = |(field, schema): (&str, &Schema)| {
        let described = json!({
            "type": type_of(&format!("{name}.{field}"), schema), "nullable": schema.nullable,
            "description": schema.description.as_deref().unwrap_or_default(), "create": true, "update": true,
        });
        (field.to_owned(), described)
    };
    Value::Object(schema.properties.iter().map(of).collect())
}

/// The definition of an object and of everything in it, by name.
pub fn all(name: &str, schema: &Schema) -> Value {
    let mut found = Map::new();
    gather(name, schema, MAX_DEPTH, &mut found);
    Value::Object(found)
}

fn gather(name: &str, schema: &Schema, depth: usize, found: &mut Map<String, Value>) {
    if depth == 0 {
        return;
    }
    if !schema.properties.is_empty() {
        let description = schema.description.as_deref().unwrap_or_default();
        let own = json!({"type": name, "description": description, "resourceFields": fields(name, schema)});
        found.insert(name.to_owned(), own);
    }
    for (field, inner) in schema.properties.iter() {
        gather(&format!("{name}.{field}"), inner, depth - 1, found);
    }
    if let Some(items) = &schema.items {
        gather(name, items, depth - 1, found);
    }
    if let Some(Additional::Schema(values)) = &schema.additional_properties {
        gather(name, values, depth - 1, found);
    }
}

fn type_of(name: &str, schema: &Schema) -> String {
    if schema.int_or_string {
        return "intOrString".into();
    }
    match &schema.kind {
        Some(SchemaType::String) => "string".into(),
        Some(SchemaType::Integer) => "int".into(),
        Some(SchemaType::Number) => "float".into(),
        Some(SchemaType::Boolean) => "boolean".into(),
        Some(SchemaType::Array) => {
            let element =
                schema.items.as_ref().map_or_else(|| "json".to_owned(), |items| type_of(name, items));
            format!("array[{element}]")
        }
        Some(SchemaType::Object) | None => match &schema.additional_properties {
            Some(Additional::Schema(values)) => format!("map[{}]", type_of(name, values)),
            _ if !schema.properties.is_empty() => name.to_owned(),
            _ => "json".into(),
        },
        Some(SchemaType::Other(_)) => "json".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {
            "name": {"type": "string", "description": "what it is called"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "disks": {"type": "array", "items": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}))
        .unwrap()
    }

    #[test]
    fn fields_are_told_in_the_words_of_schemas() {
        let fields = fields("thing", &schema());
        let kind = |name: &str| fields[name]["type"].as_str().unwrap().to_owned();
        assert_eq!(kind("name"), "string");
        assert_eq!(kind("labels"), "map[string]");
        assert_eq!(kind("disks"), "array[thing.disks]");
        assert_eq!(kind("anything"), "json");
        assert_eq!(fields["name"]["description"], "what it is called");
    }

    #[test]
    fn every_definition_that_is_named_is_there() {
        let all = all("thing", &schema());
        assert_eq!(all["thing.disks"]["resourceFields"]["size"]["type"], "int");
        assert_eq!(all.as_object().unwrap().len(), 2);
    }
}
