//! What many rounds of a measurement say together.

pub fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// How one disk compares with another, round by round.
pub struct Share {
    pub median: f64,
    /// Half of the rounds lie between these.
    quartiles: (f64, f64),
}

impl Share {
    pub fn of(mut rounds: Vec<f64>) -> Share {
        rounds.sort_by(f64::total_cmp);
        let count = rounds.len();
        Share { median: rounds[count / 2], quartiles: (rounds[count / 4], rounds[count * 3 / 4]) }
    }

    pub fn shown(&self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.median, self.quartiles.0, self.quartiles.1)
    }
}
