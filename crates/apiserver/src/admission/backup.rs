//! Backups of machines and their restores: of what there is, of what may be read, and not across each other.
//!
//! The words are Harvester's. What is found here may be otherwise a moment later; the controllers look again before
//! they change a machine.

use serde_json::Value;
use sheaf_resources::{
    field_error::{FieldError, FieldPath},
    kinds::{
        setting::{self, snapshot_classes},
        storage_class::PROVISIONER,
        virtual_machine::status::STOP,
        virtual_machine_backup::{self, snapshot_name},
        virtual_machine_instance::network::MultusNetwork,
        virtual_machine_restore::{self, RETAIN},
    },
    names, object_meta,
    rbac::{self, Attributes},
};

use super::machines;
use crate::{
    ApiServer,
    cache::{Resource, place},
    rest::{Call, options::Freshness},
    status::ApiError,
};

const HARVESTER: &str = "harvesterhci.io";
const BACKUPS: &str = "virtualmachinebackups";
const RESTORES: &str = "virtualmachinerestores";

impl ApiServer {
    /// A machine that there is, with disks that somebody takes snapshots of.
    pub(super) async fn admit_backup(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        // What makes no sense at all is refused, in its own words, by its kind.
        if new["spec"]["type"] != virtual_machine_backup::TYPE_SNAPSHOT {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let at = FieldPath::new("spec").child("source").child("name");
        let (namespace, name) = (call.request.namespace.as_str(), text(&new["spec"]["source"]["name"]));
        let refuse = |why: String| Err(invalid(call, new, FieldError::invalid(&at, name, why)));
        let Some(vm) = self.machine(namespace, name).filter(|_| !name.is_empty()) else {
            return refuse(format!("virtualmachines.kubevirt.io \"{name}\" not found"));
        };
        if object_meta::is_being_deleted(&vm) {
            return refuse(format!("the virtual machine {name} is being deleted"));
        }
        let classes = self.snapshot_classes();
        for claim in claims_of(&vm) {
            let Some(found) = self.find("", "persistentvolumeclaims", namespace, &claim) else {
                return refuse(format!("failed to get PVC {namespace}/{claim}: it does not exist"));
            };
            let driver = self.driver_of(&found);
            if !classes.contains_key(&driver) {
                return refuse(format!(
                    "provisioner {driver} of PVC {namespace}/{claim} has no volumeSnapshotClassName in the setting {}",
                    setting::CSI_DRIVER_CONFIG
                ));
            }
            let backup = text(&new["metadata"]["name"]);
            if !names::dns_subdomain_problems(&snapshot_name(backup, &claim)).is_empty() {
                let why = format!("too long: the snapshot of PVC {claim} would have no name");
                let at = FieldPath::new("metadata").child("name");
                return Err(invalid(call, new, FieldError::invalid(&at, backup, why)));
            }
        }
        Ok(())
    }

    /// Whether somebody takes snapshots of every disk of a machine.
    pub(crate) fn takes_snapshots_of(&self, namespace: &str, vm: &Value) -> bool {
        let classes = self.snapshot_classes();
        claims_of(vm).iter().all(|claim| {
            let found = self.find("", "persistentvolumeclaims", namespace, claim);
            found.is_some_and(|claim| classes.contains_key(&self.driver_of(&claim)))
        })
    }

    /// Of which class snapshots of the claim's volume are, if somebody takes any.
    pub(crate) fn snapshot_class_of(&self, claim: &Value) -> Option<String> {
        self.snapshot_classes().remove(&self.driver_of(claim))
    }

    /// Who keeps what is claimed.
    fn driver_of(&self, claim: &Value) -> String {
        let class = text(&claim["spec"]["storageClassName"]);
        let class = self.find("storage.k8s.io", "storageclasses", "", class).unwrap_or_default();
        class["provisioner"].as_str().unwrap_or(PROVISIONER).to_owned()
    }

    /// A backup that is ready and may be read, to a machine that is off, or to one that is not there yet.
    pub(super) async fn admit_restore(&self, call: &Call<'_>, new: &Value) -> Result<(), ApiError> {
        let spec = &new["spec"];
        let field = |field: &str| text(&spec[field]).to_owned();
        let (backup_namespace, backup_name) =
            (field("virtualMachineBackupNamespace"), field("virtualMachineBackupName"));
        if backup_name.is_empty() || backup_namespace.is_empty() || text(&spec["target"]["name"]).is_empty() {
            return Ok(());
        }
        let path = FieldPath::new("spec");
        let of_backup = |why: String| {
            let at = path.child("virtualMachineBackupName");
            Err(invalid(call, new, FieldError::invalid(&at, backup_name.as_str(), why)))
        };
        // Before anything is said about it.
        self.check_may_get_backup(call, new, &backup_namespace, &backup_name)?;
        self.reach(Freshness::Latest).await?;
        let Some(backup) = self.find(HARVESTER, BACKUPS, &backup_namespace, &backup_name) else {
            return of_backup(format!(
                "can't get vmbackup {backup_namespace}/{backup_name}: it does not exist"
            ));
        };
        if object_meta::is_being_deleted(&backup) {
            return of_backup(format!("vmbackup {backup_namespace}/{backup_name} is deleted"));
        }
        if backup["status"]["readyToUse"] != true {
            return of_backup(format!("VMBackup {backup_namespace}/{backup_name} is not ready"));
        }
        if backup_namespace != call.request.namespace {
            return of_backup("restore to other namespace with backup type snapshot is not supported".into());
        }
        let is_new = spec["newVM"] == true;
        // The guest of a new machine reads what its Secrets say, whoever made it.
        let secrets = backup["status"]["secretBackups"].as_array().into_iter().flatten();
        for secret in secrets.filter(|_| is_new).filter_map(|secret| secret["name"].as_str()) {
            self.check_takes(call, new, "restore to a new machine", ("get", "", "secrets", secret))?;
        }
        if !is_new && spec["deletionPolicy"] != RETAIN {
            let why = "delete policy with backup type snapshot for replacing VM is not supported";
            return of_backup(why.into());
        }
        if let Some(network) = self.missing_network(&backup) {
            return of_backup(format!(
                "failed to get network attachment definition {network}: it does not exist"
            ));
        }
        self.check_target(call, new, &backup)
    }

    fn check_target(&self, call: &Call<'_>, new: &Value, backup: &Value) -> Result<(), ApiError> {
        let path = FieldPath::new("spec");
        let (namespace, target) = (call.request.namespace.as_str(), text(&new["spec"]["target"]["name"]));
        let refuse =
            |at: FieldPath, why: String| Err(invalid(call, new, FieldError::invalid(&at, target, why)));
        let at_target = path.child("target").child("name");
        let vm = self.machine(namespace, target);
        if new["spec"]["newVM"] == true {
            if vm.is_some() {
                return refuse(path.child("newVM"), format!("VM {target} is already exists"));
            }
            let source = self.machine(namespace, text(&backup["spec"]["source"]["name"]));
            let is_there =
                source.is_some_and(|source| source["metadata"]["uid"] == backup["status"]["sourceUID"]);
            if new["spec"]["keepMacAddress"] == true && is_there {
                let why = "can't restore the new vm with the same macaddress because the source vm is still existent";
                return refuse(path.child("keepMacAddress"), why.into());
            }
            return Ok(());
        }
        let Some(vm) = vm else {
            return refuse(at_target, format!("can't replace nonexistent vm {target}"));
        };
        let instance = self.find(machines::GROUP, machines::INSTANCES, namespace, target);
        let is_over =
            |instance: &Value| ["Succeeded", "Failed"].contains(&text(&instance["status"]["phase"]));
        if vm["status"]["ready"] == true || instance.is_some_and(|instance| !is_over(&instance)) {
            return refuse(at_target, format!("Please stop the VM \"{target}\" before doing a restore"));
        }
        let same = |restore: &Value| {
            restore["metadata"]["namespace"] == namespace
                && restore["spec"]["target"]["name"] == target
                && !object_meta::is_being_deleted(restore)
                && virtual_machine_restore::is_in_progress(restore)
        };
        if self.all(HARVESTER, RESTORES).iter().any(same) {
            let why = format!(
                "Please wait for the previous VM restore on the {namespace}/{target} to be complete first."
            );
            return refuse(at_target, why);
        }
        Ok(())
    }

    /// What a restore is made of stays until it is done.
    pub(super) async fn admit_backup_deletion(&self, call: &Call<'_>, name: &str) -> Result<(), ApiError> {
        let collected = call.user.name == rbac::controller_user("garbage-collection");
        if collected || self.is_being_emptied(call) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let namespace = &call.request.namespace;
        let restores = self.all(HARVESTER, RESTORES);
        let of_it = |restore: &&Value| {
            restore["spec"]["virtualMachineBackupName"] == name
                && restore["spec"]["virtualMachineBackupNamespace"] == namespace.as_str()
                && !object_meta::is_being_deleted(restore)
                && is_true(restore, virtual_machine_backup::IN_PROGRESS)
        };
        match restores.iter().find(of_it) {
            None => Ok(()),
            Some(restore) => {
                let restore =
                    place(text(&restore["metadata"]["namespace"]), text(&restore["metadata"]["name"]));
                Err(ApiError::unprocessable(format!("vmrestore {restore} is in progress")))
            }
        }
    }

    /// A machine is not stopped by hand while it is being backed up: what is taken would be of a machine that goes down.
    pub(super) async fn admit_stop(&self, call: &Call<'_>, new: &Value, old: &Value) -> Result<(), ApiError> {
        let kind = &call.served.kind;
        let is_machine = (kind.group.as_str(), kind.plural.as_str()) == (machines::GROUP, machines::MACHINES);
        if !is_machine || !stops(new, old) || call.user.name.starts_with(&rbac::controller_user("")) {
            return Ok(());
        }
        self.reach(Freshness::Latest).await?;
        let uid = &old["metadata"]["uid"];
        let of_it = |backup: &Value| {
            backup["status"]["sourceUID"] == *uid
                && !object_meta::is_being_deleted(backup)
                && virtual_machine_backup::is_in_progress(backup)
        };
        if !self.all(HARVESTER, BACKUPS).iter().any(of_it) {
            return Ok(());
        }
        let machine = place(text(&old["metadata"]["namespace"]), text(&old["metadata"]["name"]));
        Err(ApiError::bad_request(format!(
            "there is vmbackup in progress for vm {machine}, please wait for the vmbackup or remove it before \
             stop/restart the vm"
        )))
    }

    fn check_may_get_backup(
        &self,
        call: &Call<'_>,
        new: &Value,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        let asked = Attributes {
            verb: "get",
            group: HARVESTER,
            resource: BACKUPS,
            namespace,
            name,
            ..Attributes::default()
        };
        if self.authorizer.authorize(call.user, &asked).is_allowed() {
            return Ok(());
        }
        let why =
            format!("user {:?} is not authorized to access VMBackup {namespace}/{name}", call.user.name);
        Err(ApiError::refused(call.named(), text(&new["metadata"]["name"]), why))
    }

    /// A network of the machine as it was that is not there any more.
    fn missing_network(&self, backup: &Value) -> Option<String> {
        let namespace = text(&backup["metadata"]["namespace"]);
        let networks = backup["status"]["source"]["spec"]["template"]["spec"]["networks"].as_array();
        let names =
            networks.into_iter().flatten().filter_map(|network| network["multus"]["networkName"].as_str());
        let mut missing = names.filter(|name| {
            let multus = MultusNetwork { network_name: (*name).to_owned(), ..MultusNetwork::default() };
            multus.definition(namespace).is_none_or(|(namespace, name)| {
                self.find("k8s.cni.cncf.io", "network-attachment-definitions", namespace, name).is_none()
            })
        });
        missing.next().map(str::to_owned)
    }

    fn snapshot_classes(&self) -> std::collections::BTreeMap<String, String> {
        let setting = self.find(HARVESTER, "settings", "", setting::CSI_DRIVER_CONFIG).unwrap_or_default();
        snapshot_classes(text(&setting["default"]), text(&setting["value"]))
    }

    fn machine(&self, namespace: &str, name: &str) -> Option<Value> {
        self.find(machines::GROUP, machines::MACHINES, namespace, name)
    }

    pub(crate) fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let found = self.cache.get(&Resource::new(group, plural), &place(namespace, name));
        found.map(|object| object.to_value())
    }
}

/// Whether a machine that runs is told to stop, for good or for a moment.
fn stops(new: &Value, old: &Value) -> bool {
    let is_off = |vm: &Value| vm["spec"]["runStrategy"] == "Halted" || vm["spec"]["running"] == false;
    let asks = |vm: &Value| vm["status"]["stateChangeRequests"][0]["action"] == STOP;
    (is_off(new) && !is_off(old)) || (asks(new) && !asks(old))
}

fn claims_of(vm: &Value) -> Vec<String> {
    let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array();
    let claims = volumes.into_iter().flatten();
    let names = claims.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
    names.map(str::to_owned).collect()
}

fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut of_type = conditions.filter(|one| one["type"] == condition);
    of_type.any(|one| one["status"] == "True")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn invalid(call: &Call<'_>, new: &Value, error: FieldError) -> ApiError {
    let kind = &call.served.kind;
    ApiError::invalid(&kind.group, &kind.kind, text(&new["metadata"]["name"]), &[error])
}
