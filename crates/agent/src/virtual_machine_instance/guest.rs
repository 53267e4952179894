//! What the guest itself says, through its agent. Said by a guest: shown, never trusted.

use std::net::IpAddr;

use sheaf_hypervisor::{GuestAgent, GuestAgentError, guest_agent};
use sheaf_resources::kinds::virtual_machine_instance::status::GuestOsInfo;

/// More than this many interfaces or addresses are not shown: a guest may invent any number.
const MOST: usize = 64;
/// Nor longer texts than this.
const LONGEST: usize = 64;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GuestFacts {
    pub interfaces: Vec<GuestInterface>,
    pub os: GuestOsInfo,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestInterface {
    pub name: String,
    pub mac: String,
    pub addresses: Vec<String>,
}

impl GuestFacts {
    /// Asks the agent. An old one that does not know a question leaves its answer out.
    pub async fn ask(agent: &GuestAgent) -> Result<GuestFacts, GuestAgentError> {
        agent.ping().await?;
        let interfaces = match agent.interfaces().await {
            Ok(interfaces) => interfaces.into_iter().filter_map(interface).take(MOST).collect(),
            Err(GuestAgentError::Refused { .. }) => Vec::new(),
            Err(why) => return Err(why),
        };
        let os = match agent.os_info().await {
            Ok(os) => os_info(os),
            Err(GuestAgentError::Refused { .. }) => GuestOsInfo::default(),
            Err(why) => return Err(why),
        };
        Ok(GuestFacts { interfaces, os })
    }
}

fn interface(said: guest_agent::Interface) -> Option<GuestInterface> {
    // The loopback has no hardware address, or one of zeros.
    let mac = said.hardware_address.filter(|mac| mac.bytes().any(|byte| !b"0:".contains(&byte)))?;
    // What is no address is not passed on: it would be text of any length and content.
    let addresses = said.ip_addresses.into_iter().take(MOST);
    let addresses =
        addresses.filter_map(|said| said.ip_address.parse::<IpAddr>().ok()).map(|it| it.to_string());
    Some(GuestInterface {
        name: short(said.name),
        mac: short(mac.to_lowercase()),
        addresses: addresses.collect(),
    })
}

fn os_info(said: guest_agent::OsInfo) -> GuestOsInfo {
    let text = |said: Option<String>| short(said.unwrap_or_default());
    GuestOsInfo {
        name: text(said.name),
        version: text(said.version),
        pretty_name: text(said.pretty_name),
        version_id: text(said.version_id),
        kernel_release: text(said.kernel_release),
        kernel_version: text(said.kernel_version),
        machine: text(said.machine),
        id: text(said.id),
    }
}

pub(super) fn short(text: String) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}
