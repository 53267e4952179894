//! An object as the facade shows it: what it is called, how it stands, and what may be done with it.
//!
//! | added | |
//! |---|---|
//! | `id`, `type` | `namespace/name`, and the schema it is of |
//! | `links` | where it is, and, of updating, patching and removing it, what its reader may do |
//! | `actions` | what can be done with it as it stands, by its reader |
//! | `metadata.state` | how it stands, in a word and a sentence |
//! | `metadata.relationships` | whose it is |
//! | `metadata.fields` | the cells of its row in kubectl's table |
//!
//! Fields of an object's own that have one of the first names are shown with an underscore before it. [`undressed`] takes
//! all of it off again, so that what was read can be sent back.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sheaf_resources::{path, summary};

use super::{
    actions::{self, Look},
    kinds::{id, id_of, plural_of},
    rights::Rights,
};
use crate::{
    ApiServer, admission,
    registry::Served,
    request::{Query, Verb},
    rest::table,
};

/// Names of the facade's own beside those of an object.
const RESERVED: [&str; 4] = ["id", "type", "links", "actions"];
const OF_METADATA: [&str; 3] = ["fields", "relationships", "state"];
const OF_CONDITIONS: [&str; 2] = ["error", "transitioning"];

/// Where a client reaches this server, and which of the facade's roots it asked.
#[derive(Clone, Debug)]
pub struct Base {
    /// `https://host`, with the prefix that the request had.
    pub server: String,
    pub root: &'static str,
}

impl Base {
    /// Where objects of a kind are.
    pub fn collection(&self, served: &Served) -> String {
        format!("{}{}/{}", self.server, self.root, plural_of(&served.kind))
    }

    /// An object, as the Kubernetes API has it.
    fn view(&self, served: &Served, namespace: &str, name: &str) -> String {
        let kind = &served.kind;
        let group = path::root(&kind.group, &kind.version);
        let namespace = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        format!("{}{group}{namespace}/{}/{name}", self.server, kind.plural)
    }
}

/// What of an object is shown.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    include: Vec<String>,
    exclude: Vec<String>,
    exclude_values: Vec<String>,
}

impl Chosen {
    pub fn read(query: &Query) -> Self {
        let all = |key: &str| -> Vec<String> {
            query.all(key).filter(|path| !path.is_empty()).map(str::to_owned).collect()
        };
        Chosen { include: all("include"), exclude: all("exclude"), exclude_values: all("excludeValues") }
    }

    fn apply(&self, object: &mut Value) {
        if !self.include.is_empty() {
            let mut only = json!({});
            for path in &self.include {
                let pointer = pointer(path);
                if let Some(found) = object.pointer(&pointer).cloned() {
                    put(&mut only, path, found);
                }
            }
            *object = only;
        }
        for path in &self.exclude {
            let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
            if let Some(Value::Object(parent)) = object.pointer_mut(&pointer(parent)) {
                parent.remove(last);
            }
        }
        for path in &self.exclude_values {
            if let Some(Value::Object(values)) = object.pointer_mut(&pointer(path)) {
                values.values_mut().for_each(|value| *value = "".into());
            }
        }
    }
}

fn pointer(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("/{}", path.replace('~', "~0").replace('/', "~1").replace('.', "/"))
    }
}

fn put(object: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        None => object[path] = value,
        Some((first, rest)) => {
            if !object[first].is_object() {
                object[first] = json!({});
            }
            put(&mut object[first], rest, value);
        }
    }
}

/// Dresses objects of one kind for one reader.
#[derive(Clone)]
pub struct Dresser {
    served: Arc<Served>,
    base: Base,
    rights: Rights,
    look: Arc<Look>,
    chosen: Chosen,
    server: ApiServer,
}

impl Dresser {
    pub fn new(
        server: &ApiServer,
        served: &Arc<Served>,
        base: &Base,
        rights: &Rights,
        chosen: Chosen,
    ) -> Self {
        Dresser {
            served: served.clone(),
            base: base.clone(),
            rights: rights.clone(),
            look: Arc::new(Look::new(server, rights)),
            chosen,
            server: server.clone(),
        }
    }

    /// The same, for another moment: what this one saw around its objects it does not know.
    pub fn anew(&self) -> Self {
        Dresser { look: Arc::new(Look::new(&self.server, &self.rights)), ..self.clone() }
    }

    /// Adds what lists are filtered and sorted by.
    pub fn describe(&self, object: &mut Value) {
        let now = self.server.world.clock.since_epoch().as_secs() as i64;
        let cells = table::cells(&self.served.kind, object, now);
        let state = summary::of(object).into_wire();
        let relationships = self.relationships(object);
        let (namespace, name) = place_of(object);
        if let Some(Value::Array(conditions)) = object.pointer_mut("/status/conditions") {
            for condition in conditions.iter_mut().filter(|condition| condition.is_object()) {
                let (error, transitioning) = summary::flags_of_condition(condition);
                condition["error"] = error.into();
                condition["transitioning"] = transitioning.into();
            }
        }
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["fields"] = cells.into();
        object["metadata"]["state"] = state;
        object["metadata"]["relationships"] = relationships;
        if let Some(fields) = object.as_object_mut() {
            for reserved in RESERVED {
                if let Some(own) = fields.remove(reserved) {
                    fields.insert(format!("_{reserved}"), own);
                }
            }
            fields.insert("id".into(), object_id(&namespace, &name).into());
            fields.insert("type".into(), id_of(&self.served.kind).into());
        }
    }

    /// Adds all that is added. `object` is described already.
    pub fn dress(&self, mut object: Value) -> Value {
        let (namespace, name) = place_of(&object);
        let actions = self.actions(&object, &namespace, &name);
        let (id, kind) = (object["id"].take(), object["type"].take());
        if let Some(fields) = object.as_object_mut() {
            fields.remove("id");
            fields.remove("type");
        }
        self.chosen.apply(&mut object);
        object["id"] = id;
        object["type"] = kind;
        object["links"] = self.links(&namespace, &name);
        object["actions"] = actions;
        object
    }

    /// An object that nobody has described yet.
    pub fn dressed(&self, mut object: Value) -> Value {
        self.describe(&mut object);
        self.dress(object)
    }

    fn links(&self, namespace: &str, name: &str) -> Value {
        let own = format!("{}/{}", self.base.collection(&self.served), object_id(namespace, name));
        let mut links = Map::new();
        links.insert("self".into(), own.clone().into());
        links.insert("view".into(), self.base.view(&self.served, namespace, name).into());
        let is_changed = actions::of(&self.served.kind).is_none_or(|actions| actions.is_changed());
        for (verb, link) in [(Verb::Update, "update"), (Verb::Patch, "patch"), (Verb::Delete, "remove")] {
            let may = || self.rights.may_to(verb, &self.served.kind, namespace, name);
            let is_taken = match verb {
                Verb::Delete => admission::is_kept(&self.served.kind, namespace, name).is_none(),
                _ => is_changed,
            };
            if is_taken && may() {
                links.insert(link.into(), own.clone().into());
            }
        }
        for link in actions::of(&self.served.kind).map(|actions| actions.links()).unwrap_or_default() {
            links.insert((*link).into(), format!("{own}/{link}").into());
        }
        Value::Object(links)
    }

    fn actions(&self, object: &Value, namespace: &str, name: &str) -> Value {
        let own = format!("{}/{}", self.base.collection(&self.served), object_id(namespace, name));
        let offered = actions::offered(&self.served.kind, &self.look, &self.rights, object);
        offered
            .into_iter()
            .map(|action| (action.to_owned(), format!("{own}?action={action}").into()))
            .collect::<Map<_, _>>()
            .into()
    }

    /// Whose it is. What depends on it is not looked for: that would be a look at everything there is.
    fn relationships(&self, object: &Value) -> Value {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let catalogue = self.server.registry.catalogue();
        let owned_by = |owner: &Value| {
            let (version, kind, name) =
                (text(&owner["apiVersion"]), text(&owner["kind"]), text(&owner["name"]));
            let group = version.split_once('/').map_or("", |(group, _)| group);
            let is_of = |served: &&Arc<Served>| served.kind.group == group && served.kind.kind == kind;
            // An owner is in the same namespace, or in none.
            let namespaced = catalogue.all().find(is_of).is_none_or(|served| served.kind.namespaced());
            let namespace = if namespaced { text(&object["metadata"]["namespace"]) } else { String::new() };
            json!({"rel": "owner", "fromType": id(group, &kind), "fromId": object_id(&namespace, &name)})
        };
        owners.map(owned_by).collect()
    }
}

/// `namespace/name`, or the name alone.
pub fn object_id(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

pub fn place_of(object: &Value) -> (String, String) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// The object that was dressed: what the facade adds is no part of it.
pub fn undressed(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        for reserved in RESERVED {
            fields.remove(reserved);
            if let Some(own) = fields.remove(&format!("_{reserved}")) {
                fields.insert(reserved.into(), own);
            }
        }
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        OF_METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
    }
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        OF_CONDITIONS.iter().for_each(|field| drop(condition.remove(*field)));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_taken_off_and_what_is_the_objects_own_is_not() {
        let shown = json!({
            "id": "a/b", "type": "secret", "_type": "Opaque", "links": {"self": "x"}, "actions": {},
            "metadata": {"name": "b", "fields": ["b"], "state": {"name": "active"}, "relationships": []},
            "status": {"conditions": [{"type": "Ready", "error": false, "transitioning": true, "status": "False"}]},
        });
        assert_eq!(
            undressed(shown),
            json!({"type": "Opaque", "metadata": {"name": "b"},
                "status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        );
        let plain = json!({"metadata": {"name": "b"}, "data": {"a": "b"}});
        assert_eq!(undressed(plain.clone()), plain);
        assert_eq!(undressed(json!([1])), json!([1]));
    }

    #[test]
    fn a_reader_chooses_what_is_shown() {
        let chosen = |query: &str, object: Value| {
            let mut object = object;
            Chosen::read(&Query::parse(Some(query))).apply(&mut object);
            object
        };
        let object =
            || json!({"metadata": {"name": "a", "managedFields": [1]}, "data": {"x": "1", "y": "2"}});
        assert_eq!(chosen("include=metadata.name", object()), json!({"metadata": {"name": "a"}}));
        assert_eq!(
            chosen("exclude=metadata.managedFields&exclude=data&exclude=not.there", object()),
            json!({"metadata": {"name": "a"}})
        );
        assert_eq!(chosen("excludeValues=data", object())["data"], json!({"x": "", "y": ""}));
        assert_eq!(chosen("", object()), object());
    }
}
