//! Which kinds are served at this moment: the built-in ones, and custom resources as their definitions come and go.
//!
//! Derived from the cache on demand: when any CustomResourceDefinition changed since the last look,
//! the changed ones are read again before the request goes on. So whoever has seen a definition
//! become Established finds its resource served, without a window in between.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use parking_lot::RwLock;
use serde_json::Value;
use sheaf_resources::{
    kind::Kind,
    kinds::{self, custom_resource_definition},
    schema,
};

use crate::cache::{Cache, Resource, object::CachedObject, table::Table};

pub const CRD_GROUP: &str = "apiextensions.k8s.io";
pub const CRD_PLURAL: &str = "customresourcedefinitions";

/// One kind with what the API server derives from its row.
pub struct Served {
    pub kind: Kind,
    pub resource: Resource,
    /// Its definition is being deleted: what is there may be read and deleted, nothing added.
    pub terminating: bool,
    /// Which definition it comes from; `None` for built-in kinds.
    pub definition: Option<Arc<Origin>>,
}

/// What a definition said when a row was read from it.
#[derive(Debug, PartialEq)]
pub struct Origin {
    uid: Value,
    spec: Value,
}

impl Served {
    fn new(kind: Kind) -> Self {
        let resource = Resource::new(&kind.stored_under.0, &kind.stored_under.1);
        Served { kind, resource, terminating: false, definition: None }
    }
}

/// Group, version and plural.
type Address = (String, String, String);

/// All kinds served at one moment.
#[derive(Clone, Default)]
pub struct Catalogue {
    kinds: BTreeMap<Address, Arc<Served>>,
    /// Changes whenever the set or any row of it does.
    pub generation: u64,
    /// Aggregated discovery of all groups but the core one, and of that one: encoded by the first request for it.
    pub aggregated_discovery: [OnceLock<Bytes>; 2],
}

impl Catalogue {
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.kinds.get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// The kind whose objects are stored under a resource, in the version they are stored in.
    pub fn stored(&self, resource: &Resource) -> Option<&Arc<Served>> {
        self.kinds.values().find(|served| {
            served.resource == *resource
                && served.kind.conversion.is_none()
                && served.kind.api_version() == served.kind.stored_version
        })
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.kinds.values()
    }
}

/// A definition as last read.
struct Definition {
    revision: u64,
    served: Vec<Arc<Served>>,
}

pub struct Registry {
    cache: Arc<Cache>,
    definitions_table: Arc<Table>,
    state: RwLock<State>,
}

struct State {
    catalogue: Arc<Catalogue>,
    built_in: Vec<Arc<Served>>,
    definitions: BTreeMap<Arc<str>, Definition>,
    /// The definitions table's revision this state was derived from.
    seen: u64,
}

impl Registry {
    pub fn new(cache: Arc<Cache>) -> Self {
        let built_in: Vec<_> =
            kinds::built_in().into_iter().map(|kind| Arc::new(Served::new(kind))).collect();
        let definitions_table = cache.table(&Resource::new(CRD_GROUP, CRD_PLURAL));
        let registry = Registry {
            cache,
            definitions_table,
            state: RwLock::new(State {
                catalogue: Arc::default(),
                built_in,
                definitions: BTreeMap::new(),
                seen: u64::MAX,
            }),
        };
        registry.catalogue();
        registry
    }

    /// What is served now.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        let changed = self.definitions_table.changed();
        {
            let state = self.state.read();
            if state.seen == changed {
                return state.catalogue.clone();
            }
        }
        let mut state = self.state.write();
        if state.seen != changed {
            self.refresh(&mut state, changed);
        }
        state.catalogue.clone()
    }

    /// The revision of the newest change to any definition.
    pub fn definitions_changed(&self) -> u64 {
        self.definitions_table.changed()
    }

    /// Waits for a definition to change after `seen`.
    pub async fn definition_changes(&self, seen: u64) {
        self.definitions_table.changes(seen).await;
    }

    /// Whether a row is still served as it was read.
    pub fn still_serves(&self, served: &Served) -> bool {
        let kind = &served.kind;
        served.definition.is_none()
            || self
                .catalogue()
                .find(&kind.group, &kind.version, &kind.plural)
                .is_some_and(|now| now.definition == served.definition)
    }

    fn refresh(&self, state: &mut State, changed: u64) {
        let snapshot = self.definitions_table.snapshot();
        state.definitions.retain(|place, definition| {
            let stays = snapshot.contains_key(place);
            if !stays {
                for served in &definition.served {
                    self.cache.set_refiner(&served.resource, None);
                }
            }
            stays
        });
        for (place, object) in &snapshot {
            if state.definitions.get(place).is_some_and(|known| known.revision == object.revision) {
                continue;
            }
            let served = self.read_definition(object);
            state.definitions.insert(place.clone(), Definition { revision: object.revision, served });
        }
        // The built-in ones last: nothing takes their place.
        let all = state.definitions.values().flat_map(|d| &d.served).chain(&state.built_in);
        let kinds = all
            .map(|served| {
                let kind = &served.kind;
                ((kind.group.clone(), kind.version.clone(), kind.plural.clone()), served.clone())
            })
            .collect();
        let generation = state.catalogue.generation + 1;
        state.catalogue = Arc::new(Catalogue { kinds, generation, aggregated_discovery: Default::default() });
        state.seen = changed;
    }

    /// The rows a definition adds: none until it is established.
    fn read_definition(&self, object: &CachedObject) -> Vec<Arc<Served>> {
        let definition = object.to_value();
        if !is_established(&definition) {
            return Vec::new();
        }
        let kinds = match custom_resource_definition::served_kinds(&definition) {
            Ok(kinds) => kinds,
            Err(why) => {
                tracing::error!(name = object.name(), %why, "an established definition cannot be read; its resource is not served");
                return Vec::new();
            }
        };
        let terminating = sheaf_resources::object_meta::is_being_deleted(&definition);
        let origin =
            Arc::new(Origin { uid: definition["metadata"]["uid"].clone(), spec: definition["spec"].clone() });
        let served: Vec<_> = kinds
            .into_iter()
            .map(|kind| {
                Arc::new(Served { terminating, definition: Some(origin.clone()), ..Served::new(kind) })
            })
            .collect();
        if let Some(stored) = served.iter().find(|s| s.kind.api_version() == s.kind.stored_version) {
            self.cache.set_refiner(&stored.resource, Some(refiner(stored.clone())));
        }
        served
    }
}

fn is_established(definition: &Value) -> bool {
    definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Reads an object that was written under an older schema as one of the present schema: what the
/// schema no longer knows is dropped, what it now defaults is there.
fn refiner(served: Arc<Served>) -> crate::cache::Refine {
    Arc::new(move |object| {
        let before = object.to_value();
        let mut after = before.clone();
        let schema = served.kind.schema.get();
        schema::prune(&mut after, &schema, true);
        let filled = schema::apply_defaults(&mut after, &schema);
        // An object that the defaults of a new schema would make too large stays as it was written.
        if filled.is_err() || after == before {
            return None;
        }
        let stored = crate::cache::object::encode(&after);
        CachedObject::decode(object.place.clone(), object.revision, &stored).ok()
    })
}
