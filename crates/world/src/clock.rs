//! The wall clock, real or virtual.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// 2030-01-01T00:00:00Z: where every virtual clock starts.
const VIRTUAL_START: Duration = Duration::from_secs(1_893_456_000);

/// Tells the time of day. Never used to measure how long something took; that is
/// what `tokio::time::Instant` is for.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Virtual { began: tokio::time::Instant },
}

impl Clock {
    pub fn system() -> Self {
        Clock(Source::System)
    }

    /// Starts at a fixed date and follows tokio's clock from here on.
    pub fn virtual_from_now() -> Self {
        Clock(Source::Virtual { began: tokio::time::Instant::now() })
    }

    /// Time since the Unix epoch.
    pub fn since_epoch(&self) -> Duration {
        match &self.0 {
            // A host clock set before 1970 reads as 1970: better than a panic in a daemon.
            Source::System => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            Source::Virtual { began } => VIRTUAL_START + began.elapsed(),
        }
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(self.since_epoch()).unwrap_or_default()
    }

    /// Seconds precision, as Kubernetes writes `metav1.Time`: `2030-01-01T00:00:00Z`.
    pub fn rfc3339(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// Microseconds precision, as Kubernetes writes `metav1.MicroTime`.
    pub fn rfc3339_micros(&self) -> String {
        self.now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_virtual_clock_moves_only_with_the_runtime() {
        let clock = Clock::virtual_from_now();
        assert_eq!(clock.rfc3339(), "2030-01-01T00:00:00Z");
        tokio::time::sleep(Duration::from_millis(61_500)).await;
        assert_eq!(clock.rfc3339(), "2030-01-01T00:01:01Z");
        assert_eq!(clock.rfc3339_micros(), "2030-01-01T00:01:01.500000Z");
    }
}
