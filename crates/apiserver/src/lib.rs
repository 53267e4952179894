//! The door

pub mod encryption;
pub mod identity;
