//! The calls that are no calls: `has`, and the loops.
//!
//! Each becomes the same tree as in the original, because what a rule costs is counted on that tree.

use super::parser::{Parser, Told};
use crate::ast::{Comprehension, Entry, Expr, Item, Kind, Literal};

type Expanded = Result<Expr, Told>;
pub(super) type Expand = fn(&mut Parser, usize, Option<Expr>, Vec<Expr>) -> Expanded;

/// What results are gathered in. No identifier can be written like this.
const ACCUMULATOR: &str = "@result";
/// The name the original once used; still nobody's to take.
const OLD_ACCUMULATOR: &str = "__result__";

/// The macro of a name, number of arguments and style.
pub(super) fn find(name: &str, args: usize, member: bool) -> Option<Expand> {
    Some(match (name, args, member) {
        ("has", 1, false) => has,
        ("all", 2 | 3, true) => {
            |parser, place, target, args| quantifier(parser, place, target, args, Quantifier::All)
        }
        ("exists", 2 | 3, true) => {
            |parser, place, target, args| quantifier(parser, place, target, args, Quantifier::Exists)
        }
        ("exists_one", 2, true) | ("existsOne", 3, true) => {
            |parser, place, target, args| quantifier(parser, place, target, args, Quantifier::ExistsOne)
        }
        ("map", 2 | 3, true) => map,
        ("filter", 2, true) => filter,
        ("transformList", 3 | 4, true) => transform_list,
        ("transformMap", 3 | 4, true) => {
            |parser, place, target, args| transform_map(parser, place, target, args, false)
        }
        ("transformMapEntry", 3 | 4, true) => {
            |parser, place, target, args| transform_map(parser, place, target, args, true)
        }
        ("optMap", 2, true) => |parser, place, target, args| optional_map(parser, place, target, args, false),
        ("optFlatMap", 2, true) => {
            |parser, place, target, args| optional_map(parser, place, target, args, true)
        }
        _ => return None,
    })
}

fn has(parser: &mut Parser, place: usize, _: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let arg = only(parser, place, args)?;
    match arg.kind {
        Kind::Select { operand, field, test: false } => {
            parser.node(place, Kind::Select { operand, field, test: true })
        }
        _ => {
            let at = parser.place_of(arg.id);
            parser.tell(at, "invalid argument to has() macro".to_owned());
            Ok(arg)
        }
    }
}

#[derive(Clone, Copy)]
enum Quantifier {
    All,
    Exists,
    ExistsOne,
}

fn quantifier(
    parser: &mut Parser,
    place: usize,
    target: Option<Expr>,
    args: Vec<Expr>,
    kind: Quantifier,
) -> Expanded {
    let (names, mut rest) = variables(parser, args, "argument must be a simple name", usize::MAX)?;
    let (Some(range), Some(test)) = (target, rest.pop()) else { return Err(Told) };
    let so_far = |parser: &mut Parser| accumulated(parser, place);
    let literal = |parser: &mut Parser, value| parser.node(place, Kind::Literal(value));
    let (start, condition, step, result) = match kind {
        Quantifier::All => {
            let now = so_far(parser)?;
            let condition = parser.call(place, "@not_strictly_false", vec![now])?;
            let now = so_far(parser)?;
            let step = parser.call(place, "_&&_", vec![now, test])?;
            (literal(parser, Literal::Bool(true))?, condition, step, so_far(parser)?)
        }
        Quantifier::Exists => {
            let now = so_far(parser)?;
            let not = parser.call(place, "!_", vec![now])?;
            let condition = parser.call(place, "@not_strictly_false", vec![not])?;
            let now = so_far(parser)?;
            let step = parser.call(place, "_||_", vec![now, test])?;
            (literal(parser, Literal::Bool(false))?, condition, step, so_far(parser)?)
        }
        Quantifier::ExistsOne => {
            let (now, one) = (so_far(parser)?, literal(parser, Literal::Int(1))?);
            let more = parser.call(place, "_+_", vec![now, one])?;
            let same = so_far(parser)?;
            let step = parser.call(place, "_?_:_", vec![test, more, same])?;
            let (now, one) = (so_far(parser)?, literal(parser, Literal::Int(1))?);
            let result = parser.call(place, "_==_", vec![now, one])?;
            (literal(parser, Literal::Int(0))?, literal(parser, Literal::Bool(true))?, step, result)
        }
    };
    fold(parser, place, range, names, Loop { start, condition, step, result })
}

fn map(parser: &mut Parser, place: usize, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (names, mut rest) = variables(parser, args, "argument is not an identifier", 1)?;
    let (Some(range), Some(value)) = (target, rest.pop()) else { return Err(Told) };
    gather(parser, place, range, names, rest.pop(), value)
}

fn filter(parser: &mut Parser, place: usize, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let kept = args.first().cloned();
    let (names, mut rest) = variables(parser, args, "argument is not an identifier", 1)?;
    let (Some(range), Some(test), Some(kept)) = (target, rest.pop(), kept) else { return Err(Told) };
    gather(parser, place, range, names, Some(test), kept)
}

fn transform_list(parser: &mut Parser, place: usize, target: Option<Expr>, args: Vec<Expr>) -> Expanded {
    let (names, mut rest) = variables(parser, args, "argument must be a simple name", 2)?;
    let (Some(range), Some(value)) = (target, rest.pop()) else { return Err(Told) };
    gather(parser, place, range, names, rest.pop(), value)
}

/// A list of `value` for every element that passes `test`.
fn gather(
    parser: &mut Parser,
    place: usize,
    range: Expr,
    names: Vec<String>,
    test: Option<Expr>,
    value: Expr,
) -> Expanded {
    let so_far = accumulated(parser, place)?;
    let one = parser.node(place, Kind::List(vec![Item { expr: value, optional: false }]))?;
    let more = parser.call(place, "_+_", vec![so_far, one])?;
    let start = parser.node(place, Kind::List(Vec::new()))?;
    grow(parser, place, range, names, test, more, start)
}

fn transform_map(
    parser: &mut Parser,
    place: usize,
    target: Option<Expr>,
    args: Vec<Expr>,
    entries: bool,
) -> Expanded {
    let (names, mut rest) = variables(parser, args, "argument must be a simple name", 2)?;
    let (Some(range), Some(value)) = (target, rest.pop()) else { return Err(Told) };
    let so_far = accumulated(parser, place)?;
    let mut inserted = vec![so_far];
    if !entries {
        let key = names.first().cloned().unwrap_or_default();
        inserted.push(parser.node(place, Kind::Ident(key))?);
    }
    inserted.push(value);
    let more = parser.call(place, "cel.@mapInsert", inserted)?;
    let start = parser.node(place, Kind::Map(Vec::<Entry>::new()))?;
    grow(parser, place, range, names, rest.pop(), more, start)
}

fn grow(
    parser: &mut Parser,
    place: usize,
    range: Expr,
    names: Vec<String>,
    test: Option<Expr>,
    more: Expr,
    start: Expr,
) -> Expanded {
    let step = match test {
        None => more,
        Some(test) => {
            let same = accumulated(parser, place)?;
            parser.call(place, "_?_:_", vec![test, more, same])?
        }
    };
    let condition = parser.node(place, Kind::Literal(Literal::Bool(true)))?;
    let result = accumulated(parser, place)?;
    fold(parser, place, range, names, Loop { start, condition, step, result })
}

/// `target.optMap(x, f)`: `f` of what the optional holds, if it holds something. The name is bound by a loop that
/// never runs.
fn optional_map(
    parser: &mut Parser,
    place: usize,
    target: Option<Expr>,
    args: Vec<Expr>,
    flat: bool,
) -> Expanded {
    let function = if flat { "optFlatMap" } else { "optMap" };
    let mut args = args.into_iter();
    let (Some(target), Some(variable), Some(value)) = (target, args.next(), args.next()) else {
        return Err(Told);
    };
    let Kind::Ident(name) = &variable.kind else {
        let at = parser.place_of(variable.id);
        parser.tell(at, format!("{function}() variable name must be a simple identifier"));
        return Ok(variable);
    };
    let copy = parser.copy(&target)?;
    let member = |parser: &mut Parser, function: &str, target: Expr| {
        let call =
            Kind::Call { function: function.to_owned(), target: Some(Box::new(target)), args: Vec::new() };
        parser.node(place, call)
    };
    let present = member(parser, "hasValue", target)?;
    let held = member(parser, "value", copy)?;
    let bound = Comprehension {
        range: parser.node(place, Kind::List(Vec::new()))?,
        variable: "#unused".to_owned(),
        second: None,
        accumulator: name.clone(),
        start: held,
        condition: parser.node(place, Kind::Literal(Literal::Bool(false)))?,
        step: parser.node(place, Kind::Ident(name.clone()))?,
        result: value,
    };
    let mut mapped = parser.node(place, Kind::Comprehension(Box::new(bound)))?;
    if !flat {
        mapped = parser.call(place, "optional.of", vec![mapped])?;
    }
    let none = parser.call(place, "optional.none", Vec::new())?;
    parser.call(place, "_?_:_", vec![present, mapped, none])
}

fn only(parser: &mut Parser, place: usize, args: Vec<Expr>) -> Expanded {
    match args.into_iter().next() {
        Some(arg) => Ok(arg),
        None => parser.node(place, Kind::Literal(Literal::Null)),
    }
}

fn accumulated(parser: &mut Parser, place: usize) -> Expanded {
    parser.node(place, Kind::Ident(ACCUMULATOR.to_owned()))
}

/// Splits the names of a loop from what is done in it. `count` is how many there are; with `usize::MAX`, as many
/// as leave one argument.
fn variables(
    parser: &mut Parser,
    mut args: Vec<Expr>,
    complaint: &str,
    count: usize,
) -> Result<(Vec<String>, Vec<Expr>), Told> {
    let rest = args.split_off(count.min(args.len() - 1));
    let mut names: Vec<String> = Vec::new();
    for arg in &args {
        let place = parser.place_of(arg.id);
        let Kind::Ident(name) = &arg.kind else {
            parser.tell(place, complaint.to_owned());
            return Err(Told);
        };
        if [ACCUMULATOR, OLD_ACCUMULATOR].contains(&name.as_str()) {
            parser.tell(place, "iteration variable overwrites accumulator variable".to_owned());
            return Err(Told);
        }
        if names.contains(name) {
            parser.tell(place, format!("duplicate variable name: {name}"));
            return Err(Told);
        }
        names.push(name.clone());
    }
    Ok((names, rest))
}

/// What a loop does: begins with, goes on while, does each time, ends with.
struct Loop {
    start: Expr,
    condition: Expr,
    step: Expr,
    result: Expr,
}

fn fold(parser: &mut Parser, place: usize, range: Expr, names: Vec<String>, inside: Loop) -> Expanded {
    let mut names = names.into_iter();
    let variable = names.next().unwrap_or_default();
    let second = names.next();
    let accumulator = ACCUMULATOR.to_owned();
    let Loop { start, condition, step, result } = inside;
    let fold = Comprehension { range, variable, second, accumulator, start, condition, step, result };
    parser.node(place, Kind::Comprehension(Box::new(fold)))
}
