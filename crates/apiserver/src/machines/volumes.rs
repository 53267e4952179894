//! Volumes that are asked for and asked away: of a machine, which has them from then on, or of its instance alone, which has
//! them until it ends. What becomes of the spec is the planner's to decide; the node of a running machine does the rest.

use serde_json::{Value, json};
use sheaf_planner::virtual_machine::{power::Refusal, volumes::VolumeChange};
use sheaf_resources::kinds::virtual_machine_instance::{
    EPHEMERAL_VOLUMES_ANNOTATION, VirtualMachineInstance, spec::VirtualMachineInstanceSpec, status::Phase,
};

use super::{
    MachineCall, VM, VMI,
    power::{Place, accepted, own_user, told},
};
use crate::{
    ApiServer,
    respond::ApiResponse,
    rest::update::Part,
    status::{ApiError, Named},
};

impl ApiServer {
    pub(super) async fn change_volumes(
        &self,
        call: &MachineCall<'_>,
        comes: bool,
        of_vm: bool,
    ) -> Result<ApiResponse, ApiError> {
        let change = read(&call.body, comes)?;
        let dry_run = call.is_dry_run()?;
        let what = if of_vm { VM } else { VMI };
        change.check().map_err(|why| told(why, what, call.name))?;
        let target = |plural| Place { plural, namespace: call.namespace, name: call.name, part: Part::Main };
        match of_vm {
            true => {
                let changed = |vm: &Value| change_vm(call, &change, vm);
                self.try_to_write_machine(&target("virtualmachines"), call.user, dry_run, changed).await
            }
            // An instance's spec is the cluster's to write; who may ask for this was decided.
            false => {
                let changed = |instance: &Value| change_instance(call, &change, instance);
                let target = target("virtualmachineinstances");
                self.try_to_write_machine(&target, &own_user(), dry_run, changed).await
            }
        }
        .map_err(|why| if why.is_not_found() { ApiError::not_found(what, call.name) } else { why })?;
        Ok(accepted())
    }
}

fn read(body: &Value, comes: bool) -> Result<VolumeChange, ApiError> {
    let unreadable = |why: serde_json::Error| {
        ApiError::bad_request(format!("Can not unmarshal Request body to struct, error: {why}"))
    };
    if !body["volumeSource"]["dataVolume"].is_null() {
        return Err(ApiError::bad_request(
            "a DataVolume is not supported by Sheaf yet: name its claim in persistentVolumeClaim",
        ));
    }
    Ok(match comes {
        true => VolumeChange::Add(serde_json::from_value(body.clone()).map_err(unreadable)?),
        false => VolumeChange::Remove(serde_json::from_value(body.clone()).map_err(unreadable)?),
    })
}

fn change_vm(call: &MachineCall<'_>, change: &VolumeChange, vm: &Value) -> Result<Value, ApiError> {
    let mut new = vm.clone();
    apply(change, &mut new["spec"]["template"]["spec"], VM, call.name)?;
    Ok(new)
}

fn change_instance(
    call: &MachineCall<'_>,
    change: &VolumeChange,
    instance: &Value,
) -> Result<Value, ApiError> {
    let read: VirtualMachineInstance =
        serde_json::from_value(instance.clone()).map_err(ApiError::internal)?;
    if read.status.phase != Phase::Running {
        return Err(told(Refusal::Conflict("VMI is not running".into()), VMI, call.name));
    }
    let mut new = instance.clone();
    let mut ephemeral = read.ephemeral_volumes();
    let name = change.volume(&read.spec).unwrap_or_default();
    ephemeral.retain(|known| known != name);
    if let VolumeChange::Add(_) = change {
        ephemeral.push(name.to_owned());
    }
    apply(change, &mut new["spec"], VMI, call.name)?;
    let annotations = &mut new["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        match ephemeral.is_empty() {
            true => annotations.remove(EPHEMERAL_VOLUMES_ANNOTATION),
            false => {
                annotations.insert(EPHEMERAL_VOLUMES_ANNOTATION.into(), json!(ephemeral).to_string().into())
            }
        };
    }
    Ok(new)
}

fn apply(change: &VolumeChange, spec: &mut Value, what: Named<'_>, name: &str) -> Result<(), ApiError> {
    let mut read = VirtualMachineInstanceSpec::deserialize_from(spec).map_err(ApiError::internal)?;
    change.apply(&mut read).map_err(|why| told(why, what, name))?;
    let changed = serde_json::to_value(&read).map_err(ApiError::internal)?;
    // What this version does not know of the rest stays as it is. An empty list is there: clients add to its end.
    let list = |value: &Value| if value.is_array() { value.clone() } else { json!([]) };
    spec["volumes"] = list(&changed["volumes"]);
    if !spec["domain"]["devices"].is_object() {
        spec["domain"]["devices"] = json!({});
    }
    spec["domain"]["devices"]["disks"] = list(&changed["domain"]["devices"]["disks"]);
    Ok(())
}
