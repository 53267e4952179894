//! Owners known to be gone, so that a thousand dependents of one do not ask a thousand times.
//!
//! A uid is given once, so what is gone stays gone; only the oldest are forgotten.

use std::collections::{BTreeSet, VecDeque};

use super::graph::Uid;

const MOST: usize = 500;

#[derive(Debug, Default)]
pub struct AbsentOwners {
    known: BTreeSet<Uid>,
    order: VecDeque<Uid>,
}

impl AbsentOwners {
    pub fn note(&mut self, uid: &str) {
        if self.known.contains(uid) {
            return;
        }
        if self.order.len() == MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let uid: Uid = uid.into();
        self.known.insert(uid.clone());
        self.order.push_back(uid);
    }

    pub fn contains(&self, uid: &str) -> bool {
        self.known.contains(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_remembered() {
        let mut absent = AbsentOwners::default();
        for n in 0..MOST + 1 {
            absent.note(&n.to_string());
            absent.note(&n.to_string());
        }
        assert!(!absent.contains("0"));
        assert!(absent.contains("1") && absent.contains(&MOST.to_string()));
        assert_eq!(absent.known.len(), MOST);
    }
}
