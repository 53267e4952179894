//! Versions as semver.org has them.

use std::{cmp::Ordering, sync::Arc};

use crate::{fault::Fault, value::Value};

#[derive(Clone, Debug)]
pub struct Semver {
    pub numbers: [u64; 3],
    /// The parts after the dash.
    pre: Vec<String>,
}

impl Semver {
    pub fn parse(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Err(Fault::failed("Version string empty"));
        }
        let (major, rest) = text.split_once('.').ok_or_else(missing)?;
        let (minor, rest) = rest.split_once('.').ok_or_else(missing)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let numbers = [number(major, "Major")?, number(minor, "Minor")?, number(patch, "Patch")?];
        let pre: Vec<String> = pre.map(|pre| pre.split('.').map(str::to_owned).collect()).unwrap_or_default();
        for part in &pre {
            identifier(part, "Prerelease")?;
            if part.len() > 1 && part.starts_with('0') && part.bytes().all(|c| c.is_ascii_digit()) {
                return Err(Fault::failed(format!(
                    "Numeric PreRelease version must not contain leading zeroes \"{part}\""
                )));
            }
        }
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            identifier(part, "Build meta data")?;
        }
        Ok(Self { numbers, pre })
    }

    /// `v1`, `1.02`: a missing part is zero, a leading `v` and zeroes mean nothing.
    fn normalized(text: &str) -> Result<Self, Fault> {
        let mut parts: Vec<String> =
            text.strip_prefix('v').unwrap_or(text).splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|part| part.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            let digit = trimmed.starts_with(|c: char| c.is_ascii_digit());
            *part = if digit { trimmed.to_owned() } else { format!("0{trimmed}") };
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(Fault::failed("short version cannot contain PreRelease/Build meta data"));
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let pairs = self.pre.iter().zip(&other.pre);
                let first = pairs.map(|(a, b)| compare_parts(a, b)).find(|order| order.is_ne());
                first.unwrap_or_else(|| self.pre.len().cmp(&other.pre.len()))
            }
        })
    }
}

fn compare_parts(one: &str, other: &str) -> Ordering {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => one.cmp(other),
    }
}

fn missing() -> Fault {
    Fault::failed("No Major.Minor.Patch elements found")
}

fn number(text: &str, what: &str) -> Result<u64, Fault> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
        return Err(Fault::failed(format!(
            "Invalid character(s) found in {} number \"{text}\"",
            what.to_lowercase()
        )));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(Fault::failed(format!("{what} number must not contain leading zeroes \"{text}\"")));
    }
    text.parse()
        .map_err(|_| Fault::failed(format!("strconv.ParseUint: parsing \"{text}\": value out of range")))
}

fn identifier(text: &str, what: &str) -> Result<(), Fault> {
    if text.is_empty() {
        return Err(Fault::failed(format!("{what} is empty")));
    }
    match text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        true => Ok(()),
        false => {
            Err(Fault::failed(format!("Invalid character(s) found in {} \"{text}\"", what.to_lowercase())))
        }
    }
}

pub fn call(function: &str, args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    let parse =
        |text: &str, lenient: bool| if lenient { Semver::normalized(text) } else { Semver::parse(text) };
    let part = |version: &Semver, n: usize| Value::Int(version.numbers[n] as i64);
    Ok(match (function, args) {
        ("semver", [Value::String(text)]) => Value::Semver(Arc::new(parse(text, false)?)),
        ("semver", [Value::String(text), Value::Bool(lenient)]) => {
            Value::Semver(Arc::new(parse(text, *lenient)?))
        }
        ("isSemver", [Value::String(text)]) => Value::Bool(parse(text, false).is_ok()),
        ("isSemver", [Value::String(text), Value::Bool(lenient)]) => {
            Value::Bool(parse(text, *lenient).is_ok())
        }
        ("major", [Value::Semver(version)]) => part(version, 0),
        ("minor", [Value::Semver(version)]) => part(version, 1),
        ("patch", [Value::Semver(version)]) => part(version, 2),
        ("isGreaterThan", [Value::Semver(one), Value::Semver(other)]) => {
            Value::Bool(one.compare(other).is_gt())
        }
        ("isLessThan", [Value::Semver(one), Value::Semver(other)]) => Value::Bool(one.compare(other).is_lt()),
        ("compareTo", [Value::Semver(one), Value::Semver(other)]) => Value::Int(one.compare(other) as i64),
        _ => return Err(Fault::no_overload()),
    })
}
