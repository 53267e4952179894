//! A picture of an instance's screen.

use http::Method;
use sheaf_resources::kinds::virtual_machine_instance::{VirtualMachineInstance, status::Phase};

use super::{MachineCall, instance::Place};
use crate::{
    ApiServer,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

impl ApiServer {
    pub(super) async fn screenshot(&self, call: &MachineCall<'_>) -> Result<ApiResponse, ApiError> {
        let instance = self.instance(call)?;
        may_be_watched(&instance)?;
        // A screen that went dark wakes when the pointer moves.
        let what = match call.query.get("moveCursor") {
            Some("true") => "screenshot?moveCursor=true",
            _ => "screenshot",
        };
        let image = self.ask_agent(&Place::of(&instance)?, Method::GET, what).await?;
        Ok(respond::bytes_of_type(success::OK, "image/png", image.body))
    }
}

/// An instance has a screen that can be looked at.
pub(super) fn may_be_watched(instance: &VirtualMachineInstance) -> Result<(), ApiError> {
    if instance.spec.domain.devices.autoattach_graphics_device == Some(false) {
        return Err(ApiError::bad_request("No graphics devices are present."));
    }
    if instance.status.phase != Phase::Running {
        return Err(ApiError::bad_request("VMI is not running"));
    }
    Ok(())
}
