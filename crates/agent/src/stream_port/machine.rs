//! Answers what is asked of one machine.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, Request, header};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sheaf_hypervisor::{GuestAgent, GuestAgentError, MachineId, Monitor, QmpError};
use tokio::{
    net::{TcpStream, UdpSocket},
    sync::OwnedSemaphorePermit,
    time::timeout,
};

use super::{
    MachineMetrics, Shared, UPGRADE,
    answer::{self, Answer, Refusal},
    datagrams, guest_info,
    holders::{Device, Hold, NotYours},
    relay::relay,
    route::{Ask, Protocol},
};

/// How long a guest may take to accept a connection.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);

/// A connection that may be taken over, and the room it takes.
pub struct Line {
    upgrade: Option<OnUpgrade>,
    permit: Arc<OwnedSemaphorePermit>,
}

impl Line {
    pub fn of(request: &mut Request<Incoming>, permit: Arc<OwnedSemaphorePermit>) -> Line {
        let asked = asks_to_be_taken_over(request.headers());
        Line { upgrade: asked.then(|| hyper::upgrade::on(request)), permit }
    }
}

fn asks_to_be_taken_over(headers: &HeaderMap) -> bool {
    let says = |name, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(wanted))
    };
    says(header::CONNECTION, "upgrade") && says(header::UPGRADE, UPGRADE)
}

impl Shared {
    pub(super) async fn answer_machine(
        self: &Arc<Self>,
        machine: &MachineId,
        ask: Ask,
        line: Line,
    ) -> Result<Answer, Refusal> {
        match ask {
            Ask::Console => {
                let hold = self.take(machine, Device::Console, false).await?;
                let serial = self.hypervisor.serial_console(machine)?;
                self.hand_over(line, Some(hold), move |caller| relay(caller, serial))
            }
            Ask::Screen { preserve_session } => {
                let hold = self.take(machine, Device::Screen, preserve_session).await?;
                let monitor = self.hypervisor.tools_monitor(machine).await?;
                let screen = monitor.add_vnc_client().await?;
                drop(monitor);
                self.hand_over(line, Some(hold), move |caller| relay(caller, screen))
            }
            Ask::PortForward { address, port, protocol } => {
                if let Some(nic) = self.user_mode_nic(machine)? {
                    let guest = self.dial_user_mode(machine, nic, port, protocol).await?;
                    return self.hand_over(line, None, move |caller| relay(caller, guest));
                }
                self.must_be_its_own(machine, address)?;
                let address = SocketAddr::new(address, port);
                match protocol {
                    Protocol::Tcp => {
                        let guest = dial(address).await?;
                        self.hand_over(line, None, move |caller| relay(caller, guest))
                    }
                    Protocol::Udp => {
                        let guest = dial_datagrams(address).await?;
                        self.hand_over(line, None, move |caller| datagrams::relay(caller, guest))
                    }
                }
            }
            Ask::Pause => self.order(machine, async |monitor| monitor.pause().await).await,
            Ask::Unpause => self.order(machine, async |monitor| monitor.resume().await).await,
            Ask::Reset => self.order(machine, async |monitor| monitor.reset().await).await,
            Ask::SoftReboot => self.soft_reboot(machine).await.map(|()| answer::done()),
            Ask::Freeze { thaw_after } => self.freeze(machine, thaw_after).await.map(|()| answer::done()),
            Ask::Unfreeze => self.unfreeze(machine).await.map(|()| answer::done()),
            Ask::GuestOsInfo => {
                self.ask_guest(machine, async |guest| guest_info::guest_os_info(guest).await).await
            }
            Ask::UserList => self.ask_guest(machine, async |guest| guest_info::user_list(guest).await).await,
            Ask::FilesystemList => {
                self.ask_guest(machine, async |guest| guest_info::filesystem_list(guest).await).await
            }
            Ask::History => match self.metrics.history(machine) {
                Some(history) => Ok(answer::json_text(history)),
                None if self.hypervisor.pid(machine)?.is_some() => {
                    Ok(answer::json_text(MachineMetrics::no_history_yet()))
                }
                None => Err(Refusal::NotHere(format!("machine {machine} has no history here"))),
            },
            Ask::Screenshot { move_cursor } => {
                let monitor = self.hypervisor.tools_monitor(machine).await?;
                if move_cursor {
                    wake(&monitor).await;
                }
                Ok(answer::png(monitor.screenshot().await?))
            }
        }
    }

    async fn order(
        &self,
        machine: &MachineId,
        order: impl AsyncFnOnce(&Monitor) -> Result<(), QmpError>,
    ) -> Result<Answer, Refusal> {
        let monitor = self.hypervisor.tools_monitor(machine).await?;
        order(&monitor).await?;
        Ok(answer::done())
    }

    async fn ask_guest(
        &self,
        machine: &MachineId,
        question: impl AsyncFnOnce(&GuestAgent) -> Result<Value, GuestAgentError>,
    ) -> Result<Answer, Refusal> {
        let guest = self.hypervisor.guest_agent(machine)?;
        Ok(answer::json(&question(&guest).await?))
    }

    async fn take(&self, machine: &MachineId, device: Device, preserve: bool) -> Result<Hold, Refusal> {
        // A machine that does not run has no console to hold, and nobody to take it from.
        if self.hypervisor.pid(machine)?.is_none() {
            return Err(Refusal::NotHere(format!("machine {machine} is not running")));
        }
        self.holders.take(machine, device, preserve).await.map_err(|why| {
            Refusal::Taken(match why {
                NotYours::Taken => "somebody is connected, and the session is to be preserved".into(),
                NotYours::Overtaken => "somebody else took it over".into(),
                NotYours::Stuck => "whoever is connected does not let go".into(),
            })
        })
    }

    fn must_be_its_own(&self, machine: &MachineId, address: IpAddr) -> Result<(), Refusal> {
        if (self.addresses_of)(machine).contains(&address) {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!("{address} is no address of machine {machine}")))
    }

    /// Answers that the connection is a stream from now on, and runs it until either side ends, somebody takes
    /// over, or the port is closed.
    fn hand_over<F>(
        &self,
        line: Line,
        hold: Option<Hold>,
        run: impl FnOnce(TokioIo<hyper::upgrade::Upgraded>) -> F + Send + 'static,
    ) -> Result<Answer, Refusal>
    where
        F: Future<Output = io::Result<()>> + Send,
    {
        let Line { upgrade, permit } = line;
        let Some(upgrade) = upgrade else {
            let how = format!("this is a stream: say Connection: Upgrade and Upgrade: {UPGRADE}");
            return Err(Refusal::Malformed(how));
        };
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            let wanted = hold.as_ref().map(Hold::wanted_by_another);
            let streaming = async {
                match upgrade.await {
                    Ok(caller) => run(TokioIo::new(caller)).await.map_err(|why| why.to_string()),
                    Err(why) => Err(why.to_string()),
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = async { match wanted { Some(wanted) => wanted.await, None => std::future::pending().await } } => {}
                ended = streaming => if let Err(why) = ended {
                    tracing::debug!(%why, "a stream ended early");
                },
            }
            drop((hold, permit));
        });
        Ok(answer::handed_over())
    }
}

/// Moves the pointer there and back. A machine without one has a screen that nothing wakes.
async fn wake(monitor: &Monitor) {
    for step in [1, -1] {
        let moved = |axis| json!({"type": "rel", "data": {"axis": axis, "value": step}});
        let events = json!({"events": [moved("x"), moved("y")]});
        if let Err(why) = monitor.execute("input-send-event", events).await {
            return tracing::debug!(%why, "the pointer could not be moved");
        }
    }
}

pub(super) async fn dial(address: SocketAddr) -> Result<TcpStream, Refusal> {
    let stream = match timeout(DIAL_PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(unreachable(address, &why)),
        Err(_) => return Err(unreachable(address, &io::Error::from(io::ErrorKind::TimedOut))),
    };
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

async fn dial_datagrams(address: SocketAddr) -> Result<UdpSocket, Refusal> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => ([0; 4], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let connected = async {
        let socket = UdpSocket::bind(any).await?;
        socket.connect(address).await?;
        Ok::<_, io::Error>(socket)
    };
    connected.await.map_err(|why| unreachable(address, &why))
}

fn unreachable(address: SocketAddr, why: &io::Error) -> Refusal {
    Refusal::Unreachable(format!("dialing VM: {address}: {why}"))
}
