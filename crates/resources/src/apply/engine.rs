//! What a write does to an object and to who owns its fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    field_set::FieldSet,
    managers::{Manager, Managers, Operation, Owned, Unreadable},
    shape::{Misfit, Shape},
    step::Step,
    typed::{Comparison, compare, fields_of, merge, remove},
};

/// Who owns what was there before anybody applied anything.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The versions in which an object can be seen.
pub trait Versions {
    /// `None` for a version that is no longer there.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    fn convert(&self, object: &Value, api_version: &str) -> Value;
}

/// Fields that two managers want to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub time: Option<String>,
    pub way: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    Misfit(#[from] Misfit),
    #[error("{0}")]
    Unreadable(#[from] Unreadable),
    #[error("the version {0} is not served")]
    NoSuchVersion(String),
    /// In the order of the managers.
    #[error("there are conflicts")]
    Conflicts(Vec<Conflict>),
}

/// What comes of a write.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// With its `managedFields`.
    pub object: Value,
    /// Nothing changed, neither fields nor owners.
    pub is_same: bool,
}

/// What an object is made of that nobody owns: its identity, and what the server keeps.
fn unowned() -> FieldSet {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let mut set = FieldSet::default();
    set.insert(&[Step::field("apiVersion")]);
    set.insert(&[Step::field("kind")]);
    // An object without its metadata is not thinkable, so nobody can own it as such.
    set.insert(&[Step::field("metadata")]);
    for name in metadata {
        set.insert(&[Step::field("metadata"), Step::field(name)]);
    }
    set
}

/// What does not count as a change: the server's own bookkeeping.
fn identity() -> FieldSet {
    let mut set = FieldSet::default();
    for name in ["managedFields", "resourceVersion"] {
        set.insert(&[Step::field("metadata"), Step::field(name)]);
    }
    set
}

/// A manager at work.
struct Writer<'a, V> {
    versions: &'a V,
    manager: &'a Manager,
    /// What the subresource that is written does not reach.
    not_reached: &'a FieldSet,
    now: &'a str,
}

impl<V: Versions> Writer<'_, V> {
    fn shape(&self, api_version: &str) -> Result<Shape<'_>, ApplyError> {
        self.versions.shape(api_version).ok_or_else(|| ApplyError::NoSuchVersion(api_version.to_owned()))
    }

    /// Takes from the others what changes under them; tells with whom that is at odds.
    fn take_from_others(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
    ) -> Result<(Comparison, Vec<Conflict>), ApplyError> {
        let mut by_version: BTreeMap<String, Comparison> = BTreeMap::new();
        let own = self.manager.api_version.clone();
        let comparison = compare(live, new, self.shape(&own)?)?.without(self.not_reached);
        by_version.insert(own, comparison.clone());
        let mut conflicts = Vec::new();
        let others = std::mem::take(&mut managers.0);
        for (manager, owned) in others {
            if manager == *self.manager {
                managers.0.insert(manager, owned);
                continue;
            }
            let version = &manager.api_version;
            if !by_version.contains_key(version) {
                // What a version that is gone had to say is forgotten.
                let Some(shape) = self.versions.shape(version) else { continue };
                let [live, new] = [live, new].map(|object| self.versions.convert(object, version));
                by_version.insert(version.clone(), compare(&live, &new, shape)?.without(self.not_reached));
            }
            let Some(changes) = by_version.get(version) else { continue };
            let taken = owned.fields.intersection(&changes.modified.clone().union(&changes.added));
            conflicts.extend(taken.ways().into_iter().map(|way| Conflict {
                manager: manager.clone(),
                time: owned.time.clone(),
                way,
            }));
            let left = owned.fields.difference(&taken).difference(&changes.removed);
            if !left.is_empty() {
                managers.0.insert(manager, Owned { fields: left, ..owned });
            }
        }
        Ok((comparison, conflicts))
    }

    /// `merged` without what this manager asked for last time, and nobody asks for now.
    fn without_given_up(
        &self,
        merged: Value,
        managers: &Managers,
        last: &(Manager, Owned),
    ) -> Result<Value, ApplyError> {
        let (last_manager, last) = last;
        if last.fields.is_empty() {
            return Ok(merged);
        }
        let version = &last_manager.api_version;
        // Asked for in a version that is gone: nobody can say any more what that was.
        let Some(shape) = self.versions.shape(version) else { return Ok(merged) };
        let merged = self.versions.convert(&merged, version);
        let given_up = last.fields.with_named_fields(shape);
        let mut pruned = remove(&merged, &given_up, shape);
        let mut wanted: BTreeMap<&str, FieldSet> = BTreeMap::new();
        for (manager, owned) in &managers.0 {
            let fields = wanted.entry(&manager.api_version).or_default();
            *fields = std::mem::take(fields).union(&owned.fields);
        }
        // In this version first: what others have may not be convertible without it.
        let mut wanted: Vec<_> = wanted.into_iter().collect();
        wanted.sort_by_key(|(candidate, _)| *candidate != version.as_str());
        for (candidate, wanted) in wanted {
            let Some(shape) = self.versions.shape(candidate) else { continue };
            let whole = self.versions.convert(&merged, candidate);
            let part = self.versions.convert(&pruned, candidate);
            let left = named(&part, shape)?.union(&wanted.with_named_fields(shape));
            let gone = named(&whole, shape)?.difference(&left);
            pruned = remove(&whole, &gone, shape);
        }
        // What nobody ever asked for stays.
        let part = self.versions.convert(&pruned, version);
        let gone = named(&merged, shape)?.difference(&named(&part, shape)?).intersection(&given_up);
        let pruned = remove(&merged, &gone, shape);
        Ok(self.versions.convert(&pruned, &self.manager.api_version))
    }

    /// Writes the owners into the new object. Those whose sets did not change keep their time.
    ///
    /// While a write is worked out, identity is a field like any other, so that an object keeps it; in what is written
    /// down it is nobody's.
    fn finish(&self, live: &Value, mut new: Value, mut managers: Managers, before: &Managers) -> Applied {
        let unowned = unowned();
        managers.0.retain(|_, owned| {
            owned.fields = owned.fields.difference(&unowned);
            !owned.fields.is_empty()
        });
        for (manager, owned) in &mut managers.0 {
            let unchanged = before.0.get(manager).is_some_and(|before| before.fields == owned.fields);
            if !unchanged && manager == self.manager {
                owned.time = Some(self.now.to_owned());
            }
        }
        managers.cap();
        let changes =
            self.shape(&self.manager.api_version).ok().and_then(|shape| compare(live, &new, shape).ok());
        let is_same =
            managers == *before && changes.is_some_and(|changes| changes.without(&identity()).is_same());
        managers.write(&mut new);
        Applied { object: new, is_same }
    }
}

fn named(object: &Value, shape: Shape<'_>) -> Result<FieldSet, Misfit> {
    Ok(fields_of(object, shape)?.with_named_fields(shape))
}

/// Creates an object: all of it belongs to whoever does.
pub fn created<V: Versions>(
    versions: &V,
    new: Value,
    manager: &Manager,
    not_reached: &FieldSet,
    now: &str,
) -> Result<Applied, ApplyError> {
    let nothing = serde_json::json!({"apiVersion": new["apiVersion"], "kind": new["kind"], "metadata": {}});
    updated(versions, &nothing, new, manager, not_reached, now)
}

/// Changes an object in any way but apply: what changed belongs to whoever changed it.
///
/// `new` may carry `managedFields` of its own: those count, and an empty list forgets all owners.
pub fn updated<V: Versions>(
    versions: &V,
    live: &Value,
    new: Value,
    manager: &Manager,
    not_reached: &FieldSet,
    now: &str,
) -> Result<Applied, ApplyError> {
    let before = Managers::read(live)?;
    let mut managers = match new["metadata"].get("managedFields") {
        // What a client sends and cannot be read is as if it had not been sent.
        Some(Value::Array(_)) => Managers::read(&new).unwrap_or_else(|_| before.clone()),
        _ => before.clone(),
    };
    let writer = Writer { versions, manager, not_reached, now };
    let (changes, _) = writer.take_from_others(live, &new, &mut managers)?;
    let (fields, time) = match managers.0.remove(manager) {
        Some(owned) => (owned.fields, owned.time),
        None => (FieldSet::default(), None),
    };
    let fields = fields.difference(&changes.removed).union(&changes.modified).union(&changes.added);
    let fields = fields.recursive_difference(not_reached);
    if !fields.is_empty() {
        managers.0.insert(manager.clone(), Owned { fields, time });
    }
    Ok(writer.finish(live, new, managers, &before))
}

/// Applies a configuration to an object.
///
/// With `force`, what others own and the configuration wants otherwise becomes its manager's.
pub fn applied<V: Versions>(
    versions: &V,
    live: &Value,
    configuration: &Value,
    manager: &Manager,
    not_reached: &FieldSet,
    force: bool,
    now: &str,
) -> Result<Applied, ApplyError> {
    let mut before = Managers::read(live)?;
    let was_tracked = !before.0.is_empty();
    let writer = Writer { versions, manager, not_reached, now };
    let shape = writer.shape(&manager.api_version)?;
    if !was_tracked {
        // From before anybody kept track: it belongs to somebody, and not to whoever applies first.
        let fields = fields_of(live, shape)?.difference(&unowned());
        if !fields.is_empty() {
            let somebody = Manager {
                operation: Operation::Update,
                name: BEFORE_FIRST_APPLY.into(),
                api_version: manager.api_version.clone(),
                subresource: String::new(),
            };
            before.0.insert(somebody, Owned { fields, time: Some(now.to_owned()) });
        }
    }
    let mut managers = before.clone();
    let last = managers.take(manager);
    let mut asked = configuration.clone();
    if let Some(metadata) = asked.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let fields = fields_of(&asked, shape)?.recursive_difference(not_reached);
    let time = last.as_ref().and_then(|(_, owned)| owned.time.clone());
    managers.0.insert(manager.clone(), Owned { fields, time });
    let reached = remove(&asked, not_reached, shape);
    let mut new = merge(live, &reached, shape)?;
    if let Some(last) = &last {
        new = writer.without_given_up(new, &managers, last)?;
    }
    let (_, conflicts) = writer.take_from_others(live, &new, &mut managers)?;
    if !force && !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    if managers.0.get(manager).is_some_and(|owned| owned.fields.is_empty()) {
        managers.0.remove(manager);
    }
    Ok(writer.finish(live, new, managers, &before))
}
