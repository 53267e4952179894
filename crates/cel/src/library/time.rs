//! Points in time and spans of it, in nanoseconds. No clock is read here.
//!
//! Named time zones need a database and are not served, except `UTC`; offsets are.

use std::cmp::Ordering;

use crate::{fault::Fault, value::Value};

const DAY: i64 = 86_400;
/// The seconds of the years one to 9999.
const EARLIEST: i64 = -62_135_596_800;
const LATEST: i64 = 253_402_300_799;

/// A point in time between the years one and 9999.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub seconds: i64,
    pub nanos: u32,
    /// The zone it was written in, in seconds: how it is shown, and nothing else.
    zone: i64,
}

impl PartialEq for Time {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Time {}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

/// A time as people in some zone write it.
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub day_of_year: i64,
    pub day_of_week: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Time {
    pub fn new(seconds: i64, nanos: u32) -> Option<Self> {
        (EARLIEST..=LATEST).contains(&seconds).then_some(Self { seconds, nanos, zone: 0 })
    }

    /// RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text, false)
    }

    /// RFC 3339 and what else a `date-time` may be: without a zone, or with one that has no colon.
    pub fn parse_loosely(text: &str) -> Option<Self> {
        Self::read(text, true)
    }

    fn read(text: &str, loosely: bool) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, to: usize| -> Option<i64> {
            let digits = bytes.get(from..to)?;
            digits.iter().all(u8::is_ascii_digit).then(|| text[from..to].parse().ok())?
        };
        let is = |at: usize, c: u8| bytes.get(at) == Some(&c);
        let separator = is(10, b'T') || (loosely && (is(10, b't') || is(10, b' ')));
        if !(is(4, b'-') && is(7, b'-') && separator && is(13, b':') && is(16, b':')) {
            return None;
        }
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        let fits = (1..=12).contains(&month)
            && (1..=days_in(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second < 60;
        if !fits {
            return None;
        }
        let mut at = 19;
        let mut nanos = 0u32;
        if is(at, b'.') || is(at, b',') {
            let digits = bytes[at + 1..].iter().take_while(|c| c.is_ascii_digit()).count();
            if digits == 0 {
                return None;
            }
            let kept: String = text[at + 1..at + 1 + digits.min(9)].to_owned();
            nanos = format!("{kept:0<9}").parse().ok()?;
            at += 1 + digits;
        }
        let offset = match (&bytes[at..], loosely) {
            (b"Z", _) | (b"z" | b"", true) => 0,
            ([sign @ (b'+' | b'-'), _, _, b':', _, _], _) => {
                signed(*sign, number(at + 1, at + 3)?, number(at + 4, at + 6)?)?
            }
            ([sign @ (b'+' | b'-'), _, _, _, _], true) => {
                signed(*sign, number(at + 1, at + 3)?, number(at + 3, at + 5)?)?
            }
            _ => return None,
        };
        let seconds = days_from_civil(year, month, day) * DAY + hour * 3600 + minute * 60 + second - offset;
        Some(Self { zone: offset, ..Self::new(seconds, nanos)? })
    }

    pub fn plus(self, nanos: i64) -> Option<Self> {
        let total = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos) + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(1_000_000_000)).ok()?;
        let nanos = u32::try_from(total.rem_euclid(1_000_000_000)).ok()?;
        Some(Self { zone: self.zone, ..Self::new(seconds, nanos)? })
    }

    pub fn minus(self, other: Self) -> Option<i64> {
        let nanos = |time: Self| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        i64::try_from(nanos(self) - nanos(other)).ok()
    }

    pub fn civil(self, offset: i64) -> Civil {
        let seconds = self.seconds + offset;
        let (days, of_day) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = civil_from_days(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_from_civil(year, 1, 1),
            day_of_week: (days + 4).rem_euclid(7),
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// RFC 3339 in the zone it came in, with as many digits as needed.
    pub fn show(self) -> String {
        let civil = self.civil(self.zone);
        let mut fraction = String::new();
        if self.nanos > 0 {
            fraction = format!(".{:09}", self.nanos).trim_end_matches('0').to_owned();
        }
        let Civil { year, month, day, hour, minute, second, .. } = civil;
        let zone = match self.zone {
            0 => "Z".to_owned(),
            zone => {
                let sign = if zone < 0 { '-' } else { '+' };
                format!("{sign}{:02}:{:02}", zone.abs() / 3600, zone.abs() / 60 % 60)
            }
        };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
    }
}

fn signed(sign: u8, hours: i64, minutes: i64) -> Option<i64> {
    // Zones come out of data, too: no arithmetic before they are known to be small.
    if !((-23..24).contains(&hours) && (-59..60).contains(&minutes)) {
        return None;
    }
    let offset = hours * 3600 + minutes * 60;
    Some(if sign == b'-' { -offset } else { offset })
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970, counting years from March so that the odd day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

/// `UTC` or an offset such as `-05:30`, in seconds.
pub fn offset(zone: &str) -> Result<i64, Fault> {
    if zone.is_empty() || zone == "UTC" {
        return Ok(0);
    }
    let unknown = || Fault::failed(format!("unknown time zone {zone}"));
    let (sign, rest) = match zone.as_bytes().first() {
        Some(sign @ (b'+' | b'-')) => (*sign, &zone[1..]),
        _ => (b'+', zone),
    };
    let (hours, minutes) = rest.split_once(':').ok_or_else(unknown)?;
    let (hours, minutes) = (hours.parse().map_err(|_| unknown())?, minutes.parse().map_err(|_| unknown())?);
    signed(sign, hours, minutes).ok_or_else(unknown)
}

const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A span as Go writes one: `1h30m`, `-1.5s`.
pub fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let whole = &rest[..digits];
        rest = &rest[digits..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
            fraction = &after[..digits];
            rest = &after[digits..];
        }
        if whole.is_empty() && fraction.is_empty() || whole.len() > 19 {
            return None;
        }
        let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = UNITS.iter().find(|(name, _)| *name == &rest[..end])?.1;
        rest = &rest[end..];
        total += whole.parse::<i128>().unwrap_or(0) * i128::from(unit);
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let scale = 10i128.pow(u32::try_from(fraction.len()).ok()?);
            total += fraction.parse::<i128>().ok()? * i128::from(unit) / scale;
        }
        if total > i128::from(i64::MAX) + 1 {
            return None;
        }
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A span as a `duration` of a schema may be: Go's, or numbers with words (`3 days`).
pub fn loose_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = duration(text) {
        return Some(nanos);
    }
    let mut total = 0i64;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
        let unit = match rest[..end].to_lowercase().as_str() {
            "ns" | "nano" | "nanos" => 1,
            "us" | "µs" | "micro" | "micros" => 1_000,
            "ms" | "milli" | "millis" => 1_000_000,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000_000,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000_000_000,
            "d" | "day" | "days" => 86_400_000_000_000,
            "w" | "week" | "weeks" | "wk" | "wks" => 604_800_000_000_000,
            _ => return None,
        };
        total = total.checked_add(count.checked_mul(unit)?)?;
        rest = rest[end..].trim_start();
    }
    Some(total)
}

/// In seconds, as CEL shows a span.
pub fn show_duration(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

/// What a getter of a time or a span says.
pub fn part(function: &str, args: &[Value<'_>]) -> Result<Value<'static>, Fault> {
    if let [Value::Duration(nanos)] = args {
        return Ok(Value::Int(match function {
            "getHours" => nanos / 3_600_000_000_000,
            "getMinutes" => nanos / 60_000_000_000,
            "getSeconds" => nanos / 1_000_000_000,
            "getMilliseconds" => nanos / 1_000_000,
            _ => return Err(Fault::no_overload()),
        }));
    }
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(zone)] => (time, offset(zone)?),
        _ => return Err(Fault::no_overload()),
    };
    let civil = time.civil(offset);
    Ok(Value::Int(match function {
        "getFullYear" => civil.year,
        "getMonth" => civil.month - 1,
        "getDate" => civil.day,
        "getDayOfMonth" => civil.day - 1,
        "getDayOfYear" => civil.day_of_year,
        "getDayOfWeek" => civil.day_of_week,
        "getHours" => civil.hour,
        "getMinutes" => civil.minute,
        "getSeconds" => civil.second,
        "getMilliseconds" => i64::from(time.nanos / 1_000_000),
        _ => return Err(Fault::no_overload()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for days in -200_000..200_000 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            assert!((1..=days_in(year, month)).contains(&day));
        }
    }

    #[test]
    fn spans_are_read_as_go_reads_them() {
        assert_eq!(duration("1h30m"), Some(5_400_000_000_000));
        assert_eq!(duration("-1.5s"), Some(-1_500_000_000));
        assert_eq!(duration(".5ms"), Some(500_000));
        for wrong in ["", "1", "h", "1d", "1h 2m", "-", "9999999999h"] {
            assert_eq!(duration(wrong), None, "{wrong}");
        }
    }
}
