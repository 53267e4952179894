//! A kind as the API serves it: one row of the table the whole tree is ordered by.
//!
//! Built-in kinds are written down in [`crate::kinds`]; a custom resource becomes rows of the
//! same type, one per served version, when its definition is established. Nothing in the API
//! server asks which sort it has, beyond what a row says.

use std::sync::{Arc, OnceLock};

use k8s_openapi::Resource;
use schemars::JsonSchema;
use serde_json::Value;

use crate::{
    field_error::FieldError,
    kinds::custom_resource_definition,
    names::NameRule,
    schema::{self, NamedTypes, Schema, rules::Rules},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// What may be asked of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// Objects that are kept.
    All,
    /// Objects that are kept, and deleted one at a time only.
    NoCollection,
    /// Questions: posted, answered, never kept.
    CreateOnly,
    /// Objects that the cluster itself keeps for others to read.
    ReadOnly,
}

impl Verbs {
    /// As discovery lists them.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Verbs::All => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
            Verbs::NoCollection => &["create", "delete", "get", "list", "patch", "update", "watch"],
            Verbs::CreateOnly => &["create"],
            Verbs::ReadOnly => &["get", "list", "watch"],
        }
    }

    /// Whether there are objects to read and change.
    pub fn are_kept(self) -> bool {
        self != Verbs::CreateOnly
    }
}

/// A subresource beside `status` and `scale`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// The kind of its body when that is another one: (group, version, kind).
    pub body: Option<(&'static str, &'static str, &'static str)>,
    pub verbs: &'static [&'static str],
}

/// How a column's cell is computed.
#[derive(Clone)]
pub enum Cell {
    /// As a custom resource declares it.
    Declared(custom_resource_definition::Column),
    /// Built-in kinds: the object and the time now (seconds since the epoch) to the cell.
    Computed(fn(&Value, i64) -> Value),
}

/// One column of `kubectl get`.
#[derive(Clone)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean`, `date`.
    pub data_type: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub priority: i32,
    pub cell: Cell,
}

impl Column {
    pub fn computed(name: &str, cell: fn(&Value, i64) -> Value) -> Self {
        Column {
            name: name.into(),
            data_type: "string".into(),
            format: String::new(),
            description: String::new(),
            priority: 0,
            cell: Cell::Computed(cell),
        }
    }

    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    pub fn integer(mut self) -> Self {
        self.data_type = "integer".into();
        self
    }

    pub fn format(mut self, format: &str) -> Self {
        self.format = format.into();
        self
    }
}

/// What a kind does beyond what its schema says. All pure; each has a do-nothing default.
#[derive(Clone, Copy)]
pub struct Behaviour {
    /// Drops what the schema cannot tell is unknown, and says what.
    pub prune: fn(&mut Value) -> Vec<String>,
    /// Fills in what a client may leave out. Runs on every decoded object.
    pub default: fn(&mut Value),
    /// Runs before a create is validated: what a client may not choose is set here.
    pub prepare_create: fn(&mut Value),
    /// `(new, old)`, before an update is validated.
    pub prepare_update: fn(&mut Value, &Value),
    /// `(new, old on update)`.
    pub validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
    /// `(new, old on update)`: what is no error and yet probably not meant.
    pub warnings: fn(&Value, Option<&Value>) -> Vec<String>,
    pub name_rule: NameRule,
    /// Whether an update without a resourceVersion is taken as "whatever is there".
    pub unconditional_update: bool,
    /// Whether a PUT of an object that is not there makes it.
    pub create_on_update: bool,
    /// Whether `metadata.generation` counts changes of what is wanted.
    pub generation: bool,
    /// Encrypted in the store.
    pub sealed: bool,
    /// Added when the object is deleted: somebody must clean up behind it first.
    pub finalizer_on_delete: Option<&'static str>,
}

impl Behaviour {
    pub const PLAIN: Behaviour = Behaviour {
        prune: |_| Vec::new(),
        default: |_| {},
        prepare_create: |_| {},
        prepare_update: |_, _| {},
        validate: |_, _| Vec::new(),
        warnings: |_, _| Vec::new(),
        name_rule: NameRule::DnsSubdomain,
        unconditional_update: true,
        create_on_update: false,
        generation: false,
        sealed: false,
        finalizer_on_delete: None,
    };
}

/// Turns an object between its stored form and the form a version serves.
#[derive(Clone, Copy)]
pub struct Conversion {
    pub from_stored: fn(&mut Value),
    pub into_stored: fn(&mut Value),
}

/// Where a schema comes from: built-in ones are made when first needed.
#[derive(Clone)]
pub enum SchemaSource {
    BuiltIn {
        make: fn() -> Schema,
        made: Arc<OnceLock<Arc<Schema>>>,
        /// How the original names the types in it; none for kinds of our own.
        types: Option<NamedTypes>,
    },
    Custom(Arc<Schema>),
}

impl SchemaSource {
    pub fn built_in(make: fn() -> Schema) -> Self {
        SchemaSource::BuiltIn { make, made: Arc::default(), types: None }
    }

    pub fn get(&self) -> Arc<Schema> {
        match self {
            SchemaSource::BuiltIn { make, made, .. } => made.get_or_init(|| Arc::new(make())).clone(),
            SchemaSource::Custom(schema) => schema.clone(),
        }
    }

    /// The same, without holding on to it.
    pub fn look(&self) -> &Schema {
        match self {
            SchemaSource::BuiltIn { make, made, .. } => made.get_or_init(|| Arc::new(make())),
            SchemaSource::Custom(schema) => schema,
        }
    }
}

/// One kind in one version.
#[derive(Clone)]
pub struct Kind {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    pub verbs: Verbs,
    /// Whether `status` is a subresource of its own.
    pub status: bool,
    pub scale: Option<custom_resource_definition::Scale>,
    pub subresources: Vec<Subresource>,
    pub schema: SchemaSource,
    /// The rules in the schema of a custom resource and what they can cost, compiled when first needed.
    pub rules: Arc<OnceLock<(Option<Rules>, u64)>>,
    pub columns: Vec<Column>,
    /// Field selectors beside `metadata.name` and `metadata.namespace`: dotted paths.
    pub selectable_fields: Vec<String>,
    pub behaviour: Behaviour,
    /// Whether it came from a CustomResourceDefinition.
    pub custom: bool,
    /// The group and plural its objects are stored under; differs from its own where two groups show
    /// the same objects.
    pub stored_under: (String, String),
    /// The apiVersion objects are stored with.
    pub stored_version: String,
    pub conversion: Option<Conversion>,
    /// Clients that use this version are warned with this text.
    pub deprecation: Option<String>,
}

impl Kind {
    /// A kind that the original has too: [`Kind::built_in`] with all that its type says. The schema is
    /// kept without its texts for people, which documents take from the type.
    pub fn of_type<T: Resource + JsonSchema>(plural: &str) -> Self {
        let mut kind = Kind::built_in(T::GROUP, T::VERSION, T::KIND, plural, || {
            schema::from_k8s_openapi::<T>().without_descriptions()
        });
        if let SchemaSource::BuiltIn { types, .. } = &mut kind.schema {
            *types = Some(NamedTypes::of::<T>());
        }
        kind
    }

    /// A built-in, namespaced, kept kind with nothing special about it.
    pub fn built_in(group: &str, version: &str, kind: &str, plural: &str, schema: fn() -> Schema) -> Self {
        let api_version = api_version(group, version);
        Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            list_kind: format!("{kind}List"),
            plural: plural.into(),
            singular: kind.to_ascii_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: Scope::Namespaced,
            verbs: Verbs::All,
            status: false,
            scale: None,
            subresources: Vec::new(),
            schema: SchemaSource::built_in(schema),
            rules: Arc::default(),
            columns: Vec::new(),
            selectable_fields: Vec::new(),
            behaviour: Behaviour::PLAIN,
            custom: false,
            stored_under: (group.into(), plural.into()),
            stored_version: api_version,
            conversion: None,
            deprecation: None,
        }
    }

    pub fn cluster_scoped(mut self) -> Self {
        self.scope = Scope::Cluster;
        self
    }

    pub fn short(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(|name| name.to_string()).collect();
        self
    }

    pub fn with_status(mut self) -> Self {
        self.status = true;
        self
    }

    pub fn with_subresource(mut self, subresource: Subresource) -> Self {
        self.subresources.push(subresource);
        self
    }

    pub fn columns(mut self, columns: Vec<Column>) -> Self {
        self.columns = columns;
        self
    }

    pub fn selectable(mut self, fields: &[&str]) -> Self {
        self.selectable_fields = fields.iter().map(|field| field.to_string()).collect();
        self
    }

    pub fn behaving(mut self, behaviour: Behaviour) -> Self {
        self.behaviour = behaviour;
        self
    }

    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// Adds what the definition of a custom resource holds against an object to `errors`; gives back what is only
    /// to be warned of.
    pub fn judge(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) -> Vec<String> {
        let (rules, _) = self.rules();
        schema::judge(new, old, &self.schema.get(), rules.as_ref(), errors)
    }

    /// The most that [`Kind::judge`] can cost beyond looking at the object once, in units of some fifty nanoseconds.
    /// Nothing while the rules were never used: the first use compiles them, which takes as long as it takes.
    pub fn cost_of_rules(&self) -> Option<u64> {
        self.rules.get().map(|(_, cost)| *cost)
    }

    fn rules(&self) -> &(Option<Rules>, u64) {
        self.rules.get_or_init(|| {
            let schema = self.schema.get();
            let rules = Rules::compile(&schema);
            let cost = rules.as_ref().map_or(0, |rules| rules.estimate(&schema));
            (rules, cost)
        })
    }

    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }
}

/// `v1` for the core group, `group/version` for the rest.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_string() } else { format!("{group}/{version}") }
}
