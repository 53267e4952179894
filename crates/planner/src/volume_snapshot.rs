//! Decides what becomes of a VolumeSnapshot, and of the content that was made for it.
//!
//! ```text
//!              Protect, PlaceVolume           CreateContent             its node takes it
//!   snapshot ----------------------> protected -------------> content ------------------> ready
//!                                        |   AdoptContent        |       WriteStatus
//!                                        +-----------------------+
//!   deleted: no volume is being made of it -> DeleteContent -> ReleaseContent -> its node removes the bytes -> Unprotect
//!                                             (Retain: ReleaseContent alone, and the content stays)
//! ```
//!
//! - One step per call. The caller acts, looks again, and asks again.
//! - A snapshot and its content belong together when each names the other, the content by uid: whoever can make a
//!   VolumeSnapshot cannot lay hands on a content that was made for another one.
//! - What is in the way is in the status, and goes from there when it is gone.
//! - A snapshot is not gone before its bytes are, and not while a volume is being made of it.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use sheaf_resources::{
    kinds::{
        storage_class::PROVISIONER,
        volume_snapshot::{
            AS_SOURCE_PROTECTION, BOUND_PROTECTION, VolumeSnapshot, VolumeSnapshotError,
            VolumeSnapshotStatus, content_name,
        },
        volume_snapshot_class::VolumeSnapshotClass,
        volume_snapshot_content::{
            BOUND_PROTECTION as CONTENT_PROTECTION, DATA_FINALIZER, NODE_ANNOTATION, VolumeSnapshotContent,
        },
    },
    quantity,
};

pub const DELETE: &str = "Delete";

/// A snapshot and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub snapshot: &'a VolumeSnapshot,
    /// The one that [`wanted_content`] names.
    pub content: Option<&'a VolumeSnapshotContent>,
    /// The class it names.
    pub class: Option<&'a VolumeSnapshotClass>,
    /// What there is of the claim it names.
    pub claim: &'a Claim,
    /// The node of another content of the same bytes, if there is one.
    pub kept_on: &'a str,
    /// A volume is being made of it. Asked of those alone that are being deleted.
    pub in_use: bool,
    pub now_secs: i64,
}

/// A claim that is to be snapshotted, and its volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    #[default]
    Missing,
    Going,
    Unbound,
    /// Its volume is not Sheaf's.
    Foreign,
    /// Its volume was never made; this node could make it.
    Nowhere {
        node: Option<String>,
    },
    /// Its volume is on this node.
    On {
        node: String,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Rest,
    Wait(Reason),
    /// Put both finalizers on the snapshot.
    Protect,
    /// Write where the volume is to be, so that somebody can make it.
    PlaceVolume {
        node: String,
    },
    CreateContent {
        name: String,
        node: String,
    },
    /// Write the snapshot's uid, the finalizers and the node into a content that was there before.
    AdoptContent {
        node: String,
    },
    WriteStatus(VolumeSnapshotStatus),
    DeleteContent,
    /// Take the finalizer off the content that kept it for its snapshot.
    ReleaseContent,
    /// Take both finalizers off the snapshot.
    Unprotect,
}

/// Why a snapshot is not taken, or does not go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    NoClass,
    MissingClass(String),
    /// Somebody else's class, and nobody else is here.
    ForeignClass(String),
    NoBackupTarget,
    MissingClaim(String),
    GoingClaim(String),
    UnboundClaim(String),
    ForeignVolume(String),
    NoNode,
    MissingContent(String),
    /// It was there.
    LostContent(String),
    /// It is not for this snapshot.
    StrayContent(String),
    /// It was made for a claim, not for bytes that are there.
    TakenContent(String),
    HomelessContent(String),
    ContentGoing,
    InUse,
}

impl Reason {
    /// Whether it is told in the status. What is only a matter of time is not.
    pub fn is_error(&self) -> bool {
        !matches!(self, Reason::UnboundClaim(_) | Reason::NoNode | Reason::ContentGoing | Reason::InUse)
    }

    /// Words for people.
    pub fn words(&self) -> String {
        match self {
            Reason::NoClass => "it names no volumeSnapshotClassName, and there is no one default class".into(),
            Reason::MissingClass(name) => format!("volume snapshot class {name} not found"),
            Reason::ForeignClass(driver) => {
                format!("nobody here takes snapshots for driver {driver}: {PROVISIONER} is served")
            }
            Reason::NoBackupTarget => {
                "no backup target: a class of type bak is for backups to one; take a snapshot that stays in the cluster \
                 with a class of type snap"
                    .into()
            }
            Reason::MissingClaim(name) => format!("the claim {name} does not exist"),
            Reason::GoingClaim(name) => format!("the claim {name} is being deleted"),
            Reason::UnboundClaim(name) => format!("waiting for the claim {name} to be bound"),
            Reason::ForeignVolume(name) => format!("the volume of claim {name} is not kept by Sheaf"),
            Reason::NoNode => "waiting for a node that could make the volume".into(),
            Reason::MissingContent(name) => format!("the VolumeSnapshotContent {name} does not exist"),
            Reason::LostContent(name) => {
                format!("the VolumeSnapshotContent {name} is gone, and the snapshot with it")
            }
            Reason::StrayContent(name) => {
                format!("the VolumeSnapshotContent {name} is for another VolumeSnapshot: see its volumeSnapshotRef")
            }
            Reason::TakenContent(name) => format!(
                "the VolumeSnapshotContent {name} was made for a claim: one with source.snapshotHandle can be named here"
            ),
            Reason::HomelessContent(name) => format!(
                "nobody knows which node keeps the VolumeSnapshotContent {name}: say so in its annotation \
                 {NODE_ANNOTATION}"
            ),
            Reason::ContentGoing => "waiting for its node to remove the bytes".into(),
            Reason::InUse => "a volume is being made of this snapshot".into(),
        }
    }
}

/// The name of the content that a snapshot has, or is to have.
pub fn wanted_content(snapshot: &VolumeSnapshot) -> String {
    match &snapshot.spec.source.volume_snapshot_content_name {
        Some(name) => name.clone(),
        None => content_name(uid_of(snapshot)),
    }
}

/// Whether a content is this very snapshot's. That the snapshot names it is the caller's to know.
pub fn belongs_to(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    names(content, snapshot) && content.spec.volume_snapshot_ref.uid.as_deref() == Some(uid_of(snapshot))
}

pub fn next_step(seen: &Seen<'_>) -> Step {
    let snapshot = seen.snapshot;
    if snapshot.metadata.deletion_timestamp.is_some() {
        return deletion(seen);
    }
    if ![AS_SOURCE_PROTECTION, BOUND_PROTECTION].iter().all(|one| has(&snapshot.metadata.finalizers, one)) {
        return Step::Protect;
    }
    let found = match &snapshot.spec.source.volume_snapshot_content_name {
        Some(name) => adoption(seen, name),
        None => taking(seen),
    };
    match found {
        Ok(Found::Content(content)) => settled(seen, mirrored(seen, content)),
        Ok(Found::Step(step)) => step,
        Err(reason) if reason.is_error() => match settled(seen, refused(seen, &reason)) {
            Step::Rest => Step::Wait(reason),
            step => step,
        },
        Err(reason) => Step::Wait(reason),
    }
}

enum Found<'a> {
    Content(&'a VolumeSnapshotContent),
    Step(Step),
}

/// A snapshot of a claim gets a content of its own.
fn taking<'a>(seen: &Seen<'a>) -> Result<Found<'a>, Reason> {
    let snapshot = seen.snapshot;
    let name = wanted_content(snapshot);
    match seen.content {
        Some(content) if belongs_to(content, snapshot) => return Ok(Found::Content(content)),
        Some(_) => return Err(Reason::StrayContent(name)),
        None => {}
    }
    if bound_content(snapshot).is_some() {
        return Err(Reason::LostContent(name));
    }
    let class = match (&snapshot.spec.volume_snapshot_class_name, seen.class) {
        (None, _) => return Err(Reason::NoClass),
        (Some(name), None) => return Err(Reason::MissingClass(name.clone())),
        (Some(_), Some(class)) => class,
    };
    if class.driver != PROVISIONER {
        return Err(Reason::ForeignClass(class.driver.clone()));
    }
    if class.is_of_backups() {
        return Err(Reason::NoBackupTarget);
    }
    let claim = snapshot.spec.source.persistent_volume_claim_name.clone().unwrap_or_default();
    match seen.claim {
        Claim::Missing => Err(Reason::MissingClaim(claim)),
        Claim::Going => Err(Reason::GoingClaim(claim)),
        Claim::Unbound => Err(Reason::UnboundClaim(claim)),
        Claim::Foreign => Err(Reason::ForeignVolume(claim)),
        Claim::Nowhere { node: None } => Err(Reason::NoNode),
        Claim::Nowhere { node: Some(node) } => Ok(Found::Step(Step::PlaceVolume { node: node.clone() })),
        Claim::On { node } => Ok(Found::Step(Step::CreateContent { name, node: node.clone() })),
    }
}

/// A snapshot of bytes that are there takes over the content that names it.
fn adoption<'a>(seen: &Seen<'a>, name: &str) -> Result<Found<'a>, Reason> {
    let Some(content) = seen.content else {
        return Err(match bound_content(seen.snapshot) {
            Some(_) => Reason::LostContent(name.to_owned()),
            None => Reason::MissingContent(name.to_owned()),
        });
    };
    let uid = content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default();
    if !names(content, seen.snapshot) || (!uid.is_empty() && uid != uid_of(seen.snapshot)) {
        return Err(Reason::StrayContent(name.to_owned()));
    }
    if content.spec.source.snapshot_handle.is_none() {
        return Err(Reason::TakenContent(name.to_owned()));
    }
    if content.spec.driver != PROVISIONER {
        return Err(Reason::ForeignClass(content.spec.driver.clone()));
    }
    let marks = [CONTENT_PROTECTION, DATA_FINALIZER];
    let node = node_of(content);
    let is_adopted = !uid.is_empty()
        && !node.is_empty()
        // One that goes cannot be given a mark any more.
        && (content.metadata.deletion_timestamp.is_some()
            || marks.iter().all(|mark| has(&content.metadata.finalizers, mark)));
    match [node, seen.kept_on].into_iter().find(|node| !node.is_empty()) {
        _ if is_adopted => Ok(Found::Content(content)),
        Some(node) => Ok(Found::Step(Step::AdoptContent { node: node.to_owned() })),
        None => Err(Reason::HomelessContent(name.to_owned())),
    }
}

fn deletion(seen: &Seen<'_>) -> Step {
    let finalizers = &seen.snapshot.metadata.finalizers;
    if ![AS_SOURCE_PROTECTION, BOUND_PROTECTION].iter().any(|one| has(finalizers, one)) {
        return Step::Rest;
    }
    if seen.in_use {
        return Step::Wait(Reason::InUse);
    }
    let Some(content) = seen.content.filter(|content| belongs_to(content, seen.snapshot)) else {
        return Step::Unprotect;
    };
    let goes = content.spec.deletion_policy == DELETE;
    let is_going = content.metadata.deletion_timestamp.is_some();
    match (goes, is_going, has(&content.metadata.finalizers, CONTENT_PROTECTION)) {
        (true, false, _) => Step::DeleteContent,
        (true, true, true) | (false, _, true) => Step::ReleaseContent,
        (true, true, false) => Step::Wait(Reason::ContentGoing),
        (false, _, false) => Step::Unprotect,
    }
}

/// What the status of a snapshot says once it has its content.
fn mirrored(seen: &Seen<'_>, content: &VolumeSnapshotContent) -> VolumeSnapshotStatus {
    let of = content.status.clone().unwrap_or_default();
    let creation_time = of.creation_time.and_then(|nanos| time(nanos.div_euclid(1_000_000_000)));
    VolumeSnapshotStatus {
        bound_volume_snapshot_content_name: content.metadata.name.clone(),
        creation_time,
        ready_to_use: Some(of.ready_to_use == Some(true)),
        restore_size: of.restore_size.map(quantity::bytes),
        error: of.error.map(|error| VolumeSnapshotError {
            // A node that does not say when has said so now, and that stays when it was.
            time: error.time.or_else(|| time_of_error(seen, error.message.as_deref())),
            message: error.message,
        }),
    }
}

/// What the status says of one that cannot be.
fn refused(seen: &Seen<'_>, reason: &Reason) -> VolumeSnapshotStatus {
    let message = reason.words();
    let before = seen.snapshot.status.clone().unwrap_or_default();
    let error = VolumeSnapshotError { time: time_of_error(seen, Some(&message)), message: Some(message) };
    VolumeSnapshotStatus { ready_to_use: Some(false), error: Some(error), ..before }
}

fn time_of_error(seen: &Seen<'_>, message: Option<&str>) -> Option<Time> {
    let before = seen.snapshot.status.as_ref().and_then(|status| status.error.as_ref());
    let same = before.filter(|error| error.message.as_deref() == message);
    same.and_then(|error| error.time.clone()).or_else(|| time(seen.now_secs))
}

fn settled(seen: &Seen<'_>, status: VolumeSnapshotStatus) -> Step {
    if seen.snapshot.status.as_ref() == Some(&status) { Step::Rest } else { Step::WriteStatus(status) }
}

fn names(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let holder = &content.spec.volume_snapshot_ref;
    holder.name == snapshot.metadata.name && holder.namespace == snapshot.metadata.namespace
}

fn bound_content(snapshot: &VolumeSnapshot) -> Option<&str> {
    snapshot.status.as_ref()?.bound_volume_snapshot_content_name.as_deref()
}

/// The node that keeps a content; empty while nobody knows.
pub fn node_of(content: &VolumeSnapshotContent) -> &str {
    let annotations = content.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(NODE_ANNOTATION)).map_or("", String::as_str)
}

fn uid_of(snapshot: &VolumeSnapshot) -> &str {
    snapshot.metadata.uid.as_deref().unwrap_or_default()
}

fn has(finalizers: &Option<Vec<String>>, finalizer: &str) -> bool {
    finalizers.iter().flatten().any(|held| held == finalizer)
}

fn time(seconds: i64) -> Option<Time> {
    Timestamp::from_second(seconds).ok().map(Time)
}

/// What becomes of a content whose snapshot is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentStep {
    Rest,
    DeleteContent,
    /// Take the finalizer off that kept it for its snapshot.
    Release,
}

/// `holder_uid` is that of the VolumeSnapshot of the name the content refers to, if there is one: a snapshot made anew under
/// an old name does not get the old one's bytes.
pub fn next_content_step(content: &VolumeSnapshotContent, holder_uid: Option<&str>) -> ContentStep {
    let uid = content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default();
    let is_going = content.metadata.deletion_timestamp.is_some();
    let is_held = match uid {
        // It waits for a snapshot to come.
        "" => !is_going,
        uid => holder_uid == Some(uid),
    };
    if is_held {
        return ContentStep::Rest;
    }
    let goes = content.spec.deletion_policy == DELETE && !uid.is_empty();
    match (goes && !is_going, has(&content.metadata.finalizers, CONTENT_PROTECTION)) {
        (true, _) => ContentStep::DeleteContent,
        (false, true) => ContentStep::Release,
        (false, false) => ContentStep::Rest,
    }
}

#[cfg(test)]
mod tests;
