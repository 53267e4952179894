//! The built-in kinds, one file each: what a row says beyond its schema is in its file.

pub mod custom_resource_definition;
