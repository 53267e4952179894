//! `sheaf explain`: what the fields of a kind mean, in the words of the cluster's own schema.

use clap::Args as ClapArgs;
use http::Method;
use serde_json::Value;

use super::kinds::{meant, served};
use crate::{
    asking::{Refusal, Resource, Session, table::plain},
    completing,
    nearest_name::nearest,
};

#[derive(Debug, ClapArgs)]
pub struct ExplainArgs {
    /// A kind, and a field of it: vm, vm.spec.template.spec.domain, pvc.spec.resources
    #[arg(add = completing::kinds())]
    pub field: String,
    /// Print the names of all fields below it, and no words
    #[arg(long)]
    pub recursive: bool,
}

pub async fn run(session: &Session, args: &ExplainArgs) -> Result<(), Refusal> {
    let mut parts = args.field.split('.');
    let word = parts.next().unwrap_or_default();
    let path: Vec<&str> = parts.collect();
    let resource = meant(&served(session).await?, word)?;
    let document = document(session, &resource).await?;
    let schemas = Schemas(&document["components"]["schemas"]);
    let root = schemas.of(&resource).ok_or_else(|| {
        Refusal::Wrong(format!("the cluster says nothing of the fields of kind {}", resource.kind))
    })?;
    let field = schemas.at(root, &path, &resource.kind)?;
    let text = match args.recursive {
        true => schemas.tree(field, 0, &mut Vec::new()),
        false => schemas.described(field, &resource, &path, session.out.width.unwrap_or(100)),
    };
    session.out.print(&text)
}

async fn document(session: &Session, resource: &Resource) -> Result<Value, Refusal> {
    let doing = format!("read what the fields of {} mean", resource.kind);
    let index = session.ask(Method::GET, "/openapi/v3", None, &doing).await?;
    let path = match resource.group.as_ref() {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    };
    let url = index["paths"][&path]["serverRelativeURL"].as_str().map(str::to_owned);
    let url = url.unwrap_or_else(|| format!("/openapi/v3/{path}"));
    session.ask(Method::GET, &url, None, &doing).await
}

/// All schemas of a document, by name.
struct Schemas<'a>(&'a Value);

impl<'a> Schemas<'a> {
    fn of(&self, resource: &Resource) -> Option<&'a Value> {
        let is_it = |schema: &&Value| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.into_iter().flatten().any(|one| {
                one["group"] == *resource.group
                    && one["version"] == *resource.version
                    && one["kind"] == *resource.kind
            })
        };
        self.0.as_object()?.values().find(is_it)
    }

    /// What a schema refers to, or it itself.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
        let found = reference
            .and_then(|text| text.strip_prefix("#/components/schemas/"))
            .map(|name| &self.0[name])
            .filter(|found| !found.is_null());
        found.unwrap_or(schema)
    }

    /// Of a list or a map, what is in it.
    fn inside(&self, schema: &'a Value) -> &'a Value {
        let schema = self.resolved(schema);
        match (&schema["items"], &schema["additionalProperties"]) {
            (items, _) if items.is_object() => self.inside(items),
            (_, values) if values.is_object() => self.inside(values),
            _ => schema,
        }
    }

    fn at(&self, root: &'a Value, path: &[&str], kind: &str) -> Result<&'a Value, Refusal> {
        let mut schema = root;
        let mut so_far = kind.to_owned();
        for part in path {
            let fields = &self.inside(schema)["properties"];
            let Some(found) = fields.get(*part) else {
                let names = fields.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
                return Err(Refusal::NotFound {
                    about: format!("field {part} in {so_far}"),
                    meant: nearest(part, names).map(str::to_owned),
                    advice: format!("`sheaf explain {}` prints those there are", so_far.to_lowercase()),
                });
            };
            schema = found;
            so_far = format!("{so_far}.{part}");
        }
        Ok(schema)
    }

    fn type_of(&self, schema: &'a Value) -> String {
        let resolved = self.resolved(schema);
        match resolved["type"].as_str() {
            Some("array") => format!("[]{}", self.type_of(&resolved["items"])),
            Some("object") if resolved["additionalProperties"].is_object() => {
                format!("map of {}", self.type_of(&resolved["additionalProperties"]))
            }
            None if !choices(resolved).is_empty() => "string".to_owned(),
            Some("object") | None => {
                if resolved["x-kubernetes-int-or-string"] == true { "number or text" } else { "object" }
                    .to_owned()
            }
            Some(other) => other.to_owned(),
        }
    }

    fn described(&self, field: &'a Value, resource: &Resource, path: &[&str], width: usize) -> String {
        let mut text = format!("KIND:     {}\nVERSION:  {}\n", resource.kind, resource.api_version());
        if let Some(last) = path.last() {
            text += &format!("FIELD:    {last} <{}>\n", self.type_of(field));
        }
        let inside = self.inside(field);
        let about =
            [field, self.resolved(field), inside].into_iter().find_map(|one| one["description"].as_str());
        text += &format!("\n{}", wrapped(about.unwrap_or("The cluster says nothing about it."), "", width));
        let choices = choices(inside);
        if !choices.is_empty() {
            text += &format!("\nONE OF:   {}\n", choices.join(", "));
        }
        let Some(fields) = inside["properties"].as_object() else { return text };
        let needed: Vec<&str> =
            inside["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        text += "\nFIELDS:\n";
        for (name, schema) in fields {
            let must = if needed.contains(&name.as_str()) { " required" } else { "" };
            text += &format!("  {} <{}>{must}\n", plain(name), self.type_of(schema));
            let about =
                [schema, self.resolved(schema)].into_iter().find_map(|one| one["description"].as_str());
            if let Some(about) = about {
                text += &wrapped(about, "      ", width);
            }
        }
        text
    }

    /// Names of all fields below one. What refers to itself is not followed again.
    fn tree(&self, field: &'a Value, depth: usize, above: &mut Vec<*const Value>) -> String {
        let inside = self.inside(field);
        let this: *const Value = inside;
        if above.contains(&this) {
            return String::new();
        }
        above.push(this);
        let mut text = String::new();
        for (name, schema) in inside["properties"].as_object().into_iter().flatten() {
            text += &format!("{}{} <{}>\n", "  ".repeat(depth), plain(name), self.type_of(schema));
            text += &self.tree(schema, depth + 1, above);
        }
        above.pop();
        text
    }
}

/// The texts that fit, where not every text does.
fn choices(schema: &Value) -> Vec<&str> {
    let list = |field: &str| schema[field].as_array().into_iter().flatten();
    list("enum")
        .filter_map(Value::as_str)
        .chain(list("oneOf").filter_map(|one| one["const"].as_str()))
        .collect()
}

fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let room = width.clamp(40, 100).saturating_sub(indent.len());
    let mut lines = String::new();
    let mut line = String::new();
    for word in plain(text).split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > room {
            lines += &format!("{indent}{line}\n");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line += word;
    }
    lines + &format!("{indent}{line}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::asking::resource::MACHINES;

    fn document() -> Value {
        json!({"a.Machine": {
            "type": "object", "description": "A machine.",
            "x-kubernetes-group-version-kind": [{"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachine"}],
            "required": ["spec"],
            "properties": {
                "spec": {"allOf": [{"$ref": "#/components/schemas/a.Spec"}], "description": "What is wanted."},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "a.Spec": {"type": "object", "properties": {
                "disks": {"type": "array", "items": {"$ref": "#/components/schemas/a.Disk"}},
                "strategy": {"type": "string", "enum": ["Always", "Halted"]}}},
            "a.Disk": {"type": "object", "description": "A disk.", "properties": {
                "name": {"type": "string", "description": "Its name."},
                "below": {"$ref": "#/components/schemas/a.Disk"}}},
        })
    }

    fn said(path: &[&str]) -> Result<String, Refusal> {
        let document = document();
        let schemas = Schemas(&document);
        let root = schemas.of(&MACHINES).unwrap();
        Ok(schemas.described(schemas.at(root, path, "VirtualMachine")?, &MACHINES, path, 80))
    }

    #[test]
    fn a_kind_tells_its_fields_with_their_types() {
        let text = said(&[]).unwrap();
        assert!(
            text.contains("A machine.") && text.contains("  spec <object> required\n      What is wanted."),
            "{text}"
        );
        assert!(text.contains("  labels <map of string>"), "{text}");
    }

    #[test]
    fn a_path_leads_through_lists_and_references() {
        let text = said(&["spec", "disks"]).unwrap();
        assert!(
            text.contains("FIELD:    disks <[]object>") && text.contains("  name <string>\n      Its name."),
            "{text}"
        );
        assert!(said(&["spec", "strategy"]).unwrap().contains("ONE OF:   Always, Halted"));
    }

    #[test]
    fn a_field_that_is_none_is_told_with_the_nearest() {
        let why = said(&["spec", "disk"]).unwrap_err().to_string();
        assert_eq!(why, "there is no field disk in VirtualMachine.spec: did you mean disks?");
    }

    #[test]
    fn what_refers_to_itself_ends() {
        let document = document();
        let schemas = Schemas(&document);
        let text = schemas.tree(schemas.of(&MACHINES).unwrap(), 0, &mut Vec::new());
        assert!(text.contains("    below <object>") && text.lines().count() < 12, "{text}");
    }
}
