//! One thing that can be asked, written in the words of either document.

use serde_json::{Map, Value, json};
use sheaf_resources::schema::Flavour;

use super::{parameters::Parameter, schemas::reference};

const JSON: &str = "application/json";
const WATCH: &str = "application/json;stream=watch";
const YAML: &str = "application/yaml";
const ANYTHING: &str = "*/*";

/// Group, version and kind, as extensions name them.
#[derive(Clone, Copy)]
pub struct GroupVersionKind<'a>(pub &'a str, pub &'a str, pub &'a str);

impl GroupVersionKind<'_> {
    pub fn written(self) -> Value {
        json!({"group": self.0, "version": self.1, "kind": self.2})
    }
}

pub struct Operation<'a> {
    pub id: String,
    pub description: String,
    pub tag: &'a str,
    /// What access rules call it; none for discovery.
    pub action: Option<&'static str>,
    pub about: Option<GroupVersionKind<'a>>,
    pub parameters: &'static [&'static Parameter],
    pub body: Option<Body<'a>>,
    /// The status codes of success.
    pub codes: &'static [&'static str],
    /// The type of the answer.
    pub answer: &'a str,
    /// Whether the answer can be a stream of changes.
    pub watchable: bool,
    pub deprecated: bool,
}

pub struct Body<'a> {
    pub data_type: &'a str,
    /// Empty takes whatever the server can read.
    pub media_types: &'a [&'static str],
    pub required: bool,
}

impl Operation<'_> {
    pub fn written(&self, flavour: Flavour) -> Value {
        let mut out = Map::new();
        out.insert("tags".into(), json!([self.tag]));
        out.insert("description".into(), self.description.as_str().into());
        out.insert("operationId".into(), self.id.as_str().into());
        if self.deprecated {
            out.insert("deprecated".into(), true.into());
        }
        let mut parameters: Vec<Value> = self.parameters.iter().map(|one| one.used(flavour)).collect();
        match flavour {
            Flavour::V2 => {
                out.insert("schemes".into(), json!(["https"]));
                out.insert("produces".into(), json!(self.media_types()));
                out.insert("consumes".into(), json!(self.consumed()));
                parameters.extend(self.body.as_ref().map(Body::as_parameter));
            }
            Flavour::V3 => {
                if let Some(body) = &self.body {
                    out.insert("requestBody".into(), body.as_content());
                }
            }
        }
        if !parameters.is_empty() {
            out.insert("parameters".into(), parameters.into());
        }
        out.insert("responses".into(), self.responses(flavour));
        if let Some(action) = self.action {
            out.insert("x-kubernetes-action".into(), action.into());
        }
        if let Some(about) = self.about {
            out.insert("x-kubernetes-group-version-kind".into(), about.written());
        }
        Value::Object(out)
    }

    fn media_types(&self) -> &'static [&'static str] {
        if self.watchable { &[JSON, WATCH, YAML] } else { &[JSON, YAML] }
    }

    fn consumed(&self) -> &[&'static str] {
        match &self.body {
            Some(body) if !body.media_types.is_empty() => body.media_types,
            _ => &[ANYTHING],
        }
    }

    fn responses(&self, flavour: Flavour) -> Value {
        let schema = reference(self.answer, flavour);
        let mut out = Map::new();
        for code in self.codes {
            let mut response = json!({"description": meaning(code)});
            match flavour {
                Flavour::V2 => response["schema"] = schema.clone(),
                Flavour::V3 => response["content"] = content(self.media_types(), &schema),
            }
            out.insert((*code).into(), response);
        }
        out.insert("401".into(), json!({"description": meaning("401")}));
        Value::Object(out)
    }
}

impl Body<'_> {
    fn as_parameter(&self) -> Value {
        let mut out = json!({
            "name": "body", "in": "body", "schema": reference(self.data_type, Flavour::V2),
        });
        if self.required {
            out["required"] = true.into();
        }
        out
    }

    fn as_content(&self) -> Value {
        let schema = reference(self.data_type, Flavour::V3);
        let media_types = if self.media_types.is_empty() { &[ANYTHING] } else { self.media_types };
        let mut out = json!({"content": content(media_types, &schema)});
        if self.required {
            out["required"] = true.into();
        }
        out
    }
}

fn content(media_types: &[&str], schema: &Value) -> Value {
    let entries = media_types.iter().map(|media| (media.to_string(), json!({"schema": schema})));
    Value::Object(entries.collect())
}

fn meaning(code: &str) -> &'static str {
    match code {
        "200" => "OK",
        "201" => "Created",
        "202" => "Accepted",
        _ => "Unauthorized",
    }
}
