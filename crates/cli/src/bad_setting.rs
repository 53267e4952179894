//! A setting that cannot be used, said so that the reader can put it right at once.

/// Which setting, what was read, what is wrong with it and what would fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {problem}\n  read: {read}\n  fits: {fits}")]
pub struct BadSetting {
    pub setting: &'static str,
    pub read: String,
    pub problem: String,
    pub fits: String,
}

impl BadSetting {
    pub fn new(
        setting: &'static str,
        read: impl ToString,
        problem: impl Into<String>,
        fits: impl Into<String>,
    ) -> Self {
        BadSetting { setting, read: read.to_string(), problem: problem.into(), fits: fits.into() }
    }
}
