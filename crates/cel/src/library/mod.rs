//! The functions of [`crate::functions`], done. A value of a type that a function does not take is an error of
//! that one call: types that are only known when a rule runs are checked here.

pub mod arithmetic;
pub mod cidr;
pub mod conversion;
pub mod formatting;
pub mod lists;
pub mod named_format;
pub mod optional;
pub mod quantity;
pub mod semver;
pub mod strings;
pub mod time;
pub mod url;

use crate::{Host, fault::Fault, value::Value};

/// Calls a function by name.
pub fn call<'a>(function: &str, args: Vec<Value<'a>>, host: &'static Host) -> Result<Value<'a>, Fault> {
    match function {
        "!_" | "-_" | "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "@in" => {
            arithmetic::call(function, &args)
        }
        "cel.@mapInsert" => arithmetic::insert(args),
        "size" => match args.as_slice() {
            [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))] => {
                Ok(Value::Int(value.size().and_then(|size| i64::try_from(size).ok()).unwrap_or(i64::MAX)))
            }
            _ => Err(Fault::failed("no such overload: size")),
        },
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type"
        | "uint" => conversion::call(function, &args),
        "matches" | "find" | "findAll" => match args.get(1) {
            Some(Value::String(pattern)) => {
                strings::matched(function, &strings::foreign_pattern(pattern, host)?, &args)
            }
            _ => Err(Fault::no_overload()),
        },
        "join" => strings::join(&args),
        "format" => formatting::format(&args),
        "isSorted" | "max" | "min" | "first" | "last" | "unwrapOpt" | "optional.unwrap" | "sets.contains"
        | "sets.equivalent" | "sets.intersects" => lists::call(function, &args),
        "indexOf" | "lastIndexOf" if matches!(args.first(), Some(Value::List(_))) => {
            lists::call(function, &args)
        }
        "optional.none" | "optional.of" | "optional.ofNonZeroValue" | "hasValue" | "value" => {
            optional::call(function, &args)
        }
        "validate" => named_format::call(function, &args, host.formats),
        name if name.starts_with("format.") => named_format::call(function, &args, host.formats),
        "url" | "isURL" | "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath"
        | "getQuery" => url::call(function, &args),
        "semver" | "isSemver" | "major" | "minor" | "patch" => semver::call(function, &args),
        "isGreaterThan" | "isLessThan" | "compareTo" if matches!(args.first(), Some(Value::Semver(_))) => {
            semver::call(function, &args)
        }
        "quantity" | "isQuantity" | "sign" | "isGreaterThan" | "isLessThan" | "compareTo"
        | "asApproximateFloat" | "asInteger" | "isInteger" | "add" | "sub" => quantity::call(function, &args),
        "ip"
        | "isIP"
        | "ip.isCanonical"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "cidr"
        | "isCIDR"
        | "containsIP"
        | "containsCIDR"
        | "prefixLength"
        | "masked" => cidr::call(function, &args),
        name if name.starts_with("get") => time::part(function, &args),
        _ => strings::call(function, &args),
    }
}
