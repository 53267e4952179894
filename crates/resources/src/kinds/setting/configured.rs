//! The condition `configured` of a setting: whether what is set is in force.
//!
//! | | |
//! |---|---|
//! | `True` | what holds is in force |
//! | `True`, reason `InPart` | it is, but for what the message says |
//! | `False`, reason `NoEffectYet` | somebody set it, and Sheaf does not act on it yet |
//! | `Unknown`, reason `NoEffectYet` | the same, and nobody set it |
//! | `False`, reason `Error` | it could not be put in force |

use super::{Effect, Known, Setting, SettingStatus};
use crate::kinds::harvester_condition::set_condition;

pub const CONFIGURED: &str = "configured";
pub const NO_EFFECT_YET: &str = "NoEffectYet";
pub const IN_PART: &str = "InPart";

/// The status a setting should have; the same one when it has it already. `applied` is what became of a setting that has
/// to be put in force.
pub fn status_of(known: &Known, setting: &Setting, applied: Result<(), String>, now: &str) -> SettingStatus {
    let mut status = setting.status.clone();
    let is_set =
        !setting.value.is_empty() && setting.value != known.value && setting.value != setting.default;
    let (is, reason, message) = match (known.effect, applied) {
        (Effect::NotYet(why), _) => {
            let words = format!("Sheaf does not act on this setting yet: {why}");
            (if is_set { "False" } else { "Unknown" }, NO_EFFECT_YET, words)
        }
        (Effect::Applied, Err(why)) => ("False", "Error", why),
        (Effect::InPart(what), _) => ("True", IN_PART, what.to_owned()),
        (Effect::AtOnce, _) | (Effect::Applied, Ok(())) => ("True", "", String::new()),
    };
    set_condition(&mut status.conditions, CONFIGURED, is, (reason, &message), now);
    status
}

#[cfg(test)]
mod tests {
    use super::{super::known, *};

    fn said(name: &str, value: &str, applied: Result<(), String>) -> (String, String, String) {
        let known = known::find(name).unwrap();
        let mut setting =
            Setting { default: known.default.into(), value: value.into(), ..Setting::default() };
        setting.status = status_of(known, &setting, applied.clone(), "t1");
        assert_eq!(status_of(known, &setting, applied, "t2"), setting.status, "at rest nothing is written");
        let condition = setting.status.conditions.remove(0);
        assert_eq!(condition.condition_type, CONFIGURED);
        (condition.status, condition.reason, condition.message)
    }

    #[test]
    fn a_value_that_nobody_acts_on_says_so() {
        let (is, reason, words) = said("ntp-servers", r#"{"ntpServers":["10.0.0.1"]}"#, Ok(()));
        assert_eq!((is.as_str(), reason.as_str()), ("False", NO_EFFECT_YET));
        assert!(words.starts_with("Sheaf does not act on this setting yet: "), "{words}");
        assert_eq!(said("ntp-servers", "", Ok(())).0, "Unknown");
        assert_eq!(
            said("default-storage-class", "harvester-longhorn", Ok(())).0,
            "Unknown",
            "nobody set that"
        );
    }

    #[test]
    fn what_is_in_force_is_configured() {
        assert_eq!(said(known::OVERCOMMIT_CONFIG, "", Ok(())), ("True".into(), String::new(), String::new()));
        let (is, reason, words) = said(known::GUEST_MEMORY_OVERHEAD_RATIO, "3.0", Ok(()));
        assert_eq!((is.as_str(), reason.as_str()), ("True", IN_PART));
        assert!(words.contains("not multiplied"), "{words}");
    }

    #[test]
    fn what_could_not_be_put_in_force_says_why() {
        assert_eq!(said(known::LOG_LEVEL, "debug", Ok(())).0, "True");
        let failed = said(known::LOG_LEVEL, "debug", Err("the environment says otherwise".into()));
        assert_eq!(failed, ("False".into(), "Error".into(), "the environment says otherwise".into()));
    }
}
