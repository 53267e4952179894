//! A hypervisor on a directory of its own, and a guest to talk to.

use std::{
    fs::{self, File, OpenOptions},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use sheaf_hypervisor::{
    DescriptorName, Descriptors, Hypervisor, HypervisorConfig, Launcher, Machine, MachineId, Monitor,
    cgroup::Cgroups,
    machine::{
        Accelerator, Aio, Bus, Cache, Cpu, Disk, DiskKind, Firmware, Format, Kernel, Layer, LayerStorage,
        SystemInformation,
    },
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

pub const AGENT: &str = env!("CARGO_BIN_EXE_hypervisor-test-agent");

/// How long a guest may take for anything, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(120);

/// Guests that run at the same time only make each other late.
static GUESTS: Semaphore = Semaphore::const_new(2);

pub async fn turn() -> SemaphorePermit<'static> {
    GUESTS.acquire().await.unwrap()
}

pub struct House {
    pub hypervisor: Hypervisor,
    pub cgroups: Cgroups,
    directory: TempDir,
}

fn config(directory: &Path) -> HypervisorConfig {
    let launcher = Launcher { program: AGENT.into(), arguments: vec!["launch".into()] };
    HypervisorConfig::of_host(directory.join("hypervisor"), launcher)
}

impl House {
    pub fn new() -> House {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        House { cgroups: config.cgroups.clone(), hypervisor: Hypervisor::new(config), directory }
    }

    /// From now on another program takes QEMU's place.
    pub fn replace_qemu(&mut self, program: &Path) {
        let qemu = program.to_owned();
        self.hypervisor = Hypervisor::new(HypervisorConfig { qemu, ..config(self.directory.path()) });
    }

    /// The data directory.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("hypervisor")
    }

    /// Somewhere beside it, for disks and the like.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A disk image of zeros, or of `content`.
    pub fn image(&self, name: &str, mib: u64, content: &[u8]) -> PathBuf {
        let path = self.beside(name);
        fs::write(&path, content).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(mib << 20).unwrap();
        path
    }

    pub async fn launch(&self, machine: &Machine, descriptors: Descriptors) -> Monitor {
        self.hypervisor.define(machine).await.unwrap();
        self.hypervisor.launch(&machine.id, descriptors).await.unwrap()
    }

    /// Ends a machine and checks that nothing of it is left.
    pub async fn end(&self, id: &MachineId) {
        self.hypervisor.kill(id).await.unwrap();
        self.hypervisor.forget(id).await.unwrap();
        self.assert_nothing_left();
    }

    pub fn assert_nothing_left(&self) {
        assert_eq!(self.hypervisor.found().unwrap(), []);
        assert_eq!(self.cgroups.machines(), []);
        let left: Vec<_> = fs::read_dir(self.path().join("machines")).into_iter().flatten().collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for House {
    /// A test that failed half way leaves no QEMU running and no cgroup either.
    fn drop(&mut self) {
        for found in self.hypervisor.found().unwrap_or_default() {
            for pid in qemus(&found.id) {
                let pid = rustix::process::Pid::from_raw(pid).unwrap();
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            for _ in 0..500 {
                if self.cgroups.remove(&found.id).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Every process that runs a machine, found by looking at all of them.
pub fn qemus(id: &MachineId) -> Vec<i32> {
    let name = format!("guest={id},");
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse::<i32>().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains(&name).then_some(pid)
    });
    processes.collect()
}

/// A machine with firmware and nothing to boot: enough for everything that is not about
/// guests.
pub fn machine(id: &str) -> Machine {
    Machine {
        id: id.parse().unwrap(),
        name: id.to_owned(),
        uuid: "7d9f1a52-3c0e-4a6b-9b1e-0c2d3e4f5a6b".into(),
        machine_type: "pc-q35-7.2".into(),
        accelerator: Accelerator::Tcg,
        cpu: Cpu {
            model: "max".into(),
            features: vec![],
            sockets: 1,
            cores: 1,
            threads: 1,
            max_sockets: 1,
            limit_milli: None,
            request_milli: None,
        },
        memory_mib: 64,
        max_memory_mib: None,
        balloon: false,
        firmware: Firmware::Bios,
        kernel: None,
        system: SystemInformation::default(),
        disks: vec![],
        nics: vec![],
        rng: false,
        guest_agent: false,
        serial_console: true,
        graphics: false,
        tablet: false,
        virtio_tablet: false,
        acpi: true,
        start_paused: false,
    }
}

/// A machine that boots the tiny guest.
pub fn tiny_guest(id: &str, disks: usize) -> (Machine, Descriptors) {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    guest_in(DIRECTORY.get_or_init(|| built("build-tiny-guest")), id, disks)
}

/// The same with disks and network cards that are not virtio.
pub fn guest_with_every_bus(id: &str, disks: usize) -> (Machine, Descriptors) {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    guest_in(DIRECTORY.get_or_init(|| built("build-bus-guest")), id, disks)
}

fn guest_in(directory: &Path, id: &str, disks: usize) -> (Machine, Descriptors) {
    let command_line = format!("console=ttyS0 quiet panic=-1 tsc=unstable disks={disks}");
    let kernel = Kernel { initrd: true, command_line };
    let machine = Machine { memory_mib: 192, kernel: Some(kernel), ..machine(id) };
    let descriptors = Descriptors::from([
        (DescriptorName::Kernel, read_only(&directory.join("vmlinuz"))),
        (DescriptorName::Initrd, read_only(&directory.join("initramfs"))),
    ]);
    (machine, descriptors)
}

/// The directory that a script says it built a guest in.
fn built(script: &str) -> PathBuf {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts")).join(script);
    let output = Command::new(script).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

pub fn read_only(path: &Path) -> OwnedFd {
    File::open(path).unwrap().into()
}

pub fn writable(path: &Path) -> OwnedFd {
    OpenOptions::new().read(true).write(true).open(path).unwrap().into()
}

pub fn disk(name: &str, bus: Bus, kind: DiskKind) -> Disk {
    let read_only = kind == DiskKind::Cdrom;
    Disk {
        name: name.parse().unwrap(),
        bus,
        kind,
        layers: vec![Layer { number: None, format: Format::Raw, storage: LayerStorage::File, read_only }],
        boot_index: None,
        serial: None,
        device_id: None,
        cache: Cache::WriteBack,
        aio: Aio::Threads,
        source: None,
        io_thread: false,
    }
}

pub fn layer(disk: &str, layer: usize) -> DescriptorName {
    DescriptorName::Layer { disk: disk.parse().unwrap(), layer }
}

/// The serial console of a running guest.
pub struct Console {
    stream: UnixStream,
    seen: String,
}

impl Console {
    pub fn of(house: &House, id: &MachineId) -> Console {
        Console { stream: house.hypervisor.serial_console(id).unwrap(), seen: String::new() }
    }

    /// Reads until `text` was seen; returns everything up to and with it.
    pub async fn until(&mut self, text: &str) -> String {
        let reading = async {
            loop {
                if let Some(at) = self.seen.find(text) {
                    let rest = self.seen.split_off(at + text.len());
                    return std::mem::replace(&mut self.seen, rest);
                }
                let mut bytes = [0; 4096];
                let number = self.stream.read(&mut bytes).await.unwrap();
                assert_ne!(number, 0, "the console was closed after: {}", self.seen);
                self.seen.push_str(&String::from_utf8_lossy(&bytes[..number]).replace('\r', ""));
            }
        };
        match timeout(PATIENCE, reading).await {
            Ok(read) => read,
            Err(_) => panic!("the guest never said {text:?}, but: {}", self.seen),
        }
    }

    pub async fn type_line(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// What the guest sees of its hardware.
    pub async fn report(&mut self) -> Vec<String> {
        let report = self.until("END report").await;
        report.lines().skip_while(|line| !line.contains("BEGIN report")).map(str::to_owned).collect()
    }
}
