//! A set of fields of an object: a tree of [`Step`]s, some of which are members.
//!
//! That `spec.replicas` is a member says nothing about `spec`: each way is in the set or not, on its own.
//! Written as Kubernetes' `FieldsV1`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{shape::Shape, step::Step};

/// The way that ends where it is written, in `FieldsV1`.
pub(super) const ITSELF: &str = ".";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<Step, Node>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    is_member: bool,
    below: FieldSet,
}

impl Node {
    fn is_empty(&self) -> bool {
        !self.is_member && self.below.is_empty()
    }
}

/// Deeper than the fields of any object that gets in.
const MAX_DEPTH: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFieldSet {
    #[error("{text:?} is no step to a field")]
    NoStep { text: String },
    #[error("fields are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl FieldSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn insert(&mut self, way: &[Step]) {
        let Some((first, rest)) = way.split_first() else { return };
        let node = self.0.entry(first.clone()).or_default();
        match rest.is_empty() {
            true => node.is_member = true,
            false => node.below.insert(rest),
        }
    }

    pub fn contains(&self, way: &[Step]) -> bool {
        match way {
            [] => false,
            [last] => self.0.get(last).is_some_and(|node| node.is_member),
            [first, rest @ ..] => self.0.get(first).is_some_and(|node| node.below.contains(rest)),
        }
    }

    /// Whether this one step is a member.
    pub(super) fn has(&self, step: &Step) -> bool {
        self.0.get(step).is_some_and(|node| node.is_member)
    }

    /// What is below a step.
    pub(super) fn below(&self, step: &Step) -> Option<&FieldSet> {
        self.0.get(step).map(|node| &node.below)
    }

    /// Each first step, whether it is a member, and what is below it.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&Step, bool, &FieldSet)> {
        self.0.iter().map(|(step, node)| (step, node.is_member, &node.below))
    }

    /// Puts a subtree where a step leads.
    pub(super) fn put(&mut self, step: Step, is_member: bool, below: FieldSet) {
        if is_member || !below.is_empty() {
            self.0.insert(step, Node { is_member, below });
        }
    }

    #[must_use]
    pub fn union(mut self, other: &FieldSet) -> FieldSet {
        for (step, theirs) in &other.0 {
            let ours = self.0.entry(step.clone()).or_default();
            ours.is_member |= theirs.is_member;
            ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
        }
        self
    }

    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        // Whichever is smaller is gone through: one that many are intersected with may be large.
        let (few, many) = if self.0.len() <= other.0.len() { (self, other) } else { (other, self) };
        let shared = few.0.iter().filter_map(|(step, one)| {
            let two = many.0.get(step)?;
            let below = one.below.intersection(&two.below);
            let node = Node { is_member: one.is_member && two.is_member, below };
            (!node.is_empty()).then(|| (step.clone(), node))
        });
        FieldSet(shared.collect())
    }

    /// Without the members of the other; what is below them stays.
    #[must_use]
    pub fn difference(mut self, other: &FieldSet) -> FieldSet {
        self.without(other, &|ours, theirs| {
            ours.is_member &= !theirs.is_member;
            true
        });
        self
    }

    /// Without the members of the other and everything below them.
    #[must_use]
    pub fn recursive_difference(mut self, other: &FieldSet) -> FieldSet {
        self.without(other, &|ours, theirs| {
            if theirs.is_member {
                *ours = Node::default();
            }
            !theirs.is_member
        });
        self
    }

    /// Lets `take` have what the other has, too, level by level as long as it says so. Whichever is smaller is gone
    /// through.
    fn without(&mut self, other: &FieldSet, take: &impl Fn(&mut Node, &Node) -> bool) {
        let meet = |ours: &mut Node, theirs: &Node| {
            if take(ours, theirs) {
                ours.below.without(&theirs.below, take);
            }
            !ours.is_empty()
        };
        if self.0.len() < other.0.len() {
            self.0.retain(|step, ours| other.0.get(step).is_none_or(|theirs| meet(ours, theirs)));
            return;
        }
        for (step, theirs) in &other.0 {
            let Some(ours) = self.0.get_mut(step) else { continue };
            if !meet(ours, theirs) {
                self.0.remove(step);
            }
        }
    }

    /// The same set where every declared member of an object that has something below it is a member too: an object
    /// goes when all its declared fields go.
    #[must_use]
    pub fn with_named_fields(&self, shape: Shape<'_>) -> FieldSet {
        let nodes = self.0.iter().map(|(step, node)| {
            let is_named = matches!(step, Step::Field(name) if shape.is_declared(name));
            let is_member = node.is_member || (is_named && !node.below.is_empty());
            (step.clone(), Node { is_member, below: node.below.with_named_fields(shape.at(step)) })
        });
        FieldSet(nodes.collect())
    }

    /// Every member, as the way to it.
    pub fn ways(&self) -> Vec<Vec<Step>> {
        let mut ways = Vec::new();
        self.visit(&mut Vec::new(), &mut |way| {
            ways.push(way.to_vec());
            true
        });
        ways
    }

    /// How many members there are.
    pub(super) fn count(&self) -> usize {
        self.0.values().map(|node| usize::from(node.is_member) + node.below.count()).sum()
    }

    /// Shows the way to each member, as long as `each` wants to see more; answers whether it does. The members of a
    /// level come before what is below them: conflicts are told in this order.
    pub(super) fn visit(&self, way: &mut Vec<Step>, each: &mut dyn FnMut(&[Step]) -> bool) -> bool {
        for (step, _) in self.0.iter().filter(|(_, node)| node.is_member) {
            way.push(step.clone());
            let goes_on = each(way);
            way.pop();
            if !goes_on {
                return false;
            }
        }
        for (step, node) in self.0.iter().filter(|(_, node)| !node.below.is_empty()) {
            way.push(step.clone());
            let goes_on = node.below.visit(way, each);
            way.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// The same set for a shape that may have changed since: what is taken as a whole now is owned as a whole.
    #[must_use]
    pub(super) fn reconciled(&self, shape: Shape<'_>) -> FieldSet {
        let nodes = self.0.iter().map(|(step, node)| {
            let inside = shape.at(step);
            let node = match inside.is_whole() && !node.below.is_empty() {
                true => Node { is_member: true, below: FieldSet::default() },
                false => Node { is_member: node.is_member, below: node.below.reconciled(inside) },
            };
            (step.clone(), node)
        });
        FieldSet(nodes.collect())
    }

    /// Whether [`FieldSet::reconciled`] would change it.
    pub(super) fn is_at_odds(&self, shape: Shape<'_>) -> bool {
        self.0.iter().filter(|(_, node)| !node.below.is_empty()).any(|(step, node)| {
            let inside = shape.at(step);
            inside.is_whole() || node.below.is_at_odds(inside)
        })
    }

    /// As `FieldsV1`.
    pub fn to_json(&self) -> Value {
        let members = self.0.iter().map(|(step, node)| {
            let mut below = Map::new();
            if node.is_member && !node.below.is_empty() {
                below.insert(ITSELF.into(), Value::Object(Map::new()));
            }
            if let Value::Object(rest) = node.below.to_json() {
                below.extend(rest);
            }
            (step.written(), Value::Object(below))
        });
        Value::Object(members.collect())
    }

    pub fn from_json(json: &Value) -> Result<FieldSet, NoFieldSet> {
        FieldSet::read(json, MAX_DEPTH)
    }

    fn read(json: &Value, levels: usize) -> Result<FieldSet, NoFieldSet> {
        let Some(levels) = levels.checked_sub(1) else { return Err(NoFieldSet::TooDeep) };
        let Value::Object(members) = json else {
            return Err(NoFieldSet::NoStep { text: json.to_string() });
        };
        let mut set = FieldSet::default();
        for (text, below) in members.iter().filter(|(text, _)| *text != ITSELF) {
            let step = Step::read(text).ok_or_else(|| NoFieldSet::NoStep { text: text.clone() })?;
            let is_leaf = below.as_object().is_none_or(Map::is_empty);
            let is_member = is_leaf || below.get(ITSELF).is_some();
            let below = if is_leaf { FieldSet::default() } else { FieldSet::read(below, levels)? };
            set.put(step, is_member, below);
        }
        Ok(set)
    }
}

impl<'a> FromIterator<&'a [Step]> for FieldSet {
    fn from_iter<I: IntoIterator<Item = &'a [Step]>>(ways: I) -> Self {
        let mut set = FieldSet::default();
        ways.into_iter().for_each(|way| set.insert(way));
        set
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(json: Value) -> FieldSet {
        FieldSet::from_json(&json).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let json = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {r#"k:{"port":80}"#: {".": {}, "f:port": {}}}, "f:finalizers": {r#"v:"x""#: {}}}});
        assert_eq!(set(json.clone()).to_json(), json);
        assert_eq!(set(json!({})).to_json(), json!({}));
        assert!(FieldSet::from_json(&json!({"f:a": {"b": {}}})).is_err());
        assert!(FieldSet::from_json(&json!([])).is_err());
    }

    #[test]
    fn fields_nest_only_so_deep() {
        let nested = |levels: usize| (1..levels).fold(json!({"f:a": {}}), |below, _| json!({"f:a": below}));
        assert!(FieldSet::from_json(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(FieldSet::from_json(&nested(MAX_DEPTH + 1)), Err(NoFieldSet::TooDeep));
    }

    #[test]
    fn sets_are_combined_member_by_member() {
        let a = set(json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}}));
        let b = set(json!({"f:a": {"f:x": {}}, "f:c": {}}));
        assert_eq!(
            a.clone().union(&b),
            set(json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}, "f:c": {}}))
        );
        assert_eq!(a.intersection(&b), set(json!({"f:a": {"f:x": {}}})));
        assert_eq!(a.clone().difference(&b), set(json!({"f:a": {".": {}, "f:y": {}}, "f:b": {}})));
        let whole = set(json!({"f:a": {}}));
        assert_eq!(a.clone().difference(&whole), set(json!({"f:a": {"f:x": {}, "f:y": {}}, "f:b": {}})));
        assert_eq!(a.recursive_difference(&whole), set(json!({"f:b": {}})));
    }

    #[test]
    fn a_way_is_in_the_set_or_not_on_its_own() {
        let a = set(json!({"f:a": {"f:x": {}}}));
        let way = [Step::field("a"), Step::field("x")];
        assert!(a.contains(&way) && !a.contains(&way[..1]));
        assert_eq!(a.ways(), [way.to_vec()]);
    }
}
