//! Random work on a store and on a model so simple that it is plainly right; every answer
//! must be the same.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use proptest::prelude::*;
use sheaf_store::{
    Change, Changes, Entry, Expect, Range, Revision, Store, StoreError, Transaction, Write, embedded, etcd,
};

use crate::subject::*;

/// What is done, with numbers that are fitted to what exists when its turn comes.
#[derive(Clone, Debug)]
enum Step {
    Commit { expect: Vec<(u8, Guess)>, writes: Vec<(u8, Option<u8>)> },
    Get { key: u8 },
    Range { prefix: u8, after: Option<u8>, limit: usize, back: Option<u64> },
    Watch { prefix: u8, back: u64 },
    Compact { back: u64 },
}

#[derive(Clone, Debug)]
enum Guess {
    Absent,
    Right,
    Stale,
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let guess = prop_oneof![Just(Guess::Absent), Just(Guess::Right), Just(Guess::Stale)];
    let expect = prop::collection::vec((0..6u8, guess), 0..2);
    let writes = prop::collection::btree_map(0..6u8, prop::option::weighted(0.7, any::<u8>()), 0..4);
    let step = prop_oneof![
        6 => (expect, writes).prop_map(|(expect, writes)| Step::Commit { expect, writes: writes.into_iter().collect() }),
        2 => (0..6u8).prop_map(|key| Step::Get { key }),
        3 => (0..4u8, prop::option::of(0..6u8), 0..4usize, prop::option::of(0..12u64))
            .prop_map(|(prefix, after, limit, back)| Step::Range { prefix, after, limit, back }),
        2 => (0..4u8, 0..12u64).prop_map(|(prefix, back)| Step::Watch { prefix, back }),
        1 => (0..12u64).prop_map(|back| Step::Compact { back }),
    ];
    prop::collection::vec(step, 1..most)
}

/// Keys that are prefixes of each other, and prefixes that split them.
fn key(number: u8) -> Bytes {
    Bytes::from_static([&b"a"[..], b"a/", b"a/1", b"a/2", b"b", b"\xff"][usize::from(number)])
}

fn prefix(number: u8) -> Bytes {
    Bytes::from_static([&b""[..], b"a", b"a/", b"\xff"][usize::from(number)])
}

/// Every state there ever was.
struct Model {
    first: u64,
    states: Vec<BTreeMap<Bytes, Entry>>,
    changes: Vec<Vec<Change>>,
    compacted: u64,
    /// Whether a compaction takes a revision, as it does on etcd.
    compaction_counts: bool,
}

impl Model {
    fn head(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    fn now(&self) -> &BTreeMap<Bytes, Entry> {
        self.states.last().unwrap()
    }

    fn push(&mut self, state: BTreeMap<Bytes, Entry>, changes: Vec<Change>) {
        self.states.push(state);
        self.changes.push(changes);
    }

    fn commit(&mut self, wanted: &Transaction) -> Result<Revision, (Bytes, Option<Entry>)> {
        for expect in &wanted.expect {
            let found = self.now().get(expect.key());
            let holds = match expect {
                Expect::Absent { .. } => found.is_none(),
                Expect::ModifiedAt { revision, .. } => found.is_some_and(|found| found.modified == *revision),
            };
            if !holds {
                return Err((expect.key().clone(), found.cloned()));
            }
        }
        let revision = Revision(self.head() + 1);
        let (mut state, mut changes) = (self.now().clone(), vec![]);
        for write in &wanted.writes {
            match write {
                Write::Put { key, value } => {
                    let created = state.get(key).map_or(revision, |entry| entry.created);
                    let entry = Entry { key: key.clone(), value: value.clone(), created, modified: revision };
                    state.insert(key.clone(), entry.clone());
                    changes.push(Change::Put(entry));
                }
                Write::Delete { key } => {
                    if state.remove(key).is_some() {
                        changes.push(Change::Deleted { key: key.clone() });
                    }
                }
            }
        }
        if changes.is_empty() {
            return Ok(Revision(self.head()));
        }
        self.push(state, changes);
        Ok(revision)
    }
}

async fn run(store: Arc<dyn Store>, steps: Vec<Step>, compaction_counts: bool) -> Result<(), TestCaseError> {
    let first = store.revision().await.unwrap().0;
    let mut model = Model {
        first,
        states: vec![BTreeMap::new()],
        changes: vec![vec![]],
        compacted: 0,
        compaction_counts,
    };
    for step in steps {
        try_step(&store, &mut model, step).await?;
        prop_assert_eq!(store.revision().await.unwrap(), Revision(model.head()));
    }
    Ok(())
}

async fn try_step(store: &Arc<dyn Store>, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    match step {
        Step::Commit { expect, writes } => {
            let expect = expect.into_iter().map(|(number, guess)| {
                let (key, found) = (key(number), model.now().get(&key(number)));
                match (guess, found) {
                    (Guess::Absent, _) => Expect::Absent { key },
                    (Guess::Right, Some(found)) => Expect::ModifiedAt { key, revision: found.modified },
                    (Guess::Right, None) => Expect::Absent { key },
                    (Guess::Stale, _) => {
                        Expect::ModifiedAt { key, revision: Revision(model.head().saturating_sub(3)) }
                    }
                }
            });
            let writes = writes.into_iter().map(|(number, value)| match value {
                Some(value) => {
                    Write::Put { key: key(number), value: Bytes::from(vec![value; usize::from(value)]) }
                }
                None => Write::Delete { key: key(number) },
            });
            let transaction = Transaction { expect: expect.collect(), writes: writes.collect() };
            let answer = match store.commit(transaction.clone()).await {
                Ok(revision) => Ok(revision),
                Err(StoreError::Conflict { key, found }) => Err((key, found)),
                Err(other) => return Err(TestCaseError::fail(other.to_string())),
            };
            prop_assert_eq!(answer, model.commit(&transaction), "{:?}", transaction);
        }
        Step::Get { key: number } => {
            prop_assert_eq!(store.get(&key(number)).await.unwrap(), model.now().get(&key(number)).cloned());
        }
        Step::Range { prefix: number, after, limit, back } => {
            // One beyond the newest is asked for too.
            let at = back.map(|back| (model.head() + 1).saturating_sub(back));
            let range = Range { prefix: prefix(number), after: after.map(key), limit, at: at.map(Revision) };
            let answer = store.range(range.clone()).await;
            match at {
                Some(at) if at < model.compacted => {
                    let told = matches!(answer, Err(StoreError::Compacted { oldest, .. }) if oldest.0 == model.compacted);
                    prop_assert!(told, "{answer:?}");
                }
                Some(at) if at > model.head() => {
                    prop_assert!(matches!(answer, Err(StoreError::Future { .. })), "{answer:?}");
                }
                // What was before the model began is not its business.
                Some(at) if at < model.first => {}
                _ => {
                    let at = at.unwrap_or(model.head());
                    let state = &model.states[(at - model.first) as usize];
                    let wanted = |key: &Bytes| {
                        key.starts_with(&range.prefix) && range.after.as_ref().is_none_or(|after| key > after)
                    };
                    let mut entries: Vec<Entry> =
                        state.iter().filter(|(key, _)| wanted(key)).map(|(_, entry)| entry.clone()).collect();
                    let more = limit > 0 && entries.len() > limit;
                    if more {
                        entries.truncate(limit);
                    }
                    let page = answer.unwrap();
                    prop_assert_eq!(
                        (page.entries, page.more, page.revision),
                        (entries, more, Revision(at)),
                        "{:?}",
                        range
                    );
                }
            }
        }
        Step::Watch { prefix: number, back } => {
            let after = model.head().saturating_sub(back);
            if after < model.compacted {
                let refused = matches!(
                    store.watch(prefix(number), Revision(after)).await,
                    Err(StoreError::Compacted { .. })
                );
                prop_assert!(refused, "a watch from {after} was accepted");
            } else if after >= model.first {
                let mut watch = store.watch(prefix(number), Revision(after)).await.unwrap();
                for revision in after + 1..=model.head() {
                    let mut changes = model.changes[(revision - model.first) as usize].clone();
                    changes.retain(|change| change.key().starts_with(&prefix(number)));
                    if !changes.is_empty() || prefix(number).is_empty() {
                        let told = next(&mut watch).await.unwrap();
                        prop_assert_eq!(told, Changes { revision: Revision(revision), changes });
                    }
                }
            }
        }
        Step::Compact { back } => {
            let to = (model.head() + 1).saturating_sub(back);
            let answer = store.compact(Revision(to)).await;
            if to > model.head() {
                prop_assert!(matches!(answer, Err(StoreError::Future { .. })), "{answer:?}");
            } else {
                prop_assert!(answer.is_ok(), "{answer:?}");
                if to > model.compacted {
                    model.compacted = to;
                    if model.compaction_counts {
                        model.push(model.now().clone(), vec![]);
                    }
                }
                prop_assert_eq!(store.compacted().await.unwrap(), Revision(model.compacted));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn the_embedded_store_answers_as_the_model_does(steps in steps(60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // A memory so short that most watches read the file.
            let options = embedded::Options {
                writer: embedded::WriterMode::Inline,
                history_entries: 3,
                ..embedded::Options::default()
            };
            let store = embedded::open_with_backend(redb::backends::InMemoryBackend::new(), options).unwrap();
            run(Arc::new(store), steps, false).await
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 20, ..ProptestConfig::default() })]
    #[test]
    fn etcd_answers_as_the_model_does(steps in steps(150)) {
        let directory = tempfile::tempdir().unwrap();
        threaded().block_on(async {
            let server = etcd::server::Server::start(quick_etcd(directory.path())).await.unwrap();
            let store = etcd::open(etcd::Config::new(vec![server.endpoint()])).await.unwrap();
            let outcome = run(Arc::new(store), steps, true).await;
            server.stop().await;
            outcome
        })?;
    }
}
