//! The nouns: every kind we serve, its schema, defaults, validation. Pure: no I/O, no
//! clock, no chance.

pub mod kinds;
pub mod names;
pub mod patch;
pub mod quote;
pub mod rbac;
pub mod selector;
