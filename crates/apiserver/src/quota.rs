//! Quotas: whatever changes how much there is of what a quota limits writes that quota, in the same transaction.
//!
//! ```text
//!   expect: the object as it was seen      the quota as it was seen
//!   write:  the object                     what is used with it
//! ```
//!
//! So what is used is exact at every revision, whoever writes and through whichever server, and nothing is left to be put
//! right by somebody later. Two things follow:
//!
//! - A quota that was just made, or limits something else now, was not counted yet. Whoever meets it first counts: as long
//!   as nobody else wrote the quota since it was looked at, nothing that it limits has changed.
//! - Who looked before there was a quota must look again. A quota that limits something new therefore writes its namespace
//!   too, as it is: every create expects that as it was seen.
//!
//! The decisions are [`sheaf_resources::quota`].

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;
use sheaf_resources::quota::{self, Amounts, Verdict};
use sheaf_store::{Expect, Revision, StoreError, Write};
use tokio::sync::OwnedMutexGuard;

use crate::{
    ApiServer,
    cache::{
        Resource,
        object::{self, CachedObject},
        place,
    },
    rest::{Call, options::Freshness, update::Part, write::Along},
    status::ApiError,
};

const QUOTAS: &str = "resourcequotas";

/// What a write does to the quotas of its namespace.
#[derive(Default)]
pub(crate) struct Charge {
    pub along: Along,
    /// Kept until the write is done: others in the namespace could only collide with it.
    pub turn: Option<OwnedMutexGuard<()>>,
}

/// Who writes under quotas does so one at a time in each namespace, as far as this server goes.
#[derive(Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, namespace: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(namespace.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

impl ApiServer {
    /// Charges the quotas of the namespace with what an object takes more, or less, after the write.
    pub(crate) async fn charge(
        &self,
        call: &Call<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<Charge, ApiError> {
        let namespace = &call.request.namespace;
        let kind = &call.served.kind;
        let mut charge = Charge::default();
        if namespace.is_empty() {
            return Ok(charge);
        }
        if limits_anew(call, old, new) {
            self.rewrite_namespace(namespace, &mut charge.along);
        }
        let is_counted_by_content =
            matches!(kind.plural.as_str(), "persistentvolumeclaims" | "virtualmachineinstances");
        let can_differ = old.is_some() != new.is_some() || is_counted_by_content;
        if !can_differ || self.quotas_of(namespace).is_empty() {
            return Ok(charge);
        }
        charge.turn = Some(self.turns.take(namespace).await);
        // Whoever had the turn before may have written, and so may another server.
        self.reach(Freshness::Latest).await?;
        for found in self.quotas_of(namespace) {
            let is_itself =
                kind.group.is_empty() && kind.plural == QUOTAS && found.name() == name_in(call, new);
            if is_itself {
                continue;
            }
            let value = found.to_value();
            let taken = |object: Option<&Value>| {
                let counts =
                    object.filter(|object| quota::matches(&value, &kind.group, &kind.plural, object));
                counts.map_or_else(Amounts::new, |object| quota::usage_of(&kind.group, &kind.plural, object))
            };
            let (before, after) = (taken(old), taken(new));
            let verdict = match quota::charge(&value, &before, &after) {
                // Before anybody is refused it is counted again.
                Verdict::Uncounted | Verdict::Exceeded(_) => {
                    quota::charge(&self.counted(&value), &before, &after)
                }
                verdict => verdict,
            };
            match verdict {
                Verdict::Unconcerned => {}
                Verdict::Charged(charged) => charge.along.write(&found, charged),
                Verdict::Exceeded(why) => {
                    return Err(ApiError::refused(call.named(), name_in(call, new), why));
                }
                Verdict::Uncounted => return Err(ApiError::internal("a quota that was counted is not")),
            }
        }
        Ok(charge)
    }

    /// Counts for a quota that was written, so that it says what is used when the answer comes.
    pub(crate) async fn settle_quota(
        &self,
        call: &Call<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), ApiError> {
        match limits_anew(call, old, Some(new)) {
            true => self.count_quota(&call.request.namespace, name_in(call, Some(new))).await,
            false => Ok(()),
        }
    }

    /// Counts what there is of what a quota limits, if nobody did. Somebody who changes that meanwhile counts too.
    pub(crate) async fn count_quota(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let _turn = self.turns.take(namespace).await;
        self.reach(Freshness::Latest).await?;
        let Some(found) = self.quotas_of(namespace).into_iter().find(|quota| quota.name() == name) else {
            return Ok(());
        };
        let value = found.to_value();
        if quota::is_counted(&value) {
            return Ok(());
        }
        let mut along = Along::default();
        along.write(&found, self.counted(&value));
        match self.store.commit(along.into_transaction()).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(why) => Err(ApiError::unavailable(why.to_string())),
        }
    }

    /// Counts what was left uncounted when the server went.
    pub(crate) async fn count_quotas(&self) {
        let (all, _) = self.cache.snapshot(&Resource::new("", QUOTAS));
        for quota in all.values() {
            if let Err(why) = self.count_quota(quota.namespace(), quota.name()).await {
                tracing::warn!(quota = &*quota.place, %why, "a quota could not be counted; who is charged by it counts again");
            }
        }
    }

    /// The quotas of a namespace, as of one moment.
    fn quotas_of(&self, namespace: &str) -> Vec<Arc<CachedObject>> {
        self.inside(&Resource::new("", QUOTAS), namespace)
    }

    pub(crate) fn inside(&self, resource: &Resource, namespace: &str) -> Vec<Arc<CachedObject>> {
        let (all, _) = self.cache.snapshot(resource);
        let from: Arc<str> = place(namespace, "").into();
        let objects = all.range(from.clone()..).take_while(|(place, _)| place.starts_with(&*from));
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// A quota with what is used, counted on what is there now: at least everything that was there when the quota was read.
    fn counted(&self, quota: &Value) -> Value {
        let namespace = quota["metadata"]["namespace"].as_str().unwrap_or_default();
        let mut used = Amounts::new();
        for (group, plural) in quota::counted_kinds(quota) {
            for object in self.inside(&Resource::new(&group, &plural), namespace) {
                let object = object.to_value();
                if !quota::matches(quota, &group, &plural, &object) {
                    continue;
                }
                for (name, amount) in quota::usage_of(&group, &plural, &object) {
                    let sum = used.entry(name).or_default();
                    *sum = sum.saturating_add(amount);
                }
            }
        }
        quota::counted(quota, &used)
    }

    fn rewrite_namespace(&self, namespace: &str, along: &mut Along) {
        let found = self.cache.get(&Resource::new("", "namespaces"), &place("", namespace));
        if let Some(found) = found {
            let key = Resource::new("", "namespaces").store_key(&found.place);
            along.put(key, found.revision, found.to_value());
        }
    }
}

/// Whether a quota begins to limit something, or limits it otherwise.
fn limits_anew(call: &Call<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    let kind = &call.served.kind;
    let is_quota = kind.group.is_empty() && kind.plural == QUOTAS;
    is_quota && new.is_some_and(|new| old.is_none_or(|old| old["spec"] != new["spec"]))
}

/// What is used is nobody's to say but the server's.
pub(crate) fn check_part(call: &Call<'_>, part: Part) -> Result<(), ApiError> {
    let kind = &call.served.kind;
    match kind.group.is_empty() && kind.plural == QUOTAS && part == Part::Status {
        true => Err(ApiError::refused(
            call.named(),
            &call.request.name,
            "what is used is counted by the server itself",
        )),
        false => Ok(()),
    }
}

fn name_in<'a>(call: &'a Call<'_>, new: Option<&'a Value>) -> &'a str {
    new.and_then(|new| new["metadata"]["name"].as_str()).unwrap_or(&call.request.name)
}

impl Along {
    /// Writes a quota in the place of one that was found.
    fn write(&mut self, found: &CachedObject, quota: Value) {
        self.put(Resource::new("", QUOTAS).store_key(&found.place), found.revision, quota);
    }

    /// Writes an object that is kept in the open, if it still is as it was at `revision`.
    fn put(&mut self, key: bytes::Bytes, revision: u64, mut object: Value) {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        self.expect.push(Expect::ModifiedAt { key: key.clone(), revision: Revision(revision) });
        self.writes.push(Write::Put { key, value: object::encode(&object).into() });
    }
}
