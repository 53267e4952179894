//! A file that is not as it was written: told as such, to everyone who asks.
//!
//! redb believes the pages of a file that was closed in good order. On damaged ones it answers
//! with an error at some places and panics at others, so everything that reads or writes the
//! file goes through [`caught`]. Damage inside a value is not seen here: only a file that was
//! not closed in good order has its checksums gone through, when it is opened.

use std::panic::{self, AssertUnwindSafe};

use super::OpenError;

/// Does `work`; what a panic in it said, if it panicked.
///
/// Whoever gets an error must not use the database again but to close it: what the panic left
/// half-done in there is why unwinding past it is called unsafe.
pub(super) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|said| match said.downcast::<String>() {
        Ok(text) => *text,
        Err(said) => (*said.downcast_ref::<&str>().unwrap_or(&"it did not say why")).to_owned(),
    })
}

/// The same while the store at `place` is being opened.
pub(super) fn caught_opening<T>(
    place: &str,
    work: impl FnOnce() -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    caught(work).unwrap_or_else(|what| Err(OpenError::Damaged { place: place.to_owned(), what }))
}

/// The same words for a store that was open already.
pub(super) fn explain(place: &str, what: String) -> String {
    OpenError::Damaged { place: place.to_owned(), what }.to_string()
}

/// How redb and the file below it say that what they read makes no sense; the second is a reference
/// to a page beyond the end of the file.
const SIGNS: [&str; 2] = ["DB corrupted", "failed to fill whole buffer"];

/// An error of redb in our words, when it is about the file and not about the disk.
pub(super) fn explain_if_damaged(place: &str, text: String) -> String {
    if SIGNS.iter().any(|sign| text.contains(sign)) { explain(place, text) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_panic_said_is_kept() {
        assert_eq!(caught(|| 1), Ok(1));
        assert_eq!(caught(|| panic!("plain")).unwrap_err(), "plain");
        let number = 7;
        assert_eq!(caught(|| panic!("page {number}")).unwrap_err(), "page 7");
        assert_eq!(caught(|| panic::panic_any(1)).unwrap_err(), "it did not say why");
    }
}
