//! What a call costs when it runs, in the original's units. A unit is about fifty nanoseconds there.

use crate::value::Value;

pub const LIST: u64 = 10;
pub const MAP: u64 = 30;

/// What reading a text costs, by character.
const TRAVERSAL: f64 = 0.1;
/// What a pattern costs, by its length: each of its parts is taken to be four characters long.
const PATTERN: f64 = 0.25;

/// An argument; nothing for a fault.
pub type Argument<'v, 'a> = Option<&'v Value<'a>>;

/// The cost of one call.
pub fn call(function: &str, overload: &str, args: &[Argument<'_, '_>], result: Argument<'_, '_>) -> u64 {
    let size = |n: usize| size(args.get(n).copied().flatten());
    let traversed = |n: usize, factor: f64| (size(n) as f64 * factor * TRAVERSAL).ceil() as u64;
    let searched = |pattern: u64| {
        let text = ((1.0 + size(usize::from(function == "validate")) as f64) * TRAVERSAL).ceil() as u64;
        text.saturating_mul((pattern as f64 * PATTERN).ceil() as u64)
    };
    match function {
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
            return args.first().copied().flatten().map_or(1, traversal);
        }
        "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" => return traversed(0, 1.0),
        "replace" | "split" => return traversed(0, 2.0),
        "join" => return (self::size(result) as f64 * 2.0 * TRAVERSAL).ceil() as u64,
        "find" | "findAll" => return searched(size(1)),
        "cidr" | "isIP" | "isCIDR" => return traversed(0, 1.0),
        "ip" if overload == "cidr_ip" => return 1,
        "ip" => return traversed(0, 1.0),
        "ip.isCanonical" => return traversed(0, 2.0),
        "containsIP" => {
            let parse = if overload == "cidr_contains_ip_string" { traversed(1, 1.0) } else { 0 };
            return traversed(0, 2.0) + parse;
        }
        "containsCIDR" => {
            let parse = if overload == "cidr_contains_cidr_string" { traversed(1, 1.0) } else { 0 };
            return traversed(0, 2.0) + traversed(0, 1.0) + 1 + parse;
        }
        "sets.contains" | "sets.intersects" => return 1 + size(0).saturating_mul(size(1)),
        "sets.equivalent" => return 1 + size(0).saturating_mul(size(1)).saturating_mul(2),
        "quantity" | "isQuantity" | "semver" | "isSemver" => return traversed(0, 1.0),
        "validate" => {
            if let Some(Some(Value::Format(format))) = args.first() {
                return searched(format.pattern_size);
            }
        }
        "_==_" => {
            let opaque = matches!(
                args.first(),
                Some(Some(
                    Value::Quantity(_)
                        | Value::Ip(_)
                        | Value::Cidr(_)
                        | Value::Format(_)
                        | Value::Url(_)
                        | Value::Semver(_)
                ))
            );
            if opaque {
                return 1;
            }
        }
        _ => {}
    }
    let smaller = || (size(0).min(size(1)) as f64 * TRAVERSAL).ceil() as u64;
    match (function, overload) {
        ("_==_" | "_!=_", _) => smaller(),
        (
            _,
            "starts_with_string" | "ends_with_string" | "string_to_bytes" | "bytes_to_string"
            | "strings_quote" | "string_format",
        ) => traversed(0, 1.0),
        (_, "in_list") => size(1),
        (
            _,
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes",
        ) => smaller(),
        (_, "add_string" | "add_bytes") => ((size(0) + size(1)) as f64 * TRAVERSAL).ceil() as u64,
        (_, "matches_string") => searched(size(1)),
        (_, "contains_string") => traversed(0, 1.0).saturating_mul(traversed(1, 1.0)),
        _ => 1,
    }
}

fn size(value: Argument<'_, '_>) -> u64 {
    match value {
        Some(Value::Optional(Some(held))) => size(Some(held)),
        Some(value) => value.size().unwrap_or(1),
        None => 1,
    }
}

/// What looking at every part of a value costs.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => (text.len() as f64 * TRAVERSAL) as u64,
        Value::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
        Value::List(list) => list.iter().map(|item| item.as_ref().map_or(1, traversal)).sum(),
        Value::Map(map) => map
            .keys()
            .iter()
            .map(|key| {
                let value = map.find(key).and_then(Result::ok);
                traversal(key) + value.as_ref().map_or(1, traversal)
            })
            .sum(),
        _ => 1,
    }
}
