//! Tells guests their addresses (DHCPv4, RFC 2131).
//!
//! There is nothing to allocate and nothing to remember: a table says which MAC has which
//! address, and it comes from outside. So a restarted server, or one on another node,
//! gives the same answers; a guest that releases its address or complains about it
//! changes nothing; and a MAC that is not in the table hears nothing.
//!
//! - `lease`: the table.
//! - `essentials`: what of a message is looked at. Pure.
//! - [`answer()`]: what to say to one message. Pure.
//! - `server`: the socket, and how an answer reaches a guest that has no address yet.

mod answer;
mod essentials;
mod lease;
mod server;

pub use answer::{Answer, Facts, To, answer};
pub use lease::{Lease, Leases};
pub(crate) use server::{Served, serve, wait_for_change};
