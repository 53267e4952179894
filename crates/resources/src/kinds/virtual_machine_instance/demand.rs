//! What an instance takes of its node and of its namespace's quota: what it asks for, and what it can come to at most.
//!
//! Nothing is added for what runs around a guest: a machine of 24 GiB fits a quota of 24 GiB.

use std::collections::BTreeMap;

use super::spec::VirtualMachineInstanceSpec;
use crate::quantity::{self, Quantity};

/// What a machine asks for when it does not say: a tenth of each of its processors, as KubeVirt has it.
const CPU_MILLI_PER_PROCESSOR: i64 = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub requested: Share,
    /// A machine cannot use more than it has, so what it has is its limit unless it says less.
    pub limit: Share,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub cpu_milli: i64,
    pub memory_bytes: i64,
}

impl Demand {
    pub fn of(spec: &VirtualMachineInstanceSpec) -> Self {
        let resources = &spec.domain.resources;
        // A node holds nobody to a limit of nothing: who says 0 has said nothing.
        let milli = |amounts: &BTreeMap<String, Quantity>| {
            let amount = amounts.get("cpu").and_then(|amount| quantity::milli(&amount.0));
            amount.filter(|amount| *amount > 0)
        };
        let bytes = |amount: Option<&Quantity>| {
            amount.and_then(|amount| quantity::value(&amount.0)).filter(|amount| *amount > 0)
        };
        let (cpu_asked, cpu_most) = (milli(&resources.requests), milli(&resources.limits));
        let asked = bytes(resources.requests.get("memory"));
        let most = bytes(resources.limits.get("memory"));
        let guest = bytes(spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()));
        let processors = spec.domain.cpu.as_ref().map_or(1, |cpu| cpu.count());
        let processors = i64::try_from(processors).unwrap_or(i64::MAX);
        let requested = Share {
            cpu_milli: cpu_asked.or(cpu_most).unwrap_or(processors.saturating_mul(CPU_MILLI_PER_PROCESSOR)),
            memory_bytes: asked.or(most).or(guest).unwrap_or(0),
        };
        let limit = Share {
            cpu_milli: cpu_most.unwrap_or(processors.saturating_mul(1000)).max(requested.cpu_milli),
            memory_bytes: most.max(guest).unwrap_or(0).max(requested.memory_bytes),
        };
        Demand { requested, limit }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(domain: serde_json::Value) -> Demand {
        Demand::of(&serde_json::from_value(json!({"domain": domain})).unwrap())
    }

    #[test]
    fn a_machine_that_says_nothing_of_limits_is_limited_by_what_it_has() {
        let demand = of(json!({"cpu": {"cores": 2}, "memory": {"guest": "1Gi"}, "devices": {}}));
        assert_eq!(demand.requested, Share { cpu_milli: 200, memory_bytes: 1 << 30 });
        assert_eq!(demand.limit, Share { cpu_milli: 2000, memory_bytes: 1 << 30 });
    }

    #[test]
    fn who_says_nothing_much_is_counted_all_the_same() {
        let resources =
            json!({"requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "0", "memory": "0"}});
        let domain =
            json!({"cpu": {"cores": 64}, "memory": {"guest": "64Gi"}, "resources": resources, "devices": {}});
        let demand = of(domain);
        assert_eq!(demand.requested, Share { cpu_milli: 6400, memory_bytes: 64 << 30 });
        assert_eq!(demand.limit, Share { cpu_milli: 64_000, memory_bytes: 64 << 30 });
    }

    #[test]
    fn what_is_said_counts() {
        let resources =
            json!({"requests": {"cpu": "125m", "memory": "512Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}});
        let demand = of(json!({"cpu": {"cores": 2}, "resources": resources, "devices": {}}));
        assert_eq!(demand.requested, Share { cpu_milli: 125, memory_bytes: 1 << 29 });
        assert_eq!(demand.limit, Share { cpu_milli: 2000, memory_bytes: 1 << 30 });
    }
}
