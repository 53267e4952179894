//! Keeps one machine as its object says: look, decide, act, and look again.
//!
//! Each turn takes at most one step. What went wrong is said in the status and tried again, later
//! each time; a turn that is dropped anywhere leaves nothing that the next one does not find.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use kube::api::{DynamicObject, ListParams};
use serde_json::json;
use sheaf_client::{api, objects::Objects, work_queue::retry_after};
use sheaf_hypervisor::{HypervisorError, Machine, MachineId, QmpError};
use sheaf_planner::virtual_machine_instance::{
    NEVER_STARTED, SYNC_FAILED, Seen, Step as Planned, Wanted, event_of_phase, event_of_step, next_step,
    phase_of, wanted,
};
use sheaf_resources::kinds::virtual_machine_instance::{
    FOREGROUND_FINALIZER, VirtualMachineInstance,
    demand::Demand,
    status::{ClaimInfo, Phase},
};
use sheaf_storage::Backend;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, broadcast::error::RecvError},
    time::{Instant, timeout},
};

use super::{
    ClaimNews, Events, Hands,
    credentials::Credentials,
    guest::GuestFacts,
    hardware,
    look::{Line, LookError, Looked},
    plugging::Plugging,
    preparation::{Trouble, found, with_causes},
    report::{self, Observed},
};
use crate::{disk_space, merge::merge_patch, step::Step};

/// For one that does not say how long its guest may take to shut down.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);
/// For a machine whose object is gone.
const GRACE_OF_THE_UNWANTED: Duration = Duration::from_secs(30);
/// A guest that was still booting did not hear the button.
const PRESS_AGAIN: Duration = Duration::from_secs(10);
/// How often a machine at rest is looked at, whatever its events say.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often something that will soon be over is looked at.
const LOOK_SOON: Duration = Duration::from_millis(100);
/// How often something is looked for that others must bring.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(1);
/// How long a machine may take to start before others start beside it, and to wait before it says so.
const PLACE_PATIENCE: Duration = Duration::from_secs(10);
/// How often the guest is asked: while it has not said all, and after that.
const ASK_SOON: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_secs(30);
/// How long a guest may take to answer everything.
const GUEST_PATIENCE: Duration = Duration::from_secs(4);
/// What QEMU says of what is plugged in.
const DEVICE_EVENTS: [&str; 5] = [
    "DEVICE_DELETED",
    "DEVICE_UNPLUG_GUEST_ERROR",
    "DEVICE_TRAY_MOVED",
    "MEMORY_DEVICE_SIZE_CHANGE",
    "BLOCK_JOB_COMPLETED",
];
/// How long QEMU may take to end when asked to.
const QUIT_PATIENCE: Duration = Duration::from_secs(5);

pub struct Keeper {
    hands: Arc<Hands>,
    id: MachineId,
    namespace: String,
    name: String,
    /// Told when something about its object has changed.
    wake: Arc<Notify>,
    /// Among those that start.
    place: Option<OwnedSemaphorePermit>,
    /// Whether it has what it requests of the processors, and not what a machine that starts has.
    is_limited: bool,
    line: Option<Line>,
    guest: Guest,
    /// What stands in the way, as last seen.
    trouble: Option<String>,
    failures: u32,
    retry_at: Option<Instant>,
    pressed_at: Option<Instant>,
    claims: BTreeMap<String, ClaimInfo>,
    /// The bytes of its seeds, by volume.
    seeds: BTreeMap<String, i64>,
    /// Told when something about the volumes of its claims has changed.
    news: Arc<ClaimNews>,
    plugging: Plugging,
}

/// What the agent in the guest said, and when.
#[derive(Default)]
struct Guest {
    /// The agent in it held its channel open when it was last looked at.
    is_there: bool,
    facts: Option<GuestFacts>,
    asked_at: Option<Instant>,
    credentials: Credentials,
    brought: Option<Result<(), String>>,
}

enum Next {
    Now,
    After(Duration),
    /// There is nothing left to keep.
    Gone,
}

#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error("the API refused or failed")]
    Api(#[from] kube::Error),
    #[error("cannot look at the machine")]
    Look(#[from] LookError),
    #[error("its status cannot be written down")]
    Json(#[from] serde_json::Error),
}

impl Keeper {
    pub fn new(
        hands: Arc<Hands>,
        id: MachineId,
        namespace: String,
        name: String,
        wake: Arc<Notify>,
        news: Arc<ClaimNews>,
    ) -> Keeper {
        Keeper {
            hands,
            id,
            namespace,
            name,
            wake,
            place: None,
            is_limited: false,
            line: None,
            guest: Guest::default(),
            trouble: None,
            failures: 0,
            retry_at: None,
            pressed_at: None,
            claims: BTreeMap::new(),
            seeds: BTreeMap::new(),
            news,
            plugging: Plugging::default(),
        }
    }

    /// Until there is nothing left of the machine here. Dropping it leaves the machine as it is.
    pub async fn keep(mut self) -> MachineId {
        let wake = self.wake.clone();
        let mut failures = 0;
        loop {
            let wait = match self.turn().await {
                Ok(Next::Gone) => return self.id,
                Ok(Next::Now) => {
                    failures = 0;
                    continue;
                }
                Ok(Next::After(wait)) => {
                    failures = 0;
                    wait
                }
                Err(TurnError::Api(why)) if api::is_conflict(&why) => continue,
                Err(why) => {
                    tracing::warn!(machine = %self.id, namespace = self.namespace, name = self.name,
                        why = with_causes(&why), "will look again");
                    failures += 1;
                    retry_after(failures)
                }
            };
            self.place = None;
            let happened = heard(&mut self.line);
            tokio::select! {
                biased;
                () = wake.notified() => {}
                heard = happened => match heard {
                    Heard::Something => {}
                    Heard::Device => self.plugging.look_again(),
                    Heard::AgentsChannel => self.guest.asked_at = None,
                    Heard::End => {
                        self.plugging = Plugging::default();
                        self.line = None;
                        self.guest.asked_at = None;
                    }
                },
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn turn(&mut self) -> Result<Next, TurnError> {
        let _turn = self.hands.turns.take(&self.id).await;
        let instance = self.read().await?;
        let asked_to_go =
            instance.as_ref().is_none_or(|instance| instance.metadata.deletion_timestamp.is_some());
        let looked = self.hands.look(&self.id, &mut self.line, asked_to_go).await?;
        match instance {
            Some(instance) => self.serve(&instance, looked).await,
            None => self.let_go(looked).await,
        }
    }

    /// The object of this machine; none if there is none any more, or if it is not ours.
    async fn read(&mut self) -> Result<Option<VirtualMachineInstance>, TurnError> {
        if self.name.is_empty() {
            // Its note could not be read; an object of this uid would say whose it is.
            let all: Objects<VirtualMachineInstance> = Objects::all(self.hands.client.clone());
            let bound_here = all.list(&self.bound_here()).await?;
            let mut of_this_uid = bound_here
                .items
                .into_iter()
                .filter(|instance| instance.metadata.uid.as_deref() == Some(self.id.as_str()));
            let Some(instance) = of_this_uid.next() else { return Ok(None) };
            self.namespace = instance.metadata.namespace.clone().unwrap_or_default();
            self.name = instance.metadata.name.clone().unwrap_or_default();
            return Ok(Some(instance));
        }
        let instances = self.instances();
        let ours = |instance: &VirtualMachineInstance| {
            instance.metadata.uid.as_deref() == Some(self.id.as_str())
                && instance.status.node_name == self.hands.node
        };
        match found(instances.get(&self.name).await) {
            Ok(instance) => Ok(instance.filter(ours)),
            // One of the same name that is another node's, or nobody's yet, is not ours to read.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                Ok(instances.list(&self.bound_here()).await?.items.into_iter().find(ours))
            }
            Err(why) => Err(why.into()),
        }
    }

    fn bound_here(&self) -> ListParams {
        ListParams::default().fields(&format!("status.nodeName={}", self.hands.node))
    }

    fn instances(&self) -> Objects<VirtualMachineInstance> {
        Objects::namespaced(self.hands.client.clone(), &self.namespace)
    }

    async fn serve(&mut self, instance: &VirtualMachineInstance, looked: Looked) -> Result<Next, TurnError> {
        let before = instance.status.phase;
        let seen = self.in_the_light_of(instance, &looked, looked.seen.after(before));
        let mut phase = phase_of(before, looked.seen, instance.spec.domain.acpi_is_on());
        let planned = next_step(seen, wanted(instance, DEFAULT_GRACE));
        if planned == Planned::ReportFinished && !phase.is_final() {
            phase = NEVER_STARTED;
        }
        if matches!(seen, Seen::Running { .. } | Seen::Stopping { .. }) {
            self.limit_cpu(instance, &looked);
            self.thaw(&looked).await;
            if self.seeds.is_empty() {
                self.seeds = self.hands.seed_sizes(instance, &self.id).await;
            }
            self.ask_guest(instance, seen).await;
        } else {
            self.guest = Guest::default();
            self.plugging = Plugging::default();
        }
        let mut plug_again = None;
        if matches!(seen, Seen::Running { .. }) && planned == Planned::Rest && !is_going(instance) {
            plug_again = self.keep_plugged(instance, &looked).await;
        }
        if phase == Phase::Failed && !looked.last_words.is_empty() {
            self.trouble = Some(format!("QEMU ended: {}", looked.last_words));
        }
        match self.report(instance, &looked, seen, phase).await {
            Ok(true) if phase != before => return Ok(Next::Now),
            Ok(_) => {}
            // A status that cannot be written must not keep a machine from being stopped.
            Err(TurnError::Api(why))
                if is_going(instance) && !api::is_conflict(&why) && !phase.is_final() =>
            {
                tracing::warn!(machine = %self.id, %why, "its status cannot be written; it is stopped all the same");
            }
            Err(why) => return Err(why),
        }
        match planned {
            Planned::Rest if seen == Seen::Absent && phase.is_final() => {
                self.release(instance).await?;
                Ok(Next::Gone)
            }
            Planned::Rest | Planned::ReportFinished => match plug_again {
                Some(Duration::ZERO) => Ok(Next::Now),
                Some(wait) => Ok(Next::After(wait.min(self.next_look()))),
                None => Ok(Next::After(self.next_look())),
            },
            Planned::Wait => {
                self.press_again(seen).await;
                Ok(Next::After(LOOK_SOON))
            }
            planned => self.take(planned, instance, &looked).await,
        }
    }

    /// Brings what is plugged in nearer to what the spec says; answers when to go on with that.
    async fn keep_plugged(&mut self, instance: &VirtualMachineInstance, looked: &Looked) -> Option<Duration> {
        let namespace = &self.namespace;
        let claims = instance.spec.claim_names().map(|name| format!("{namespace}/{name}")).collect();
        // Before the volumes are looked at, so that nothing is missed that changes after that.
        let news = self.news.edition.load(Ordering::Relaxed);
        let known = std::mem::replace(&mut *self.news.claims.lock(), claims);
        if known != *self.news.claims.lock() {
            self.plugging.look_again();
        }
        let monitor = self.line.as_ref().map(|line| &line.monitor)?;
        let wait = self.plugging.keep(&self.hands, instance, looked, monitor, news).await;
        if let Some(now) = &self.plugging.now {
            self.claims.clone_from(&now.claims);
        }
        wait
    }

    /// Once for each machine that this process finds running, by what its object says: its definition may be of a version
    /// that did not note it.
    fn limit_cpu(&mut self, instance: &VirtualMachineInstance, looked: &Looked) {
        let Some(machine) = looked.machine.as_ref().filter(|_| !self.is_limited) else { return };
        let requested = Demand::of(&instance.spec).requested.cpu_milli;
        // It may have more by now than it was launched with.
        let cpu =
            hardware::cpu(&instance.spec, &self.hands.abilities).unwrap_or_else(|_| machine.cpu.clone());
        let machine = Machine { cpu, ..machine.clone() };
        self.hands.hypervisor.limit_cpu(&machine, u32::try_from(requested).unwrap_or(u32::MAX));
        self.is_limited = true;
    }

    /// A guest that was frozen for a snapshot by a process that died then: it is this keeper's turn, so nobody is busy with it.
    async fn thaw(&self, looked: &Looked) {
        if !looked.note.as_ref().is_some_and(|note| note.frozen) {
            return;
        }
        match self.hands.thaw(&self.id).await {
            Ok(()) => tracing::info!(machine = %self.id, "thawed a guest that was left frozen"),
            Err(why) => tracing::warn!(machine = %self.id, %why, "a guest was left frozen and does not thaw"),
        }
    }

    /// What was seen of a machine that is to go and cannot be talked to: one that ran and whose monitor is stuck, or whose
    /// disk fails whenever it is let go on. Nobody can press its button, and it has its grace all the same.
    fn in_the_light_of(&self, instance: &VirtualMachineInstance, looked: &Looked, seen: Seen) -> Seen {
        let ran = instance.status.phase == Phase::Running;
        let Some(since) = instance.metadata.deletion_timestamp.as_ref() else { return seen };
        if !(ran && (looked.silent || looked.disk_failed)) {
            return seen;
        }
        let since = u64::try_from(since.0.as_second()).unwrap_or(0);
        Seen::Stopping { pressed_for: self.hands.since(since) }
    }

    /// Takes a step, and says how it went.
    async fn take(
        &mut self,
        planned: Planned,
        instance: &VirtualMachineInstance,
        looked: &Looked,
    ) -> Result<Next, TurnError> {
        if let Some(wait) = self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
            && !wait.is_zero()
        {
            return Ok(Next::After(wait));
        }
        let outcome = match planned {
            Planned::Prepare | Planned::Launch { .. } => {
                if !self.has_place_to_start().await? {
                    return Ok(Next::Now);
                }
                self.start(planned, instance, looked).await
            }
            planned => {
                self.place = None;
                self.act(planned, looked).await
            }
        };
        let events = Events { client: &self.hands.client, world: &self.hands.world, node: &self.hands.node };
        match outcome {
            Ok(()) => {
                (self.trouble, self.retry_at, self.failures) = (None, None, 0);
                if let Some(event) = event_of_step(planned) {
                    events.tell(instance, event).await;
                }
            }
            Err(Trouble::Waiting(why)) => {
                self.trouble = Some(why);
                self.retry_at = Some(Instant::now() + WAIT_FOR_OTHERS);
            }
            Err(why) => {
                let why = why.to_string();
                tracing::warn!(machine = %self.id, namespace = self.namespace, name = self.name, why, ?planned,
                    "a step failed");
                self.failures += 1;
                self.retry_at = Some(Instant::now() + retry_after(self.failures));
                events.tell(instance, ("Warning", SYNC_FAILED, &why)).await;
                self.trouble = Some(why);
            }
        }
        Ok(Next::Now)
    }

    /// Waits for a place among those that start, and keeps it until this one runs or has to wait for something else.
    /// Answers false for a machine that is to go by then.
    async fn has_place_to_start(&mut self) -> Result<bool, TurnError> {
        let mut place = pin!(self.hands.launches.clone().acquire_owned());
        let wake = self.wake.clone();
        let mut patience = tokio::time::interval_at(Instant::now() + PLACE_PATIENCE, PLACE_PATIENCE);
        while self.place.is_none() {
            tokio::select! {
                biased;
                place = &mut place => self.place = place.ok(),
                _ = patience.tick() => {
                    tracing::info!(machine = %self.id, namespace = self.namespace, name = self.name,
                        "waits until other machines have started");
                }
                () = wake.notified() => {
                    if self.read().await?.is_none_or(|instance| is_going(&instance)) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Does what takes a place, and gives the place up if that takes unreasonably long: whatever it waits for is not the
    /// processors, and others need not wait with it.
    async fn while_in_place<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        match timeout(PLACE_PATIENCE, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                tracing::warn!(machine = %self.id, namespace = self.namespace, name = self.name,
                    "takes longer than {PLACE_PATIENCE:?} to start; others go first");
                self.place = None;
                work.await
            }
        }
    }

    async fn start(
        &mut self,
        planned: Planned,
        instance: &VirtualMachineInstance,
        looked: &Looked,
    ) -> Result<(), Trouble> {
        let hands = self.hands.clone();
        match planned {
            Planned::Launch { paused } => {
                let ready = looked.machine.clone().filter(|machine| machine.start_paused == paused);
                let machine = match ready {
                    Some(machine) => machine,
                    None => {
                        let id = self.id.clone();
                        self.while_in_place(hands.prepare(instance, &id, paused)).await?
                    }
                };
                self.is_limited = false;
                let launched = self.while_in_place(hands.launch(instance, &machine)).await;
                self.place = None;
                match launched {
                    Ok(monitor) => self.line = Some(Line::of(monitor)),
                    // It is made ready as things are now, and launched at the next look.
                    Err(Trouble::Changed) => drop(hands.prepare(instance, &machine.id, paused).await?),
                    Err(why) => return Err(why),
                }
            }
            _ => {
                let (id, paused) = (self.id.clone(), instance.spec.starts_paused());
                self.while_in_place(hands.prepare(instance, &id, paused)).await?;
            }
        }
        Ok(())
    }

    /// Steps that need nothing but what is here.
    async fn act(&mut self, planned: Planned, looked: &Looked) -> Result<(), Trouble> {
        let failed =
            |source: QmpError| Trouble::from(HypervisorError::Monitor { machine: self.id.clone(), source });
        let monitor = self.line.as_ref().map(|line| &line.monitor);
        match (planned, monitor) {
            (Planned::Pause, Some(monitor)) => monitor.pause().await.map_err(failed)?,
            (Planned::Resume, Some(monitor)) => monitor.resume().await.map_err(failed)?,
            (Planned::PressPowerButton, Some(monitor)) => {
                let mut note = looked.note.clone().unwrap_or_default();
                note.pressed_at = Some(self.hands.world.clock.since_epoch().as_secs());
                monitor.power_button().await.map_err(failed)?;
                self.hands.after.took(Step::PressPowerButton);
                self.hands.notes.write(&self.id, &note)?;
                self.hands.after.took(Step::WriteNote);
                self.pressed_at = Some(Instant::now());
            }
            (Planned::CutPower, _) => {
                self.line = None;
                self.hands.hypervisor.kill(&self.id).await?;
            }
            (Planned::Forget, _) => self.forget().await?,
            // The monitor went away since the look; the next look sees why.
            _ => {}
        }
        Ok(())
    }

    /// Removes every trace of the machine from this host, the note last.
    async fn forget(&mut self) -> Result<(), Trouble> {
        let hands = &self.hands;
        if let Some(line) = self.line.take()
            && line.monitor.quit().await.is_ok()
        {
            hands.after.took(Step::AskToQuit);
            // Disks are flushed and closed; what takes longer is cut short below.
            let _ = timeout(QUIT_PATIENCE, line.monitor.closed()).await;
        }
        hands.hypervisor.kill(&self.id).await?;
        if hands.abilities.taps {
            hands.ports.unplug(&self.id).await?;
        }
        let prefix = format!("{}-", self.id);
        for seed in hands.storage.seeds().await? {
            if seed.as_str().starts_with(&prefix) {
                hands.storage.delete_seed(&seed).await?;
            }
        }
        hands.hypervisor.forget(&self.id).await?;
        hands.notes.forget(&self.id)?;
        hands.after.took(Step::ForgetNote);
        Ok(())
    }

    /// A machine whose object is gone: shut down, then forgotten.
    async fn let_go(&mut self, looked: Looked) -> Result<Next, TurnError> {
        let planned = match next_step(looked.seen, Wanted::Stop { grace: GRACE_OF_THE_UNWANTED }) {
            Planned::ReportFinished if looked.seen == Seen::Absent => return Ok(Next::Gone),
            // There is nobody to report to.
            Planned::ReportFinished => Planned::Forget,
            Planned::Wait => {
                self.press_again(looked.seen).await;
                return Ok(Next::After(LOOK_SOON));
            }
            planned => planned,
        };
        tracing::info!(machine = %self.id, namespace = self.namespace, name = self.name, ?planned,
            "nothing asks for this machine any more");
        match self.act(planned, &looked).await {
            Ok(()) => Ok(Next::Now),
            Err(why) => {
                tracing::warn!(machine = %self.id, %why, ?planned, "cannot let a machine go; trying again");
                self.failures += 1;
                Ok(Next::After(retry_after(self.failures)))
            }
        }
    }

    async fn press_again(&mut self, seen: Seen) {
        let since = self.pressed_at.map(|at| at.elapsed());
        if !matches!(seen, Seen::Stopping { .. }) || since.is_some_and(|since| since < PRESS_AGAIN) {
            return;
        }
        if let Some(line) = &self.line
            && let Err(why) = line.monitor.power_button().await
        {
            tracing::warn!(machine = %self.id, %why, "the power button could not be pressed again");
        }
        self.pressed_at = Some(Instant::now());
    }

    /// Asks the agent in the guest, if there is one and it is time to.
    async fn ask_guest(&mut self, instance: &VirtualMachineInstance, seen: Seen) {
        // A paused guest answers nothing, and nothing it said has changed.
        if seen == (Seen::Running { paused: true }) {
            return;
        }
        if self.guest.asked_at.is_some_and(|at| at.elapsed() < self.ask_every()) {
            return;
        }
        self.guest.asked_at = Some(Instant::now());
        let Some(line) = &self.line else { return };
        self.guest.is_there = matches!(line.monitor.guest_agent_connected().await, Ok(true));
        if !self.guest.is_there {
            self.guest.facts = None;
            return;
        }
        let hands = self.hands.clone();
        let Ok(agent) = hands.hypervisor.guest_agent(&self.id) else { return };
        let asked = timeout(GUEST_PATIENCE, GuestFacts::ask(&agent)).await;
        match asked {
            Ok(Ok(facts)) => self.guest.facts = Some(facts),
            // It is there and busy: what it said before stands.
            Ok(Err(_)) | Err(_) => return,
        }
        if !Credentials::secret_names(instance).is_empty() {
            let brought = hands.bring_credentials(instance, &agent, &self.guest.credentials).await;
            self.guest.brought = Some(brought.map(|brought| self.guest.credentials = brought));
        }
    }

    fn ask_every(&self) -> Duration {
        let told = self.guest.facts.as_ref();
        let has_addresses = told.is_some_and(|facts| {
            facts.interfaces.iter().any(|interface| interface.addresses.iter().any(|a| a.contains('.')))
        });
        let settled = has_addresses && !matches!(self.guest.brought, Some(Err(_)));
        // Of one that is not there yet QEMU tells when it comes.
        if settled || !self.guest.is_there { ASK_EVERY } else { ASK_SOON }
    }

    fn next_look(&self) -> Duration {
        let until_asked = self.guest.asked_at.map(|at| self.ask_every().saturating_sub(at.elapsed()));
        until_asked.map_or(LOOK_EVERY, |wait| wait.clamp(LOOK_SOON, LOOK_EVERY))
    }

    /// Writes the status if it says something new; answers whether it did.
    async fn report(
        &mut self,
        instance: &VirtualMachineInstance,
        looked: &Looked,
        seen: Seen,
        phase: Phase,
    ) -> Result<bool, TurnError> {
        let hands = &self.hands;
        let ports = looked.note.iter().flat_map(|note| &note.ports);
        let addresses = ports.map(|port| (port.mac.clone(), port.addresses.clone())).collect();
        let user = hands.hypervisor.user_of(&self.id).ok().flatten().map(|identity| identity.uid);
        let of_plugging = self.plugging.trouble();
        let full = match looked.disk_failed {
            true => {
                hands.full_disks.lock().insert(self.id.clone());
                Some(disk_space::explanation(hands.storage.space().await.ok()))
            }
            false => None,
        };
        let trouble = full.as_deref().or(self.trouble.as_deref()).or(of_plugging.as_deref());
        let observed = Observed {
            seen,
            phase,
            now: hands.world.clock.now(),
            machine: looked.machine.as_ref(),
            user,
            addresses: &addresses,
            guest: self.guest.facts.as_ref(),
            claims: &self.claims,
            seeds: &self.seeds,
            plugged: self.plugging.now.as_ref(),
            disk_failed: looked.disk_failed,
            trouble,
            credentials: self
                .guest
                .brought
                .as_ref()
                .map(|brought| brought.as_ref().map(drop).map_err(String::as_str)),
        };
        let status = report::status_of(instance, &observed);
        if status == instance.status {
            return Ok(false);
        }
        let (old, new) = (serde_json::to_value(&instance.status)?, serde_json::to_value(&status)?);
        let change = json!({
            "metadata": {"resourceVersion": instance.metadata.resource_version},
            "status": merge_patch(&old, &new),
        });
        self.patch(&change).await?;
        hands.after.took(Step::WriteStatus);
        let events = Events { client: &hands.client, world: &hands.world, node: &hands.node };
        if phase != instance.status.phase
            && let Some(event) = event_of_phase(phase)
        {
            events.tell(instance, event).await;
        }
        if let Some(event) = report::event_of_full_disk(&instance.status, &status) {
            events.tell(instance, event).await;
        }
        Ok(true)
    }

    /// Takes the node's hand off the object: nothing of it is here any more.
    async fn release(&self, instance: &VirtualMachineInstance) -> Result<(), TurnError> {
        let mut finalizers = instance.metadata.finalizers.iter().flatten();
        if !finalizers.any(|finalizer| finalizer == FOREGROUND_FINALIZER) {
            return Ok(());
        }
        self.patch(&api::without_finalizer(&instance.metadata, FOREGROUND_FINALIZER)).await?;
        self.hands.after.took(Step::Release);
        Ok(())
    }

    async fn patch(&self, change: &serde_json::Value) -> Result<(), kube::Error> {
        let resource =
            api::built_in("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances");
        let objects: Objects<DynamicObject> = api::objects(&self.hands.client, &resource, &self.namespace);
        match api::merge(&objects, &self.name, change).await {
            // Gone with its last finalizer, or by force: the next look finds out.
            Err(why) if api::is_not_found(&why) => Ok(()),
            written => written.map(drop),
        }
    }
}

fn is_going(instance: &VirtualMachineInstance) -> bool {
    instance.metadata.deletion_timestamp.is_some()
}

/// What came over the line to QEMU.
enum Heard {
    Something,
    /// The guest let go of a device, would not, or opened a tray; or memory came and went.
    Device,
    /// Somebody in the guest opened the agent's channel, or let go of it.
    AgentsChannel,
    End,
}

/// Until something is heard on the line. Never, without one.
async fn heard(line: &mut Option<Line>) -> Heard {
    let Some(line) = line else { return std::future::pending().await };
    tokio::select! {
        biased;
        () = line.monitor.closed() => Heard::End,
        event = line.events.recv() => match event {
            Ok(event) if event.name == "VSERPORT_CHANGE" => Heard::AgentsChannel,
            Ok(event) if DEVICE_EVENTS.contains(&event.name.as_str()) => Heard::Device,
            Ok(_) => Heard::Something,
            // Too much was said to keep all of it: that may have been among it.
            Err(RecvError::Lagged(_)) => Heard::AgentsChannel,
            Err(RecvError::Closed) => Heard::End,
        },
    }
}
