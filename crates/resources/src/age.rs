//! Ages as people read them in tables: `42s`, `5m12s`, `3h`, `12d`.

use serde_json::Value;

/// The age of an object by its creationTimestamp, or `<unknown>`.
pub fn of_object(object: &Value, now: i64) -> Value {
    of_timestamp(&object["metadata"]["creationTimestamp"], now)
}

pub fn of_timestamp(timestamp: &Value, now: i64) -> Value {
    since(timestamp.as_str().unwrap_or_default(), now).into()
}

/// How long ago an RFC 3339 time was.
pub fn since(time: &str, now: i64) -> String {
    parse_rfc3339(time).map_or_else(|| "<unknown>".into(), |then| short(now - then))
}

/// A duration in at most two units, the way kubectl prints it.
pub fn short(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let pair = |big: i64, big_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{big_unit}"),
        small => format!("{big}{big_unit}{small}{small_unit}"),
    };
    match seconds {
        // Clocks may differ by a second or two; more than that cannot be told honestly.
        ..=-2 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => pair(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => pair(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => pair(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => pair(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// Seconds since the epoch of an RFC 3339 time; fractions are dropped.
pub fn parse_rfc3339(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(|time| time.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (312, "5m12s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (18_060, "5h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(short(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn times_are_read_with_fractions_and_zones() {
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse_rfc3339("2030-01-01T00:00:00Z"), Some(1_893_456_000));
        assert_eq!(parse_rfc3339("2024-02-29T12:00:00.123456Z"), Some(1_709_208_000));
        assert_eq!(parse_rfc3339("2024-02-29T13:00:00+01:00"), Some(1_709_208_000));
        for bad in
            ["", "2024-02-29", "2024-13-01T00:00:00Z", "2024-02-29T12:00:00", "x024-02-29T12:00:00Z", "soon"]
        {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,40}") {
            let _ = parse_rfc3339(&text);
        }
    }
}
