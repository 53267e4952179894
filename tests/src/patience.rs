//! Waiting for what comes by itself, with an end.
//!
//! A wait gives up when nothing has come of a number of looks, and not before a time has passed. On a busy machine a look takes
//! longer, for the same reason for which what is waited for does, so the wait grows with the load and no limit needs to be raised.

use std::{
    fmt::Display,
    thread,
    time::{Duration, Instant},
};

/// Far more than anything waited for takes on a machine of one's own.
pub const TOO_LONG: Duration = Duration::from_secs(90);

/// The same for what a guest does, which under emulation takes its time.
pub const TOO_LONG_FOR_A_GUEST: Duration = Duration::from_secs(300);

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// What a look with the pause after it takes on a machine of one's own, at most: many ask the API, over a new connection.
const LOOK: Duration = Duration::from_millis(60);

/// Asks `look` until it has an answer; panics with `what` when it never does.
#[track_caller]
pub fn until<T>(what: impl Display, look: impl FnMut() -> Option<T>) -> T {
    until_within(TOO_LONG, what, look)
}

/// The same with another end.
#[track_caller]
pub fn until_within<T>(patience: Duration, what: impl Display, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let enough = patience.as_millis() / LOOK.as_millis();
    let mut looks = 0;
    loop {
        if let Some(found) = look() {
            return found;
        }
        looks += 1;
        let is_over = began.elapsed() >= patience && looks >= enough;
        assert!(!is_over, "waited too long, {:.0} s: {what}", began.elapsed().as_secs_f64());
        thread::sleep(BETWEEN_LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_what_it_waits_for() {
        let mut left = 3;
        let found = until("the third look", || {
            left -= 1;
            (left == 0).then_some("there")
        });
        assert_eq!(found, "there");
    }

    #[test]
    #[should_panic(expected = "waited too long, 0 s: never")]
    fn a_wait_for_nothing_ends() {
        until_within(Duration::from_millis(240), "never", || None::<()>);
    }

    #[test]
    fn slow_looks_make_a_wait_longer() {
        let mut looks = 0;
        let found = until_within(Duration::from_millis(240), "the fourth look", || {
            looks += 1;
            thread::sleep(Duration::from_millis(100));
            (looks == 4).then_some(looks)
        });
        assert_eq!(found, 4, "long after 240 ms");
    }
}
