//! Who refers to what, as it was when each was last looked at: so that a change of one thing wakes those who
//! depend on it, and nobody else.
//!
//! Only wake-ups hang on it. Whoever is looked at notes its references first and reads them afterwards, so nothing
//! that changes in between is missed; and after a start everybody is looked at.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct References<R, T> {
    of: BTreeMap<R, BTreeSet<T>>,
    to: BTreeMap<T, BTreeSet<R>>,
}

impl<R, T> Default for References<R, T> {
    fn default() -> Self {
        References { of: BTreeMap::new(), to: BTreeMap::new() }
    }
}

impl<R: Ord + Clone, T: Ord + Clone> References<R, T> {
    /// `referrer` refers to these from now on, and to nothing else.
    pub fn set(&mut self, referrer: &R, things: BTreeSet<T>) {
        for thing in self.of.remove(referrer).unwrap_or_default() {
            if let Some(referrers) = self.to.get_mut(&thing) {
                referrers.remove(referrer);
                if referrers.is_empty() {
                    self.to.remove(&thing);
                }
            }
        }
        for thing in &things {
            self.to.entry(thing.clone()).or_default().insert(referrer.clone());
        }
        if !things.is_empty() {
            self.of.insert(referrer.clone(), things);
        }
    }

    pub fn to(&self, thing: &T) -> Vec<R> {
        self.to.get(thing).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_referred_to_no_longer_wakes_nobody() {
        let mut references = References::default();
        references.set(&"vm", BTreeSet::from(["a", "b"]));
        references.set(&"other", BTreeSet::from(["b"]));
        assert_eq!(references.to(&"b"), ["other", "vm"]);
        references.set(&"vm", BTreeSet::from(["a"]));
        assert_eq!((references.to(&"b"), references.to(&"a")), (vec!["other"], vec!["vm"]));
        references.set(&"vm", BTreeSet::new());
        references.set(&"other", BTreeSet::new());
        assert!(references.of.is_empty() && references.to.is_empty(), "nothing is kept of what is gone");
    }
}
