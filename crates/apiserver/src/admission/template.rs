//! Templates of machines and their versions: a version is of a template that is there, names what is there and may be read,
//! and the one that is meant stays.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::virtual_machine_template_version::{self, VirtualMachineTemplateVersion},
    object_meta,
    rbac::{self, Attributes},
};

use super::made_of;
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::{ApiError, Named},
};

const HARVESTER: &str = "harvesterhci.io";
const TEMPLATES: &str = "virtualmachinetemplates";
const VERSIONS: &str = "virtualmachinetemplateversions";
const IMAGES: &str = "virtualmachineimages";
const KEY_PAIRS: &str = "keypairs";

impl ApiServer {
    /// The version that is meant is one of this template's.
    pub(super) async fn admit_template(
        &self,
        call: &Call<'_>,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        self.admit_made_of(call, new, old).await?;
        let id = text(&new["spec"]["defaultVersionId"]);
        if id.is_empty() || old.is_some_and(|old| old["spec"]["defaultVersionId"] == id) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let own = place(&call.request.namespace, text(&new["metadata"]["name"]));
        let version = self.cache.get(&Resource::new(HARVESTER, VERSIONS), id).map(|found| found.to_value());
        // Where it is named at all is checked by the kind.
        match version {
            Some(version) if version["spec"]["templateId"] == own.as_str() => Ok(()),
            _ => {
                let at = FieldPath::new("spec").child("defaultVersionId");
                let why = format!("there is no version {id} of the template {own}");
                Err(invalid(call, new, FieldError::invalid(&at, id, why)))
            }
        }
    }

    pub(super) async fn admit_template_version(
        &self,
        call: &Call<'_>,
        new: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        made_of::keep_to_copy(call, new, old)?;
        // What makes no sense at all is refused, in its own words, by its kind.
        let Ok(typed) = serde_json::from_value::<VirtualMachineTemplateVersion>(new.clone()) else {
            return Ok(());
        };
        let Some((namespace, name)) =
            typed.template().filter(|(namespace, _)| *namespace == call.request.namespace)
        else {
            return Ok(());
        };
        if old.is_none() {
            self.reach(Freshness::Latest).await?;
        }
        let template = self.cache.get(&Resource::new(HARVESTER, TEMPLATES), &place(namespace, name));
        let template = template.map(|found| found.to_value());
        match (&template, old) {
            (Some(template), None) if object_meta::is_being_deleted(template) => {
                let why = format!("the template {name} is being deleted");
                let at = FieldPath::new("spec").child("templateId");
                return Err(invalid(
                    call,
                    new,
                    FieldError::invalid(&at, typed.spec.template_id.as_str(), why),
                ));
            }
            // Whoever removes it settles what becomes of its versions.
            (Some(template), Some(_)) if object_meta::is_being_deleted(template) => {}
            // Left behind by another template of that name, and not this one's because of that.
            (Some(template), Some(old)) if !is_owned(old, template) => {}
            (Some(template), _) => virtual_machine_template_version::complete(new, template),
            (None, None) => {
                let at = FieldPath::new("spec").child("templateId");
                let why = format!("{TEMPLATES}.{HARVESTER} {name:?} not found");
                return Err(invalid(
                    call,
                    new,
                    FieldError::invalid(&at, typed.spec.template_id.as_str(), why),
                ));
            }
            // It goes with its template.
            (None, Some(_)) => {}
        }
        match old {
            None => self.check_names(call, new, &typed),
            Some(_) => Ok(()),
        }
    }

    /// What a version names may be read by who names it: its condition says how that stands.
    fn check_names(
        &self,
        call: &Call<'_>,
        new: &Value,
        version: &VirtualMachineTemplateVersion,
    ) -> Result<(), ApiError> {
        // Controllers make what somebody else was asked about already.
        if !super::speaks_for_the_cluster(call.user) {
            for image in version.images() {
                self.check_may_get(call, new, IMAGES, &image)?;
            }
            for key in &version.spec.key_pair_ids {
                self.check_may_get(call, new, KEY_PAIRS, key)?;
            }
        }
        let spec = FieldPath::new("spec");
        let image = [(spec.child("imageId"), IMAGES, version.spec.image_id.as_str())];
        let keys = version.spec.key_pair_ids.iter().enumerate();
        let keys = keys.map(|(n, key)| (spec.child("keyPairIds").index(n), KEY_PAIRS, key.as_str()));
        for (at, plural, id) in image.into_iter().chain(keys) {
            // One that is no name of anything is refused by the kind.
            if id.contains('/') && self.cache.get(&Resource::new(HARVESTER, plural), id).is_none() {
                let why = format!("{plural}.{HARVESTER} {id:?} not found");
                return Err(invalid(call, new, FieldError::invalid(&at, id, why)));
            }
        }
        Ok(())
    }

    fn check_may_get(&self, call: &Call<'_>, new: &Value, resource: &str, id: &str) -> Result<(), ApiError> {
        let (namespace, name) = id.split_once('/').unwrap_or_default();
        let asked =
            Attributes { verb: "get", group: HARVESTER, resource, namespace, name, ..Attributes::default() };
        if self.authorizer.authorize(call.user, &asked).is_allowed() {
            return Ok(());
        }
        let why = format!(
            "user {:?} may not name {id}: that takes the right to get {} {name:?} in the namespace {namespace:?}",
            call.user.name,
            Named { group: HARVESTER, resource }
        );
        Err(ApiError::refused(call.named(), text(&new["metadata"]["name"]), why))
    }

    /// The version that is meant when none is said goes with its template only.
    pub(super) async fn admit_template_version_deletion(
        &self,
        call: &Call<'_>,
        old: &Value,
    ) -> Result<(), ApiError> {
        let collected = call.user.name == rbac::controller_user("garbage-collection");
        if collected || self.is_being_emptied(call) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let template = self.cache.get(&Resource::new(HARVESTER, TEMPLATES), text(&old["spec"]["templateId"]));
        let template = template.map(|found| found.to_value()).unwrap_or_default();
        let own = place(&call.request.namespace, text(&old["metadata"]["name"]));
        if template["spec"]["defaultVersionId"] != own.as_str() || object_meta::is_being_deleted(&template) {
            return Ok(());
        }
        Err(ApiError::bad_request("Cannot delete the default templateVersion"))
    }

    /// A version without its image could not be used.
    pub(super) fn admit_deletion_of_image_in_versions(
        &self,
        call: &Call<'_>,
        image: &Value,
    ) -> Result<(), ApiError> {
        if self.is_being_emptied(call) {
            return Ok(());
        }
        let (namespace, name) = (text(&image["metadata"]["namespace"]), text(&image["metadata"]["name"]));
        let id = place(namespace, name);
        let uses = |version: &Value| {
            let typed = serde_json::from_value::<VirtualMachineTemplateVersion>(version.clone());
            typed.is_ok_and(|version| version.images().contains(&id))
        };
        let versions = self.all(HARVESTER, VERSIONS);
        match versions.iter().find(|version| !object_meta::is_being_deleted(version) && uses(version)) {
            None => Ok(()),
            Some(version) => {
                let metadata = &version["metadata"];
                let version = place(text(&metadata["namespace"]), text(&metadata["name"]));
                let shown = text(&image["spec"]["displayName"]);
                Err(ApiError::unprocessable(format!(
                    "Cannot delete image {namespace}/{shown}: being used by VMTemplateVersion {version}"
                )))
            }
        }
    }
}

fn is_owned(version: &Value, template: &Value) -> bool {
    let mut owners = version["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| owner["uid"] == template["metadata"]["uid"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn invalid(call: &Call<'_>, new: &Value, error: FieldError) -> ApiError {
    let kind = &call.served.kind;
    ApiError::invalid(&kind.group, &kind.kind, text(&new["metadata"]["name"]), &[error])
}
