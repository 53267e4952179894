//! Amounts as Kubernetes writes them: `500m`, `2`, `1536Mi`, `1e3`.
//!
//! Read into whole numbers, because everything that is decided with them is: bytes, cores,
//! thousandths of a core. What does not come out even is rounded up, as the original does.
//! Amounts are written in the form people know: memory with the largest binary unit that
//! fits it exactly.

use std::borrow::Cow;

pub use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;

pub const MIB: i64 = 1024 * 1024;

/// An amount as it stands in an object: a text, or a bare number.
pub fn said(amount: &Value) -> Option<Cow<'_, str>> {
    match amount {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        _ => None,
    }
}

/// The amount as a whole number, rounded up; `None` when it is not an amount, or too large.
pub fn value(text: &str) -> Option<i64> {
    scaled(text, 1)
}

/// The amount in thousandths, rounded up.
pub fn milli(text: &str) -> Option<i64> {
    scaled(text, 1000)
}

/// Bytes, in the largest binary unit that fits exactly: `1536Mi`.
pub fn bytes(amount: i64) -> Quantity {
    let units = ["Ei", "Pi", "Ti", "Gi", "Mi", "Ki"];
    for (n, unit) in units.iter().enumerate() {
        let size = 1_i64 << (10 * (units.len() - n));
        if amount != 0 && amount % size == 0 {
            return Quantity(format!("{}{unit}", amount / size));
        }
    }
    Quantity(amount.to_string())
}

/// Thousandths of a core: `125m`, and `2` where it comes out even.
pub fn cores(milli: i64) -> Quantity {
    if milli % 1000 == 0 { Quantity((milli / 1000).to_string()) } else { Quantity(format!("{milli}m")) }
}

fn scaled(text: &str, scale: i128) -> Option<i64> {
    let body = text.trim();
    let (negative, unsigned) = match body.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, body.strip_prefix('+').unwrap_or(body)),
    };
    let end = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (multiply, divide) = unit(suffix)?;
    let divide = divide.checked_mul(10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let product = digits.checked_mul(multiply)?.checked_mul(scale)?;
    // Away from zero, so that no fraction of something becomes nothing.
    let rounded = product.checked_add(divide - 1)? / divide;
    i64::try_from(if negative { -rounded } else { rounded }).ok()
}

/// What a suffix multiplies and divides by.
fn unit(suffix: &str) -> Option<(i128, i128)> {
    let powers = |base: i128, names: &[&str]| {
        let at = names.iter().position(|name| *name == suffix)?;
        Some((base.pow(u32::try_from(at).ok()? + 1), 1))
    };
    match suffix {
        "" => return Some((1, 1)),
        "m" => return Some((1, 1_000)),
        "u" => return Some((1, 1_000_000)),
        "n" => return Some((1, 1_000_000_000)),
        _ => {}
    }
    if let Some(exponent) = suffix.strip_prefix(['e', 'E'])
        && !exponent.is_empty()
        && let Ok(exponent) = exponent.parse::<i32>()
    {
        let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
        return Some(if exponent < 0 { (1, power) } else { (power, 1) });
    }
    powers(1000, &["k", "M", "G", "T", "P", "E"])
        .or_else(|| powers(1024, &["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("0", 0),
            ("2", 2),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            ("1536Mi", 3 << 29),
            ("1G", 1_000_000_000),
            ("1e3", 1000),
            ("5E2", 500),
            ("1E", 1_000_000_000_000_000_000),
            ("+7k", 7000),
            ("-3", -3),
            (".5k", 500),
        ] {
            assert_eq!(value(text), Some(wanted), "{text}");
        }
    }

    #[test]
    fn a_fraction_is_rounded_up_and_never_lost() {
        assert_eq!(value("1m"), Some(1));
        assert_eq!(value("1500m"), Some(2));
        assert_eq!(milli("0.1"), Some(100));
        assert_eq!(milli("1n"), Some(1));
        assert_eq!(milli("2"), Some(2000));
    }

    #[test]
    fn what_is_not_an_amount_has_no_value() {
        for text in
            ["", "Gi", "1Gib", "1..2", "1e", "ten", "99E", "99999999999999999999999999999999999999999"]
        {
            assert_eq!(value(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(amount in 0_i64..i64::MAX / 1000) {
            prop_assert_eq!(value(&bytes(amount).0), Some(amount));
            prop_assert_eq!(milli(&cores(amount).0), Some(amount));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = (value(&text), milli(&text));
        }
    }
}
