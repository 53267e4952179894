//! Whether this host can have taps.
//!
//! Where Sheaf runs without the right to change the network, or in a container without
//! the TUN device, a machine's NICs are behind QEMU's own user-mode network: the guest
//! gets out, what the agent forwards gets in, and its address is the same for every
//! machine. A first try works anywhere; the node's log says why it is not the real thing.

use std::io;

use tun_rs::{DeviceBuilder, Layer};

use crate::nft;

const TUN: &str = "/dev/net/tun";

/// Why a host cannot have taps, in words for its log.
#[derive(Debug, thiserror::Error)]
pub enum WhyNot {
    #[error(
        "machines use QEMU's user-mode network: there is no {TUN}; load the module `tun`, or pass the \
         device into the container"
    )]
    NoTunDevice,
    #[error(
        "machines use QEMU's user-mode network: Sheaf may not make network interfaces; run it as root or \
         with CAP_NET_ADMIN"
    )]
    NotPermitted {
        #[source]
        source: io::Error,
    },
    #[error(
        "machines use QEMU's user-mode network: there is no `nft`, without which guests could use each \
         other's addresses; install the package nftables"
    )]
    NoNft,
    #[error("machines use QEMU's user-mode network: this host cannot make a tap")]
    Failed {
        #[source]
        source: io::Error,
    },
}

/// Finds out by doing: makes a tap that vanishes at once.
pub fn can_make_taps() -> Result<(), WhyNot> {
    // Looked for first, because opening would make one where there is none.
    if !std::path::Path::new(TUN).exists() {
        return Err(WhyNot::NoTunDevice);
    }
    let device = DeviceBuilder::new().layer(Layer::L2).offload(true).inherit_enable_state().build_sync();
    device.map(drop).map_err(in_our_words)?;
    if nft::program().is_some() { Ok(()) } else { Err(WhyNot::NoNft) }
}

fn in_our_words(source: io::Error) -> WhyNot {
    match source.kind() {
        io::ErrorKind::PermissionDenied => WhyNot::NotPermitted { source },
        io::ErrorKind::NotFound => WhyNot::NoTunDevice,
        // What the kernel says when the node is there and the driver is not.
        _ if source.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => WhyNot::NoTunDevice,
        _ => WhyNot::Failed { source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_to_do_about_it() {
        let denied = in_our_words(io::ErrorKind::PermissionDenied.into());
        assert!(denied.to_string().contains("CAP_NET_ADMIN"), "{denied}");
        let missing = in_our_words(io::Error::from_raw_os_error(rustix::io::Errno::NODEV.raw_os_error()));
        assert!(missing.to_string().contains("module `tun`"), "{missing}");
        assert!(WhyNot::NoNft.to_string().contains("nftables"));
    }
}
