//! What a claim's volume begins as: nothing, an image, a snapshot, or another claim's volume.

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use sheaf_client::reconciling::ReconcileError;
use sheaf_planner::{
    claim::{Reason, Source},
    volume_snapshot,
};
use sheaf_resources::{
    kinds::{
        persistent_volume::{self, CLONE_ATTRIBUTE, IMAGE_UID_ATTRIBUTE, SNAPSHOT_ATTRIBUTE},
        persistent_volume_claim::{self, DataSource, IMAGE_ANNOTATION, data_source_of},
        storage_class::{IMAGE_PARAMETER, PROVISIONER},
        virtual_machine_image::{IMPORTED, NODE_ANNOTATION, VirtualMachineImage},
        volume_snapshot::VolumeSnapshot,
        volume_snapshot_content::{MODE_CHANGE_ANNOTATION, VolumeSnapshotContent},
    },
    quantity,
};

use super::{is_bound, is_of};
use crate::object::{Eyes, Object, Place};

/// What a claim depends on, beside machines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Class(String),
    Image(Place),
    Snapshot(Place),
    Claim(Place),
}

/// What a claim is to be a copy of.
pub(super) enum Wanted {
    Image(Place),
    Snapshot(Place),
    Claim(Place),
}

impl Wanted {
    /// What a claim says it is filled from goes before what its class is for: the disk of an image that is restored
    /// is not that image any more.
    pub fn of(
        place: &Place,
        claim: &Object<PersistentVolumeClaim>,
        class: Option<&Object<StorageClass>>,
    ) -> Option<Self> {
        match claim.typed.spec.as_ref().and_then(data_source_of) {
            Some(DataSource::Snapshot(name)) => Some(Wanted::Snapshot((place.0.clone(), name))),
            Some(DataSource::Claim(name)) => Some(Wanted::Claim((place.0.clone(), name))),
            None => image_of(claim, class).map(Wanted::Image),
        }
    }

    pub fn thing(&self) -> Thing {
        match self {
            Wanted::Image(place) => Thing::Image(place.clone()),
            Wanted::Snapshot(place) => Thing::Snapshot(place.clone()),
            Wanted::Claim(place) => Thing::Claim(place.clone()),
        }
    }
}

/// Where the bytes of a new volume come from, as its node is told.
pub(super) enum Origin {
    Nothing,
    Image(Object<VirtualMachineImage>),
    Snapshot { handle: String, node: String },
    Clone { handle: String, node: String },
}

impl Origin {
    pub fn attribute(&self) -> Option<(&'static str, &str)> {
        match self {
            Origin::Nothing => None,
            Origin::Image(image) => Some((IMAGE_UID_ATTRIBUTE, image.uid())),
            Origin::Snapshot { handle, .. } => Some((SNAPSHOT_ATTRIBUTE, handle)),
            Origin::Clone { handle, .. } => Some((CLONE_ATTRIBUTE, handle)),
        }
    }

    pub fn node(&self) -> Option<&str> {
        match self {
            Origin::Nothing => None,
            Origin::Image(image) => Some(image.annotation(NODE_ANNOTATION)),
            Origin::Snapshot { node, .. } | Origin::Clone { node, .. } => Some(node),
        }
    }
}

pub(super) async fn look_at(
    eyes: &Eyes,
    claim: &Object<PersistentVolumeClaim>,
    wanted: Option<Wanted>,
) -> Result<(Source, Origin), ReconcileError> {
    let found = match wanted {
        None => return Ok((Source::Empty, Origin::Nothing)),
        Some(Wanted::Image(image)) if !is_named(claim, &image) => {
            return Ok((Source::UnnamedImage, Origin::Nothing));
        }
        Some(Wanted::Image((namespace, name))) => {
            let image: Option<Object<VirtualMachineImage>> = eyes.find(&namespace, &name).await?;
            let source = source_of(image.as_ref());
            return Ok((source, image.map_or(Origin::Nothing, Origin::Image)));
        }
        Some(Wanted::Snapshot(place)) => look_at_snapshot(eyes, claim, &place).await?,
        Some(Wanted::Claim(place)) => look_at_claim(eyes, claim, &place).await?,
    };
    Ok(found.unwrap_or_else(|reason| (Source::Unavailable(reason), Origin::Nothing)))
}

type Found = Result<(Source, Origin), Reason>;

/// A snapshot is what its content is, provided that they name each other.
async fn look_at_snapshot(
    eyes: &Eyes,
    claim: &Object<PersistentVolumeClaim>,
    (namespace, name): &Place,
) -> Result<Found, ReconcileError> {
    let snapshot: Option<Object<VolumeSnapshot>> = eyes.find(namespace, name).await?;
    let Some(snapshot) = snapshot else { return Ok(Err(Reason::MissingSnapshot)) };
    if !is_in_time(claim.metadata(), snapshot.metadata()) {
        return Ok(Err(Reason::GoingSnapshot));
    }
    let bound = snapshot.typed.status.clone().and_then(|status| status.bound_volume_snapshot_content_name);
    let Some(bound) = bound.filter(|_| snapshot.typed.is_ready()) else {
        return Ok(Err(Reason::UnreadySnapshot));
    };
    let content: Option<Object<VolumeSnapshotContent>> = eyes.find("", &bound).await?;
    let Some(content) = content.filter(|content| {
        volume_snapshot::belongs_to(&content.typed, &snapshot.typed)
            && volume_snapshot::wanted_content(&snapshot.typed) == bound
    }) else {
        return Ok(Err(Reason::StraySnapshot));
    };
    let status = content.typed.status.clone().unwrap_or_default();
    let node = volume_snapshot::node_of(&content.typed);
    let Some(handle) = status.snapshot_handle.filter(|_| status.ready_to_use == Some(true)) else {
        return Ok(Err(Reason::UnreadySnapshot));
    };
    if content.typed.spec.driver != PROVISIONER || node.is_empty() {
        return Ok(Err(Reason::ForeignSource));
    }
    let mode = content.typed.spec.source_volume_mode.as_deref();
    if mode.is_some_and(|mode| mode != mode_of(claim)) && content.annotation(MODE_CHANGE_ANNOTATION) != "true"
    {
        return Ok(Err(Reason::OtherMode));
    }
    let source = Source::Snapshot { restore_bytes: status.restore_size.unwrap_or(0) };
    Ok(Ok((source, Origin::Snapshot { handle, node: node.to_owned() })))
}

async fn look_at_claim(
    eyes: &Eyes,
    claim: &Object<PersistentVolumeClaim>,
    (namespace, name): &Place,
) -> Result<Found, ReconcileError> {
    let other: Option<Object<PersistentVolumeClaim>> = eyes.find(namespace, name).await?;
    let Some(other) = other else { return Ok(Err(Reason::MissingClaim)) };
    if !is_in_time(claim.metadata(), other.metadata()) {
        return Ok(Err(Reason::GoingClaim));
    }
    if mode_of(&other) != mode_of(claim) {
        return Ok(Err(Reason::OtherMode));
    }
    let volume = other.typed.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
    let volume: Option<Object<PersistentVolume>> = eyes.find("", &volume).await?;
    let Some(volume) = volume.filter(|volume| is_bound(&other.typed) && is_of(volume, &other)) else {
        return Ok(Err(Reason::UnboundClaim));
    };
    let spec = volume.typed.spec.clone().unwrap_or_default();
    let Some(csi) = spec.csi.filter(|csi| csi.driver == PROVISIONER) else {
        return Ok(Err(Reason::ForeignSource));
    };
    let capacity = spec.capacity.as_ref().and_then(|capacity| quantity::value(&capacity.get("storage")?.0));
    let source = Source::Clone { source_bytes: capacity.unwrap_or(0) };
    Ok(Ok(match persistent_volume::node_of(&volume.typed) {
        Some(node) => (source, Origin::Clone { handle: csi.volume_handle, node: node.to_owned() }),
        // Nobody ever wrote to it, or it would be somewhere: an empty volume is as good a copy as any.
        None => (source, Origin::Nothing),
    }))
}

/// Whether a claim waits to become a copy of this. One that goes has stopped to, and one that came too late never will.
pub(crate) fn is_pending_copy_of(
    claim: &PersistentVolumeClaim,
    source: &DataSource,
    metadata: &ObjectMeta,
) -> bool {
    !is_bound(claim)
        && claim.metadata.deletion_timestamp.is_none()
        && claim.spec.as_ref().and_then(data_source_of).as_ref() == Some(source)
        && is_in_time(&claim.metadata, metadata)
}

/// Whether something was asked of a source before that was told to go. Then it is still done, and the source stays for it:
/// both sides decide by the same two times, so neither waits for the other in vain.
pub(crate) fn is_in_time(asking: &ObjectMeta, source: &ObjectMeta) -> bool {
    let seconds = |time: &Option<Time>| time.as_ref().map(|time| time.0.as_second());
    match (seconds(&asking.creation_timestamp), seconds(&source.deletion_timestamp)) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(asked), Some(going)) => asked <= going,
    }
}

fn mode_of(claim: &Object<PersistentVolumeClaim>) -> &str {
    claim.typed.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()).unwrap_or("Filesystem")
}

/// The image a claim is a copy of: what it says itself, else what its class is for.
pub(crate) fn image_of(
    claim: &Object<PersistentVolumeClaim>,
    class: Option<&Object<StorageClass>>,
) -> Option<Place> {
    let parameters = class.and_then(|class| class.typed.parameters.as_ref());
    let of_class =
        parameters.and_then(|parameters| parameters.get(IMAGE_PARAMETER)).map_or("", String::as_str);
    let (namespace, name) = persistent_volume_claim::image_of(claim.annotation(IMAGE_ANNOTATION), of_class)?;
    Some((namespace.to_owned(), name.to_owned()))
}

/// Whether the image of another namespace was named by somebody: who may do so is asked at the door, and it is asked
/// of names alone. A class says nothing of who made the claim, and may come after it.
fn is_named(claim: &Object<PersistentVolumeClaim>, (namespace, name): &Place) -> bool {
    claim.metadata().namespace.as_ref() == Some(namespace)
        || claim.annotation(IMAGE_ANNOTATION) == format!("{namespace}/{name}")
}

pub(crate) fn source_of(image: Option<&Object<VirtualMachineImage>>) -> Source {
    let Some(image) = image.filter(|image| !image.is_being_deleted()) else { return Source::MissingImage };
    if image.typed.is_imported() && !image.annotation(NODE_ANNOTATION).is_empty() {
        return Source::Image { virtual_size: image.typed.status.virtual_size };
    }
    match image.typed.condition(IMPORTED) {
        Some(condition) if condition.status == "False" => Source::FailedImage,
        Some(_) | None => Source::ArrivingImage,
    }
}
