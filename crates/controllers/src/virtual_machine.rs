//! Runs virtual machines: makes and ends their instances as their run strategy says, makes the claims they bring along,
//! and keeps their status true.
//!
//! The decisions are [`sheaf_planner::virtual_machine`]; here is only looking and acting. All that must outlive an
//! instance (what was asked for, how it ended, how often it failed, its hardware addresses) is written into
//! the machine before the instance goes, so an interruption between any two writes loses nothing.

mod look;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sheaf_client::{
    memory::Remembering,
    reconciling::{self, Next, ReconcileError, Reconciler},
};
use sheaf_planner::virtual_machine::{self, Event, Step};
use sheaf_resources::{
    kinds::{
        virtual_machine::{
            EJECTED_CLAIMS_ANNOTATION, FINALIZER, MAC_ADDRESS_ANNOTATION, SECRETS_TO_COPY_ANNOTATION,
            VirtualMachine,
            instance::instance_of,
            noted_claims::{NotedClaim, UIDS_ANNOTATION},
        },
        virtual_machine_image::VirtualMachineImage,
        virtual_machine_instance::{CONTROLLER_FINALIZER, VirtualMachineInstance},
    },
    quantity,
};
use tokio::time::Instant;

use self::look::{Look, Thing};
use crate::{
    Context,
    object::{Eyes, Object, Place, place_of},
    references::References,
    secret_copy,
    telling::{How, tell},
};

pub const NAME: &str = "virtual-machine";
const COMPONENT: &str = "virtualmachine-controller";
/// How long the status of a machine that comes up is left behind what changes with every step of that.
const A_MOMENT: Duration = Duration::from_secs(1);
/// More than any machine takes.
const MOST_STEPS: usize = 24;

pub(crate) async fn run(context: Context) {
    let client = context.client.clone();
    let machines = Machines { context, references: Arc::default(), held_back: Arc::default() };
    reconciling::run_side_by_side(machines, client, crate::SIDE_BY_SIDE).await;
}

#[derive(Clone)]
struct Machines {
    context: Context,
    references: Arc<Mutex<References<Place, Thing>>>,
    /// Machines whose status is written in a moment, and since when that is so.
    held_back: Arc<Mutex<BTreeMap<Place, Instant>>>,
}

impl Reconciler for Machines {
    type Key = Place;

    const NAME: &'static str = NAME;

    fn remembered(&self) -> Vec<Arc<dyn Remembering>> {
        let memory = &self.context.memory;
        vec![
            memory.of::<VirtualMachine>(),
            memory.of::<VirtualMachineInstance>(),
            memory.of::<PersistentVolumeClaim>(),
            memory.of::<VirtualMachineImage>(),
        ]
    }

    fn keys(&self, watch: usize, metadata: &ObjectMeta) -> Vec<Place> {
        let Some(place) = place_of(metadata) else { return Vec::new() };
        match watch {
            // An instance has its machine's name.
            0 | 1 => vec![place],
            2 => self.references.lock().to(&Thing::Claim(place)),
            _ => self.references.lock().to(&Thing::Image(place)),
        }
    }

    async fn reconcile(&mut self, place: &Place) -> Result<Next<Place>, ReconcileError> {
        let mut eyes = self.context.eyes();
        for _ in 0..MOST_STEPS {
            let vm: Option<Object<VirtualMachine>> = eyes.find(&place.0, &place.1).await?;
            let Some(vm) = vm else {
                self.references.lock().set(place, BTreeSet::new());
                self.held_back.lock().remove(place);
                return Ok(Next::rest());
            };
            self.references.lock().set(place, look::things(place, &vm.typed));
            let look = Look::at(&eyes, place, &vm).await?;
            let now = self.context.world.clock.now().as_second();
            let step = virtual_machine::next_step(&look.seen(&vm.typed, now));
            match step {
                Step::Rest => return Ok(Next::rest()),
                Step::Wait { until } => {
                    let wait = u64::try_from(until.saturating_sub(now)).unwrap_or(0).max(1);
                    return Ok(Next::again_after(Duration::from_secs(wait)));
                }
                Step::TellSoon(_) if let Some(wait) = self.hold_back(place) => {
                    return Ok(Next::again_after(wait));
                }
                step if !eyes.are_fresh() && (takes_fresh_eyes(&step, &vm.typed) || vm.is_written_over()) => {
                    eyes = eyes.fresh();
                }
                step => {
                    self.held_back.lock().remove(place);
                    let unwritten = virtual_machine::unwritten_status(&look.seen(&vm.typed, now));
                    let done = self.take(&eyes, &step, place, &vm, look).await;
                    if matches!(done, Ok(true)) {
                        continue;
                    }
                    // Whoever waits for a machine that cannot be brought up reads at least how it is.
                    let is_it = matches!(step, Step::WriteStatus(_) | Step::TellSoon(_));
                    if let Some(status) = unwritten.filter(|_| !is_it) {
                        vm.write_status(json!(status)).await?;
                    }
                    return done.map(|_| Next::again_after(crate::LOOK_AGAIN));
                }
            }
        }
        // So many steps mean that somebody undoes them; that is no reason to run in circles.
        Ok(Next::again_after(crate::LOOK_AGAIN))
    }
}

/// What is done because something is absent, or to an instance that another hand may have replaced. A status that takes a
/// request for done, or counts a failure, says so of the instance.
fn takes_fresh_eyes(step: &Step, vm: &VirtualMachine) -> bool {
    match step {
        Step::WriteStatus(status) => !virtual_machine::is_for_reading_only(&vm.status, status),
        Step::CreateClaim(_)
        | Step::CreateInstance
        | Step::DeleteInstance { .. }
        | Step::CopySecrets { .. }
        | Step::DeleteClaims { .. }
        | Step::DeleteEjected { .. }
        | Step::SyncLabels { .. }
        | Step::UpdateInstance { .. }
        | Step::RemoveFinalizer => true,
        _ => false,
    }
}

impl Machines {
    /// How long a status that may be another one in a moment is still not written.
    fn hold_back(&self, place: &Place) -> Option<Duration> {
        let since = *self.held_back.lock().entry(place.clone()).or_insert_with(Instant::now);
        A_MOMENT.checked_sub(since.elapsed()).filter(|wait| !wait.is_zero())
    }

    /// Acts, and tells how that went; answers whether it was done.
    async fn take(
        &self,
        eyes: &Eyes,
        step: &Step,
        place: &Place,
        vm: &Object<VirtualMachine>,
        look: Look,
    ) -> Result<bool, ReconcileError> {
        let done = self.act(eyes, step, place, vm, look).await;
        let (told, how): (Option<Event>, How) = match &done {
            Ok(true) => (virtual_machine::event_of(step, &vm.typed), How::Now),
            Err(ReconcileError::Api(kube::Error::Api(why))) if !why.is_conflict() && why.code != 404 => {
                (virtual_machine::failure_event_of(step, &vm.typed, &why.message), How::Once)
            }
            Ok(false) | Err(_) => (None, How::Now),
        };
        if let Some((sort, reason, message)) = told {
            tell(&self.context, COMPONENT, vm, (sort, reason, &message), how).await;
        }
        done
    }

    /// Answers whether it was done; what cannot be made, because its namespace goes, was not.
    async fn act(
        &self,
        eyes: &Eyes,
        step: &Step,
        place: &Place,
        vm: &Object<VirtualMachine>,
        look: Look,
    ) -> Result<bool, ReconcileError> {
        match (step, look.instance) {
            (Step::Rest | Step::Wait { .. }, _) => {}
            (Step::WriteStatus(status) | Step::TellSoon(status), _) => vm.write_status(json!(status)).await?,
            (Step::CreateClaim(claim), _) => {
                return Ok(eyes.create::<PersistentVolumeClaim>(&place.0, json!(claim)).await?);
            }
            (Step::GrowClaim { name, bytes }, _) => {
                let claim: Option<Object<PersistentVolumeClaim>> = eyes.find(&place.0, name).await?;
                if let Some(claim) = claim {
                    let requests = json!({"storage": quantity::bytes(*bytes)});
                    claim.merge(json!({"spec": {"resources": {"requests": requests}}})).await?;
                }
            }
            (Step::CreateInstance, _) => {
                let chance = &self.context.world.chance;
                let instance = instance_of(&vm.typed, &mut |bytes| chance.fill(bytes));
                let Some(instance) = instance else { return Ok(false) };
                return Ok(eyes.create::<VirtualMachineInstance>(&place.0, json!(instance)).await?);
            }
            (Step::DeleteInstance { .. }, Some(instance)) => instance.delete().await?,
            (Step::ReleaseInstance { .. }, Some(instance)) => {
                instance.remove_finalizer(CONTROLLER_FINALIZER).await?;
            }
            (Step::NoteAddresses { annotation }, _) => {
                vm.merge(json!({"metadata": {"annotations": {MAC_ADDRESS_ANNOTATION: annotation}}})).await?;
            }
            (Step::SettleAddresses { addresses }, _) => {
                let mut changed = vm.whole()?;
                let devices = &mut changed.data["spec"]["template"]["spec"]["domain"]["devices"];
                for interface in devices["interfaces"].as_array_mut().into_iter().flatten() {
                    let name = interface["name"].as_str().unwrap_or_default();
                    if let Some(address) = addresses.get(name) {
                        interface["macAddress"] = json!(address);
                    }
                }
                vm.write(&changed).await?;
            }
            (Step::SyncLabels { labels }, Some(instance)) => {
                let mut changed = instance.whole()?;
                changed.metadata.labels = Some(labels.clone());
                instance.write(&changed).await?;
            }
            (Step::UpdateInstance { spec }, Some(instance)) => {
                let mut changed = instance.whole()?;
                changed.data["spec"] = json!(spec);
                instance.write(&changed).await?;
            }
            (Step::SetRunStrategy(strategy), _) => {
                vm.merge(json!({"spec": {"runStrategy": strategy, "running": null}})).await?;
            }
            (Step::CopySecrets { secrets }, _) => {
                if !self.copy_secrets(secrets, place, vm).await? {
                    return Ok(false);
                }
                vm.merge(json!({"metadata": {"annotations": {SECRETS_TO_COPY_ANNOTATION: null}}})).await?;
            }
            (Step::BindClaims { annotation }, _) => {
                vm.merge(json!({"metadata": {"annotations": {UIDS_ANNOTATION: annotation}}})).await?;
            }
            (Step::DeleteClaims { claims }, _) => {
                // A machine does not wait for what others use: whoever is last takes it along.
                if self.delete_claims(claims, place, vm).await? {
                    vm.remove_finalizer(FINALIZER).await?;
                }
            }
            (Step::DeleteEjected { claims, held }, _) => {
                self.delete_claims(claims, place, vm).await?;
                let left = if held.is_empty() { Value::Null } else { json!(held.join(",")) };
                vm.merge(json!({"metadata": {"annotations": {EJECTED_CLAIMS_ANNOTATION: left}}})).await?;
            }
            (Step::RemoveFinalizer, _) => vm.remove_finalizer(FINALIZER).await?,
            // It went while we were deciding.
            (
                Step::DeleteInstance { .. }
                | Step::ReleaseInstance { .. }
                | Step::SyncLabels { .. }
                | Step::UpdateInstance { .. },
                None,
            ) => {}
        }
        Ok(true)
    }

    /// Answers whether all of them are there now. One whose original is not there may still come.
    async fn copy_secrets(
        &self,
        secrets: &BTreeMap<String, String>,
        place: &Place,
        vm: &Object<VirtualMachine>,
    ) -> Result<bool, ReconcileError> {
        let owner = OwnerReference {
            api_version: "kubevirt.io/v1".into(),
            kind: "VirtualMachine".into(),
            name: vm.name().to_owned(),
            uid: vm.uid().to_owned(),
            ..OwnerReference::default()
        };
        let mut are_there = true;
        for (to, from) in secrets {
            if !secret_copy::copy(&self.context.client, &place.0, (from, to), &owner).await? {
                let words = format!("the Secret {from} that {to} is to be a copy of does not exist");
                tell(&self.context, COMPONENT, vm, ("Warning", "SecretNotCopied", &words), How::Once).await;
                are_there = false;
            }
        }
        Ok(are_there)
    }

    /// A claim that others use stays, and that is told; answers whether there was one.
    async fn delete_claims(
        &self,
        claims: &[NotedClaim],
        place: &Place,
        vm: &Object<VirtualMachine>,
    ) -> Result<bool, ReconcileError> {
        let mut refused = false;
        for noted in claims {
            let claim: Option<Object<PersistentVolumeClaim>> =
                self.context.eyes().fresh().find(&place.0, &noted.name).await?;
            let is_meant = |claim: &Object<_>| claim.uid() == noted.uid && !claim.is_being_deleted();
            let Some(claim) = claim.filter(is_meant) else { continue };
            match claim.delete().await {
                Err(ReconcileError::Api(kube::Error::Api(why))) if why.is_invalid() || why.is_forbidden() => {
                    let words = ("Warning", "FailedDelete", why.message.as_str());
                    tell(&self.context, COMPONENT, vm, words, How::Once).await;
                    refused = true;
                }
                done => done?,
            }
        }
        Ok(refused)
    }
}
