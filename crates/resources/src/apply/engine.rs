//! What a write does to an object and to who owns its fields.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::Value;

use super::{
    check::{NoConfiguration, check},
    conflict::Conflicts,
    field_set::FieldSet,
    last_applied,
    managers::{Manager, Managers, Operation, Owned, Unreadable},
    shape::{Misfit, Shape},
    step::{self, Step},
    typed::{Comparison, compare, fields_of, merge, remove},
    untouched,
};

/// Who owns what was there before anybody applied anything.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The versions in which an object can be seen.
pub trait Versions {
    /// `None` for a version that is no longer there.
    fn shape(&self, api_version: &str) -> Option<Shape<'_>>;

    fn convert(&self, object: &Value, api_version: &str) -> Value;
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{0}")]
    Misfit(#[from] Misfit),
    #[error("{0}")]
    NoConfiguration(#[from] NoConfiguration),
    #[error("failed to decode managed fields: {0}")]
    Unreadable(#[from] Unreadable),
    #[error("the version {0} is not served")]
    NoSuchVersion(String),
    #[error("{0}")]
    Conflicts(Conflicts),
}

/// What an object is made of that nobody owns: its identity, and what the server keeps.
pub(super) fn unowned() -> &'static FieldSet {
    static UNOWNED: OnceLock<FieldSet> = OnceLock::new();
    UNOWNED.get_or_init(make_unowned)
}

fn make_unowned() -> FieldSet {
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

    /// What is known of the owners, in the shapes that fields have today.
    fn reconciled(&self, mut managers: Managers) -> Managers {
        for (manager, owned) in &mut managers.0 {
            let shape = self.versions.shape(&manager.api_version);
            if let Some(shape) = shape.filter(|shape| owned.fields.is_at_odds(*shape)) {
                owned.fields = owned.fields.reconciled(shape);
            }
        }
        managers
    }

    /// What changes of what this manager reaches.
    fn changes(&self, live: &Value, new: &Value) -> Result<Comparison, ApplyError> {
        Ok(compare(live, new, self.shape(&self.manager.api_version)?)?.without(self.not_reached))
    }

    /// Takes from the others what changes under them; tells with whom that is at odds.
    fn take_from_others(
        &self,
        live: &Value,
        new: &Value,
        comparison: &Comparison,
        managers: &mut Managers,
    ) -> Result<Conflicts, ApplyError> {
        let mut in_others: BTreeMap<String, Comparison> = BTreeMap::new();
        let own = &self.manager.api_version;
        let mut conflicts = Conflicts::default();
        let others = std::mem::take(&mut managers.0);
        for (manager, mut owned) in others {
            if manager == *self.manager {
                managers.0.insert(manager, owned);
                continue;
            }
            let version = &manager.api_version;
            if version != own && !in_others.contains_key(version) {
                // What a version that is gone had to say is forgotten.
                let Some(shape) = self.versions.shape(version) else { continue };
                let [live, new] = [live, new].map(|object| self.versions.convert(object, version));
                in_others.insert(version.clone(), compare(&live, &new, shape)?.without(self.not_reached));
            }
            let changes = in_others.get(version).unwrap_or(comparison);
            let taken = changes.modified.intersection(&owned.fields);
            let taken = taken.union(&changes.added.intersection(&owned.fields));
            if !taken.is_empty() {
                owned.fields = owned.fields.difference(&taken);
                conflicts.add(manager.clone(), taken);
            }
            owned.fields = owned.fields.difference(&changes.removed);
            if !owned.fields.is_empty() {
                managers.0.insert(manager, owned);
            }
        }
        Ok(conflicts)
    }

    /// Gives this manager what it changed. Its time is that of its last change.
    fn give(&self, changes: Comparison, managers: &mut Managers) {
        let (fields, time) = match managers.0.remove(self.manager) {
            Some(owned) => (owned.fields, owned.time),
            None => (FieldSet::default(), None),
        };
        let given = changes.added.union(&changes.modified).difference(unowned());
        let time = if given.is_empty() { time } else { Some(self.now.to_owned()) };
        let fields = match fields.is_empty() {
            true => given,
            false => fields.difference(&changes.removed).union(&given),
        };
        if !fields.is_empty() {
            managers.0.insert(self.manager.clone(), Owned { fields, time });
        }
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
}

fn named(object: &Value, shape: Shape<'_>) -> Result<FieldSet, Misfit> {
    Ok(fields_of(object, shape)?.with_named_fields(shape))
}

/// Who owns the fields of an object that a client sends: by its own word, unless that is nonsense or missing.
fn known(live: &Value, new: &Value, by_client: bool) -> Managers {
    let of_live = || Managers::read(live).unwrap_or_default();
    match new["metadata"].get("managedFields") {
        Some(Value::Array(entries)) if by_client => match Managers::read(new) {
            _ if is_reset(entries) => Managers::default(),
            Ok(managers) => managers,
            Err(_) => of_live(),
        },
        _ => of_live(),
    }
}

/// The owners of an object as they are written, where a client has nothing else to say of them.
fn settled<'a>(live: &'a Value, new: &Value, by_client: bool) -> Option<&'a [Value]> {
    let entries = live["metadata"].get("managedFields")?;
    let said = new["metadata"].get("managedFields").filter(|said| by_client && said.is_array());
    let entries =
        entries.as_array().filter(|found| !found.is_empty() && said.is_none_or(|said| said == entries));
    entries.map(Vec::as_slice)
}

/// Whether a client asks to forget all owners: by an empty list, or one with an empty entry.
fn is_reset(entries: &[Value]) -> bool {
    let says_nothing = |value: &Value| value.is_null() || value == "";
    match entries {
        [] => true,
        [only] => only.as_object().is_some_and(|entry| entry.values().all(says_nothing)),
        _ => false,
    }
}

/// An object before there is one.
pub fn nothing(of: &Value) -> Value {
    serde_json::json!({"apiVersion": of["apiVersion"], "kind": of["kind"], "metadata": {}})
}

/// Creates an object: all of it belongs to whoever does. Answers its `managedFields`.
pub fn created<V: Versions>(
    versions: &V,
    new: &Value,
    manager: &Manager,
    not_reached: &FieldSet,
    now: &str,
) -> Result<Option<Value>, ApplyError> {
    updated(versions, &nothing(new), new, manager, not_reached, now)
}

/// Changes an object in any way but apply: what changed belongs to whoever changed it. Answers its `managedFields`.
///
/// `new` may carry `managedFields` of its own, which count unless a subresource is written. An object that was made
/// before anybody kept track, or whose owners were reset, is not kept track of until somebody applies to it.
pub fn updated<V: Versions>(
    versions: &V,
    live: &Value,
    new: &Value,
    manager: &Manager,
    not_reached: &FieldSet,
    now: &str,
) -> Result<Option<Value>, ApplyError> {
    let writer = Writer { versions, manager, not_reached, now };
    let by_client = manager.subresource.is_empty();
    let mut compared = None;
    if let Some(entries) = settled(live, new, by_client) {
        let changes = writer.changes(live, new)?;
        if let Some(owners) = untouched::owners(entries, &changes, manager, now) {
            return Ok(Some(owners.into()));
        }
        compared = Some(changes);
    }
    let managers = known(live, new, by_client);
    if managers.0.is_empty() && live["metadata"]["uid"].is_string() {
        return Ok(None);
    }
    let mut managers = writer.reconciled(managers);
    let changes = match compared {
        Some(changes) => changes,
        None => writer.changes(live, new)?,
    };
    writer.take_from_others(live, new, &changes, &mut managers)?;
    writer.give(changes, &mut managers);
    managers.cap();
    Ok(managers.written())
}

/// Applies a configuration to an object, or to [`nothing`].
///
/// With `force`, what others own and the configuration wants otherwise becomes its manager's. Fields that the
/// configuration has and the manager does not reach are in the new object all the same: it is the caller's to put
/// them back.
pub fn applied<V: Versions>(
    versions: &V,
    live: &Value,
    configuration: &Value,
    manager: &Manager,
    not_reached: &FieldSet,
    force: bool,
    now: &str,
) -> Result<Value, ApplyError> {
    let writer = Writer { versions, manager, not_reached, now };
    let shape = writer.shape(&manager.api_version)?;
    check(configuration, shape)?;
    let managers = Managers::read(live)?;
    let managers = match managers.0.is_empty() {
        false => writer.reconciled(managers),
        true => writer.before_first_apply(live)?,
    };
    let done = writer.apply(live, configuration, managers.clone(), force);
    let mut new = match done {
        Err(ApplyError::Conflicts(conflicts)) if last_applied::concerns(&manager.name) => {
            let Some(allowed) = last_applied::fields(live, &manager.api_version, shape) else {
                return Err(ApplyError::Conflicts(conflicts));
            };
            let conflicts = conflicts.beside(&allowed);
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            writer.apply(live, configuration, managers, true)?
        }
        done => done?,
    };
    if last_applied::concerns(&manager.name) {
        last_applied::follow(&mut new, configuration);
    }
    Ok(new)
}

impl<V: Versions> Writer<'_, V> {
    /// What was there before anybody kept track belongs to somebody, and not to whoever applies first.
    fn before_first_apply(&self, live: &Value) -> Result<Managers, ApplyError> {
        let somebody =
            Manager { operation: Operation::Update, name: BEFORE_FIRST_APPLY.into(), ..self.manager.clone() };
        let writer = Writer { manager: &somebody, ..*self };
        let shape = self.shape(&self.manager.api_version)?;
        let changes = compare(&nothing(live), live, shape)?.without(self.not_reached);
        let mut managers = Managers::default();
        writer.give(changes, &mut managers);
        Ok(managers)
    }

    fn apply(
        &self,
        live: &Value,
        configuration: &Value,
        mut managers: Managers,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let shape = self.shape(&self.manager.api_version)?;
        let last = managers.take(self.manager);
        let fields = fields_of(configuration, shape)?.recursive_difference(self.not_reached);
        let time = last.as_ref().and_then(|(_, owned)| owned.time.clone());
        managers.0.insert(self.manager.clone(), Owned { fields, time });
        let mut new = merge(live, configuration, shape)?;
        if let Some(last) = &last {
            new = self.without_given_up(new, &managers, last)?;
        }
        let changes = self.changes(live, &new)?;
        let conflicts = self.take_from_others(live, &new, &changes, &mut managers)?;
        if !force && !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        // While a write is worked out, identity is a field like any other, so that an object keeps it; in what is
        // written down it is nobody's.
        if let Some(mut owned) = managers.0.remove(self.manager) {
            owned.fields = owned.fields.difference(unowned());
            if step::compare(live, &new).is_ne() {
                owned.time = Some(self.now.to_owned());
            }
            if !owned.fields.is_empty() {
                managers.0.insert(self.manager.clone(), owned);
            }
        }
        managers.write(&mut new);
        Ok(new)
    }
}
