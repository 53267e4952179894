//! What the node of a running instance is asked: orders and questions. Who may ask was decided; here it is
//! decided whether the instance can be asked now.

use http::Method;
use sheaf_planner::virtual_machine::power;
use sheaf_resources::kinds::virtual_machine_instance::{VirtualMachineInstance, status::Phase};

use super::{MachineCall, Order, Question, VMI, power::told};
use crate::{
    ApiServer,
    respond::{self, ApiResponse},
    status::{ApiError, success},
};

/// Where an instance runs.
pub(super) struct Place {
    pub node: String,
    pub uid: String,
    pub name: String,
}

impl Place {
    pub fn of(instance: &VirtualMachineInstance) -> Result<Place, ApiError> {
        let phase = instance.status.phase;
        if !matches!(phase, Phase::Running | Phase::Scheduled) || instance.status.node_name.is_empty() {
            return Err(ApiError::bad_request(format!(
                "Unable to connect to VirtualMachineInstance because phase is {} instead of Running or Scheduled",
                phase.as_str()
            )));
        }
        Ok(Place {
            node: instance.status.node_name.clone(),
            uid: instance.metadata.uid.clone().unwrap_or_default(),
            name: instance.metadata.name.clone().unwrap_or_default(),
        })
    }
}

impl ApiServer {
    pub(super) async fn give_order(
        &self,
        call: &MachineCall<'_>,
        order: Order,
    ) -> Result<ApiResponse, ApiError> {
        let instance = self.instance(call)?;
        let not_running = |why: &str| match instance.status.phase {
            Phase::Running => Ok(()),
            _ => Err(power::Refusal::Conflict(why.into())),
        };
        let (may, what) = match order {
            Order::Pause => (power::may_pause(&instance), "pause".to_owned()),
            Order::Unpause => {
                let vm = self.find_vm(call.namespace, call.name)?;
                (power::may_unpause(vm.as_ref(), &instance), "unpause".to_owned())
            }
            Order::Reset => (power::may_reset(&instance), "reset".to_owned()),
            Order::SoftReboot => (power::may_soft_reboot(&instance), "softreboot".to_owned()),
            Order::Freeze => {
                let what = match thaw_after_secs(call)? {
                    Some(seconds) => format!("freeze?unfreezeTimeoutSeconds={seconds}"),
                    None => "freeze".to_owned(),
                };
                (not_running("VM is not running"), what)
            }
            Order::Unfreeze => (not_running("VMI is not running"), "unfreeze".to_owned()),
        };
        may.map_err(|why| told(why, VMI, call.name))?;
        let at = Place::of(&instance)?;
        if !call.is_dry_run()? {
            self.ask_agent(&at, Method::PUT, &what).await?;
        }
        Ok(respond::nothing(success::OK))
    }

    pub(super) async fn ask_guest(
        &self,
        call: &MachineCall<'_>,
        question: Question,
    ) -> Result<ApiResponse, ApiError> {
        let instance = self.instance(call)?;
        power::may_ask_guest(&instance).map_err(|why| told(why, VMI, call.name))?;
        let what = match question {
            Question::GuestOsInfo => "guestosinfo",
            Question::UserList => "userlist",
            Question::FilesystemList => "filesystemlist",
        };
        self.ask_for_json(&Place::of(&instance)?, what).await
    }

    /// What an instance used in the last hour, as the agent of its node measured it. The guest is not asked.
    pub(super) async fn history(&self, call: &MachineCall<'_>) -> Result<ApiResponse, ApiError> {
        let instance = self.instance(call)?;
        self.ask_for_json(&Place::of(&instance)?, "history").await
    }

    async fn ask_for_json(&self, at: &Place, what: &str) -> Result<ApiResponse, ApiError> {
        let answer = self.ask_agent(at, Method::GET, what).await?;
        if answer.content_type.as_deref() != Some("application/json") {
            return Err(ApiError::internal("the agent's answer is not JSON"));
        }
        Ok(respond::json_bytes(success::OK, answer.body))
    }
}

/// `{"unfreezeTimeout": "5m0s"}`, in Go's words for a time.
fn thaw_after_secs(call: &MachineCall<'_>) -> Result<Option<u64>, ApiError> {
    let said = &call.body["unfreezeTimeout"];
    if said.is_null() {
        return Ok(None);
    }
    let seconds = said.as_str().and_then(go_duration_secs);
    let wrong = || ApiError::bad_request(format!("unfreezeTimeout {said} is not a time like 5m0s"));
    seconds.map(Some).ok_or_else(wrong)
}

/// Whole seconds of `1h2m3.5s`, rounded up; `None` if it is not of that form.
fn go_duration_secs(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let (length, factor) = match unit {
            _ if unit.starts_with("ms") => (2, 0.001),
            _ if unit.starts_with('h') => (1, 3600.0),
            _ if unit.starts_with('m') => (1, 60.0),
            _ if unit.starts_with('s') => (1, 1.0),
            _ => return None,
        };
        seconds += number * factor;
        rest = &unit[length..];
    }
    // Longer than a day is no pause any more.
    (seconds <= 86_400.0).then_some(seconds.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("5m0s", Some(300)),
            ("1h", Some(3600)),
            ("1500ms", Some(2)),
            ("0s", Some(0)),
            ("1m30s", Some(90)),
        ] {
            assert_eq!(go_duration_secs(text), seconds, "{text}");
        }
        for text in ["", "5", "s", "5x", "-5s", "1000h", "5m0"] {
            assert_eq!(go_duration_secs(text), None, "{text}");
        }
    }
}
