//! The door

pub mod encryption;
