//! Restores machines from their backups: makes the disks, then the machine.
//!
//! The decisions are [`sheaf_planner::virtual_machine_restore`]; here is only looking and acting. What the API refuses is
//! told in its words.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use parking_lot::Mutex;
use serde_json::json;
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::virtual_machine_restore::{self, Seen, Step};
use sheaf_resources::kinds::{
    virtual_machine::{VirtualMachine, claim_templates},
    virtual_machine_backup::VirtualMachineBackup,
    virtual_machine_instance::VirtualMachineInstance,
    virtual_machine_restore::{NAME_ANNOTATION, VirtualMachineRestore, VirtualMachineRestoreStatus},
};

use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    secret_copy,
    telling::{How, tell},
};

pub const NAME: &str = "virtual-machine-restore";
const COMPONENT: &str = "harvester-vm-restore-controller";
/// More than any restore takes: two steps for each disk.
const MOST_STEPS: usize = 128;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let restores = Restores { context, references: Arc::default() };
    reconciling::run_side_by_side(restores, client, crate::SIDE_BY_SIDE).await;
}

/// What a restore depends on, beside claims.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Backup(Place),
    Machine(Place),
}

#[derive(Clone)]
struct Restores {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
}

impl Reconciler for Restores {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachineRestore>(),
            memory.of::<VirtualMachineBackup>(),
            memory.of::<VirtualMachine>(),
            memory.of::<VirtualMachineInstance>(),
            memory.of::<PersistentVolumeClaim>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let Some(place) = place_of(metadata) else { return Vec::new() };
        match watch {
            0 => vec![place],
            1 => self.references.lock().to(&Thing::Backup(place)),
            // An instance has its machine's name.
            2 | 3 => self.references.lock().to(&Thing::Machine(place)),
            _ => {
                let restore = metadata.annotations.as_ref().and_then(|all| all.get(NAME_ANNOTATION));
                restore.map(|restore| (place.0, restore.clone())).into_iter().collect()
            }
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let restore: Option<Object<VirtualMachineRestore>> = eyes.find(&place.0, &place.1).await?;
            let Some(restore) = restore.filter(|restore| !restore.typed.is_complete()) else {
                self.references.lock().set(place, BTreeSet::new());
                return Ok(Next::rest());
            };
            let look = self.look(&eyes, place, &restore).await?;
            let now_secs = self.context.world.clock.now().as_second();
            let seen = look.seen(&restore.typed, now_secs);
            let step = virtual_machine_restore::next_step(&seen);
            match step {
                Step::Rest => return Ok(Next::rest()),
                // They rest on what is absent, which may only be late.
                _ if !eyes.are_fresh() => eyes = eyes.fresh(),
                step => match self.act(&eyes, step, place, &restore, &look).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(Next::again_after(crate::LOOK_AGAIN)),
                    Err(ReconcileError::Api(kube::Error::Api(why)))
                        if why.is_invalid() || why.is_forbidden() || why.code == 400 =>
                    {
                        if let Some(status) = virtual_machine_restore::refused(&seen, &why.message) {
                            self.write_status(&restore, &status).await?;
                        }
                        return Ok(Next::again_after(crate::LOOK_AGAIN));
                    }
                    Err(why) => return Err(why),
                },
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

struct Look {
    backup: Option<Object<VirtualMachineBackup>>,
    vm: Option<Object<VirtualMachine>>,
    is_running: bool,
    claims: BTreeMap<String, PersistentVolumeClaim>,
}

impl Look {
    fn seen<'a>(&'a self, restore: &'a VirtualMachineRestore, now_secs: i64) -> Seen<'a> {
        Seen {
            restore,
            backup: self.backup.as_ref().map(|backup| &*backup.typed),
            vm: self.vm.as_ref().map(|vm| &*vm.typed),
            is_running: self.is_running,
            claims: &self.claims,
            now_secs,
        }
    }
}

impl Restores {
    async fn look(
        &self,
        eyes: &Eyes,
        place: &Place,
        restore: &Object<VirtualMachineRestore>,
    ) -> Result<Look, ReconcileError> {
        let spec = &restore.typed.spec;
        let backup =
            (spec.virtual_machine_backup_namespace.clone(), spec.virtual_machine_backup_name.clone());
        let target = (place.0.clone(), spec.target.name.clone());
        let things = BTreeSet::from([Thing::Backup(backup.clone()), Thing::Machine(target.clone())]);
        self.references.lock().set(place, things);
        let instance: Option<Object<VirtualMachineInstance>> = eyes.find(&target.0, &target.1).await?;
        let mut look = Look {
            backup: eyes.find(&backup.0, &backup.1).await?,
            vm: eyes.find(&target.0, &target.1).await?,
            is_running: instance.is_some_and(|instance| !instance.typed.status.phase.is_final()),
            claims: BTreeMap::new(),
        };
        let restores = restore.typed.status.iter().flat_map(|status| &status.restores);
        for volume in restores {
            let name = volume.persistent_volume_claim_spec.metadata.name.clone().unwrap_or_default();
            let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &name).await?;
            look.claims.extend(claim.map(|claim| (name, (*claim.typed).clone())));
        }
        Ok(look)
    }

    /// Answers whether it was done; what cannot be made, because its namespace goes, was not.
    async fn act(
        &self,
        eyes: &Eyes,
        step: Step,
        place: &Place,
        restore: &Object<VirtualMachineRestore>,
        look: &Look,
    ) -> Result<bool, ReconcileError> {
        match step {
            Step::Rest => {}
            Step::WriteStatus(status) => self.write_status(restore, &status).await?,
            Step::CreateClaim(claim) => {
                return Ok(eyes.create::<PersistentVolumeClaim>(&place.0, json!(claim)).await?);
            }
            Step::KeepClaim { name } => {
                let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, &name).await?;
                if let Some(claim) = claim {
                    let owners = claim.metadata().owner_references.clone().unwrap_or_default();
                    let others: Vec<_> = owners.iter().filter(|owner| owner.uid != restore.uid()).collect();
                    claim.merge(json!({"metadata": {"ownerReferences": others}})).await?;
                }
            }
            Step::CreateMachine(vm) => {
                return Ok(eyes.create::<VirtualMachine>(&place.0, json!(vm)).await?);
            }
            Step::ReplaceMachine(becomes) => {
                let Some(vm) = &look.vm else { return Ok(false) };
                let mut changed = vm.whole()?;
                changed.data["spec"] = json!(becomes.spec);
                changed.metadata.annotations.clone_from(&becomes.metadata.annotations);
                let annotations = changed.metadata.annotations.get_or_insert_default();
                annotations.remove(claim_templates::ANNOTATION);
                vm.write(&changed).await?;
            }
            Step::Finish { secrets, status, owner } => {
                for (from, to) in &secrets {
                    secret_copy::copy(&self.context.client, &place.0, (from, to), &owner).await?;
                }
                let mut changed = restore.whole()?;
                changed.data["status"] = json!(status);
                let owners = changed.metadata.owner_references.get_or_insert_default();
                if !owners.iter().any(|held| held.uid == owner.uid || held.controller == Some(true)) {
                    owners.push(*owner);
                }
                restore.write(&changed).await?;
                let words = ("Normal", "VirtualMachineRestoreComplete", "the virtual machine is restored");
                tell(&self.context, COMPONENT, restore, words, How::Once).await;
            }
        }
        Ok(true)
    }

    async fn write_status(
        &self,
        restore: &Object<VirtualMachineRestore>,
        status: &VirtualMachineRestoreStatus,
    ) -> Result<(), ReconcileError> {
        let mut changed = restore.whole()?;
        changed.data["status"] = json!(status);
        restore.write(&changed).await?;
        if let Some(failed) = status.conditions.iter().find(|condition| condition.reason == "Error") {
            let words = ("Warning", "VirtualMachineRestoreError", failed.message.as_str());
            tell(&self.context, COMPONENT, restore, words, How::Once).await;
        }
        Ok(())
    }
}
