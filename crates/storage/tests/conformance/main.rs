//! The contract of every backend ([`sheaf_storage::backend`]), promise by promise, on every implementation.
//!
//! A new backend adds a line to `on_every_backend!` and a way to start it to `subject`.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod guest;
mod merging;
mod snapshots;
mod subject;
mod volumes;

/// Each promise as a test on each backend.
macro_rules! on_every_backend {
    ($($module:ident: $($promise:ident),* $(,)?;)*) => {
        mod local {
            $($(#[tokio::test]
            async fn $promise() {
                crate::$module::$promise(crate::subject::Subject::local().await).await;
            })*)*
        }

        mod memory {
            $($(#[tokio::test]
            async fn $promise() {
                crate::$module::$promise(crate::subject::Subject::memory().await).await;
            })*)*
        }
    };
}

on_every_backend! {
    volumes:
        an_empty_volume_has_its_size_and_reads_as_zeros,
        a_volume_of_an_image_begins_as_the_image_and_never_changes_it,
        what_was_written_is_there_when_it_is_opened_again,
        creating_again_changes_nothing_but_a_size_that_was_smaller,
        a_volume_grows_and_never_shrinks,
        a_size_that_makes_no_sense_is_refused_and_leaves_nothing,
        a_volume_in_use_is_neither_grown_nor_deleted,
        a_volume_may_be_opened_for_reading_only,
        a_deleted_volume_is_gone_and_deleting_it_again_is_fine,
        what_is_not_there_is_said_not_to_be,
        space_is_told;
    snapshots:
        a_snapshot_never_changes,
        a_snapshot_of_a_volume_in_use_is_what_it_was_at_that_instant,
        snapshots_of_one_volume_are_each_their_own_instant,
        a_volume_of_a_snapshot_begins_as_it_was_and_is_its_own,
        source_and_copies_go_in_any_order,
        taking_it_twice_takes_it_once,
        one_that_is_begun_again_is_of_a_later_instant,
        one_that_is_finished_late_is_of_the_instant_it_was_switched_at,
        one_that_was_not_begun_cannot_be_finished,
        one_that_was_begun_and_never_finished_costs_nothing,
        a_snapshot_of_another_volume_is_not_taken_for_this_ones,
        a_copy_that_could_not_hold_it_is_refused_and_a_larger_one_is_zeros_above,
        a_volume_that_grew_has_larger_snapshots_from_then_on,
        deleting_any_snapshot_of_many_leaves_the_others_as_they_were;
    merging:
        layers_that_nobody_needs_apart_become_one_while_the_volume_is_in_use,
        a_volume_that_is_snapshotted_again_and_again_keeps_few_layers,
        what_something_else_needs_is_not_merged;
}
