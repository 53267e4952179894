//! What some actions change of a virtual machine: its drives, its interfaces, its size, and the claims it notes.
//!
//! Each changes the object as it is written, so that what this version does not know of it stays as it is. One that is
//! refused changes nothing.

use serde_json::{Value, json};
use sheaf_resources::{
    kinds::{
        virtual_machine::{EJECTED_CLAIMS_ANNOTATION, claim_templates, names_in},
        virtual_machine_instance::live_update::ABSENT,
    },
    mac_address, quantity,
};

use super::power::Refusal;

/// Where the parts of a machine are.
const SPEC: &str = "/spec/template/spec";
const DISKS: &str = "/spec/template/spec/domain/devices/disks";
const INTERFACES: &str = "/spec/template/spec/domain/devices/interfaces";
const VOLUMES: &str = "/spec/template/spec/volumes";
const NETWORKS: &str = "/spec/template/spec/networks";

fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::BadRequest(why.into()))
}

fn list<'a>(vm: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    vm.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn is_named(element: &Value, name: &str) -> bool {
    element["name"] == name
}

/// The list at a place; made, where there is none.
fn list_mut<'a>(vm: &'a mut Value, pointer: &str) -> Option<&'a mut Vec<Value>> {
    let mut at = vm;
    for step in pointer.split('/').skip(1) {
        if at.is_null() {
            *at = json!({});
        }
        at = at.as_object_mut()?.entry(step).or_insert(Value::Null);
    }
    if at.is_null() {
        *at = json!([]);
    }
    at.as_array_mut()
}

fn push(vm: &mut Value, pointer: &str, element: Value) {
    if let Some(list) = list_mut(vm, pointer) {
        list.push(element);
    }
}

fn retain(vm: &mut Value, pointer: &str, keep: impl Fn(&Value) -> bool) {
    if let Some(list) = vm.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

/// The claim behind a disk.
fn claim_of(vm: &Value, disk: &str) -> Option<String> {
    let volume = list(vm, VOLUMES).find(|volume| is_named(volume, disk))?;
    volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)
}

/// Takes drives away, with what is in them.
pub fn eject_drives(vm: &mut Value, names: &[&str]) -> Result<(), Refusal> {
    for name in names {
        match list(vm, DISKS).find(|disk| is_named(disk, name)) {
            Some(disk) if disk["cdrom"].is_object() => {}
            Some(_) => return refuse(format!("disk {name} isn't a CD-ROM disk")),
            None => return refuse(format!("disk {name} not found")),
        }
    }
    let claims: Vec<String> = names.iter().filter_map(|name| claim_of(vm, name)).collect();
    for pointer in [DISKS, VOLUMES] {
        retain(vm, pointer, |one| !names.iter().any(|name| is_named(one, name)));
    }
    claims.iter().try_for_each(|claim| forget_claim(vm, claim))
}

/// Puts a disc, the claim that `template` describes, into an empty drive.
pub fn insert_disc(vm: &mut Value, drive: &str, template: &Value) -> Result<(), Refusal> {
    must_be_drive(vm, drive)?;
    if list(vm, VOLUMES).any(|volume| is_named(volume, drive)) {
        return refuse(format!("the drive {drive} is not empty: eject what is in it first"));
    }
    note_claim(vm, template)?;
    let source = json!({"claimName": template["metadata"]["name"], "hotpluggable": true});
    push(vm, VOLUMES, json!({"name": drive, "persistentVolumeClaim": source}));
    Ok(())
}

/// Takes the disc out of a drive, which stays, and notes its claim, which was made for the drive, to be deleted.
pub fn eject_disc(vm: &mut Value, drive: &str) -> Result<(), Refusal> {
    must_be_drive(vm, drive)?;
    let Some(volume) = list(vm, VOLUMES).find(|volume| is_named(volume, drive)) else {
        return refuse(format!("the drive {drive} is empty"));
    };
    if volume["persistentVolumeClaim"]["hotpluggable"] != true {
        return refuse(format!("the volume in the drive {drive} is not hotpluggable"));
    }
    let claim = claim_of(vm, drive).unwrap_or_default();
    retain(vm, VOLUMES, |volume| !is_named(volume, drive));
    forget_claim(vm, &claim)?;
    if !vm["metadata"]["annotations"].is_object() {
        vm["metadata"]["annotations"] = json!({});
    }
    let noted = &mut vm["metadata"]["annotations"][EJECTED_CLAIMS_ANNOTATION];
    let mut claims: Vec<&str> = names_in(noted.as_str().unwrap_or_default()).collect();
    if !claims.contains(&claim.as_str()) {
        claims.push(&claim);
    }
    *noted = claims.join(",").into();
    Ok(())
}

fn must_be_drive(vm: &Value, name: &str) -> Result<(), Refusal> {
    match list(vm, DISKS).find(|disk| is_named(disk, name)) {
        Some(disk) if disk["cdrom"]["bus"] == "sata" => Ok(()),
        Some(_) | None => refuse(format!("{name} is not a SATA CD-ROM drive of this machine")),
    }
}

/// Notes a claim among those that the machine brings along, unless it is there.
pub fn note_claim(vm: &mut Value, template: &Value) -> Result<(), Refusal> {
    let mut templates = templates(vm)?;
    if templates.iter().any(|one| one["metadata"]["name"] == template["metadata"]["name"]) {
        return Ok(());
    }
    templates.push(template.clone());
    write_templates(vm, templates);
    Ok(())
}

/// Takes a claim off that note.
pub fn forget_claim(vm: &mut Value, claim: &str) -> Result<(), Refusal> {
    let mut templates = templates(vm)?;
    let before = templates.len();
    templates.retain(|one| one["metadata"]["name"] != claim);
    if templates.len() != before {
        write_templates(vm, templates);
    }
    Ok(())
}

fn templates(vm: &Value) -> Result<Vec<Value>, Refusal> {
    let text = vm["metadata"]["annotations"][claim_templates::ANNOTATION].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(text).map_err(|why| {
        Refusal::BadRequest(format!("failed to unserialize {}, error: {why}", claim_templates::ANNOTATION))
    })
}

fn write_templates(vm: &mut Value, templates: Vec<Value>) {
    let text = Value::Array(templates).to_string();
    if !vm["metadata"]["annotations"].is_object() {
        vm["metadata"]["annotations"] = json!({});
    }
    vm["metadata"]["annotations"][claim_templates::ANNOTATION] = text.into();
}

/// Adds an interface on a network that a NetworkAttachmentDefinition describes. Without an address one is drawn.
pub fn add_nic(vm: &mut Value, name: &str, network: &str, address: &str) -> Result<(), Refusal> {
    if list(vm, INTERFACES).chain(list(vm, NETWORKS)).any(|one| is_named(one, name)) {
        return refuse(format!("there is an interface {name} already"));
    }
    let mut interface = json!({"name": name, "model": "virtio", "bridge": {}});
    if !address.is_empty() {
        match mac_address::normalised(address) {
            Some(address) => interface["macAddress"] = address.into(),
            None => return refuse(format!("{address} is not a hardware address")),
        }
    }
    push(vm, INTERFACES, interface);
    push(vm, NETWORKS, json!({"name": name, "multus": {"networkName": network}}));
    Ok(())
}

/// Asks for an interface to be taken away.
pub fn remove_nic(vm: &mut Value, name: &str) -> Result<(), Refusal> {
    let list = vm.pointer_mut(INTERFACES).and_then(Value::as_array_mut);
    let found = list.into_iter().flatten().find(|interface| is_named(interface, name));
    match found {
        Some(interface) if interface.is_object() => {
            interface["state"] = ABSENT.into();
            Ok(())
        }
        Some(_) | None => refuse(format!("there is no interface {name}")),
    }
}

/// More processors, more memory, or both.
pub fn grow(vm: &mut Value, sockets: Option<u64>, memory: Option<&str>) -> Result<(), Refusal> {
    if sockets == Some(0) {
        return refuse("sockets must be at least 1");
    }
    if let Some(memory) = memory
        && quantity::value(memory).is_none_or(|bytes| bytes <= 0)
    {
        return refuse(format!("memory {memory} is not a quantity like 4Gi"));
    }
    let domain = vm.pointer_mut(SPEC).map(|spec| &mut spec["domain"]).filter(|domain| domain.is_object());
    let Some(domain) = domain else { return refuse("the machine has no template") };
    if let Some(sockets) = sockets {
        domain["cpu"]["sockets"] = sockets.into();
    }
    if let Some(memory) = memory {
        domain["memory"]["guest"] = memory.into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Value {
        json!({
            "metadata": {"name": "a", "annotations": {claim_templates::ANNOTATION:
                "[{\"metadata\":{\"name\":\"c-root\"},\"unknown\":1},{\"metadata\":{\"name\":\"c-cd\"}}]"}},
            "spec": {"template": {"spec": {
                "domain": {"devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "cd", "cdrom": {"bus": "sata"}},
                        {"name": "empty", "cdrom": {"bus": "sata"}}],
                    "interfaces": [{"name": "nic-0", "bridge": {}}]}},
                "networks": [{"name": "nic-0", "pod": {}}],
                "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c-root"}},
                    {"name": "cd", "persistentVolumeClaim": {"claimName": "c-cd", "hotpluggable": true}}],
            }}},
        })
    }

    fn noted(vm: &Value) -> Vec<String> {
        let names = templates(vm).unwrap();
        names.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn names(vm: &Value, pointer: &str) -> Vec<String> {
        list(vm, pointer).map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_drive_goes_with_its_disc_and_the_note_of_it() {
        let mut vm = machine();
        eject_drives(&mut vm, &["cd", "empty"]).unwrap();
        assert_eq!(
            (names(&vm, DISKS), names(&vm, VOLUMES)),
            (vec!["root".to_owned()], vec!["root".to_owned()])
        );
        assert_eq!(noted(&vm), ["c-root"]);
        assert!(
            vm["metadata"]["annotations"][claim_templates::ANNOTATION].as_str().unwrap().contains("unknown")
        );
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let untouched = machine();
        let mut vm = machine();
        assert!(eject_drives(&mut vm, &["cd", "root"]).is_err());
        assert!(eject_drives(&mut vm, &["none"]).is_err());
        assert!(insert_disc(&mut vm, "cd", &json!({"metadata": {"name": "x"}})).is_err());
        assert!(insert_disc(&mut vm, "root", &json!({"metadata": {"name": "x"}})).is_err());
        assert!(eject_disc(&mut vm, "empty").is_err());
        assert!(add_nic(&mut vm, "nic-0", "default/net", "").is_err());
        assert!(add_nic(&mut vm, "nic-1", "default/net", "no address").is_err());
        assert!(remove_nic(&mut vm, "nic-9").is_err());
        assert!(grow(&mut vm, Some(0), None).is_err());
        assert!(grow(&mut vm, Some(2), Some("lots")).is_err());
        assert_eq!(vm, untouched);
    }

    #[test]
    fn a_disc_that_was_put_in_comes_out_again() {
        let mut vm = machine();
        let template = json!({"metadata": {"name": "c-new"}, "spec": {}});
        insert_disc(&mut vm, "empty", &template).unwrap();
        assert_eq!(noted(&vm), ["c-root", "c-cd", "c-new"]);
        eject_disc(&mut vm, "empty").unwrap();
        assert_eq!(vm["metadata"]["annotations"][EJECTED_CLAIMS_ANNOTATION], "c-new");
        assert_eq!(names(&vm, DISKS), ["root", "cd", "empty"], "the drive stays");
        assert_eq!((noted(&vm), names(&vm, VOLUMES)), (noted(&machine()), names(&machine(), VOLUMES)));
    }

    #[test]
    fn an_interface_comes_with_its_network_and_is_marked_to_go() {
        let mut vm = json!({"metadata": {}, "spec": {"template": {"spec": {"domain": {"devices": {}}}}}});
        add_nic(&mut vm, "nic-1", "default/net", "02:00:00:00:00:0A").unwrap();
        assert_eq!(
            vm.pointer(INTERFACES).unwrap(),
            &json!([{"name": "nic-1", "model": "virtio", "bridge": {}, "macAddress": "02:00:00:00:00:0a"}])
        );
        assert_eq!(
            vm.pointer(NETWORKS).unwrap(),
            &json!([{"name": "nic-1", "multus": {"networkName": "default/net"}}])
        );
        remove_nic(&mut vm, "nic-1").unwrap();
        assert_eq!(vm.pointer(INTERFACES).unwrap()[0]["state"], "absent");
    }

    #[test]
    fn a_claim_is_noted_once() {
        let mut vm = json!({"metadata": {}});
        for _ in 0..2 {
            note_claim(&mut vm, &json!({"metadata": {"name": "c"}})).unwrap();
        }
        assert_eq!(noted(&vm), ["c"]);
        forget_claim(&mut vm, "c").unwrap();
        forget_claim(&mut vm, "c").unwrap();
        assert!(noted(&vm).is_empty());
    }

    #[test]
    fn what_is_to_grow_is_said_where_it_stands() {
        let mut vm = machine();
        grow(&mut vm, Some(4), Some("4Gi")).unwrap();
        let domain = &vm["spec"]["template"]["spec"]["domain"];
        assert_eq!((&domain["cpu"]["sockets"], &domain["memory"]["guest"]), (&json!(4), &json!("4Gi")));
    }
}
