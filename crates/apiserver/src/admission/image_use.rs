//! Whose images and disks may be copied: an image of another namespace by those alone who may read it there, and what a
//! new image is made of, be it an image or a disk, by those alone who may read that, wherever it is.
//!
//! Claims are checked, and machines for the claims they bring along, since those are made for them by a controller
//! that may do everything. What was said before is not asked about again: somebody who edits a machine answers for
//! what they add to it.
//!
//! A class stands for an image too, and nobody can tell from a class who may use it. So who passed here by a class gets
//! the image's name written into the claim, and the controller of claims makes no copy of another namespace's
//! image that the claim does not name. That also holds for a class that comes to be after its claim.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        persistent_volume_claim::{IMAGE_ANNOTATION, image_of},
        storage_class::IMAGE_PARAMETER,
        virtual_machine::claim_templates,
        virtual_machine_image::{VirtualMachineImage, storage_class_name},
    },
    rbac::{self, Attributes},
};

use super::machines;
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::Call,
    status::{ApiError, Named},
};

const IMAGES: (&str, &str) = ("harvesterhci.io", "virtualmachineimages");

impl ApiServer {
    pub(super) fn admit_image_use(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        // They make what somebody else was asked about already.
        if call.user.name.starts_with(&rbac::controller_user("")) {
            return Ok(());
        }
        match (kind.group.as_str(), kind.plural.as_str()) {
            // What it is made of is said once and stays.
            IMAGES if old.is_none() => self.admit_source(call, new),
            ("", "persistentvolumeclaims") => {
                let before = old.and_then(|old| self.foreign_image(call, old));
                let Some(image) = self.foreign_image(call, new) else { return Ok(()) };
                if before.as_ref() != Some(&image) {
                    self.check_may_read(call, new, &image)?;
                    new["metadata"]["annotations"][IMAGE_ANNOTATION] = image.into();
                }
                Ok(())
            }
            (machines::GROUP, machines::MACHINES) => {
                // What is no list of claims is refused, in its own words, when the machine is checked.
                let text = new["metadata"]["annotations"][claim_templates::ANNOTATION].as_str();
                if claim_templates::parse(text.unwrap_or_default()).is_err() {
                    return Ok(());
                }
                let before = old.map(templates_of).unwrap_or_default();
                let mut templates = templates_of(new);
                let mut is_completed = false;
                for template in &mut templates {
                    let former =
                        before.iter().find(|one| one["metadata"]["name"] == template["metadata"]["name"]);
                    let named =
                        former.map(|former| former["metadata"]["annotations"][IMAGE_ANNOTATION].clone());
                    let former = former.and_then(|former| self.foreign_image(call, former));
                    let Some(image) = self.foreign_image(call, template) else { continue };
                    if former.as_ref() != Some(&image) {
                        self.check_may_read(call, new, &image)?;
                    } else if named.is_none_or(|named| named != image.as_str()) {
                        // Its author may have known nothing of that image, which came later.
                        continue;
                    }
                    let named = &mut template["metadata"]["annotations"][IMAGE_ANNOTATION];
                    if *named != image.as_str() {
                        *named = image.into();
                        is_completed = true;
                    }
                }
                if is_completed {
                    let text = Value::Array(templates).to_string();
                    new["metadata"]["annotations"][claim_templates::ANNOTATION] = text.into();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether somebody may make an image of what it names. A name that leads nowhere is told apart from one that they
    /// may not read only to those who may.
    fn admit_source(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        // What is no image at all is refused, in its own words, when it is checked.
        let Ok(image) = serde_json::from_value::<VirtualMachineImage>(new.clone()) else { return Ok(()) };
        let spec = FieldPath::new("spec");
        let (source, (group, plural), at) = match (image.original(), image.exported_claim()) {
            (Some(source), _) => (source, IMAGES, spec.child("securityParameters").child("sourceImageName")),
            (None, Some(source)) => (source, ("", "persistentvolumeclaims"), spec.child("pvcName")),
            (None, None) => return Ok(()),
        };
        if source.0.is_empty() || source.1.is_empty() {
            return Ok(());
        }
        let source = place(source.0, source.1);
        // Whoever has an image of a disk has all that is on it, secrets included, which who may look at its claim has not.
        let verb = if plural == IMAGES.1 { "get" } else { "update" };
        self.check_may(call, new, verb, (group, plural), &source)?;
        if self.cache.get(&Resource::new(group, plural), &source).is_some() {
            return Ok(());
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let errors = [FieldError::not_found(&at, source)];
        Err(ApiError::invalid(&call.served.kind.group, &call.served.kind.kind, name, &errors))
    }

    /// `namespace/name` of the image of another namespace that a claim is a copy of.
    fn foreign_image(&self, call: &Call<'_>, claim: &Value) -> Option<String> {
        let annotation = claim["metadata"]["annotations"][IMAGE_ANNOTATION].as_str().unwrap_or_default();
        let class = claim["spec"]["storageClassName"].as_str().unwrap_or_default();
        let of_class = match annotation.is_empty() && !class.is_empty() {
            true => self.image_of_class(call, class),
            false => String::new(),
        };
        let (namespace, name) = image_of(annotation, &of_class)?;
        (namespace != call.request.namespace).then(|| place(namespace, name))
    }

    /// What a class is for: as it says, or, before it is there, the image that it will come from.
    fn image_of_class(&self, call: &Call<'_>, class: &str) -> String {
        if let Some(class) =
            self.cache.get(&Resource::new("storage.k8s.io", "storageclasses"), &place("", class))
        {
            return class.to_value()["parameters"][IMAGE_PARAMETER].as_str().unwrap_or_default().to_owned();
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let images = self.all(IMAGES.0, IMAGES.1);
        let places = images
            .iter()
            .map(|image| &image["metadata"])
            .map(|it| (text(&it["namespace"]), text(&it["name"])));
        let mut places: Vec<_> = places.filter(|(_, name)| storage_class_name(name) == class).collect();
        // Of two that would have one class, one's own is meant.
        places.sort_by_key(|(namespace, _)| *namespace != call.request.namespace);
        places.first().map(|(namespace, name)| place(namespace, name)).unwrap_or_default()
    }

    fn check_may_read(&self, call: &Call<'_>, new: &Value, image: &str) -> Result<(), ApiError> {
        self.check_may(call, new, "get", IMAGES, image)
    }

    /// Whoever copies something must be allowed to have it: that is the same thing.
    fn check_may(
        &self,
        call: &Call<'_>,
        new: &Value,
        verb: &str,
        (group, resource): (&str, &str),
        source: &str,
    ) -> Result<(), ApiError> {
        let (namespace, name) = source.split_once('/').unwrap_or_default();
        let asked = Attributes { verb, group, resource, namespace, name, ..Attributes::default() };
        if self.authorizer.authorize(call.user, &asked).is_allowed() {
            return Ok(());
        }
        let what = if resource == IMAGES.1 { "image" } else { "the disk of claim" };
        let why = format!(
            "user {:?} may not copy {what} {source}: that takes the right to {verb} {} {name:?} in the namespace \
             {namespace:?}",
            call.user.name,
            Named { group, resource }
        );
        let written = new["metadata"]["name"].as_str().unwrap_or_default();
        Err(ApiError::refused(call.named(), written, why))
    }
}

/// The claims a machine brings along, as they are written. What cannot be read is refused by its kind.
fn templates_of(vm: &Value) -> Vec<Value> {
    let annotation = vm["metadata"]["annotations"][claim_templates::ANNOTATION].as_str().unwrap_or_default();
    serde_json::from_str(annotation).unwrap_or_default()
}
