//! Decides whether a backend server is well, from how connecting to it went, time after time.
//!
//! ```text
//!              first went well               failureThreshold times badly in a row
//!   Unknown -----------------------> Up ---------------------------------------------> Down
//!      |                              ^                                                  |
//!      |  first went badly            +---- successThreshold times well in a row --------+
//!      +--------------------------------------------------------------------------------^
//! ```
//!
//! One that is not known yet counts as well: a node that starts again cuts nobody off before it has looked.

use sheaf_resources::kinds::load_balancer::HealthCheck;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    #[default]
    Unknown,
    Up {
        /// So many times in a row it went badly.
        failures: u32,
    },
    Down {
        /// So many times in a row it went well.
        successes: u32,
    },
}

impl Health {
    /// Whether it gets connections.
    pub fn is_well(self) -> bool {
        match self {
            Health::Unknown | Health::Up { .. } => true,
            Health::Down { .. } => false,
        }
    }

    pub fn after(self, went_well: bool, check: &HealthCheck) -> Health {
        match (self, went_well) {
            (Health::Unknown | Health::Up { .. }, true) => Health::Up { failures: 0 },
            (Health::Unknown, false) => Health::Down { successes: 0 },
            (Health::Up { failures }, false) if failures + 1 >= check.failure_threshold => {
                Health::Down { successes: 0 }
            }
            (Health::Up { failures }, false) => Health::Up { failures: failures + 1 },
            (Health::Down { successes }, true) if successes + 1 >= check.success_threshold => {
                Health::Up { failures: 0 }
            }
            (Health::Down { successes }, true) => Health::Down { successes: successes + 1 },
            (Health::Down { .. }, false) => Health::Down { successes: 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(success_threshold: u32, failure_threshold: u32) -> HealthCheck {
        HealthCheck { port: 80, success_threshold, failure_threshold, ..HealthCheck::default() }
    }

    fn told(outcomes: &[bool], check: &HealthCheck) -> Health {
        outcomes.iter().fold(Health::Unknown, |health, outcome| health.after(*outcome, check))
    }

    #[test]
    fn it_takes_as_many_in_a_row_as_was_said() {
        let check = check(2, 3);
        assert!(told(&[], &check).is_well());
        assert!(!told(&[false], &check).is_well(), "what never went well is not waited for");
        assert!(told(&[true, false, false, true, false, false], &check).is_well());
        assert!(!told(&[true, false, false, false], &check).is_well());
        assert!(!told(&[false, true, false, true], &check).is_well());
        assert!(told(&[false, true, true], &check).is_well());
    }

    proptest! {
        #[test]
        fn the_last_run_that_is_long_enough_decides(
            outcomes in prop::collection::vec(any::<bool>(), 1..60), success in 1_u32..5, failure in 1_u32..5,
        ) {
            let check = check(success, failure);
            // The same by the rule itself: the newest run that reached its threshold, or the very first outcome.
            let mut well = outcomes[0];
            let (mut run, mut of) = (0, outcomes[0]);
            for outcome in &outcomes {
                (run, of) = if *outcome == of { (run + 1, of) } else { (1, *outcome) };
                let enough = if of { success } else { failure };
                if run >= enough {
                    well = of;
                }
            }
            prop_assert_eq!(told(&outcomes, &check).is_well(), well);
        }
    }
}
