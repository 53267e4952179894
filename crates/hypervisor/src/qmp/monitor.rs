//! What one can ask of a running QEMU, one method each.
//!
//! Methods neither wait for a guest to obey nor retry: pressing the power button returns
//! when the button is pressed. Every one ends within [`PATIENCE`].

use std::{
    fs::File,
    io::{self, Read, Seek},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    fs::{MemfdFlags, Mode, OFlags},
    net::{AddressFamily, SocketFlags, SocketType},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{net::UnixStream, sync::broadcast};

use crate::{command_line, machine::Nic};

use super::{
    Connection, Event, Plugged, QmpError,
    numbers::{self, CpuThread, DiskNumbers, MemoryNumbers},
    plugged::Answers,
};

/// Longer than QEMU takes for anything here on a busy host; shorter than anybody waits.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Where everything with an id of ours is in QEMU's object tree.
const DEVICES: &str = "/machine/peripheral";
/// The balloon's place in it.
const BALLOON: &str = "/machine/peripheral/balloon";

/// The place of the memory that comes and goes.
const MEMORY: &str = "/machine/peripheral/memory";

pub struct Monitor {
    connection: Connection,
}

/// Memory beside what a guest began with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddedMemory {
    pub requested_bytes: u64,
    pub bytes: u64,
}

/// What a machine is doing, in QEMU's words (`RunState`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// Not started yet ([`crate::Machine::start_paused`]).
    Prelaunch,
    Running,
    Paused,
    /// The guest powered itself off. The process waits to be asked, then told to quit.
    Shutdown,
    GuestPanicked,
    /// A disk failed in a way that stopping the guest is the answer to.
    IoError,
    InternalError,
    Suspended,
    /// Migrations and the like, by QEMU's own name.
    #[serde(untagged)]
    Other(String),
}

impl Monitor {
    pub async fn open(stream: UnixStream) -> Result<Monitor, QmpError> {
        Ok(Monitor { connection: Connection::open(stream, PATIENCE).await? })
    }

    pub async fn open_within(stream: UnixStream, patience: Duration) -> Result<Monitor, QmpError> {
        Ok(Monitor { connection: Connection::open(stream, patience).await? })
    }

    /// What happens from now on. Ask for the state after listening, not before, and
    /// nothing falls in between.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.connection.events()
    }

    /// Returns when QEMU is gone or has closed the connection.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }

    /// Any command, for what has no method here.
    pub async fn execute(&self, command: &'static str, arguments: Value) -> Result<Value, QmpError> {
        self.connection.execute(command, arguments, &[], PATIENCE).await
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        command: &'static str,
        arguments: Value,
    ) -> Result<T, QmpError> {
        let answer = self.execute(command, arguments).await?;
        serde_json::from_value(answer).map_err(|source| QmpError::NotUnderstood { command, source })
    }

    pub async fn status(&self) -> Result<RunState, QmpError> {
        #[derive(Deserialize)]
        struct Status {
            status: RunState,
        }
        Ok(self.ask::<Status>("query-status", Value::Null).await?.status)
    }

    /// Lets the guest run: after a pause, or for the first time.
    pub async fn resume(&self) -> Result<(), QmpError> {
        self.execute("cont", Value::Null).await.map(drop)
    }

    pub async fn pause(&self) -> Result<(), QmpError> {
        self.execute("stop", Value::Null).await.map(drop)
    }

    /// Presses the power button. What the guest makes of it is its own affair.
    pub async fn power_button(&self) -> Result<(), QmpError> {
        self.execute("system_powerdown", Value::Null).await.map(drop)
    }

    /// Presses the reset button, which a guest cannot ignore.
    pub async fn reset(&self) -> Result<(), QmpError> {
        self.execute("system_reset", Value::Null).await.map(drop)
    }

    /// Ends QEMU in good order: disks are flushed and closed. A connection that ends
    /// before the answer is the answer.
    pub async fn quit(&self) -> Result<(), QmpError> {
        match self.execute("quit", Value::Null).await {
            Ok(_) | Err(QmpError::Closed) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// How much memory the guest has left to itself, in bytes.
    pub async fn balloon_bytes(&self) -> Result<u64, QmpError> {
        #[derive(Deserialize)]
        struct Balloon {
            actual: u64,
        }
        Ok(self.ask::<Balloon>("query-balloon", Value::Null).await?.actual)
    }

    /// Asks the guest to leave itself so many bytes.
    pub async fn set_balloon_bytes(&self, bytes: u64) -> Result<(), QmpError> {
        self.execute("balloon", json!({ "value": bytes })).await.map(drop)
    }

    /// How often the guest is asked for its memory numbers; 0 for never, as at start.
    pub async fn poll_memory(&self, every_secs: u64) -> Result<(), QmpError> {
        let interval =
            json!({ "path": BALLOON, "property": "guest-stats-polling-interval", "value": every_secs });
        self.execute("qom-set", interval).await.map(drop)
    }

    /// What the guest last said of its memory; all empty if it never did.
    pub async fn memory_numbers(&self) -> Result<MemoryNumbers, QmpError> {
        #[derive(Deserialize)]
        struct Statistics {
            stats: serde_json::Map<String, Value>,
        }
        let asked: Statistics =
            self.ask("qom-get", json!({ "path": BALLOON, "property": "guest-stats" })).await?;
        // What the guest does not report QEMU gives as the greatest number there is.
        let reported =
            asked.stats.into_iter().filter(|(_, value)| value.as_u64().is_some_and(|n| n != u64::MAX));
        serde_json::from_value(Value::Object(reported.collect()))
            .map_err(|source| QmpError::NotUnderstood { command: "qom-get", source })
    }

    pub async fn disk_numbers(&self) -> Result<Vec<DiskNumbers>, QmpError> {
        Ok(numbers::disks(&self.execute("query-blockstats", Value::Null).await?))
    }

    pub async fn cpu_threads(&self) -> Result<Vec<CpuThread>, QmpError> {
        self.ask("query-cpus-fast", Value::Null).await
    }

    /// Whether something in the guest holds the guest agent's channel open.
    pub async fn guest_agent_connected(&self) -> Result<bool, QmpError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Channel {
            label: String,
            frontend_open: bool,
        }
        let channels: Vec<Channel> = self.ask("query-chardev", Value::Null).await?;
        Ok(channels.iter().any(|channel| channel.label == "guest-agent" && channel.frontend_open))
    }

    /// Plugs or pulls the cable of a NIC, by its device's id.
    pub async fn set_link(&self, device: &str, up: bool) -> Result<(), QmpError> {
        self.execute("set_link", json!({ "name": device, "up": up })).await.map(drop)
    }

    /// Opens a port of this host, on its loopback, that leads to a TCP port of a guest behind a user-mode NIC.
    /// Whoever connects is connected; the port stays until it is closed.
    pub async fn open_user_mode_port(&self, nic: &Nic, host: u16, guest: u16) -> Result<(), QmpError> {
        let netdev = command_line::nic::backend_id(nic);
        self.hand_typed(format!("hostfwd_add {netdev} tcp:127.0.0.1:{host}-:{guest}"), "").await
    }

    /// Closes it again. Who came through it stays connected.
    pub async fn close_user_mode_port(&self, nic: &Nic, host: u16) -> Result<(), QmpError> {
        let netdev = command_line::nic::backend_id(nic);
        let expected = format!("host forwarding rule for tcp:127.0.0.1:{host} removed");
        self.hand_typed(format!("hostfwd_remove {netdev} tcp:127.0.0.1:{host}"), &expected).await
    }

    /// A command that QEMU has for people only. It answers in prose, and complains in the same way.
    async fn hand_typed(&self, line: String, expected: &str) -> Result<(), QmpError> {
        let said: String =
            self.ask("human-monitor-command", json!({ "command-line": line.as_str() })).await?;
        match said.trim() == expected {
            true => Ok(()),
            false => Err(QmpError::Refused {
                command: line,
                class: "GenericError".into(),
                desc: said.trim().to_owned(),
            }),
        }
    }

    /// A new viewer of the screen: returns the end on which it speaks VNC (RFB). Who may look was decided
    /// before; QEMU asks for no password.
    pub async fn add_vnc_client(&self) -> Result<UnixStream, QmpError> {
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(|why| QmpError::Io(why.into()))?;
        let name = json!({ "fdname": "vnc" });
        self.connection.execute("getfd", name, &[theirs.as_fd()], PATIENCE).await?;
        let client = json!({ "protocol": "vnc", "fdname": "vnc", "skipauth": true });
        self.execute("add_client", client).await?;
        into_stream(ours).map_err(QmpError::Io)
    }

    /// The screen as a PNG image.
    pub async fn screenshot(&self) -> Result<Vec<u8>, QmpError> {
        let (mut image, writable) = memory_file().map_err(QmpError::Io)?;
        let set = self.add_descriptor(writable.as_fd()).await?;
        let order = json!({ "filename": format!("/dev/fdset/{set}"), "format": "png" });
        let taken = self.execute("screendump", order).await;
        self.remove_descriptors(set).await?;
        taken?;
        let mut bytes = Vec::new();
        // Bounded: the writer is not trusted, and no screen is larger than this.
        image.rewind().and_then(|()| image.take(64 << 20).read_to_end(&mut bytes)).map_err(QmpError::Io)?;
        Ok(bytes)
    }

    /// Gives QEMU a descriptor, to be opened as `/dev/fdset/<the number returned>`.
    pub async fn add_descriptor(&self, descriptor: BorrowedFd<'_>) -> Result<u64, QmpError> {
        self.add_fd(descriptor, Value::Null).await
    }

    /// The same, with what QEMU tells when it is asked about the set.
    pub async fn add_told_descriptor(&self, descriptor: BorrowedFd<'_>, told: &str) -> Result<u64, QmpError> {
        self.add_fd(descriptor, json!({ "opaque": told })).await
    }

    async fn add_fd(&self, descriptor: BorrowedFd<'_>, arguments: Value) -> Result<u64, QmpError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        struct Added {
            fdset_id: u64,
        }
        let answer = self.connection.execute("add-fd", arguments, &[descriptor], PATIENCE).await?;
        let added: Added = serde_json::from_value(answer)
            .map_err(|source| QmpError::NotUnderstood { command: "add-fd", source })?;
        Ok(added.fdset_id)
    }

    /// Takes back what was given. What QEMU has opened from it stays open.
    pub async fn remove_descriptors(&self, set: u64) -> Result<(), QmpError> {
        self.execute("remove-fd", json!({ "fdset-id": set })).await.map(drop)
    }

    pub async fn add_block_node(&self, node: Value) -> Result<(), QmpError> {
        self.execute("blockdev-add", node).await.map(drop)
    }

    pub async fn remove_block_node(&self, name: &str) -> Result<(), QmpError> {
        self.execute("blockdev-del", json!({ "node-name": name })).await.map(drop)
    }

    pub async fn add_device(&self, device: Value) -> Result<(), QmpError> {
        self.execute("device_add", device).await.map(drop)
    }

    /// What is plugged in.
    pub async fn plugged(&self) -> Result<Plugged, QmpError> {
        let answers = Answers {
            devices: self.execute("qom-list", json!({ "path": DEVICES })).await?,
            block: self.execute("query-block", Value::Null).await?,
            nodes: self.execute("query-named-block-nodes", json!({ "flat": true })).await?,
            sets: self.execute("query-fdsets", Value::Null).await?,
            network: self.ask("human-monitor-command", json!({ "command-line": "info network" })).await?,
        };
        Ok(Plugged::read(&answers))
    }

    /// The PCI ports that something is behind.
    pub async fn taken_ports(&self) -> Result<Vec<String>, QmpError> {
        let devices = self.execute("qom-list", json!({ "path": DEVICES })).await?;
        let mut taken = Vec::new();
        for device in devices.as_array().into_iter().flatten() {
            let id = device["name"].as_str().unwrap_or_default();
            if !id.starts_with("disk-") && !id.starts_with("nic-") {
                continue;
            }
            let bus = json!({ "path": format!("{DEVICES}/{id}"), "property": "parent_bus" });
            match self.execute("qom-get", bus).await {
                Ok(bus) => {
                    taken.extend(bus.as_str().and_then(|bus| bus.rsplit('/').next()).map(str::to_owned))
                }
                // It went since it was listed.
                Err(QmpError::Refused { .. }) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(taken)
    }

    /// The processors that are there and those that could be, in QEMU's own words.
    pub async fn hotpluggable_processors(&self) -> Result<Value, QmpError> {
        self.execute("query-hotpluggable-cpus", Value::Null).await
    }

    /// How much memory beside what it began with the guest was asked to have, and has, in bytes. None of a machine that
    /// has no room for more.
    pub async fn added_memory(&self) -> Result<Option<AddedMemory>, QmpError> {
        let devices = self.execute("qom-list", json!({ "path": DEVICES })).await?;
        if !devices.as_array().into_iter().flatten().any(|device| device["name"] == "memory") {
            return Ok(None);
        }
        let of = |property: &str| json!({ "path": MEMORY, "property": property });
        Ok(Some(AddedMemory {
            requested_bytes: self.ask("qom-get", of("requested-size")).await?,
            bytes: self.ask("qom-get", of("size")).await?,
        }))
    }

    /// Asks the guest to have so many bytes beside what it began with.
    pub async fn ask_for_memory(&self, bytes: u64) -> Result<(), QmpError> {
        let request = json!({ "path": MEMORY, "property": "requested-size", "value": bytes });
        self.execute("qom-set", request).await.map(drop)
    }

    /// Opens the tray of a drive. Without `force` a guest that holds it is asked, and opens it itself.
    pub async fn open_tray(&self, device: &str, force: bool) -> Result<(), QmpError> {
        self.execute("blockdev-open-tray", json!({ "id": device, "force": force })).await.map(drop)
    }

    pub async fn close_tray(&self, device: &str) -> Result<(), QmpError> {
        self.execute("blockdev-close-tray", json!({ "id": device })).await.map(drop)
    }

    /// Takes the disc out of an open tray. The node stays.
    pub async fn remove_medium(&self, device: &str) -> Result<(), QmpError> {
        self.execute("blockdev-remove-medium", json!({ "id": device })).await.map(drop)
    }

    /// Puts a disc into an open and empty tray.
    pub async fn insert_medium(&self, device: &str, node: &str) -> Result<(), QmpError> {
        self.execute("blockdev-insert-medium", json!({ "id": device, "node-name": node })).await.map(drop)
    }

    pub async fn resize_node(&self, node: &str, bytes: u64) -> Result<(), QmpError> {
        self.execute("block_resize", json!({ "node-name": node, "size": bytes })).await.map(drop)
    }

    /// Gives QEMU a descriptor under a name, for one command that takes it. A later one of that name takes its place.
    pub async fn hand_over(&self, name: &str, descriptor: BorrowedFd<'_>) -> Result<(), QmpError> {
        let name = json!({ "fdname": name });
        self.connection.execute("getfd", name, &[descriptor], PATIENCE).await.map(drop)
    }

    pub async fn add_backend(&self, backend: Value) -> Result<(), QmpError> {
        self.execute("netdev_add", backend).await.map(drop)
    }

    pub async fn remove_backend(&self, id: &str) -> Result<(), QmpError> {
        self.execute("netdev_del", json!({ "id": id })).await.map(drop)
    }

    /// Asks the guest to let go of a device. It is gone when `DEVICE_DELETED` says so.
    pub async fn remove_device(&self, id: &str) -> Result<(), QmpError> {
        self.execute("device_del", json!({ "id": id })).await.map(drop)
    }
}

/// A file in memory and a second handle on it that can only write: QEMU takes a
/// descriptor only if it was opened the way it would have opened the file.
fn memory_file() -> io::Result<(File, OwnedFd)> {
    let file = rustix::fs::memfd_create("screenshot", MemfdFlags::CLOEXEC)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let writable = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((file.into(), writable))
}

fn into_stream(socket: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
