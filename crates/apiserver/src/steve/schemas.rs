//! What types there are, and what of each its reader may do: `/v1/schemas`, and what they are made of: `/v1/schemaDefinitions`.

mod definition;

use http::{Method, request::Parts};
use serde_json::{Map, Value, json};
use sheaf_resources::kind::Kind;

use super::{
    actions::{self, Action, ResourceActions},
    address::Address,
    kinds::{self, id_of, plural_of},
    object::Base,
    rights::{Reach, Rights},
};
use crate::{
    ApiServer,
    negotiate::Format,
    registry::Served,
    request::Verb,
    respond::{self, ApiResponse},
    rest::table,
    status::{ApiError, success},
};

/// The fields of a type, and the type of each.
type Fields = [(&'static str, &'static str)];

/// Types of the facade's own: id, plural, fields.
const OWN: [(&str, &str, &Fields); 6] = [
    ("apiRoot", "apiRoots", &[]),
    ("collection", "", &[("data", "array[json]"), ("resourceType", "string"), ("revision", "string")]),
    ("count", "counts", &[("counts", "map[json]")]),
    ("error", "", &[("code", "string"), ("message", "string"), ("status", "int"), ("type", "string")]),
    (
        "schema",
        "schemas",
        &[
            ("collectionMethods", "array[string]"),
            ("pluralName", "string"),
            ("resourceFields", "map[json]"),
            ("resourceMethods", "array[string]"),
        ],
    ),
    (
        "subscribe",
        "subscribe",
        &[
            ("id", "string"),
            ("mode", "string"),
            ("namespace", "string"),
            ("resourceType", "string"),
            ("resourceVersion", "string"),
            ("selector", "string"),
            ("stop", "boolean"),
        ],
    ),
];

const VERBS: [Verb; 8] = [
    Verb::Create,
    Verb::Delete,
    Verb::DeleteCollection,
    Verb::Get,
    Verb::List,
    Verb::Patch,
    Verb::Update,
    Verb::Watch,
];

impl ApiServer {
    pub(super) fn answer_schemas(
        &self,
        parts: &Parts,
        address: &Address,
        base: &Base,
        rights: &Rights,
    ) -> Result<ApiResponse, ApiError> {
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let ids: Vec<&str> = address.rest.iter().map(String::as_str).collect();
        let answer = match (address.noun.as_str(), ids.as_slice()) {
            ("", _) => self.root(base, rights),
            ("schema" | "schemas", []) => collection(base, "schema", "schemas", self.schemas(base, rights)),
            ("schema" | "schemas", [id]) => self.schema(base, rights, id)?,
            ("schemadefinition" | "schemadefinitions", [id]) => self.schema_definition(base, rights, id)?,
            _ => return Err(ApiError::unknown("there is no such schema")),
        };
        Ok(respond::value(success::OK, Format::Json, &answer))
    }

    fn root(&self, base: &Base, rights: &Rights) -> Value {
        let mut links: Map<String, Value> = Map::new();
        links.insert("self".into(), format!("{}{}", base.server, base.root).into());
        for schema in self.schemas(base, rights) {
            if let (Some(plural), Some(link)) =
                (schema["pluralName"].as_str(), schema["links"]["collection"].as_str())
            {
                links.insert(plural.to_owned(), link.into());
            }
        }
        let root = json!({"id": "v1", "type": "apiRoot", "apiVersion": {"version": "v1"}, "links": links});
        collection(base, "apiRoot", "", vec![root])
    }

    /// Every schema that its reader may see, in the order of their ids.
    fn schemas(&self, base: &Base, rights: &Rights) -> Vec<Value> {
        let own = OWN.iter().map(|(id, plural, fields)| own_schema(base, id, plural, fields));
        let inputs = actions::inputs().map(|input| own_schema(base, input.schema, "", input.fields));
        let kinds = kinds::all(&self.registry.catalogue());
        let kinds = kinds.iter().filter_map(|served| schema_of(base, rights, served));
        let mut schemas: Vec<Value> = own.chain(inputs).chain(kinds).collect();
        schemas.sort_by(|one, other| one["id"].as_str().cmp(&other["id"].as_str()));
        schemas.dedup_by(|one, other| one["id"] == other["id"]);
        schemas
    }

    fn schema(&self, base: &Base, rights: &Rights, id: &str) -> Result<Value, ApiError> {
        let is_meant = |schema: &Value| {
            let text = |field: &str| schema[field].as_str().unwrap_or_default();
            text("id").eq_ignore_ascii_case(id) || text("pluralName").eq_ignore_ascii_case(id)
        };
        let found = self.schemas(base, rights).into_iter().find(is_meant);
        found.ok_or_else(|| ApiError::unknown(format!("there is no schema {id:?}")))
    }

    fn schema_definition(&self, base: &Base, rights: &Rights, id: &str) -> Result<Value, ApiError> {
        let unknown = || ApiError::unknown(format!("there is no schema {id:?}"));
        let served = kinds::find(&self.registry.catalogue(), &id.to_lowercase()).ok_or_else(unknown)?;
        schema_of(base, rights, &served).ok_or_else(unknown)?;
        let id = id_of(&served.kind);
        Ok(json!({
            "id": id, "type": "schemaDefinition", "definitionType": id,
            "links": {"self": format!("{}{}/schemaDefinitions/{id}", base.server, base.root)},
            "definitions": definition::all(&id, &served.kind.schema.get()),
        }))
    }
}

fn collection(base: &Base, resource_type: &str, plural: &str, data: Vec<Value>) -> Value {
    let own = format!("{}{}/{plural}", base.server, base.root);
    json!({
        "type": "collection", "resourceType": resource_type, "links": {"self": own.trim_end_matches('/')},
        "createTypes": {}, "actions": {}, "count": data.len(), "data": data,
    })
}

fn own_schema(base: &Base, id: &str, plural: &str, fields: &[(&str, &str)]) -> Value {
    let fields: Map<String, Value> = fields
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind, "create": true, "update": true})))
        .collect();
    let mut schema = json!({
        "id": id, "type": "schema", "pluralName": if plural.is_empty() { id } else { plural },
        "links": {"self": format!("{}{}/schemas/{id}", base.server, base.root)},
        "resourceFields": fields, "resourceMethods": [], "collectionMethods": [],
    });
    if !plural.is_empty() {
        schema["links"]["collection"] = format!("{}{}/{plural}", base.server, base.root).into();
        schema["collectionMethods"] = json!(["GET"]);
    }
    schema
}

/// The schema of a kind; `None` if its reader may do nothing with it.
fn schema_of(base: &Base, rights: &Rights, served: &Served) -> Option<Value> {
    let kind = &served.kind;
    let mut access = Map::new();
    for verb in VERBS.iter().filter(|verb| kind.verbs.names().contains(&verb.as_str())) {
        let reach = rights.reach(*verb, kind);
        if !reach.is_nowhere() {
            access.insert(verb.as_str().into(), access_of(reach));
        }
    }
    let may = |verb: Verb| access.contains_key(verb.as_str());
    let mut of_object = Vec::new();
    let mut of_collection = Vec::new();
    if may(Verb::Get) || may(Verb::List) {
        of_object.push("GET");
        of_collection.push("GET");
    }
    if may(Verb::Delete) {
        of_object.push("DELETE");
    }
    if may(Verb::Update) {
        of_object.push("PUT");
    }
    if may(Verb::Patch) {
        of_object.push("PATCH");
    }
    if may(Verb::Create) {
        of_collection.push("POST");
    }
    if of_object.is_empty() && of_collection.is_empty() {
        return None;
    }
    let id = id_of(kind);
    let actions = actions::of(kind);
    let table = |of: fn(&dyn ResourceActions) -> &'static [Action]| match actions {
        Some(actions) => described(of(actions)),
        None => json!({}),
    };
    Some(json!({
        "id": id, "type": "schema", "pluralName": plural_of(kind),
        "links": {
            "self": format!("{}{}/schemas/{id}", base.server, base.root), "collection": base.collection(served),
        },
        "description": kind.schema.get().description,
        "resourceMethods": of_object, "collectionMethods": of_collection,
        "resourceFields": definition::fields(&id, &kind.schema.get()),
        "resourceActions": table(|actions| actions.of_object()),
        "collectionActions": table(|actions| actions.of_collection()),
        "attributes": attributes(kind, access),
    }))
}

fn described(actions: &[Action]) -> Value {
    let each = actions.iter().map(|action| {
        let input = action.input.map_or(json!({}), |input| json!({"input": input.schema}));
        (action.name.to_owned(), input)
    });
    Value::Object(each.collect())
}

fn attributes(kind: &Kind, access: Map<String, Value>) -> Value {
    let mut columns = table::column_definitions(kind);
    for (n, column) in columns.as_array_mut().into_iter().flatten().enumerate() {
        column["field"] = format!("$.metadata.fields[{n}]").into();
    }
    json!({
        "group": kind.group, "version": kind.version, "kind": kind.kind, "resource": kind.plural,
        "namespaced": kind.namespaced(), "verbs": kind.verbs.names(), "columns": columns, "access": access,
    })
}

fn access_of(reach: Reach) -> Value {
    let all = |namespace: &str, name: &str| json!({"namespace": namespace, "resourceName": name});
    match reach {
        Reach::Everywhere => json!([all("*", "*")]),
        Reach::Namespaces(namespaces) => namespaces.iter().map(|namespace| all(namespace, "*")).collect(),
        Reach::Names(names) => names.iter().map(|name| all("*", name)).collect(),
    }
}
