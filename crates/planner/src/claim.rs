//! Decides what becomes of a claim, and of the volume that was made for it.
//!
//! ```text
//!              CreateVolume            BindVolume, BindClaim           GrowVolume
//!   Pending ----------------> volume --------------------> Bound ----+-----------> Bound
//!      |  ^                                                  |       |
//!      +--+ Wait: no class, or nobody uses it yet            |       | deleted, not in use
//!                                                            v       v
//!   volume of a claim that is gone: DeleteVolume, or Released for good (Retain)
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - A claim binds to the volume that was made for it, known by its uid, and to no other:
//!   Sheaf makes volumes on demand and matches none by size.
//! - Immediate claims are bound at once, whoever will use them. The others wait for the first
//!   machine, whose node then decides where the volume is.
//! - A claim in use is not let go, however deleted. A volume never shrinks.

/// A claim, its class, and the volume that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub uid: String,
    pub being_deleted: bool,
    /// `status.phase` is Bound.
    pub bound: bool,
    /// `spec.volumeName`.
    pub volume_name: String,
    pub requested_bytes: i64,
    /// `status.capacity`.
    pub capacity_bytes: i64,
    /// `None` when there is no such class.
    pub class: Option<Class>,
    /// A machine that runs, or is about to, names it.
    pub in_use: bool,
    pub volume: Option<Volume>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub binding: Binding,
    pub reclaim: Reclaim,
    pub may_grow: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    Immediate,
    WaitForFirstConsumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    Delete,
    Retain,
}

/// The volume of the claim's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The uid in `spec.claimRef`.
    pub claim_uid: String,
    /// `status.phase` is Bound.
    pub bound: bool,
    pub capacity_bytes: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Rest,
    Wait(Reason),
    CreateVolume {
        name: String,
        bytes: i64,
    },
    /// Write `status.phase: Bound` of the volume.
    BindVolume,
    /// Write `spec.volumeName` of the claim.
    NameVolume {
        name: String,
    },
    /// Write `status.phase: Bound`, capacity and access modes of the claim.
    BindClaim {
        bytes: i64,
    },
    /// Make the volume larger, then its `spec.capacity`.
    GrowVolume {
        bytes: i64,
    },
    /// Write the claim's `status.capacity`.
    NoteCapacity {
        bytes: i64,
    },
    /// Take our finalizer off the claim.
    ReleaseClaim,
}

/// Why a claim waits: the reason of its event, and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NoClass,
    NoConsumer,
    InUse,
    /// The class does not let volumes grow.
    MayNotGrow,
    /// The volume it names is somebody else's, or gone.
    VolumeLost,
}

impl Reason {
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Reason::NoClass => ("ProvisioningFailed", "storage class not found"),
            Reason::NoConsumer => {
                ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
            }
            Reason::InUse => ("InUse", "a virtual machine still uses this claim"),
            Reason::MayNotGrow => {
                ("VolumeResizeFailed", "the storage class does not let its volumes be resized")
            }
            Reason::VolumeLost => {
                ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
            }
        }
    }
}

/// The name of the volume that is made for a claim.
pub fn volume_name(claim_uid: &str) -> String {
    format!("pvc-{claim_uid}")
}

pub fn next_step(seen: &Seen) -> Step {
    if seen.being_deleted {
        return if seen.in_use { Step::Wait(Reason::InUse) } else { Step::ReleaseClaim };
    }
    let ours = seen.volume.as_ref().filter(|volume| volume.claim_uid == seen.uid);
    match (seen.bound, ours) {
        (true, None) => Step::Wait(Reason::VolumeLost),
        (true, Some(volume)) => growth(seen, volume),
        (false, Some(volume)) if !volume.bound => Step::BindVolume,
        (false, Some(_)) if seen.volume_name.is_empty() => Step::NameVolume { name: volume_name(&seen.uid) },
        (false, Some(volume)) => Step::BindClaim { bytes: volume.capacity_bytes },
        // It names a volume that is not its own; making another would be none of its choosing.
        (false, None) if !seen.volume_name.is_empty() && seen.volume_name != volume_name(&seen.uid) => {
            Step::Wait(Reason::VolumeLost)
        }
        (false, None) => match &seen.class {
            None => Step::Wait(Reason::NoClass),
            Some(Class { binding: Binding::WaitForFirstConsumer, .. }) if !seen.in_use => {
                Step::Wait(Reason::NoConsumer)
            }
            Some(_) => Step::CreateVolume { name: volume_name(&seen.uid), bytes: seen.requested_bytes },
        },
    }
}

fn growth(seen: &Seen, volume: &Volume) -> Step {
    if volume.capacity_bytes < seen.requested_bytes {
        let may_grow = seen.class.as_ref().is_some_and(|class| class.may_grow);
        return if may_grow {
            Step::GrowVolume { bytes: seen.requested_bytes }
        } else {
            Step::Wait(Reason::MayNotGrow)
        };
    }
    if seen.capacity_bytes == volume.capacity_bytes {
        Step::Rest
    } else {
        Step::NoteCapacity { bytes: volume.capacity_bytes }
    }
}

/// What becomes of a volume whose claim is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeStep {
    Rest,
    /// Write `status.phase: Released`.
    MarkReleased,
    /// Its data goes, then itself.
    DeleteVolume,
}

/// `claim_uid` is that of the claim of the name the volume refers to, if there is one: a
/// claim made anew under an old name does not get the old one's data.
pub fn next_volume_step(
    volume: &Volume,
    claim_uid: Option<&str>,
    reclaim: Reclaim,
    released: bool,
) -> VolumeStep {
    if claim_uid == Some(&volume.claim_uid) {
        return VolumeStep::Rest;
    }
    match (reclaim, released) {
        (_, false) => VolumeStep::MarkReleased,
        (Reclaim::Delete, true) => VolumeStep::DeleteVolume,
        (Reclaim::Retain, true) => VolumeStep::Rest,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: i64 = 1 << 30;

    fn class(binding: Binding) -> Option<Class> {
        Some(Class { binding, reclaim: Reclaim::Delete, may_grow: true })
    }

    fn pending() -> Seen {
        Seen { uid: "u".into(), requested_bytes: GIB, class: class(Binding::Immediate), ..Seen::default() }
    }

    /// What the world looks like once a step was taken.
    fn obey(mut seen: Seen, step: &Step) -> Seen {
        match step {
            Step::CreateVolume { bytes, .. } => {
                seen.volume =
                    Some(Volume { claim_uid: seen.uid.clone(), bound: false, capacity_bytes: *bytes });
            }
            Step::BindVolume => seen.volume.iter_mut().for_each(|volume| volume.bound = true),
            Step::NameVolume { name } => seen.volume_name.clone_from(name),
            Step::BindClaim { bytes } => (seen.bound, seen.capacity_bytes) = (true, *bytes),
            Step::GrowVolume { bytes } => {
                seen.volume.iter_mut().for_each(|volume| volume.capacity_bytes = *bytes);
            }
            Step::NoteCapacity { bytes } => seen.capacity_bytes = *bytes,
            Step::Rest | Step::Wait(_) | Step::ReleaseClaim => {}
        }
        seen
    }

    fn at_rest(mut seen: Seen) -> (Seen, Step) {
        for _ in 0..10 {
            let step = next_step(&seen);
            let next = obey(seen.clone(), &step);
            if next == seen {
                return (seen, step);
            }
            seen = next;
        }
        panic!("never at rest");
    }

    #[test]
    fn an_immediate_claim_is_bound_at_once() {
        let (seen, step) = at_rest(pending());
        assert_eq!((seen.bound, seen.volume_name.as_str(), step), (true, "pvc-u", Step::Rest));
    }

    #[test]
    fn a_patient_claim_waits_for_its_first_machine() {
        let mut seen = Seen { class: class(Binding::WaitForFirstConsumer), ..pending() };
        assert_eq!(next_step(&seen), Step::Wait(Reason::NoConsumer));
        seen.in_use = true;
        assert!(at_rest(seen).0.bound);
    }

    #[test]
    fn a_claim_of_no_class_waits_for_it() {
        assert_eq!(next_step(&Seen { class: None, ..pending() }), Step::Wait(Reason::NoClass));
    }

    #[test]
    fn a_claim_grows_where_its_class_lets_it() {
        let (mut seen, _) = at_rest(pending());
        seen.requested_bytes = 2 * GIB;
        let (grown, _) = at_rest(seen.clone());
        assert_eq!(grown.capacity_bytes, 2 * GIB);
        seen.class = Some(Class { may_grow: false, ..seen.class.unwrap() });
        assert_eq!(next_step(&seen), Step::Wait(Reason::MayNotGrow));
    }

    #[test]
    fn a_claim_in_use_is_not_let_go() {
        let mut seen = Seen { being_deleted: true, in_use: true, ..at_rest(pending()).0 };
        assert_eq!(next_step(&seen), Step::Wait(Reason::InUse));
        seen.in_use = false;
        assert_eq!(next_step(&seen), Step::ReleaseClaim);
    }

    #[test]
    fn a_claim_never_takes_somebody_elses_volume() {
        let (mut seen, _) = at_rest(pending());
        seen.volume = Some(Volume { claim_uid: "other".into(), bound: true, capacity_bytes: GIB });
        assert_eq!(next_step(&seen), Step::Wait(Reason::VolumeLost));
        let named = Seen { volume_name: "elsewhere".into(), ..pending() };
        assert_eq!(next_step(&named), Step::Wait(Reason::VolumeLost));
    }

    #[test]
    fn a_volume_goes_with_its_claim_or_is_kept_as_its_policy_says() {
        let volume = Volume { claim_uid: "u".into(), bound: true, capacity_bytes: GIB };
        assert_eq!(next_volume_step(&volume, Some("u"), Reclaim::Delete, false), VolumeStep::Rest);
        // A claim of the same name that was made later is another claim.
        assert_eq!(next_volume_step(&volume, Some("v"), Reclaim::Delete, false), VolumeStep::MarkReleased);
        assert_eq!(next_volume_step(&volume, None, Reclaim::Delete, true), VolumeStep::DeleteVolume);
        assert_eq!(next_volume_step(&volume, None, Reclaim::Retain, true), VolumeStep::Rest);
    }

    proptest! {
        #[test]
        fn interrupted_anywhere_it_still_arrives_and_never_shrinks(wait: bool, grow in 0_i64..8, cut in 0_usize..6) {
            let binding = if wait { Binding::WaitForFirstConsumer } else { Binding::Immediate };
            let mut seen = Seen { class: class(binding), in_use: true, ..pending() };
            for _ in 0..cut {
                seen = obey(seen.clone(), &next_step(&seen));
            }
            seen.requested_bytes += grow * GIB;
            let before = seen.volume.as_ref().map_or(0, |volume| volume.capacity_bytes);
            let (end, step) = at_rest(seen);
            prop_assert_eq!(step, Step::Rest);
            prop_assert!(end.bound && end.capacity_bytes >= before);
            prop_assert_eq!(end.capacity_bytes, end.requested_bytes);
        }
    }
}
