//! What the version of a template is that is made of a machine.
//!
//! ```text
//!   template, made of a machine --CreateVersion--> the same, with its version --Forget--> a template like any other
//!        |
//!        +--GiveUp: the machine, or one of its disks, is gone
//! ```
//!
//! - The version is whole from the start, since versions do not change: it names its copies of Secrets and the images of
//!   its disks before there are any, and says what each is made of. The names follow from its own.
//! - What is one machine's alone is left out: hardware addresses, ids, and notes about it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use sheaf_resources::kinds::{
    persistent_volume_claim::IMAGE_ANNOTATION,
    virtual_machine::{SSH_NAMES_ANNOTATION, VirtualMachine, claim_templates},
    virtual_machine_backup::VirtualMachineSource,
    virtual_machine_image::storage_class_name,
    virtual_machine_instance::spec::VirtualMachineInstanceSpec,
    virtual_machine_template::{
        VirtualMachineTemplate,
        made_of::{
            Exported, MADE_OF_ANNOTATION, MadeOf, TO_COPY_ANNOTATION, ToCopy, name_within, secrets_of,
            version_name,
        },
    },
    virtual_machine_template_version::{VirtualMachineTemplateVersion, VirtualMachineTemplateVersionSpec},
};

use crate::virtual_machine::copy;

/// A template that says what it is made of, and all that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    pub template: &'a VirtualMachineTemplate,
    /// The machine of that name.
    pub machine: Option<&'a VirtualMachine>,
    /// Its claims, by name.
    pub claims: &'a BTreeMap<String, PersistentVolumeClaim>,
    /// For claims that are copies of images: the class whose parameters the image follows, by claim.
    pub classes: &'a BTreeMap<String, String>,
    /// Whether its version is there.
    pub has_version: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    CreateVersion(Box<VirtualMachineTemplateVersion>),
    /// It is made.
    Forget,
    /// It cannot be made any more.
    GiveUp(String),
}

/// What the template says that it is made of; `None` for one that is not.
pub fn made_of(template: &VirtualMachineTemplate) -> Option<Result<MadeOf, String>> {
    let text = template.metadata.annotations.as_ref()?.get(MADE_OF_ANNOTATION)?;
    Some(
        serde_json::from_str(text)
            .map_err(|why| format!("the annotation {MADE_OF_ANNOTATION} cannot be read: {why}")),
    )
}

/// `None` for a template that is not made of a machine.
pub fn next_step(seen: &Seen<'_>) -> Option<Step> {
    let wanted = made_of(seen.template)?;
    if seen.has_version {
        return Some(Step::Forget);
    }
    let made = wanted.and_then(|wanted| {
        let gone = || format!("the machine {} that it is made of is gone", wanted.machine);
        let machine =
            seen.machine.filter(|vm| vm.metadata.uid.as_deref() == Some(&wanted.uid)).ok_or_else(gone)?;
        let metadata = &seen.template.metadata;
        let text = |text: &'_ Option<String>| text.clone().unwrap_or_default();
        let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
        version_of((&namespace, &name, &uid), machine, &wanted, seen.claims, seen.classes)
    });
    Some(match made {
        Ok(version) => Step::CreateVersion(Box::new(version)),
        Err(why) => Step::GiveUp(why),
    })
}

/// The version of the template of that namespace, name and uid; `Err` says why there can be none.
pub fn version_of(
    (namespace, template, uid): (&str, &str, &str),
    vm: &VirtualMachine,
    wanted: &MadeOf,
    claims: &BTreeMap<String, PersistentVolumeClaim>,
    classes: &BTreeMap<String, String>,
) -> Result<VirtualMachineTemplateVersion, String> {
    let name = version_name(template, uid);
    // Whoever asked for it was asked about those that the note names, and about no others.
    if let Some(secret) = secrets_of(vm).iter().find(|secret| !wanted.secrets.contains(secret)) {
        return Err(format!("its Secrets are no longer those that were meant: {secret} is new"));
    }
    let mut source = VirtualMachineSource {
        metadata: ObjectMeta {
            labels: vm.metadata.labels.clone(),
            annotations: vm.metadata.annotations.clone(),
            ..ObjectMeta::default()
        },
        spec: vm.spec.clone(),
    };
    let annotations = source.metadata.annotations.get_or_insert_default();
    copy::forget_machine(annotations);
    let (mut key_pair_ids, mut to_copy) = (Vec::new(), ToCopy::default());
    if let Some(machine) = &mut source.spec.template {
        let of_template = machine.metadata.annotations.get_or_insert_default();
        if let Some(keys) = of_template.get(SSH_NAMES_ANNOTATION).filter(|keys| !keys.trim().is_empty()) {
            let why = |why| format!("the annotation {SSH_NAMES_ANNOTATION} cannot be read: {why}");
            key_pair_ids = serde_json::from_str(keys).map_err(why)?;
        }
        copy::clear_ids(&mut machine.spec);
        to_copy.secrets = rename_secrets(&mut machine.spec, &name);
        // Keys that somebody puts into the guest are named by the Secret they are in.
        if let Some(keys) = of_template.get_mut(copy::DYNAMIC_KEYS_ANNOTATION) {
            let renamed = |secret: &str| {
                let found = to_copy.secrets.iter().find(|(_, from)| *from == secret);
                found.map_or_else(|| secret.to_owned(), |(to, _)| to.clone())
            };
            *keys = copy::with_renamed_keys(keys, &renamed);
        }
    }
    let noted = vm.annotation(claim_templates::ANNOTATION);
    let mut templates = claim_templates::parse(noted).map_err(|why| why.to_string())?;
    match &wanted.claims {
        // Disks like those, and not what came to be on them.
        None => templates.iter_mut().filter_map(|claim| claim.spec.as_mut()).for_each(|spec| {
            (spec.data_source, spec.data_source_ref, spec.volume_name) = (None, None, None);
        }),
        Some(exported) => {
            templates = Vec::new();
            let volumes = source.spec.template.iter_mut().flat_map(|machine| &mut machine.spec.volumes);
            for (n, volume) in volumes.enumerate() {
                let Some(disk) = &mut volume.persistent_volume_claim else { continue };
                let claim = std::mem::take(&mut disk.claim_name);
                if !exported.contains(&claim) {
                    return Err(format!("its disks are no longer those that were meant: {claim} is new"));
                }
                let found = claims.get(&claim).ok_or_else(|| format!("its claim {claim} is gone"))?;
                let image = name_within(&name, &format!("image-{n}"));
                let new = name_within(&name, &format!("disk-{n}"));
                templates.push(copy_of_image(&new, (namespace, &image), found));
                disk.claim_name = new;
                let own = found.spec.as_ref().and_then(|spec| spec.storage_class_name.clone());
                let class = classes.get(&claim).cloned().or(own).unwrap_or_default();
                to_copy.images.insert(image, Exported { claim, class });
            }
        }
    }
    if !templates.is_empty() {
        let text = serde_json::to_string(&templates).unwrap_or_default();
        annotations.insert(claim_templates::ANNOTATION.into(), text);
    }
    let mut metadata =
        ObjectMeta { name: Some(name), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    if to_copy != ToCopy::default() {
        let text = serde_json::to_string(&to_copy).unwrap_or_default();
        metadata.annotations = Some(BTreeMap::from([(TO_COPY_ANNOTATION.to_owned(), text)]));
    }
    Ok(VirtualMachineTemplateVersion {
        metadata,
        spec: VirtualMachineTemplateVersionSpec {
            template_id: format!("{namespace}/{template}"),
            description: format!(
                "Made of the virtual machine {namespace}/{}",
                vm.metadata.name.as_deref().unwrap_or_default()
            ),
            key_pair_ids,
            vm: source,
            ..VirtualMachineTemplateVersionSpec::default()
        },
        ..VirtualMachineTemplateVersion::default()
    })
}

/// What is still to be made for a version; nothing if it does not say.
pub fn to_copy(version: &VirtualMachineTemplateVersion) -> Option<ToCopy> {
    let text = version.metadata.annotations.as_ref()?.get(TO_COPY_ANNOTATION)?;
    // Written by the controller alone, so what cannot be read is of no use to anybody.
    Some(serde_json::from_str(text).unwrap_or_default())
}

/// Every Secret becomes the version's own, called after the place it has; the answer says which is a copy of which.
fn rename_secrets(spec: &mut VirtualMachineInstanceSpec, version: &str) -> BTreeMap<String, String> {
    let mut copies = BTreeMap::new();
    let mut rename = |secret: &mut String, what: String| {
        let new = name_within(version, &what);
        copies.insert(new.clone(), std::mem::replace(secret, new));
    };
    for (n, credential) in spec.access_credentials.iter_mut().enumerate() {
        let keys = credential.ssh_public_key.as_mut().map(|keys| (&mut keys.source, "sshpublickey"));
        let passwords =
            credential.user_password.as_mut().map(|passwords| (&mut passwords.source, "userpassword"));
        for (source, what) in keys.into_iter().chain(passwords) {
            if let Some(secret) = &mut source.secret {
                rename(&mut secret.secret_name, format!("credential-{n}-{what}"));
            }
        }
    }
    for volume in &mut spec.volumes {
        for seed in
            [&mut volume.cloud_init_no_cloud, &mut volume.cloud_init_config_drive].into_iter().flatten()
        {
            let references =
                [(&mut seed.secret_ref, "userdata"), (&mut seed.network_data_secret_ref, "networkdata")];
            for (secret, what) in references {
                if let Some(secret) = secret {
                    rename(&mut secret.name, format!("{}-{what}", volume.name));
                }
            }
        }
    }
    copies
}

/// A claim of the same sort and size whose disk is a copy of the image.
fn copy_of_image(
    name: &str,
    (namespace, image): (&str, &str),
    claim: &PersistentVolumeClaim,
) -> PersistentVolumeClaim {
    let spec = claim.spec.clone().unwrap_or_default();
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            annotations: Some(BTreeMap::from([(
                IMAGE_ANNOTATION.to_owned(),
                format!("{namespace}/{image}"),
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            storage_class_name: Some(storage_class_name(image)),
            ..copy::asking(&spec, copy::bytes_of(claim))
        }),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sheaf_resources::kinds::{
        persistent_volume_claim::requested_by, virtual_machine::MAC_ADDRESS_ANNOTATION,
    };

    use super::*;

    fn machine() -> VirtualMachine {
        serde_json::from_value(json!({
            "metadata": {"name": "vm", "namespace": "a", "uid": "mu", "labels": {"tier": "web"}, "annotations": {
                MAC_ADDRESS_ANNOTATION: "{}", claim_templates::ANNOTATION: json!([{"metadata": {"name": "vm-root"},
                    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}},
                        "dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}}]).to_string()}},
            "spec": {"runStrategy": "Always", "template": {
                "metadata": {"annotations": {SSH_NAMES_ANNOTATION: r#"["a/key"]"#,
                    copy::DYNAMIC_KEYS_ANNOTATION: r#"{"keys":["a"]}"#}},
                "spec": {
                    "domain": {"firmware": {"uuid": "f", "serial": "s"}, "devices": {
                        "interfaces": [{"name": "nic", "macAddress": "02:00:00:00:00:01"}]}},
                    "accessCredentials": [{"sshPublicKey": {"source": {"secret": {"secretName": "keys"}}}}],
                    "volumes": [{"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"},
                            "networkDataSecretRef": {"name": "user"}}},
                        {"name": "root", "persistentVolumeClaim": {"claimName": "vm-root"}}],
                }}},
        }))
        .unwrap()
    }

    fn claims() -> BTreeMap<String, PersistentVolumeClaim> {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "vm-root"},
            "spec": {"accessModes": ["ReadWriteMany"], "volumeMode": "Block", "storageClassName": "disks",
                "volumeName": "pvc-c", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}},
        });
        BTreeMap::from([("vm-root".to_owned(), serde_json::from_value(claim).unwrap())])
    }

    fn template(note: &str) -> VirtualMachineTemplate {
        let whole = json!({"metadata": {"name": "t", "namespace": "a", "uid": "tu", "annotations":
            {MADE_OF_ANNOTATION: note}}});
        serde_json::from_value(whole).unwrap()
    }

    const BARE: &str = r#"{"machine":"vm","uid":"mu","secrets":["keys","user"]}"#;
    const WITH_DATA: &str = r#"{"machine":"vm","uid":"mu","secrets":["keys","user"],"claims":["vm-root"]}"#;

    #[track_caller]
    fn made(note: &str) -> VirtualMachineTemplateVersion {
        let (template, machine, classes) = (template(note), machine(), BTreeMap::new());
        let seen = Seen {
            template: &template,
            machine: Some(&machine),
            claims: &claims(),
            classes: &classes,
            has_version: false,
        };
        match next_step(&seen) {
            Some(Step::CreateVersion(version)) => *version,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_version_has_nothing_that_is_one_machines_alone() {
        let version = made(BARE);
        assert_eq!(version.spec.template_id, "a/t");
        assert_eq!(version.metadata.name, Some(version_name("t", "tu")));
        assert_eq!(version.spec.key_pair_ids, ["a/key"]);
        let machine = &version.spec.vm;
        assert_eq!(
            machine.metadata.annotations.as_ref().unwrap().keys().collect::<Vec<_>>(),
            [claim_templates::ANNOTATION]
        );
        assert_eq!(machine.metadata.labels.as_ref().unwrap()["tier"], "web");
        let domain = &machine.spec.template.as_ref().unwrap().spec.domain;
        assert_eq!(domain.devices.interfaces[0].mac_address, "");
        let firmware = domain.firmware.as_ref().unwrap();
        assert_eq!((firmware.uuid.as_str(), firmware.serial.as_str()), ("", ""));
    }

    #[test]
    fn each_secret_is_copied_under_a_name_that_says_what_it_is() {
        let version = made(BARE);
        let name = version.metadata.name.clone().unwrap();
        let (keys, user, network) = (
            format!("templateversion-{name}-credential-0-sshpublickey"),
            format!("templateversion-{name}-seed-userdata"),
            format!("templateversion-{name}-seed-networkdata"),
        );
        let copied = to_copy(&version).unwrap().secrets;
        let expected = [(keys.clone(), "keys"), (user, "user"), (network, "user")];
        assert_eq!(copied, expected.map(|(to, from)| (to, from.to_owned())).into());
        let machine = version.spec.vm.spec.template.unwrap();
        assert_eq!(machine.spec.secret_names().len(), 3);
        let noted = &machine.metadata.annotations.unwrap()[copy::DYNAMIC_KEYS_ANNOTATION];
        assert_eq!(*noted, format!(r#"{{"{keys}":["a"]}}"#));
    }

    #[test]
    fn without_data_disks_are_like_those_the_machine_was_made_with() {
        let version = made(BARE);
        let noted = &version.spec.vm.metadata.annotations.unwrap()[claim_templates::ANNOTATION];
        let templates = claim_templates::parse(noted).unwrap();
        assert_eq!(templates[0].metadata.name.as_deref(), Some("vm-root"));
        assert_eq!(
            templates[0].spec.as_ref().unwrap().data_source,
            None,
            "what is on them stays where it is"
        );
    }

    #[test]
    fn with_data_disks_are_copies_of_images_as_large_as_the_disks() {
        let version = made(WITH_DATA);
        let name = version.metadata.name.clone().unwrap();
        let (image, disk) =
            (format!("templateversion-{name}-image-1"), format!("templateversion-{name}-disk-1"));
        assert_eq!(version.images(), [format!("a/{image}")]);
        let machine = version.spec.vm.spec.template.as_ref().unwrap();
        assert_eq!(machine.spec.claim_names().collect::<Vec<_>>(), [disk.as_str()]);
        let noted = &version.spec.vm.metadata.annotations.as_ref().unwrap()[claim_templates::ANNOTATION];
        let claim = claim_templates::parse(noted).unwrap().remove(0);
        let spec = claim.spec.unwrap();
        assert_eq!(requested_by(&spec), Some(2 << 30));
        assert_eq!(spec.storage_class_name, Some(storage_class_name(&image)));
        let exported = Exported { claim: "vm-root".into(), class: "disks".into() };
        assert_eq!(to_copy(&version).unwrap().images, BTreeMap::from([(image, exported)]));
    }

    #[test]
    fn what_cannot_be_made_is_given_up_with_a_reason() {
        let given_up = |note: &str, machine: Option<VirtualMachine>, claims: &BTreeMap<_, _>| {
            let (template, classes) = (template(note), BTreeMap::new());
            let seen = Seen {
                template: &template,
                machine: machine.as_ref(),
                claims,
                classes: &classes,
                has_version: false,
            };
            match next_step(&seen) {
                Some(Step::GiveUp(why)) => why,
                other => panic!("{other:?}"),
            }
        };
        assert!(given_up(BARE, None, &claims()).contains("vm that it is made of is gone"));
        let mut other = machine();
        other.metadata.uid = Some("x".into());
        assert!(given_up(BARE, Some(other), &claims()).contains("is gone"));
        assert!(given_up("{", Some(machine()), &claims()).contains("cannot be read"));
        assert!(given_up(WITH_DATA, Some(machine()), &BTreeMap::new()).contains("its claim vm-root is gone"));
        let fewer = r#"{"machine":"vm","uid":"mu","secrets":["keys","user"],"claims":[]}"#;
        assert!(given_up(fewer, Some(machine()), &claims()).contains("vm-root is new"));
        let fewer = r#"{"machine":"vm","uid":"mu","secrets":["keys"]}"#;
        assert!(given_up(fewer, Some(machine()), &claims()).contains("user is new"));
    }

    #[test]
    fn one_that_is_made_says_so_no_more_and_others_never_did() {
        let (claims, classes) = (claims(), BTreeMap::new());
        let made = template(BARE);
        let seen =
            Seen { template: &made, machine: None, claims: &claims, classes: &classes, has_version: true };
        assert_eq!(next_step(&seen), Some(Step::Forget));
        let other = VirtualMachineTemplate::default();
        assert_eq!(next_step(&Seen { template: &other, ..seen }), None);
    }
}
