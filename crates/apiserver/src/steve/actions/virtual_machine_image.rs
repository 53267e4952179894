//! What is done with images: bytes are sent to one that waits for them.
//!
//! Only the offer is here. Bytes go to the image's node and not through the frame of actions, which reads its bodies whole:
//! see [`crate::virtual_machine_image`].

use async_trait::async_trait;
use serde_json::Value;
use sheaf_resources::kinds::virtual_machine_image::{IMPORTED, UPLOAD};

use super::{Action, ActionCall, Look, Outcome, ResourceActions};
use crate::{request::Verb, status::ApiError, steve::rights::Right};

static ACTIONS: &[Action] = &[Action {
    name: "upload",
    input: None,
    needs: &[Right::to(Verb::Update, "harvesterhci.io", "virtualmachineimages")],
}];

pub struct VirtualMachineImages;

#[async_trait]
impl ResourceActions for VirtualMachineImages {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, _look: &Look, image: &Value) -> Vec<&'static str> {
        let conditions = image["status"]["conditions"].as_array();
        let is_whole = |condition: &Value| condition["type"] == IMPORTED && condition["status"] == "True";
        let is_imported = conditions.into_iter().flatten().any(is_whole);
        if image["spec"]["sourceType"] == UPLOAD && !is_imported { vec!["upload"] } else { Vec::new() }
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        Err(ApiError::invalid_action(call.name))
    }
}
