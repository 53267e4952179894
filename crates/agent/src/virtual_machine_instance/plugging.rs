//! Keeps plugged into a running machine what its spec says: disks, discs, interfaces, processors, memory.
//!
//! What there is, QEMU says; what comes next, [`plugging::next_steps`] does. Nothing that matters is kept in between: an
//! agent that is killed after any command finds the rest from QEMU, the note and the object. What is remembered here is only
//! when something was last tried, so that a guest that takes its time is not asked without end.

use std::{collections::BTreeMap, time::Duration};

use sheaf_client::work_queue::retry_after;
use sheaf_hypervisor::{
    Machine, Monitor, QmpError,
    machine::{DeviceName, Disk, MEMORY_BLOCK_MIB},
    qmp::{AddedMemory, Plugged, PluggedDisk},
};
use sheaf_planner::virtual_machine_instance::plugging::{
    self, Device, Seen, SeenDisk, SeenNic, Step as Planned, Wanted, WantedDisk,
};
use sheaf_resources::kinds::virtual_machine_instance::{
    VirtualMachineInstance, live_update::ABSENT, status::ClaimInfo, volume::Volume,
};
use sheaf_storage::Backend;
use tokio::time::Instant;

use super::{
    Hands,
    hardware::{self, Files},
    look::Looked,
    note::{Note, NotedVolume},
    preparation::{Claimed, Trouble, is_read_only},
    seed,
};
use crate::step::Step;

/// How often a guest is asked again to let go of something.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// How long a guest may keep a disc that is to go.
const TRAY_PATIENCE: Duration = Duration::from_secs(5);
/// How soon something is looked at that will be over in a moment.
const SOON: Duration = Duration::from_millis(100);
/// How often something is looked for that others must bring.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(1);
/// A volume has whole sectors of any host's disk.
const SECTOR: u64 = 4096;

/// What is known of what is plugged into one machine.
#[derive(Default)]
pub struct Plugging {
    /// The edition of the spec and of the claims for which all is as it should be.
    settled: Option<Edition>,
    /// Somebody of this process has looked.
    has_looked: bool,
    attempts: BTreeMap<String, Attempt>,
    pub now: Option<Now>,
}

type Edition = (i64, u64);

/// Something that was tried and is not done.
struct Attempt {
    step: Planned,
    since: Instant,
    again_at: Instant,
    failures: u32,
    why: String,
}

/// What is plugged in, as last seen, for the status.
#[derive(Clone, Debug, Default)]
pub struct Now {
    pub disks: BTreeMap<String, DiskNow>,
    pub processors: u32,
    pub added_memory: Option<AddedMemory>,
    pub claims: BTreeMap<String, ClaimInfo>,
    /// What stands in the way of processors, and of memory.
    pub processors_wait: Option<String>,
    pub memory_waits: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskNow {
    /// The guest has it, or could.
    pub is_there: bool,
    /// It is in the spec.
    pub is_wanted: bool,
    /// Its claim has a volume.
    pub is_bound: bool,
    /// What stands in the way.
    pub why: Option<String>,
}

/// What the spec says, and what was found out about it.
struct Intent {
    wanted: Wanted,
    claimed: BTreeMap<String, Claimed>,
    waits: BTreeMap<String, String>,
}

impl Plugging {
    /// Something may have changed without a change of the spec.
    pub fn look_again(&mut self) {
        self.settled = None;
    }

    /// What stands in the way, in words for its owner. A guest that takes its time does not.
    pub fn trouble(&self) -> Option<String> {
        let is_trouble =
            |attempt: &&Attempt| attempt.failures > 0 || matches!(attempt.step, Planned::PlugNic(_));
        let attempt = self.attempts.values().find(is_trouble)?;
        Some(format!("{}: {}", attempt.step.thing(), attempt.why))
    }

    /// Takes at most one step. Answers when to look again; none when all is as it should be.
    pub async fn keep(
        &mut self,
        hands: &Hands,
        instance: &VirtualMachineInstance,
        looked: &Looked,
        monitor: &Monitor,
        news: u64,
    ) -> Option<Duration> {
        let machine = looked.machine.as_ref()?;
        let edition = (instance.metadata.generation.unwrap_or_default(), news);
        if self.settled == Some(edition) {
            return None;
        }
        match self.turn(hands, instance, looked, machine, monitor).await {
            Ok(None) => {
                self.settled = Some(edition);
                None
            }
            Ok(wait) => wait,
            Err(why) => {
                tracing::warn!(machine = %machine.id, %why, "what is plugged in cannot be told");
                Some(WAIT_FOR_OTHERS)
            }
        }
    }

    async fn turn(
        &mut self,
        hands: &Hands,
        instance: &VirtualMachineInstance,
        looked: &Looked,
        machine: &Machine,
        monitor: &Monitor,
    ) -> Result<Option<Duration>, QmpError> {
        let plugged = monitor.plugged().await?;
        let processors = u32::try_from(monitor.cpu_threads().await?.len()).unwrap_or(u32::MAX);
        let added_memory = monitor.added_memory().await?;
        let intent = hands.intent(instance, machine).await;
        let mut seen = in_planner_words(&plugged, looked, machine);
        (seen.processors, seen.for_the_first_time) = (processors, !self.has_looked);
        seen.added_memory_mib = added_memory.map(|added| added.requested_bytes >> 20);
        self.has_looked = true;
        let steps = plugging::next_steps(&seen, &intent.wanted);
        self.attempts.retain(|_, attempt| steps.contains(&attempt.step));
        let now = Instant::now();
        let due = steps
            .iter()
            .find(|step| self.attempts.get(&step.thing()).is_none_or(|attempt| attempt.again_at <= now));
        let mut wait = None;
        if let Some(step) = due {
            let since = self.attempts.get(&step.thing()).map_or(now, |attempt| attempt.since);
            let act = Act { hands, instance, looked, machine, monitor, plugged: &plugged };
            let outcome = act.take(step, since.elapsed()).await;
            self.note(step, since, outcome, machine);
            wait = Some(Duration::ZERO);
        }
        let until = self.attempts.values().map(|attempt| attempt.again_at.saturating_duration_since(now));
        // What is plugged in already does not wait for its claim.
        let is_there = |name: &&String| seen.disks.get(*name).is_some_and(|disk| disk.device != Device::None);
        let others = intent.waits.keys().any(|name| !is_there(&name)).then_some(WAIT_FOR_OTHERS);
        let wait = wait.or_else(|| until.chain(others).min().map(|wait| wait.max(SOON)));
        let grown = hands.tell_of_growth(&plugged, &intent).await;
        let memory_comes = added_memory.is_some_and(|added| added.bytes != added.requested_bytes);
        self.now = Some(self.told(&plugged, &intent, processors, added_memory));
        Ok(wait.or((grown || memory_comes).then_some(WAIT_FOR_OTHERS)))
    }

    /// Remembers how a step went.
    fn note(&mut self, step: &Planned, since: Instant, outcome: Result<Done, Trouble>, machine: &Machine) {
        let (now, thing) = (Instant::now(), step.thing());
        let before = self.attempts.remove(&thing);
        let failures = before.map_or(0, |before| before.failures);
        let step = step.clone();
        let attempt =
            |again, failures, why: String| Attempt { step, since, again_at: now + again, failures, why };
        match outcome {
            Ok(Done::Yes) => {}
            Ok(Done::Asked(again)) => {
                let why = "the guest was asked to let go of it and has not yet".to_owned();
                self.attempts.insert(thing, attempt(again, 0, why));
            }
            Err(Trouble::Waiting(why)) => {
                self.attempts.insert(thing, attempt(WAIT_FOR_OTHERS, 0, why));
            }
            Err(why) => {
                let why = why.to_string();
                tracing::warn!(machine = %machine.id, thing, why, "a step of plugging failed; will try again");
                self.attempts.insert(thing, attempt(retry_after(failures + 1), failures + 1, why));
            }
        }
    }

    fn told(
        &self,
        plugged: &Plugged,
        intent: &Intent,
        processors: u32,
        added_memory: Option<AddedMemory>,
    ) -> Now {
        let why = |thing: &str| self.attempts.get(thing).map(|attempt| attempt.why.clone());
        let mut disks: BTreeMap<String, DiskNow> = BTreeMap::new();
        for (name, there) in &plugged.disks {
            let has_device = there.driver.is_some();
            let is_there = has_device && there.medium.is_some();
            disks.insert(name.to_string(), DiskNow { is_there, ..DiskNow::default() });
        }
        for name in intent.wanted.disks.keys() {
            let disk = disks.entry(name.clone()).or_default();
            disk.is_wanted = true;
            disk.is_bound = intent.claimed.contains_key(name);
        }
        for (name, disk) in &mut disks {
            disk.why = why(&format!("disk {name}")).or_else(|| intent.waits.get(name).cloned());
        }
        let claims = intent.claimed.iter().map(|(name, claimed)| (name.clone(), claimed.info.clone()));
        let is_short = added_memory.is_some_and(|added| added.bytes != added.requested_bytes);
        Now {
            disks,
            processors,
            added_memory,
            claims: claims.collect(),
            processors_wait: why("processors"),
            memory_waits: why("memory").or_else(|| {
                is_short
                    .then(|| "the guest has not taken, or given back, all that it was asked to".to_owned())
            }),
        }
    }
}

/// How a step went that did not fail.
enum Done {
    Yes,
    /// The guest was asked, and is asked again after this.
    Asked(Duration),
}

/// One step, with all it is taken with.
struct Act<'a> {
    hands: &'a Hands,
    instance: &'a VirtualMachineInstance,
    looked: &'a Looked,
    machine: &'a Machine,
    monitor: &'a Monitor,
    plugged: &'a Plugged,
}

impl Act<'_> {
    async fn take(&self, step: &Planned, asked_for: Duration) -> Result<Done, Trouble> {
        let (hypervisor, id, monitor) = (&self.hands.hypervisor, &self.machine.id, self.monitor);
        match step {
            Planned::PlugDisk(name) => {
                let (disk, layers) = self.open(name).await?;
                hypervisor.make_room(self.machine, monitor, layers.len()).await?;
                hypervisor.plug_disk(id, monitor, &disk, layers).await?;
            }
            Planned::Insert(name) => {
                let (disc, layers) = self.open(name).await?;
                hypervisor.make_room(self.machine, monitor, layers.len()).await?;
                hypervisor.insert(id, monitor, &disc, layers).await?;
            }
            Planned::PullDisk(name) => {
                hypervisor.pull_device(id, monitor, &format!("disk-{name}")).await?;
                return Ok(Done::Asked(ASK_AGAIN));
            }
            Planned::DropDisk(name) => {
                if !hypervisor.drop_disk(id, monitor, self.held(name)?).await? {
                    return Ok(Done::Asked(SOON));
                }
                let mut note = self.note();
                note.volumes.retain(|noted| noted.disk != *name);
                self.hands.notes.write(id, &note)?;
                self.hands.after.took(Step::WriteNote);
            }
            Planned::Eject(name) => {
                let force = asked_for >= TRAY_PATIENCE;
                if !hypervisor.eject(id, monitor, &self.drive(name)?, force).await? {
                    return Ok(Done::Asked(WAIT_FOR_OTHERS));
                }
            }
            Planned::CloseTray(name) => hypervisor.close_tray(id, monitor, &self.drive(name)?).await?,
            Planned::GrowDisk { disk, bytes } => {
                let medium = self.held(disk)?.medium.as_ref();
                let node = medium.map(|medium| medium.node.as_str()).unwrap_or_default();
                hypervisor.grow_node(id, monitor, node, *bytes).await?;
            }
            Planned::PlugNic(name) => self.plug_nic(name).await?,
            Planned::PullNic(name) => {
                hypervisor.pull_device(id, monitor, &format!("nic-{name}")).await?;
                return Ok(Done::Asked(ASK_AGAIN));
            }
            Planned::DropNic(name) => self.drop_nic(name).await?,
            Planned::AddProcessors { count } => {
                hypervisor.plug_processors(id, monitor, usize::try_from(*count).unwrap_or(0)).await?;
                let cpu = hardware::cpu(&self.instance.spec, &self.hands.abilities)?;
                let weight = cpu.weight_milli();
                hypervisor.limit_cpu(&Machine { cpu, ..self.machine.clone() }, weight);
            }
            Planned::AskForMemory { added_mib } => {
                hypervisor.ask_for_memory(self.machine, monitor, *added_mib).await?;
            }
        }
        Ok(Done::Yes)
    }

    fn held(&self, name: &str) -> Result<&PluggedDisk, Trouble> {
        let held = name.parse().ok().and_then(|name: DeviceName| self.plugged.disks.get(&name));
        held.ok_or_else(|| Trouble::Waiting(format!("disk {name} went meanwhile")))
    }

    /// A drive without what is in it.
    fn drive(&self, name: &str) -> Result<Disk, Trouble> {
        let spec = &self.instance.spec;
        let disk = spec.domain.devices.disks.iter().find(|disk| disk.name == name);
        let disk = disk.ok_or_else(|| Trouble::Waiting(format!("disk {name} is in the spec no more")))?;
        Ok(hardware::disk_of(spec, disk, Files::default(), &self.hands.abilities)?)
    }

    /// A disk of the spec, with its files open.
    async fn open(&self, name: &str) -> Result<(Disk, Vec<std::os::fd::OwnedFd>), Trouble> {
        let (spec, hands) = (&self.instance.spec, self.hands);
        let gone = || Trouble::Waiting(format!("disk {name} is in the spec no more"));
        let disk = spec.domain.devices.disks.iter().find(|disk| disk.name == name).ok_or_else(gone)?;
        let volume = spec.volumes.iter().find(|volume| volume.name == name).ok_or_else(gone)?;
        let claimed = hands.claimed(self.instance, volume).await?;
        // Noted before it is used, for whoever takes a snapshot of it.
        let mut note = self.note();
        note.volumes.retain(|noted| noted.disk != name);
        note.volumes.push(NotedVolume { disk: name.to_owned(), volume: claimed.made.id.to_string() });
        hands.notes.write(&self.machine.id, &note)?;
        hands.after.took(Step::WriteNote);
        let files = hands.make_volume(self.instance, volume, &claimed).await?;
        let disk = hardware::disk_of(spec, disk, files, &hands.abilities)?;
        let opened = hands.storage.open(&claimed.made.id, is_read_only(self.instance, volume)).await?;
        Ok((disk, opened.into_iter().map(|layer| layer.file).collect()))
    }

    /// The note first, then the host's end, then the guest's.
    async fn plug_nic(&self, name: &str) -> Result<(), Trouble> {
        let (hands, id) = (self.hands, &self.machine.id);
        let interfaces = &self.instance.spec.domain.devices.interfaces;
        let interface = interfaces.iter().find(|interface| interface.name == name);
        let interface =
            interface.ok_or_else(|| Trouble::Waiting(format!("interface {name} is in the spec no more")))?;
        let nic = hardware::nic_of(interface, &hands.abilities)?;
        if self.plugged.nics.get(&nic.name).is_some_and(|there| there.backend) {
            // Somebody came so far and died.
            hands.hypervisor.drop_nic(id, self.monitor, &nic.name).await?;
        }
        let mut note = self.note();
        let mac = nic.mac.to_string();
        if !note.ports.iter().any(|port| port.mac == mac) {
            let port = hands.late_port_of(self.instance, interface, &note).await?;
            note.ports.push(port);
            hands.notes.write(id, &note)?;
            hands.after.took(Step::WriteNote);
        }
        let mut tap = None;
        if hands.abilities.taps {
            let plugged = hands.plugged(id, &note, seed::host_name(self.instance))?;
            hands.ports.plug(id, plugged.clone()).await?;
            if let Some(port) = plugged.ports.iter().find(|port| port.mac.to_string() == mac) {
                tap = Some(hands.ports.open_tap(port).await?);
            }
        }
        Ok(hands.hypervisor.plug_nic(id, self.monitor, &nic, tap).await?)
    }

    /// QEMU's end first, then the host's, the note last.
    async fn drop_nic(&self, name: &str) -> Result<(), Trouble> {
        let (hands, id) = (self.hands, &self.machine.id);
        if let Ok(nic) = name.parse::<DeviceName>()
            && self.plugged.nics.get(&nic).is_some_and(|there| there.backend)
        {
            hands.hypervisor.drop_nic(id, self.monitor, &nic).await?;
        }
        let mut note = self.note();
        let number = note.numbered().find(|(_, port)| interface_of(port, self.machine) == name);
        let Some(number) = number.map(|(number, _)| number) else { return Ok(()) };
        // What stays keeps its number, also where that was only its place.
        let numbered: Vec<_> = note.numbered().map(|(number, port)| (number, port.clone())).collect();
        note.ports = numbered
            .into_iter()
            .filter(|(other, _)| *other != number)
            .map(|(number, port)| super::note::NotedPort { number: Some(number), ..port })
            .collect();
        if hands.abilities.taps {
            let rest = hands.plugged(id, &note, seed::host_name(self.instance))?;
            hands.ports.plug(id, rest).await?;
            hands.ports.remove_tap(id, number).await?;
        }
        hands.notes.write(id, &note)?;
        hands.after.took(Step::WriteNote);
        Ok(())
    }

    fn note(&self) -> Note {
        self.looked.note.clone().unwrap_or_default()
    }
}

/// The interface that a port is of. Notes of older versions do not say; what the machine was launched with does.
fn interface_of<'a>(port: &'a super::note::NotedPort, machine: &'a Machine) -> &'a str {
    if !port.interface.is_empty() {
        return &port.interface;
    }
    let nic = machine.nics.iter().find(|nic| nic.mac.to_string() == port.mac);
    nic.map_or("", |nic| nic.name.as_str())
}

fn in_planner_words(plugged: &Plugged, looked: &Looked, machine: &Machine) -> Seen {
    let is_paused = looked.is_paused();
    let disks = plugged.disks.iter().map(|(name, there)| {
        let has_disc = there.medium.is_some();
        let device = match there.driver.as_deref() {
            None => Device::None,
            Some("scsi-cd" | "ide-cd") => Device::Drive { has_disc, tray_is_open: there.tray_is_open },
            Some("scsi-hd" | "virtio-blk-pci") => Device::Pluggable,
            Some(_) => Device::Fixed,
        };
        // QEMU lets go of descriptors only while its guest runs.
        let is_held = match device {
            Device::None | Device::Drive { has_disc: false, .. } => {
                !there.nodes.is_empty() || (!there.sets.is_empty() && !is_paused)
            }
            Device::Pluggable | Device::Fixed | Device::Drive { has_disc: true, .. } => true,
        };
        let bytes = there.medium.as_ref().map_or(0, |medium| medium.bytes);
        (name.to_string(), SeenDisk { device, source: there.source.clone(), is_held, bytes })
    });
    let mut seen = Seen { disks: disks.collect(), ..Seen::default() };
    for (name, nic) in &plugged.nics {
        let nic = SeenNic { device: nic.device, is_held: nic.backend };
        seen.nics.insert(name.to_string(), nic);
    }
    for port in looked.note.iter().flat_map(|note| &note.ports) {
        let name = interface_of(port, machine);
        if !name.is_empty() {
            seen.nics.entry(name.to_owned()).or_default().is_held = true;
        }
    }
    seen
}

impl Hands {
    /// What the spec says, with what stands behind it.
    async fn intent(&self, instance: &VirtualMachineInstance, machine: &Machine) -> Intent {
        let (mut claimed, mut waits) = (BTreeMap::new(), BTreeMap::new());
        let spec = &instance.spec;
        let mut wanted = Wanted::default();
        for disk in &spec.domain.devices.disks {
            let volume = spec.volumes.iter().find(|volume| volume.name == disk.name);
            let mut one = WantedDisk { is_empty: volume.is_none(), ..WantedDisk::default() };
            if let Some(volume) = volume.filter(|volume| volume.persistent_volume_claim.is_some()) {
                match self.behind(instance, volume).await {
                    Ok(found) => {
                        one.source = Some(found.made.id.to_string());
                        one.is_ready = true;
                        let is_read_only = is_read_only(instance, volume);
                        one.bytes = (!is_read_only).then(|| found.made.bytes.next_multiple_of(SECTOR));
                        claimed.insert(disk.name.clone(), found);
                    }
                    Err(why) => drop(waits.insert(disk.name.clone(), why.to_string())),
                }
            }
            wanted.disks.insert(disk.name.clone(), one);
        }
        let interfaces = spec.domain.devices.interfaces.iter();
        let there = interfaces.filter(|interface| interface.state != ABSENT);
        wanted.nics = there.map(|interface| interface.name.clone()).collect();
        wanted.processors = hardware::cpu(spec, &self.abilities).map_or(0, |cpu| cpu.count());
        let bytes = hardware::memory_bytes(&spec.domain).and_then(|bytes| u64::try_from(bytes).ok());
        let added = (bytes.unwrap_or(0) >> 20).saturating_sub(machine.memory_mib);
        let added = added.min(machine.spare_memory_mib());
        wanted.added_memory_mib = added / MEMORY_BLOCK_MIB * MEMORY_BLOCK_MIB;
        Intent { wanted, claimed, waits }
    }

    /// What is behind a claim, if it is on this node.
    async fn behind(&self, instance: &VirtualMachineInstance, volume: &Volume) -> Result<Claimed, Trouble> {
        let claimed = self.claimed(instance, volume).await?;
        match claimed.node.as_deref() {
            Some(node) if node == self.node => Ok(claimed),
            Some(node) => Err(Trouble::Odd {
                what: format!("the claim of volume {}", volume.name),
                why: format!("its volume is on node {node}, and the machine on node {}", self.node),
            }),
            None => {
                let why = format!("waiting for the claim of volume {} to be put on this node", volume.name);
                Err(Trouble::Waiting(why))
            }
        }
    }

    /// Says of volumes that are as large as they are to be that they are. Answers whether something was said.
    async fn tell_of_growth(&self, plugged: &Plugged, intent: &Intent) -> bool {
        let mut told = false;
        for (name, claimed) in &intent.claimed {
            let there = name.parse::<DeviceName>().ok().and_then(|name| plugged.disks.get(&name));
            let bytes = there.and_then(|disk| disk.medium.as_ref()).map_or(0, |medium| medium.bytes);
            if !claimed.grows || bytes < claimed.made.bytes || claimed.grown_bytes >= claimed.made.bytes {
                continue;
            }
            told = true;
            match self.say_it_has_grown(claimed, bytes).await {
                Ok(()) => self.after.took(Step::TellGrowth),
                Err(why) => tracing::warn!(%why, "that a volume has grown could not be said; will try again"),
            }
        }
        told
    }
}
