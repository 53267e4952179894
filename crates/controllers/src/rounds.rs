//! For controllers that remove what is over: rounds by the clock, a bounded number of removals in each.

use std::time::Duration;

use sheaf_client::reconciling::ReconcileError;

/// When a round could not remove all there was to remove, the next comes after this.
const NEXT_ROUND_SOON: Duration = Duration::from_secs(1);
/// Removed in one round at most, so that a flood of objects does not become a flood of deletes.
pub const MOST_PER_ROUND: usize = 500;
/// Objects looked at at a time.
pub const PAGE: u32 = 500;

/// Runs `round`, which answers how many it removed, again and again. `what` is for the log.
pub async fn run<R>(what: &'static str, every: Duration, round: impl Fn() -> R)
where
    R: Future<Output = Result<usize, ReconcileError>>,
{
    loop {
        let wait = match round().await {
            Ok(removed) if removed >= MOST_PER_ROUND => NEXT_ROUND_SOON,
            Ok(_) => every,
            Err(why) => {
                let cause = std::error::Error::source(&why).map(ToString::to_string);
                tracing::warn!(%why, cause, "{what} are not removed; trying again");
                every
            }
        };
        tokio::time::sleep(wait).await;
    }
}
