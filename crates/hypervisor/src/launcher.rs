//! Between us and QEMU: a process that becomes QEMU.
//!
//! What must happen in the new process before it is QEMU (leave our session, note its
//! number, enter its cgroup, leave the host's network, give up every privilege) happens here, in ordinary code of our
//! own binary, which `sheaf` calls under a hidden name. It then turns into QEMU in place,
//! so the number it noted stays true, and whatever kills the one who spawned it in the
//! meantime changes nothing: from its first instruction on it holds the machine's lock.
//!
//! Its standard input is a socket (see [`crate::handover`]) with a [`LaunchOrder`] in a file, which is not in the list of
//! processes for everyone to read, and every descriptor that QEMU is to have.

use std::{
    fs::{self, File},
    io::{self, Seek},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use command_fds::{CommandFdExt, FdMapping};
use nix::sched::{CloneFlags, unshare};
use rustix::{
    fs::Mode,
    io::Errno,
    process::{Resource, Rlimit},
};
use serde::{Deserialize, Serialize};

use crate::{handover, process::ProcessRecord, user_ids::Identity};

/// Everything the launcher does, in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchOrder {
    /// Where it notes its number; written whole or not at all.
    pub process_file: PathBuf,
    /// Files in which to write `0` to enter a cgroup.
    pub cgroups: Vec<PathBuf>,
    /// Whether it gets a network of its own, with nothing in it: what a machine needs of the host's is handed to it open.
    pub alone: bool,
    /// Whom to become; none to stay who we are.
    pub identity: Option<Identity>,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// The number of each descriptor that comes with the order, in the order in which they come.
    pub numbers: Vec<u32>,
}

#[derive(Debug, thiserror::Error)]
enum LaunchFailure {
    #[error("cannot take over what was handed over: {0}")]
    Handover(#[source] io::Error),
    #[error("the node that starts this machine is of another version than its binary: restart the node")]
    AnotherVersion,
    #[error("cannot read the order: {0}")]
    Order(#[source] serde_json::Error),
    #[error("{came} descriptors came where {expected} were announced")]
    Descriptors { came: usize, expected: usize },
    #[error("cannot leave the session: {0}")]
    Session(#[source] io::Error),
    #[error("cannot note the process in {file}: {source}")]
    ProcessFile { file: PathBuf, source: io::Error },
    #[error("cannot forbid new privileges: {0}")]
    NoNewPrivileges(#[source] io::Error),
    #[error("cannot become {program}: {source}")]
    Exec { program: PathBuf, source: io::Error },
}

/// Turns this process into QEMU. Returns only if that failed, having said why on standard
/// error, which is the machine's log.
pub fn run() -> ExitCode {
    let failure = launch();
    // Not `tracing`: nobody has set it up in this process, and the log is this stream.
    let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("launcher: {failure}\n"));
    ExitCode::FAILURE
}

fn launch() -> LaunchFailure {
    let (order, descriptors) = match prepare() {
        Ok(prepared) => prepared,
        Err(failure) => return failure,
    };
    let mut command = Command::new(&order.program);
    command.args(&order.arguments).env_clear().current_dir("/").stdin(Stdio::null());
    let mappings = order.numbers.iter().zip(descriptors).map(|(number, parent_fd)| FdMapping {
        parent_fd,
        child_fd: i32::try_from(*number).unwrap_or(i32::MAX),
    });
    if let Err(why) = command.fd_mappings(mappings.collect()) {
        return LaunchFailure::Handover(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if let Some(Identity { uid, gid }) = order.identity {
        // Also drops every supplementary group.
        command.gid(gid).uid(uid);
    }
    let source = command.exec();
    LaunchFailure::Exec { program: order.program, source }
}

fn prepare() -> Result<(LaunchOrder, Vec<OwnedFd>), LaunchFailure> {
    let (order, descriptors) = take_over()?;
    rustix::process::setsid().map_err(|why| LaunchFailure::Session(why.into()))?;
    rustix::process::umask(Mode::from_raw_mode(0o077));
    note_process(&order.process_file)
        .map_err(|source| LaunchFailure::ProcessFile { file: order.process_file.clone(), source })?;
    for file in &order.cgroups {
        // A machine without its limits is better than no machine; the log says so.
        if let Err(why) = fs::write(file, "0") {
            let _ = io::Write::write_fmt(
                &mut io::stderr(),
                format_args!("launcher: not limited by {}: {why}\n", file.display()),
            );
        }
    }
    if order.alone
        && let Err(why) = unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC)
    {
        let _ = io::Write::write_fmt(
            &mut io::stderr(),
            format_args!("launcher: not kept from the host's network: {why}\n"),
        );
    }
    // A core dump would put the guest's memory on the host's disk.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = rustix::process::setrlimit(Resource::Core, none);
    // The agent may be protected from the kernel's choice of whom to kill; its guests must not inherit that.
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    rustix::thread::set_no_new_privs(true).map_err(|why| LaunchFailure::NoNewPrivileges(why.into()))?;
    Ok((order, descriptors))
}

/// A node of another version hands over in another way.
fn misunderstood(why: io::Error) -> LaunchFailure {
    match why.raw_os_error() == Some(Errno::NOTSOCK.raw_os_error()) {
        true => LaunchFailure::AnotherVersion,
        false => LaunchFailure::Handover(why),
    }
}

fn take_over() -> Result<(LaunchOrder, Vec<OwnedFd>), LaunchFailure> {
    let mut all = handover::take(io::stdin()).map_err(misunderstood)?.into_iter();
    let mut order = all.next().map(File::from).ok_or(LaunchFailure::Descriptors { came: 0, expected: 1 })?;
    order.rewind().map_err(LaunchFailure::Handover)?;
    let order: LaunchOrder =
        serde_json::from_reader(io::BufReader::new(order)).map_err(LaunchFailure::Order)?;
    let descriptors: Vec<OwnedFd> = all.collect();
    let (came, expected) = (descriptors.len(), order.numbers.len());
    if came != expected {
        return Err(LaunchFailure::Descriptors { came, expected });
    }
    Ok((order, descriptors))
}

fn note_process(file: &Path) -> io::Result<()> {
    let record = ProcessRecord::own()?;
    let text = serde_json::to_vec(&record)?;
    let unfinished = file.with_extension("new");
    fs::write(&unfinished, text)?;
    fs::rename(unfinished, file)
}
