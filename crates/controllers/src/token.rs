//! Removes API tokens that ended long ago: every login leaves one.
//!
//! Runs by the clock alone, a bounded number at a time. Nothing is remembered between rounds. A token whose
//! end cannot be read lets nobody in, but stays for people to look at: nobody knows since when it is over.

use std::time::Duration;

use kube::{
    api::{DynamicObject, ListParams, PropagationPolicy},
    core::ApiResource,
};
use sheaf_client::{
    api::{self, built_in, objects},
    reconciling::ReconcileError,
};
use sheaf_resources::kinds::token::{self, End};

use crate::{
    Context,
    rounds::{self, MOST_PER_ROUND, PAGE},
};

pub const NAME: &str = "token";
const ROUND: Duration = Duration::from_secs(5 * 60);
/// Kept this long after its end, so that whoever wonders why it stopped can still see it.
const KEPT: Duration = Duration::from_secs(3600);

fn resource() -> ApiResource {
    built_in("management.cattle.io", "v3", "Token", "tokens")
}

pub(crate) async fn run(context: Context) {
    rounds::run("ended tokens", ROUND, || remove_ended(&context)).await;
}

/// One round; answers how many were removed.
async fn remove_ended(context: &Context) -> Result<usize, ReconcileError> {
    let now = context.world.clock.since_epoch();
    let tokens = objects(&context.client, &resource(), "");
    let mut params = ListParams::default().limit(PAGE);
    let mut removed = 0;
    loop {
        let page = match tokens.list(&params).await {
            // Somebody compacted the history between two pages: the next round begins anew.
            Err(kube::Error::Api(status)) if api::is_expired(status.code) => return Ok(removed),
            page => page?,
        };
        for token in page.items {
            if token.metadata.deletion_timestamp.is_some() || !ended_long_ago(&token, now)? {
                continue;
            }
            match api::delete_as_seen(&tokens, &token.metadata, PropagationPolicy::Background).await {
                Ok(_) => removed += 1,
                // Somebody gave it more time this very moment.
                Err(why) if api::is_conflict(&why) => {}
                Err(why) => return Err(why.into()),
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

fn ended_long_ago(token: &DynamicObject, now: Duration) -> Result<bool, serde_json::Error> {
    Ok(match token::end(&serde_json::to_value(token)?) {
        End::AtMillis(end) => i128::from(end) + (KEPT.as_millis() as i128) < now.as_millis() as i128,
        End::Never | End::Unreadable => false,
    })
}
