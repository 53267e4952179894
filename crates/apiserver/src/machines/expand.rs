//! A VirtualMachine with everything written out that it only refers to: what instance types and preferences say. There
//! are none of either here, so what refers to nothing is whole already, and what refers to one is refused.

use serde_json::Value;
use sheaf_resources::kinds::virtual_machine::VirtualMachine;

use super::{KUBEVIRT, MachineCall, VM};
use crate::{
    ApiServer, negotiate,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

impl ApiServer {
    /// One that there is.
    pub(super) fn expanded(&self, call: &MachineCall<'_>) -> Result<ApiResponse, ApiError> {
        let vm = self
            .object("virtualmachines", call.namespace, call.name)
            .ok_or_else(|| ApiError::not_found(VM, call.name))?;
        answer(call, &vm)
    }

    /// One that was sent, and that there need not be. Nothing is written.
    pub(super) fn expand_sent(&self, call: &MachineCall<'_>) -> Result<ApiResponse, ApiError> {
        let mut vm = call.body.clone();
        if vm["kind"] != "VirtualMachine" || vm["apiVersion"] != format!("{KUBEVIRT}/v1") {
            return Err(invalid(&"it is of another kind"));
        }
        match vm["metadata"]["namespace"].as_str().unwrap_or_default() {
            "" => {}
            named if named == call.namespace => {}
            _ => {
                let why = format!("VM namespace must be empty or {}", call.namespace);
                return Err(ApiError::bad_request(why));
            }
        }
        for (field, what) in [("instancetype", "instance types"), ("preference", "preferences")] {
            if !vm["spec"][field].is_null() {
                return Err(ApiError::bad_request(format!(
                    "spec.{field} refers to what is not served yet: there are no {what}; write processors and memory into the machine itself"
                )));
            }
        }
        serde_json::from_value::<VirtualMachine>(vm.clone()).map_err(|why| invalid(&why))?;
        if !vm["metadata"].is_object() {
            return Err(invalid(&"it has no metadata"));
        }
        vm["metadata"]["namespace"] = call.namespace.into();
        answer(call, &vm)
    }
}

fn answer(call: &MachineCall<'_>, vm: &Value) -> Result<ApiResponse, ApiError> {
    Ok(respond::value(success::OK, negotiate::format(&call.parts.headers)?, vm))
}

fn invalid(why: &dyn std::fmt::Display) -> ApiError {
    ApiError::bad_request(format!("Object is not a valid VirtualMachine: {why}"))
}
