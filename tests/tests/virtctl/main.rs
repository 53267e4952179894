//! The real virtctl against the real server and real guests, each test a thing somebody does at a terminal.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]

mod answers;
mod debian;
mod tiny;
