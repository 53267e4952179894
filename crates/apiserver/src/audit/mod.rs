//! Who did what, when and from where: a line for every request that is worth one, in the original's format
//! (`audit.k8s.io/v1` `Event`), so that tools for the original's logs read ours.
//!
//! ```text
//!   request --> Trail: who, as whom, may they, what with --> answered --> policy: worth a line?
//!                                                                           |
//!                                      log <-- event <-- redaction (bodies) +
//! ```
//!
//! - One line per request, once it is answered (`ResponseComplete`). What goes on for long (watches, streams) has one when it
//!   begins (`ResponseStarted`), too. One whose sender left before the answer, or whose handling panicked, has its line
//!   all the same: it may have changed something.
//! - The line's `auditID` is in the answer's `Audit-Id`, also where nothing is logged.
//! - Nothing secret is in it: see [`redaction`], which decides by kind and drops what it does not know to be harmless.
//! - Requests do not wait for it for longer than a moment: see [`log`].
//! - Who may, reads it through the API, too: see [`reading`].
//!
//! Deliberately absent: rules per resource. There is one level for all, and a fixed list of what is not worth a line
//! ([`policy`]).

mod event;
pub mod log;
mod policy;
pub mod reading;
pub mod redaction;
mod tallies;
mod trail;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use http::HeaderValue;
use sheaf_world::World;

pub use self::{
    log::{Limits, Log},
    policy::Level,
    trail::{Behind, Ending, Trail, UntilEnd},
};

/// Where lines go and how much they say.
#[derive(Clone, Debug)]
pub struct Recording {
    pub level: Level,
    pub log: Arc<Log>,
}

/// The audit of one API server.
#[derive(Debug)]
pub struct Audit {
    recording: Option<Recording>,
    world: World,
    ids: Ids,
    room: reading::Room,
}

impl Audit {
    pub fn new(recording: Option<Recording>, world: &World) -> Self {
        let ids = Ids { start: world.chance.bytes(), count: AtomicU64::new(0) };
        Audit { recording, world: world.clone(), ids, room: reading::Room::default() }
    }

    /// Where lines go, unless they go nowhere.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.recording.as_ref().map(|recording| &recording.log)
    }
}

/// Ids that no other server has given, nor this one before: random at first, then counted. They are told to clients
/// anyway, so nothing is lost by their being easy to guess.
#[derive(Debug)]
struct Ids {
    start: [u8; 16],
    count: AtomicU64,
}

impl Ids {
    /// In the spelling of a version 4 uuid.
    fn next(&self) -> HeaderValue {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut id = self.start;
        let count = self.count.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        for (byte, counted) in id[10..].iter_mut().zip(&count[2..]) {
            *byte = byte.wrapping_add(*counted);
        }
        // The carry is not needed: two counts differ in a byte, and so do their ids.
        id[6] = (id[6] & 0x0f) | 0x40;
        id[8] = (id[8] & 0x3f) | 0x80;
        let mut text = [b'-'; 36];
        let mut at = 0;
        for (n, byte) in id.iter().enumerate() {
            if matches!(n, 4 | 6 | 8 | 10) {
                at += 1;
            }
            text[at] = HEX[usize::from(byte >> 4)];
            text[at + 1] = HEX[usize::from(byte & 0x0f)];
            at += 2;
        }
        HeaderValue::from_bytes(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn no_two_requests_have_one_id() {
        let audit = Audit::new(None, &World::seeded(1));
        let ids: BTreeSet<String> =
            (0..100_000).map(|_| audit.ids.next().to_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), 100_000);
        for id in ids.iter().take(1000) {
            let dashes: Vec<usize> = id.match_indices('-').map(|(at, _)| at).collect();
            assert_eq!((id.len(), dashes), (36, vec![8, 13, 18, 23]), "{id}");
            assert_eq!(&id[14..15], "4");
        }
        assert_ne!(
            Audit::new(None, &World::seeded(2)).ids.next(),
            Audit::new(None, &World::seeded(1)).ids.next()
        );
    }
}
