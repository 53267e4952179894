//! What is said when two managers want a field to be different.

use std::fmt;

use super::{field_set::FieldSet, managers::Manager, step::Step};

/// A field that two managers want to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it.
    pub manager: Manager,
    pub way: Vec<Step>,
}

impl Conflict {
    /// The field: `.spec.ports[port=80]`.
    pub fn field(&self) -> String {
        self.way.iter().map(ToString::to_string).collect()
    }
}

/// All conflicts of one configuration, those with one manager together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(Vec<Conflict>);

impl Conflicts {
    pub(super) fn add(&mut self, manager: &Manager, fields: &FieldSet) {
        let found = fields.ways().into_iter().map(|way| Conflict { manager: manager.clone(), way });
        self.0.extend(found);
        self.0.sort_by_cached_key(|conflict| conflict.manager.identifier());
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Conflict> {
        self.0.iter()
    }

    /// Those that are not about the fields of a set.
    pub(super) fn beside(self, allowed: &FieldSet) -> Conflicts {
        Conflicts(self.0.into_iter().filter(|conflict| !allowed.contains(&conflict.way)).collect())
    }
}

/// As the original tells it.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            let field = only.field();
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {field}", only.manager);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut told: Option<&Manager> = None;
        for conflict in &self.0 {
            if told != Some(&conflict.manager) {
                let separator = if told.is_some() { "\n" } else { "" };
                write!(f, "{separator}conflicts with {}:", conflict.manager)?;
                told = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field())?;
        }
        Ok(())
    }
}
