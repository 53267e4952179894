//! How one attempt at a compare-and-swap ended, when not well.

use sheaf_store::StoreError;

use super::Call;
use crate::status::ApiError;

pub(super) enum Attempt {
    Refused(ApiError),
    /// Somebody was faster: nothing was written.
    Raced,
}

impl Attempt {
    pub(super) fn of_store(call: &Call<'_>, name: &str, why: &StoreError) -> Self {
        match why {
            StoreError::Conflict { .. } => Attempt::Raced,
            why => Attempt::Refused(ApiError::from_store(why, call.named(), name)),
        }
    }
}

impl From<ApiError> for Attempt {
    fn from(error: ApiError) -> Self {
        Attempt::Refused(error)
    }
}
