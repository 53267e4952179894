//! The two switches under `/proc/sys` the network needs, of the calling thread's network
//! namespace.
//!
//! Forwarding of IPv4 is switched on and said in the log, since it concerns the whole
//! host: without it no guest reaches the outside. It is never switched off again, because
//! somebody else may have come to rely on it. IPv6 is switched off on our own bridge and
//! taps, where the host would otherwise give itself addresses that guests can reach.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::names::InterfaceName;

const IPV4_FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

/// A switch that could not be set.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {value:?} to {path}")]
pub struct SysctlError {
    pub path: PathBuf,
    pub value: &'static str,
    #[source]
    pub source: io::Error,
}

/// Switches forwarding on; whether it was off.
pub(crate) fn allow() -> Result<bool, SysctlError> {
    let was_off = set(Path::new(IPV4_FORWARDING), "1")?;
    if was_off {
        tracing::info!("switched on forwarding of IPv4 on this host, so that guests reach the outside");
    }
    Ok(was_off)
}

/// Switches IPv6 off on one interface; whether it was on. A kernel without IPv6 has
/// nothing to switch.
pub(crate) fn silence_ipv6(interface: &InterfaceName) -> Result<bool, SysctlError> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match set(Path::new(&path), "1") {
        Err(why) if why.source.kind() == io::ErrorKind::NotFound => Ok(false),
        done => done,
    }
}

fn set(path: &Path, value: &'static str) -> Result<bool, SysctlError> {
    let attempt = || {
        if fs::read_to_string(path)?.trim() == value {
            return Ok(false);
        }
        fs::write(path, value)?;
        Ok(true)
    };
    attempt().map_err(|source| SysctlError { path: path.to_owned(), value, source })
}
