//! What there is of a machine: its instance, its claims, its images.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};
use sheaf_client::reconciling::ReconcileError;
use sheaf_planner::{
    claim::Source,
    virtual_machine::{Seen, Volumes},
};
use sheaf_resources::kinds::{
    persistent_volume_claim::{IMAGE_ANNOTATION, data_source_of, requested_by},
    virtual_machine::{VirtualMachine, claim_templates},
    virtual_machine_image::VirtualMachineImage,
    virtual_machine_instance::VirtualMachineInstance,
};

use crate::{
    object::{Eyes, Object, Place},
    persistent_volume_claim::{image_of, source_of},
};

/// What a machine depends on, beside its instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Claim(Place),
    Image(Place),
}

pub(super) struct Look {
    pub instance: Option<Object<VirtualMachineInstance>>,
    claims: BTreeMap<String, i64>,
    claim_uids: BTreeMap<String, String>,
    images: BTreeSet<String>,
    volumes: Volumes,
}

/// The claims and images a machine names.
pub(super) fn things(place: &Place, vm: &VirtualMachine) -> BTreeSet<Thing> {
    let claims = claims_of(vm).into_iter().map(|name| Thing::Claim((place.0.clone(), name)));
    let images = images_of(vm).into_iter();
    let images = images.filter_map(|image| image.split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned())));
    claims.chain(images.map(Thing::Image)).collect()
}

/// Those it brings along, those it uses, those it takes with it.
fn claims_of(vm: &VirtualMachine) -> BTreeSet<String> {
    let templates = claim_templates::parse(vm.annotation(claim_templates::ANNOTATION)).unwrap_or_default();
    let templates = templates.into_iter().filter_map(|template| template.metadata.name);
    let used = vm.spec.template.iter().flat_map(|template| template.spec.claim_names()).map(str::to_owned);
    let removed = vm.removed_claims().into_iter().chain(vm.ejected_claims()).map(str::to_owned);
    templates.chain(used).chain(removed).collect()
}

/// The images its claims are to be copies of, as `namespace/name`.
fn images_of(vm: &VirtualMachine) -> BTreeSet<String> {
    let templates = claim_templates::parse(vm.annotation(claim_templates::ANNOTATION)).unwrap_or_default();
    let images =
        templates.iter().filter_map(|template| template.metadata.annotations.as_ref()?.get(IMAGE_ANNOTATION));
    images.filter(|image| !image.is_empty()).cloned().collect()
}

impl Look {
    pub async fn at(eyes: &Eyes, place: &Place, vm: &Object<VirtualMachine>) -> Result<Self, ReconcileError> {
        let instance = eyes.find(&place.0, &place.1).await?;
        let template = vm.typed.spec.template.as_ref();
        let used: BTreeSet<&str> = template.iter().flat_map(|template| template.spec.claim_names()).collect();
        let (mut claims, mut claim_uids) = (BTreeMap::new(), BTreeMap::new());
        let mut volumes = Volumes::Ready;
        for name in claims_of(&vm.typed) {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &name).await?;
            let Some(claim) = claim else { continue };
            if used.contains(name.as_str()) {
                volumes = worse(volumes, state_of(eyes, &claim).await?);
            }
            // A claim that goes is let go as soon as this machine is gone, so the machine does not wait for it.
            if vm.is_being_deleted() && claim.is_being_deleted() {
                continue;
            }
            // One that waits cannot be grown; when it is bound we are woken.
            let bytes = if is_bound(&claim) {
                claim.typed.spec.as_ref().and_then(requested_by).unwrap_or(0)
            } else {
                i64::MAX
            };
            claim_uids.insert(name.clone(), claim.uid().to_owned());
            claims.insert(name, bytes);
        }
        let mut images = BTreeSet::new();
        for image in images_of(&vm.typed) {
            let Some((namespace, name)) = image.split_once('/') else { continue };
            let found: Option<Object<VirtualMachineImage>> = eyes.find(namespace, name).await?;
            if found.is_some() {
                images.insert(image);
            }
        }
        Ok(Look { instance, claims, claim_uids, images, volumes })
    }

    pub fn seen<'a>(&'a self, vm: &'a VirtualMachine, now: i64) -> Seen<'a> {
        Seen {
            vm,
            instance: self.instance.as_ref().map(|instance| &*instance.typed),
            claims: &self.claims,
            claim_uids: &self.claim_uids,
            images: &self.images,
            volumes: self.volumes,
            now,
        }
    }
}

fn phase_of(claim: &Object<PersistentVolumeClaim>) -> Option<&str> {
    claim.typed.status.as_ref()?.phase.as_deref()
}

fn is_bound(claim: &Object<PersistentVolumeClaim>) -> bool {
    phase_of(claim) == Some("Bound")
}

async fn state_of(eyes: &Eyes, claim: &Object<PersistentVolumeClaim>) -> Result<Volumes, ReconcileError> {
    match phase_of(claim) {
        Some("Bound") => return Ok(Volumes::Ready),
        Some("Lost") => return Ok(Volumes::Failed),
        _ => {}
    }
    // What it is a copy of may still be on its way; its events say more.
    if claim.typed.spec.as_ref().and_then(data_source_of).is_some() {
        return Ok(Volumes::Provisioning);
    }
    let class = claim.typed.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let class: Option<Object<StorageClass>> = eyes.find("", class.unwrap_or_default()).await?;
    let Some((namespace, name)) = image_of(claim, class.as_ref()) else { return Ok(Volumes::Unbound) };
    let image: Option<Object<VirtualMachineImage>> = eyes.find(&namespace, &name).await?;
    Ok(match source_of(image.as_ref()) {
        Source::Empty | Source::Image { .. } => Volumes::Unbound,
        Source::MissingImage
        | Source::ArrivingImage
        | Source::Snapshot { .. }
        | Source::Clone { .. }
        | Source::Unavailable(_) => Volumes::Provisioning,
        Source::FailedImage | Source::UnnamedImage => Volumes::Failed,
    })
}

fn worse(one: Volumes, other: Volumes) -> Volumes {
    let rank = |volumes: Volumes| match volumes {
        Volumes::Ready => 0,
        Volumes::Unbound => 1,
        Volumes::Provisioning => 2,
        Volumes::Failed => 3,
    };
    if rank(other) > rank(one) { other } else { one }
}
