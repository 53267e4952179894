//! Decides what becomes of a claim, and of the volume that was made for it.
//!
//! ```text
//!              CreateVolume            BindVolume, BindClaim           GrowVolume
//!   Pending ----------------> volume --------------------> Bound ----+-----------> Bound
//!      |  ^                                                  |       |
//!      +--+ Wait: no class, no room, nobody uses it yet      |       | deleted, not in use
//!                                                            v       v
//!   volume of a claim that is gone: DeleteVolume, or Released for good (Retain)
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - A claim binds to the volume that was made for it, known by its uid, and to no other:
//!   Sheaf makes volumes on demand and matches none by size.
//! - Immediate claims are bound at once, whoever will use them. The others wait for the first
//!   machine, whose node then decides where the volume is.
//! - A copy of a snapshot or of another claim waits for nobody, since what it is a copy of changes: its node makes it at
//!   once, and it is bound when its node says that it is there.
//! - No more is promised than there is room for ([`crate::volume_room`]): a claim that does not fit waits, one that does not
//!   fit any larger stays as it is, and both say why in a condition until there is room.
//! - A claim in use is not let go, however deleted. A volume never shrinks.
//! - A claim's capacity is what its volume has, not what it will have: a volume that is on a node has grown when that
//!   node says so, which it does at once under a machine that runs, else when it next makes one ready that uses it.

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
    /// It has the condition that its volume is still to grow.
    pub resize_pending: bool,
    /// Why there is no room for what it asks for beyond what it has.
    pub no_room: Option<String>,
    /// What its condition about that says.
    pub told_no_room: Option<String>,
    /// `None` when there is no such class.
    pub class: Option<Class>,
    /// What its volume begins as.
    pub source: Source,
    /// A machine that runs, or is about to, names it; or it is being copied, or snapshotted.
    pub in_use: bool,
    pub volume: Option<Volume>,
}

/// What a volume begins as.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    #[default]
    Empty,
    /// A copy of an image that is here.
    Image { virtual_size: i64 },
    /// A copy of an image that nobody made yet.
    MissingImage,
    /// A copy of an image that is on its way.
    ArrivingImage,
    /// A copy of an image that could not be fetched.
    FailedImage,
    /// Its class is of another namespace's image, and the claim itself does not name that image: nobody was asked
    /// whether its author may read it.
    UnnamedImage,
    /// A copy of a snapshot that is ready.
    Snapshot { restore_bytes: i64 },
    /// A copy of another claim's volume.
    Clone { source_bytes: i64 },
    /// A copy of something that cannot be copied, or not yet.
    Unavailable(Reason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Whether its volumes are made by Sheaf.
    pub ours: bool,
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
    /// What it is to have: `spec.capacity`.
    pub capacity_bytes: i64,
    /// It is on some node, or is to be.
    pub placed: bool,
    /// What its node made it grow to, as far as that was said.
    pub grown_bytes: i64,
    /// How far its node is with making it.
    pub making: Making,
}

/// How far a node is with making a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Making {
    /// It is made, or will be when it is first used.
    #[default]
    Settled,
    /// It is a copy that is not there yet.
    Underway,
    /// It is a copy that will never be there.
    Failed(String),
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
    /// Write the claim's `status.capacity`; it has no condition about it any more.
    NoteCapacity {
        bytes: i64,
    },
    /// Write the condition that its node has yet to make the volume larger.
    NoteResizePending,
    /// Write the condition that there is no room for what it asks for.
    NoteNoRoom {
        reason: Reason,
    },
    /// Take that condition away again.
    ForgetNoRoom,
    /// Take our finalizer off the claim.
    ReleaseClaim,
}

const TRIED_AGAIN: &str = "It is tried again by itself when there is room";

/// Why a claim waits: the reason of its event, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NoClass,
    /// Somebody else's class, and nobody else is here.
    NoProvisioner,
    MissingImage,
    ArrivingImage,
    FailedImage,
    /// The image is another namespace's, and the claim does not name it.
    UnnamedImage,
    /// The image would not fit.
    SmallerThanImage {
        virtual_size: i64,
    },
    MissingSnapshot,
    GoingSnapshot,
    /// It is not taken yet, or could not be.
    UnreadySnapshot,
    /// There is a snapshot and a content, and they do not belong together.
    StraySnapshot,
    MissingClaim,
    GoingClaim,
    UnboundClaim,
    /// Somebody else than Sheaf keeps what it is to be a copy of.
    ForeignSource,
    /// What it is to be a copy of has another volume mode.
    OtherMode,
    /// What it is to be a copy of would not fit.
    SmallerThanSource {
        bytes: i64,
    },
    CopyUnderway,
    CopyFailed(String),
    NoConsumer,
    InUse,
    /// No node has room for it, or that of what it is a copy of has none.
    NoRoom(String),
    /// The class does not let volumes grow.
    MayNotGrow,
    /// Its node has no room for a larger one.
    NoRoomToGrow(String),
    /// The volume it names is somebody else's, or gone.
    VolumeLost,
}

impl Reason {
    pub fn words(&self) -> (&'static str, String) {
        let (reason, message) = match self {
            Reason::NoClass => ("ProvisioningFailed", "storage class not found"),
            Reason::NoProvisioner => {
                ("ProvisioningFailed", "the provisioner of the storage class is not one of Sheaf's")
            }
            Reason::MissingImage => {
                ("ProvisioningFailed", "the image of this volume does not exist, waiting for it to appear")
            }
            Reason::ArrivingImage => {
                ("Provisioning", "the image of this volume is not here yet, waiting for its import")
            }
            Reason::FailedImage => {
                ("ProvisioningFailed", "the image of this volume could not be imported: see its conditions")
            }
            Reason::UnnamedImage => (
                "ProvisioningFailed",
                "the storage class is that of another namespace's image: name the image in the annotation \
                 harvesterhci.io/imageId of this claim, for which one must be allowed to get it",
            ),
            Reason::SmallerThanImage { virtual_size } => {
                let message = format!(
                    "the image of this volume has {virtual_size} bytes: make a claim that asks for at least as many"
                );
                return ("ProvisioningFailed", message);
            }
            Reason::MissingSnapshot => {
                ("ProvisioningFailed", "the snapshot of this volume does not exist, waiting for it to appear")
            }
            Reason::GoingSnapshot => (
                "ProvisioningFailed",
                "the snapshot of this volume is being deleted, and is not copied any more",
            ),
            Reason::UnreadySnapshot => {
                ("Provisioning", "the snapshot of this volume is not ready yet: see its status")
            }
            Reason::StraySnapshot => (
                "ProvisioningFailed",
                "the snapshot of this volume and its content do not name each other, so nobody knows whose bytes these \
                 are",
            ),
            Reason::MissingClaim => (
                "ProvisioningFailed",
                "the claim that this volume is to be a copy of does not exist, waiting for it to appear",
            ),
            Reason::GoingClaim => (
                "ProvisioningFailed",
                "the claim that this volume is to be a copy of is being deleted, and is not copied any more",
            ),
            Reason::UnboundClaim => {
                ("Provisioning", "the claim that this volume is to be a copy of is not bound yet")
            }
            Reason::ForeignSource => (
                "ProvisioningFailed",
                "what this volume is to be a copy of is kept by another driver than the one of its storage class",
            ),
            Reason::OtherMode => (
                "ProvisioningFailed",
                "what this volume is to be a copy of has another volumeMode: make a claim of the same mode",
            ),
            Reason::SmallerThanSource { bytes } => {
                let message = format!(
                    "what this volume is to be a copy of has {bytes} bytes: make a claim that asks for at least as many"
                );
                return ("ProvisioningFailed", message);
            }
            Reason::CopyUnderway => {
                ("Provisioning", "waiting for the copy to be made by the node that has its source")
            }
            Reason::CopyFailed(why) => {
                return ("ProvisioningFailed", format!("the copy cannot be made: {why}"));
            }
            Reason::NoConsumer => {
                ("WaitForFirstConsumer", "waiting for first consumer to be created before binding")
            }
            Reason::InUse => ("InUse", "a virtual machine, a snapshot or a copy still needs this claim"),
            Reason::MayNotGrow => {
                ("VolumeResizeFailed", "the storage class does not let its volumes be resized")
            }
            Reason::NoRoom(why) => return ("ProvisioningFailed", format!("{why}. {TRIED_AGAIN}")),
            Reason::NoRoomToGrow(why) => return ("VolumeResizeFailed", format!("{why}. {TRIED_AGAIN}")),
            Reason::VolumeLost => {
                ("ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
            }
        };
        (reason, message.to_owned())
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
        (false, Some(volume)) if !volume.bound => match &volume.making {
            Making::Settled => Step::BindVolume,
            Making::Underway => Step::Wait(Reason::CopyUnderway),
            Making::Failed(why) => Step::Wait(Reason::CopyFailed(why.clone())),
        },
        (false, Some(_)) if seen.volume_name.is_empty() => Step::NameVolume { name: volume_name(&seen.uid) },
        (false, Some(volume)) if seen.volume_name == volume_name(&seen.uid) => {
            Step::BindClaim { bytes: volume.capacity_bytes }
        }
        // There is a volume for it, and it was made to name another's.
        (false, Some(_)) => Step::Wait(Reason::VolumeLost),
        // It names a volume that is not its own; making another would be none of its choosing.
        (false, None) if !seen.volume_name.is_empty() && seen.volume_name != volume_name(&seen.uid) => {
            Step::Wait(Reason::VolumeLost)
        }
        (false, None) => creation(seen),
    }
}

/// A copy is made once what it is a copy of is here, and only where it fits. The class of an image comes with it,
/// so the image is what to wait for.
fn creation(seen: &Seen) -> Step {
    let reason = match (&seen.source, &seen.class) {
        (Source::MissingImage, _) => Reason::MissingImage,
        (Source::ArrivingImage, _) => Reason::ArrivingImage,
        (Source::FailedImage, _) => Reason::FailedImage,
        (Source::UnnamedImage, _) => Reason::UnnamedImage,
        (_, None) => Reason::NoClass,
        (_, Some(Class { ours: false, .. })) => Reason::NoProvisioner,
        (Source::Unavailable(reason), Some(_)) => reason.clone(),
        (Source::Snapshot { restore_bytes: bytes } | Source::Clone { source_bytes: bytes }, Some(_)) => {
            if seen.requested_bytes >= *bytes {
                return creation_with_room(seen);
            }
            Reason::SmallerThanSource { bytes: *bytes }
        }
        (_, Some(Class { binding: Binding::WaitForFirstConsumer, .. })) if !seen.in_use => Reason::NoConsumer,
        (Source::Image { virtual_size }, Some(_)) if seen.requested_bytes < *virtual_size => {
            Reason::SmallerThanImage { virtual_size: *virtual_size }
        }
        (Source::Empty | Source::Image { .. }, Some(_)) => return creation_with_room(seen),
    };
    Step::Wait(reason)
}

fn creation_with_room(seen: &Seen) -> Step {
    match &seen.no_room {
        None => Step::CreateVolume { name: volume_name(&seen.uid), bytes: seen.requested_bytes },
        Some(why) => waiting_for_room(seen, Reason::NoRoom(why.clone())),
    }
}

/// What is told stays told: saying it again would wake everybody who looks at the claim.
fn waiting_for_room(seen: &Seen, reason: Reason) -> Step {
    if seen.told_no_room.as_ref() == Some(&reason.words().1) {
        Step::Wait(reason)
    } else {
        Step::NoteNoRoom { reason }
    }
}

/// A growth that is refused holds up nothing of an earlier one.
fn growth(seen: &Seen, volume: &Volume) -> Step {
    let may_grow = seen.class.as_ref().is_some_and(|class| class.may_grow);
    let refusal = match (volume.capacity_bytes < seen.requested_bytes, &seen.no_room) {
        (false, _) => None,
        (true, _) if !may_grow => Some(Reason::MayNotGrow),
        (true, Some(why)) => Some(Reason::NoRoomToGrow(why.clone())),
        (true, None) => return Step::GrowVolume { bytes: seen.requested_bytes },
    };
    // What nobody made yet is made as large as it is to be.
    let is_made_so = !volume.placed || volume.grown_bytes >= volume.capacity_bytes;
    match (seen.capacity_bytes < volume.capacity_bytes, seen.resize_pending) {
        (true, _) if is_made_so => Step::NoteCapacity { bytes: volume.capacity_bytes },
        (true, false) => Step::NoteResizePending,
        (false, true) => Step::NoteCapacity { bytes: volume.capacity_bytes },
        (true, true) | (false, false) => match refusal {
            Some(reason @ Reason::NoRoomToGrow(_)) => waiting_for_room(seen, reason),
            Some(reason) => Step::Wait(reason),
            None if seen.told_no_room.is_some() => Step::ForgetNoRoom,
            None => Step::Rest,
        },
    }
}

/// A volume, and whether its claim is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenVolume<'a> {
    /// The uid in `spec.claimRef`; empty for one that was made for nobody.
    pub claim_uid: &'a str,
    /// That of the claim of the name the volume refers to, if there is one: a claim made anew under an old
    /// name does not get the old one's data.
    pub holder_uid: Option<&'a str>,
    pub reclaim: Reclaim,
    /// `status.phase` is Released.
    pub released: bool,
    pub being_deleted: bool,
    /// It still has the finalizer that protects it from losing its claim.
    pub protected: bool,
    /// It still has the finalizer that waits for its bytes to go.
    pub keeps_data: bool,
    /// It is on some node, or was to be.
    pub placed: bool,
}

/// What becomes of a volume whose claim is gone, and of one that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeStep {
    Rest,
    /// Write `status.phase: Released`.
    MarkReleased,
    /// Its data goes, then itself.
    DeleteVolume,
    /// Take the finalizer off that kept it for its claim.
    Unprotect,
    /// Take the finalizer off that waits for its bytes: it was never made, so nobody has any.
    ForgetData,
}

pub fn next_volume_step(seen: &SeenVolume<'_>) -> VolumeStep {
    let is_held = !seen.claim_uid.is_empty() && seen.holder_uid == Some(seen.claim_uid);
    if is_held {
        return VolumeStep::Rest;
    }
    if seen.being_deleted {
        return match (seen.protected, seen.keeps_data && !seen.placed) {
            (true, _) => VolumeStep::Unprotect,
            (false, true) => VolumeStep::ForgetData,
            // Its node clears it away.
            (false, false) => VolumeStep::Rest,
        };
    }
    match (seen.reclaim, seen.released) {
        _ if seen.claim_uid.is_empty() => VolumeStep::Rest,
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
        Some(Class { ours: true, binding, reclaim: Reclaim::Delete, may_grow: true })
    }

    fn pending() -> Seen {
        Seen { uid: "u".into(), requested_bytes: GIB, class: class(Binding::Immediate), ..Seen::default() }
    }

    /// Bound, and made by nobody yet.
    fn volume(capacity_bytes: i64) -> Volume {
        Volume { claim_uid: "u".into(), bound: true, capacity_bytes, ..unmade() }
    }

    fn unmade() -> Volume {
        Volume {
            claim_uid: String::new(),
            bound: false,
            capacity_bytes: 0,
            placed: false,
            grown_bytes: 0,
            making: Making::Settled,
        }
    }

    /// What the world looks like once a step was taken.
    fn obey(mut seen: Seen, step: &Step) -> Seen {
        match step {
            Step::CreateVolume { bytes, .. } => {
                seen.volume = Some(Volume { claim_uid: seen.uid.clone(), bound: false, ..volume(*bytes) });
            }
            Step::BindVolume => seen.volume.iter_mut().for_each(|volume| volume.bound = true),
            Step::NameVolume { name } => seen.volume_name.clone_from(name),
            Step::BindClaim { bytes } => (seen.bound, seen.capacity_bytes) = (true, *bytes),
            Step::GrowVolume { bytes } => {
                seen.volume.iter_mut().for_each(|volume| volume.capacity_bytes = *bytes);
            }
            Step::NoteCapacity { bytes } => (seen.capacity_bytes, seen.resize_pending) = (*bytes, false),
            Step::NoteResizePending => seen.resize_pending = true,
            Step::NoteNoRoom { reason } => seen.told_no_room = Some(reason.words().1),
            Step::ForgetNoRoom => seen.told_no_room = None,
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
    fn a_volume_on_a_node_has_grown_when_the_node_says_so() {
        let (mut seen, _) = at_rest(pending());
        seen.volume.as_mut().unwrap().placed = true;
        assert_eq!(next_step(&seen), Step::Rest);
        seen.requested_bytes = 2 * GIB;
        let (waiting, _) = at_rest(seen);
        assert_eq!((waiting.capacity_bytes, waiting.resize_pending), (GIB, true));
        assert_eq!(waiting.volume.as_ref().unwrap().capacity_bytes, 2 * GIB, "the node is told");
        // What it said of an earlier growth is not about this one.
        let mut said = waiting.clone();
        said.volume.as_mut().unwrap().grown_bytes = 2 * GIB - 1;
        assert_eq!(next_step(&said), Step::Rest);
        said.volume.as_mut().unwrap().grown_bytes = 2 * GIB;
        let (grown, step) = at_rest(said);
        assert_eq!((grown.capacity_bytes, grown.resize_pending, step), (2 * GIB, false, Step::Rest));
    }

    #[test]
    fn a_claim_without_room_says_so_once_and_is_bound_when_there_is_some() {
        for source in
            [Source::Empty, Source::Image { virtual_size: GIB }, Source::Clone { source_bytes: GIB }]
        {
            let full = Seen { no_room: Some("n1 is full".into()), source, ..pending() };
            let (told, step) = at_rest(full);
            assert_eq!(step, Step::Wait(Reason::NoRoom("n1 is full".into())));
            assert!(told.told_no_room.as_ref().unwrap().starts_with("n1 is full. It is tried again"));
            let (bound, step) = at_rest(Seen { no_room: None, ..told });
            assert_eq!((bound.bound, bound.told_no_room, step), (true, None, Step::Rest));
        }
        // What would not be made anyway says that and nothing of room.
        let patient = Seen {
            no_room: Some("n1 is full".into()),
            class: class(Binding::WaitForFirstConsumer),
            ..pending()
        };
        assert_eq!(next_step(&patient), Step::Wait(Reason::NoConsumer));
    }

    #[test]
    fn a_growth_without_room_says_so_and_holds_up_nothing_of_an_earlier_one() {
        let (mut seen, _) = at_rest(pending());
        (seen.requested_bytes, seen.no_room) = (9 * GIB, Some("n1 is full".into()));
        seen.volume.as_mut().unwrap().placed = true;
        let (refused, step) = at_rest(seen);
        assert_eq!(step, Step::Wait(Reason::NoRoomToGrow("n1 is full".into())));
        assert_eq!((refused.bound, refused.capacity_bytes), (true, GIB));
        assert_eq!(refused.volume.as_ref().unwrap().capacity_bytes, GIB, "nothing was promised");
        let mut earlier = refused.clone();
        let volume = earlier.volume.as_mut().unwrap();
        (volume.capacity_bytes, volume.grown_bytes) = (2 * GIB, 2 * GIB);
        assert_eq!(at_rest(earlier).0.capacity_bytes, 2 * GIB);
        let (mut granted, _) = at_rest(Seen { no_room: None, ..refused });
        assert_eq!(
            (granted.resize_pending, granted.volume.as_ref().unwrap().capacity_bytes),
            (true, 9 * GIB)
        );
        assert_eq!(granted.told_no_room, None);
        granted.volume.as_mut().unwrap().grown_bytes = 9 * GIB;
        assert_eq!(at_rest(granted).0.capacity_bytes, 9 * GIB);
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
        seen.volume = Some(Volume { claim_uid: "other".into(), ..volume(GIB) });
        assert_eq!(next_step(&seen), Step::Wait(Reason::VolumeLost));
        let mut stolen = pending();
        stolen.volume = Some(Volume { claim_uid: stolen.uid.clone(), ..volume(GIB) });
        stolen.volume_name = "pvc-other".into();
        assert_eq!(next_step(&stolen), Step::Wait(Reason::VolumeLost));
        let named = Seen { volume_name: "elsewhere".into(), ..pending() };
        assert_eq!(next_step(&named), Step::Wait(Reason::VolumeLost));
    }

    #[test]
    fn a_claim_of_an_image_waits_until_the_image_is_here_and_fits() {
        let of = |source| Seen { source, ..pending() };
        assert_eq!(next_step(&of(Source::MissingImage)), Step::Wait(Reason::MissingImage));
        assert_eq!(next_step(&of(Source::ArrivingImage)), Step::Wait(Reason::ArrivingImage));
        assert_eq!(next_step(&of(Source::FailedImage)), Step::Wait(Reason::FailedImage));
        assert_eq!(next_step(&of(Source::UnnamedImage)), Step::Wait(Reason::UnnamedImage));
        let large = Source::Image { virtual_size: GIB + 1 };
        let reason = Reason::SmallerThanImage { virtual_size: GIB + 1 };
        assert_eq!(next_step(&of(large)), Step::Wait(reason.clone()));
        assert!(reason.words().1.contains("1073741825 bytes"));
        assert!(at_rest(of(Source::Image { virtual_size: GIB })).0.bound);
    }

    #[test]
    fn a_copy_is_made_at_once_and_bound_when_its_node_says_that_it_is_there() {
        for source in [Source::Snapshot { restore_bytes: GIB }, Source::Clone { source_bytes: GIB }] {
            let mut seen = Seen { source, class: class(Binding::WaitForFirstConsumer), ..pending() };
            assert!(
                matches!(next_step(&seen), Step::CreateVolume { bytes: GIB, .. }),
                "whoever uses it first"
            );
            seen.volume =
                Some(Volume { claim_uid: "u".into(), capacity_bytes: GIB, placed: true, ..unmade() });
            let making = |making| {
                let mut seen = seen.clone();
                seen.volume.as_mut().unwrap().making = making;
                at_rest(seen)
            };
            assert_eq!(making(Making::Underway).1, Step::Wait(Reason::CopyUnderway));
            let (_, step) = making(Making::Failed("no room".into()));
            let Step::Wait(reason) = step else { panic!("{step:?}") };
            assert!(reason.words().1.ends_with("cannot be made: no room"));
            let (end, step) = making(Making::Settled);
            assert_eq!((end.bound, end.capacity_bytes, step), (true, GIB, Step::Rest));
        }
    }

    #[test]
    fn a_copy_that_would_not_fit_or_has_no_source_is_not_made() {
        let of = |source| next_step(&Seen { source, ..pending() });
        let too_small = Step::Wait(Reason::SmallerThanSource { bytes: GIB + 1 });
        assert_eq!(of(Source::Snapshot { restore_bytes: GIB + 1 }), too_small);
        assert_eq!(of(Source::Clone { source_bytes: GIB + 1 }), too_small);
        assert_eq!(of(Source::Unavailable(Reason::GoingClaim)), Step::Wait(Reason::GoingClaim));
    }

    #[test]
    fn a_claim_of_somebody_elses_class_says_that_nobody_will_make_it() {
        let mut seen = pending();
        seen.class.as_mut().unwrap().ours = false;
        assert_eq!(next_step(&seen), Step::Wait(Reason::NoProvisioner));
    }

    fn held() -> SeenVolume<'static> {
        SeenVolume {
            claim_uid: "u",
            holder_uid: Some("u"),
            reclaim: Reclaim::Delete,
            released: false,
            being_deleted: false,
            protected: true,
            keeps_data: true,
            placed: false,
        }
    }

    #[test]
    fn a_volume_goes_with_its_claim_or_is_kept_as_its_policy_says() {
        let step = |seen: SeenVolume<'_>| next_volume_step(&seen);
        assert_eq!(step(held()), VolumeStep::Rest);
        // A claim of the same name that was made later is another claim.
        assert_eq!(step(SeenVolume { holder_uid: Some("v"), ..held() }), VolumeStep::MarkReleased);
        let released = SeenVolume { holder_uid: None, released: true, ..held() };
        assert_eq!(step(released), VolumeStep::DeleteVolume);
        assert_eq!(step(SeenVolume { reclaim: Reclaim::Retain, ..released }), VolumeStep::Rest);
    }

    #[test]
    fn a_deleted_volume_stays_while_its_claim_has_it_and_then_until_its_bytes_are_gone() {
        let step = |seen: SeenVolume<'_>| next_volume_step(&seen);
        let deleted = SeenVolume { being_deleted: true, ..held() };
        assert_eq!(step(deleted), VolumeStep::Rest);
        let free = SeenVolume { holder_uid: None, ..deleted };
        assert_eq!(step(free), VolumeStep::Unprotect);
        let open = SeenVolume { protected: false, ..free };
        assert_eq!(step(open), VolumeStep::ForgetData, "it was never made");
        assert_eq!(step(SeenVolume { placed: true, ..open }), VolumeStep::Rest, "its node clears it away");
        assert_eq!(step(SeenVolume { keeps_data: false, ..open }), VolumeStep::Rest);
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
