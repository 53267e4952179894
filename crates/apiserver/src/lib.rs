//! The door

pub mod authorization;
pub mod encryption;
pub mod identity;
