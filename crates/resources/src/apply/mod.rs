//! Server-side apply: who owns which field, what an applied configuration makes of an object, and when two managers
//! are at odds.
//!
//! ```text
//!   apply:   live + configuration --merge--> merged --without what its manager no longer asks for--> new
//!   update:  live, new --compare--> what changed belongs to whoever changed it
//! ```
//!
//! Everything here is a function of its arguments; time is handed in as text. Versions of an object that the caller
//! can convert between are told apart by [`Versions`].

mod check;
mod conflict;
mod engine;
mod field_set;
pub mod last_applied;
mod managers;
#[cfg(test)]
mod model;
mod shape;
mod step;
#[cfg(test)]
mod tests;
mod typed;
mod untouched;
#[cfg(test)]
mod writes;

pub use check::{NoConfiguration, check};
pub use conflict::{Conflict, Conflicts};
pub use engine::{ApplyError, Versions, applied, created, nothing, updated};
pub use field_set::{FieldSet, NoFieldSet};
pub use managers::{Manager, Managers, Operation, Owned, Unreadable};
pub use shape::{Misfit, Shape};
pub use step::{Datum, Step};
pub use typed::{Comparison, compare, drop_nulls, fields_of, merge};
