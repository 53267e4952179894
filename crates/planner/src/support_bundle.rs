//! Decides the next step for one support bundle, cluster-wide: which node makes it, when that has taken too long, and when
//! nobody came to fetch it.
//!
//! ```text
//!   "" --Begin--> generating --(its node)--> ready --Delete, `expiration` later-->
//!    |                |
//!    +---- Fail ------+   later than `timeout`
//! ```
//!
//! - Time runs from when the bundle was made: one that finds no node ends as well.
//! - One that failed stays, so that somebody can read why.

use std::borrow::Borrow;

use crate::placement;
use k8s_openapi::{api::core::v1::Node, jiff::Timestamp};
use sheaf_resources::kinds::{
    harvester_condition::set_condition,
    support_bundle::{ERROR, GENERATING, INITIALIZED, READY, SupportBundle, SupportBundleStatus},
};

/// What holds cluster-wide, where there is such a setting.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    pub timeout: Option<&'a str>,
    pub expiration: Option<&'a str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    /// Look again after so many seconds.
    Wait {
        secs: i64,
    },
    WriteStatus(Box<SupportBundleStatus>),
    /// It was kept long enough.
    Delete,
}

/// How often it is looked for a node.
const NODE_LOOK_SECS: i64 = 5;

/// `now` in seconds since the epoch, and as text.
pub fn next_step(
    bundle: &SupportBundle,
    nodes: &[impl Borrow<Node>],
    settings: Settings<'_>,
    now: (i64, &str),
) -> Step {
    let status = &bundle.status;
    let left_secs = secs_left(bundle, settings, now.0);
    match (status.state.as_str(), left_secs) {
        ("" | GENERATING, Some(..=0)) => {
            Step::WriteStatus(Box::new(failed(status, &too_long(status), now.1)))
        }
        ("", left) => match placement::any_node(nodes) {
            Some(node) => {
                let mut status = status.clone();
                status.state = GENERATING.into();
                status.node_name = node.to_owned();
                set_condition(&mut status.conditions, INITIALIZED, "Unknown", ("Generating", ""), now.1);
                Step::WriteStatus(Box::new(status))
            }
            None => Step::Wait { secs: left.unwrap_or(NODE_LOOK_SECS).min(NODE_LOOK_SECS) },
        },
        (GENERATING, Some(secs)) => Step::Wait { secs },
        (GENERATING, None) => Step::Rest,
        (READY, _) => {
            let kept_secs = bundle.expiration_minutes(settings.expiration).saturating_mul(60);
            match ready_since(status).unwrap_or(now.0).saturating_add(kept_secs) - now.0 {
                ..=0 => Step::Delete,
                secs => Step::Wait { secs },
            }
        }
        // It failed, or somebody newer than us has more to say.
        (_, _) => Step::Rest,
    }
}

/// A bundle that never will be.
pub fn failed(status: &SupportBundleStatus, why: &str, now: &str) -> SupportBundleStatus {
    let mut status = status.clone();
    status.state = ERROR.into();
    set_condition(&mut status.conditions, INITIALIZED, "False", ("Failed", why), now);
    status
}

/// A bundle that can be fetched.
pub fn ready(status: &SupportBundleStatus, (name, bytes): (&str, i64), now: &str) -> SupportBundleStatus {
    let mut status = status.clone();
    status.state = READY.into();
    status.progress = 100;
    status.filename = name.into();
    status.filesize = bytes;
    set_condition(&mut status.conditions, INITIALIZED, "True", ("Ready", ""), now);
    status
}

fn too_long(status: &SupportBundleStatus) -> String {
    match status.node_name.as_str() {
        "" => "fail to generate supportbundle: timeout: no node is ready to make it".into(),
        node => format!("fail to generate supportbundle: timeout: node {node} did not finish it in time"),
    }
}

/// None where it may take as long as it takes.
fn secs_left(bundle: &SupportBundle, settings: Settings<'_>, now: i64) -> Option<i64> {
    let minutes = bundle.timeout_minutes(settings.timeout)?;
    let made = bundle.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0.as_second());
    Some(made.saturating_add(minutes.saturating_mul(60)) - now)
}

fn ready_since(status: &SupportBundleStatus) -> Option<i64> {
    let condition = status.conditions.iter().find(|one| one.condition_type == INITIALIZED)?;
    condition.last_transition_time.parse::<Timestamp>().ok().map(|at| at.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MADE: &str = "2026-01-02T03:00:00Z";

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_second()
    }

    fn bundle(spec: Value, status: Value) -> SupportBundle {
        let metadata = json!({"name": "b", "creationTimestamp": MADE});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn node(ready: &str) -> Node {
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"name": "n1"}, "status": status})).unwrap()
    }

    fn step(bundle: &SupportBundle, nodes: &[Node], now: &str) -> Step {
        next_step(bundle, nodes, Settings::default(), (at(now), now))
    }

    #[test]
    fn a_new_bundle_goes_to_a_node_that_is_ready_and_waits_where_there_is_none() {
        let new = bundle(json!({}), json!({}));
        let Step::WriteStatus(status) = step(&new, &[node("True")], MADE) else { panic!() };
        assert_eq!((status.state.as_str(), status.node_name.as_str()), (GENERATING, "n1"));
        assert_eq!(step(&new, &[node("False")], MADE), Step::Wait { secs: 5 });
    }

    #[test]
    fn one_that_takes_too_long_fails_and_says_so_wherever_it_is() {
        for status in [json!({}), json!({"state": GENERATING, "nodeName": "n1"})] {
            let late = bundle(json!({"timeout": 2}), status.clone());
            let Step::WriteStatus(status) = step(&late, &[node("False")], "2026-01-02T03:02:00Z") else {
                panic!("{status}")
            };
            assert_eq!(status.state, ERROR);
            assert_eq!(status.conditions[0].status, "False");
            assert!(status.conditions[0].message.contains("timeout"), "{:?}", status.conditions);
        }
        let slow = bundle(json!({"timeout": 2}), json!({"state": GENERATING}));
        assert_eq!(step(&slow, &[node("True")], "2026-01-02T03:01:30Z"), Step::Wait { secs: 30 });
        let patient = bundle(json!({"timeout": 0}), json!({"state": GENERATING}));
        assert_eq!(step(&patient, &[node("True")], "2027-01-02T03:01:30Z"), Step::Rest);
    }

    #[test]
    fn one_that_is_ready_is_kept_for_a_while_and_one_that_failed_until_somebody_has_read_why() {
        let begun = bundle(json!({"expiration": 3}), json!({"state": GENERATING, "nodeName": "n1"}));
        let status = ready(&begun.status, ("a.zip", 7), "2026-01-02T03:10:00Z");
        let done = SupportBundle { status, ..begun.clone() };
        assert_eq!((done.status.filesize, done.status.progress), (7, 100));
        assert_eq!(step(&done, &[node("True")], "2026-01-02T03:12:00Z"), Step::Wait { secs: 60 });
        assert_eq!(step(&done, &[node("True")], "2026-01-02T03:13:00Z"), Step::Delete);
        let broken = SupportBundle { status: failed(&begun.status, "why", MADE), ..begun };
        assert_eq!(step(&broken, &[node("True")], "2027-01-02T03:13:00Z"), Step::Rest);
    }

    #[test]
    fn settings_hold_where_a_bundle_says_nothing() {
        let slow = bundle(json!({}), json!({"state": GENERATING}));
        let settings = Settings { timeout: Some("1"), ..Settings::default() };
        let now = "2026-01-02T03:01:00Z";
        assert!(matches!(
            next_step(&slow, &[node("True")], settings, (at(now), now)),
            Step::WriteStatus(status) if status.state == ERROR
        ));
    }
}
