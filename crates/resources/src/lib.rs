//! The nouns: every kind we serve, its schema, defaults, validation. Pure: no I/O, no
//! clock, no chance.

pub mod field_error;
pub mod kinds;
pub mod names;
pub mod patch;
pub mod quote;
pub mod schema;
pub mod selector;
