//! Why a request about identity or rights was not answered, in the words the original uses for it.
//!
//! No HTTP status here: the API server turns each variant into its own.

use std::fmt;

use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    BadRequest { message: String },
    Invalid { group: &'static str, kind: &'static str, name: String, causes: Vec<Cause> },
    Forbidden { group: String, resource: String, name: String, message: String },
    NotFound { group: String, resource: String, name: String },
    Conflict { group: String, resource: String, name: String, message: String },
}

/// One field that is wrong, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    pub field: String,
    pub value: Value,
    pub detail: String,
}

impl Cause {
    pub fn new(field: &str, value: Value, detail: &str) -> Self {
        Cause { field: field.to_owned(), value, detail: detail.to_owned() }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An absent value shows as the word in quotes, which is what the original prints for a nil pointer.
        let value = if self.value.is_null() { "\"null\"".to_owned() } else { self.value.to_string() };
        write!(f, "{}: Invalid value: {value}: {}", self.field, self.detail)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::BadRequest { message } => f.write_str(message),
            Refusal::Invalid { group, kind, name, causes } => {
                write!(f, "{} {name:?} is invalid: ", qualified(kind, group))?;
                match causes.as_slice() {
                    [only] => only.fmt(f),
                    many => {
                        let listed: Vec<_> = many.iter().map(Cause::to_string).collect();
                        write!(f, "[{}]", listed.join(", "))
                    }
                }
            }
            Refusal::Forbidden { group, resource, name, message } => match (resource.as_str(), name.as_str())
            {
                ("", _) => write!(f, "forbidden: {message}"),
                (resource, "") => write!(f, "{} is forbidden: {message}", qualified(resource, group)),
                (resource, name) => {
                    write!(f, "{} {name:?} is forbidden: {message}", qualified(resource, group))
                }
            },
            Refusal::NotFound { group, resource, name } => {
                write!(f, "{} {name:?} not found", qualified(resource, group))
            }
            Refusal::Conflict { group, resource, name, message } => {
                let resource = qualified(resource, group);
                write!(f, "Operation cannot be fulfilled on {resource} {name:?}: {message}")
            }
        }
    }
}

impl std::error::Error for Refusal {}

fn qualified(word: &str, group: &str) -> String {
    if group.is_empty() { word.to_owned() } else { format!("{word}.{group}") }
}
