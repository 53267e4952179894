//! What of a cluster may be shown to people who may see it but not its secrets: what looks like a secret ([`looks`],
//! [`field`]), texts
//! without those in them ([`text`]), and objects as they are handed out in a support bundle ([`object`]).
//!
//! The rule is to show what is known to be harmless, and not to hide what is known to be secret: a kind that nobody has
//! thought about shows its shape and its numbers and none of its words.

pub mod field;
pub mod looks;
pub mod object;
mod rule;
pub mod text;

/// What stands in place of what must not be said.
pub const REDACTED: &str = "redacted";
