//! Amounts of resources: `1.5Gi`, `300m`. Kept in billionths, which is the finest there is.

use crate::{fault::Fault, value::Value};

const SCALE: i128 = 1_000_000_000;
/// Larger amounts are cut to this.
const MOST: i128 = i64::MAX as i128 * SCALE;

const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// An amount in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let malformed = || Fault::failed(MALFORMED);
        let (negative, rest) = match text.as_bytes().first() {
            None => return Err(malformed()),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(malformed());
        }
        let (binary, exponent) = match suffix {
            "n" => (0, -9),
            "u" => (0, -6),
            "m" => (0, -3),
            "" => (0, 0),
            "k" => (0, 3),
            "M" => (0, 6),
            "G" => (0, 9),
            "T" => (0, 12),
            "P" => (0, 15),
            "E" => (0, 18),
            "Ki" => (10, 0),
            "Mi" => (20, 0),
            "Gi" => (30, 0),
            "Ti" => (40, 0),
            "Pi" => (50, 0),
            "Ei" => (60, 0),
            other => {
                let digits = other.strip_prefix(['e', 'E']).ok_or_else(|| unknown_suffix(other))?;
                (0, digits.parse::<i32>().map_err(|_| unknown_suffix(other))?)
            }
        };
        let amount = scaled(whole, fraction, exponent, binary);
        Ok(Self(if negative { -amount } else { amount }))
    }

    fn bounded(amount: i128) -> Self {
        Self(amount.clamp(-MOST, MOST))
    }

    fn whole(self) -> Option<i64> {
        (self.0 % SCALE == 0 && self.0.abs() < MOST).then(|| i64::try_from(self.0 / SCALE).ok())?
    }

    fn of_int(whole: i64) -> Self {
        Self(i128::from(whole) * SCALE)
    }
}

fn unknown_suffix(suffix: &str) -> Fault {
    match suffix.chars().all(|c| "eEinumkKMGTP+-0123456789".contains(c)) {
        true => Fault::failed("unable to parse quantity's suffix"),
        false => Fault::failed(MALFORMED),
    }
}

/// `whole.fraction * 10^exponent * 2^binary` in billionths, rounded up, no more than the most.
fn scaled(whole: &str, fraction: &str, exponent: i32, binary: u32) -> i128 {
    let raised = |power: i64| 10i128.checked_pow(u32::try_from(power.unsigned_abs()).unwrap_or(u32::MAX));
    let digits: String = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    if digits.is_empty() {
        return 0;
    }
    // The power of ten that the digits as a whole number are multiplied by to get billionths.
    let power = i64::from(exponent) + 9 - i64::try_from(fraction.len()).unwrap_or(i64::MAX / 4);
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX / 4);
    if length + power > 30 {
        return MOST;
    }
    if power >= 0 {
        let number: i128 = digits.parse().unwrap_or(MOST);
        let number = number.saturating_mul(raised(power).unwrap_or(MOST));
        return number.saturating_mul(1i128 << binary).min(MOST);
    }
    // Digits past the 30th of a number this small cannot matter but to the rounding.
    let keep = digits.len().min(28);
    let cut = digits.len() - keep;
    let number: i128 = digits[..keep].parse().unwrap_or(MOST);
    let more = digits[keep..].bytes().any(|c| c != b'0');
    let power = power + i64::try_from(cut).unwrap_or(0);
    if power >= 0 {
        let number = number.saturating_mul(raised(power).unwrap_or(MOST));
        return number.saturating_mul(1i128 << binary).saturating_add(i128::from(more)).min(MOST);
    }
    let Some(divisor) = raised(power) else { return 1 };
    let number = number.saturating_mul(1i128 << binary);
    (number / divisor + i128::from(number % divisor != 0 || more)).min(MOST)
}

pub fn call(function: &str, args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    let order = |order: std::cmp::Ordering| Value::Int(order as i64);
    Ok(match (function, args) {
        ("quantity", [Value::String(text)]) => Value::Quantity(Quantity::parse(text)?),
        ("isQuantity", [Value::String(text)]) => Value::Bool(Quantity::parse(text).is_ok()),
        ("sign", [Value::Quantity(one)]) => Value::Int(one.0.signum() as i64),
        ("isGreaterThan", [Value::Quantity(one), Value::Quantity(other)]) => Value::Bool(one > other),
        ("isLessThan", [Value::Quantity(one), Value::Quantity(other)]) => Value::Bool(one < other),
        ("compareTo", [Value::Quantity(one), Value::Quantity(other)]) => order(one.cmp(other)),
        ("asApproximateFloat", [Value::Quantity(one)]) => Value::Double(one.0 as f64 / SCALE as f64),
        ("isInteger", [Value::Quantity(one)]) => Value::Bool(one.whole().is_some()),
        ("asInteger", [Value::Quantity(one)]) => match one.whole() {
            Some(whole) => Value::Int(whole),
            None => return Err(Fault::failed("cannot convert value to integer")),
        },
        ("add", [Value::Quantity(one), Value::Quantity(other)]) => {
            Value::Quantity(Quantity::bounded(one.0 + other.0))
        }
        ("add", [Value::Quantity(one), Value::Int(other)]) => {
            Value::Quantity(Quantity::bounded(one.0 + Quantity::of_int(*other).0))
        }
        ("sub", [Value::Quantity(one), Value::Quantity(other)]) => {
            Value::Quantity(Quantity::bounded(one.0 - other.0))
        }
        ("sub", [Value::Quantity(one), Value::Int(other)]) => {
            Value::Quantity(Quantity::bounded(one.0 - Quantity::of_int(*other).0))
        }
        _ => return Err(Fault::no_overload()),
    })
}
