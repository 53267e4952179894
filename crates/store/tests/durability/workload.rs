//! Concurrent writers that remember what they were promised, and the check of what is left.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use sheaf_store::{Change, Range, Revision, Store, StoreError, Transaction, Write};

/// What the store was asked and what it said.
#[derive(Debug, Default)]
pub struct Story {
    /// Everything that was ever asked for, by the mark it leaves in every one of its values.
    pub asked: BTreeMap<String, Vec<Write>>,
    /// What was acknowledged, and at which revision.
    pub acknowledged: BTreeMap<String, Revision>,
    /// The highest revision any answer showed.
    pub shown: Revision,
    pub errors: Vec<StoreError>,
}

/// `writers` tasks write `rounds` transactions of several keys each; each stops at its first error.
pub async fn run(store: Arc<dyn Store>, generation: &str, writers: usize, rounds: usize) -> Story {
    let tasks = (0..writers).map(|writer| {
        let (store, generation) = (Arc::clone(&store), generation.to_owned());
        tokio::spawn(async move {
            let mut story = Story::default();
            // Out of step, so that batches come in all sizes.
            for _ in 0..3 * writer {
                tokio::task::yield_now().await;
            }
            for round in 0..rounds {
                let mark = format!("{generation}.{writer}.{round}");
                let writes = transaction(writer, round, &mark);
                story.asked.insert(mark.clone(), writes.clone());
                match store.commit(Transaction { expect: vec![], writes }).await {
                    Ok(revision) => {
                        story.shown = story.shown.max(revision);
                        story.acknowledged.insert(mark, revision);
                    }
                    Err(error) => {
                        story.errors.push(error);
                        break;
                    }
                }
                // Now and then somebody forgets the distant past.
                if writer == 0 && round % 5 == 4 {
                    let _ = store.compact(Revision(story.shown.0.saturating_sub(20))).await;
                }
                tokio::task::yield_now().await;
            }
            story
        })
    });
    let mut whole = Story::default();
    for story in futures::future::join_all(tasks).await {
        let story = story.unwrap();
        whole.asked.extend(story.asked);
        whole.acknowledged.extend(story.acknowledged);
        whole.shown = whole.shown.max(story.shown);
        whole.errors.extend(story.errors);
    }
    whole
}

/// Two keys that always change together, one of everybody's, and a value that spills over a page.
fn transaction(writer: usize, round: usize, mark: &str) -> Vec<Write> {
    let put = |key: String, value: String| Write::Put { key: key.into(), value: value.into() };
    vec![
        put(format!("pair/{writer}/left"), mark.to_owned()),
        put(format!("pair/{writer}/right"), mark.to_owned()),
        put(format!("shared/{}", round % 3), mark.to_owned()),
        put(format!("large/{writer}"), format!("{mark} {}", "x".repeat(1500 * (round % 4)))),
    ]
}

/// Whether the store holds everything it promised, nothing in half, and a history that adds up.
pub async fn check(store: &Arc<dyn Store>, story: &Story) -> Result<(), String> {
    let failed = |error: StoreError| error.to_string();
    let head = store.revision().await.map_err(failed)?;
    if head < story.shown {
        return Err(format!("went back from revision {} to {head}", story.shown));
    }
    let oldest = store.compacted().await.map_err(failed)?;
    let then = store.range(Range { at: Some(oldest), ..Range::default() }).await.map_err(failed)?;
    let mut state: BTreeMap<Bytes, (Bytes, Revision)> =
        then.entries.into_iter().map(|entry| (entry.key, (entry.value, entry.modified))).collect();

    let mut history = BTreeMap::new();
    let mut watch = store.watch(Bytes::new(), oldest).await.map_err(failed)?;
    for revision in oldest.0 + 1..=head.0 {
        let told = watch.next().now_or_never().flatten();
        // The watch may want to yield between pages; then ask once more, properly.
        let told = match told {
            Some(told) => told,
            None => watch.next().await.ok_or("a watch ended")?,
        };
        let told = told.map_err(failed)?;
        if told.revision != Revision(revision) {
            return Err(format!("after revision {} came {}", revision - 1, told.revision));
        }
        if told.changes.is_empty() {
            continue; // The beginning of the store itself.
        }
        let mut writes = Vec::new();
        for change in told.changes {
            let Change::Put(entry) = change else { return Err("something was deleted".to_owned()) };
            state.insert(entry.key.clone(), (entry.value.clone(), entry.modified));
            writes.push(Write::Put { key: entry.key, value: entry.value });
        }
        let Some(mark) = mark_of(&writes) else { return Err(format!("revision {revision} has no mark")) };
        if story.asked.get(&mark) != Some(&writes) {
            return Err(format!(
                "revision {revision} holds only a part of {mark}, or something never asked for"
            ));
        }
        if history.insert(mark.clone(), Revision(revision)).is_some() {
            return Err(format!("{mark} happened twice"));
        }
    }
    for (mark, revision) in &story.acknowledged {
        if *revision > oldest && history.get(mark) != Some(revision) {
            return Err(format!("{mark} was acknowledged at revision {revision} and is not there"));
        }
        for write in &story.asked[mark] {
            let Some((value, modified)) = state.get(write.key()) else {
                return Err(format!("a key of {mark} is gone"));
            };
            let Write::Put { value: written, .. } = write else { continue };
            if modified < revision || (modified == revision && value != written) {
                return Err(format!(
                    "{mark} was acknowledged at revision {revision}; its key is from {modified}"
                ));
            }
        }
    }
    let now = store.range(Range::default()).await.map_err(failed)?;
    let now: BTreeMap<Bytes, (Bytes, Revision)> =
        now.entries.into_iter().map(|entry| (entry.key, (entry.value, entry.modified))).collect();
    if now != state { Err("history does not lead to what is there now".to_owned()) } else { Ok(()) }
}

fn mark_of(writes: &[Write]) -> Option<String> {
    let Write::Put { value, .. } = writes.first()? else { return None };
    Some(String::from_utf8_lossy(value).into_owned())
}
