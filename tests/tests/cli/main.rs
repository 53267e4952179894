//! What a person types and sees: the real binary against a real node, word for word.
//!
//! What is printed is held to files in `golden/`, with what differs from run to run (ages, addresses, names that were drawn)
//! replaced. `SHEAF_UPDATE_GOLDEN=1` writes them anew; what changed is then to be read.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod anything;
mod asking_back;
mod completions;
mod errors;
mod golden;
mod images;
mod machines;
mod nouns;
mod person;
mod running;
mod signing_in;
mod watching;
