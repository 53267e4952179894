//! What all controllers are made of: watches that notice, a queue of keys to look at, and the
//! loop between them.
//!
//! ```text
//!   API --list, watch (metadata only)--> watching --notices--> reconciling
//!                                                                |  ^
//!                                                         wake a |  | the key that is due
//!                                                          key   v  |
//!                                                              work queue
//! ```
//!
//! A wake-up carries a key, never a change, so a restart, a missed event and the happy path are
//! one code path: look at the object of that key as it is now. Nothing here survives a crash and
//! nothing needs to, since the first list after a start wakes everything.

pub mod api;
pub mod reconciling;
pub mod served;
pub mod watching;
pub mod work_queue;
