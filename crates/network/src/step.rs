//! The single things done to a host. Between any two of them the process may be killed.
//!
//! A [`Step`] is one call that the kernel carries out wholly or not at all. A hook can be
//! set that runs after each one that was taken (not after one that had nothing to do);
//! tests use it to kill the process after every single step and look what the next
//! start makes of it.

use std::{fmt, sync::Arc};

/// One thing done to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Forwarding of IPv4 is switched on.
    AllowForwarding,
    /// The bridge is made, with its MAC and MTU.
    CreateBridge,
    /// IPv6 is switched off on the bridge.
    SilenceBridge,
    /// The bridge gets the MAC and MTU it should have.
    MendBridge,
    /// An address that is not the gateway's is taken off the bridge.
    RemoveAddress,
    /// The bridge gets the gateway's address.
    AddAddress,
    /// The bridge is set up.
    RaiseBridge,
    /// All rules are swapped for new ones.
    SwapRules,
    /// A tap is made, owned and persistent.
    CreateTap,
    /// IPv6 is switched off on a tap.
    SilenceTap,
    /// A tap is labelled, put on its bridge and set up.
    AttachTap,
    RemoveTap,
    RemoveRules,
    RemoveBridge,
    /// All rules of load balancers are swapped for new ones.
    SwapBalancing,
    /// Connections that do not go where they would go now are forgotten.
    ForgetConnections,
    /// The bridge that holds the addresses of load balancers is made.
    CreateHolder,
    RaiseHolder,
    /// The host has the address of a load balancer from here on.
    HoldAddress,
    LetGoOfAddress,
    RemoveHolder,
}

/// Called after each step that was taken.
#[derive(Clone, Default)]
pub struct AfterStep(Option<Arc<dyn Fn(Step) + Send + Sync>>);

impl AfterStep {
    pub fn call(hook: impl Fn(Step) + Send + Sync + 'static) -> AfterStep {
        AfterStep(Some(Arc::new(hook)))
    }

    pub(crate) fn took(&self, step: Step) {
        if let Some(hook) = &self.0 {
            hook(step);
        }
    }
}

impl fmt::Debug for AfterStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "AfterStep(hook)" } else { "AfterStep(nothing)" })
    }
}
