//! A store file that is gone, emptied or damaged: said so, with its place and a way out, and never taken
//! for an empty store; nobody is left waiting.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use sheaf_store::{
    Range, Revision, Store, StoreError, Transaction, Write,
    embedded::{self, OpenError, Options},
};

const PAGE: usize = 4096;

fn put(key: String, value: Vec<u8>) -> Transaction {
    Transaction { expect: vec![], writes: vec![Write::Put { key: key.into(), value: value.into() }] }
}

/// A store with some hundred pages in good order, closed.
async fn filled(directory: &Path) -> PathBuf {
    let path = directory.join("store.redb");
    let store = embedded::open(&path, Options::default()).unwrap();
    for number in 0..300 {
        store.commit(put(format!("k/{number:04}"), vec![b'x'; 700])).await.unwrap();
    }
    path
}

#[tokio::test]
async fn a_lost_or_emptied_store_is_not_replaced_by_an_empty_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    let whole = fs::read(&path).unwrap();
    let mark = fs::read(path.with_extension("mark")).unwrap();

    for lose in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "").unwrap()] {
        lose(&path);
        let refused = embedded::open(&path, Options::default()).unwrap_err();
        assert!(matches!(refused, OpenError::Lost { .. }), "{refused:?}");
        for told in ["store.redb", "store.mark", "backup"] {
            assert!(refused.to_string().contains(told), "{told} is not in: {refused}");
        }
        assert_eq!(fs::metadata(&path).map_or(0, |file| file.len()), 0, "nothing was put in its place");
        assert_eq!(fs::read(path.with_extension("mark")).unwrap(), mark);
    }

    fs::write(&path, whole).unwrap();
    let store = embedded::open(&path, Options::default()).unwrap();
    assert_eq!(store.range(Range::default()).await.unwrap().entries.len(), 300);
    drop(store);

    fs::remove_file(&path).unwrap();
    fs::remove_file(path.with_extension("mark")).unwrap();
    let store = embedded::open(&path, Options::default()).unwrap();
    assert_eq!(store.range(Range::default()).await.unwrap().entries.len(), 0, "as it was really meant");
}

#[tokio::test]
async fn a_file_of_something_else_is_called_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    fs::write(&path, vec![7; 10 * PAGE]).unwrap();
    let refused = embedded::open(&path, Options::default()).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
    assert!(refused.to_string().contains("store.redb"), "{refused}");
}

/// What became of a damaged file.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The damage lies where nothing looked.
    Unseen,
    RefusedAtOpening,
    FailedAtWork,
}

/// Opens and uses the store as a node does. Panics when the damage is not told as such.
async fn use_it(path: &Path) -> Outcome {
    let store = match embedded::open(path, Options::default()) {
        Ok(store) => store,
        Err(OpenError::Damaged { place, .. }) => {
            assert_eq!(place, path.display().to_string());
            return Outcome::RefusedAtOpening;
        }
        Err(other) => panic!("{other:?}"),
    };
    let mut waiting = store.watch(Bytes::from("nothing/"), Revision(u64::MAX >> 1)).await;
    let used = async {
        store.range(Range::default()).await?;
        for number in 0..20 {
            store.get(&format!("k/{:04}", number * 13).into()).await?;
            store.commit(put(format!("k/{:04}", number * 17), vec![b'y'; 900])).await?;
        }
        let mut watch = store.watch(Bytes::new(), Revision(1)).await?;
        for _ in 0..300 {
            watch.next().await.unwrap()?;
        }
        let now = store.revision().await?;
        store.compact(now).await
    };
    let Err(error) = used.await else { return Outcome::Unseen };
    match &error {
        StoreError::Failed { reason } | StoreError::OutcomeUnknown { reason } => {
            assert!(reason.contains("damaged") && reason.contains("store.redb"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.get(&"k/0000".into()).await, Err(StoreError::Failed { .. })));
    let refused = store.commit(put("k".to_owned(), vec![])).await;
    assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    if let Ok(watch) = &mut waiting {
        assert!(matches!(watch.next().await, Some(Err(StoreError::Failed { .. }))));
    }
    Outcome::FailedAtWork
}

#[tokio::test]
async fn flipped_bytes_are_told_as_damage_and_leave_nobody_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = filled(directory.path()).await;
    let (whole, mark) = (fs::read(&path).unwrap(), fs::read(path.with_extension("mark")).unwrap());
    assert!(whole.len() > 50 * PAGE);
    let (mut refused, mut failed) = (0, 0);
    // The head of each page says what it is and where its pieces are.
    for page in 0..whole.len() / PAGE {
        let start = page * PAGE;
        if whole[start..start + PAGE].iter().all(|byte| *byte == 0) {
            continue;
        }
        // Each page in one of these ways, so that it does not take minutes.
        let ways = [(0, 1), (0, 64), (64, 320), (0, PAGE)];
        let (from, to) = ways[page % ways.len()];
        let mut damaged = whole.clone();
        damaged[start + from..start + to].iter_mut().for_each(|byte| *byte ^= 0xa5);
        fs::write(&path, damaged).unwrap();
        fs::write(path.with_extension("mark"), &mark).unwrap();
        let used = tokio::time::timeout(Duration::from_secs(60), use_it(&path)).await;
        match used.unwrap_or_else(|_| panic!("hangs with page {page} flipped from {from} to {to}")) {
            Outcome::Unseen => {}
            Outcome::RefusedAtOpening => refused += 1,
            Outcome::FailedAtWork => failed += 1,
        }
    }
    assert!(refused > 3, "only {refused} were refused");
    assert!(failed > 8, "only {failed} failed at work");
}
