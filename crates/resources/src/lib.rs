//! The nouns: every kind we serve, its schema, defaults, validation. Pure: no I/O, no
//! clock, no chance.

pub mod age;
pub mod apply;
pub mod field_error;
pub mod kind;
pub mod kinds;
pub mod mac_address;
pub mod names;
pub mod not_yet;
pub mod object_meta;
pub mod patch;
pub mod path;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod quote;
pub mod rbac;
pub mod redaction;
pub mod references;
pub mod schema;
pub mod selector;
pub mod summary;
pub mod wire;
