//! Durability, tried where it can fail: the power goes at every sync, a sync fails, the disk is
//! full. Afterwards every acknowledged write is there, none is half there, and revisions never
//! went back.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

mod disk;
mod killed;
mod workload;

use std::sync::Arc;

use disk::{Disk, Fault};
use sheaf_store::{
    Store, StoreError,
    embedded::{self, Embedded, Options, WriterMode},
};
use workload::{Story, check, run};

const WRITERS: usize = 8;
const ROUNDS: usize = 12;
/// How many ways the disk may come out of one power cut.
const OUTCOMES: u64 = 12;

/// One thread and no time, so that the same fault strikes at the same point every time.
fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(work)
}

fn open(disk: &Disk) -> Result<Embedded, embedded::OpenError> {
    let options = Options { writer: WriterMode::Inline, history_entries: 8, ..Options::default() };
    embedded::open_with_backend(disk.clone(), options)
}

/// Works until the fault strikes, or to the end. `None`: the fault struck while the store was being made, so
/// nothing was promised. (A store in a file is made under another name first.)
async fn work(disk: &Disk) -> Option<Story> {
    let store = open(disk).ok()?;
    Some(run(Arc::new(store), "a", WRITERS, ROUNDS).await)
}

/// Opens what is left, checks it, and goes on working with it.
async fn reopen_and_check(image: Vec<u8>, mut story: Story) -> Result<(), String> {
    let disk = Disk::holding(image, Fault::None);
    let store: Arc<dyn Store> =
        Arc::new(open(&disk).map_err(|error| format!("cannot be opened: {error:?}"))?);
    check(&store, &story).await?;
    let more = run(Arc::clone(&store), "b", 2, 3).await;
    if let Some(error) = more.errors.first() {
        return Err(format!("cannot go on: {error}"));
    }
    if let Some(used) = more.acknowledged.values().find(|revision| **revision <= story.shown) {
        return Err(format!("revision {used} was used twice"));
    }
    story.asked.extend(more.asked);
    story.acknowledged.extend(more.acknowledged);
    story.shown = more.shown;
    check(&store, &story).await
}

#[test]
fn a_power_cut_at_any_sync_loses_nothing_that_was_acknowledged() {
    cut_at_every_sync(OUTCOMES);
}

#[test]
#[ignore = "takes long; `make soak` runs it"]
fn soak_a_power_cut_with_any_of_2000_outcomes_loses_nothing_that_was_acknowledged() {
    cut_at_every_sync(2000);
}

fn cut_at_every_sync(outcomes: u64) {
    let untouched = Disk::default();
    let story = on_one_thread(work(&untouched)).unwrap();
    assert_eq!(story.acknowledged.len(), WRITERS * ROUNDS);
    let syncs = untouched.syncs();
    assert!(syncs > ROUNDS as u64, "only {syncs} syncs: there is nothing to cut");
    let mut cut_while_working = 0;
    for at in 1..=syncs {
        for outcome in 0..outcomes {
            on_one_thread(async {
                let disk = Disk::with(Fault::CutAtSync(at));
                let Some(story) = work(&disk).await else { return };
                cut_while_working += usize::from(!story.errors.is_empty());
                let image = disk.after_power_cut(at * outcomes + outcome);
                let checked = reopen_and_check(image, story).await;
                checked.unwrap_or_else(|broken| panic!("cut at sync {at}, outcome {outcome}: {broken}"));
            });
        }
    }
    assert!(
        cut_while_working > syncs as usize,
        "most cuts must strike at work, not while opening or closing"
    );
}

#[test]
fn a_disk_that_lies_about_syncing_is_caught() {
    // The proof that the check above can fail: the same work on a disk that keeps nothing it promised.
    let caught = on_one_thread(async {
        let disk = Disk::with(Fault::LieFromSync(12));
        let story = work(&disk).await.unwrap();
        assert!(story.errors.is_empty(), "nobody can tell at the time");
        reopen_and_check(disk.after_power_cut(0), story).await
    });
    let broken = caught.expect_err("a lying disk went unnoticed");
    assert!(broken.contains("went back"), "{broken}");
}

#[test]
fn half_a_transaction_is_caught() {
    on_one_thread(async {
        let disk = Disk::default();
        let mut story = work(&disk).await.unwrap();
        let mark = story.acknowledged.keys().next_back().unwrap().clone();
        story.asked.get_mut(&mark).unwrap().pop();
        let store: Arc<dyn Store> = Arc::new(open(&disk).unwrap());
        let broken =
            check(&store, &story).await.expect_err("a transaction with a key too many went unnoticed");
        assert!(broken.contains("only a part"), "{broken}");
    });
}

#[test]
fn after_a_failed_sync_the_store_refuses_everything_until_it_is_opened_again() {
    let untouched = Disk::default();
    let syncs = on_one_thread(async {
        let store: Arc<dyn Store> = Arc::new(open(&untouched).unwrap());
        run(Arc::clone(&store), "a", WRITERS, ROUNDS).await;
        untouched.syncs() // Without those that close the file.
    });
    let mut unknown_outcomes = 0;
    for at in 1..=syncs {
        on_one_thread(async {
            let disk = Disk::with(Fault::FailSync(at));
            let Ok(store) = open(&disk) else { return };
            let store: Arc<dyn Store> = Arc::new(store);
            let story = run(Arc::clone(&store), "a", WRITERS, ROUNDS).await;
            assert!(!story.errors.is_empty(), "sync {at} failed and nobody was told");
            // Whose sync failed cannot know; who came after knows that nothing happened.
            unknown_outcomes += story
                .errors
                .iter()
                .filter(|error| matches!(error, StoreError::OutcomeUnknown { .. }))
                .count();
            let rest = story
                .errors
                .iter()
                .all(|error| matches!(error, StoreError::OutcomeUnknown { .. } | StoreError::Failed { .. }));
            assert!(rest, "{:?}", story.errors);
            let refused = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Failed { .. }));
            assert!(refused(store.revision().await.map(drop)));
            assert!(refused(store.get(&"pair/0/left".into()).await.map(drop)));
            assert!(refused(store.range(Default::default()).await.map(drop)));
            assert!(refused(store.commit(Default::default()).await.map(drop)));
            assert!(refused(store.watch(Default::default(), Default::default()).await.map(drop)));
            assert!(refused(store.compact(story.shown).await));
            drop(store);
            for outcome in 0..4 {
                let checked = reopen_and_check(disk.after_power_cut(outcome), clone(&story)).await;
                checked.unwrap_or_else(|broken| panic!("sync {at} failed, outcome {outcome}: {broken}"));
            }
        });
    }
    assert!(unknown_outcomes > ROUNDS, "only {unknown_outcomes} were told that nobody knows");
}

#[test]
fn a_full_disk_is_named_and_keeps_what_was_acknowledged() {
    let mut told = 0;
    for room in (4..120).step_by(2) {
        on_one_thread(async {
            let disk = Disk::with(Fault::FullAfter(room));
            let Some(story) = work(&disk).await else { return };
            for error in &story.errors {
                assert!(error.to_string().contains("the disk is full"), "{error}");
                told += 1;
            }
            for outcome in 0..4 {
                let checked = reopen_and_check(disk.after_power_cut(outcome), clone(&story)).await;
                checked
                    .unwrap_or_else(|broken| panic!("full after {room} blocks, outcome {outcome}: {broken}"));
            }
        });
    }
    assert!(told > 50, "the disk was hardly ever full: {told} were told");
}

#[test]
fn a_store_that_waits_for_room_goes_on_when_there_is_some_and_nobody_was_refused() {
    let mut waited = 0;
    for room in (20..120).step_by(20) {
        let disk = Disk::with(Fault::FullAfter(room));
        let options = Options { history_entries: 8, waits_for_room: true, ..Options::default() };
        // While it is being made nobody waits.
        let Ok(store) = embedded::open_with_backend(disk.clone(), options) else { continue };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let story = runtime.block_on(async {
            let mut story = tokio::spawn(run(Arc::new(store), "a", WRITERS, ROUNDS));
            match tokio::time::timeout(std::time::Duration::from_millis(300), &mut story).await {
                Ok(story) => return story.unwrap(),
                Err(_) => waited += 1,
            }
            disk.heal();
            story.await.unwrap()
        });
        assert!(story.errors.is_empty(), "{:?}", story.errors);
        assert_eq!(story.acknowledged.len(), story.asked.len());
        for outcome in 0..4 {
            let checked = runtime.block_on(reopen_and_check(disk.after_power_cut(outcome), clone(&story)));
            checked.unwrap_or_else(|broken| panic!("full after {room} blocks, outcome {outcome}: {broken}"));
        }
    }
    assert!(waited > 1, "the disk was hardly ever full: {waited} waited");
}

#[test]
fn a_store_on_a_full_disk_can_be_closed() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let disk = (20..120).find_map(|room| {
        let disk = Disk::with(Fault::FullAfter(room));
        let options = Options { waits_for_room: true, ..Options::default() };
        Some((embedded::open_with_backend(disk, options).ok()?, room))
    });
    let (store, _) = disk.unwrap();
    let large = sheaf_store::Write::Put { key: "large".into(), value: vec![7; 4 << 20].into() };
    let transaction = sheaf_store::Transaction { expect: vec![], writes: vec![large] };
    let store = Arc::new(store);
    let asking = runtime.spawn({
        let store = Arc::clone(&store);
        async move {
            _ = tokio::time::timeout(std::time::Duration::from_millis(200), store.commit(transaction)).await;
        }
    });
    runtime.block_on(asking).unwrap();
    drop(store);
}

fn clone(story: &Story) -> Story {
    Story {
        asked: story.asked.clone(),
        acknowledged: story.acknowledged.clone(),
        shown: story.shown,
        errors: vec![],
    }
}
