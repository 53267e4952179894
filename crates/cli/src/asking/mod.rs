//! Asking a cluster: what every command that does so shares.
//!
//! ```text
//!   words --> Ask (which cluster, how to print) --> Session --requests--> the API
//!                                                    |  |
//!                       table, YAML, JSON, names <---+  +---> what went wrong: Refusal, with an exit code
//! ```
//!
//! Commands use the public API as anybody could, with the rights of whoever the kubeconfig names. Nothing is remembered
//! between two commands but the kubeconfig.

mod access;
pub mod confirm;
pub mod editor;
pub mod facts;
pub mod format;
pub mod listing;
pub mod names;
pub mod out;
pub mod refusal;
pub mod resource;
pub mod session;
pub mod table;
pub mod waiting;
pub mod watching;

pub use access::{Access, AskArgs};
pub use format::Format;
pub use refusal::Refusal;
pub use resource::Resource;
pub use session::Session;
