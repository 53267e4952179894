//! Which NICs of this host's machines are plugged in, kept for the network as one set.
//!
//! Machines come and go one by one while the rules of the network are swapped as a whole. So
//! each change is written into a book, and whoever comes to apply theirs applies the whole
//! book: fifty machines that start together cost a few swaps, not fifty.
//!
//! The book is not kept: at a start it is filled from the notes of the machines that are there,
//! before the first swap, so that no running guest is cut off.

use std::{collections::BTreeMap, net::Ipv4Addr, os::fd::OwnedFd, sync::Arc};

use parking_lot::Mutex;
use sheaf_hypervisor::MachineId;
use sheaf_network::{InterfaceName, Network, NetworkError, NicId, Port, TapError, WhyRefused};

/// One machine's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugged {
    pub ports: Vec<Port>,
    /// The name by which others on the network find it, without the domain.
    pub name: String,
}

#[derive(Debug, Default)]
struct Book {
    entries: BTreeMap<MachineId, Plugged>,
    /// Counts changes.
    edition: u64,
}

#[derive(Debug)]
struct Applied {
    edition: u64,
    /// Whether the host was brought into shape since this process began.
    ensured: bool,
    refused: BTreeMap<NicId, WhyRefused>,
}

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("the network of this node could not be brought into shape")]
    Network(#[from] NetworkError),
    #[error("{id} cannot be plugged in: {why}")]
    Refused { id: NicId, why: WhyRefused },
    #[error("{0}")]
    Tap(#[from] TapError),
}

#[derive(Debug)]
pub struct Ports {
    network: Arc<Network>,
    book: Mutex<Book>,
    applied: tokio::sync::Mutex<Applied>,
}

impl Ports {
    pub fn new(network: Arc<Network>) -> Ports {
        let applied = Applied { edition: 0, ensured: false, refused: BTreeMap::new() };
        Ports { network, book: Mutex::default(), applied: tokio::sync::Mutex::new(applied) }
    }

    /// Enters a machine that was found running. Nothing is touched before somebody plugs in.
    pub fn found(&self, id: &MachineId, plugged: Plugged) {
        self.enter(id, Some(plugged));
    }

    /// Plugs a machine's NICs in: from here on its taps pass what they may.
    pub async fn plug(&self, id: &MachineId, plugged: Plugged) -> Result<(), PortError> {
        let edition = self.enter(id, Some(plugged.clone()));
        let applied = self.apply(edition).await?;
        let refused = plugged.ports.iter().find_map(|port| applied.refused.get_key_value(&port.id));
        match refused {
            Some((id, why)) => Err(PortError::Refused { id: id.clone(), why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Forgets a machine's NICs and removes its taps.
    pub async fn unplug(&self, id: &MachineId) -> Result<(), PortError> {
        for tap in self.network.found_taps().await? {
            if tap.id.as_ref().is_some_and(|nic| nic.machine == id.as_str()) {
                self.network.remove_tap(&tap.name).await?;
            }
        }
        if self.book.lock().entries.contains_key(id) {
            let edition = self.enter(id, None);
            drop(self.apply(edition).await?);
        }
        Ok(())
    }

    /// Removes the tap of one NIC, whether or not it is there.
    pub async fn remove_tap(&self, id: &MachineId, nic: u16) -> Result<(), PortError> {
        let nic = NicId { machine: id.to_string(), nic };
        for tap in self.network.found_taps().await? {
            if tap.id.as_ref() == Some(&nic) {
                self.network.remove_tap(&tap.name).await?;
            }
        }
        Ok(())
    }

    pub async fn open_tap(&self, port: &Port) -> Result<OwnedFd, PortError> {
        Ok(self.network.open_tap(port).await?)
    }

    /// What the tap of a machine's NIC is called, whether or not it is there.
    pub fn tap_of(&self, id: &MachineId, nic: u16) -> InterfaceName {
        self.network.tap_name(&NicId { machine: id.to_string(), nic })
    }

    /// The addresses that a machine's NICs have.
    pub fn addresses_of(&self, id: &MachineId) -> Vec<Ipv4Addr> {
        let book = self.book.lock();
        let ports = book.entries.get(id).map(|plugged| plugged.ports.as_slice()).unwrap_or_default();
        ports.iter().flat_map(|port| port.addresses.iter().copied()).collect()
    }

    /// The addresses of all machines here.
    pub fn all_addresses(&self) -> Vec<Ipv4Addr> {
        let book = self.book.lock();
        let ports = book.entries.values().flat_map(|plugged| &plugged.ports);
        ports.flat_map(|port| port.addresses.iter().copied()).collect()
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Brings the host's network into shape again if there is anybody on it, and removes taps that are
    /// nobody's. To be called by the clock.
    pub async fn mend(&self) -> Result<(), PortError> {
        let edition = {
            let book = self.book.lock();
            if book.entries.is_empty() {
                return Ok(());
            }
            book.edition
        };
        drop(self.apply(edition).await?);
        self.network.ensure().await?;
        for tap in self.network.found_taps().await? {
            let is_known = tap.id.as_ref().is_some_and(|nic| {
                let machine = nic.machine.parse::<MachineId>().ok();
                let book = self.book.lock();
                let entry = machine.and_then(|machine| book.entries.get(&machine));
                entry.is_some_and(|entry| entry.ports.iter().any(|port| port.id == *nic))
            });
            if !is_known {
                self.network.remove_tap(&tap.name).await?;
            }
        }
        Ok(())
    }

    /// Answers the guests' questions for addresses and names for as long as it is polled.
    pub async fn serve(&self) {
        let (dhcp, dns) = (self.network.serve_dhcp(), self.network.serve_dns());
        tokio::select! {
            biased;
            never = dhcp => match never {},
            never = dns => match never {},
        }
    }

    fn enter(&self, id: &MachineId, plugged: Option<Plugged>) -> u64 {
        let mut book = self.book.lock();
        let before = match &plugged {
            Some(plugged) => book.entries.insert(id.clone(), plugged.clone()),
            None => book.entries.remove(id),
        };
        if before != plugged {
            book.edition += 1;
        }
        book.edition
    }

    /// Has the network be as the book says, in this edition or a later one.
    async fn apply(&self, edition: u64) -> Result<tokio::sync::MutexGuard<'_, Applied>, PortError> {
        let mut applied = self.applied.lock().await;
        if applied.ensured && applied.edition >= edition {
            return Ok(applied);
        }
        let (edition, entries) = {
            let book = self.book.lock();
            (book.edition, book.entries.clone())
        };
        if !applied.ensured {
            self.network.ensure().await?;
        }
        let ports: Vec<Port> = entries.values().flat_map(|plugged| plugged.ports.clone()).collect();
        let refused = self.network.set_ports(&ports).await?;
        let names = entries.values().filter_map(|plugged| {
            let address = plugged.ports.iter().find_map(|port| port.addresses.first())?;
            Some((plugged.name.as_str(), *address))
        });
        self.network.set_names(names);
        *applied = Applied {
            edition,
            ensured: true,
            refused: refused.into_iter().map(|refused| (refused.id, refused.why)).collect(),
        };
        Ok(applied)
    }
}
