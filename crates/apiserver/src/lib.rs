//! The door
