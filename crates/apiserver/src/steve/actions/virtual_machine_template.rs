//! What leads on from a template: its versions. Versions themselves are not changed.

use async_trait::async_trait;
use serde_json::Value;
use sheaf_resources::kinds::virtual_machine_template_version::TEMPLATE_LABEL;

use super::{ActionCall, Look, Outcome, ResourceActions};
use crate::status::ApiError;

pub struct VirtualMachineTemplates;

#[async_trait]
impl ResourceActions for VirtualMachineTemplates {
    fn links(&self) -> &'static [&'static str] {
        &["versions"]
    }

    fn fitting(&self, _look: &Look, _template: &Value) -> Vec<&'static str> {
        Vec::new()
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        Err(ApiError::invalid_action(call.name))
    }

    async fn follow(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        Ok(Outcome::Collection {
            group: "harvesterhci.io",
            plural: "virtualmachinetemplateversions",
            namespace: call.namespace.to_owned(),
            label: (TEMPLATE_LABEL, call.object_name.to_owned()),
        })
    }
}

pub struct VirtualMachineTemplateVersions;

#[async_trait]
impl ResourceActions for VirtualMachineTemplateVersions {
    fn is_changed(&self) -> bool {
        false
    }

    fn fitting(&self, _look: &Look, _version: &Value) -> Vec<&'static str> {
        Vec::new()
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        Err(ApiError::invalid_action(call.name))
    }
}
