//! Why a revision never goes back, whatever happens underneath.
//!
//! What callers see is `base + raw`: the backend counts raw revisions, the base is a
//! number stored in the backend itself. A backend's count can go back (an older copy of
//! the file is put back, an etcd snapshot is restored) or start again (promotion to a
//! fresh etcd). A new **epoch** then begins: the base is raised past every revision that
//! may have been handed out, before anything is served. Every key then shows a higher
//! revision than before, and whoever asks for changes since an old revision is told
//! `Compacted` and lists again, which is right: what happened since is not known any more.
//!
//! How a server knows what was handed out: [`mark`]. How data moves to a fresh etcd without
//! a step back: [`promote`]. A snapshot restored into etcd is recognised when the store is
//! opened, by the cluster's identity (kept beside the base) or by the mark, and under a
//! running server by a revision that goes back.

pub mod mark;
mod promote;

pub use promote::{PromoteError, promote};
