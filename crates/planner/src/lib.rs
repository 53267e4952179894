//! The decisions: what is seen goes in, the next step comes out. Pure: no I/O, no clock, no
//! chance. Whoever asks acts, looks again and asks again, so nothing is remembered here.

pub mod garbage;
pub mod namespace_deletion;
pub mod role_aggregation;
