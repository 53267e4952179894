//! What calls can cost, and how large their results can get.

use super::{Entries, Estimator, Path, Range};
use crate::{
    ast::{Expr, Kind, Literal},
    data::Declaration,
    types::Type,
};

const TRAVERSAL: f64 = 0.1;
const PATTERN: f64 = 0.25;
/// The longest pattern a named format is charged for, and the longest name of one.
const NAMED_PATTERN: f64 = 128.0;
const FORMAT_NAME: u64 = 64;

/// The cost of a call beside that of its arguments, and the size of its result where it has one.
#[derive(Clone, Copy)]
struct Outlay {
    cost: Range,
    size: Option<Range>,
}

impl Outlay {
    fn of(cost: Range) -> Option<Self> {
        Some(Self { cost, size: None })
    }

    fn sized(cost: Range, size: Range) -> Option<Self> {
        Some(Self { cost, size: Some(size) })
    }
}

impl<'a> Estimator<'a> {
    pub(super) fn call(
        &mut self,
        expr: &Expr,
        function: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Range {
        let namespaced = self.checked.namespaced.get(&expr.id);
        let function = namespaced.map_or(function, String::as_str).trim_start_matches('.');
        let target = target.filter(|_| namespaced.is_none());
        if let ("dyn", [arg]) = (function, args) {
            let cost = self.cost(arg);
            if let Some(size) = self.size(arg) {
                self.sizes.insert(expr.id, size);
            }
            if let Some(entries) = self.entries_of(arg) {
                self.entries.insert(expr.id, entries);
            }
            return cost.plus(Range::of(1));
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let overloads = self.checked.overloads[expr.id].clone();
        if overloads.is_empty() {
            return Range::of(0);
        }
        let before = target.map_or(Range::of(0), |target| self.cost(target));
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let outlay = self.outlay(expr, function, overload, target, args, &costs);
            total = total.union(outlay.cost);
            size = match (size, outlay.size) {
                (Some(one), Some(other)) => Some(one.union(other)),
                (one, other) => one.or(other),
            };
            if let ("index_list" | "index_map", Some(of)) = (overload, args.first()) {
                size = self.entries_of(of).map(|entries| entries.value);
                let path = self.step(self.path(of), Declaration::element);
                self.paths.insert(expr.id, path);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
        before.plus(total)
    }

    fn outlay(
        &mut self,
        expr: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Expr>,
        args: &[Expr],
        costs: &[Range],
    ) -> Outlay {
        let all = costs.iter().fold(Range::of(0), |sum, cost| sum.plus(*cost));
        if let Some(outlay) = self.of_library(function, overload, target, args) {
            return Outlay { cost: outlay.cost.plus(all), ..outlay };
        }
        match (overload, costs) {
            // A chain may be decided by its first term.
            ("logical_or" | "logical_and", [first, ..]) => {
                return Outlay { cost: Range { min: first.min, max: all.max }, size: None };
            }
            ("conditional", [condition, yes, no]) => {
                let size = self.size_or_unknown(&args[1]).union(self.size_or_unknown(&args[2]));
                let entries = Entries::union(self.entries_of(&args[1]), self.entries_of(&args[2]));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
                return Outlay { cost: condition.plus(yes.union(*no)), size: Some(size) };
            }
            ("add_string" | "add_bytes" | "add_list", [_, _]) => {
                let entries = Entries::union(self.entries_of(&args[0]), self.entries_of(&args[1]));
                if let Some(entries) = entries {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        let outlay =
            self.of_language(overload, target, args).unwrap_or(Outlay { cost: Range::of(1), size: None });
        Outlay { cost: outlay.cost.plus(all), ..outlay }
    }

    /// What the language itself has.
    fn of_language(&self, overload: &str, target: Option<&Expr>, args: &[Expr]) -> Option<Outlay> {
        let size = |expr: &Expr| self.size_or_unknown(expr);
        match (overload, target, args) {
            ("string_format", Some(target), _) => Outlay::of(size(target).scaled(TRAVERSAL)),
            ("string_to_bytes", None, [arg]) => {
                let from = size(arg);
                Outlay::sized(from.scaled(TRAVERSAL), Range { min: from.min, max: from.max.wrapping_mul(4) })
            }
            ("bytes_to_string", None, [arg]) => {
                let from = size(arg);
                Outlay::sized(from.scaled(TRAVERSAL), Range { min: from.min / 4, max: from.max })
            }
            ("strings_quote", None, [arg]) => {
                let from = size(arg);
                let max = from.max.wrapping_mul(2).wrapping_add(2);
                Outlay::sized(from.scaled(TRAVERSAL), Range { min: from.min + 2, max })
            }
            ("starts_with_string" | "ends_with_string", Some(_), [arg]) => {
                Outlay::of(size(arg).scaled(TRAVERSAL))
            }
            ("in_list", None, [_, list]) => Outlay::of(size(list).scaled(1.0)),
            ("matches_string", Some(target), [pattern]) => {
                let text = size(target).plus(Range::of(1)).scaled(TRAVERSAL);
                Outlay::of(text.times(size(pattern).scaled(PATTERN)))
            }
            ("contains_string", Some(target), [part]) => {
                Outlay::of(size(target).scaled(TRAVERSAL).times(size(part).scaled(TRAVERSAL)))
            }
            ("add_list", None, [left, right]) => Outlay::sized(Range::of(1), size(left).plus(size(right))),
            ("add_string" | "add_bytes", None, [left, right]) => {
                let result = size(left).plus(size(right));
                Outlay::sized(result.scaled(TRAVERSAL), result)
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                None,
                [left, right],
            ) => {
                let smaller = size(left).max.min(size(right).max);
                Outlay::of(Range { min: smaller.min(1), max: smaller }.scaled(TRAVERSAL))
            }
            _ => None,
        }
    }

    /// What Kubernetes' libraries have; texts and lists among them.
    fn of_library(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Expr>,
        args: &[Expr],
    ) -> Option<Outlay> {
        let size = |expr: &Expr| self.size_or_unknown(expr);
        match (function, target, args) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let Some((element, element_size)) = self.element(target) else {
                    return Outlay::of(size(target).scaled(TRAVERSAL));
                };
                let mut each = Range::of(1);
                if matches!(element, Type::String | Type::Bytes) {
                    each = each.plus(element_size.scaled(TRAVERSAL));
                }
                Outlay::of(size(target).times(each))
            }
            ("url", None, [arg]) | ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(arg), _) => {
                Outlay::sized(size(arg).scaled(TRAVERSAL), size(arg))
            }
            ("replace", Some(target), [old, new, ..]) => {
                let text = size(target);
                Outlay::sized(text.scaled(2.0 * TRAVERSAL), replaced(text, size(old), size(new)))
            }
            ("split", Some(target), _) => {
                let text = size(target);
                let limit = args.get(1).and_then(|limit| match limit.kind {
                    Kind::Literal(Literal::Int(limit)) => Some(limit as u64),
                    _ => None,
                });
                let parts = Range { min: 0, max: limit.unwrap_or(text.max) };
                Outlay::sized(text.scaled(2.0 * TRAVERSAL), parts)
            }
            ("join", Some(target), _) => {
                let list = size(target);
                let mut joined = self.element(target).map_or(Range::of(0), |(_, each)| list.times(each));
                if let Some(separator) = args.first() {
                    let gaps = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                    joined = joined.plus(size(separator).times(gaps));
                }
                Outlay::sized(joined.scaled(TRAVERSAL), joined)
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let text = size(target);
                let cost = text.plus(Range::of(1)).scaled(TRAVERSAL).times(size(pattern).scaled(PATTERN));
                Outlay::sized(cost, Range { min: 0, max: text.max })
            }
            ("ip", _, _) if overload == "cidr_ip" => Outlay::of(Range::of(1)),
            (
                "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver",
                _,
                [arg, ..],
            ) => Outlay::of(size(arg).scaled(TRAVERSAL)),
            ("sets.contains" | "sets.intersects", None, [one, other]) => {
                Outlay::of(size(one).times(size(other)).plus(Range::of(1)))
            }
            ("sets.equivalent", None, [one, other]) => {
                Outlay::of(size(one).times(size(other)).scaled(2.0).plus(Range::of(1)))
            }
            ("ip.isCanonical", _, [arg, ..]) => Outlay::of(size(arg).scaled(2.0 * TRAVERSAL)),
            ("containsIP", _, [arg, ..]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(TRAVERSAL);
                if overload == "cidr_contains_ip_string" {
                    cost = cost.plus(size(arg).scaled(TRAVERSAL));
                }
                Outlay::of(cost)
            }
            ("containsCIDR", _, [arg, ..]) => {
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(TRAVERSAL);
                cost = cost.plus(address.scaled(TRAVERSAL)).plus(Range::of(1));
                if overload == "cidr_contains_cidr_string" {
                    cost = cost.plus(size(arg).scaled(TRAVERSAL));
                }
                Outlay::of(cost)
            }
            ("validate", _, [arg, ..]) => {
                Outlay::of(size(arg).scaled(TRAVERSAL).scaled(NAMED_PATTERN * PATTERN))
            }
            ("_==_", None, [left, right]) if self.type_of(left) == self.type_of(right) => {
                match self.type_of(left) {
                    Type::Opaque(name, _) if ["net.IP", "net.CIDR"].contains(&&**name) => {
                        Outlay::of(Range::of(1))
                    }
                    Type::Named(name) => match &**name {
                        "kubernetes.NamedFormat" => {
                            Outlay::of(Range { min: 1, max: FORMAT_NAME }.scaled(TRAVERSAL))
                        }
                        "kubernetes.URL" => {
                            let max = self.size(right).map_or(1, |size| size.max);
                            Outlay::of(Range { min: 1, max }.scaled(TRAVERSAL))
                        }
                        _ => Outlay::of(Range::of(1)),
                    },
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The type and size of what is in a list.
    fn element(&self, list: &Expr) -> Option<(&Type, Range)> {
        let of = match self.type_of(list) {
            Type::List(of) => &**of,
            Type::Map(key, _) => &**key,
            _ => return None,
        };
        let size = match self.path(list) {
            Path::None => Range::UNKNOWN,
            path => match self.step(path, Declaration::element) {
                Path::At(declared) => Range { min: 0, max: declared.max_elements },
                _ => Range::UNKNOWN,
            },
        };
        Some((of, size))
    }
}

/// The size of a text in which every `old` became `new`.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let times = |length: u64, part: u64| (length as f64 / part as f64).ceil() as u64;
    // The longest: an empty text is found around every character; otherwise the shortest parts grow.
    let (most, kept_most) = if old.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if new.max <= old.min {
        (0, text.max)
    } else {
        (times(text.max, old.min), 0)
    };
    let (least, kept_least) = if old.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if old.max <= new.min {
        (0, text.min)
    } else {
        (times(text.min, old.max), 0)
    };
    Range { min: least, max: most }.times(new).plus(Range { min: kept_least, max: kept_most })
}
