//! Waiting for what comes by itself, with an end.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// Far more than anything waited for takes on a busy machine.
pub const TOO_LONG: Duration = Duration::from_secs(90);

/// The same for what a guest does: under emulation on a busy machine it takes its time.
pub const TOO_LONG_FOR_A_GUEST: Duration = Duration::from_secs(300);

/// Asks `look` until it has an answer; panics with `what` when it never does.
pub fn until<T>(what: impl Display, look: impl FnMut() -> Option<T>) -> T {
    until_within(TOO_LONG, what, look)
}

/// The same with another end.
pub fn until_within<T>(patience: Duration, what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < patience, "waited too long: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
