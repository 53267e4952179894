//! What is said when two managers want a field to be different.
//!
//! One write can be at odds with others in as many fields as an object has: what is kept are sets of fields, and only
//! so many of them are ever told.

use std::{collections::BTreeMap, fmt};

use super::{field_set::FieldSet, managers::Manager};

/// So many conflicts are named; the rest is counted.
const MOST_NAMED: usize = 100;
/// And no more once this much was said.
const MOST_BYTES: usize = 64 * 1024;

/// A field that two managers want to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict<'a> {
    /// Who owns it.
    pub manager: &'a Manager,
    /// The field: `.spec.ports[port=80]`.
    pub field: String,
}

/// All conflicts of one configuration: what of it whom belongs to, in the order in which managers are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts(BTreeMap<String, (Manager, FieldSet)>);

impl Conflicts {
    /// All there are with one manager.
    pub(super) fn add(&mut self, manager: Manager, fields: FieldSet) {
        self.0.insert(manager.identifier(), (manager, fields));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many fields there are conflicts about.
    pub fn count(&self) -> usize {
        self.0.values().map(|(_, fields)| fields.count()).sum()
    }

    /// Those that are told, those with one manager together.
    pub fn named(&self) -> Vec<Conflict<'_>> {
        let (mut named, mut said) = (Vec::new(), 0);
        for (manager, fields) in self.0.values() {
            let goes_on = fields.visit(&mut Vec::new(), &mut |way| {
                let field: String = way.iter().map(ToString::to_string).collect();
                said += manager.name.len() + field.len();
                named.push(Conflict { manager, field });
                named.len() < MOST_NAMED && said < MOST_BYTES
            });
            if !goes_on {
                break;
            }
        }
        named
    }

    /// Those that are not about the fields of a set.
    pub(super) fn beside(self, allowed: &FieldSet) -> Conflicts {
        let left =
            self.0.into_iter().map(|(id, (manager, fields))| (id, (manager, fields.difference(allowed))));
        Conflicts(left.filter(|(_, (_, fields))| !fields.is_empty()).collect())
    }
}

/// As the original tells it.
impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, named) = (self.count(), self.named());
        if let (1, [only]) = (count, named.as_slice()) {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
        }
        write!(f, "Apply failed with {count} conflicts: ")?;
        let mut told: Option<&Manager> = None;
        for conflict in &named {
            if told != Some(conflict.manager) {
                let separator = if told.is_some() { "\n" } else { "" };
                write!(f, "{separator}conflicts with {}:", conflict.manager)?;
                told = Some(conflict.manager);
            }
            write!(f, "\n- {}", conflict.field)?;
        }
        match count - named.len() {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Operation, Step};

    fn conflicts(name: &str, fields: usize) -> Conflicts {
        let manager = Manager {
            operation: Operation::Update,
            name: name.into(),
            api_version: "v1".into(),
            subresource: String::new(),
        };
        let mut set = FieldSet::default();
        (0..fields).for_each(|n| set.insert(&[Step::field("data"), Step::field(&format!("k{n:06}"))]));
        let mut conflicts = Conflicts::default();
        conflicts.add(manager, set);
        conflicts
    }

    #[test]
    fn many_conflicts_are_counted_and_some_are_named() {
        let many = conflicts("me", 60_000);
        assert_eq!((many.count(), many.named().len()), (60_000, MOST_NAMED));
        let told = many.to_string();
        assert!(
            told.starts_with(
                "Apply failed with 60000 conflicts: conflicts with \"me\" using v1:\n- .data.k0"
            )
        );
        assert!(told.ends_with("\nand 59900 more"), "{told}");
        let few = conflicts("me", 2).to_string();
        assert!(few.ends_with("\n- .data.k000000\n- .data.k000001"), "{few}");
    }

    #[test]
    fn long_names_are_not_said_over_and_over() {
        assert_eq!(conflicts(&"x".repeat(MOST_BYTES), 10).named().len(), 1);
    }
}
