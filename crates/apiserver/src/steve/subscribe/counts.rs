//! A subscription to how many objects there are: all counts at first, then those that became others, at most every few
//! seconds. Tables in which nothing happened are not looked at.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::{event::Wish, subscription::Said};
use crate::{
    ApiServer,
    steve::{
        counts::{self, COUNT, COUNTS},
        kinds::{self, id_of},
        object::Base,
        rights::Rights,
    },
};

/// How seldom counts are told.
const SELDOM: Duration = Duration::from_secs(5);

/// One subscription under way.
pub struct CountsSubscription {
    pub wish: Wish,
    server: ApiServer,
    rights: Rights,
    base: Base,
    /// Of each type, the revision of its table when it was counted, and what came of it.
    counted: BTreeMap<String, (u64, Option<Value>)>,
    look_at: Instant,
}

impl CountsSubscription {
    pub fn is_wished(wish: &Wish) -> bool {
        [COUNT, COUNTS].iter().any(|name| wish.resource_type.eq_ignore_ascii_case(name))
    }

    pub fn open(server: &ApiServer, base: &Base, rights: &Rights, wish: Wish) -> Self {
        CountsSubscription {
            wish,
            server: server.clone(),
            rights: rights.clone(),
            base: base.clone(),
            counted: BTreeMap::new(),
            look_at: Instant::now(),
        }
    }

    /// What may no longer be counted is left out by and by; the subscription ends with its user.
    pub fn is_still_allowed(&self) -> bool {
        self.rights.are_still_somebodys()
    }

    /// The next counts to tell. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> Said {
        loop {
            sleep_until(self.look_at).await;
            self.look_at = Instant::now() + SELDOM;
            let changed = self.changed();
            if !changed.is_empty() {
                let mut event = self.wish.event("resource.change");
                // As the original calls it, whatever it was asked for as.
                event["resourceType"] = COUNTS.into();
                event["data"] = counts::into_wire(&self.base, changed);
                return Said::Event(event);
            }
        }
    }

    fn changed(&mut self) -> BTreeMap<String, Value> {
        let mut changed = BTreeMap::new();
        for served in kinds::all(&self.server.registry.catalogue()) {
            let id = id_of(&served.kind);
            let revision = self.server.cache.table(&served.resource).changed();
            if self.counted.get(&id).is_some_and(|(counted, _)| *counted == revision) {
                continue;
            }
            let count = self.server.count(&served, &self.rights);
            let before = self.counted.insert(id.clone(), (revision, count.clone()));
            if let Some(count) =
                count.filter(|count| before.and_then(|(_, before)| before).as_ref() != Some(count))
            {
                changed.insert(id, count);
            }
        }
        changed
    }
}
