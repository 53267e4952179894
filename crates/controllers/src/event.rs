//! Removes events that last happened long ago.
//!
//! Runs by the clock alone, a bounded number at a time. Only metadata is listed; the one field
//! beside it that counts, when the event last happened, is read of those that are old enough to go. Nothing is
//! remembered between rounds.

use std::time::Duration;

use kube::{
    api::{DynamicObject, ListParams, PropagationPolicy},
    core::ApiResource,
};
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::ReconcileError,
};
use sheaf_world::Timestamp;

use crate::{
    Context,
    rounds::{self, MOST_PER_ROUND, PAGE},
};

pub const NAME: &str = "event";
const ROUND: Duration = Duration::from_secs(60);

fn resource() -> ApiResource {
    built_in("", "v1", "Event", "events")
}

pub(crate) async fn run(context: Context) {
    rounds::run("old events", ROUND, || remove_old(&context)).await;
}

/// One round; answers how many were removed.
async fn remove_old(context: &Context) -> Result<usize, ReconcileError> {
    let lifetime = context.settings.event_lifetime;
    let now = context.world.clock.since_epoch();
    let all = objects(&context.client, &resource(), "");
    let mut params = ListParams::default().limit(PAGE);
    let mut removed = 0;
    loop {
        let page = match all.list_metadata(&params).await {
            // Somebody compacted the history between two pages: the next round begins anew.
            Err(kube::Error::Api(status)) if api::is_expired(status.code) => return Ok(removed),
            page => page?,
        };
        for event in page.items {
            let created = event.metadata.creation_timestamp.as_ref().map(|time| seconds(time.0));
            if created.is_none_or(|created| !is_old(created, lifetime, now)) {
                continue;
            }
            let (Some(namespace), Some(name)) = (&event.metadata.namespace, &event.metadata.name) else {
                continue;
            };
            let events = objects(&context.client, &resource(), namespace);
            let Some(event) = events.get_opt(name).await? else { continue };
            if last_happened(&event, lifetime, now).is_some_and(|last| is_old(last, lifetime, now)) {
                match api::delete_as_seen(&events, &event.metadata, PropagationPolicy::Background).await {
                    Ok(_) => removed += 1,
                    // It happened again this very moment.
                    Err(why) if api::is_conflict(&why) => {}
                    Err(why) => return Err(why.into()),
                }
            }
            if removed >= MOST_PER_ROUND {
                return Ok(removed);
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(removed),
        }
    }
}

/// Seconds since the epoch at which the event was last heard of.
fn last_happened(event: &DynamicObject, lifetime: Duration, now: Duration) -> Option<i64> {
    let told = ["/lastTimestamp", "/firstTimestamp", "/eventTime", "/series/lastObservedTime"];
    let told = told.iter().filter_map(|path| event.data.pointer(path)?.as_str()?.parse().ok()).map(seconds);
    // Whoever writes events has a clock of their own; one that is far ahead must not make its events
    // last for ever.
    let latest = now.saturating_add(lifetime).as_secs() as i64;
    let created = event.metadata.creation_timestamp.as_ref().map(|time| seconds(time.0));
    told.filter(|told| *told <= latest).chain(created).max()
}

fn is_old(at: i64, lifetime: Duration, now: Duration) -> bool {
    at.saturating_add_unsigned(lifetime.as_secs()) < now.as_secs() as i64
}

fn seconds(time: Timestamp) -> i64 {
    time.as_second()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    /// 1970-01-02
    const NOW: Duration = Duration::from_secs(24 * 3600);

    fn event(object: serde_json::Value) -> DynamicObject {
        let mut whole = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "creationTimestamp": "1970-01-01T01:00:00Z"},
        });
        whole.as_object_mut().unwrap().extend(object.as_object().unwrap().clone());
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn an_event_that_keeps_happening_is_as_young_as_its_last_time() {
        let last = |object| last_happened(&event(object), HOUR, NOW);
        assert_eq!(last(json!({})), Some(3600));
        assert_eq!(
            last(json!({"lastTimestamp": "1970-01-01T02:00:00Z", "firstTimestamp": null})),
            Some(7200)
        );
        assert_eq!(last(json!({"series": {"lastObservedTime": "1970-01-01T03:00:00.5Z"}})), Some(10800));
        assert_eq!(last(json!({"eventTime": "no time"})), Some(3600));
    }

    #[test]
    fn a_clock_far_ahead_does_not_make_an_event_immortal() {
        let last = last_happened(&event(json!({"lastTimestamp": "2999-01-01T00:00:00Z"})), HOUR, NOW);
        assert!(is_old(last.unwrap(), HOUR, NOW));
    }

    #[test]
    fn an_event_lives_for_its_whole_lifetime() {
        let now = NOW.as_secs() as i64;
        assert!(!is_old(now - 3600, HOUR, NOW));
        assert!(is_old(now - 3601, HOUR, NOW));
    }
}
