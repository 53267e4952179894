//! A small name server on the gateway's address.
//!
//! It knows the guests by name, and the addresses of the segment by whose they are; every
//! other question goes to the host's own resolvers and comes back as they answer it.
//! Nothing is cached: the host's resolver does that where it is wanted, and what is not
//! kept cannot be poisoned by one guest for another.
//!
//! - [`zone`]: the names it knows and what it says about them. Pure.
//! - `resolvers`: who else to ask, from `resolv.conf`.
//! - `forward`: asks them.
//! - `server`: sockets and bounds.

mod forward;
mod resolvers;
mod server;
mod zone;

pub(crate) use server::{Served, serve};
pub use zone::{Decision, Zone};
