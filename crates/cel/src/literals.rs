//! What is wrong with constants: times that are none, patterns that are none, lists of several types, formats that
//! do not fit what they are given. Looked at once types are known.

use crate::{
    Host,
    ast::{Ast, Expr, Kind, Literal},
    checker::Checked,
    issues::Issues,
    library::{formatting, time},
    types::Type,
};

pub fn check(ast: &Ast, checked: &Checked, host: &'static Host) -> Issues {
    let mut issues = Issues::default();
    let mut found: Vec<(usize, String)> = Vec::new();
    ast.root.visit(&mut |expr| call(expr, checked, host, &mut found));
    uniform(&ast.root, checked, false, &mut found);
    for (id, message) in found {
        issues.add(ast.places[id], message);
    }
    issues
}

fn call(expr: &Expr, checked: &Checked, host: &'static Host, found: &mut Vec<(usize, String)>) {
    let Kind::Call { function, target, args } = &expr.kind else { return };
    let literal = |n: usize| match args.get(n).map(|arg| (arg.id, &arg.kind)) {
        Some((id, Kind::Literal(literal))) => Some((id, literal)),
        _ => None,
    };
    let name = function.as_str();
    let complaint = match (name, literal(0)) {
        // A whole number would be taken for nanoseconds, which nobody means.
        ("duration", Some((id, literal))) => {
            let fits = matches!(literal, Literal::String(text) if time::duration(text).is_some());
            (!fits).then(|| (id, "invalid duration argument".to_owned()))
        }
        ("timestamp", Some((id, literal))) => {
            let fits = match literal {
                Literal::String(text) => time::Time::parse(text).is_some(),
                Literal::Int(seconds) => time::Time::new(*seconds, 0).is_some(),
                _ => false,
            };
            (!fits).then(|| (id, "invalid timestamp argument".to_owned()))
        }
        ("matches", Some((id, Literal::String(pattern)))) if target.is_some() => {
            (host.pattern)(pattern).err().map(|_| (id, "invalid matches argument".to_owned()))
        }
        // Zones have names in a database that is not here.
        (getter, Some((id, Literal::String(zone)))) if getter.starts_with("get") => {
            let message =
                || format!("time zone '{zone}' is not served: use UTC or an offset such as '+01:00'");
            time::offset(zone).err().map(|_| (id, message()))
        }
        _ => None,
    };
    found.extend(complaint);
    if let ("format", Some(target), [Expr { kind: Kind::List(items), .. }]) = (name, target, args.as_slice())
        && let Kind::Literal(Literal::String(format)) = &target.kind
    {
        found.extend(formatting::complaint(expr.id, format, items, &checked.types));
    }
}

/// Lists and maps written in a rule hold values of one type each, except as arguments of `format`.
fn uniform(expr: &Expr, checked: &Checked, exempt: bool, found: &mut Vec<(usize, String)>) {
    let type_of = |part: &Expr, optional: bool| {
        let known = &checked.types[part.id];
        if optional { known.unwrap_optional().0.clone() } else { known.clone() }
    };
    let mut differ = |part: &Expr, first: &Type, now: &Type| {
        if first != now {
            found.push((part.id, format!("expected type '{first}' but found '{now}'")));
        }
        first != now
    };
    match &expr.kind {
        Kind::List(items) if !exempt => {
            let mut types = items.iter().map(|item| (&item.expr, type_of(&item.expr, item.optional)));
            if let Some((_, first)) = types.next() {
                types.any(|(part, now)| differ(part, &first, &now));
            }
        }
        Kind::Map(entries) if !exempt => {
            let mut types = entries
                .iter()
                .map(|entry| (entry, type_of(&entry.key, false), type_of(&entry.value, entry.optional)));
            if let Some((_, key, value)) = types.next() {
                for (entry, next_key, next_value) in types {
                    differ(&entry.key, &key, &next_key);
                    differ(&entry.value, &value, &next_value);
                }
            }
        }
        _ => {}
    }
    let exempt = exempt || matches!(&expr.kind, Kind::Call { function, .. } if function == "format");
    expr.kind.each_child(&mut |child| uniform(child, checked, exempt, found));
}
