//! Decides what becomes of a binding when a user goes.
//!
//! Roles are bound to names. A name that is free may be given again, and whoever has it next must not find the rights of
//! the one before. So what a user was bound to goes before the user does.

use serde_json::Value;

/// What to do with one binding.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// It does not name the user.
    Leave,
    /// It names others, too.
    KeepOthers(Vec<Value>),
    /// It names nobody else.
    Delete,
}

/// `subjects` are those of a binding.
pub fn next_step(subjects: &[Value], user: &str) -> Step {
    let is_user = |subject: &&Value| subject["kind"] == "User" && subject["name"] == user;
    if !subjects.iter().any(|subject| is_user(&subject)) {
        return Step::Leave;
    }
    let others: Vec<Value> = subjects.iter().filter(|subject| !is_user(subject)).cloned().collect();
    match others.is_empty() {
        true => Step::Delete,
        false => Step::KeepOthers(others),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_user_of_that_name_loses_what_is_bound() {
        let (anna, group) =
            (json!({"kind": "User", "name": "anna"}), json!({"kind": "Group", "name": "anna"}));
        let account = json!({"kind": "ServiceAccount", "name": "anna", "namespace": "a"});
        assert_eq!(next_step(&[], "anna"), Step::Leave);
        assert_eq!(next_step(&[group.clone(), account.clone()], "anna"), Step::Leave);
        assert_eq!(next_step(std::slice::from_ref(&anna), "anna"), Step::Delete);
        assert_eq!(next_step(&[anna.clone(), anna.clone()], "anna"), Step::Delete);
        let kept = Step::KeepOthers(vec![group.clone(), account.clone()]);
        assert_eq!(next_step(&[group, anna, account], "anna"), kept);
    }
}
