//! A panic is a line in the log, like everything else that goes wrong.
//!
//! What was at work then answers for itself: a connection ends, a store fails and says so. The
//! stack goes along for whoever asks for it with `RUST_BACKTRACE`.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    panic, thread,
};

use tracing::error;

/// From here on, panics go to the log.
pub fn to_the_log() {
    panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let said = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it did not say why");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let current = thread::current();
        let stack = Backtrace::capture();
        match stack.status() {
            BacktraceStatus::Captured => {
                error!(place, thread = current.name(), "a part of the program panicked: {said}\n{stack}");
            }
            _ => error!(place, thread = current.name(), "a part of the program panicked: {said}"),
        }
    }));
}
