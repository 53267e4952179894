//! What can be done with objects beyond reading and writing them: `POST ...?action=NAME` and `GET ...?link=NAME`.
//!
//! Each resource that has any has a file here with a [`ResourceActions`], and a line in `ALL`. Which of them make sense as
//! an object stands is decided in the planner; this is the frame around it:
//!
//! ```text
//!   offered  =  what the state allows (fitting)  and  what the reader's rights allow (Action::needs)
//!   done     =  the rights are checked  ->  act  ->  errands: requests as its user would send them
//! ```
//!
//! Nothing here writes by itself. An action that is more than one write is an object whose controller takes the steps, so
//! that nothing is half done when the server ends in between.

mod key_pair;
mod look;
mod namespace;
mod node;
mod persistent_volume_claim;
mod snapshot_quota;
pub mod virtual_machine;
mod virtual_machine_image;
mod virtual_machine_template;
mod volume_snapshot;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use sheaf_resources::kind::Kind;

pub use self::look::Look;
use super::{
    errand::Errands,
    rights::{Right, Rights},
};
use crate::{request::Query, respond::ApiResponse, status::ApiError};

/// What an action is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    /// The schema of it: `cloneInput`.
    pub schema: &'static str,
    /// Its fields, and the type of each in the words of schemas.
    pub fields: &'static [(&'static str, &'static str)],
}

/// Something that can be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub name: &'static str,
    pub input: Option<Input>,
    /// What somebody must be allowed to do, in the namespace of the object, for this to be offered and done.
    pub needs: &'static [Right],
}

/// What came of an action or a link.
pub enum Outcome {
    /// It is done, and there is nothing to say.
    Done,
    Answer(Value),
    /// Objects of another kind that have a label, answered as their own collection is.
    Collection {
        group: &'static str,
        plural: &'static str,
        namespace: String,
        label: (&'static str, String),
    },
    /// A file, or something else that is no object.
    Response(Box<ApiResponse>),
}

/// One action that was asked for, on its way to whoever does it.
pub struct ActionCall<'a> {
    pub name: &'a str,
    pub errands: &'a Errands,
    pub look: &'a Look,
    /// The object as its user reads it; null for an action of a collection.
    pub object: &'a Value,
    pub namespace: &'a str,
    pub object_name: &'a str,
    /// An object, and an empty one if nothing was sent.
    pub body: &'a Value,
    pub query: &'a Query,
}

impl ActionCall<'_> {
    /// A field of the body that must be a text; empty if it is left out.
    pub fn text(&self, field: &str) -> Result<&str, ApiError> {
        match &self.body[field] {
            Value::Null => Ok(""),
            Value::String(text) => Ok(text.trim()),
            other => Err(ApiError::unprocessable(format!("{field} must be a text, not {other}"))),
        }
    }

    /// The same, of one that must not be left out.
    pub fn required(&self, field: &str) -> Result<&str, ApiError> {
        match self.text(field)? {
            "" => Err(ApiError::unprocessable(format!("Parameter {field} is required"))),
            text => Ok(text),
        }
    }
}

/// What can be done with the objects of one resource.
#[async_trait]
pub trait ResourceActions: Send + Sync {
    /// Of an object.
    fn of_object(&self) -> &'static [Action] {
        &[]
    }

    /// Of the collection.
    fn of_collection(&self) -> &'static [Action] {
        &[]
    }

    /// Links beside those that everything has: `GET ...?link=NAME` or `GET .../NAME`.
    fn links(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether objects are changed at all once they are made.
    fn is_changed(&self) -> bool {
        true
    }

    /// In which namespace, and of which name, the rights are asked for that an action on an object needs.
    fn place_of_rights<'a>(&self, namespace: &'a str, name: &'a str) -> (&'a str, &'a str) {
        (namespace, name)
    }

    /// The names of the actions that make sense as the object stands, whoever asks.
    fn fitting(&self, look: &Look, object: &Value) -> Vec<&'static str>;

    /// Does one. That its user has the rights it needs is known.
    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError>;

    /// Follows one of [`links`](Self::links). That its user may read the object is known.
    async fn follow(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        Err(ApiError::unknown(format!("there is no link {:?}", call.name)))
    }

    /// What is done before an object is deleted through the facade.
    async fn before_delete(&self, _call: &ActionCall<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Every resource with which more can be done than reading and writing, by the group and plural of its kind.
static ALL: [(&str, &str, &dyn ResourceActions); 9] = [
    ("", "namespaces", &namespace::Namespaces),
    ("", "nodes", &node::Nodes),
    ("", "persistentvolumeclaims", &persistent_volume_claim::PersistentVolumeClaims),
    ("harvesterhci.io", "keypairs", &key_pair::KeyPairs),
    ("harvesterhci.io", "virtualmachineimages", &virtual_machine_image::VirtualMachineImages),
    ("harvesterhci.io", "virtualmachinetemplates", &virtual_machine_template::VirtualMachineTemplates),
    (
        "harvesterhci.io",
        "virtualmachinetemplateversions",
        &virtual_machine_template::VirtualMachineTemplateVersions,
    ),
    ("kubevirt.io", "virtualmachines", &virtual_machine::VirtualMachines),
    ("snapshot.storage.k8s.io", "volumesnapshots", &volume_snapshot::VolumeSnapshots),
];

/// What can be done with the objects of a kind.
pub fn of(kind: &Kind) -> Option<&'static dyn ResourceActions> {
    let is_of = |(group, plural, _): &&(&str, &str, _)| *group == kind.group && *plural == kind.plural;
    ALL.iter().find(is_of).map(|(_, _, actions)| *actions)
}

/// What actions are sent, each once: for schemas.
pub fn inputs() -> impl Iterator<Item = Input> {
    let actions = ALL.iter().flat_map(|(_, _, one)| one.of_object().iter().chain(one.of_collection()));
    let mut inputs: Vec<Input> = actions.filter_map(|action| action.input).collect();
    inputs.sort_unstable_by_key(|input| input.schema);
    inputs.dedup();
    inputs.into_iter()
}

/// The names of what somebody may do with an object as it stands, in order.
pub fn offered(kind: &Kind, look: &Look, rights: &Rights, object: &Value) -> Vec<&'static str> {
    let Some(actions) = of(kind) else { return Vec::new() };
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let fitting = actions.fitting(look, object);
    let (namespace, name) = actions.place_of_rights(namespace, name);
    let mut offered: Vec<&'static str> = actions
        .of_object()
        .iter()
        .filter(|action| fitting.contains(&action.name))
        .filter(|action| action.needs.iter().all(|right| rights.may(&right.request(namespace, name))))
        .map(|action| action.name)
        .collect();
    offered.sort_unstable();
    offered
}

/// What was sent with an action: JSON of an object, or nothing.
pub fn read_body(body: &Bytes) -> Result<Value, ApiError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let why = |why: &str| ApiError::unprocessable(format!("Failed to decode request body: {why}"));
    match crate::body::json(body) {
        Ok(document) if document.value.is_object() => Ok(document.value),
        Ok(document) if document.value.is_null() => Ok(Value::Object(serde_json::Map::new())),
        Ok(_) => Err(why("it is not an object")),
        Err(error) => Err(why(error.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_sent_an_object_or_nothing() {
        let read = |text: &'static str| read_body(&Bytes::from_static(text.as_bytes()));
        for nothing in ["", " \n", "null", "{}"] {
            assert_eq!(read(nothing).unwrap(), serde_json::json!({}), "{nothing:?}");
        }
        for wrong in ["[]", "1", "{", "\"a\""] {
            assert_eq!(read(wrong).unwrap_err().code().as_u16(), 422, "{wrong}");
        }
    }

    #[test]
    fn every_action_has_a_name_of_its_own_and_says_what_it_needs() {
        for (_, plural, of) in &ALL {
            let actions = of.of_object();
            for (n, action) in actions.iter().enumerate() {
                assert!(!action.needs.is_empty(), "{} of {plural}", action.name);
                let others = &actions[..n];
                assert!(!others.iter().any(|other| other.name == action.name), "{} of {plural}", action.name);
            }
        }
    }

    #[test]
    fn inputs_of_one_name_are_the_same() {
        let mut names: Vec<&str> = inputs().map(|input| input.schema).collect();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all, "{names:?}");
    }
}
