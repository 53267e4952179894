//! Makes the first version of a template that is made of a machine, and what that version brings along.
//!
//! The decisions are [`sheaf_planner::virtual_machine_template::from_machine`]. What is still to be done is written on the
//! template, and then on its version, until it is done: whoever is interrupted goes on from there. A copy that is
//! there already is not made again.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::{Value, json};
use sheaf_client::reconciling::ReconcileError;
use sheaf_planner::virtual_machine_template::from_machine::{self, Seen, Step};
use sheaf_resources::kinds::{
    persistent_volume_claim::IMAGE_ANNOTATION,
    virtual_machine::VirtualMachine,
    virtual_machine_image::{EXPORT, STORAGE_CLASS_ANNOTATION, VirtualMachineImage},
    virtual_machine_template::{
        VirtualMachineTemplate,
        made_of::{MADE_OF_ANNOTATION, TO_COPY_ANNOTATION, claims_of, version_name},
    },
    virtual_machine_template_version::VirtualMachineTemplateVersion,
};

use super::NAME;
use crate::{
    Context,
    object::{Eyes, Object, Place},
    secret_copy,
    telling::{How, tell},
};

/// What came of a step.
pub(super) enum Came {
    /// There was nothing to do.
    Nothing,
    /// Something is different now, and there may be more to do.
    Something,
    /// It has to wait.
    Waiting,
}

/// Takes the next step of a template that is made of a machine. `versions` are those it has.
pub(super) async fn make(
    context: &Context,
    eyes: &Eyes,
    place: &Place,
    template: &Object<VirtualMachineTemplate>,
    versions: &[&VirtualMachineTemplateVersion],
) -> Result<Came, ReconcileError> {
    let Some(wanted) = from_machine::made_of(&template.typed) else { return Ok(Came::Nothing) };
    if template.is_being_deleted() {
        return Ok(Came::Nothing);
    }
    // All of it rests on what is absent, which may only be late.
    let eyes = if eyes.are_fresh() { eyes.clone() } else { eyes.fresh() };
    let name = version_name(&place.1, template.uid());
    let version: Option<Object<VirtualMachineTemplateVersion>> = eyes.find(&place.0, &name).await?;
    let machine = wanted.map(|wanted| wanted.machine).unwrap_or_default();
    let machine: Option<Object<VirtualMachine>> = eyes.find(&place.0, &machine).await?;
    let (mut claims, mut classes) = (BTreeMap::new(), BTreeMap::new());
    for claim in machine.iter().flat_map(|vm| claims_of(&vm.typed)) {
        let found: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &claim).await?;
        let Some(found) = found else { continue };
        if let Some(class) = class_of_image(&eyes, found.annotation(IMAGE_ANNOTATION)).await? {
            classes.insert(claim.clone(), class);
        }
        claims.insert(claim, (*found.typed).clone());
    }
    let seen = Seen {
        template: &template.typed,
        machine: machine.as_ref().map(|vm| &*vm.typed),
        claims: &claims,
        classes: &classes,
        has_version: version.is_some(),
    };
    match from_machine::next_step(&seen) {
        None => Ok(Came::Nothing),
        Some(Step::Forget) => forget(template).await,
        Some(Step::CreateVersion(version)) => {
            match eyes.create::<VirtualMachineTemplateVersion>(&place.0, json!(version)).await {
                Ok(true) => Ok(Came::Something),
                Ok(false) => Ok(Came::Waiting),
                Err(kube::Error::Api(why)) if is_final(&why) => {
                    give_up(context, template, versions, &why.message).await
                }
                Err(why) => Err(why.into()),
            }
        }
        Some(Step::GiveUp(why)) => give_up(context, template, versions, &why).await,
    }
}

/// A template without a version is of no use to anybody; one that somebody gave another version is theirs.
async fn give_up(
    context: &Context,
    template: &Object<VirtualMachineTemplate>,
    versions: &[&VirtualMachineTemplateVersion],
    why: &str,
) -> Result<Came, ReconcileError> {
    let words = format!("no template can be made of the machine: {why}");
    tell(context, NAME, template, ("Warning", "NotMade", &words), How::Once).await;
    if versions.is_empty() {
        template.delete().await?;
        return Ok(Came::Something);
    }
    forget(template).await
}

async fn forget(template: &Object<VirtualMachineTemplate>) -> Result<Came, ReconcileError> {
    template.merge(json!({"metadata": {"annotations": {MADE_OF_ANNOTATION: Value::Null}}})).await?;
    Ok(Came::Something)
}

/// Makes what a version names and is not there yet.
pub(super) async fn complete(
    context: &Context,
    eyes: &Eyes,
    place: &Place,
    version: &VirtualMachineTemplateVersion,
) -> Result<Came, ReconcileError> {
    if from_machine::to_copy(version).is_none() || version.metadata.deletion_timestamp.is_some() {
        return Ok(Came::Nothing);
    }
    let eyes = if eyes.are_fresh() { eyes.clone() } else { eyes.fresh() };
    let name = version.metadata.name.as_deref().unwrap_or_default();
    let version: Option<Object<VirtualMachineTemplateVersion>> = eyes.find(&place.0, name).await?;
    let Some(version) = version else { return Ok(Came::Nothing) };
    let Some(to_copy) = from_machine::to_copy(&version.typed).filter(|_| !version.is_being_deleted()) else {
        return Ok(Came::Nothing);
    };
    let owner = OwnerReference {
        api_version: "harvesterhci.io/v1beta1".into(),
        kind: "VirtualMachineTemplateVersion".into(),
        name: version.name().to_owned(),
        uid: version.uid().to_owned(),
        ..OwnerReference::default()
    };
    for (to, from) in &to_copy.secrets {
        if !secret_copy::copy(&context.client, &place.0, (from, to), &owner).await? {
            let words = format!("the Secret {from} is gone, so machines of this version have no {to}");
            tell(context, NAME, &version, ("Warning", "SecretNotCopied", &words), How::Once).await;
        }
    }
    for (image, of) in &to_copy.images {
        let mut wanted = json!({
            "metadata": {"name": image, "namespace": place.0, "ownerReferences": [owner]},
            "spec": {
                "displayName": image, "sourceType": EXPORT, "pvcNamespace": place.0, "pvcName": of.claim,
                "targetStorageClassName": of.class,
            },
        });
        if !of.class.is_empty() {
            wanted["metadata"]["annotations"] = json!({STORAGE_CLASS_ANNOTATION: of.class});
        }
        match eyes.create::<VirtualMachineImage>(&place.0, wanted).await {
            Ok(_) => {}
            Err(kube::Error::Api(why)) if is_final(&why) => {
                let words = format!("there is no image of the claim {}: {}", of.claim, why.message);
                tell(context, NAME, &version, ("Warning", "ImageNotMade", &words), How::Once).await;
            }
            Err(why) => return Err(why.into()),
        }
    }
    version.merge(json!({"metadata": {"annotations": {TO_COPY_ANNOTATION: Value::Null}}})).await?;
    Ok(Came::Something)
}

/// The class whose parameters an image follows; `None` for what is no image's copy.
async fn class_of_image(eyes: &Eyes, image: &str) -> Result<Option<String>, ReconcileError> {
    let Some((namespace, name)) = image.split_once('/') else { return Ok(None) };
    let image: Option<Object<VirtualMachineImage>> = eyes.find(namespace, name).await?;
    // Without it, it is the default class: that of the disk was the image's own.
    Ok(Some(image.map(|image| image.annotation(STORAGE_CLASS_ANNOTATION).to_owned()).unwrap_or_default()))
}

/// Whether asking again would change nothing.
fn is_final(why: &kube::core::Status) -> bool {
    why.is_invalid() || why.is_forbidden() || why.code == 400
}
