//! End-to-end tests live in the sibling files; this crate only gives them a home.
