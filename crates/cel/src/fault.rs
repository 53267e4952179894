//! Why a rule gave no answer.

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
        Fault::Failed(message.into())
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
