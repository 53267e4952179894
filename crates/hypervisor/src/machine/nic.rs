//! The network interfaces of a machine.

use std::{fmt, net::Ipv4Addr, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{DeviceName, InvalidMachine};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nic {
    pub name: DeviceName,
    pub mac: MacAddress,
    pub model: NicModel,
    pub backend: Backend,
    /// Lower boots earlier; without one it is not booted from, and carries no boot ROM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_index: Option<u32>,
    /// Told to the guest; virtio only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NicModel {
    Virtio,
    E1000,
    E1000e,
    Rtl8139,
    Ne2kPci,
    Pcnet,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum Backend {
    /// A tap device, opened by the caller. With `vhost` the kernel moves the packets, and
    /// the caller also hands in a descriptor of `/dev/vhost-net`.
    Tap { vhost: bool },
    /// Needs no privilege: QEMU itself plays router, DHCP server and resolver.
    User { forwards: Vec<HostForward> },
}

/// A port of the host that leads into a guest with a user-mode NIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostForward {
    pub protocol: Protocol,
    pub host_address: Ipv4Addr,
    pub host_port: u16,
    pub guest_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    Tcp,
    Udp,
}

/// A unicast hardware address, written as `52:54:00:12:34:56`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddress([u8; 6]);

impl FromStr for MacAddress {
    type Err = InvalidMachine;

    fn from_str(text: &str) -> Result<Self, InvalidMachine> {
        let invalid = || InvalidMachine::Mac { text: text.to_owned() };
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(invalid)?;
            // `from_str_radix` also takes a sign.
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(invalid());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| invalid())?;
        }
        let multicast = bytes[0] & 1 == 1;
        if parts.next().is_some() || multicast || bytes == [0; 6] {
            return Err(invalid());
        }
        Ok(MacAddress(bytes))
    }
}

impl TryFrom<String> for MacAddress {
    type Error = InvalidMachine;

    fn try_from(text: String) -> Result<Self, InvalidMachine> {
        text.parse()
    }
}

impl From<MacAddress> for String {
    fn from(mac: MacAddress) -> String {
        mac.to_string()
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_address_is_read_in_either_spelling_and_written_in_one() {
        for text in ["52:54:00:AB:cd:01", "52-54-00-ab-CD-01"] {
            assert_eq!(text.parse::<MacAddress>().unwrap().to_string(), "52:54:00:ab:cd:01");
        }
    }

    #[test]
    fn what_no_interface_may_have_is_not_a_mac_address() {
        let bad = [
            "",
            "52:54:00:ab:cd",
            "52:54:00:ab:cd:01:02",
            "01:00:5e:00:00:01",
            "00:00:00:00:00:00",
            "+2:54:00:ab:cd:01",
            "ff:ff:ff:ff:ff:ff",
        ];
        for text in bad {
            assert!(text.parse::<MacAddress>().is_err(), "{text:?} was taken for a MAC address");
        }
    }
}
