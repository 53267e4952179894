//! Server-side apply against a model of it: leaves with values, and who owns each.
//!
//! What an apply and any other write do to a leaf can be said in a few lines, and must come out of the engine for every
//! sequence of them, by whatever way the engine took.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    tests::{One, manager, owned_by, schema, whole},
    *,
};

/// Where a leaf is: declared fields of several depths, and members of a free map.
const LEAVES: [&[&str]; 6] = [
    &["spec", "replicas"],
    &["spec", "paused"],
    &["spec", "template", "image"],
    &["spec", "template", "tag"],
    &["metadata", "labels", "a"],
    &["metadata", "labels", "b"],
];
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Some leaves, each with one of two values.
type Leaves = BTreeMap<usize, bool>;
/// Who owns a leaf: the name, and whether by applying.
type Owner = (&'static str, bool);

#[derive(Clone, Debug)]
enum Write {
    Apply {
        who: usize,
        leaves: Leaves,
        force: bool,
    },
    /// Everything becomes this.
    Update {
        who: usize,
        leaves: Leaves,
    },
}

fn leaves() -> impl Strategy<Value = Leaves> {
    prop::collection::btree_map(0..LEAVES.len(), any::<bool>(), 0..=LEAVES.len())
}

fn write() -> impl Strategy<Value = Write> {
    let who = 0..NAMES.len();
    prop_oneof![
        3 => (who.clone(), leaves(), any::<bool>())
            .prop_map(|(who, leaves, force)| Write::Apply { who, leaves, force }),
        2 => (who, leaves()).prop_map(|(who, leaves)| Write::Update { who, leaves }),
    ]
}

fn value(leaf: usize, which: bool) -> Value {
    match LEAVES[leaf][LEAVES[leaf].len() - 1] {
        "replicas" => json!(i64::from(which)),
        "paused" => json!(which),
        _ => json!(if which { "new" } else { "old" }),
    }
}

fn object(leaves: &Leaves) -> Value {
    let mut object = whole(json!({}));
    for (leaf, which) in leaves {
        let place = LEAVES[*leaf].iter().fold(&mut object, |object, name| &mut object[*name]);
        *place = value(*leaf, *which);
    }
    object
}

/// What is in an object, and who owns it by its managedFields.
fn seen(object: &Value) -> (Leaves, BTreeMap<usize, BTreeSet<(String, bool)>>) {
    let managers = Managers::read(object).unwrap();
    let mut found = (Leaves::new(), BTreeMap::new());
    for (leaf, way) in LEAVES.iter().enumerate() {
        let there = way.iter().try_fold(object, |object, name| object.get(*name));
        if let Some(there) = there {
            found.0.insert(leaf, *there == value(leaf, true));
        }
        let steps: Vec<Step> = way.iter().map(|name| Step::field(name)).collect();
        let owners = managers.0.iter().filter(|(_, owned)| owned.fields.contains(&steps));
        let owners: BTreeSet<_> = owners
            .map(|(manager, _)| (manager.name.clone(), manager.operation == Operation::Apply))
            .collect();
        if !owners.is_empty() {
            found.1.insert(leaf, owners);
        }
    }
    found
}

#[derive(Clone, Default)]
struct Model(BTreeMap<usize, (bool, BTreeSet<Owner>)>);

impl Model {
    /// Answers whether others own something that an apply wants otherwise.
    fn is_at_odds(&self, own: Owner, leaves: &Leaves) -> bool {
        leaves.iter().any(|(leaf, which)| {
            let there = self.0.get(leaf);
            there.is_some_and(|(is, owners)| is != which && owners.iter().any(|owner| *owner != own))
        })
    }

    fn apply(&mut self, own: Owner, leaves: &Leaves) {
        for (leaf, (_, owners)) in &mut self.0 {
            if !leaves.contains_key(leaf) {
                owners.remove(&own);
            }
        }
        for (leaf, which) in leaves {
            let (is, owners) = self.0.entry(*leaf).or_insert((*which, BTreeSet::new()));
            if is != which {
                (*is, *owners) = (*which, BTreeSet::new());
            }
            owners.insert(own);
        }
        // What nobody asks for any more goes.
        self.0.retain(|_, (_, owners)| !owners.is_empty());
    }

    fn update(&mut self, own: Owner, leaves: &Leaves) {
        self.0.retain(|leaf, _| leaves.contains_key(leaf));
        for (leaf, which) in leaves {
            match self.0.get(leaf) {
                Some((is, _)) if is == which => {}
                _ => drop(self.0.insert(*leaf, (*which, [own].into()))),
            }
        }
    }

    fn told(&self) -> (Leaves, BTreeMap<usize, BTreeSet<(String, bool)>>) {
        let values = self.0.iter().map(|(leaf, (which, _))| (*leaf, *which)).collect();
        let named =
            |owners: &BTreeSet<Owner>| owners.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        (values, self.0.iter().map(|(leaf, (_, owners))| (*leaf, named(owners))).collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn every_sequence_of_writes_comes_to_what_the_model_says(writes in prop::collection::vec(write(), 1..12)) {
        let versions = One(schema());
        let mut model = Model::default();
        // Somebody made it, with nothing in it that anybody could own.
        let mut live = whole(json!({"metadata": {"uid": "u"}}));
        for (at, write) in writes.into_iter().enumerate() {
            let now = format!("2026-01-01T{at:02}:00:00Z");
            let nothing_else = FieldSet::default();
            match write {
                Write::Apply { who, leaves, force } => {
                    let who = manager(NAMES[who], Operation::Apply);
                    let own = (NAMES.into_iter().find(|name| *name == who.name).unwrap(), true);
                    let done = applied(&versions, &live, &object(&leaves), &who, &nothing_else, force, &now);
                    if !force && model.is_at_odds(own, &leaves) {
                        prop_assert!(matches!(done, Err(ApplyError::Conflicts(_))), "{done:?}");
                        continue;
                    }
                    live = done.unwrap();
                    live["metadata"]["uid"] = "u".into();
                    model.apply(own, &leaves);
                }
                // While nobody owns anything nobody keeps track.
                Write::Update { .. } if live["metadata"].get("managedFields").is_none() => continue,
                Write::Update { who, leaves } => {
                    let who = manager(NAMES[who], Operation::Update);
                    let own = (NAMES.into_iter().find(|name| *name == who.name).unwrap(), false);
                    let mut new = object(&leaves);
                    new["metadata"]["uid"] = "u".into();
                    let owners = updated(&versions, &live, &new, &who, &nothing_else, &now).unwrap();
                    live = owned_by(new, owners);
                    model.update(own, &leaves);
                }
            }
            prop_assert_eq!(seen(&live), model.told());
        }
    }
}
