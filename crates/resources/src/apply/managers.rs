//! Who owns which fields of an object: `metadata.managedFields`, read and written.

use std::{cmp::Ordering, collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::field_set::FieldSet;

/// More managers of this operation than this are told apart by the newest only, as in the original.
pub(super) const MOST_UPDATE_MANAGERS: usize = 10;
/// What those that are no longer told apart are called.
const ANCIENT: &str = "ancient-changes";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }

    pub(super) fn read(text: &str) -> Option<Operation> {
        [Operation::Apply, Operation::Update].into_iter().find(|operation| operation.as_str() == text)
    }
}

/// Somebody who writes: one program, in one way, in one version of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    pub operation: Operation,
    pub name: String,
    /// Of the fields; an applier has one set, whatever version it last spoke.
    pub api_version: String,
    pub subresource: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned {
    pub fields: FieldSet,
    /// RFC 3339, when the set last changed.
    pub time: Option<String>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Managers(pub BTreeMap<Manager, Owned>);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unreadable {
    pub index: usize,
    pub reason: String,
}

impl Managers {
    /// Reads what an object carries.
    pub fn read(object: &Value) -> Result<Managers, Unreadable> {
        let mut managers = Managers::default();
        let entries = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
        for (index, entry) in entries.iter().enumerate() {
            let unreadable = |reason: String| Unreadable { index, reason };
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let Some(operation) = entry["operation"].as_str().and_then(Operation::read) else {
                return Err(unreadable("operation must be `Apply` or `Update`".into()));
            };
            if text("apiVersion").is_empty() {
                return Err(unreadable("apiVersion must not be empty".into()));
            }
            match text("fieldsType").as_str() {
                "FieldsV1" => {}
                "" => return Err(unreadable(format!("missing fieldsType in managed fields entry {index}"))),
                other => {
                    let why = format!("invalid fieldsType {other:?} in managed fields entry {index}");
                    return Err(unreadable(why));
                }
            }
            let fields = match &entry["fieldsV1"] {
                Value::Null => FieldSet::default(),
                fields => FieldSet::from_json(fields).map_err(|why| unreadable(why.to_string()))?,
            };
            let manager = Manager {
                operation,
                name: text("manager"),
                api_version: text("apiVersion"),
                subresource: text("subresource"),
            };
            let time = entry["time"].as_str().map(str::to_owned);
            managers.0.insert(manager, Owned { fields, time });
        }
        Ok(managers)
    }

    /// Writes itself into an object; nothing is left of `managedFields` when there is nobody.
    pub fn write(&self, object: &mut Value) {
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        match self.written() {
            Some(entries) => metadata.insert("managedFields".into(), entries),
            None => metadata.remove("managedFields"),
        };
    }

    /// As `managedFields`; nothing when there is nobody.
    pub fn written(&self) -> Option<Value> {
        let entries = self.0.iter().map(|(manager, owned)| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation.as_str(),
                "apiVersion": manager.api_version, "fieldsType": "FieldsV1", "fieldsV1": owned.fields.to_json(),
            });
            if let Some(time) = &owned.time {
                entry["time"] = time.as_str().into();
            }
            if !manager.subresource.is_empty() {
                entry["subresource"] = manager.subresource.as_str().into();
            }
            entry
        });
        let mut entries: Vec<Value> = entries.collect();
        entries.sort_by(order);
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// The set that a manager has; appliers are looked for in every version.
    pub(super) fn take(&mut self, manager: &Manager) -> Option<(Manager, Owned)> {
        let found = self.0.keys().find(|candidate| match manager.operation {
            Operation::Update => *candidate == manager,
            Operation::Apply => {
                candidate.operation == Operation::Apply
                    && candidate.name == manager.name
                    && candidate.subresource == manager.subresource
            }
        });
        let found = found.cloned()?;
        self.0.remove_entry(&found)
    }

    /// Gives those who changed an object long ago one name together, per version, until few enough are left.
    pub(super) fn cap(&mut self) {
        let updates = self.0.iter().filter(|(manager, _)| manager.operation == Operation::Update);
        let mut updates: Vec<(Option<String>, String, Manager)> = updates
            .map(|(manager, owned)| (owned.time.clone(), manager.identifier(), manager.clone()))
            .collect();
        let mut left = updates.len();
        if left <= MOST_UPDATE_MANAGERS {
            return;
        }
        updates.sort();
        let mut oldest: BTreeMap<String, Manager> = BTreeMap::new();
        for (time, _, manager) in updates {
            if left <= MOST_UPDATE_MANAGERS {
                break;
            }
            let Some(first) = oldest.get(&manager.api_version) else {
                oldest.insert(manager.api_version.clone(), manager);
                continue;
            };
            let ancient = Manager { name: ANCIENT.into(), subresource: String::new(), ..manager.clone() };
            if !self.0.contains_key(&ancient)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(ancient.clone(), owned);
            }
            let Some(owned) = self.0.remove(&manager) else { continue };
            let together = self.0.entry(ancient).or_default();
            together.fields = std::mem::take(&mut together.fields).union(&owned.fields);
            together.time = time;
            left -= 1;
        }
    }
}

/// The order in which managers are written: appliers first, then by time.
pub(super) fn order(one: &Value, other: &Value) -> Ordering {
    // Whoever has no time, or writes no subresource, comes before those that do.
    ["operation", "time", "manager", "apiVersion", "subresource"]
        .iter()
        .map(|name| one[name].as_str().cmp(&other[name].as_str()))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

impl Manager {
    /// What it is known by: conflicts are told in the order of these.
    pub(super) fn identifier(&self) -> String {
        let mut text = format!(
            r#"{{"manager":{},"operation":"{}""#,
            Value::from(self.name.as_str()),
            self.operation.as_str()
        );
        if self.operation == Operation::Update {
            text.push_str(&format!(r#","apiVersion":{}"#, Value::from(self.api_version.as_str())));
        }
        if !self.subresource.is_empty() {
            text.push_str(&format!(r#","subresource":{}"#, Value::from(self.subresource.as_str())));
        }
        text.push('}');
        text
    }
}

/// As it is told to people who are at odds with it.
impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        match self.operation {
            Operation::Apply => Ok(()),
            Operation::Update => write!(f, " using {}", self.api_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_appliers_first() {
        let entry = |manager: &str, operation: &str, time: &str| {
            json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}})
        };
        let (late, early) =
            (entry("b", "Update", "2026-01-02T00:00:00Z"), entry("c", "Update", "2026-01-01T00:00:00Z"));
        let apply = entry("z", "Apply", "2026-01-03T00:00:00Z");
        let mut object = json!({"metadata": {"managedFields": [late, early, apply]}});
        let managers = Managers::read(&object).unwrap();
        managers.write(&mut object);
        assert_eq!(object["metadata"]["managedFields"], json!([apply, early, late]));
        Managers::default().write(&mut object);
        assert_eq!(object, json!({"metadata": {}}));
    }

    #[test]
    fn what_cannot_be_read_is_said_so() {
        for entry in [
            json!({"operation": "Guess", "apiVersion": "v1", "fieldsType": "FieldsV1"}),
            json!({"operation": "Apply", "fieldsType": "FieldsV1"}),
            json!({"operation": "Apply", "apiVersion": "v1"}),
            json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2"}),
            json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}),
        ] {
            assert!(Managers::read(&json!({"metadata": {"managedFields": [entry]}})).is_err());
        }
    }
}
