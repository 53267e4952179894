//! What is done with virtual machines.
//!
//! | action | becomes |
//! |---|---|
//! | start, restart, forceStop, pause, unpause, softreboot | the subresource of that name |
//! | stop, ejectCdRom(Volume), insertCdRomVolume, addVolume, removeVolume, addNic, removeNic, cpuAndMemoryHotplug | one update of the machine |
//! | clone | a VirtualMachineClone, whose controller makes the machine and its disks |
//! | restore | a VirtualMachineRestore |
//! | createTemplate | a VirtualMachineTemplate that says what it is made of, whose controller makes its version |
//! | updateResourceQuota, deleteResourceQuota | a change of the ResourceQuota of the namespace |
//! | snapshot | nothing: clients make a VirtualMachineBackup themselves, and ask only whether they can |
//!
//! Deliberately absent, with nothing behind it on one node: migration, backups to elsewhere, storage migration.

mod create_template;

use async_trait::async_trait;
use serde_json::{Value, json};
use sheaf_planner::virtual_machine::{
    edits,
    offered::{self, Action as Offer, INSUFFICIENT_QUOTA_ANNOTATION, Instance, Seen},
    power::Refusal,
    volumes::VolumeChange,
};
use sheaf_resources::kinds::{
    persistent_volume_claim::IMAGE_ANNOTATION,
    virtual_machine::{REMOVED_CLAIMS_ANNOTATION, VirtualMachine, run_strategy::RunStrategy},
    virtual_machine_clone::RUN_STRATEGY_ANNOTATION,
    virtual_machine_instance::{VirtualMachineInstance, spec::VirtualMachineInstanceSpec},
    virtual_machine_restore::RETAIN,
    virtual_machine_template::made_of::secrets_of,
};

use super::{Action, ActionCall, Input, Look, Outcome, ResourceActions, snapshot_quota};
use crate::{
    request::Verb,
    status::{ApiError, Named},
    steve::{
        errand::{Errand, JSON, MERGE_PATCH},
        rights::Right,
    },
};

const KUBEVIRT: &str = "kubevirt.io";
const SUBRESOURCES: &str = "subresources.kubevirt.io";
const HARVESTER: &str = "harvesterhci.io";
const CLONE: &str = "clone.kubevirt.io";
const VMS: &str = "virtualmachines";
const VMIS: &str = "virtualmachineinstances";
const VM: Named<'static> = Named { group: KUBEVIRT, resource: "virtualmachine" };
/// How often a change is made anew because somebody else was faster.
const ATTEMPTS: usize = 8;
/// On a claim that is an image itself.
const GOLDEN_ANNOTATION: &str = "harvesterhci.io/goldenImage";
const GIB: i64 = 1 << 30;

const UPDATE: Right = Right::to(Verb::Update, KUBEVIRT, VMS);
const OF_MACHINE: Right = Right::to(Verb::Update, SUBRESOURCES, VMS);
const OF_INSTANCE: Right = Right::to(Verb::Update, SUBRESOURCES, VMIS);
const GET_CLAIM: Right = Right::to(Verb::Get, "", "persistentvolumeclaims");

const fn input(schema: &'static str, fields: &'static [(&'static str, &'static str)]) -> Option<Input> {
    Some(Input { schema, fields })
}

const fn action(offer: Offer, input: Option<Input>, needs: &'static [Right]) -> Action {
    Action { name: offer.as_str(), input, needs }
}

static ACTIONS: &[Action] = &[
    action(Offer::Start, None, &[OF_MACHINE.of_subresource("start")]),
    action(Offer::Stop, None, &[UPDATE]),
    action(Offer::ForceStop, None, &[OF_MACHINE.of_subresource("stop")]),
    action(Offer::Restart, None, &[OF_MACHINE.of_subresource("restart")]),
    action(Offer::Pause, None, &[OF_INSTANCE.of_subresource("pause")]),
    action(Offer::Unpause, None, &[OF_INSTANCE.of_subresource("unpause")]),
    action(Offer::SoftReboot, None, &[OF_INSTANCE.of_subresource("softreboot")]),
    action(
        Offer::EjectCdRom,
        input("ejectCdRomActionInput", &[("diskNames", "array[string]")]),
        &[UPDATE, OF_MACHINE.of_subresource("restart")],
    ),
    action(
        Offer::InsertCdRomVolume,
        input("insertCdRomVolumeActionInput", &[("deviceName", "string"), ("imageName", "string")]),
        &[UPDATE],
    ),
    action(
        Offer::EjectCdRomVolume,
        input("ejectCdRomVolumeActionInput", &[("deviceName", "string")]),
        &[UPDATE, Right::to(Verb::Delete, "", "persistentvolumeclaims")],
    ),
    action(
        Offer::AddVolume,
        input("addVolumeInput", &[("diskName", "string"), ("volumeSourceName", "string")]),
        &[UPDATE, GET_CLAIM],
    ),
    action(Offer::RemoveVolume, input("removeVolumeInput", &[("diskName", "string")]), &[UPDATE]),
    action(
        Offer::AddNic,
        input(
            "addNicInput",
            &[("interfaceName", "string"), ("networkName", "string"), ("macAddress", "string")],
        ),
        &[UPDATE],
    ),
    action(Offer::RemoveNic, input("removeNicInput", &[("interfaceName", "string")]), &[UPDATE]),
    action(Offer::FindHotunpluggableNics, None, &[UPDATE]),
    action(
        Offer::CpuAndMemoryHotplug,
        input("cpuAndMemoryHotplugInput", &[("sockets", "int"), ("memory", "string")]),
        &[UPDATE],
    ),
    action(
        Offer::Clone,
        input("cloneInput", &[("targetVm", "string"), ("runStrategy", "string")]),
        &[Right::to(Verb::Create, CLONE, "virtualmachineclones"), Right::to(Verb::Create, KUBEVIRT, VMS)],
    ),
    action(
        Offer::CreateTemplate,
        input(
            "createTemplateInput",
            &[("name", "string"), ("description", "string"), ("withData", "boolean")],
        ),
        &[
            Right::to(Verb::Create, HARVESTER, "virtualmachinetemplates"),
            Right::to(Verb::Create, HARVESTER, "virtualmachinetemplateversions"),
        ],
    ),
    action(Offer::Snapshot, None, &[Right::to(Verb::Create, HARVESTER, "virtualmachinebackups")]),
    action(
        Offer::Restore,
        input("restoreInput", &[("name", "string"), ("backupName", "string")]),
        &[Right::to(Verb::Create, HARVESTER, "virtualmachinerestores"), UPDATE],
    ),
    action(Offer::DismissInsufficientResourceQuota, None, &[UPDATE]),
    snapshot_quota::ACTIONS[0],
    snapshot_quota::ACTIONS[1],
];

pub struct VirtualMachines;

#[async_trait]
impl ResourceActions for VirtualMachines {
    fn of_object(&self) -> &'static [Action] {
        ACTIONS
    }

    fn fitting(&self, look: &Look, object: &Value) -> Vec<&'static str> {
        let Some(vm) = machine_in(object) else { return Vec::new() };
        let mut offers = sensible(look, object, &vm);
        // What is made of it has its Secrets, too.
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        if !secrets_of(&vm).iter().all(|secret| look.may_get("", "secrets", namespace, secret)) {
            offers.retain(|offer| !matches!(offer, Offer::Clone | Offer::CreateTemplate));
        }
        offers.into_iter().map(Offer::as_str).collect()
    }

    async fn act(&self, call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
        let offer = Offer::parse(call.name).ok_or_else(|| ApiError::invalid_action(call.name))?;
        match offer {
            Offer::Start => subresource(call, VMS, "start", json!({})).await,
            Offer::Restart => subresource(call, VMS, "restart", json!({})).await,
            Offer::ForceStop => force_stop(call).await,
            Offer::Pause => subresource(call, VMIS, "pause", json!({})).await,
            Offer::Unpause => subresource(call, VMIS, "unpause", json!({})).await,
            Offer::SoftReboot => subresource(call, VMIS, "softreboot", json!({})).await,
            Offer::Stop => change(call, halt).await,
            Offer::EjectCdRom => Box::pin(eject_cd_rom(call)).await,
            Offer::InsertCdRomVolume => Box::pin(insert_cd_rom_volume(call)).await,
            Offer::EjectCdRomVolume => Box::pin(eject_cd_rom_volume(call)).await,
            Offer::AddVolume => Box::pin(add_volume(call)).await,
            Offer::RemoveVolume => Box::pin(remove_volume(call)).await,
            Offer::AddNic => {
                let (name, network) = (call.required("interfaceName")?, call.required("networkName")?);
                let address = call.text("macAddress")?;
                change(call, |vm| edits::add_nic(vm, name, network, address)).await
            }
            Offer::RemoveNic => Box::pin(remove_nic(call)).await,
            Offer::FindHotunpluggableNics => {
                let vm: VirtualMachine = typed(call.object)?;
                Ok(Outcome::Answer(json!({"interfaces": offered::hot_unpluggable(&vm)})))
            }
            Offer::CpuAndMemoryHotplug => Box::pin(grow(call)).await,
            Offer::Clone => Box::pin(clone(call)).await,
            Offer::CreateTemplate => {
                let vm = machine_in(call.object);
                if !vm.is_some_and(|vm| sensible(call.look, call.object, &vm).contains(&offer)) {
                    let why = "no template is made of a machine that is just coming up or going down";
                    return Err(ApiError::unprocessable(why));
                }
                Box::pin(create_template::create_template(call)).await
            }
            Offer::Snapshot => Ok(Outcome::Done),
            Offer::UpdateResourceQuota | Offer::DeleteResourceQuota => {
                let limit =
                    |bytes: Option<i64>| json!({"vmTotalSnapshotSizeQuota": {call.object_name: bytes}});
                snapshot_quota::act(call, call.namespace, limit).await
            }
            Offer::Restore => Box::pin(restore(call)).await,
            Offer::DismissInsufficientResourceQuota => {
                let dismiss = |vm: &mut Value| {
                    if let Some(Value::Object(annotations)) = vm.pointer_mut("/metadata/annotations") {
                        annotations.remove(INSUFFICIENT_QUOTA_ANNOTATION);
                    }
                    Ok(())
                };
                change(call, dismiss).await
            }
        }
    }

    /// Notes which claims go with the machine: those of the disks that were named, and no others, also not those of a
    /// deletion before this one that came to nothing.
    async fn before_delete(&self, call: &ActionCall<'_>) -> Result<(), ApiError> {
        if call.query.get("dryRun").is_some_and(|said| !said.is_empty()) {
            return Ok(());
        }
        let named: Vec<&str> = call.query.all("removedDisks").filter(|name| !name.is_empty()).collect();
        let vm = match call.look.get(KUBEVIRT, VMS, call.namespace, call.object_name) {
            // Nothing is named and nothing noted: the usual.
            Some(vm) if named.is_empty() && noted(&vm).is_null() => return Ok(()),
            _ => call.errands.ask(&machine(call, Verb::Get)).await?,
        };
        if named.is_empty() && noted(&vm).is_null() {
            return Ok(());
        }
        let volumes = vm.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        let mut claims = Vec::new();
        for volume in volumes.into_iter().flatten() {
            let claim = volume["persistentVolumeClaim"]["claimName"].as_str();
            let is_named = volume["name"].as_str().is_some_and(|name| named.contains(&name));
            let Some(claim) = claim.filter(|_| is_named) else { continue };
            // What is an image is the image's to delete.
            let found = call.look.get("", "persistentvolumeclaims", call.namespace, claim);
            let annotations = found.map(|claim| claim["metadata"]["annotations"].clone()).unwrap_or_default();
            if annotations[GOLDEN_ANNOTATION] != "true" {
                claims.push(claim.to_owned());
            }
        }
        let claims = if claims.is_empty() { Value::Null } else { claims.join(",").into() };
        let note = json!({"metadata": {"annotations": {REMOVED_CLAIMS_ANNOTATION: claims}}});
        call.errands.ask(&machine(call, Verb::Patch).with(MERGE_PATCH, note)).await.map(drop)
    }
}

fn machine_in(object: &Value) -> Option<VirtualMachine> {
    serde_json::from_value(super::super::object::undressed(object.clone())).ok()
}

/// What makes sense as the machine stands, whatever becomes of its Secrets.
fn sensible(look: &Look, object: &Value, vm: &VirtualMachine) -> Vec<Offer> {
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    let name = vm.metadata.name.clone().unwrap_or_default();
    let found = look.get(KUBEVIRT, VMIS, &namespace, &name);
    let found = found.and_then(|value| serde_json::from_value::<VirtualMachineInstance>(value).ok());
    let instance = match &found {
        Some(instance) => Instance::There(instance),
        None if look.may_get(KUBEVIRT, VMIS, &namespace, &name) => Instance::Absent,
        None => Instance::Hidden,
    };
    offered::offered(&Seen {
        vm,
        instance,
        snapshots: look.would_be_snapshotted(&namespace, object),
        backups: has_backup(look, vm, &namespace),
    })
}

/// Which claims go with a machine, as it says itself.
fn noted(vm: &Value) -> &Value {
    &vm["metadata"]["annotations"][REMOVED_CLAIMS_ANNOTATION]
}

fn machine(call: &ActionCall<'_>, verb: Verb) -> Errand {
    Errand::new(verb, (KUBEVIRT, "v1", VMS), call.namespace, call.object_name)
}

fn claim(call: &ActionCall<'_>, verb: Verb, name: &str) -> Errand {
    Errand::new(verb, ("", "v1", "persistentvolumeclaims"), call.namespace, name)
}

fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    serde_json::from_value(value.clone()).map_err(ApiError::internal)
}

/// What the planner refused, in the API's words.
fn told(why: Refusal, name: &str) -> ApiError {
    match why {
        Refusal::Conflict(why) => ApiError::conflict(VM, name, why),
        Refusal::BadRequest(why) => ApiError::unprocessable(why),
        Refusal::Forbidden(why) => ApiError::refused(VM, name, why),
        Refusal::Underway(why) => ApiError::internal(why),
    }
}

async fn subresource(
    call: &ActionCall<'_>,
    resource: &str,
    subresource: &str,
    body: Value,
) -> Result<Outcome, ApiError> {
    let errand = Errand::new(Verb::Update, (SUBRESOURCES, "v1", resource), call.namespace, call.object_name)
        .of_subresource(subresource)
        .with(JSON, body);
    call.errands.ask(&errand).await?;
    Ok(Outcome::Done)
}

/// One update of the machine, made anew if somebody else was faster.
async fn change(
    call: &ActionCall<'_>,
    mut edit: impl FnMut(&mut Value) -> Result<(), Refusal>,
) -> Result<Outcome, ApiError> {
    let mut current = call.object.clone();
    for attempt in 1.. {
        let mut new = current.clone();
        edit(&mut new).map_err(|why| told(why, call.object_name))?;
        if new == current {
            break;
        }
        match call.errands.ask(&machine(call, Verb::Update).with(JSON, new)).await {
            Ok(_) => break,
            Err(why) if why.is_conflict() && attempt < ATTEMPTS => {
                current = call.errands.ask(&machine(call, Verb::Get)).await?;
            }
            Err(why) => return Err(why),
        }
    }
    Ok(Outcome::Done)
}

fn halt(vm: &mut Value) -> Result<(), Refusal> {
    vm["spec"]["runStrategy"] = RunStrategy::Halted.as_str().into();
    vm["spec"].as_object_mut().map(|spec| spec.remove("running"));
    Ok(())
}

/// A machine that goes down already and has no time left to lose is as it should be.
async fn force_stop(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    match subresource(call, VMS, "stop", json!({"gracePeriod": 0})).await {
        Err(why) if why.is_conflict() && why.message().contains("Halted only supports") => Ok(Outcome::Done),
        outcome => outcome,
    }
}

async fn eject_cd_rom(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let names: Vec<&str> =
        call.body["diskNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() {
        return Err(ApiError::unprocessable("Parameter diskNames is empty"));
    }
    change(call, |vm| edits::eject_drives(vm, &names)).await?;
    subresource(call, VMS, "restart", json!({})).await
}

async fn insert_cd_rom_volume(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let (drive, image) = (call.required("deviceName")?, call.required("imageName")?);
    let (namespace, name) = image.split_once('/').unwrap_or((call.namespace, image));
    let images = (HARVESTER, "v1beta1", "virtualmachineimages");
    let found = call.errands.ask(&Errand::new(Verb::Get, images, namespace, name)).await?;
    let status = &found["status"];
    let class = status["storageClassName"].as_str().unwrap_or_default();
    let bytes =
        [&status["virtualSize"], &status["size"]].into_iter().filter_map(Value::as_i64).max().unwrap_or(0);
    if class.is_empty() || bytes <= 0 {
        return Err(ApiError::unprocessable(format!("the image {namespace}/{name} is not ready yet")));
    }
    let mark = call.errands.draw();
    let claim = format!("{}-{drive}-{mark}", call.object_name);
    let template = json!({
        "metadata": {"name": claim, "annotations": {IMAGE_ANNOTATION: format!("{namespace}/{name}")}},
        "spec": {
            "accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": class,
            "resources": {"requests": {"storage": format!("{}Gi", (bytes + GIB - 1) / GIB)}},
        },
    });
    change(call, |vm| edits::insert_disc(vm, drive, &template)).await
}

/// The disc's claim was made for the drive. It is noted on the machine, whose controller deletes it when nobody holds it any
/// more.
async fn eject_cd_rom_volume(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let drive = call.required("deviceName")?;
    change(call, |vm| edits::eject_disc(vm, drive)).await
}

async fn add_volume(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let (disk, source) = (call.required("diskName")?, call.required("volumeSourceName")?);
    let found = call.errands.ask(&claim(call, Verb::Get, source)).await?;
    let options = json!({
        "name": disk, "disk": {"disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": source, "hotpluggable": true}},
    });
    let volume = VolumeChange::Add(Box::new(typed(&options)?));
    let spec = &found["spec"];
    let template = json!({"metadata": {"name": source}, "spec": {
        "accessModes": spec["accessModes"], "resources": spec["resources"], "volumeMode": spec["volumeMode"],
        "storageClassName": spec["storageClassName"],
    }});
    change(call, |vm| {
        change_volumes(vm, &volume)?;
        edits::note_claim(vm, &template)
    })
    .await
}

async fn remove_volume(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let disk = call.required("diskName")?;
    let volume = VolumeChange::Remove(typed(&json!({"name": disk}))?);
    change(call, |vm| {
        let mut volumes =
            vm.pointer("/spec/template/spec/volumes").and_then(Value::as_array).into_iter().flatten();
        let found = volumes.find(|volume| volume["name"] == disk);
        let claim =
            found.and_then(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).map(str::to_owned);
        change_volumes(vm, &volume)?;
        claim.map_or(Ok(()), |claim| edits::forget_claim(vm, &claim))
    })
    .await
}

/// As the subresources do it: the planner changes the lists, and what this version does not know of the rest stays.
fn change_volumes(vm: &mut Value, change: &VolumeChange) -> Result<(), Refusal> {
    change.check()?;
    let spec = &mut vm["spec"]["template"]["spec"];
    let mut read = VirtualMachineInstanceSpec::deserialize_from(spec).map_err(Refusal::BadRequest)?;
    change.apply(&mut read)?;
    let changed = serde_json::to_value(&read).unwrap_or_default();
    let list = |value: &Value| if value.is_array() { value.clone() } else { json!([]) };
    spec["volumes"] = list(&changed["volumes"]);
    if !spec["domain"]["devices"].is_object() {
        spec["domain"]["devices"] = json!({});
    }
    spec["domain"]["devices"]["disks"] = list(&changed["domain"]["devices"]["disks"]);
    Ok(())
}

async fn remove_nic(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let name = call.required("interfaceName")?;
    let vm: VirtualMachine = typed(call.object)?;
    if !offered::hot_unpluggable(&vm).contains(&name) {
        let why = format!("the interface {name} cannot be taken away while the machine runs");
        return Err(ApiError::unprocessable(why));
    }
    change(call, |vm| edits::remove_nic(vm, name)).await
}

async fn grow(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let seen =
        Seen { vm: &typed(call.object)?, instance: Instance::Hidden, snapshots: false, backups: false };
    if !offered::is_offered(&seen, Offer::CpuAndMemoryHotplug) {
        return Err(ApiError::unprocessable("CPU and memory hotplug is not supported for this VM"));
    }
    let sockets = match &call.body["sockets"] {
        Value::Null => None,
        value => Some(value.as_u64().ok_or_else(|| {
            ApiError::unprocessable(format!("sockets must be a whole number, not {value}"))
        })?),
    };
    let memory = Some(call.text("memory")?).filter(|memory| !memory.is_empty());
    if sockets.is_none() && memory.is_none() {
        return Err(ApiError::unprocessable("Parameter sockets or memory is required"));
    }
    change(call, |vm| edits::grow(vm, sockets, memory)).await
}

async fn clone(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let target = call.required("targetVm")?;
    let own = call.object["spec"]["runStrategy"].as_str().unwrap_or(RunStrategy::Halted.as_str());
    let strategy = Some(call.text("runStrategy")?).filter(|text| !text.is_empty()).unwrap_or(own);
    if RunStrategy::parse(strategy).is_none() {
        return Err(ApiError::unprocessable(format!("Invalid RunStrategy ({strategy})")));
    }
    if call.look.get(KUBEVIRT, VMS, call.namespace, target).is_some() {
        return Err(ApiError::already_exists(Named { group: KUBEVIRT, resource: VMS }, target));
    }
    let of = |name: &str| json!({"apiGroup": KUBEVIRT, "kind": "VirtualMachine", "name": name});
    let object = json!({
        "apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone",
        "metadata": {"generateName": format!("{target}-"), "annotations": {RUN_STRATEGY_ANNOTATION: strategy}},
        "spec": {"source": of(call.object_name), "target": of(target)},
    });
    let clones = (CLONE, "v1beta1", "virtualmachineclones");
    call.errands.ask(&Errand::new(Verb::Create, clones, call.namespace, "").with(JSON, object)).await?;
    Ok(Outcome::Done)
}

async fn restore(call: &ActionCall<'_>) -> Result<Outcome, ApiError> {
    let (name, backup) = (call.required("name")?, call.required("backupName")?);
    let object = json!({
        "apiVersion": "harvesterhci.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": name},
        "spec": {
            "target": {"apiGroup": KUBEVIRT, "kind": "VirtualMachine", "name": call.object_name},
            "virtualMachineBackupName": backup, "virtualMachineBackupNamespace": call.namespace,
            // What a machine becomes again has new disks; the ones it had are its owner's to delete.
            "newVM": false, "deletionPolicy": RETAIN,
        },
    });
    let restores = (HARVESTER, "v1beta1", "virtualmachinerestores");
    call.errands.ask(&Errand::new(Verb::Create, restores, call.namespace, "").with(JSON, object)).await?;
    Ok(Outcome::Done)
}

fn has_backup(look: &Look, vm: &VirtualMachine, namespace: &str) -> bool {
    let uid = vm.metadata.uid.as_deref().unwrap_or_default();
    let backups = look.list(HARVESTER, "virtualmachinebackups", namespace);
    let is_of = |backup: &Value| !uid.is_empty() && backup["status"]["sourceUID"] == uid;
    backups.is_some_and(|backups| backups.iter().any(is_of))
}
