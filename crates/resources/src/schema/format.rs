//! The string formats that the original recognises, and how strictly it takes them.
//!
//! A format that is not in the list is ignored, as it is there. Dashes in a format's name
//! do not count: `date-time` and `datetime` are one. Numeric formats (`int32`, `double`)
//! name a type and are not checked for range, which is what v1.34 does.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Schema, SchemaType};

/// Whether a schema of type `kind` may carry `format` and have it mean something.
pub fn is_recognised(kind: Option<&SchemaType>, format: &str) -> bool {
    match kind {
        None | Some(SchemaType::String) => checker(format).is_some(),
        Some(SchemaType::Integer) => matches!(format, "int32" | "int64"),
        Some(SchemaType::Number) => matches!(format, "float" | "double"),
        Some(_) => false,
    }
}

/// The format of a schema, if it is one that counts.
pub(super) fn effective(schema: &Schema) -> Option<&str> {
    let kind = if schema.int_or_string { None } else { schema.kind.as_ref() };
    schema.format.as_deref().filter(|format| is_recognised(kind, format))
}

/// Whether `text` has the format; `true` for formats nobody knows.
pub(super) fn fits(format: &str, text: &str) -> bool {
    checker(format).is_none_or(|check| check(text))
}

fn checker(format: &str) -> Option<fn(&str) -> bool> {
    let check: fn(&str) -> bool = match format.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && is_hex(text),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => |text| text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => |text| text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some(b'3')),
        "uuid4" => |text| is_uuid(text, Some(b'4')),
        "uuid5" => |text| is_uuid(text, Some(b'5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => is_ssn,
        "hexcolor" => is_hex_colour,
        "rgbcolor" => is_rgb_colour,
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => is_duration,
        "datetime" => is_date_time,
        "k8sshortname" => |text| text.len() <= 63 && is_dns_label(text),
        "k8slongname" => |text| text.len() <= 253 && text.split('.').all(is_dns_label),
        _ => return None,
    };
    Some(check)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_dns_label(label: &str) -> bool {
    let ends = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.iter().all(|b| ends(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| ends(*b))
        && bytes.last().is_some_and(|b| ends(*b))
}

/// An absolute URI or an absolute path, as Go's `url.ParseRequestURI` takes it.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f || b == b' ') || bad_escape(text) {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let scheme_ok = scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let Some(authority) = rest.strip_prefix("//") else { return scheme_ok };
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = match host.rsplit_once(']') {
        Some((address, port)) => {
            if !address.starts_with('[') {
                return false;
            }
            port.strip_prefix(':')
        }
        None => host.split_once(':').map(|(_, port)| port),
    };
    scheme_ok
        && port.is_none_or(|port| port.is_empty() || is_digits(port))
        && !host.contains(['<', '>', '"', '\\', '^', '`', '{', '|', '}'])
}

fn bad_escape(text: &str) -> bool {
    text.split('%').skip(1).any(|after| !after.get(..2).is_some_and(is_hex))
}

/// An address with an optional display name: `Ada <ada@example.org>`.
fn is_email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(inner) => match inner.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    (quoted || is_dot_atom(local)) && (is_dot_atom(domain) || is_address_literal(domain))
}

fn is_address_literal(domain: &str) -> bool {
    domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|ip| {
        ip.parse::<Ipv4Addr>().is_ok()
            || ip.strip_prefix("IPv6:").is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
    })
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(|atom| {
        !atom.is_empty()
            && atom
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || !c.is_ascii() || "!#$%&'*+-/=?^_`{|}~".contains(c))
    })
}

fn is_hostname(text: &str) -> bool {
    // Letters and symbols of any script may stand in a label; a dash may not begin or end it.
    let member = |c: char| c.is_alphabetic() || c.is_ascii_digit() || (!c.is_ascii() && !c.is_control());
    let labels: Vec<&str> = text.split('.').collect();
    let last = labels.len() - 1;
    text.len() <= 255
        && labels.iter().enumerate().all(|(at, label)| {
            label.len() <= 63
                && label.chars().all(|c| member(c) || c == '-')
                && label.chars().next().is_some_and(member)
                && label.chars().last().is_some_and(member)
                && (at < last || last == 0 || label.chars().count() > 1)
        })
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    if !is_digits(prefix) || (prefix.len() > 1 && prefix.starts_with('0')) {
        return false;
    }
    let Ok(prefix) = prefix.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && prefix <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && prefix <= 128)
}

/// 6, 8 or 20 octets, with colons, dashes, or dots between pairs of octets.
fn is_mac(text: &str) -> bool {
    let octets = |separator: char, width: usize| {
        let groups: Vec<&str> = text.split(separator).collect();
        let sound = groups.iter().all(|group| group.len() == width && is_hex(group));
        sound && matches!(groups.len() * width / 2, 6 | 8 | 20)
    };
    octets(':', 2) || octets('-', 2) || octets('.', 4)
}

/// A UUID with or without dashes, in either case.
fn is_uuid(text: &str, version: Option<u8>) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    let mut digits = Vec::with_capacity(32);
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 && bytes.get(at) == Some(&b'-') {
            at += 1;
        }
        let Some(part) = bytes.get(at..at + length) else { return false };
        digits.extend_from_slice(part);
        at += length;
    }
    if at != bytes.len() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return false;
    }
    match version {
        None => true,
        Some(b'3') => digits[12] == b'3',
        Some(version) => digits[12] == version && b"89abAB".contains(&digits[16]),
    }
}

fn isbn_digits(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| *b != b'-' && *b != b' ').collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = isbn_digits(text);
    digits.len() == 10
        && digits[..9].iter().all(u8::is_ascii_digit)
        && (digits[9].is_ascii_digit() || digits[9] == b'X')
        && digits
            .iter()
            .zip((1..=10).rev())
            .map(|(b, weight)| weight * if *b == b'X' { 10 } else { u32::from(b - b'0') })
            .sum::<u32>()
            .is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = isbn_digits(text);
    digits.len() == 13
        && digits.iter().all(u8::is_ascii_digit)
        && (digits.starts_with(b"978") || digits.starts_with(b"979"))
        && digits
            .iter()
            .zip([1, 3].into_iter().cycle())
            .map(|(b, weight)| weight * u32::from(b - b'0'))
            .sum::<u32>()
            .is_multiple_of(10)
}

/// A number of one of the large issuers whose check digit is right; other characters are
/// skipped.
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| digits.starts_with(prefix));
    let issued = match digits.len() {
        13 => starts(&["4"]),
        14 => starts(&["300", "301", "302", "303", "304", "305", "36", "38"]),
        15 => starts(&["34", "37", "2131", "1800", "35"]),
        16 => starts(&["4", "51", "52", "53", "54", "55", "6011", "65", "35"]),
        _ => false,
    };
    issued
        && digits
            .bytes()
            .rev()
            .enumerate()
            .map(|(at, b)| match (at % 2, u32::from(b - b'0')) {
                (0, digit) => digit,
                (_, digit) => digit * 2 / 10 + digit * 2 % 10,
            })
            .sum::<u32>()
            .is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let mut rest = text;
    for (group, length) in [3, 2, 4].into_iter().enumerate() {
        if group > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        match (rest.get(..length), rest.get(length..)) {
            (Some(part), Some(left)) if is_digits(part) => rest = left,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_hex_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && is_hex(digits)
}

fn is_rgb_colour(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3
        && parts.iter().all(|part| {
            is_digits(part) && (*part == "0" || !part.starts_with('0')) && part.parse::<u8>().is_ok()
        })
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
}

pub(super) fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    let number = |range: std::ops::Range<usize>| {
        text.get(range).filter(|part| is_digits(part)).and_then(|part| part.parse::<u32>().ok())
    };
    match (number(0..4), number(5..7), number(8..10)) {
        (Some(year), Some(month), Some(day)) => day >= 1 && day <= days_in(year, month),
        _ => false,
    }
}

fn days_in(year: u32, month: u32) -> u32 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 0,
    }
}

/// RFC 3339, letters in either case, an offset of any two pairs of digits.
pub(super) fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else { return false };
    if !is_date(date) || time.len() < 9 || !time.is_ascii() {
        return false;
    }
    let (clock, mut rest) = time.split_at(8);
    let parts: Vec<&str> = clock.split(':').collect();
    let clock_ok = parts.len() == 3
        && parts.iter().all(|part| part.len() == 2 && is_digits(part))
        && parts[0] <= "23"
        && parts[1] <= "59"
        && parts[2] <= "59";
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        rest = &fraction[digits..];
    }
    let zone_ok = matches!(rest, "Z" | "z")
        || (rest.starts_with(['+', '-'])
            && rest.len() == 6
            && rest.as_bytes()[3] == b':'
            && is_digits(&rest[1..3])
            && is_digits(&rest[4..]));
    clock_ok && zone_ok
}

/// What Go's `time.ParseDuration` takes, or whole numbers with the unit spelt out
/// (`3 days`).
fn is_duration(text: &str) -> bool {
    is_go_duration(text) || is_wordy_duration(text)
}

pub(super) fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
            return false;
        }
        let Some(unit) =
            ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|unit| has_unit(after, unit))
        else {
            return false;
        };
        rest = &after[unit.len()..];
    }
    true
}

/// A unit ends where the next number begins, so `ms` is not minutes.
fn has_unit(text: &str, unit: &str) -> bool {
    text.strip_prefix(unit)
        .is_some_and(|rest| rest.chars().next().is_none_or(|c| c.is_ascii_digit() || c == '.'))
}

fn is_wordy_duration(text: &str) -> bool {
    let mut rest = text.trim();
    let mut known = false;
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        if number.parse::<i64>().is_err() {
            return false;
        }
        let after = after.trim_start();
        let end = after.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(after.len());
        let (unit, left) = after.split_at(end);
        if unit.is_empty() {
            return false;
        }
        known |= is_wordy_unit(&unit.to_lowercase());
        rest = left.trim_start();
    }
    known
}

fn is_wordy_unit(unit: &str) -> bool {
    const SHORT: [&str; 12] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "min"];
    const LONG: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    SHORT.contains(&unit) || LONG.iter().any(|word| unit.starts_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_takes_what_the_original_takes_and_no_more() {
        let cases: [(&str, &[&str], &[&str]); 24] = [
            ("ipv4", &["1.2.3.4"], &["1.2.3", "::1", "256.1.1.1", ""]),
            ("ipv6", &["::1", "fe80::1"], &["1.2.3.4", "fe80::1%eth0"]),
            ("cidr", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/08"]),
            ("mac", &["02:00:5e:10:00:01", "02-00-5e-10-00-01", "0200.5e10.0001"], &["02:00", "0200"]),
            (
                "uuid",
                &["6ba7b810-9dad-11d1-80b4-00c04fd430c8", "6BA7B8109DAD11D180B400C04FD430C8"],
                &["x", ""],
            ),
            ("uuid4", &["f47ac10b-58cc-4372-a567-0e02b2c3d479"], &["f47ac10b-58cc-1372-a567-0e02b2c3d479"]),
            (
                "date-time",
                &["2024-02-29T12:00:00Z", "2024-01-01t00:00:00.5+02:00"],
                &["2023-02-29T12:00:00Z", "now"],
            ),
            ("datetime", &["2024-02-29T12:00:00Z"], &["2024-02-29 12:00:00Z", "2024-02-29T24:00:00Z"]),
            ("date", &["2024-12-31"], &["2024-13-01", "2024-1-1", "2024-04-31"]),
            ("duration", &["1h30m", "1.5s", "0", "22 ns", "3 days", "-2m"], &["", "1", "h", "1x", "abc"]),
            ("email", &["a@b.c", "Ada <ada@example.org>"], &["a", "@b", "a@", "a b@c.d"]),
            ("hostname", &["example.com", "a-b", "1host"], &["-a", "a-", "a..b", "a_b", ""]),
            ("uri", &["http://a/b?c", "/path", "urn:x:y"], &["", "a b", "foo", "http://a:x/", "/%zz"]),
            ("byte", &["YQ==", "YWJj"], &["YQ=", "Y", "", "Y-==", "a==="]),
            ("password", &["", "anything"], &[]),
            ("isbn", &["0321751043", "978-0321751041"], &["0321751044", "123"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]),
            ("ssn", &["111-22-3333", "111223333"], &["111-22-333", "a"]),
            ("hexcolor", &["#fff", "A0b1C2"], &["#ffff", "red"]),
            ("rgbcolor", &["rgb(0, 128,255)"], &["rgb(0,0)", "rgb(256,0,0)"]),
            ("bsonobjectid", &["507f1f77bcf86cd799439011"], &["507f1f77bcf86cd79943901"]),
            ("k8s-short-name", &["a-b1"], &["A", "a.b", "-a"]),
            ("k8s-long-name", &["a.b-c"], &["a..b", "a_b"]),
            ("no-such-format", &["", "anything"], &[]),
        ];
        for (format, good, bad) in cases {
            good.iter().for_each(|text| assert!(fits(format, text), "{format} should take {text:?}"));
            bad.iter().for_each(|text| assert!(!fits(format, text), "{format} should refuse {text:?}"));
        }
    }

    #[test]
    fn a_format_counts_only_for_its_type() {
        assert!(is_recognised(Some(&SchemaType::Integer), "int32"));
        assert!(!is_recognised(Some(&SchemaType::String), "int32"));
        assert!(is_recognised(None, "date-time"));
        assert!(!is_recognised(Some(&SchemaType::Object), "date"));
    }
}
