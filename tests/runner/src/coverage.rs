//! What a soak covered: it runs for as long as somebody wants, so what it did is counted and told at its end.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::job::{JobResult, Outcome};

#[derive(Debug, Default)]
pub struct Coverage {
    pub rounds: usize,
    /// How often each test passed, and how long it took in all.
    passed: BTreeMap<String, (usize, Duration)>,
}

impl Coverage {
    pub fn add(&mut self, results: &[JobResult]) {
        self.rounds += 1;
        for test in results.iter().flat_map(|result| &result.tests) {
            if test.outcome == Outcome::Passed {
                let (times, took) = self.passed.entry(test.name.clone()).or_default();
                *times += 1;
                *took += test.took;
            }
        }
    }

    pub fn told(&self, took: Duration) -> String {
        let mut text = format!("\nCovered in {:.1} h, {} rounds\n", took.as_secs_f64() / 3600.0, self.rounds);
        for (test, (times, took)) in &self.passed {
            _ = writeln!(text, "  {times:>4} x  {:>8.1} s  {test}", took.as_secs_f64());
        }
        text
    }
}

/// `90s`, `30m`, `2h`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a time such as 90s, 30m or 2h");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| wrong())?;
    match unit {
        's' => Ok(Duration::from_secs(number)),
        'm' => Ok(Duration::from_secs(number * 60)),
        'h' => Ok(Duration::from_secs(number * 3600)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that panics has failed, and says where")]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(parse_duration("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(parse_duration("2h").unwrap(), Duration::from_secs(7200));
        for wrong in ["", "2", "h", "2d", "-1h", "2 h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
