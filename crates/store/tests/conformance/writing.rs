//! Compare-and-swap and atomicity.

use std::sync::Arc;

use bytes::Bytes;
use sheaf_store::{MAX_TRANSACTION_BYTES, Revision, StoreError, Transaction, Write};

use crate::{Subject, subject::*};

pub async fn what_is_written_is_read_back_with_its_revisions(on: Subject) {
    assert_eq!(get(&on.store, "pods/a").await, None);
    let before = on.store.revision().await.unwrap();
    let first = write(&on.store, "pods/a", "one").await;
    let second = write(&on.store, "pods/a", "two").await;
    assert!(before < first && first < second);
    let entry = get(&on.store, "pods/a").await.unwrap();
    assert_eq!(entry.value, bytes("two"));
    assert_eq!((entry.created, entry.modified), (first, second));
    assert_eq!(on.store.revision().await.unwrap(), second);

    let empty = on.store.commit(all([put("pods/empty", "")])).await.unwrap();
    let entry = get(&on.store, "pods/empty").await.unwrap();
    assert_eq!((entry.value.len(), entry.modified), (0, empty));
}

pub async fn two_writers_with_one_revision_one_wins(on: Subject) {
    for round in 0..5 {
        let key = format!("round/{round}");
        let start = write(&on.store, &key, "start").await;
        let tries = (0..16).map(|writer| {
            let store = Arc::clone(if writer % 2 == 0 { &on.store } else { &on.other });
            let transaction = Transaction {
                expect: vec![modified(&key, start)],
                writes: vec![put(&key, format!("writer {writer}"))],
            };
            tokio::spawn(async move { (writer, store.commit(transaction).await) })
        });
        let mut won = None;
        let mut refused = Vec::new();
        for tried in futures::future::join_all(tries).await {
            match tried.unwrap() {
                (writer, Ok(revision)) => assert_eq!(won.replace((writer, revision)), None, "two won"),
                (_, Err(StoreError::Conflict { key, found })) => refused.push((key, found)),
                (writer, Err(other)) => panic!("writer {writer} got {other}"),
            }
        }
        let (writer, revision) = won.expect("nobody won");
        let entry = get(&on.store, &key).await.unwrap();
        assert_eq!((entry.value.clone(), entry.modified), (bytes(format!("writer {writer}")), revision));
        assert_eq!(refused.len(), 15);
        assert!(refused.iter().all(|refusal| *refusal == (bytes(&key), Some(entry.clone()))));
    }
}

pub async fn of_many_who_expect_a_key_absent_one_creates_it(on: Subject) {
    let tries = (0..16).map(|writer| {
        let store = Arc::clone(&on.store);
        let transaction =
            Transaction { expect: vec![absent("lock")], writes: vec![put("lock", writer.to_string())] };
        tokio::spawn(async move { store.commit(transaction).await.is_ok() })
    });
    let won = futures::future::join_all(tries).await.into_iter().filter(|won| *won.as_ref().unwrap()).count();
    assert_eq!(won, 1);
}

pub async fn a_refusal_names_the_key_and_what_was_found(on: Subject) {
    let first = write(&on.store, "a", "1").await;
    let second = write(&on.store, "a", "2").await;
    let stale = Transaction { expect: vec![absent("b"), modified("a", first)], writes: vec![put("a", "3")] };
    match on.store.commit(stale).await {
        Err(StoreError::Conflict { key, found: Some(found) }) => {
            assert_eq!((key, found.value, found.modified), (bytes("a"), bytes("2"), second));
        }
        other => panic!("{other:?}"),
    }
    let gone = Transaction { expect: vec![modified("c", second)], writes: vec![put("c", "1")] };
    match on.store.commit(gone).await {
        Err(StoreError::Conflict { key, found: None }) => assert_eq!(key, bytes("c")),
        other => panic!("{other:?}"),
    }
    for never in [Revision(0), Revision(u64::MAX)] {
        let transaction = Transaction { expect: vec![modified("a", never)], writes: vec![] };
        assert!(matches!(on.store.commit(transaction).await, Err(StoreError::Conflict { .. })));
    }
}

pub async fn a_transaction_happens_wholly_or_not_at_all(on: Subject) {
    let first = write(&on.store, "a", "1").await;
    let refused = Transaction {
        expect: vec![modified("a", first), absent("a")],
        writes: vec![put("a", "2"), put("b", "2"), delete("a")],
    };
    // Written twice is refused before it is tried; the real refusal is the expectation.
    assert!(matches!(on.store.commit(refused).await, Err(StoreError::Invalid { .. })));
    let refused = Transaction {
        expect: vec![modified("a", first), absent("a")],
        writes: vec![put("a", "2"), put("b", "2")],
    };
    assert!(matches!(on.store.commit(refused).await, Err(StoreError::Conflict { .. })));
    assert_eq!(pairs(&list(&on.store, "", None).await), ["a=1"]);
    assert_eq!(on.store.revision().await.unwrap(), first, "a refusal takes no revision");

    let accepted = Transaction {
        expect: vec![modified("a", first), absent("b")],
        writes: vec![delete("a"), put("b", "2"), put("c", "2")],
    };
    on.store.commit(accepted).await.unwrap();
    assert_eq!(pairs(&list(&on.store, "", None).await), ["b=2", "c=2"]);
}

/// Money moves between accounts; whoever looks at any moment sees the same sum.
pub async fn concurrent_transfers_keep_the_sum(on: Subject) {
    const ACCOUNTS: usize = 4;
    const EACH: i64 = 100;
    let opening = (0..ACCOUNTS).map(|account| put(format!("account/{account}"), EACH.to_string()));
    on.store.commit(all(opening.collect::<Vec<_>>())).await.unwrap();
    let movers = (0..8usize).map(|mover| {
        let store = Arc::clone(if mover % 2 == 0 { &on.store } else { &on.other });
        tokio::spawn(async move {
            let mut moved = 0;
            while moved < 15 {
                let (from, to) = (
                    format!("account/{}", mover % ACCOUNTS),
                    format!("account/{}", (mover + moved + 1) % ACCOUNTS),
                );
                if from == to {
                    moved += 1;
                    continue;
                }
                let (source, target) = (get(&store, &from).await.unwrap(), get(&store, &to).await.unwrap());
                let amount = |value: &Bytes| std::str::from_utf8(value).unwrap().parse::<i64>().unwrap();
                let transfer = Transaction {
                    expect: vec![modified(&from, source.modified), modified(&to, target.modified)],
                    writes: vec![
                        put(&from, (amount(&source.value) - 1).to_string()),
                        put(&to, (amount(&target.value) + 1).to_string()),
                    ],
                };
                match store.commit(transfer).await {
                    Ok(_) => moved += 1,
                    Err(StoreError::Conflict { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        })
    });
    let movers = tokio::spawn(futures::future::join_all(movers));
    let mut looks = 0;
    while !movers.is_finished() || looks == 0 {
        let page = list(&on.other, "account/", None).await;
        let sum: i64 = page
            .entries
            .iter()
            .map(|entry| std::str::from_utf8(&entry.value).unwrap().parse::<i64>().unwrap())
            .sum();
        assert_eq!(sum, ACCOUNTS as i64 * EACH);
        looks += 1;
        tokio::task::yield_now().await;
    }
    movers.await.unwrap().into_iter().for_each(|mover| mover.unwrap());
}

pub async fn one_transaction_takes_one_revision(on: Subject) {
    let before = write(&on.store, "a", "0").await;
    let many = (0..100).map(|index| put(format!("many/{index:03}"), "x")).collect::<Vec<_>>();
    let revision = on.store.commit(all(many)).await.unwrap();
    assert_eq!(revision.0, before.0 + 1);
    let page = list(&on.store, "many/", None).await;
    assert_eq!(page.entries.len(), 100);
    assert!(page.entries.iter().all(|entry| entry.created == revision && entry.modified == revision));
}

pub async fn deleting_an_absent_key_changes_nothing_and_takes_no_revision(on: Subject) {
    let before = write(&on.store, "a", "1").await;
    assert_eq!(on.store.commit(all([delete("never")])).await.unwrap(), before);
    assert_eq!(on.store.commit(all([])).await.unwrap(), before);
    assert_eq!(on.store.revision().await.unwrap(), before);
    let mixed = on.store.commit(all([delete("never"), put("b", "1")])).await.unwrap();
    assert_eq!(mixed.0, before.0 + 1);
    let mut watch = on.store.watch(bytes(""), before).await.unwrap();
    assert_eq!(told(&next(&mut watch).await.unwrap()), ["+b=1"], "what did not change is not told");
}

pub async fn a_key_created_again_is_a_new_incarnation(on: Subject) {
    let first = write(&on.store, "a", "1").await;
    let gone = on.store.commit(all([delete("a")])).await.unwrap();
    assert_eq!(get(&on.store, "a").await, None);
    let again = write(&on.store, "a", "2").await;
    assert!(first < gone && gone < again);
    let entry = get(&on.store, "a").await.unwrap();
    assert_eq!((entry.created, entry.modified), (again, again));
}

pub async fn a_transaction_is_accepted_up_to_the_limit_and_refused_beyond(on: Subject) {
    let of = |size: usize| all([Write::Put { key: bytes("big"), value: Bytes::from(vec![7; size]) }]);
    let most = MAX_TRANSACTION_BYTES - "big".len();
    let revision = on.store.commit(of(most)).await.unwrap();
    match on.store.commit(of(most + 1)).await {
        Err(StoreError::TooLarge { bytes, limit }) => {
            assert_eq!((bytes, limit), (MAX_TRANSACTION_BYTES + 1, MAX_TRANSACTION_BYTES));
        }
        other => panic!("{other:?}"),
    }
    let entry = get(&on.store, "big").await.unwrap();
    assert_eq!((entry.value.len(), entry.modified), (most, revision));
}

pub async fn what_no_store_could_carry_out_is_refused(on: Subject) {
    let before = write(&on.store, "a", "1").await;
    for transaction in [
        all([put("x", "1"), put("x", "2")]),
        all([put("x", "1"), delete("x")]),
        all([put("", "1")]),
        all([put("\0sheaf/epoch", "mine now")]),
        Transaction { expect: vec![absent("")], writes: vec![put("x", "1")] },
    ] {
        let refused = on.store.commit(transaction).await;
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(on.store.revision().await.unwrap(), before);
}
