//! Decides how a namespace goes: its content first, then the finalizer in its spec, then
//! itself.
//!
//! ```text
//!            MarkTerminating        DeleteContent             Finalize
//!   Active ------------------> Terminating ---------> empty ----------> gone, by the
//!                                 ^     |                               API server, once
//!                                 |     | something is left             no finalizer is
//!                                 +-----+ Wait                          left at all
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - A namespace is finalized only when everything could be looked at and nothing was
//!   found. What could not be discovered may hold content.
//! - The finalizer in `spec` is ours; those in `metadata` are anybody's, and not waited for
//!   here.
//! - Five conditions in the status say how it stands, in the words of the original,
//!   because people who wait for a namespace to go read nothing else.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

/// The finalizer in `spec.finalizers` that stands for the content.
pub const FINALIZER: &str = "kubernetes";

/// Finalizers take as long as whoever set them; no use to look every moment.
const RETRY_FINALIZERS: Duration = Duration::from_secs(8);
const RETRY_SOON: Duration = Duration::from_secs(1);

/// The namespace itself.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub being_deleted: bool,
    /// `status.phase`.
    pub phase: String,
    /// `spec.finalizers`.
    pub finalizers: Vec<String>,
}

/// What was found after the last attempt to delete everything in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Group versions whose resources could not be listed, with the reason.
    pub undiscovered: BTreeMap<String, String>,
    /// Group versions that could not be made sense of.
    pub unparsable: Vec<String>,
    /// What went wrong while deleting, one entry per resource.
    pub failures: Vec<String>,
    /// How many objects are left, by resource and group.
    pub remaining: BTreeMap<(String, String), u64>,
    /// How many of them each finalizer holds.
    pub finalizers: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Nothing,
    /// Write `status.phase: Terminating`.
    MarkTerminating,
    /// Delete every object of every namespaced resource, then look what is left.
    DeleteContent,
    /// Write the conditions, and come back.
    Wait {
        retry_after: Duration,
    },
    /// Write the conditions, and `spec.finalizers` through the finalize subresource.
    Finalize {
        finalizers: Vec<String>,
    },
}

/// What to do next; `content` is `None` before the first attempt of this round.
pub fn next_step(seen: &Seen, content: Option<&Content>) -> Step {
    if !seen.being_deleted {
        return Step::Nothing;
    }
    if seen.phase != "Terminating" {
        return Step::MarkTerminating;
    }
    if !seen.finalizers.iter().any(|name| name == FINALIZER) {
        return Step::Nothing;
    }
    match content {
        None => Step::DeleteContent,
        Some(content) if content.is_gone() => Step::Finalize {
            finalizers: seen.finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect(),
        },
        Some(content) if content.finalizers.values().any(|count| *count > 0) => {
            Step::Wait { retry_after: RETRY_FINALIZERS }
        }
        Some(_) => Step::Wait { retry_after: RETRY_SOON },
    }
}

impl Content {
    /// Everything could be looked at, and nothing was there.
    pub fn is_gone(&self) -> bool {
        self.undiscovered.is_empty()
            && self.unparsable.is_empty()
            && self.failures.is_empty()
            && self.remaining.values().all(|count| *count == 0)
    }
}

/// One of the five conditions, without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub kind: &'static str,
    pub status: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The five conditions, in the order in which they are written.
pub fn conditions(content: &Content) -> [Condition; 5] {
    [
        condition(
            "NamespaceDeletionDiscoveryFailure",
            ("ResourcesDiscovered", "All resources successfully discovered"),
            "DiscoveryFailed",
            undiscovered(content),
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            "GroupVersionParsingFailed",
            content.unparsable.first().cloned(),
        ),
        condition(
            "NamespaceDeletionContentFailure",
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            "ContentDeletionFailed",
            failures(content),
        ),
        condition(
            "NamespaceContentRemaining",
            ("ContentRemoved", "All content successfully removed"),
            "SomeResourcesRemain",
            remaining(content),
        ),
        condition(
            "NamespaceFinalizersRemaining",
            ("ContentRemoved", "All content successfully removed"),
            "SomeFinalizerRemain",
            finalizers(content),
        ),
    ]
}

/// The namespace's `status.conditions` as they should be, or `None` when they are so
/// already. A time moves only when a status does. Conditions of others are kept.
pub fn updated_conditions(existing: &[Value], content: &Content, now: &str) -> Option<Vec<Value>> {
    let mut updated = existing.to_vec();
    for wanted in conditions(content) {
        let status = if wanted.status { "True" } else { "False" };
        let mut fresh = json!({
            "type": wanted.kind, "status": status, "reason": wanted.reason, "message": wanted.message,
            "lastTransitionTime": now,
        });
        match updated.iter_mut().find(|old| old["type"] == wanted.kind) {
            None => updated.push(fresh),
            Some(old) => {
                if old["status"] == status && old["lastTransitionTime"].is_string() {
                    fresh["lastTransitionTime"] = old["lastTransitionTime"].clone();
                }
                *old = fresh;
            }
        }
    }
    (updated != existing).then_some(updated)
}

fn condition(
    kind: &'static str,
    (fine_reason, fine_message): (&'static str, &str),
    bad_reason: &'static str,
    bad_message: Option<String>,
) -> Condition {
    match bad_message {
        Some(message) => Condition { kind, status: true, reason: bad_reason, message },
        None => Condition { kind, status: false, reason: fine_reason, message: fine_message.to_owned() },
    }
}

fn undiscovered(content: &Content) -> Option<String> {
    let groups = &content.undiscovered;
    let reasons: Vec<String> = groups.iter().map(|(group, why)| format!("{group}: {why}")).collect();
    (!groups.is_empty()).then(|| {
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            groups.len(),
            reasons.join(", ")
        )
    })
}

fn failures(content: &Content) -> Option<String> {
    let mut failures = content.failures.clone();
    failures.sort();
    (!failures.is_empty()).then(|| {
        format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", "))
    })
}

/// The core group is the empty one, so its resources end in a dot: `pods. has 1 ...`.
fn remaining(content: &Content) -> Option<String> {
    let mut lines: Vec<String> = content
        .remaining
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|((resource, group), count)| format!("{resource}.{group} has {count} resource instances"))
        .collect();
    lines.sort();
    (!lines.is_empty()).then(|| format!("Some resources are remaining: {}", lines.join(", ")))
}

fn finalizers(content: &Content) -> Option<String> {
    let mut lines: Vec<String> = content
        .finalizers
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    lines.sort();
    (!lines.is_empty()).then(|| format!("Some finalizers are remaining: {}", lines.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminating() -> Seen {
        Seen { being_deleted: true, phase: "Terminating".into(), finalizers: vec![FINALIZER.into()] }
    }

    fn with_secrets(count: u64) -> Content {
        Content { remaining: [(("secrets".into(), String::new()), count)].into(), ..Content::default() }
    }

    #[test]
    fn a_namespace_nobody_deleted_is_left_alone() {
        let seen = Seen { being_deleted: false, ..terminating() };
        assert_eq!(next_step(&seen, None), Step::Nothing);
        assert_eq!(next_step(&seen, Some(&Content::default())), Step::Nothing);
    }

    #[test]
    fn it_says_terminating_before_anything_is_deleted() {
        let seen = Seen { phase: "Active".into(), ..terminating() };
        assert_eq!(next_step(&seen, None), Step::MarkTerminating);
    }

    #[test]
    fn content_is_deleted_before_the_namespace() {
        assert_eq!(next_step(&terminating(), None), Step::DeleteContent);
        assert_eq!(next_step(&terminating(), Some(&with_secrets(1))), Step::Wait { retry_after: RETRY_SOON });
    }

    #[test]
    fn an_empty_namespace_loses_our_finalizer_and_keeps_others() {
        let mut seen = terminating();
        seen.finalizers.push("example.com/mine".into());
        for empty in [Content::default(), with_secrets(0)] {
            assert_eq!(
                next_step(&seen, Some(&empty)),
                Step::Finalize { finalizers: vec!["example.com/mine".into()] }
            );
        }
    }

    #[test]
    fn without_our_finalizer_there_is_nothing_for_us_to_do() {
        let seen = Seen { finalizers: vec!["example.com/mine".into()], ..terminating() };
        assert_eq!(next_step(&seen, None), Step::Nothing);
    }

    #[test]
    fn what_could_not_be_looked_at_keeps_the_namespace() {
        for content in [
            Content { undiscovered: [("a/v1".into(), "down".into())].into(), ..Content::default() },
            Content { unparsable: vec!["a/b/c".into()], ..Content::default() },
            Content { failures: vec!["refused".into()], ..Content::default() },
        ] {
            assert!(!content.is_gone());
            assert_eq!(next_step(&terminating(), Some(&content)), Step::Wait { retry_after: RETRY_SOON });
        }
    }

    #[test]
    fn finalizers_are_waited_for_with_patience() {
        let content = Content { finalizers: [("f".into(), 1)].into(), ..with_secrets(1) };
        assert_eq!(next_step(&terminating(), Some(&content)), Step::Wait { retry_after: RETRY_FINALIZERS });
    }

    #[test]
    fn every_condition_speaks_when_all_is_well() {
        let shown =
            conditions(&Content::default()).map(|one| (one.kind, one.status, one.reason, one.message));
        let wanted = [
            (
                "NamespaceDeletionDiscoveryFailure",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            (
                "NamespaceDeletionContentFailure",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
            ("NamespaceFinalizersRemaining", "ContentRemoved", "All content successfully removed"),
        ];
        assert_eq!(shown, wanted.map(|(kind, reason, message)| (kind, false, reason, message.to_owned())));
    }

    #[test]
    fn every_condition_says_what_is_wrong() {
        let content = Content {
            undiscovered: [("b/v1".into(), "slow".into()), ("a/v1".into(), "down".into())].into(),
            unparsable: vec!["unexpected GroupVersion string: a/b/c".into()],
            failures: vec!["z".into(), "a".into()],
            remaining: [
                (("widgets".into(), "example.com".into()), 2),
                (("pods".into(), String::new()), 1),
                (("secrets".into(), String::new()), 0),
            ]
            .into(),
            finalizers: [("x/f".into(), 2), ("a/f".into(), 1), ("none".into(), 0)].into(),
        };
        let shown = conditions(&content).map(|one| (one.status, one.reason, one.message));
        let wanted = [
            (
                "DiscoveryFailed",
                "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server \
                 APIs: a/v1: down, b/v1: slow",
            ),
            ("GroupVersionParsingFailed", "unexpected GroupVersion string: a/b/c"),
            ("ContentDeletionFailed", "Failed to delete all resource types, 2 remaining: a, z"),
            (
                "SomeResourcesRemain",
                "Some resources are remaining: pods. has 1 resource instances, widgets.example.com has 2 \
                 resource instances",
            ),
            (
                "SomeFinalizerRemain",
                "Some finalizers are remaining: a/f in 1 resource instances, x/f in 2 resource instances",
            ),
        ];
        assert_eq!(shown, wanted.map(|(reason, message)| (true, reason, message.to_owned())));
    }

    #[test]
    fn conditions_at_rest_are_not_written_again() {
        let first = updated_conditions(&[], &with_secrets(1), "t1").unwrap();
        assert_eq!(first.len(), 5);
        assert_eq!(updated_conditions(&first, &with_secrets(1), "t2"), None);
    }

    #[test]
    fn a_time_moves_only_with_its_status() {
        let first = updated_conditions(&[], &with_secrets(2), "t1").unwrap();
        let fewer = updated_conditions(&first, &with_secrets(1), "t2").unwrap();
        assert_eq!(fewer[3]["lastTransitionTime"], "t1");
        assert!(fewer[3]["message"].as_str().unwrap().contains("has 1"));
        let gone = updated_conditions(&fewer, &with_secrets(0), "t3").unwrap();
        assert_eq!(gone[3]["lastTransitionTime"], "t3");
        assert_eq!(gone[3]["status"], "False");
        assert_eq!(gone[0]["lastTransitionTime"], "t1");
    }

    #[test]
    fn conditions_of_others_are_kept() {
        let theirs = json!({"type": "Mine", "status": "True"});
        let updated = updated_conditions(std::slice::from_ref(&theirs), &Content::default(), "t1").unwrap();
        assert_eq!(updated[0], theirs);
        assert_eq!(updated.len(), 6);
    }
}
