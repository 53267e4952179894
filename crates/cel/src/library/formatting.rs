//! `'%s has %d'.format([a, b])`: when it runs, and before, as far as the arguments' types are known.

use crate::{
    ast::{Expr, Id, Item, Kind},
    fault::Fault,
    library::{conversion, strings, time},
    types::Type,
    value::{Map, Value},
};

/// One piece of a format.
enum Piece<'f> {
    Text(&'f str),
    Clause { verb: char, precision: Option<usize> },
}

/// Cuts a format into its pieces.
fn pieces(format: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push(Piece::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push(Piece::Text("%"));
            rest = after;
            continue;
        }
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            let number = after[..digits].parse::<usize>().ok().filter(|digits| *digits <= 100);
            precision =
                Some(number.ok_or_else(|| "error while parsing precision: invalid precision".to_owned())?);
            rest = &after[digits..];
        }
        let Some(verb) = rest.chars().next() else { return Err("unexpected end of string".to_owned()) };
        if !"sdfexXob".contains(verb) {
            return Err(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            ));
        }
        out.push(Piece::Clause { verb, precision });
        rest = &rest[verb.len_utf8()..];
    }
    out.push(Piece::Text(rest));
    Ok(out)
}

pub fn format(args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    let [Value::String(format), Value::List(args)] = args else { return Err(Fault::no_overload()) };
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces(format).map_err(Fault::failed)? {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause { verb, precision } => {
                let Some(value) = args.get(next) else {
                    return Err(Fault::failed(format!("index {next} out of range")));
                };
                next += 1;
                let shown = clause(verb, precision, &value?)
                    .map_err(|why| Fault::failed(format!("error during formatting: {why}")))?;
                if out.len() + shown.len() > strings::LONGEST {
                    return Err(Fault::OverBudget);
                }
                out.push_str(&shown);
            }
        }
    }
    Ok(Value::text(out))
}

fn clause(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, String> {
    let digits = precision.unwrap_or(6);
    Ok(match (verb, value) {
        ('s', value) => return text(value),
        ('d', Value::Int(number)) => number.to_string(),
        ('d', Value::Uint(number)) => number.to_string(),
        ('f', Value::Double(number)) if number.is_finite() => grouped(&format!("{number:.digits$}")),
        // However many digits are asked for: the original takes the number for a width.
        ('e', Value::Double(number)) if number.is_finite() => scientific(*number),
        ('f' | 'e', Value::Double(number)) if number.is_nan() => "NaN".to_owned(),
        ('f' | 'e', Value::Double(number)) => if *number > 0.0 { "∞" } else { "-∞" }.to_owned(),
        ('f' | 'e', Value::String(word)) if ["NaN", "Infinity", "-Infinity"].contains(&&**word) => {
            word.to_string()
        }
        ('b', Value::Int(number)) if *number < 0 => format!("-{:b}", number.unsigned_abs()),
        ('b', Value::Int(number)) => format!("{number:b}"),
        ('b', Value::Uint(number)) => format!("{number:b}"),
        ('b', Value::Bool(flag)) => u8::from(*flag).to_string(),
        ('o', Value::Int(number)) if *number < 0 => format!("-{:o}", number.unsigned_abs()),
        ('o', Value::Int(number)) => format!("{number:o}"),
        ('o', Value::Uint(number)) => format!("{number:o}"),
        ('x' | 'X', value) => {
            let shown = match value {
                Value::Int(number) if *number < 0 => format!("-{:x}", number.unsigned_abs()),
                Value::Int(number) => format!("{number:x}"),
                Value::Uint(number) => format!("{number:x}"),
                Value::String(text) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
                Value::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                other => return Err(unfit(verb, other.type_name())),
            };
            if verb == 'X' { shown.to_uppercase() } else { shown }
        }
        (verb, other) => return Err(unfit(verb, other.type_name())),
    })
}

/// Thousands apart, as people write numbers in English.
fn grouped(number: &str) -> String {
    let (sign, rest) = number.strip_prefix('-').map_or(("", number), |rest| ("-", rest));
    let (whole, fraction) = rest.find('.').map_or((rest, ""), |at| rest.split_at(at));
    let mut out = String::from(sign);
    for (n, digit) in whole.chars().enumerate() {
        if n > 0 && (whole.len() - n) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

/// `1.234568×10⁰³`.
fn scientific(number: f64) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let shown = format!("{number:.6e}");
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = format!("{:02}", exponent.abs());
    let raised: String = digits.bytes().map(|digit| RAISED[usize::from(digit - b'0')]).collect();
    format!("{mantissa}×10{}{raised}", if exponent < 0 { "⁻" } else { "" })
}

fn text(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => conversion::show_double(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => time::show_duration(*nanos),
        Value::Timestamp(time) => time.show(),
        Value::Type(name) => name.to_string(),
        Value::List(list) => {
            let mut shown = Vec::with_capacity(list.len());
            for item in list.iter() {
                shown.push(written(&item.map_err(|why| why.to_string())?)?);
            }
            format!("[{}]", shown.join(", "))
        }
        Value::Map(map) => entries(map)?,
        other => return Err(unfit('s', other.type_name())),
    })
}

fn entries(map: &Map<'_>) -> Result<String, String> {
    let mut shown = Vec::with_capacity(map.len());
    for key in map.keys() {
        if let Some(value) = map.find(&key) {
            shown.push((written(&key)?, written(&value.map_err(|why| why.to_string())?)?));
        }
    }
    shown.sort();
    let shown: Vec<String> = shown.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    Ok(format!("{{{}}}", shown.join(", ")))
}

/// A value inside another, as a rule would write it.
fn written(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::String(text) => strings::quoted(text),
        Value::Bytes(bytes) => format!("b{}", strings::quoted(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_finite() => format!("{number:.6}"),
        Value::Double(number) => strings::quoted(&conversion::show_double(*number)),
        Value::Duration(_) => format!("duration({})", strings::quoted(&text(value)?)),
        Value::Timestamp(_) => format!("timestamp({})", strings::quoted(&text(value)?)),
        other => return text(other),
    })
}

fn unfit(verb: char, found: &str) -> String {
    let what = match verb {
        's' => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
        }
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'e' => "scientific clause can only be used on doubles",
        'b' => "binary clause can only be used on integers and bools",
        'o' => "octal clause can only be used on integers",
        _ => "hex clause can only be used on integers, byte buffers, and strings",
    };
    format!("{what}, was given {found}")
}

/// What is wrong with a format whose arguments are written beside it, and where.
pub fn complaint(call: Id, format: &str, args: &[Item], types: &[Type]) -> Option<(Id, String)> {
    let pieces = match pieces(format) {
        Ok(pieces) => pieces,
        Err(why) => return Some((call, why)),
    };
    let mut next = 0;
    for piece in pieces {
        let Piece::Clause { verb, .. } = piece else { continue };
        let Some(item) = args.get(next) else { return Some((call, format!("index {next} out of range"))) };
        next += 1;
        if let Some(unfitting) = misfit(verb, &item.expr, types) {
            let found = declared_name(&types[unfitting]);
            return Some((unfitting, format!("error during formatting: {}", unfit(verb, &found))));
        }
    }
    let (expected, got) = (next, args.len());
    (got > expected).then(|| {
        (call, format!("too many arguments supplied to string.format (expected {expected}, got {got})"))
    })
}

fn declared_name(found: &Type) -> String {
    match found {
        Type::Null => "null_type".to_owned(),
        Type::Duration => "google.protobuf.Duration".to_owned(),
        Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Opaque(name, _) => name.to_string(),
        Type::Type(_) => "type".to_owned(),
        other => other.to_string(),
    }
}

/// The part of an argument whose type the clause cannot show.
fn misfit(verb: char, arg: &Expr, types: &[Type]) -> Option<Id> {
    let found = &types[arg.id];
    if found.is_dyn() {
        return None;
    }
    let fits = match verb {
        's' => match (found, &arg.kind) {
            (Type::List(_), Kind::List(items)) => {
                return items.iter().find_map(|item| misfit(verb, &item.expr, types));
            }
            (Type::Map(..), Kind::Map(entries)) => {
                return entries.iter().find_map(|entry| {
                    misfit(verb, &entry.key, types).or_else(|| misfit(verb, &entry.value, types))
                });
            }
            (found, _) => showable(found),
        },
        'd' | 'o' => matches!(found, Type::Int | Type::Uint),
        'f' | 'e' => matches!(found, Type::Double | Type::String),
        'b' => matches!(found, Type::Int | Type::Uint | Type::Bool),
        _ => matches!(found, Type::Int | Type::Uint | Type::String | Type::Bytes),
    };
    (!fits).then_some(arg.id)
}

fn showable(found: &Type) -> bool {
    match found {
        Type::List(of) => showable(of),
        Type::Map(key, value) => showable(key) && showable(value),
        Type::Object(_) | Type::Named(_) | Type::Opaque(..) | Type::Error => false,
        _ => true,
    }
}
