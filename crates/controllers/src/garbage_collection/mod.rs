//! Removes objects whose owners are gone, and lets owners go before, after or without what they own.
//!
//! ```text
//!   monitors (one per resource) --metadata--> graph (who belongs to whom)
//!                                               | whom to look at
//!                                               v
//!                       collector: look at the object and its owners in the API,
//!                                  ask planner::garbage, act
//! ```
//!
//! The graph says where to look and is never trusted about what to do: object and owners are read again, and
//! every write names the uid and version that was read. All memory is made anew at a start. Until every
//! resource has been listed once nobody is looked at, since an owner whose dependents are not known yet would
//! be let go too early.

mod absent;
mod collector;
mod graph;
mod monitors;

use std::time::Duration;

use tokio::time::Instant;

use self::{collector::Collector, monitors::Monitors};
use sheaf_client::{
    reconciling::{settle, within_deadline},
    served::Discovery,
    watching::{Notice, Noticed},
    work_queue::WorkQueue,
};

use crate::Context;

pub const NAME: &str = "garbage-collection";
/// Which resources there are is asked this often, and whenever a definition changes.
const DISCOVER_EVERY: Duration = Duration::from_secs(60);
const DISCOVER_AGAIN: Duration = Duration::from_secs(1);
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

pub(crate) async fn run(context: Context) {
    let (mut monitors, mut notices) = Monitors::new(context.client.clone());
    let mut collector = Collector::new(context.clone());
    let mut queue = WorkQueue::new();
    let mut discovery = Discovery::default();
    let mut discover_at = Instant::now();
    loop {
        tokio::select! {
            biased;
            Some(notice) = notices.recv() => {
                if take_note(&mut monitors, &mut collector, &mut queue, notice) {
                    discover_at = Instant::now();
                }
            }
            () = tokio::time::sleep_until(discover_at) => match discovery.ask(&context.client).await {
                Ok(served) => {
                    let (given_up, again) = monitors.update(&served);
                    collector.served = served;
                    for resource in given_up {
                        let woken = collector.forget_resource(&resource);
                        woken.into_iter().for_each(|uid| queue.wake(uid));
                    }
                    let next = Instant::now() + DISCOVER_EVERY;
                    discover_at = again.map_or(next, |again| again.min(next));
                }
                Err(why) => {
                    tracing::warn!(%why, "cannot ask which resources there are; trying again");
                    discover_at = Instant::now() + DISCOVER_AGAIN;
                }
            },
            uid = queue.next(), if monitors.synced() => {
                let outcome = within_deadline(collector.look(&uid)).await;
                settle(NAME, &mut queue, uid, outcome);
            }
        }
    }
}

/// Whether which resources there are may have changed.
fn take_note(
    monitors: &mut Monitors,
    collector: &mut Collector,
    queue: &mut WorkQueue<graph::Uid>,
    notice: Notice,
) -> bool {
    let Some(monitor) = monitors.get_mut(notice.watch) else { return false };
    let mut woken = Vec::new();
    let mut changed = false;
    match notice.noticed {
        Noticed::Began => monitor.round += 1,
        Noticed::Seen(metadata) => {
            woken = collector.graph.see(&monitor.resource, &metadata, monitor.round);
            changed = true;
        }
        Noticed::Gone(metadata) => {
            woken = collector.gone(metadata.uid.as_deref().unwrap_or_default());
            changed = true;
        }
        Noticed::Listed => {
            monitor.listed();
            for uid in collector.graph.unseen_since(&monitor.resource, monitor.round) {
                woken.extend(collector.gone(&uid));
            }
            // Owners that are not remembered may have gone unnoticed, or become known only now.
            woken.extend(collector.graph.dependents_of_kind(monitor.kind()));
        }
        Noticed::Failed => monitor.failed(),
    }
    let definitions = (monitor.resource.0.as_str(), monitor.resource.1.as_str()) == DEFINITIONS;
    woken.into_iter().for_each(|uid| queue.wake(uid));
    changed && definitions
}
