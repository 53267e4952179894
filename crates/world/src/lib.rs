//! What the outside tells us and we cannot compute: the time, and chance.
//!
//! Everything above the store is handed a [`World`] and reads the clock or draws
//! a number from nowhere else. In production it is the machine's clock and the
//! kernel's random source. In a simulation it is [`World::seeded`]: the clock is
//! tokio's (which a paused runtime moves by itself) and every draw comes from one
//! seed, so the same seed gives the same run.
//!
//! Deliberately absent: sleeping. Timers come from `tokio::time`, which a paused
//! runtime already controls.

mod chance;
mod clock;

pub use chance::Chance;
pub use clock::Clock;
/// What [`Clock::now`] answers: others name it, parse it and count with it, and need no clock of their own.
pub use jiff::Timestamp;

/// The clock and the source of chance, handed in together. Cheap to clone.
#[derive(Clone, Debug)]
pub struct World {
    pub clock: Clock,
    pub chance: Chance,
}

impl World {
    /// The machine's own clock and the kernel's random source.
    pub fn real() -> Self {
        World { clock: Clock::system(), chance: Chance::system() }
    }

    /// A world that is the same every time for one seed.
    ///
    /// Must be called inside a tokio runtime: the clock starts at a fixed date and
    /// then follows `tokio::time::Instant`.
    pub fn seeded(seed: u64) -> Self {
        World { clock: Clock::virtual_from_now(), chance: Chance::seeded(seed) }
    }
}
