//! The way into a guest behind QEMU's user-mode network, where no address of the guest can be dialled.
//!
//! QEMU opens a port of this host's loopback for as long as it takes to connect once. Datagrams have no moment
//! at which they are connected, so they are not carried.

use std::net::{Ipv4Addr, SocketAddr};

use sheaf_hypervisor::{
    MachineId, QmpError,
    machine::{Backend, Nic},
};
use tokio::net::{TcpListener, TcpStream};

use super::{Shared, answer::Refusal, machine::dial, route::Protocol};

/// Somebody else may take a port between its choice and its use.
const TRIES: usize = 3;

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
        nic: &Nic,
        port: u16,
        protocol: Protocol,
    ) -> Result<TcpStream, Refusal> {
        if protocol != Protocol::Tcp {
            let why = format!("machine {machine} is behind user-mode networking, which carries TCP only");
            return Err(Refusal::Unreachable(why));
        }
        let monitor = self.hypervisor.tools_monitor(machine).await?;
        let mut tries = 1;
        let host = loop {
            let host = free_port().await.map_err(|why| Refusal::Failed(why.to_string()))?;
            match monitor.open_user_mode_port(nic, host, port).await {
                Ok(()) => break host,
                Err(QmpError::Refused { .. }) if tries < TRIES => tries += 1,
                Err(why) => return Err(why.into()),
            }
        };
        let dialled = dial(SocketAddr::from((Ipv4Addr::LOCALHOST, host))).await;
        monitor.close_user_mode_port(nic, host).await?;
        dialled
    }
}

async fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}
