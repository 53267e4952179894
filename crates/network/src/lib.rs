//! The network of the virtual machines on one host: a bridge, a tap per NIC, the rules
//! that keep guests honest, and DHCP and DNS on the gateway's address.
//!
//! ```text
//!            guest            guest
//!              | tap            | tap        a tap passes only frames of its own MAC and address
//!   ---+-------+----------------+---------   bridge: the default segment, one layer-2 network
//!      | gateway: DHCP, DNS, ping
//!    host --- masquerade ---> outside
//! ```
//!
//! [`Network`] is the front: [`Network::ensure`] brings the host to the shape above,
//! [`Network::set_ports`] says which NICs there are, [`Network::open_tap`] hands one to
//! QEMU, [`Network::set_balanced`] says which addresses lead to which of them, and [`Network::serve_dhcp`] and [`Network::serve_dns`] are futures that serve
//! for as long as they are polled.
//!
//! Beside it, and without a part in it: [`interfaces`] looks at what links the host has, and [`uplinks`] does the single
//! things that put NICs into the bridge of a cluster network.
//!
//! What it deliberately does not do: choose addresses (they come from one allocator, so
//! that two nodes never give out the same one), remember anything on disk, or know what
//! a Kubernetes object is. Everything here works in the network namespace of the thread
//! that calls it, and all names are handed in, so several nodes can share one kernel and
//! several data directories one namespace.
//!
//! What survives a crash: everything that matters, since it is in the kernel. The bridge,
//! persistent taps, rules and the sysctl stay; guests go on talking. What a crash can
//! leave behind is a tap whose machine is gone, which [`Network::found_taps`] lists. A
//! restart calls `ensure` and `set_ports` again; every step is idempotent.

pub mod addresses;
pub mod balancing;
mod bridge;
mod config;
pub mod dhcp;
pub mod dns;
pub mod firewall;
mod forwarding;
pub mod interfaces;
mod links;
mod names;
mod network;
mod nft;
mod port;
pub mod segment;
mod step;
mod tap;
pub mod uplinks;
pub mod user_mode;

pub use addresses::Mac;
pub use balancing::{Balanced, BalancingError, Listener, Protocol, Reach};
pub use bridge::BridgeError;
pub use config::{ConfigError, NetworkConfig};
pub use forwarding::SysctlError;
pub use ipnet::Ipv4Net;
pub use links::LinkError;
pub use names::{InterfaceName, NameError, NetworkNames, TableName, TapPrefix};
pub use network::{HostAddresses, Network, NetworkError};
pub use nft::NftError;
pub use port::{NicId, Port, RefusedPort, WhyRefused};
pub use step::{AfterStep, Step};
pub use tap::{FoundTap, TapError};
