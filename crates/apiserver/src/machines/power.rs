//! Start, stop and restart: the planner decides, and what it decided is written on the condition that the machine
//! is still as it was when that was decided.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};
use sheaf_planner::virtual_machine::power::{self, Change, Refusal};
use sheaf_resources::kinds::{
    virtual_machine::VirtualMachine, virtual_machine_instance::VirtualMachineInstance,
};

use super::{KUBEVIRT, MachineCall, Power, VM};
use crate::{
    ApiServer,
    identity::{MASTERS, User},
    registry::Served,
    request::{Query, ResourceRequest, Verb},
    respond::{self, ApiResponse, Warnings},
    rest::{
        Call,
        options::Freshness,
        update::{Part, version_of},
        write::Written,
    },
    status::{ApiError, Named, success},
};

/// How often a decision is made anew because somebody changed the machine meanwhile.
const ATTEMPTS: usize = 16;

/// As whom the server writes what no person may write by hand.
const OWN_USER: &str = "system:sheaf:apiserver";

impl ApiServer {
    pub(super) async fn change_power(
        &self,
        call: &MachineCall<'_>,
        asked: Power,
    ) -> Result<ApiResponse, ApiError> {
        let mut shortened = None;
        let changed = self.try_to_change_power(call, asked, &mut shortened).await;
        if changed.is_err()
            && let Some(shortened) = shortened
        {
            // It goes on running, and is owed the time it had when somebody else stops it one day.
            self.set_grace_period(call, &shortened, Some(shortened.to), shortened.from).await?;
        }
        changed
    }

    async fn try_to_change_power(
        &self,
        call: &MachineCall<'_>,
        asked: Power,
        shortened: &mut Option<Shortened>,
    ) -> Result<ApiResponse, ApiError> {
        let dry_run = call.is_dry_run()?;
        for _ in 0..ATTEMPTS {
            let (vm, version) = self.vm_as_it_is(call)?;
            let mut instance = self.find_instance(call.namespace, call.name)?;
            // A second decision must not take our own change for somebody else's.
            if let (Some(instance), Some(shortened)) = (&mut instance, shortened.as_ref())
                && instance.metadata.uid == shortened.uid
            {
                instance.spec.termination_grace_period_seconds = shortened.from;
            }
            let change = decide(call, asked, &vm, instance.as_ref())?;
            if dry_run {
                return Ok(accepted());
            }
            if let (Some(to), Some(instance), None) =
                (change.grace_period_secs, &instance, shortened.as_ref())
            {
                let from = instance.spec.termination_grace_period_seconds;
                let wanted = shortened.insert(Shortened { uid: instance.metadata.uid.clone(), from, to });
                self.set_grace_period(call, wanted, wanted.from, Some(wanted.to)).await?;
            }
            if self.write_change(call, &version, &change).await? {
                return Ok(accepted());
            }
            self.reach(Freshness::Latest).await?;
        }
        Err(ApiError::conflict(VM, call.name, "it is being changed by others all the time; try again"))
    }

    fn vm_as_it_is(&self, call: &MachineCall<'_>) -> Result<(VirtualMachine, String), ApiError> {
        let value = self
            .object("virtualmachines", call.namespace, call.name)
            .ok_or_else(|| ApiError::not_found(VM, call.name))?;
        let version = version_of(&value).to_owned();
        Ok((serde_json::from_value(value).map_err(ApiError::internal)?, version))
    }

    /// Whether the machine was still as the decision found it, and is now as decided.
    async fn write_change(
        &self,
        call: &MachineCall<'_>,
        version: &str,
        change: &Change,
    ) -> Result<bool, ApiError> {
        let mut version = version.to_owned();
        if let Some(strategy) = change.run_strategy {
            let change = |vm: &mut Value| {
                vm["spec"]["runStrategy"] = strategy.as_str().into();
                vm["spec"].as_object_mut().map(|spec| spec.remove("running"));
            };
            match self.write_vm(call, Part::Main, &version, change).await? {
                Some(now) => version = now,
                None => return Ok(false),
            }
        }
        if let Some(requests) = &change.requests {
            let requests = serde_json::to_value(requests).map_err(ApiError::internal)?;
            let change = |vm: &mut Value| {
                if !vm["status"].is_object() {
                    vm["status"] = json!({});
                }
                vm["status"]["stateChangeRequests"] = requests.clone();
                // Who asks by hand does not wait for the next try.
                vm["status"].as_object_mut().map(|status| status.remove("startFailure"));
            };
            return Ok(self.write_vm(call, Part::Status, &version, change).await?.is_some());
        }
        Ok(true)
    }

    /// The version that was written, or `None` if the machine was not at `version` any more.
    async fn write_vm(
        &self,
        call: &MachineCall<'_>,
        part: Part,
        version: &str,
        change: impl Fn(&mut Value),
    ) -> Result<Option<String>, ApiError> {
        // What a person asks for they write themselves; how it stands is the cluster's to write.
        let user = if part == Part::Main { call.user.clone() } else { own_user() };
        let target = Place { plural: "virtualmachines", namespace: call.namespace, name: call.name, part };
        let written = self
            .write_machine(&target, &user, |current| {
                if version_of(current) != version {
                    return Err(ApiError::stale(VM, call.name));
                }
                let mut new = current.clone();
                change(&mut new);
                Ok(new)
            })
            .await;
        match written {
            Ok(version) => Ok(Some(version)),
            Err(why) if why.is_conflict() => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Writes `to` where `from` stands.
    async fn set_grace_period(
        &self,
        call: &MachineCall<'_>,
        shortened: &Shortened,
        from: Option<i64>,
        to: Option<i64>,
    ) -> Result<(), ApiError> {
        let uid = shortened.uid.as_deref().unwrap_or_default();
        let target = Place {
            plural: "virtualmachineinstances",
            namespace: call.namespace,
            name: call.name,
            part: Part::Main,
        };
        let written = self
            .write_machine(&target, &own_user(), |current| {
                let mut new = current.clone();
                // Another instance of the same name was not meant, nor what somebody else chose meanwhile.
                let stands = &current["spec"]["terminationGracePeriodSeconds"];
                if current["metadata"]["uid"] == uid && *stands == json!(from) {
                    new["spec"]["terminationGracePeriodSeconds"] = json!(to);
                }
                Ok(new)
            })
            .await;
        match written {
            // It is gone, which is what a stop is for.
            Err(why) if why.is_not_found() => Ok(()),
            written => written.map(drop),
        }
    }

    /// Changes one object as an ordinary update would; answers its version then.
    pub(super) async fn write_machine(
        &self,
        target: &Place<'_>,
        user: &Arc<User>,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<String, ApiError> {
        self.try_to_write_machine(target, user, false, change).await
    }

    /// The same, or only what would come of it.
    pub(super) async fn try_to_write_machine(
        &self,
        target: &Place<'_>,
        user: &Arc<User>,
        dry_run: bool,
        change: impl Fn(&Value) -> Result<Value, ApiError>,
    ) -> Result<String, ApiError> {
        let served = self.served_machine(target.plural)?;
        let request = ResourceRequest {
            verb: Verb::Update,
            group: KUBEVIRT.into(),
            version: "v1".into(),
            resource: target.plural.into(),
            subresource: if target.part == Part::Status { "status".into() } else { String::new() },
            namespace: target.namespace.into(),
            name: target.name.into(),
        };
        let (query, headers, warnings) = (Query::default(), HeaderMap::new(), Warnings::default());
        let call = Call {
            served: &served,
            request: &request,
            query: &query,
            headers: &headers,
            body: bytes::Bytes::new(),
            user,
            seat: None,
            warnings: &warnings,
        };
        match self.modify(&call, target.part, dry_run, change).await? {
            Written::Stored(object) => Ok(object.revision.to_string()),
            Written::Imagined(object) => Ok(version_of(&object).to_owned()),
        }
    }

    fn served_machine(&self, plural: &str) -> Result<Arc<Served>, ApiError> {
        let catalogue = self.registry.catalogue();
        let served = catalogue.find(KUBEVIRT, "v1", plural).cloned();
        served.ok_or_else(|| ApiError::not_found(Named { group: KUBEVIRT, resource: plural }, ""))
    }
}

/// The grace period of an instance, as it was and as this request made it.
struct Shortened {
    uid: Option<String>,
    from: Option<i64>,
    to: i64,
}

/// Which object is written, and which part of it.
pub(super) struct Place<'a> {
    pub plural: &'static str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub part: Part,
}

fn decide(
    call: &MachineCall<'_>,
    asked: Power,
    vm: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
) -> Result<Change, ApiError> {
    let decided = match asked {
        Power::Start => {
            let paused = call.body["paused"].as_bool().unwrap_or(false);
            power::start(vm, instance, paused)
        }
        Power::Stop => power::stop(vm, instance, call.whole_number("gracePeriod")?),
        Power::Restart => power::restart(vm, instance, call.whole_number("gracePeriodSeconds")?),
    };
    decided.map_err(|why| told(why, VM, call.name))
}

/// What the planner refused, in the API's words.
pub(super) fn told(why: Refusal, what: Named<'_>, name: &str) -> ApiError {
    match why {
        Refusal::Conflict(why) => ApiError::conflict(what, name, why),
        Refusal::BadRequest(why) => ApiError::bad_request(why),
        Refusal::Forbidden(why) => ApiError::refused(what, name, why),
        Refusal::Underway(why) => ApiError::internal(why),
    }
}

pub(super) fn own_user() -> Arc<User> {
    Arc::new(User { name: OWN_USER.into(), groups: vec![MASTERS.into()], ..User::default() })
}

pub(super) fn accepted() -> ApiResponse {
    respond::nothing(success::ACCEPTED)
}
