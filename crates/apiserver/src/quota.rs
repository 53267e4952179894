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
//!   too, as it is: whoever may change what is used expects that as it was seen.
//!
//! The decisions are [`sheaf_resources::quota`].

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use serde_json::Value;
use sheaf_resources::{
    kind::Kind,
    quota::{self, Amounts, Verdict},
};
use sheaf_store::{Expect, Revision, StoreError, Write};

use crate::{
    ApiServer,
    cache::{
        Resource,
        object::{self, CachedObject},
        place,
    },
    fairness::{
        self,
        queues::{Queues, Seat},
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
    pub turn: Option<Seat>,
}

/// Who writes under quotas does so one at a time in each namespace, as far as this server goes. A turn is a place of which
/// there is one: identities have it by turns, however many requests each of them has.
///
/// Nobody who waits for a turn holds a seat of [`fairness`], and nobody who has one waits for any. So a crowd in one
/// namespace takes nothing from others, and the two cannot wait for each other.
#[derive(Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Arc<Queues>>>);

impl Turns {
    async fn take(&self, namespace: &str, who: &str, seat: Option<&Seat>) -> Result<Seat, ApiError> {
        let turns = {
            let mut turns = self.0.lock();
            turns.retain(|_, turns| Arc::strong_count(turns) > 1);
            turns.entry(namespace.to_owned()).or_insert_with(|| Queues::of_any_length(1)).clone()
        };
        if let Some(turn) = turns.try_take(who, 1) {
            return Ok(turn);
        }
        let turn = match seat {
            Some(seat) => seat.without(turns.take(who, 1)).await,
            None => turns.take(who, 1).await,
        };
        turn.map_err(|_| fairness::busy())
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
        let mut charge = Charge::default();
        let can_differ = old.is_some() != new.is_some() || is_counted_by_content(&call.served.kind);
        if namespace.is_empty() || !(can_differ || limits_anew(call, old, new)) {
            return Ok(charge);
        }
        // Before the quotas are looked at, so that one which comes after that look is not missed.
        self.expect_namespace(namespace, limits_anew(call, old, new), &mut charge.along);
        let concerns = |quota: &Arc<CachedObject>| {
            let (value, before, after) = taken_of(call, quota, old, new);
            quota::charge(&value, &before, &after) != Verdict::Unconcerned
        };
        if !can_differ || !self.quotas_of(namespace).iter().any(concerns) {
            return Ok(charge);
        }
        charge.turn = Some(self.turns.take(namespace, &call.user.name, call.seat).await?);
        // Whoever had the turn before may have written, and so may another server.
        self.reach(Freshness::Latest).await?;
        for found in self.quotas_of(namespace) {
            if is_itself(call, &found, new) {
                continue;
            }
            let (value, before, after) = taken_of(call, &found, old, new);
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

    /// Counts for a quota that was written, so that the answer says what is used; answers it as it is then.
    pub(crate) async fn settle_quota(
        &self,
        call: &Call<'_>,
        old: Option<&Value>,
        new: &Value,
    ) -> Option<Arc<CachedObject>> {
        if !limits_anew(call, old, Some(new)) {
            return None;
        }
        let (namespace, name) = (&call.request.namespace, name_in(call, Some(new)));
        let counted = match self.count_quota(namespace, name, &call.user.name, call.seat).await {
            Ok(()) => self.read_fresh(call.served, &place(namespace, name), call.named()).await,
            Err(why) => Err(why),
        };
        // The quota itself was written, and whoever is charged by it counts.
        counted.unwrap_or_else(|why| {
            tracing::warn!(namespace, name, %why, "a quota was not counted yet");
            None
        })
    }

    /// Counts what there is of what a quota limits, if nobody did. Somebody who changes that meanwhile counts too.
    async fn count_quota(
        &self,
        namespace: &str,
        name: &str,
        who: &str,
        seat: Option<&Seat>,
    ) -> Result<(), ApiError> {
        let _turn = self.turns.take(namespace, who, seat).await?;
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
        for quota in all.values().filter(|quota| !quota::is_counted(&quota.to_value())) {
            if let Err(why) = self.count_quota(quota.namespace(), quota.name(), "", None).await {
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
        let mut add = |taken: Amounts, times: i64| {
            for (name, amount) in taken {
                let sum = used.entry(name).or_default();
                *sum = sum.saturating_add(amount.saturating_mul(times));
            }
        };
        for (group, plural) in quota::counted_kinds(quota) {
            let objects = self.inside(&Resource::new(&group, &plural), namespace);
            if !quota::counts_content(&group, &plural) {
                // All of them are alike, and their contents may be large.
                let any = Value::Null;
                if quota::matches(quota, &group, &plural, &any) {
                    add(
                        quota::usage_of(&group, &plural, &any),
                        i64::try_from(objects.len()).unwrap_or(i64::MAX),
                    );
                }
                continue;
            }
            let bytes = objects.iter().map(|object| object.tail.len()).sum();
            self.heavy(bytes, || {
                for object in &objects {
                    let object = object.to_value();
                    if quota::matches(quota, &group, &plural, &object) {
                        add(quota::usage_of(&group, &plural, &object), 1);
                    }
                }
            });
        }
        quota::counted(quota, &used)
    }

    /// That the namespace still is as it is seen now; it is written as it is when that is to `tell` others.
    fn expect_namespace(&self, namespace: &str, tell: bool, along: &mut Along) {
        let namespaces = Resource::new("", "namespaces");
        let Some(found) = self.cache.get(&namespaces, &place("", namespace)) else { return };
        let key = namespaces.store_key(&found.place);
        match tell {
            true => along.put(key, found.revision, found.to_value()),
            false => along.expect.push(Expect::ModifiedAt { key, revision: Revision(found.revision) }),
        }
    }
}

fn is_counted_by_content(kind: &Kind) -> bool {
    quota::counts_content(&kind.group, &kind.plural)
}

fn is_quota(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == QUOTAS
}

/// A quota that is written, or removed, is not charged for itself.
fn is_itself(call: &Call<'_>, found: &CachedObject, new: Option<&Value>) -> bool {
    is_quota(&call.served.kind) && found.name() == name_in(call, new)
}

/// A quota, and what an object takes of it before and after.
fn taken_of(
    call: &Call<'_>,
    quota: &CachedObject,
    old: Option<&Value>,
    new: Option<&Value>,
) -> (Value, Amounts, Amounts) {
    let kind = &call.served.kind;
    let value = quota.to_value();
    let taken = |object: Option<&Value>| {
        let counts = object.filter(|object| quota::matches(&value, &kind.group, &kind.plural, object));
        counts.map_or_else(Amounts::new, |object| quota::usage_of(&kind.group, &kind.plural, object))
    };
    let (before, after) = (taken(old), taken(new));
    (value, before, after)
}

/// Whether a quota begins to limit something, or limits it otherwise.
fn limits_anew(call: &Call<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
    is_quota(&call.served.kind) && new.is_some_and(|new| old.is_none_or(|old| old["spec"] != new["spec"]))
}

/// What is used is nobody's to say but the server's, and is not known any more of a quota that limits something else.
pub(crate) fn prepare(call: &Call<'_>, part: Part, new: &mut Value, old: &Value) -> Result<(), ApiError> {
    if is_quota(&call.served.kind) && part == Part::Status {
        let why = "what is used is counted by the server itself";
        return Err(ApiError::refused(call.named(), &call.request.name, why));
    }
    if limits_anew(call, Some(old), Some(new))
        && let Some(fields) = new.as_object_mut()
    {
        fields.remove("status");
    }
    Ok(())
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
    pub(crate) fn put(&mut self, key: bytes::Bytes, revision: u64, mut object: Value) {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        self.expect.push(Expect::ModifiedAt { key: key.clone(), revision: Revision(revision) });
        self.writes.push(Write::Put { key, value: object::encode(&object).into() });
    }
}
