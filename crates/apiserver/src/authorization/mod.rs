//! Whether somebody may do what they ask.
//!
//! First of all, whoever must choose a new password may do nothing else ([`password_change`]). Then, in this
//! order: the group `system:masters` may do everything; a node may touch its own objects ([`node`]); everybody may
//! do what the roles bound to them say. Nobody else is denied by a rule: what no rule allows is refused. Anonymous
//! requests are no exception, they see what the role `system:public-info-viewer` shows them.
//!
//! The rules themselves are judged in [`sheaf_resources::rbac`], which is pure; here they are found. They are
//! read from the [`Directory`](crate::identity::Directory) whenever they changed, so a binding that is gone
//! grants nothing from then on.

mod authorizer;
pub mod escalation;
mod forbidden;
mod index;
pub mod node;
mod password_change;
pub mod reviews;

pub use authorizer::{Authorizer, Decision};
pub use forbidden::forbidden;
pub(crate) use password_change::refusal as must_change_password;
