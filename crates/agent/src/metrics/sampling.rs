//! Measures every running machine of this host, again and again.
//!
//! Time, memory and traffic are read from the kernel. Disks and what the guest says of its memory are asked of QEMU over
//! its second monitor, which takes one caller at a time: it is opened for a sample and closed after it, so
//! that consoles and screenshots do not wait. Which threads run processors, and that the guest is to report its
//! memory, is settled once per process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sheaf_hypervisor::{
    Hypervisor, HypervisorError, MachineId, Monitor, QmpError,
    qmp::numbers::{CpuThread, DiskNumbers},
};
use sheaf_world::World;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use super::{
    INTERVAL_SECS, MachineMetrics, Owner,
    interfaces::{self, InterfaceNumbers},
    process::{ProcessNumbers, ThreadNumbers},
    sample::{CpuNumbers, GuestMemory, Sample},
};
use crate::virtual_machine_instance::Notes;

/// How long a monitor may take for everything; a healthy one takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(3);
/// Monitors asked at the same time.
const AT_ONCE: usize = 4;

/// The tap of a machine's NIC, by the NIC's number.
pub type TapOf = Arc<dyn Fn(&MachineId, u16) -> String + Send + Sync>;

/// Measures the machines of one host.
pub struct Sampler {
    pub hypervisor: Arc<Hypervisor>,
    pub notes: Notes,
    /// None where guests have no taps.
    pub tap_of: Option<TapOf>,
    pub world: World,
    pub metrics: Arc<MachineMetrics>,
}

/// What need not be asked again. Nothing is lost with it but a question.
#[derive(Default)]
pub struct KnownMachines(BTreeMap<MachineId, Known>);

/// What does not change while a machine's process lives.
#[derive(Clone)]
struct Known {
    pid: i32,
    owner: Owner,
    memory_bytes: u64,
    has_balloon: bool,
    /// In the machine's order.
    nics: Arc<[String]>,
    /// Empty until the monitor answered for the first time.
    threads: Arc<[CpuThread]>,
}

/// What a monitor answered.
struct Answers {
    threads: Arc<[CpuThread]>,
    guest: Option<GuestMemory>,
    disks: Vec<DiskNumbers>,
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error(transparent)]
    Hypervisor(#[from] HypervisorError),
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

impl Sampler {
    /// Until dropped.
    pub async fn run(self) {
        let mut known = KnownMachines::default();
        let mut ticks = interval(Duration::from_secs(INTERVAL_SECS));
        // Late samples are taken late; catching up would only make rates of nothing.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.measure(&mut known).await;
        }
    }

    /// Measures every machine once.
    pub async fn measure(&self, KnownMachines(known): &mut KnownMachines) {
        let here: BTreeSet<MachineId> = match self.notes.all() {
            Ok(ids) => ids.into_iter().collect(),
            Err(why) => return tracing::warn!(%why, "machines cannot be measured"),
        };
        self.metrics.keep_only(&here);
        known.retain(|id, _| here.contains(id));
        let interfaces = match &self.tap_of {
            None => BTreeMap::new(),
            Some(_) => interfaces::read().unwrap_or_else(|why| {
                tracing::warn!(%why, "the traffic of machines cannot be read");
                BTreeMap::new()
            }),
        };
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for id in here {
            let Some(machine) = self.running(&id, known.get(&id)) else {
                known.remove(&id);
                self.metrics.stopped(&id);
                continue;
            };
            known.insert(id.clone(), machine.clone());
            // Nobody else comes by so regularly, and what a guest makes its QEMU complain about has no end.
            if let Err(why) = self.hypervisor.trim_log(&id) {
                tracing::warn!(machine = %id, %why, "its log cannot be kept short");
            }
            let (hypervisor, room) = (self.hypervisor.clone(), room.clone());
            asking.spawn(async move {
                let _room = room.acquire_owned().await;
                let answers = match timeout(PATIENCE, ask(&hypervisor, &id, &machine)).await {
                    Ok(Ok(answers)) => Some(answers),
                    Ok(Err(why)) => {
                        tracing::debug!(machine = %id, %why, "its monitor does not say what it uses");
                        None
                    }
                    Err(_) => {
                        tracing::debug!(machine = %id, "its monitor is silent");
                        None
                    }
                };
                (id, machine, answers)
            });
        }
        while let Some(answered) = asking.join_next().await {
            let Ok((id, mut machine, answers)) = answered else { continue };
            if let Some(answers) = &answers {
                machine.threads = answers.threads.clone();
                known.insert(id.clone(), machine.clone());
            }
            match self.sample(&id, &machine, answers, &interfaces) {
                Some(sample) => {
                    let at_secs = self.world.clock.since_epoch().as_secs();
                    self.metrics.enter(&id, machine.owner, at_secs, sample);
                }
                None => self.metrics.stopped(&id),
            }
        }
    }

    /// A machine that runs; looked up anew only when its process is another.
    fn running(&self, id: &MachineId, known: Option<&Known>) -> Option<Known> {
        let pid = self.hypervisor.pid(id).ok().flatten()?;
        if let Some(known) = known.filter(|known| known.pid == pid) {
            return Some(known.clone());
        }
        let note = self.notes.read(id).ok().flatten()?;
        let machine = self.hypervisor.look(id.clone()).ok()?.machine?;
        Some(Known {
            pid,
            owner: Owner { namespace: note.namespace, name: note.name },
            memory_bytes: machine.memory_mib << 20,
            has_balloon: machine.balloon,
            nics: machine.nics.iter().map(|nic| nic.name.to_string()).collect(),
            threads: Arc::default(),
        })
    }

    /// None if the machine ended meanwhile.
    fn sample(
        &self,
        id: &MachineId,
        machine: &Known,
        answers: Option<Answers>,
        interfaces: &BTreeMap<String, InterfaceNumbers>,
    ) -> Option<Sample> {
        let process = ProcessNumbers::read(machine.pid).ok()?;
        let cpus = machine.threads.iter().filter_map(|thread| {
            let read = ThreadNumbers::read(machine.pid, thread.thread_id).ok()?;
            Some(CpuNumbers {
                index: thread.cpu_index,
                run_nanos: read.run_nanos,
                delay_nanos: read.delay_nanos,
            })
        });
        let nics = machine.nics.iter().zip(0..).filter_map(|(name, number)| {
            let tap = interfaces.get(&(self.tap_of.as_ref()?)(id, number))?;
            Some(tap.seen_by_guest(name))
        });
        let (guest, disks) = match answers {
            Some(answers) => (answers.guest, Some(answers.disks)),
            None => (None, None),
        };
        Some(Sample {
            at: Instant::now(),
            process,
            cpus: cpus.collect(),
            memory_bytes: machine.memory_bytes,
            guest,
            disks,
            nics: nics.collect(),
        })
    }
}

async fn ask(hypervisor: &Hypervisor, id: &MachineId, machine: &Known) -> Result<Answers, AskError> {
    let monitor: Monitor = hypervisor.tools_monitor(id).await?;
    let mut threads = machine.threads.clone();
    if threads.is_empty() {
        // Also what was said to an earlier agent is said again: it costs nothing.
        if machine.has_balloon {
            monitor.poll_memory(INTERVAL_SECS).await?;
        }
        threads = monitor.cpu_threads().await?.into();
    }
    let guest = match machine.has_balloon {
        true => Some(GuestMemory {
            actual_bytes: monitor.balloon_bytes().await?,
            said: monitor.memory_numbers().await?,
        }),
        false => None,
    };
    Ok(Answers { threads, guest, disks: monitor.disk_numbers().await? })
}
