//! Defines, launches, finds, kills and forgets machines on this host.
//!
//! ```text
//!            define            launch               process ends
//!   (none) ----------> Defined ------> Launching ------> Running ------> Exited
//!     ^                   |  ^             |                                |
//!     |      forget       |  |  refused    |             launch             |
//!     +-------------------+  +-------------+          (again) / forget <----+
//! ```
//!
//! Nothing of this is kept in memory: [`Hypervisor::found`] reads it off the host, so it is
//! as true for the next process as for this one. Every method may be called again after
//! being interrupted anywhere; none needs to know how far the last call came.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    iter,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::fs::MemfdFlags;
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::{
    cgroup::{Cgroups, CpuLimits, Limits, NodeShelter},
    command_line::command_line,
    descriptors::{self, DescriptorName, Descriptors, Numbers},
    directory::{Definition, MachineDirectory, MachineLock},
    guest_agent::GuestAgent,
    handover,
    image_header::{self, HeaderError},
    kvm,
    launcher::LaunchOrder,
    log,
    machine::{Accelerator, Format, InvalidMachine, Machine, MachineId},
    overhead::{self, Layers},
    process::{self, ProcessRecord},
    qmp::{Monitor, QmpError, RunState},
    step::Step,
    user_ids::{Identity, UserIds},
};

/// How long a QEMU may take from its start to its first answer. Reached only on a host that
/// is far out of breath.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long the kernel may take to end a killed process.
const KILL_PATIENCE: Duration = Duration::from_secs(20);
/// Whoever merely looks holds the lock for an instant; only who holds it longer counts.
const LOOK_PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);
/// What a machine weighs that starts: as much as one with this many thousandths of a processor that runs.
const STARTING_WEIGHT_MILLI: u32 = 16_000;

pub struct HypervisorConfig {
    /// Holds `machines/`. Made if it is not there.
    pub directory: PathBuf,
    pub launcher: Launcher,
    /// `qemu-system-x86_64`.
    pub qemu: PathBuf,
    pub user_ids: UserIds,
    pub cgroups: Cgroups,
    /// Called after each step; does nothing outside tests.
    pub after_step: Arc<dyn Fn(Step) + Send + Sync>,
}

/// What to run to get into [`crate::launcher::run`]: our own binary, under a hidden name.
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

impl HypervisorConfig {
    /// What a node uses: the ids, cgroups and QEMU of this host.
    pub fn of_host(directory: PathBuf, launcher: Launcher) -> HypervisorConfig {
        let privileged = rustix::process::geteuid().is_root();
        HypervisorConfig {
            user_ids: UserIds::for_directory(&directory),
            cgroups: if privileged { Cgroups::of_host(&directory) } else { Cgroups::none() },
            directory,
            launcher,
            qemu: PathBuf::from("/usr/bin/qemu-system-x86_64"),
            after_step: Arc::new(|_| {}),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum HypervisorError {
    #[error("machine {machine} is not defined")]
    NotDefined { machine: MachineId },
    #[error("machine {machine} is running")]
    InUse { machine: MachineId },
    #[error("machine {machine} is not running")]
    NotRunning { machine: MachineId },
    #[error("machine {machine} cannot be: {source}")]
    Invalid { machine: MachineId, source: InvalidMachine },
    #[error("machine {machine} needs {missing}, which was not handed in")]
    Missing { machine: MachineId, missing: DescriptorName },
    #[error("machine {machine} was handed {unknown}, which it has no use for")]
    Unasked { machine: MachineId, unknown: DescriptorName },
    #[error("the image {layer} of machine {machine} may not be used")]
    Image {
        machine: MachineId,
        layer: DescriptorName,
        #[source]
        source: HeaderError,
    },
    #[error("{what} cannot be plugged into machine {machine} while it runs: {why}")]
    NotWhileRunning { machine: MachineId, what: String, why: String },
    #[error("QEMU refused the configuration of machine {machine}: {reason}")]
    Refused { machine: MachineId, reason: String },
    #[error("machine {machine} did not begin within {patience:?}: {reason}")]
    NoStart { machine: MachineId, patience: Duration, reason: String },
    #[error("all {count} user ids are taken")]
    NoUserId { count: usize },
    #[error("a process of machine {machine} does not end")]
    WontDie { machine: MachineId },
    #[error("cannot {attempt} machine {machine}")]
    Host {
        attempt: &'static str,
        machine: MachineId,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the machines in {directory}")]
    Directory {
        directory: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot talk to the monitor of machine {machine}")]
    Monitor {
        machine: MachineId,
        #[source]
        source: QmpError,
    },
}

/// A machine as the host shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub id: MachineId,
    /// None if it was interrupted while being defined or forgotten, or cannot be read.
    pub machine: Option<Machine>,
    pub state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing runs, and nothing ran since it was last launched or defined.
    Defined,
    /// Somebody holds its lock and there is no QEMU yet.
    Launching,
    Running {
        pid: i32,
    },
    /// It ran; its process is gone. Since a guest that powers off leaves its QEMU
    /// waiting, this is a crash, a kill, or a [`Monitor::quit`].
    Exited {
        /// The last words in its log.
        last_words: String,
    },
}

pub struct Hypervisor {
    config: HypervisorConfig,
    machines: PathBuf,
    /// The program that becomes QEMU, by its real name.
    launcher: PathBuf,
    /// Choosing a user id and writing it down is one step for everyone in this process.
    defining: tokio::sync::Mutex<()>,
}

impl Hypervisor {
    pub fn new(config: HypervisorConfig) -> Hypervisor {
        let machines = config.directory.join("machines");
        let program = &config.launcher.program;
        let launcher = fs::canonicalize(program).unwrap_or_else(|_| program.clone());
        Hypervisor { config, machines, launcher, defining: tokio::sync::Mutex::new(()) }
    }

    fn directory(&self, id: &MachineId) -> MachineDirectory {
        MachineDirectory::new(&self.machines, id)
    }

    pub(crate) fn after(&self, step: Step) {
        (self.config.after_step)(step);
    }

    /// Every machine of this data directory, from the host alone, by id.
    pub fn found(&self) -> Result<Vec<Found>, HypervisorError> {
        let mut ids: BTreeSet<MachineId> = self.config.cgroups.machines().into_iter().collect();
        let unreadable = |source| HypervisorError::Directory { directory: self.machines.clone(), source };
        match fs::read_dir(&self.machines) {
            Ok(entries) => {
                for entry in entries {
                    let name = entry.map_err(unreadable)?.file_name();
                    match name.to_str().and_then(|name| name.parse().ok()) {
                        Some(id) => drop(ids.insert(id)),
                        None => tracing::warn!(?name, "this is not a machine's directory"),
                    }
                }
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            Err(why) => return Err(unreadable(why)),
        }
        ids.into_iter().map(|id| self.look(id)).collect()
    }

    /// One machine, from the host alone.
    pub fn look(&self, id: MachineId) -> Result<Found, HypervisorError> {
        let directory = self.directory(&id);
        let failed = |source| HypervisorError::Host { attempt: "look at", machine: id.clone(), source };
        let machine = match directory.definition() {
            Ok(definition) => definition.map(|definition| definition.machine),
            Err(why) => {
                tracing::warn!(machine = %id, %why, "the definition cannot be read");
                None
            }
        };
        // The process first: one that ends between the two looks is then seen as exited,
        // never as never having been.
        let process = directory.process().map_err(failed)?;
        let state = match (directory.is_locked().map_err(failed)?, process) {
            (true, Some(process)) if process.lives() && !process.runs(&self.launcher) => {
                State::Running { pid: process.pid }
            }
            (true, _) => State::Launching,
            // The lock is shared with QEMU, and one that was broken into can give it up. It is not rid of us by that.
            (false, Some(process)) if process.lives_on() => State::Running { pid: process.pid },
            (false, Some(_)) => State::Exited { last_words: log::reason_since(&directory.log_file(), 0) },
            (false, None) => State::Defined,
        };
        Ok(Found { id, machine, state })
    }

    /// Writes down what a machine is. Changes one that does not run; the running one
    /// stays what it was launched as.
    pub async fn define(&self, machine: &Machine) -> Result<(), HypervisorError> {
        let id = &machine.id;
        machine.validate().map_err(|source| HypervisorError::Invalid { machine: id.clone(), source })?;
        let failed = |source| HypervisorError::Host { attempt: "define", machine: id.clone(), source };
        let directory = self.directory(id);
        let _one_at_a_time = self.defining.lock().await;

        directory.make().map_err(failed)?;
        self.after(Step::DirectoryMade);
        let known = directory.definition().ok().flatten();
        if known.as_ref().is_some_and(|known| known.machine == *machine) {
            return Ok(());
        }
        let _lock = self.lock("define", &directory, id).await?;
        self.after(Step::DefinitionLocked);
        let identity = match known {
            Some(known) => known.identity,
            None => self.new_identity(id)?,
        };
        directory.write_definition(&Definition { machine: machine.clone(), identity }).map_err(failed)?;
        self.after(Step::DefinitionWritten);
        Ok(())
    }

    fn new_identity(&self, id: &MachineId) -> Result<Option<Identity>, HypervisorError> {
        let failed = |source| HypervisorError::Host { attempt: "define", machine: id.clone(), source };
        let mut taken = BTreeSet::new();
        for entry in fs::read_dir(&self.machines).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let Some(other) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if let Ok(Some(identity)) = self.directory(&other).identity() {
                taken.insert(identity.uid);
            }
        }
        let uid =
            self.config.user_ids.choose(&taken).ok_or(HypervisorError::NoUserId { count: taken.len() })?;
        Ok(uid.map(|uid| Identity { uid, gid: uid }))
    }

    /// Starts a defined machine and returns when QEMU answers. After an error nothing is
    /// left but the definition.
    pub async fn launch(&self, id: &MachineId, handed_in: Descriptors) -> Result<Monitor, HypervisorError> {
        let failed = |source| HypervisorError::Host { attempt: "launch", machine: id.clone(), source };
        let directory = self.directory(id);
        if !directory.exists() {
            return Err(HypervisorError::NotDefined { machine: id.clone() });
        }
        let lock = self.lock("launch", &directory, id).await?;
        self.after(Step::LaunchLocked);
        let Some(definition) = directory.definition().map_err(failed)? else {
            return Err(HypervisorError::NotDefined { machine: id.clone() });
        };
        let machine = &definition.machine;
        check_descriptors(machine, &handed_in)?;

        directory.clear_run().map_err(failed)?;
        self.after(Step::LeftoversCleared);
        let limits = Limits {
            memory_bytes: overhead::memory_limit_mib(machine) << 20,
            // QEMU first makes its devices, for which somebody waits, however busy the guests are that run already. That
            // is a tenth of a second's work.
            cpu: CpuLimits { weight_milli: STARTING_WEIGHT_MILLI, ceiling_milli: None },
        };
        let (cgroups, missing) = self.config.cgroups.make(id, limits);
        for what in missing {
            tracing::warn!(machine = %id, what, "a limit is missing");
        }
        self.after(Step::CgroupMade);
        let mut all = handed_in;
        for socket in descriptors::sockets(machine) {
            let listener = directory.bind(&socket).map_err(failed)?;
            all.insert(socket, listener);
        }
        self.after(Step::SocketsBound);
        all.insert(DescriptorName::Lock, lock.share().map_err(failed)?);

        let log = log::open(&directory.log_file()).map_err(failed)?;
        let said_before = log.metadata().map_err(failed)?.len();
        let numbers = Numbers::of_machine(machine);
        let order = LaunchOrder {
            process_file: directory.process_file(),
            cgroups,
            alone: definition.identity.is_some() && machine.needs_no_network(),
            identity: definition.identity.map(|identity| for_device(identity, machine)),
            program: self.config.qemu.clone(),
            arguments: command_line(machine),
            numbers: numbers.iter().map(|(_, number)| number).collect(),
        };
        let inherited = numbers.iter().map(|(name, _)| all.remove(name).ok_or(io::ErrorKind::NotFound));
        let inherited: Result<Vec<OwnedFd>, _> = inherited.collect();
        let inherited = inherited.map_err(|missing| failed(missing.into()))?;
        let child = self.spawn(&order, inherited, &log).map_err(failed)?;
        self.after(Step::LauncherSpawned);

        match self.first_answer(id, &directory, child).await {
            Ok(monitor) => {
                self.after(Step::MonitorAnswered);
                self.limit_cpu(machine, machine.cpu.weight_milli());
                Ok(monitor)
            }
            Err(outcome) => {
                let reason = log::reason_since(&directory.log_file(), said_before);
                // We still hold the lock: nobody launches it while we clean up.
                self.clean_up(id, &directory, &lock);
                Err(match outcome {
                    NoAnswer::Ended => HypervisorError::Refused { machine: id.clone(), reason },
                    NoAnswer::TooLate { standing } => {
                        let reason =
                            if reason.is_empty() { standing } else { format!("{reason}; {standing}") };
                        HypervisorError::NoStart { machine: id.clone(), patience: START_PATIENCE, reason }
                    }
                    NoAnswer::Monitor(source) => HypervisorError::Monitor { machine: id.clone(), source },
                })
            }
        }
    }

    /// Starts the launcher with exactly these descriptors. All of ours are closed when
    /// this returns: nobody but QEMU keeps a disk open.
    fn spawn(&self, order: &LaunchOrder, descriptors: Vec<OwnedFd>, log: &File) -> io::Result<Child> {
        let mut note = File::from(rustix::fs::memfd_create("order", MemfdFlags::CLOEXEC)?);
        note.write_all(&serde_json::to_vec(order)?)?;
        let all = iter::once(note.as_fd()).chain(descriptors.iter().map(AsFd::as_fd));
        let socket = handover::put(all)?;
        let mut command = Command::new(&self.config.launcher.program);
        let launcher = command.args(&self.config.launcher.arguments);
        launcher.stdin(socket).stdout(log.try_clone()?).stderr(log.try_clone()?).spawn()
    }

    async fn first_answer(
        &self,
        id: &MachineId,
        directory: &MachineDirectory,
        mut child: Child,
    ) -> Result<Monitor, NoAnswer> {
        let pid = child.id();
        let answer = async {
            let stream = connect(directory, &DescriptorName::MonitorSocket)
                .map_err(|why| NoAnswer::Monitor(QmpError::Io(why)))?;
            let monitor = Monitor::open_within(stream, START_PATIENCE).await.map_err(NoAnswer::Monitor)?;
            // The greeting comes from a thread of the monitor's own; an answer only when
            // every device is made and the main loop runs.
            monitor.status().await.map_err(NoAnswer::Monitor)?;
            Ok(monitor)
        };
        let outcome = tokio::select! {
            biased;
            _ = child.wait() => Err(NoAnswer::Ended),
            answer = answer => answer,
            () = sleep(START_PATIENCE) => Err(NoAnswer::TooLate { standing: process::standing(pid) }),
        };
        match outcome {
            Ok(monitor) => {
                // Collected when it ends, so that it does not stay as a zombie. If we end
                // first, init does it.
                let id = id.clone();
                tokio::spawn(async move {
                    if let Ok(status) = child.wait().await {
                        tracing::info!(machine = %id, %status, "QEMU ended");
                    }
                });
                Ok(monitor)
            }
            Err(NoAnswer::Ended) => Err(NoAnswer::Ended),
            Err(other) => {
                // A connection that ended is a process that is ending: what it said last is
                // the better reason, if it ends by itself.
                let ended = tokio::time::timeout(Duration::from_secs(1), child.wait()).await.is_ok();
                if ended && !matches!(other, NoAnswer::TooLate { .. }) {
                    return Err(NoAnswer::Ended);
                }
                let _ = child.start_kill();
                let _ = child.wait().await;
                Err(other)
            }
        }
    }

    /// After a failed launch: back to only the definition.
    fn clean_up(&self, id: &MachineId, directory: &MachineDirectory, _lock: &MachineLock) {
        if let Err(why) = directory.clear_run().and_then(|()| self.config.cgroups.remove(id)) {
            tracing::warn!(machine = %id, %why, "a failed launch left something behind");
        }
    }

    /// Sees to it that this process, whose machines these are, has its share of busy processors for as long as the
    /// shelter is kept.
    pub fn shelter_node(&self) -> NodeShelter {
        let (shelter, missing) = self.config.cgroups.shelter_node();
        for what in missing {
            tracing::warn!(what, "this node may have to wait for its machines when processors are busy");
        }
        shelter
    }

    /// Takes away what a node left that was killed in its shelter.
    pub fn clear_shelter(&self) {
        self.config.cgroups.clear_shelter();
    }

    /// Gives a running machine what it requests of busy processors, in thousandths of one, and no more than its limit
    /// of any; until then it has what a machine that starts has. To be called for every machine that is found running:
    /// whoever launched it may have died before.
    pub fn limit_cpu(&self, machine: &Machine, weight_milli: u32) {
        let limits = CpuLimits { weight_milli, ceiling_milli: machine.cpu.limit_milli };
        for what in self.config.cgroups.limit_cpu(&machine.id, limits) {
            tracing::warn!(machine = %machine.id, what, "a limit is missing");
        }
    }

    /// Sees to it that a running machine may use memory for all that it has now and for so many layers of disks more.
    pub async fn make_room(
        &self,
        machine: &Machine,
        monitor: &Monitor,
        more_layers: usize,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: machine.id.clone(), source };
        let added = monitor.added_memory().await.map_err(failed)?.unwrap_or_default();
        self.make_room_beside(machine, monitor, added.requested_bytes >> 20, more_layers).await
    }

    /// The same when the guest is to have so much memory beside what it began with.
    pub(crate) async fn make_room_beside(
        &self,
        machine: &Machine,
        monitor: &Monitor,
        added_mib: u64,
        more_layers: usize,
    ) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Monitor { machine: machine.id.clone(), source };
        let nodes = monitor.block_nodes().await.map_err(failed)?;
        let count = |driver: &str| nodes.iter().filter(|node| node.driver == driver).count();
        let layers = Layers { qcow2: (count("qcow2") + more_layers) as u64, raw: count("raw") as u64 };
        let bytes = overhead::running_limit_mib(machine, added_mib, layers) << 20;
        for what in self.config.cgroups.raise_memory(&machine.id, bytes) {
            tracing::warn!(machine = %machine.id, what, "a limit is missing");
        }
        Ok(())
    }

    /// Takes away the limits of a machine that does not run; its next launch makes them anew.
    pub async fn clear_limits(&self, id: &MachineId) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Host { attempt: "unlimit", machine: id.clone(), source };
        self.remove_cgroup(id).await.map_err(failed)
    }

    /// Connects to the monitor of a running machine. There is one connection at a time; who comes
    /// second waits until the first lets go.
    pub async fn monitor(&self, id: &MachineId) -> Result<Monitor, HypervisorError> {
        self.open_monitor(id, &DescriptorName::MonitorSocket).await
    }

    /// The second monitor, for whoever looks in while the first is taken.
    pub async fn tools_monitor(&self, id: &MachineId) -> Result<Monitor, HypervisorError> {
        self.open_monitor(id, &DescriptorName::ToolsSocket).await
    }

    async fn open_monitor(
        &self,
        id: &MachineId,
        socket: &DescriptorName,
    ) -> Result<Monitor, HypervisorError> {
        let stream = self.connect(id, socket)?;
        let failed = |source| HypervisorError::Monitor { machine: id.clone(), source };
        Monitor::open(stream).await.map_err(failed)
    }

    /// A raw connection to the serial console. There is one at a time, as with a cable.
    pub fn serial_console(&self, id: &MachineId) -> Result<UnixStream, HypervisorError> {
        self.connect(id, &DescriptorName::SerialSocket)
    }

    /// The guest agent's channel, whether or not anybody listens at its other end.
    pub fn guest_agent(&self, id: &MachineId) -> Result<GuestAgent, HypervisorError> {
        Ok(GuestAgent::new(self.connect(id, &DescriptorName::GuestAgentSocket)?))
    }

    fn connect(&self, id: &MachineId, socket: &DescriptorName) -> Result<UnixStream, HypervisorError> {
        connect(&self.directory(id), socket).map_err(|why| match why.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                HypervisorError::NotRunning { machine: id.clone() }
            }
            _ => HypervisorError::Host { attempt: "connect to", machine: id.clone(), source: why },
        })
    }

    /// Whom a defined machine runs as: the owner of what is made for it. None where all
    /// machines run as ourselves, or for one that is not defined.
    pub fn user_of(&self, id: &MachineId) -> Result<Option<Identity>, HypervisorError> {
        let definition = self.directory(id).definition();
        let definition = definition.map_err(|source| HypervisorError::Host {
            attempt: "look at",
            machine: id.clone(),
            source,
        })?;
        Ok(definition.and_then(|definition| definition.identity))
    }

    /// The process of a running machine.
    pub fn pid(&self, id: &MachineId) -> Result<Option<i32>, HypervisorError> {
        let process = self.directory(id).process();
        let process = process.map_err(|source| HypervisorError::Host {
            attempt: "look at",
            machine: id.clone(),
            source,
        })?;
        Ok(process.filter(ProcessRecord::lives).map(|process| process.pid))
    }

    /// Cuts the power. Returns when no process of the machine is left; the definition stays.
    pub async fn kill(&self, id: &MachineId) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Host { attempt: "kill", machine: id.clone(), source };
        let directory = self.directory(id);
        let deadline = Instant::now() + KILL_PATIENCE;
        let mut signalled = false;
        loop {
            let process = directory.process().map_err(failed)?;
            let lives = process.as_ref().is_some_and(ProcessRecord::lives);
            if !lives && !directory.is_locked().map_err(failed)? {
                break;
            }
            if Instant::now() > deadline {
                return Err(HypervisorError::WontDie { machine: id.clone() });
            }
            // Again and again: a launcher that has not noted its number yet will in a moment.
            if let Some(process) = process {
                process.kill().map_err(failed)?;
                if !signalled {
                    signalled = true;
                    self.after(Step::Signalled);
                }
            }
            sleep(PAUSE).await;
        }
        self.after(Step::Gone);
        Ok(())
    }

    /// Removes every trace of a machine that does not run.
    pub async fn forget(&self, id: &MachineId) -> Result<(), HypervisorError> {
        let failed = |source| HypervisorError::Host { attempt: "forget", machine: id.clone(), source };
        let directory = self.directory(id);
        if !directory.exists() {
            return self.config.cgroups.remove(id).map_err(failed);
        }
        let _lock = self.lock("forget", &directory, id).await?;
        self.after(Step::ForgetLocked);
        self.remove_cgroup(id).await.map_err(failed)?;
        self.after(Step::CgroupRemoved);
        directory.clear().map_err(failed)?;
        self.after(Step::FilesRemoved);
        directory.remove().map_err(failed)?;
        self.after(Step::DirectoryRemoved);
        Ok(())
    }

    /// A process lets go of its lock a moment before it has left its cgroup.
    async fn remove_cgroup(&self, id: &MachineId) -> io::Result<()> {
        let deadline = Instant::now() + KILL_PATIENCE;
        loop {
            match self.config.cgroups.remove(id) {
                Err(why) if why.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                    sleep(PAUSE).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Keeps a machine's log from growing without end. To be called now and then.
    pub fn trim_log(&self, id: &MachineId) -> Result<(), HypervisorError> {
        log::trim(&self.directory(id).log_file()).map_err(|source| HypervisorError::Host {
            attempt: "trim the log of",
            machine: id.clone(),
            source,
        })
    }

    /// Where a machine's files are: for support, never for opening what QEMU can write to.
    pub fn directory_of(&self, id: &MachineId) -> PathBuf {
        self.directory(id).path().to_owned()
    }

    async fn lock(
        &self,
        attempt: &'static str,
        directory: &MachineDirectory,
        id: &MachineId,
    ) -> Result<MachineLock, HypervisorError> {
        let deadline = Instant::now() + LOOK_PATIENCE;
        loop {
            let taken = directory.try_lock();
            let lives = matches!(self.pid(id), Ok(Some(_)));
            match taken {
                Ok(Some(lock)) if !lives => return Ok(lock),
                // A process that is known to live will not let go while we wait.
                Ok(None) if lives => return Err(HypervisorError::InUse { machine: id.clone() }),
                Ok(_) if Instant::now() > deadline => {
                    return Err(HypervisorError::InUse { machine: id.clone() });
                }
                // A process that ends lets go of its lock a moment before it is gone.
                Ok(_) => sleep(PAUSE).await,
                Err(source) => return Err(HypervisorError::Host { attempt, machine: id.clone(), source }),
            }
        }
    }
}

/// Why a launch came to nothing.
enum NoAnswer {
    Ended,
    TooLate { standing: String },
    Monitor(QmpError),
}

fn connect(directory: &MachineDirectory, socket: &DescriptorName) -> io::Result<UnixStream> {
    UnixStream::from_std(directory.connect(socket)?)
}

/// Exactly what the machine needs was handed in, and no image in it leads elsewhere.
fn check_descriptors(machine: &Machine, handed_in: &Descriptors) -> Result<(), HypervisorError> {
    let needed: BTreeSet<DescriptorName> = descriptors::handed_in(machine).into_iter().collect();
    if let Some(missing) = needed.iter().find(|name| !handed_in.contains_key(name)) {
        return Err(HypervisorError::Missing { machine: machine.id.clone(), missing: missing.clone() });
    }
    if let Some(unknown) = handed_in.keys().find(|name| !needed.contains(name)) {
        return Err(HypervisorError::Unasked { machine: machine.id.clone(), unknown: unknown.clone() });
    }
    for disk in &machine.disks {
        for (index, layer) in disk.layers.iter().enumerate() {
            let name = DescriptorName::Layer { disk: disk.name.clone(), layer: index };
            let Some(image) = handed_in.get(&name) else { continue };
            check_layer(&machine.id, image, &name, layer.format)?;
        }
    }
    Ok(())
}

/// The header of an image leads nowhere else.
pub(crate) fn check_layer(
    id: &MachineId,
    image: &OwnedFd,
    name: &DescriptorName,
    format: Format,
) -> Result<(), HypervisorError> {
    let checked = duplicate(image).map_err(HeaderError::from);
    checked.and_then(|image| image_header::check(&image, format)).map_err(|source| HypervisorError::Image {
        machine: id.clone(),
        layer: name.clone(),
        source,
    })
}

fn duplicate(descriptor: &OwnedFd) -> io::Result<File> {
    Ok(descriptor.as_fd().try_clone_to_owned()?.into())
}

/// QEMU opens `/dev/kvm` itself, so its group must be one that may.
fn for_device(identity: Identity, machine: &Machine) -> Identity {
    match (machine.accelerator, kvm::group(Path::new(kvm::DEVICE))) {
        (Accelerator::Kvm, Some(gid)) => Identity { gid, ..identity },
        _ => identity,
    }
}

/// Whether a state is one in which the guest will do nothing more by itself.
pub fn is_over(state: &RunState) -> bool {
    matches!(state, RunState::Shutdown | RunState::GuestPanicked | RunState::InternalError)
}
