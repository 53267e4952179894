//! Conditions as Harvester's kinds have them: like KubeVirt's, with other times.

use crate::wire::wire_type;

wire_type! {
    /// One thing that is so, is not so, or is not known.
    HarvesterCondition = "io.harvesterhci.v1beta1.Condition" {
        /// What it is about.
        #[serde(rename = "type")]
        condition_type: String,
        /// True, False or Unknown.
        status: String,
        /// When anything of it last changed.
        last_update_time: String,
        /// When the status last changed.
        last_transition_time: String,
        /// In one word why.
        reason: String,
        /// In a sentence why.
        message: String,
    }
}

/// Puts a condition where it belongs. Times move only with what they are the times of, so
/// that a controller at rest writes nothing.
pub fn set_condition(
    conditions: &mut Vec<HarvesterCondition>,
    condition_type: &str,
    status: &str,
    (reason, message): (&str, &str),
    now: &str,
) {
    let mut fresh = HarvesterCondition {
        condition_type: condition_type.into(),
        status: status.into(),
        last_update_time: now.into(),
        last_transition_time: now.into(),
        reason: reason.into(),
        message: message.into(),
    };
    match conditions.iter_mut().find(|old| old.condition_type == condition_type) {
        None => conditions.push(fresh),
        Some(old) => {
            if old.status == fresh.status {
                fresh.last_transition_time = old.last_transition_time.clone();
                if old.reason == fresh.reason && old.message == fresh.message {
                    fresh.last_update_time = old.last_update_time.clone();
                }
            }
            *old = fresh;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_moves_only_with_what_it_is_the_time_of() {
        let mut conditions = Vec::new();
        set_condition(&mut conditions, "Imported", "Unknown", ("Importing", ""), "t1");
        let first = conditions.clone();
        set_condition(&mut conditions, "Imported", "Unknown", ("Importing", ""), "t2");
        assert_eq!(conditions, first);
        set_condition(&mut conditions, "Imported", "Unknown", ("Importing", "half"), "t3");
        assert_eq!(
            (conditions[0].last_update_time.as_str(), conditions[0].last_transition_time.as_str()),
            ("t3", "t1")
        );
        set_condition(&mut conditions, "Imported", "True", ("Imported", ""), "t4");
        assert_eq!((conditions.len(), conditions[0].last_transition_time.as_str()), (1, "t4"));
    }
}
