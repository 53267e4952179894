//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{fault::Fault, value::Value};

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    pub address: IpAddr,
    pub bits: u8,
}

impl Cidr {
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = |why: &str| {
            let twice = "network address parse error during conversion from string";
            Fault::failed(format!("{twice}: {twice}: netip.ParsePrefix({text:?}): {why}"))
        };
        let (address, bits) = text.rsplit_once('/').ok_or_else(|| wrong("no '/'"))?;
        let address: IpAddr =
            address.parse().map_err(|_| wrong(&format!("ParseAddr({address:?}): unable to parse IP")))?;
        let plain = !bits.is_empty()
            && bits.bytes().all(|c| c.is_ascii_digit())
            && (bits.len() == 1 || !bits.starts_with('0'));
        let bits: u8 = match bits.parse() {
            Ok(bits) if plain => bits,
            _ => return Err(wrong(&format!("bad bits after slash: {bits:?}"))),
        };
        if bits > if address.is_ipv4() { 32 } else { 128 } {
            return Err(wrong("prefix length out of range"));
        }
        if is_mapped(&address) {
            let what = format!("IPv4-mapped IPv6 address {text:?} is not allowed");
            return Err(Fault::failed(format!(
                "network address parse error during conversion from string: {what}"
            )));
        }
        Ok(Self { address, bits })
    }

    fn masked(self) -> Self {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(v4) & mask))
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(v6) & mask))
            }
        };
        Self { address, ..self }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && Self { address, ..self }.masked() == self.masked()
    }
}

fn is_mapped(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

fn parse_ip(text: &str) -> Result<IpAddr, Fault> {
    if let Some((address, zone)) = text.split_once('%')
        && address.parse::<Ipv6Addr>().is_ok()
        && !zone.is_empty()
    {
        return Err(Fault::failed(format!("IP address {text:?} with zone value is not allowed")));
    }
    let Ok(address) = text.parse() else {
        let why = "parse error during conversion from string";
        return Err(Fault::failed(format!(
            "IP Address {text:?} {why}: ParseAddr({text:?}): unable to parse IP"
        )));
    };
    match is_mapped(&address) {
        true => Err(Fault::failed(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))),
        false => Ok(address),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local(address))
}

pub fn call(function: &str, args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    Ok(match (function, args) {
        ("ip", [Value::String(text)]) => Value::Ip(parse_ip(text)?),
        ("ip", [Value::Cidr(cidr)]) => Value::Ip(cidr.address),
        ("isIP", [Value::String(text)]) => Value::Bool(parse_ip(text).is_ok()),
        ("ip.isCanonical", [Value::String(text)]) => Value::Bool(parse_ip(text)?.to_string() == **text),
        ("family", [Value::Ip(address)]) => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        ("isUnspecified", [Value::Ip(address)]) => Value::Bool(address.is_unspecified()),
        ("isLoopback", [Value::Ip(address)]) => Value::Bool(address.is_loopback()),
        ("isLinkLocalMulticast", [Value::Ip(address)]) => Value::Bool(is_link_local_multicast(address)),
        ("isLinkLocalUnicast", [Value::Ip(address)]) => Value::Bool(is_link_local(address)),
        ("isGlobalUnicast", [Value::Ip(address)]) => Value::Bool(is_global_unicast(address)),
        ("cidr", [Value::String(text)]) => Value::Cidr(Cidr::parse(text)?),
        ("isCIDR", [Value::String(text)]) => Value::Bool(Cidr::parse(text).is_ok()),
        // What is no address is no argument either.
        ("containsIP", [Value::Cidr(cidr), Value::String(text)]) => {
            Value::Bool(cidr.contains(parse_ip(text).map_err(|_| Fault::no_overload())?))
        }
        ("containsIP", [Value::Cidr(cidr), Value::Ip(address)]) => Value::Bool(cidr.contains(*address)),
        ("containsCIDR", [Value::Cidr(cidr), Value::String(text)]) => {
            contains_cidr(cidr, &Cidr::parse(text)?)
        }
        ("containsCIDR", [Value::Cidr(cidr), Value::Cidr(other)]) => contains_cidr(cidr, other),
        ("prefixLength", [Value::Cidr(cidr)]) => Value::Int(i64::from(cidr.bits)),
        ("masked", [Value::Cidr(cidr)]) => Value::Cidr(cidr.masked()),
        _ => return Err(Fault::no_overload()),
    })
}

fn contains_cidr(cidr: &Cidr, other: &Cidr) -> Value<'static> {
    Value::Bool(cidr.bits <= other.bits && cidr.contains(other.address))
}
