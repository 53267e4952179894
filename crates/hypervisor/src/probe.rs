//! A QEMU that is started only to be asked, and is gone when its handle is dropped.
//!
//! It runs with the same sandbox and, when we are root, under an unprivileged id, because
//! the question is always what a machine's QEMU could do, not what we could.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::Stdio,
    time::Duration,
};

use command_fds::{CommandFdExt, FdMapping};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio::{
    io::AsyncReadExt,
    net::UnixStream,
    process::{Child, Command},
    sync::watch,
    time::timeout,
};

use crate::{
    qmp::{Monitor, QmpError},
    user_ids::Identity,
};

const PATIENCE: Duration = Duration::from_secs(20);
const MONITOR: u32 = 3;
/// Where the firmware writes what it is doing.
const DEBUG: u32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot start {program}")]
    Start {
        program: String,
        #[source]
        source: io::Error,
    },
    #[error("QEMU ended: {said}")]
    Ended { said: String },
    #[error("QEMU did not answer")]
    Monitor(#[source] QmpError),
}

const SETPRIV: &str = "/usr/bin/setpriv";

pub struct Probe {
    pub monitor: Monitor,
    /// Whether the firmware of the guest said anything, if there is a guest.
    spoke: watch::Receiver<bool>,
    _child: Child,
}

/// Runs a program that ends when we do, however that is: what is only asked something must not outlive the asking. The
/// kernel sees to it, told by a tool that every Debian has; without the tool a probe of a killed process stays.
fn mortal(program: &Path) -> std::process::Command {
    if !Path::new(SETPRIV).is_file() {
        return std::process::Command::new(program);
    }
    let mut command = std::process::Command::new(SETPRIV);
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

impl Probe {
    pub async fn start(
        program: &Path,
        identity: Option<Identity>,
        arguments: &[&str],
    ) -> Result<Probe, ProbeError> {
        let failed = |source| ProbeError::Start { program: program.display().to_string(), source };
        let (monitor, their_monitor) = pair().map_err(failed)?;
        let (debug, their_debug) = pair().map_err(failed)?;
        let mut command = mortal(program);
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"])
            .args(["-chardev", &format!("socket,id=monitor,fd={MONITOR}")])
            .args(["-mon", "chardev=monitor,mode=control"])
            .args(["-chardev", &format!("socket,id=debug,fd={DEBUG}")])
            .args(arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some(Identity { uid, gid }) = identity {
            command.gid(gid).uid(uid);
        }
        let mappings = [(their_monitor, MONITOR), (their_debug, DEBUG)];
        command
            .fd_mappings(
                mappings.map(|(parent_fd, number)| FdMapping { parent_fd, child_fd: number as i32 }).into(),
            )
            .map_err(|why| failed(io::Error::new(io::ErrorKind::InvalidInput, why)))?;
        let mut command = Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().map_err(failed)?;
        drop(command);

        // Read from the beginning and to the end: QEMU stands still while nobody does.
        let (speak, spoke) = watch::channel(false);
        tokio::spawn(listen(stream(debug).map_err(failed)?, speak));
        let opened = async {
            let monitor = Monitor::open_within(stream(monitor).map_err(QmpError::Io)?, PATIENCE).await?;
            monitor.status().await?;
            Ok(monitor)
        };
        match opened.await {
            Ok(monitor) => Ok(Probe { monitor, spoke, _child: child }),
            Err(why) => {
                let mut said = String::new();
                if let Some(errors) = child.stderr.take() {
                    let _ =
                        timeout(Duration::from_secs(2), errors.take(4096).read_to_string(&mut said)).await;
                }
                let said = said.trim().to_owned();
                Err(if said.is_empty() { ProbeError::Monitor(why) } else { ProbeError::Ended { said } })
            }
        }
    }

    /// Whether the guest's firmware says something within so long.
    pub async fn speaks_within(&self, patience: Duration) -> bool {
        let mut spoke = self.spoke.clone();
        timeout(patience, spoke.wait_for(|spoke| *spoke)).await.is_ok_and(|said| said.is_ok())
    }
}

async fn listen(mut debug: UnixStream, speak: watch::Sender<bool>) {
    let mut words = [0; 4096];
    while debug.read(&mut words).await.is_ok_and(|number| number > 0) {
        speak.send_replace(true);
    }
}

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn stream(socket: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
