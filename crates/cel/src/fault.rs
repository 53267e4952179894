//! Why a rule gave no answer.

/// The longest message, in bytes. Some tell what was found in the data, which can be of any size, and a loop that
/// absorbs faults makes many.
const LONGEST: usize = 1024;

/// The message is what the original says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rule cannot be evaluated on this data.
    Failed(String),
    /// It cost more than it may; it was stopped.
    OverBudget,
}

impl Fault {
    pub fn failed(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
            message.push_str("...");
        }
        Fault::Failed(message)
    }

    pub fn no_overload() -> Self {
        Fault::failed("no such overload")
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Failed(message) => f.write_str(message),
            Fault::OverBudget => f.write_str("operation cancelled: actual cost limit exceeded"),
        }
    }
}

impl std::error::Error for Fault {}
