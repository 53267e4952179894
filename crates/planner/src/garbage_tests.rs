//! What the garbage collector decides, case by case.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn owner(uid: &str, found: Found) -> Owner {
    Owner { uid: uid.to_owned(), blocks_deletion: true, found }
}

fn dependent(uid: &str, blocks_deletion: bool, waiting_for_dependents: bool) -> Dependent {
    Dependent { uid: uid.to_owned(), blocks_deletion, waiting_for_dependents }
}

fn owned_by(owners: Vec<Owner>) -> Item {
    Item { uid: "me".into(), resource_version: "7".into(), owners, ..Item::default() }
}

fn going(finalizers: &[&str], dependents: Vec<Dependent>) -> Item {
    Item {
        uid: "me".into(),
        being_deleted: true,
        finalizers: finalizers.iter().map(|name| (*name).to_owned()).collect(),
        dependents,
        ..Item::default()
    }
}

fn delete(propagation: Propagation) -> Step {
    Step::Delete { propagation, uid: "me".into(), resource_version: "7".into() }
}

fn uids(uids: &[&str]) -> Vec<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn an_object_without_owners_is_left_alone() {
    assert_eq!(next_step(&owned_by(vec![])), Step::Nothing);
}

#[test]
fn one_living_owner_keeps_an_object() {
    assert_eq!(next_step(&owned_by(vec![owner("a", Found::Solid)])), Step::Nothing);
}

#[test]
fn references_to_the_dead_and_the_waiting_are_removed_while_another_owner_lives() {
    let owners =
        vec![owner("a", Found::Absent), owner("b", Found::Solid), owner("c", Found::WaitingForDependents)];
    assert_eq!(next_step(&owned_by(owners)), Step::RemoveOwnerReferences { uids: uids(&["a", "c"]) });
}

#[test]
fn an_object_whose_owners_are_all_gone_is_deleted_in_the_background() {
    let item = owned_by(vec![owner("a", Found::Absent), owner("b", Found::Absent)]);
    assert_eq!(next_step(&item), delete(Propagation::Background));
}

#[test]
fn a_delete_holds_for_the_version_that_was_looked_at() {
    let Step::Delete { uid, resource_version, .. } = next_step(&owned_by(vec![owner("a", Found::Absent)]))
    else {
        panic!("not deleted");
    };
    assert_eq!((uid.as_str(), resource_version.as_str()), ("me", "7"));
}

#[test]
fn finalizers_already_set_decide_how_it_is_deleted() {
    for (finalizer, propagation) in [
        (ORPHAN, Propagation::Orphan),
        (FOREGROUND, Propagation::Foreground),
        ("mine", Propagation::Background),
    ] {
        let mut item = owned_by(vec![owner("a", Found::Absent)]);
        item.finalizers = uids(&[finalizer]);
        assert_eq!(next_step(&item), delete(propagation));
    }
}

#[test]
fn foreground_goes_down_the_tree_only_through_objects_that_own_something() {
    let leaf = owned_by(vec![owner("a", Found::WaitingForDependents)]);
    assert_eq!(next_step(&leaf), delete(Propagation::Background));
    let branch = Item { dependents: vec![dependent("d", false, false)], ..leaf };
    assert_eq!(next_step(&branch), delete(Propagation::Foreground));
}

#[test]
fn a_ring_of_waiting_objects_is_broken_before_it_is_deleted() {
    let mut item = owned_by(vec![owner("a", Found::WaitingForDependents)]);
    item.dependents = vec![dependent("a", true, true)];
    assert_eq!(next_step(&item), Step::UnblockOwnerReferences);
    item.owners[0].blocks_deletion = false;
    assert_eq!(next_step(&item), delete(Propagation::Foreground));
}

#[test]
fn an_owner_of_an_unknown_kind_delays_the_judgement() {
    let item = owned_by(vec![owner("a", Found::UnknownKind), owner("b", Found::Absent)]);
    assert_eq!(next_step(&item), Step::AskAgain);
}

#[test]
fn an_owner_that_cannot_be_ends_the_judgement() {
    let item = owned_by(vec![owner("a", Found::Impossible), owner("b", Found::Absent)]);
    assert_eq!(next_step(&item), Step::Nothing);
}

#[test]
fn an_object_on_its_way_out_is_not_judged_by_its_owners() {
    let mut item = going(&["mine"], vec![dependent("d", true, false)]);
    item.owners = vec![owner("a", Found::Absent)];
    assert_eq!(next_step(&item), Step::Nothing);
}

#[test]
fn foreground_waits_for_those_that_block_and_wakes_those_not_yet_on_their_way() {
    let item = going(
        &[FOREGROUND],
        vec![dependent("a", true, false), dependent("b", true, true), dependent("c", false, false)],
    );
    assert_eq!(next_step(&item), Step::WaitForDependents { uids: uids(&["a"]) });
}

#[test]
fn foreground_ends_when_nothing_blocks() {
    assert_eq!(
        next_step(&going(&[FOREGROUND], vec![dependent("c", false, false)])),
        Step::RemoveFinalizer { finalizer: FOREGROUND }
    );
}

#[test]
fn orphaning_frees_every_dependent_before_the_finalizer_goes() {
    let item = going(&[ORPHAN], vec![dependent("a", false, false), dependent("b", true, false)]);
    assert_eq!(next_step(&item), Step::OrphanDependents { uids: uids(&["a", "b"]) });
    assert_eq!(next_step(&going(&[ORPHAN], vec![])), Step::RemoveFinalizer { finalizer: ORPHAN });
}

#[test]
fn a_finalizer_alone_asks_for_nothing() {
    for finalizer in [ORPHAN, FOREGROUND] {
        let item = Item { being_deleted: false, ..going(&[finalizer], vec![dependent("a", true, false)]) };
        assert_eq!(next_step(&item), Step::Nothing);
    }
}

fn reference() -> Reference {
    Reference { api_version: "v1".into(), kind: "Pod".into(), name: "web".into(), uid: "u".into() }
}

fn live<'a>(uid: &'a str, being_deleted: bool, finalizers: &'a [String]) -> Option<Live<'a>> {
    Some(Live { uid, being_deleted, finalizers })
}

#[test]
fn an_owner_is_known_by_its_uid_not_by_its_name() {
    assert_eq!(classify(&reference(), Scope::Namespaced, "ns", live("u", false, &[])), Found::Solid);
    assert_eq!(classify(&reference(), Scope::Namespaced, "ns", live("other", false, &[])), Found::Absent);
    assert_eq!(classify(&reference(), Scope::Namespaced, "ns", None), Found::Absent);
}

#[test]
fn an_owner_waits_only_when_it_is_being_deleted_in_the_foreground() {
    let foreground = [FOREGROUND.to_owned()];
    let other = ["mine".to_owned()];
    let found = |being_deleted, finalizers| {
        classify(&reference(), Scope::Cluster, "", live("u", being_deleted, finalizers))
    };
    assert_eq!(found(true, &foreground), Found::WaitingForDependents);
    assert_eq!(found(false, &foreground), Found::Solid);
    assert_eq!(found(true, &other), Found::Solid);
}

#[test]
fn scopes_mix_one_way_only() {
    assert_eq!(classify(&reference(), Scope::Cluster, "ns", live("u", false, &[])), Found::Solid);
    assert_eq!(classify(&reference(), Scope::Namespaced, "", live("u", false, &[])), Found::Impossible);
    assert_eq!(classify(&reference(), Scope::Unknown, "ns", None), Found::UnknownKind);
}

#[test]
fn an_owner_in_another_namespace_is_told_of_in_the_words_of_the_original() {
    assert_eq!(
        misplaced_owner_event(&reference(), "ns"),
        (
            "OwnerRefInvalidNamespace",
            "ownerRef [v1/Pod, namespace: ns, name: web, uid: u] does not exist in namespace \"ns\""
                .to_owned()
        )
    );
}

/// A world of objects that own each other, for asking until nothing moves.
#[derive(Clone, Debug)]
struct Thing {
    /// Owner and whether it blocks.
    owners: Vec<(usize, bool)>,
    deleting: bool,
    finalizers: Vec<&'static str>,
}

type World = BTreeMap<usize, Thing>;

fn seen(world: &World, me: usize) -> Item {
    let waits = |thing: &Thing| thing.deleting && thing.finalizers.contains(&FOREGROUND);
    let thing = &world[&me];
    Item {
        uid: me.to_string(),
        resource_version: String::new(),
        being_deleted: thing.deleting,
        finalizers: thing.finalizers.iter().map(|name| (*name).to_owned()).collect(),
        owners: thing
            .owners
            .iter()
            .map(|(owner, blocks_deletion)| Owner {
                uid: owner.to_string(),
                blocks_deletion: *blocks_deletion,
                found: match world.get(owner) {
                    None => Found::Absent,
                    Some(owner) if waits(owner) => Found::WaitingForDependents,
                    Some(_) => Found::Solid,
                },
            })
            .collect(),
        dependents: world
            .iter()
            .filter_map(|(uid, other)| {
                let (_, blocks) = other.owners.iter().find(|(owner, _)| *owner == me)?;
                Some(dependent(&uid.to_string(), *blocks, waits(other)))
            })
            .collect(),
    }
}

/// What the API server does with a delete.
fn delete_in(world: &mut World, uid: usize, propagation: Propagation) {
    let Some(thing) = world.get_mut(&uid) else { return };
    thing.finalizers.retain(|name| *name != FOREGROUND && *name != ORPHAN);
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => thing.finalizers.push(FOREGROUND),
        Propagation::Orphan => thing.finalizers.push(ORPHAN),
    }
    thing.deleting = true;
    if thing.finalizers.is_empty() {
        world.remove(&uid);
    }
}

fn act(world: &mut World, me: usize, step: Step) {
    let number = |uid: &String| uid.parse::<usize>().unwrap();
    match step {
        Step::Nothing | Step::AskAgain | Step::WaitForDependents { .. } => {}
        Step::Delete { propagation, .. } => delete_in(world, me, propagation),
        Step::RemoveOwnerReferences { uids } => {
            let gone: Vec<usize> = uids.iter().map(number).collect();
            world.get_mut(&me).unwrap().owners.retain(|(owner, _)| !gone.contains(owner));
        }
        Step::UnblockOwnerReferences => {
            world.get_mut(&me).unwrap().owners.iter_mut().for_each(|(_, blocks)| *blocks = false);
        }
        Step::OrphanDependents { uids } => {
            for uid in uids.iter().map(number) {
                world.get_mut(&uid).unwrap().owners.retain(|(owner, _)| *owner != me);
            }
        }
        Step::RemoveFinalizer { finalizer } => {
            let thing = world.get_mut(&me).unwrap();
            thing.finalizers.retain(|name| *name != finalizer);
            if thing.finalizers.is_empty() {
                world.remove(&me);
            }
        }
    }
}

/// Asks about every object in turn until nothing moves.
fn settle(world: &mut World) {
    for _ in 0..200 {
        let mut moved = false;
        for me in world.keys().copied().collect::<Vec<_>>() {
            if !world.contains_key(&me) {
                continue;
            }
            let step = next_step(&seen(world, me));
            moved |= !matches!(step, Step::Nothing | Step::AskAgain | Step::WaitForDependents { .. });
            act(world, me, step);
        }
        if !moved {
            return;
        }
    }
    panic!("never rests: {world:?}");
}

fn a_world(any_shape: bool) -> impl Strategy<Value = World> {
    prop::collection::vec(prop::collection::vec((0..6usize, any::<bool>()), 0..3), 6).prop_map(
        move |owners| {
            owners
                .into_iter()
                .enumerate()
                .map(|(me, owners)| {
                    let mut distinct: BTreeMap<usize, bool> = owners.into_iter().collect();
                    distinct.retain(|owner, _| *owner != me && (any_shape || *owner < me));
                    (
                        me,
                        Thing { owners: distinct.into_iter().collect(), deleting: false, finalizers: vec![] },
                    )
                })
                .collect()
        },
    )
}

fn a_propagation() -> impl Strategy<Value = Propagation> {
    prop::sample::select(vec![Propagation::Background, Propagation::Foreground, Propagation::Orphan])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_deleted_root_is_gone_in_the_end_however_it_was_deleted(
        mut world in a_world(true), propagation in a_propagation(),
    ) {
        delete_in(&mut world, 0, propagation);
        settle(&mut world);
        prop_assert!(!world.contains_key(&0), "{world:?}");
        prop_assert!(world.values().all(|thing| !thing.deleting), "{world:?}");
        prop_assert!(world.values().all(|thing| thing.owners.iter().all(|(owner, _)| world.contains_key(owner))));
    }

    #[test]
    fn exactly_what_no_living_owner_keeps_is_gone(mut world in a_world(false), foreground in any::<bool>()) {
        // The dull model: an object stays when it had no owner, or when one of them stays.
        let mut stays: BTreeMap<usize, bool> = BTreeMap::new();
        for (me, thing) in &world {
            let kept = thing.owners.is_empty() || thing.owners.iter().any(|(owner, _)| stays[owner]);
            stays.insert(*me, *me != 0 && kept);
        }
        delete_in(&mut world, 0, if foreground { Propagation::Foreground } else { Propagation::Background });
        settle(&mut world);
        let left: Vec<usize> = world.keys().copied().collect();
        let wanted: Vec<usize> = stays.into_iter().filter(|(_, stays)| *stays).map(|(me, _)| me).collect();
        prop_assert_eq!(left, wanted);
    }

    #[test]
    fn orphans_survive(mut world in a_world(true)) {
        let before: Vec<usize> = world.keys().copied().filter(|me| *me != 0).collect();
        delete_in(&mut world, 0, Propagation::Orphan);
        settle(&mut world);
        prop_assert_eq!(world.keys().copied().collect::<Vec<_>>(), before);
    }
}
