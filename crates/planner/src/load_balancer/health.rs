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
//! One that is not known yet counts as well, until it was looked at. What was known when a node starts again, or takes over
//! from another, or when the check is changed, is known still ([`Health::known`]): one look that goes badly takes
//! nobody out who was well, and one that was not is not given connections to try.

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
    /// Of a server of which it is known already whether it is well.
    pub fn known(is_well: bool) -> Health {
        match is_well {
            true => Health::Up { failures: 0 },
            false => Health::Down { successes: 0 },
        }
    }

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

    #[test]
    fn what_was_known_before_a_restart_is_where_it_goes_on() {
        let check = check(2, 3);
        let after = |is_well, outcomes: &[bool]| {
            let start = Health::known(is_well);
            outcomes.iter().fold(start, |health, outcome| health.after(*outcome, &check)).is_well()
        };
        assert!(after(true, &[]) && after(true, &[false]) && after(true, &[false, false]));
        assert!(!after(true, &[false, false, false]));
        assert!(!after(false, &[]) && !after(false, &[true]));
        assert!(after(false, &[true, true]));
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
