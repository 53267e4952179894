//! Any kind that a cluster serves, also one that this program has never heard of.

pub mod apply;
pub mod delete;
pub mod explain;
pub mod get;
pub mod kinds;
