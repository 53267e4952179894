//! Takes backups of machines that stay in the cluster: notes what a machine is, has all its disks snapshotted at one
//! instant, and says how that goes.
//!
//! The decisions are [`sheaf_planner::virtual_machine_backup`]. Snapshots and copies of Secrets belong to the backup, and
//! garbage collection takes them away with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use parking_lot::Mutex;
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::virtual_machine_backup::{self, Seen, Step};
use sheaf_resources::{
    kinds::{
        setting::{CSI_DRIVER_CONFIG, Setting, snapshot_classes},
        virtual_machine::VirtualMachine,
        virtual_machine_backup::{SecretBackup, VirtualMachineBackup, VirtualMachineBackupStatus},
        volume_snapshot::VolumeSnapshot,
    },
    names::short_mark,
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    secret_copy,
    telling::{How, tell},
};

pub const NAME: &str = "virtual-machine-backup";
const COMPONENT: &str = "harvester-vm-backup-controller";
/// More than any backup takes: one step for each disk.
const MOST_STEPS: usize = 64;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let backups = Backups { context, references: Arc::default() };
    reconciling::run_side_by_side(backups, client, crate::SIDE_BY_SIDE).await;
}

/// What a backup that is not begun depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Machine(Place),
    Claim(Place),
    Setting,
}

#[derive(Clone)]
struct Backups {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
}

impl Reconciler for Backups {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineBackup>(),
            memory.of::<VolumeSnapshot>(),
            memory.of::<VirtualMachine>(),
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<Setting>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        match (watch, place_of(metadata)) {
            (0, place) => place.into_iter().collect(),
            (1, Some((namespace, _))) => {
                let owners = metadata.owner_references.iter().flatten();
                let backups = owners.filter(|owner| owner.kind == "VirtualMachineBackup");
                backups.map(|owner| (namespace.clone(), owner.name.clone())).collect()
            }
            (2, Some(machine)) => self.references.lock().to(&Thing::Machine(machine)),
            (3, Some(claim)) => self.references.lock().to(&Thing::Claim(claim)),
            (_, _) => self.references.lock().to(&Thing::Setting),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let backup: Option<Object<VirtualMachineBackup>> = eyes.find(&place.0, &place.1).await?;
            let Some(backup) = backup else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let look = self.look(&eyes, place, &backup).await?;
            let now_secs = self.context.world.clock.now().as_second();
            let mut seen = Seen {
                backup: &backup.typed,
                vm: look.vm.as_deref(),
                claims: &look.claims,
                classes: &look.classes,
                snapshots: &look.snapshots,
                secrets: &[],
                now_secs,
            };
            let step = virtual_machine_backup::next_step(&seen);
            match step {
                Step::Rest => return Ok(Next::rest()),
                // They rest on what is absent, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                Step::Begin { .. } => {
                    // Before what is noted can be relied on, what it names is there.
                    let secrets = self.copy_secrets(place, &backup, look.vm.as_deref()).await?;
                    seen.secrets = &secrets;
                    let Step::Begin { status, owner } = virtual_machine_backup::next_step(&seen) else {
                        continue;
                    };
                    let mut changed = backup.whole()?;
                    changed.data["status"] = json!(status);
                    let owners = changed.metadata.owner_references.get_or_insert_default();
                    if !owners.iter().any(|held| held.uid == owner.uid) {
                        // An object has one controller at most, and somebody's own owners are theirs.
                        let alone = !owners.iter().any(|held| held.controller == Some(true));
                        owners.push(OwnerReference { controller: Some(alone), ..*owner });
                    }
                    backup.write(&changed).await?;
                }
                Step::CreateSnapshot { snapshot } => {
                    if !eyes.create::<VolumeSnapshot>(&place.0, snapshot).await? {
                        return Ok(Next::again_after(crate::LOOK_AGAIN));
                    }
                }
                Step::WriteStatus(status) => {
                    let mut changed = backup.whole()?;
                    changed.data["status"] = json!(status);
                    backup.write(&changed).await?;
                    self.tell(&backup, &status).await;
                }
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

#[derive(Default)]
struct Look {
    vm: Option<Arc<VirtualMachine>>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    classes: BTreeMap<String, String>,
    snapshots: BTreeMap<String, VolumeSnapshot>,
}

impl Backups {
    async fn look(
        &self,
        eyes: &Eyes,
        place: &Place,
        backup: &Object<VirtualMachineBackup>,
    ) -> Result<Look, ReconcileError> {
        let mut look = Look::default();
        let begun = backup.typed.status.as_ref().filter(|status| status.source.is_some());
        if let Some(status) = begun {
            self.references.lock().set(place, BTreeSet::new());
            for volume in &status.volume_backups {
                let snapshot: Option<Object<VolumeSnapshot>> = eyes.find(&place.0, &volume.name).await?;
                look.snapshots
                    .extend(snapshot.map(|snapshot| (volume.name.clone(), (*snapshot.typed).clone())));
            }
            return Ok(look);
        }
        let machine = (place.0.clone(), backup.typed.spec.source.name.clone());
        let vm: Option<Object<VirtualMachine>> = eyes.find(&machine.0, &machine.1).await?;
        let mut things = BTreeSet::from([Thing::Machine(machine), Thing::Setting]);
        let template = vm.as_ref().and_then(|vm| vm.typed.spec.template.as_ref());
        let names: BTreeSet<&str> =
            template.iter().flat_map(|template| template.spec.claim_names()).collect();
        things.extend(names.iter().map(|name| Thing::Claim((place.0.clone(), (*name).to_owned()))));
        self.references.lock().set(place, things);
        for name in names {
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, name).await?;
            look.claims.extend(claim.map(|claim| (name.to_owned(), (*claim.typed).clone())));
        }
        look.vm = vm.map(|vm| vm.typed.clone());
        let setting: Option<Object<Setting>> = eyes.find("", CSI_DRIVER_CONFIG).await?;
        look.classes = setting
            .map(|setting| snapshot_classes(&setting.typed.default, &setting.typed.value))
            .unwrap_or_default();
        Ok(look)
    }

    /// Copies the machine's Secrets; one that is not there yet is none of what the machine was.
    async fn copy_secrets(
        &self,
        place: &Place,
        backup: &Object<VirtualMachineBackup>,
        vm: Option<&VirtualMachine>,
    ) -> Result<Vec<SecretBackup>, ReconcileError> {
        let owner = OwnerReference {
            api_version: "harvesterhci.io/v1beta1".into(),
            kind: "VirtualMachineBackup".into(),
            name: place.1.clone(),
            uid: backup.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(false),
        };
        let template = vm.and_then(|vm| vm.spec.template.as_ref());
        let names: BTreeSet<&str> =
            template.iter().flat_map(|template| template.spec.secret_names()).collect();
        let mut copied = Vec::new();
        for name in names {
            let kept = format!("vmb-{}-{}", backup.uid(), short_mark(name, 8));
            if secret_copy::copy(&self.context.client, &place.0, (name, &kept), &owner).await? {
                copied.push(SecretBackup { name: name.to_owned(), secret_name: kept });
            }
        }
        Ok(copied)
    }

    async fn tell(&self, backup: &Object<VirtualMachineBackup>, status: &VirtualMachineBackupStatus) {
        let why = status.error.as_ref().and_then(|error| error.message.as_deref());
        if let Some(why) = why {
            let words = ("Warning", "VirtualMachineBackupError", why);
            tell(&self.context, COMPONENT, backup, words, How::Once).await;
        } else if status.ready_to_use == Some(true) {
            let words = ("Normal", "VirtualMachineBackupComplete", "the backup can be restored");
            tell(&self.context, COMPONENT, backup, words, How::Once).await;
        }
    }
}
