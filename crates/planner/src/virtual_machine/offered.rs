//! Which actions make sense for a virtual machine as it stands: what a console shows buttons for.
//!
//! The names and the rules are Harvester's. Whether somebody may is another question, and not asked here. What has nothing
//! behind it on one node (migration, backups to elsewhere) has no name here and is never offered.

use sheaf_resources::kinds::{
    virtual_machine::{VirtualMachine, run_strategy::RunStrategy},
    virtual_machine_instance::{
        VirtualMachineInstance,
        devices::{Disk, Interface},
        live_update::ABSENT,
        spec::VirtualMachineInstanceSpec,
        status::Phase,
    },
};

use crate::topology;

/// On a machine whose start a quota kept from happening: why.
pub const INSUFFICIENT_QUOTA_ANNOTATION: &str = "harvesterhci.io/insufficient-resource-quota";

/// What can be done with a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    AddNic,
    AddVolume,
    Clone,
    CpuAndMemoryHotplug,
    CreateTemplate,
    DeleteResourceQuota,
    DismissInsufficientResourceQuota,
    EjectCdRom,
    EjectCdRomVolume,
    FindHotunpluggableNics,
    ForceStop,
    InsertCdRomVolume,
    Pause,
    RemoveNic,
    RemoveVolume,
    Restart,
    Restore,
    Snapshot,
    SoftReboot,
    Start,
    Stop,
    Unpause,
    UpdateResourceQuota,
}

impl Action {
    pub const ALL: [Action; 23] = [
        Action::AddNic,
        Action::AddVolume,
        Action::Clone,
        Action::CpuAndMemoryHotplug,
        Action::CreateTemplate,
        Action::DeleteResourceQuota,
        Action::DismissInsufficientResourceQuota,
        Action::EjectCdRom,
        Action::EjectCdRomVolume,
        Action::FindHotunpluggableNics,
        Action::ForceStop,
        Action::InsertCdRomVolume,
        Action::Pause,
        Action::RemoveNic,
        Action::RemoveVolume,
        Action::Restart,
        Action::Restore,
        Action::Snapshot,
        Action::SoftReboot,
        Action::Start,
        Action::Stop,
        Action::Unpause,
        Action::UpdateResourceQuota,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Action::AddNic => "addNic",
            Action::AddVolume => "addVolume",
            Action::Clone => "clone",
            Action::CpuAndMemoryHotplug => "cpuAndMemoryHotplug",
            Action::CreateTemplate => "createTemplate",
            Action::DeleteResourceQuota => "deleteResourceQuota",
            Action::DismissInsufficientResourceQuota => "dismissInsufficientResourceQuota",
            Action::EjectCdRom => "ejectCdRom",
            Action::EjectCdRomVolume => "ejectCdRomVolume",
            Action::FindHotunpluggableNics => "findHotunpluggableNics",
            Action::ForceStop => "forceStop",
            Action::InsertCdRomVolume => "insertCdRomVolume",
            Action::Pause => "pause",
            Action::RemoveNic => "removeNic",
            Action::RemoveVolume => "removeVolume",
            Action::Restart => "restart",
            Action::Restore => "restore",
            Action::Snapshot => "snapshot",
            Action::SoftReboot => "softreboot",
            Action::Start => "start",
            Action::Stop => "stop",
            Action::Unpause => "unpause",
            Action::UpdateResourceQuota => "updateResourceQuota",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// The instance of a machine, as far as whoever asks may know of it.
#[derive(Clone, Copy, Debug)]
pub enum Instance<'a> {
    Absent,
    There(&'a VirtualMachineInstance),
    /// It may not be looked at: what depends on it is not offered.
    Hidden,
}

/// A machine and what is around it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub vm: &'a VirtualMachine,
    pub instance: Instance<'a>,
    /// Whether somebody takes snapshots of every disk that it has.
    pub snapshots: bool,
    /// Whether there is a backup of it.
    pub backups: bool,
}

/// What is offered, in the order of the names.
pub fn offered(seen: &Seen<'_>) -> Vec<Action> {
    Action::ALL.into_iter().filter(|action| is_offered(seen, *action)).collect()
}

pub fn is_offered(seen: &Seen<'_>, action: Action) -> bool {
    let vm = seen.vm;
    // Of a machine that goes, nothing is wanted any more but that it goes quickly.
    if vm.metadata.deletion_timestamp.is_some() && action != Action::ForceStop {
        return false;
    }
    let spec = vm.spec.template.as_ref().map(|template| &template.spec);
    match action {
        Action::AddVolume
        | Action::RemoveVolume
        | Action::Clone
        | Action::UpdateResourceQuota
        | Action::DeleteResourceQuota => true,
        Action::Start => can_start(seen),
        Action::Stop => can_stop(seen),
        Action::ForceStop => vm.status.printable_status == "Stopping",
        Action::Restart => {
            !is_starting(vm)
                && vm.run_strategy() != RunStrategy::Halted
                && matches!(seen.instance, Instance::There(_))
        }
        Action::Pause | Action::SoftReboot => {
            running(seen).is_some_and(|instance| !instance.status.is("Paused"))
        }
        Action::Unpause => running(seen).is_some_and(|instance| instance.status.is("Paused")),
        Action::EjectCdRom => is_ready(vm) && spec.is_some_and(|spec| drives(spec).next().is_some()),
        Action::InsertCdRomVolume => spec.is_some_and(|spec| {
            let mut empty = drives(spec).filter(|drive| !has_volume(spec, drive)).peekable();
            // Only such drives are opened while a machine runs.
            empty.peek().is_some() && empty.all(|drive| drive.bus() == "sata")
        }),
        Action::EjectCdRomVolume => {
            spec.is_some_and(|spec| drives(spec).any(|drive| is_ejectable(spec, drive)))
        }
        Action::CreateTemplate => is_steady(seen),
        Action::Snapshot => seen.snapshots && is_steady(seen) && vm.status.snapshot_in_progress.is_none(),
        Action::Restore => {
            seen.backups
                && !vm.status.ready
                && vm.status.snapshot_in_progress.is_none()
                && matches!(seen.instance, Instance::Absent)
        }
        Action::AddNic => {
            running(seen).is_some() && !is_a_node(vm) && spec.is_some_and(all_addresses_are_set)
        }
        Action::RemoveNic | Action::FindHotunpluggableNics => {
            running(seen).is_some() && !is_a_node(vm) && !hot_unpluggable(vm).is_empty()
        }
        Action::CpuAndMemoryHotplug => can_grow(vm),
        Action::DismissInsufficientResourceQuota => {
            let annotations = vm.metadata.annotations.as_ref();
            annotations.is_some_and(|all| all.contains_key(INSUFFICIENT_QUOTA_ANNOTATION))
        }
    }
}

/// The interfaces that can be taken away while the machine runs. The last one never is.
pub fn hot_unpluggable(vm: &VirtualMachine) -> Vec<&str> {
    let interfaces = vm.spec.template.iter().flat_map(|template| &template.spec.domain.devices.interfaces);
    let there: Vec<&Interface> = interfaces.filter(|interface| interface.state != ABSENT).collect();
    if there.len() < 2 {
        return Vec::new();
    }
    there.into_iter().filter(|interface| can_go(interface)).map(|interface| interface.name.as_str()).collect()
}

fn can_go(interface: &Interface) -> bool {
    let is_virtio = ["", "virtio"].contains(&interface.model.as_str());
    interface.bridge.is_some() && is_virtio && interface.boot_order.is_none()
}

fn can_start(seen: &Seen<'_>) -> bool {
    let over = match seen.instance {
        Instance::Absent => true,
        Instance::Hidden => false,
        Instance::There(instance) => {
            let phase = instance.status.phase;
            phase.is_final() || matches!(phase, Phase::Unknown | Phase::Unset)
        }
    };
    over && !is_starting(seen.vm)
}

fn can_stop(seen: &Seen<'_>) -> bool {
    match seen.vm.run_strategy() {
        RunStrategy::Halted => false,
        RunStrategy::Always | RunStrategy::Once => true,
        RunStrategy::Manual | RunStrategy::RerunOnFailure => match seen.instance {
            Instance::There(instance) => matches!(
                instance.status.phase,
                Phase::Pending | Phase::Scheduling | Phase::Scheduled | Phase::Running
            ),
            Instance::Absent | Instance::Hidden => false,
        },
    }
}

fn is_starting(vm: &VirtualMachine) -> bool {
    vm.status.state_change_requests.iter().any(|request| request.is_start())
}

fn running<'a>(seen: &Seen<'a>) -> Option<&'a VirtualMachineInstance> {
    match seen.instance {
        Instance::There(instance) if instance.status.phase == Phase::Running => Some(instance),
        Instance::There(_) | Instance::Absent | Instance::Hidden => None,
    }
}

/// Whether it neither comes up nor goes down.
fn is_steady(seen: &Seen<'_>) -> bool {
    match seen.instance {
        Instance::Absent => true,
        Instance::Hidden => false,
        Instance::There(instance) => {
            instance.metadata.deletion_timestamp.is_none()
                && matches!(instance.status.phase, Phase::Running | Phase::Succeeded)
        }
    }
}

fn is_ready(vm: &VirtualMachine) -> bool {
    vm.status.condition("Ready").is_some_and(|condition| condition.is_true())
}

fn drives(spec: &VirtualMachineInstanceSpec) -> impl Iterator<Item = &Disk> {
    spec.domain.devices.disks.iter().filter(|disk| disk.cdrom.is_some())
}

fn has_volume(spec: &VirtualMachineInstanceSpec, disk: &Disk) -> bool {
    spec.volumes.iter().any(|volume| volume.name == disk.name)
}

fn is_ejectable(spec: &VirtualMachineInstanceSpec, drive: &Disk) -> bool {
    let mut volumes = spec.volumes.iter().filter(|volume| volume.name == drive.name);
    drive.bus() == "sata" && volumes.any(|volume| volume.is_hotpluggable())
}

/// Whose interfaces are somebody else's to say.
fn is_a_node(vm: &VirtualMachine) -> bool {
    topology::is_told(vm.metadata.labels.as_ref())
}

fn all_addresses_are_set(spec: &VirtualMachineInstanceSpec) -> bool {
    spec.domain.devices.interfaces.iter().all(|interface| !interface.mac_address.is_empty())
}

fn can_grow(vm: &VirtualMachine) -> bool {
    let Some(template) = &vm.spec.template else { return false };
    let cpu = template.spec.domain.cpu.as_ref();
    let is_whole = cpu.is_none_or(|cpu| cpu.cores.max(1) == 1 && cpu.threads.max(1) == 1);
    let is_changing = ["RestartRequired", "HotVCPUChange", "HotMemoryChange"]
        .iter()
        .any(|name| vm.status.condition(name).is_some_and(|condition| condition.is_true()));
    vm.grows_while_it_runs() && is_whole && vm.status.printable_status == "Running" && !is_changing
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn vm(changes: Value) -> VirtualMachine {
        let mut vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
            "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"domain": {"devices": {}}}}},
        });
        merge(&mut vm, &changes);
        serde_json::from_value(vm).unwrap()
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from.clone(),
        }
    }

    fn instance(phase: &str, paused: bool) -> VirtualMachineInstance {
        let conditions = if paused { json!([{"type": "Paused", "status": "True"}]) } else { json!([]) };
        serde_json::from_value(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a"},
            "spec": {"domain": {"devices": {}}}, "status": {"phase": phase, "conditions": conditions},
        }))
        .unwrap()
    }

    fn names(vm: &VirtualMachine, instance: Instance<'_>) -> Vec<&'static str> {
        let seen = Seen { vm, instance, snapshots: true, backups: true };
        offered(&seen).into_iter().map(Action::as_str).collect()
    }

    const ALWAYS: [&str; 5] =
        ["addVolume", "clone", "deleteResourceQuota", "removeVolume", "updateResourceQuota"];

    fn and(more: &[&'static str]) -> Vec<&'static str> {
        let mut all: Vec<&str> = ALWAYS.iter().copied().chain(more.iter().copied()).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_machine_that_is_off_is_started_and_one_that_runs_is_stopped() {
        let off = vm(json!({"spec": {"runStrategy": "Halted"}}));
        assert_eq!(names(&off, Instance::Absent), and(&["createTemplate", "restore", "snapshot", "start"]));
        let on = vm(json!({}));
        let running = instance("Running", false);
        assert_eq!(
            names(&on, Instance::There(&running)),
            and(&["addNic", "createTemplate", "pause", "restart", "snapshot", "softreboot", "stop"])
        );
        let paused = instance("Running", true);
        assert_eq!(
            names(&on, Instance::There(&paused)),
            and(&["addNic", "createTemplate", "restart", "snapshot", "stop", "unpause"])
        );
        let starting = instance("Scheduling", false);
        assert_eq!(names(&on, Instance::There(&starting)), and(&["restart", "stop"]));
    }

    #[test]
    fn one_that_is_being_started_is_not_started_again() {
        let vm = vm(json!({"status": {"stateChangeRequests": [{"action": "Start"}]}}));
        assert!(!names(&vm, Instance::Absent).contains(&"start"));
    }

    #[test]
    fn what_may_not_be_seen_is_not_acted_on() {
        assert_eq!(names(&vm(json!({})), Instance::Hidden), and(&[]));
        let always = vm(json!({"spec": {"runStrategy": "Always"}}));
        assert_eq!(names(&always, Instance::Hidden), and(&["stop"]));
    }

    #[test]
    fn power_is_cut_only_of_one_that_does_not_go_down_by_itself() {
        let stopping =
            vm(json!({"spec": {"runStrategy": "Halted"}, "status": {"printableStatus": "Stopping"}}));
        let running = instance("Running", false);
        assert!(names(&stopping, Instance::There(&running)).contains(&"forceStop"));
        let going = vm(json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"},
            "status": {"printableStatus": "Stopping"}}));
        assert_eq!(names(&going, Instance::There(&running)), ["forceStop"]);
    }

    #[test]
    fn a_disc_goes_into_an_empty_drive_and_out_of_a_full_one() {
        let drive = |bus: &str| json!({"name": "cd", "cdrom": {"bus": bus}});
        let with = |bus: &str, volumes: Value| {
            vm(json!({"spec": {"template": {"spec": {"domain": {"devices": {"disks": [drive(bus)]}},
                "volumes": volumes}}}}))
        };
        let disc = json!([{"name": "cd", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}]);
        assert!(names(&with("sata", json!([])), Instance::Absent).contains(&"insertCdRomVolume"));
        assert!(!names(&with("scsi", json!([])), Instance::Absent).contains(&"insertCdRomVolume"));
        let full = names(&with("sata", disc), Instance::Absent);
        assert!(full.contains(&"ejectCdRomVolume") && !full.contains(&"insertCdRomVolume"), "{full:?}");
        let fixed = json!([{"name": "cd", "persistentVolumeClaim": {"claimName": "c"}}]);
        assert!(!names(&with("sata", fixed), Instance::Absent).contains(&"ejectCdRomVolume"));
    }

    #[test]
    fn a_drive_is_taken_away_from_a_ready_machine_only() {
        let mut machine = json!({"spec": {"template": {"spec": {"domain": {"devices": {
            "disks": [{"name": "cd", "cdrom": {"bus": "sata"}}]}}}}}});
        assert!(!names(&vm(machine.clone()), Instance::Absent).contains(&"ejectCdRom"));
        machine["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(names(&vm(machine), Instance::Absent).contains(&"ejectCdRom"));
    }

    #[test]
    fn interfaces_come_and_go_but_not_the_last_and_not_those_of_a_guest_cluster() {
        let nic = |name: &str, model: &str| json!({"name": name, "model": model, "bridge": {}, "macAddress": "02:00:00:00:00:01"});
        let with = |nics: Value| {
            vm(json!({"spec": {"template": {"spec": {"domain": {"devices": {"interfaces": nics}}}}}}))
        };
        let running = instance("Running", false);
        let one = with(json!([nic("a", "virtio")]));
        assert!(names(&one, Instance::There(&running)).contains(&"addNic"));
        assert!(!names(&one, Instance::There(&running)).contains(&"removeNic"));
        let mut two = with(json!([nic("a", "virtio"), nic("b", "e1000")]));
        assert_eq!(hot_unpluggable(&two), ["a"]);
        assert!(names(&two, Instance::There(&running)).contains(&"findHotunpluggableNics"));
        assert!(!names(&two, Instance::Absent).contains(&"removeNic"));
        two.metadata.labels =
            Some([(topology::CREATOR_LABEL.to_owned(), topology::NODE_DRIVER.to_owned())].into());
        let node = names(&two, Instance::There(&running));
        assert!(!node.contains(&"addNic") && !node.contains(&"removeNic"));
    }

    #[test]
    fn one_grows_that_was_made_to_and_waits_for_no_restart() {
        let mut machine = json!({
            "metadata": {"annotations": {"harvesterhci.io/enableCPUAndMemoryHotplug": "true"}},
            "spec": {"template": {"spec": {"domain": {"cpu": {"cores": 1, "sockets": 2, "threads": 1}}}}},
            "status": {"printableStatus": "Running"},
        });
        assert!(can_grow(&vm(machine.clone())));
        machine["status"]["conditions"] = json!([{"type": "RestartRequired", "status": "True"}]);
        assert!(!can_grow(&vm(machine.clone())));
        machine["status"]["conditions"] = json!([]);
        machine["spec"]["template"]["spec"]["domain"]["cpu"]["cores"] = json!(2);
        assert!(!can_grow(&vm(machine)));
    }

    #[test]
    fn every_action_is_known_by_its_name() {
        for action in Action::ALL {
            assert_eq!(Action::parse(action.as_str()), Some(action));
        }
        assert!(Action::ALL.map(Action::as_str).is_sorted());
        assert_eq!(Action::parse("migrate"), None);
    }
}
