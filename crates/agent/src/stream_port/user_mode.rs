//! The way into a guest behind QEMU's user-mode network, where no address of the guest can be dialled.
//!
//! QEMU opens a port of this host's loopback for as long as it takes to connect once; who looks for it in that
//! moment, on this host, could connect too. Whoever asked may leave in the middle: the port is closed all the
//! same. Only if the agent dies in that second it stays until QEMU ends.
//!
//! Datagrams have no moment at which they are connected, so they are not carried.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use sheaf_hypervisor::{
    Hypervisor, MachineId, QmpError,
    machine::{Backend, Nic},
};
use tokio::net::{TcpListener, TcpStream};

use super::{Shared, answer::Refusal, machine::dial, route::Protocol};

/// Somebody else may take a port between its choice and its use.
const TRIES: usize = 3;
/// The kernel says that we are connected before QEMU has taken the connection, and closing the port before that would
/// break it.
const UNTIL_TAKEN: Duration = Duration::from_secs(1);

impl Shared {
    /// The NIC that everything goes through, if this machine's guest is behind user-mode networking.
    pub(super) fn user_mode_nic(&self, machine: &MachineId) -> Result<Option<Nic>, Refusal> {
        let definition = self.hypervisor.look(machine.clone())?.machine;
        let first = definition.and_then(|definition| definition.nics.into_iter().next());
        Ok(first.filter(|nic| matches!(nic.backend, Backend::User { .. })))
    }

    pub(super) async fn dial_user_mode(
        &self,
        machine: &MachineId,
        nic: Nic,
        port: u16,
        protocol: Protocol,
    ) -> Result<TcpStream, Refusal> {
        if protocol != Protocol::Tcp {
            let why = format!("machine {machine} is behind user-mode networking, which carries TCP only");
            return Err(Refusal::Unreachable(why));
        }
        let (hypervisor, machine) = (self.hypervisor.clone(), machine.clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            let host = match open(&hypervisor, &machine, &nic, port).await {
                Ok(host) => host,
                Err(why) => return drop(tell.send(Err(why))),
            };
            _ = tell.send(dial(SocketAddr::from((Ipv4Addr::LOCALHOST, host))).await);
            tokio::time::sleep(UNTIL_TAKEN).await;
            if let Err(why) = close(&hypervisor, &machine, &nic, host).await {
                tracing::warn!(%machine, host, %why, "a port into the machine could not be closed");
            }
        });
        told.await.unwrap_or_else(|_| Err(Refusal::Failed("the port is being closed".into())))
    }
}

/// Opens a port of this host that leads to one of the guest's; answers which.
async fn open(
    hypervisor: &Arc<Hypervisor>,
    machine: &MachineId,
    nic: &Nic,
    port: u16,
) -> Result<u16, Refusal> {
    let monitor = hypervisor.tools_monitor(machine).await?;
    let mut tries = 1;
    loop {
        let host = free_port().await.map_err(|why| Refusal::Failed(why.to_string()))?;
        match monitor.open_user_mode_port(nic, host, port).await {
            Ok(()) => return Ok(host),
            Err(QmpError::Refused { .. }) if tries < TRIES => tries += 1,
            Err(why) => return Err(why.into()),
        }
    }
}

async fn close(
    hypervisor: &Arc<Hypervisor>,
    machine: &MachineId,
    nic: &Nic,
    host: u16,
) -> Result<(), Refusal> {
    let monitor = hypervisor.tools_monitor(machine).await?;
    Ok(monitor.close_user_mode_port(nic, host).await?)
}

async fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}
