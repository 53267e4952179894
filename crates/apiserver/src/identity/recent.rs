//! A bounded memory of what was computed lately.
//!
//! Two generations: what is asked for moves to the young one; when that is full, the old one is forgotten
//! whole. So whatever was used among the last `half` different questions is still there, at no cost for
//! keeping an order.

use std::{collections::HashMap, hash::Hash};

pub(crate) struct Recent<K, V> {
    half: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// Holds at most `2 * half` values.
    pub(crate) fn new(half: usize) -> Self {
        Recent { half: half.max(1), young: HashMap::new(), old: HashMap::new() }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut recent = Recent::new(10);
        recent.insert(-1, "kept");
        for key in 0..1000 {
            recent.insert(key, "passing");
            assert_eq!(recent.get(&-1), Some("kept"));
            assert!(recent.young.len() + recent.old.len() <= 20);
        }
        assert_eq!(recent.get(&0), None);
    }
}
