//! Asking a node that may die while it answers.
//!
//! Whoever asks panics then, as everywhere in the tests, and that is no failure here. Nothing is printed of it: hundreds of
//! backtraces that mean nothing hide the one that does.

use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
};

thread_local! {
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// What `ask` answered, or none if it panicked.
pub fn unless_it_dies<T>(ask: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let otherwise = panic::take_hook();
        panic::set_hook(Box::new(move |told| {
            if !IS_SILENT.get() {
                otherwise(told);
            }
        }));
    });
    IS_SILENT.set(true);
    let answer = panic::catch_unwind(AssertUnwindSafe(ask));
    IS_SILENT.set(false);
    answer.ok()
}
