//! The most a rule can cost, worked out before it ever runs from how large its data can get.
//!
//! The arithmetic is the original's, peculiarities included: a rule that it refuses is refused here and the other
//! way round. A size or cost that is out of all bounds is `u64::MAX`.

mod calls;

use std::collections::BTreeMap;

use crate::{
    ast::{Comprehension, Expr, Id, Kind, Literal},
    checker::Checked,
    data::Declaration,
    types::Type,
};

/// From the least to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub fn of(exactly: u64) -> Self {
        Self { min: exactly, max: exactly }
    }

    pub fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn scaled(self, factor: f64) -> Self {
        let scale = |number: u64| {
            let product = (number as f64 * factor).ceil();
            if product >= 18_446_744_073_709_551_616.0 { u64::MAX } else { product as u64 }
        };
        Self { min: scale(self.min), max: scale(self.max) }
    }

    pub fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The sizes of what is inside a list or map that the rule itself makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self { key: one.key.union(other.key), value: one.value.union(other.value), ..one })
    }
}

/// Where in the data an expression points.
#[derive(Clone, Copy, Debug)]
enum Path<'a> {
    /// Nowhere: it is made by the rule.
    None,
    At(&'a Declaration),
    /// At something that is not declared.
    Lost,
}

#[derive(Clone, Debug)]
struct Local<'a> {
    path: Path<'a>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// The most that evaluating an expression over `root` can cost.
pub fn estimate(expr: &Expr, checked: &Checked, root: &Declaration) -> u64 {
    let mut estimator = Estimator {
        checked,
        root,
        paths: BTreeMap::new(),
        locals: BTreeMap::new(),
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
    };
    estimator.cost(expr).max
}

struct Estimator<'a> {
    checked: &'a Checked,
    root: &'a Declaration,
    paths: BTreeMap<Id, Path<'a>>,
    locals: BTreeMap<String, Vec<Local<'a>>>,
    sizes: BTreeMap<Id, Range>,
    entries: BTreeMap<Id, Entries>,
}

impl<'a> Estimator<'a> {
    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            Kind::Literal(_) | Kind::Message(_) => Range::of(0),
            Kind::Ident(_) => self.name(expr),
            Kind::Select { .. } if self.checked.names.contains_key(&expr.id) => self.name(expr),
            Kind::Select { operand, field, test } => {
                let cost = self.cost(operand);
                if *test {
                    return cost;
                }
                let path = self.step(self.path(operand), |declared| declared.field(field));
                self.paths.insert(expr.id, path);
                match self.type_of(operand) {
                    Type::Map(..) | Type::Object(_) | Type::Named(_) | Type::Param(_) => {
                        cost.plus(Range::of(1))
                    }
                    _ => cost,
                }
            }
            Kind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            Kind::List(items) => {
                let mut cost = Range::of(0);
                let mut size = empty_union(items.is_empty());
                for item in items {
                    cost = cost.plus(self.cost(&item.expr));
                    size = size.union(self.size_or_unknown(&item.expr));
                }
                self.entries.insert(expr.id, Entries { is_list: true, key: Range::of(1), value: size });
                cost.plus(Range::of(10))
            }
            Kind::Map(entries) => {
                let mut cost = Range::of(0);
                let (mut key, mut value) = (empty_union(entries.is_empty()), empty_union(entries.is_empty()));
                for entry in entries {
                    cost = cost.plus(self.cost(&entry.key)).plus(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { is_list: false, key, value });
                cost.plus(Range::of(30))
            }
            Kind::Comprehension(fold) if is_bind(fold) => self.bind(expr, fold),
            Kind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn name(&mut self, expr: &Expr) -> Range {
        let name = self.checked.names.get(&expr.id).map(String::as_str).unwrap_or_default();
        let path = self.local(name).map_or(Path::At(self.root), |local| local.path);
        self.paths.insert(expr.id, path);
        Range::of(1)
    }

    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.get(name)?.last()
    }

    /// A name's own; expressions that are no names have none.
    fn local_of(&self, expr: &Expr) -> Option<&Local<'a>> {
        match &expr.kind {
            Kind::Ident(name) => self.local(name),
            _ => None,
        }
    }

    fn type_of(&self, expr: &Expr) -> &Type {
        &self.checked.types[expr.id]
    }

    fn path(&self, expr: &Expr) -> Path<'a> {
        match self.local_of(expr) {
            Some(local) => local.path,
            None => self.paths.get(&expr.id).copied().unwrap_or(Path::None),
        }
    }

    /// One step further. From nowhere, a step leads to the root: the first step of a path is taken to be a variable.
    fn step(&self, path: Path<'a>, next: impl Fn(&'a Declaration) -> Option<&'a Declaration>) -> Path<'a> {
        match path {
            Path::None => Path::At(self.root),
            Path::At(declared) => {
                next(declared).filter(|declared| declared.is_known()).map_or(Path::Lost, Path::At)
            }
            Path::Lost => Path::Lost,
        }
    }

    fn size_or_unknown(&self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&self, expr: &Expr) -> Option<Range> {
        if let Some(known) = self.sizes.get(&expr.id) {
            return Some(*known);
        }
        match &expr.kind {
            Kind::Literal(Literal::String(text)) => return Some(Range::of(text.chars().count() as u64)),
            Kind::Literal(Literal::Bytes(bytes)) => return Some(Range::of(bytes.len() as u64)),
            Kind::Literal(_) => return Some(Range::of(1)),
            Kind::List(items) => return Some(Range::of(items.len() as u64)),
            Kind::Map(entries) => return Some(Range::of(entries.len() as u64)),
            _ => {}
        }
        if let Path::At(declared) = self.path(expr) {
            return Some(Range { min: 0, max: declared.max_elements });
        }
        if self.type_of(expr).is_scalar() {
            return Some(Range::of(1));
        }
        self.local_of(expr)?.size
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        match self.entries.get(&expr.id) {
            Some(known) => Some(*known),
            None => self.local_of(expr)?.entries,
        }
    }

    fn push(&mut self, name: &str, local: Local<'a>) {
        self.locals.entry(name.to_owned()).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn push_bound(&mut self, name: &str, expr: &Expr) {
        let local = Local { path: self.path(expr), size: self.size(expr), entries: self.entries_of(expr) };
        self.push(name, local);
    }

    /// A variable of a loop: the key of each entry, or its value.
    fn push_variable(&mut self, name: &str, range: &Expr, value: bool) {
        let entries = self.entries_of(range);
        let is_list = entries.map_or(matches!(self.type_of(range), Type::List(_)), |entries| entries.is_list);
        let size = entries.map(|entries| if value { entries.value } else { entries.key });
        let path = match (value, is_list) {
            (true, _) => self.step(self.path(range), Declaration::element),
            // Keys are texts of any length; positions are not declared.
            (false, false) => self.step(self.path(range), |declared| {
                static KEY: Declaration = Declaration {
                    shape: crate::data::Shape::String,
                    max_elements: 0,
                    min_size: 0,
                    nullable: false,
                };
                declared.element().map(|_| &KEY)
            }),
            (false, true) => self.step(self.path(range), |_| None),
        };
        self.push(name, Local { path, size, entries: None });
    }

    fn fold(&mut self, expr: &Expr, fold: &Comprehension) -> Range {
        let mut cost = self.cost(&fold.range).plus(self.cost(&fold.start));
        self.push_bound(&fold.accumulator, &fold.start);
        match &fold.second {
            Some(second) => {
                self.push_variable(&fold.variable, &fold.range, false);
                self.push_variable(second, &fold.range, true);
            }
            None => {
                let entries = self.entries_of(&fold.range);
                let is_list = entries
                    .map_or(matches!(self.type_of(&fold.range), Type::List(_)), |entries| entries.is_list);
                self.push_variable(&fold.variable, &fold.range, is_list);
            }
        }
        let each = self.cost(&fold.condition);
        let each = self.cost(&fold.step).plus(each);
        self.pop(&fold.variable);
        if let Some(second) = &fold.second {
            self.pop(second);
        }
        cost = cost.plus(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        let count = self.size_or_unknown(&fold.range);
        match &fold.start.kind {
            Kind::Literal(_) => {
                if let Some(size) = self.size(&fold.start) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        cost.plus(count.times(each))
    }

    /// A loop that never runs and only gives a value a name.
    fn bind(&mut self, expr: &Expr, fold: &Comprehension) -> Range {
        let cost = self.cost(&fold.range).plus(self.cost(&fold.start));
        self.push_bound(&fold.accumulator, &fold.start);
        let cost = cost.plus(self.cost(&fold.result));
        self.pop(&fold.accumulator);
        if let Some(size) = self.size(&fold.result) {
            self.sizes.insert(expr.id, size);
        }
        if let Some(entries) = self.entries_of(&fold.result) {
            self.entries.insert(expr.id, entries);
        }
        cost
    }
}

fn empty_union(is_empty: bool) -> Range {
    Range { min: if is_empty { 0 } else { u64::MAX }, max: 0 }
}

fn is_bind(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, Kind::List(items) if items.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
}
