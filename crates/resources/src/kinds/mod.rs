//! One file for each kind: what is filled in, what is refused.

pub mod cluster_role;
pub mod cluster_role_binding;
pub mod role;
pub mod role_binding;
