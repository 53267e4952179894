//! A volume that is asked for by name, or asked away: what becomes of a machine's spec, or why not. In the original's words,
//! which clients read.

use sheaf_resources::kinds::{
    virtual_machine::status::{AddVolumeOptions, RemoveVolumeOptions},
    virtual_machine_instance::{spec::VirtualMachineInstanceSpec, volume::Volume},
};

use super::power::Refusal;

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeChange {
    Add(Box<AddVolumeOptions>),
    Remove(RemoveVolumeOptions),
}

impl VolumeChange {
    /// Whether it says what it must, whatever machine it is about.
    pub fn check(&self) -> Result<(), Refusal> {
        let missing = match self {
            VolumeChange::Add(options) if options.name.is_empty() => {
                "AddVolumeOptions requires name to be set"
            }
            VolumeChange::Add(options) if options.disk.is_none() => {
                "AddVolumeOptions requires disk to not be nil"
            }
            VolumeChange::Add(options) if claim_of(options).is_none() => {
                "AddVolumeOptions requires VolumeSource to not be nil"
            }
            VolumeChange::Remove(options) if options.name.is_empty() => {
                "RemoveVolumeOptions requires name to be set"
            }
            VolumeChange::Add(_) | VolumeChange::Remove(_) => return Ok(()),
        };
        Err(Refusal::BadRequest(missing.into()))
    }

    /// The name of the volume in the spec that it is about.
    pub fn volume<'a>(&'a self, spec: &'a VirtualMachineInstanceSpec) -> Option<&'a str> {
        match self {
            VolumeChange::Add(options) => Some(&options.name),
            VolumeChange::Remove(options) => named(spec, &options.name).map(|volume| volume.name.as_str()),
        }
    }

    /// Changes a machine's spec.
    pub fn apply(&self, spec: &mut VirtualMachineInstanceSpec) -> Result<(), Refusal> {
        match self {
            VolumeChange::Add(options) => add(spec, options),
            VolumeChange::Remove(options) => remove(spec, &options.name),
        }
    }
}

fn claim_of(options: &AddVolumeOptions) -> Option<&str> {
    let claim = options.volume_source.as_ref()?.persistent_volume_claim.as_ref()?;
    Some(&claim.claim_name)
}

/// A volume is also found by the name of its claim.
fn named<'a>(spec: &'a VirtualMachineInstanceSpec, name: &str) -> Option<&'a Volume> {
    let of_claim = |volume: &&Volume| {
        volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.claim_name == name)
    };
    let by_name = spec.volumes.iter().find(|volume| volume.name == name);
    by_name.or_else(|| spec.volumes.iter().find(of_claim))
}

fn add(spec: &mut VirtualMachineInstanceSpec, options: &AddVolumeOptions) -> Result<(), Refusal> {
    let refused = |why: String| Err(Refusal::Conflict(why));
    let name = &options.name;
    let (Some(source), Some(claim)) = (&options.volume_source, claim_of(options)) else {
        return Err(Refusal::BadRequest("AddVolumeOptions requires VolumeSource to not be nil".into()));
    };
    if spec.volumes.iter().any(|volume| volume.name == *name) {
        return refused(format!(
            "Unable to add volume [{name}] because volume with that name already exists"
        ));
    }
    if spec.claim_names().any(|there| there == claim) {
        return refused(format!("Unable to add volume source [{claim}] because it already exists"));
    }
    let mut disk = options.disk.clone().unwrap_or_default();
    disk.name.clone_from(name);
    let mut claim = source.persistent_volume_claim.clone();
    if let Some(claim) = &mut claim {
        claim.hotpluggable = true;
    }
    spec.domain.devices.disks.retain(|there| there.name != *name);
    spec.domain.devices.disks.push(disk);
    spec.volumes.push(Volume { name: name.clone(), persistent_volume_claim: claim, ..Volume::default() });
    Ok(())
}

fn remove(spec: &mut VirtualMachineInstanceSpec, name: &str) -> Result<(), Refusal> {
    let Some(volume) = named(spec, name).cloned() else {
        let why = format!("Unable to remove volume [{name}] because it does not exist");
        return Err(Refusal::Conflict(why));
    };
    if !volume.is_hotpluggable() {
        let why = format!("Unable to remove volume [{}] because it is not hotpluggable", volume.name);
        return Err(Refusal::Conflict(why));
    }
    spec.volumes.retain(|there| there.name != volume.name);
    // An emptied drive stays.
    spec.domain.devices.disks.retain(|disk| disk.name != volume.name || disk.cdrom.is_some());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec() -> VirtualMachineInstanceSpec {
        serde_json::from_value(json!({
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}},
                {"name": "disc", "cdrom": {"bus": "sata"}}]}},
            "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "c-root"}},
                {"name": "disc", "persistentVolumeClaim": {"claimName": "c-disc", "hotpluggable": true}}],
        }))
        .unwrap()
    }

    fn adding(options: Value) -> VolumeChange {
        VolumeChange::Add(serde_json::from_value(options).unwrap())
    }

    fn removing(name: &str) -> VolumeChange {
        VolumeChange::Remove(RemoveVolumeOptions { name: name.into(), ..RemoveVolumeOptions::default() })
    }

    fn data() -> VolumeChange {
        adding(json!({"name": "data", "disk": {"disk": {"bus": "scsi"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": "c-data"}}}))
    }

    #[test]
    fn a_volume_that_was_added_may_be_plugged_in_and_is_removed_by_either_name() {
        for name in ["data", "c-data"] {
            let mut spec = spec();
            data().apply(&mut spec).unwrap();
            assert_eq!(spec.domain.devices.disks[2].name, "data");
            assert!(spec.volumes[2].is_hotpluggable());
            removing(name).apply(&mut spec).unwrap();
            assert_eq!(spec, self::spec());
        }
    }

    #[test]
    fn what_is_there_is_not_added_and_what_is_not_is_not_removed() {
        let mut spec = spec();
        data().apply(&mut spec).unwrap();
        let mut again = |change: VolumeChange| match change.apply(&mut spec).unwrap_err() {
            Refusal::Conflict(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(again(data()), "Unable to add volume [data] because volume with that name already exists");
        let other = adding(json!({"name": "more", "disk": {"disk": {"bus": "scsi"}},
            "volumeSource": {"persistentVolumeClaim": {"claimName": "c-data"}}}));
        assert_eq!(again(other), "Unable to add volume source [c-data] because it already exists");
        assert_eq!(again(removing("root")), "Unable to remove volume [root] because it is not hotpluggable");
        assert_eq!(again(removing("none")), "Unable to remove volume [none] because it does not exist");
    }

    #[test]
    fn a_drive_stays_when_its_disc_is_removed() {
        let mut spec = spec();
        removing("disc").apply(&mut spec).unwrap();
        assert_eq!((spec.volumes.len(), spec.domain.devices.disks.len()), (1, 2));
    }

    #[test]
    fn what_is_not_said_is_asked_for() {
        for (options, why) in [
            (json!({}), "AddVolumeOptions requires name to be set"),
            (json!({"name": "a"}), "AddVolumeOptions requires disk to not be nil"),
            (json!({"name": "a", "disk": {}}), "AddVolumeOptions requires VolumeSource to not be nil"),
        ] {
            assert_eq!(adding(options).check(), Err(Refusal::BadRequest(why.into())));
        }
        assert!(removing("").check().is_err());
        assert_eq!(data().check(), Ok(()));
    }
}
