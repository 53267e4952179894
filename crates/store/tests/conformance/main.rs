//! The store's contract as promises, each kept by every implementation.
//!
//! A promise is an async function of a [`Subject`]. It runs on the embedded store with a
//! file and threads, on the embedded store in memory on a paused single-threaded runtime,
//! and on a real etcd of its own.

// clippy.toml allows it inside test functions only, and these tests have helpers.
#![allow(clippy::unwrap_used)]

mod forgetting;
mod model;
mod reading;
mod subject;
mod watching;
mod writing;

use subject::Subject;

macro_rules! promises {
    ($($topic:ident::$promise:ident,)*) => {
        mod embedded_with_a_file {
            $(#[test] fn $promise() { crate::subject::with_a_file(crate::$topic::$promise) })*
        }
        mod embedded_in_memory {
            $(#[test] fn $promise() { crate::subject::in_memory(crate::$topic::$promise) })*
        }
        mod etcd {
            $(#[test] fn $promise() { crate::subject::in_etcd(crate::$topic::$promise) })*
        }
    };
}

promises! {
    writing::what_is_written_is_read_back_with_its_revisions,
    writing::two_writers_with_one_revision_one_wins,
    writing::of_many_who_expect_a_key_absent_one_creates_it,
    writing::a_refusal_names_the_key_and_what_was_found,
    writing::a_transaction_happens_wholly_or_not_at_all,
    writing::concurrent_transfers_keep_the_sum,
    writing::one_transaction_takes_one_revision,
    writing::deleting_an_absent_key_changes_nothing_and_takes_no_revision,
    writing::a_key_created_again_is_a_new_incarnation,
    writing::a_transaction_is_accepted_up_to_the_limit_and_refused_beyond,
    writing::what_no_store_could_carry_out_is_refused,
    reading::a_prefix_read_at_a_revision_shows_what_was_then,
    reading::a_prefix_ends_where_its_bytes_end,
    reading::pages_at_one_revision_are_consistent_while_writers_go_on,
    reading::a_read_of_the_future_is_refused,
    reading::a_page_of_now_is_exactly_the_state_at_its_revision,
    reading::a_range_larger_than_a_message_arrives_whole,
    reading::what_is_written_through_one_is_read_through_the_other_10000_times,
    watching::watches_miss_nothing_and_repeat_nothing_under_concurrent_writers,
    watching::a_watch_resumed_at_a_revision_misses_nothing,
    watching::a_watch_delivers_a_revision_whole,
    watching::a_watch_sees_only_its_prefix,
    watching::a_watch_from_the_future_delivers_nothing_before_it,
    watching::a_watch_from_the_past_replays_history,
    watching::a_watch_of_everything_reaches_every_revision,
    watching::a_watch_from_the_oldest_revision_reaches_the_newest,
    forgetting::reads_and_watches_before_compaction_say_so_with_the_oldest,
    forgetting::what_stood_at_the_compacted_revision_stays_readable,
    forgetting::changes_after_the_compacted_revision_stay_watchable,
    forgetting::the_future_cannot_be_forgotten,
    forgetting::forgetting_again_is_allowed,
    forgetting::a_compaction_under_way_never_makes_a_watch_miss_a_change,
    forgetting::a_deletion_at_the_compacted_revision_is_still_told,
}
