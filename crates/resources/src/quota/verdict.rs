//! Whether a quota lets a write pass, and what it says afterwards.

use serde_json::{Map, Value, json};

use super::amounts::{self, Amounts, read_all};
use crate::quantity;

#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing that it limits changes.
    Unconcerned,
    /// What there is was not counted yet.
    Uncounted,
    /// The quota as it is to be written along.
    Charged(Value),
    /// Why not.
    Exceeded(String),
}

/// Charges a quota with an object that took `before` and takes `after`.
pub fn charge(quota: &Value, before: &Amounts, after: &Amounts) -> Verdict {
    let hard = read_all(&quota["spec"]["hard"]);
    let amount = |of: &Amounts, name: &str| of.get(name).copied().unwrap_or(0);
    let changes = hard.keys().map(|name| (name, amount(after, name).saturating_sub(amount(before, name))));
    let changes: Vec<(&String, i64)> = changes.filter(|(_, change)| *change != 0).collect();
    if changes.is_empty() {
        return Verdict::Unconcerned;
    }
    if !is_counted(quota) {
        return Verdict::Uncounted;
    }
    let mut used = read_all(&quota["status"]["used"]);
    let exceeds = |(name, change): &(&String, i64)| {
        *change > 0 && amount(&used, name).saturating_add(*change) > amount(&hard, name)
    };
    let exceeded: Vec<_> = changes.iter().filter(|change| exceeds(change)).collect();
    if !exceeded.is_empty() {
        let list = |amount_of: &dyn Fn(&str, i64) -> String| {
            let all = exceeded.iter().map(|(name, change)| format!("{name}={}", amount_of(name, *change)));
            all.collect::<Vec<_>>().join(",")
        };
        return Verdict::Exceeded(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            quota["metadata"]["name"].as_str().unwrap_or_default(),
            list(&amounts::written),
            list(&|name, _| amounts::written(name, amount(&used, name))),
            list(&|name, _| {
                quantity::said(&quota["spec"]["hard"][name])
                    .map_or_else(String::new, |said| said.into_owned())
            }),
        ));
    }
    for (name, change) in changes {
        let used = used.entry(name.clone()).or_default();
        *used = used.saturating_add(change).max(0);
    }
    Verdict::Charged(counted(quota, &used))
}

/// Whether it was counted what there is of all that a quota limits.
pub fn is_counted(quota: &Value) -> bool {
    let (spec, status) = (&quota["spec"]["hard"], &quota["status"]);
    let is_known = |(name, _): (&String, &Value)| status["used"].get(name).is_some();
    spec.as_object().is_none_or(|hard| {
        let said = &status["hard"];
        (said == spec || (hard.is_empty() && said.is_null())) && hard.iter().all(is_known)
    })
}

/// The quota with what is used of all that it limits.
pub fn counted(quota: &Value, used: &Amounts) -> Value {
    let hard = quota["spec"]["hard"].as_object().cloned().unwrap_or_default();
    let used: Map<String, Value> = hard
        .keys()
        .map(|name| {
            let amount = used.get(name).copied().unwrap_or(0);
            (name.clone(), amounts::written(name, amount).into())
        })
        .collect();
    let mut counted = quota.clone();
    counted["status"] = json!({"hard": hard, "used": used});
    counted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn amounts<const N: usize>(all: [(&str, i64); N]) -> Amounts {
        all.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_numbers() {
        let quota =
            quota(json!({"pods": "3", "requests.cpu": "1"}), json!({"pods": "1", "requests.cpu": "800m"}));
        let wanted = amounts([("pods", 1), ("requests.cpu", 300)]);
        let Verdict::Exceeded(why) = charge(&quota, &Amounts::new(), &wanted) else { panic!("it fits") };
        assert_eq!(
            why,
            "exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=800m, limited: requests.cpu=1"
        );
        let Verdict::Charged(after) = charge(&quota, &Amounts::new(), &amounts([("pods", 2), ("cpu", 9)]))
        else {
            panic!("it does not fit")
        };
        assert_eq!(after["status"]["used"], json!({"pods": "3", "requests.cpu": "800m"}));
    }

    #[test]
    fn who_takes_less_is_let_pass_however_much_is_used() {
        let quota = quota(json!({"requests.storage": "1Gi"}), json!({"requests.storage": "5Gi"}));
        let Verdict::Charged(after) = charge(
            &quota,
            &amounts([("requests.storage", 3 << 30)]),
            &amounts([("requests.storage", 2 << 30)]),
        ) else {
            panic!("refused")
        };
        assert_eq!(after["status"]["used"]["requests.storage"], "4Gi");
    }

    #[test]
    fn nobody_is_charged_before_it_was_counted() {
        let fresh = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
        assert_eq!(charge(&fresh, &Amounts::new(), &amounts([("pods", 1)])), Verdict::Uncounted);
        assert_eq!(charge(&fresh, &Amounts::new(), &amounts([("secrets", 1)])), Verdict::Unconcerned);
        let mut raised = quota(json!({"pods": "1"}), json!({"pods": "0"}));
        raised["spec"]["hard"]["pods"] = "2".into();
        assert!(!is_counted(&raised));
        assert!(is_counted(&counted(&raised, &Amounts::new())));
    }

    proptest! {
        #[test]
        fn what_is_used_never_passes_the_limit(limit in 0_i64..50, takes in prop::collection::vec(-5_i64..10, 0..40)) {
            let mut quota = quota(json!({"pods": limit.to_string()}), json!({"pods": "0"}));
            let mut used = 0_i64;
            for take in takes {
                let (before, after) = (amounts([("pods", (-take).max(0))]), amounts([("pods", take.max(0))]));
                if take < 0 && used + take < 0 {
                    continue;
                }
                match charge(&quota, &before, &after) {
                    Verdict::Charged(next) => {
                        used += take;
                        quota = next;
                    }
                    Verdict::Exceeded(_) => prop_assert!(take > 0 && used + take > limit),
                    Verdict::Unconcerned => prop_assert_eq!(take, 0),
                    Verdict::Uncounted => prop_assert!(false),
                }
                prop_assert_eq!(&quota["status"]["used"]["pods"], &json!(used.to_string()));
                prop_assert!(used <= limit);
            }
        }
    }
}
