//! The status of an instance on its way to a node, from what was found when looking for one.
//!
//! ```text
//!   (none) --> Pending: claims, networks, addresses --> Scheduling: no node suits --> Scheduled, on a node
//! ```
//!
//! - A phase that is passed through at once is noted all the same, and none ever goes back.
//! - At rest it is a fixed point: times move with what they are the times of.
//! - From `Scheduled` on the status is the node's.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sheaf_resources::kinds::virtual_machine_instance::status::{
    Condition, Phase, PhaseTransition, VirtualMachineInstanceStatus,
};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A claim it names does not exist: namespace and name.
    MissingClaim(String),
    /// A network it names does not exist: namespace and name.
    MissingNetwork(String),
    /// A claim waits for its volume, or an interface for its address: which, and where to read more.
    NotReady(String),
    /// No node suits, and why.
    Unschedulable(String),
    Node(String),
}

/// Type, reason and message of a condition.
type Words = (&'static str, &'static str, String);

const SYNCHRONIZED: &str = "Synchronized";
const POD_SCHEDULED: &str = "PodScheduled";
/// The conditions that tell what is in the way, and are gone with it.
const OBSTACLES: [&str; 2] = [SYNCHRONIZED, POD_SCHEDULED];

impl Finding {
    fn phase(&self) -> Phase {
        match self {
            Finding::MissingClaim(_) | Finding::MissingNetwork(_) | Finding::NotReady(_) => Phase::Pending,
            Finding::Unschedulable(_) => Phase::Scheduling,
            Finding::Node(_) => Phase::Scheduled,
        }
    }

    fn obstacle(&self) -> Option<Words> {
        match self {
            Finding::MissingClaim(name) => {
                let message = format!("PVC {name} does not exist, waiting for it to appear");
                Some((SYNCHRONIZED, "FailedPvcNotFound", message))
            }
            Finding::MissingNetwork(name) => {
                let message = format!("failed to locate network attachment definition {name}");
                Some((SYNCHRONIZED, "FailedCreate", message))
            }
            Finding::Unschedulable(why) => Some((POD_SCHEDULED, "Unschedulable", why.clone())),
            Finding::NotReady(why) => Some((SYNCHRONIZED, "NotReady", why.clone())),
            Finding::Node(_) => None,
        }
    }

    /// What is told about it: type, reason, message.
    pub fn event(&self) -> Option<(&'static str, &'static str, String)> {
        let (_, reason, message) = self.obstacle()?;
        Some(match self {
            // Every machine waits a moment for these.
            Finding::NotReady(_) => return None,
            Finding::MissingClaim(_) => ("Normal", reason, message),
            Finding::Unschedulable(_) => ("Warning", "FailedScheduling", message),
            _ => ("Warning", reason, message),
        })
    }
}

pub fn status_of(
    before: &VirtualMachineInstanceStatus,
    finding: &Finding,
    now: Option<Time>,
) -> VirtualMachineInstanceStatus {
    let mut status = before.clone();
    advance(&mut status, finding.phase(), &now);
    if let Finding::Node(name) = finding {
        status.node_name.clone_from(name);
    }
    let obstacle = finding.obstacle();
    let still = |condition: &Condition| {
        let named = obstacle.as_ref().is_some_and(|(sort, _, _)| *sort == condition.condition_type);
        named || !OBSTACLES.contains(&condition.condition_type.as_str())
    };
    status.conditions.retain(still);
    if status.condition("Ready").is_none() {
        let words = ("PodNotExists", "virt-launcher pod has not yet been scheduled");
        set(&mut status.conditions, "Ready", words, &now);
    }
    if let Some((sort, reason, message)) = &obstacle {
        set(&mut status.conditions, sort, (reason, message), &now);
    }
    status
}

/// The status of an instance that was told to go before it had a node.
pub fn never_started(
    before: &VirtualMachineInstanceStatus,
    now: Option<Time>,
) -> VirtualMachineInstanceStatus {
    let mut status = before.clone();
    status.phase = super::NEVER_STARTED;
    let passed = PhaseTransition { phase: status.phase, phase_transition_timestamp: now };
    status.phase_transition_timestamps.push(passed);
    status
}

/// Through all phases up to this one.
fn advance(status: &mut VirtualMachineInstanceStatus, to: Phase, now: &Option<Time>) {
    for phase in [Phase::Pending, Phase::Scheduling, Phase::Scheduled] {
        if status.phase < phase && phase <= to {
            status.phase = phase;
            let passed = PhaseTransition { phase, phase_transition_timestamp: now.clone() };
            status.phase_transition_timestamps.push(passed);
        }
    }
}

fn set(conditions: &mut Vec<Condition>, sort: &str, (reason, message): (&str, &str), now: &Option<Time>) {
    let fresh = Condition {
        condition_type: sort.into(),
        status: "False".into(),
        last_probe_time: now.clone(),
        last_transition_time: now.clone(),
        reason: reason.into(),
        message: message.into(),
    };
    match conditions.iter_mut().find(|old| old.condition_type == sort) {
        None => conditions.push(fresh),
        Some(old) if old.reason == reason && old.message == message => {}
        Some(old) => {
            let since = old.last_transition_time.clone();
            *old = Condition { last_transition_time: since, ..fresh };
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Option<Time> {
        Timestamp::from_second(second).ok().map(Time)
    }

    #[test]
    fn an_instance_that_finds_a_node_at_once_has_been_through_every_phase() {
        let status = status_of(&Default::default(), &Finding::Node("n1".into()), at(5));
        let passed: Vec<Phase> =
            status.phase_transition_timestamps.iter().map(|passed| passed.phase).collect();
        assert_eq!(passed, [Phase::Pending, Phase::Scheduling, Phase::Scheduled]);
        assert_eq!((status.phase, status.node_name.as_str()), (Phase::Scheduled, "n1"));
        assert_eq!(status.condition("Ready").unwrap().reason, "PodNotExists");
    }

    #[test]
    fn what_is_in_the_way_is_said_and_gone_with_it() {
        let missing = Finding::MissingClaim("default/disk".into());
        let waiting = status_of(&Default::default(), &missing, at(5));
        assert_eq!(status_of(&waiting, &missing, at(9)), waiting, "at rest nothing changes");
        let condition = waiting.condition("Synchronized").unwrap();
        assert_eq!((condition.reason.as_str(), condition.status.as_str()), ("FailedPvcNotFound", "False"));
        let full = Finding::Unschedulable("0/1 nodes are available: 1 Insufficient cpu.".into());
        let unplaced = status_of(&waiting, &full, at(6));
        assert!(unplaced.condition("Synchronized").is_none());
        assert_eq!(unplaced.condition("PodScheduled").unwrap().reason, "Unschedulable");
        assert_eq!(unplaced.phase, Phase::Scheduling);
        assert_eq!(full.event().unwrap().1, "FailedScheduling");
        let placed = status_of(&unplaced, &Finding::Node("n1".into()), at(7));
        assert!(placed.condition("PodScheduled").is_none());
        assert_eq!(placed.phase_transition_timestamps.len(), 3);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let unplaced = status_of(&Default::default(), &Finding::Unschedulable("full".into()), at(5));
        assert_eq!(
            status_of(&unplaced, &Finding::NotReady("waiting".into()), at(6)).phase,
            Phase::Scheduling
        );
    }
}
