//! From text to a tree: tokens, grammar, macros.
//!
//! Written here rather than taken: what was published for Rust either recurses without a bound on hostile input
//! or does not keep the places that error messages point at. Wordings of syntax errors are near the original's,
//! whose are those of its parser generator; everything else is said in the same words.

mod macros;
mod parser;
mod primary;
mod token;

pub use parser::parse;
