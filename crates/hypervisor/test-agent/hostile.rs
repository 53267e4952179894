//! A QEMU that its guest has taken over: tries what such a process would, and says what it got at.
//!
//! What there is to be got at stands in `targets.json` beside the program. It harms nothing: what it can open it closes, and
//! what it can make it removes. Only the outcome of each attempt is printed, for the log that the machine has:
//!
//! ```text
//!   refused: read /x: permission denied          reached: read /x
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io,
    net::{SocketAddr, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            net::{SocketAddr as UnixAddress, UnixStream},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open, test_kill_process};
use serde::Deserialize;

pub const NAME: &str = "hostile-qemu";

/// What a test put into its way.
#[derive(Deserialize)]
struct Targets {
    /// Files, directories and sockets.
    paths: Vec<PathBuf>,
    /// Other machines, and the node.
    processes: Vec<i32>,
    addresses: Vec<SocketAddr>,
    abstract_sockets: Vec<String>,
}

pub fn attack() -> ExitCode {
    let beside = std::env::current_exe().map(|program| program.with_file_name("targets.json"));
    let targets = beside.and_then(fs::read).and_then(|text| Ok(serde_json::from_slice::<Targets>(&text)?));
    let Ok(targets) = targets else {
        eprintln!("cannot read the targets");
        return ExitCode::FAILURE;
    };
    for path in &targets.paths {
        attack_path(path);
    }
    for process in &targets.processes {
        attack_process(*process);
    }
    for address in &targets.addresses {
        tell(&format!("connect {address}"), TcpStream::connect_timeout(address, Duration::from_secs(1)));
    }
    for name in &targets.abstract_sockets {
        let address = UnixAddress::from_abstract_name(name);
        tell(&format!("connect @{name}"), address.and_then(|address| UnixStream::connect_addr(&address)));
    }
    attack_network();
    tell("become root", Command::new("/bin/true").uid(0).status());
    attack_control_groups();
    eprintln!("attacks: over");
    ExitCode::FAILURE
}

fn tell<T>(what: &str, outcome: io::Result<T>) {
    match outcome {
        Ok(_) => eprintln!("reached: {what}"),
        Err(why) => eprintln!("refused: {what}: {why}"),
    }
}

fn attack_path(path: &Path) {
    let shown = path.display();
    tell(&format!("read {shown}"), File::open(path));
    tell(&format!("write {shown}"), OpenOptions::new().append(true).open(path));
    tell(&format!("connect {shown}"), UnixStream::connect(path));
    tell(&format!("list {shown}"), fs::read_dir(path));
    let planted = path.join("planted");
    tell(&format!("plant in {shown}"), File::create_new(&planted).and_then(|_| fs::remove_file(&planted)));
    let linked = std::env::temp_dir().join(format!("linked-{}", std::process::id()));
    tell(&format!("link {shown}"), fs::hard_link(path, &linked).and_then(|()| fs::remove_file(&linked)));
}

fn attack_process(number: i32) {
    let of = |name: &str| PathBuf::from(format!("/proc/{number}/{name}"));
    for name in ["mem", "maps", "environ", "auxv"] {
        // Some are refused only when they are read.
        let read = File::open(of(name)).and_then(|mut file| io::Read::read(&mut file, &mut [0; 1]));
        let is_memory = name == "mem";
        // Nothing is mapped at zero: that this is what it is told means that it could have read elsewhere.
        let read =
            read.or_else(|why| if is_memory && why.raw_os_error() == Some(5) { Ok(0) } else { Err(why) });
        tell(&format!("read {name} of process {number}"), read);
    }
    for name in ["root", "cwd", "exe", "fd"] {
        tell(
            &format!("list {name} of process {number}"),
            fs::read_dir(of(name))
                .map(drop)
                .or_else(|why| if name == "exe" { fs::read_link(of(name)).map(drop) } else { Err(why) }),
        );
    }
    let Some(pid) = Pid::from_raw(number) else { return };
    tell(&format!("signal process {number}"), test_kill_process(pid).map_err(io::Error::from));
    let stolen = pidfd_open(pid, PidfdFlags::empty())
        .and_then(|process| pidfd_getfd(process, 0, PidfdGetfdFlags::empty()));
    tell(&format!("take a descriptor of process {number}"), stolen.map_err(io::Error::from));
}

/// Any interface but the loopback of a network that is empty is the host's.
fn attack_network() {
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    for line in interfaces.lines().skip(2) {
        let name = line.split(':').next().unwrap_or_default().trim();
        let is_own = name == "lo" && !has_neighbours();
        tell(
            &format!("see interface {name}"),
            if is_own { Err(io::Error::other("its own")) } else { Ok(()) },
        );
    }
}

/// Whether anybody listens or talks in this network.
fn has_neighbours() -> bool {
    ["tcp", "tcp6", "udp", "udp6"].iter().any(|kind| {
        let sockets = fs::read_to_string(format!("/proc/self/net/{kind}")).unwrap_or_default();
        sockets.lines().count() > 1
    })
}

fn attack_control_groups() {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let root = if controllers.is_empty() { "unified" } else { controllers };
        for place in [format!("/sys/fs/cgroup/{root}"), "/sys/fs/cgroup".to_owned()] {
            for file in [format!("{place}/cgroup.procs"), format!("{place}{group}/cgroup.procs")] {
                if Path::new(&file).exists() {
                    tell(&format!("write {file}"), OpenOptions::new().write(true).open(&file));
                }
            }
        }
    }
}
