//! How much may come in at once.
//!
//! A body is held in memory until its request is answered, and a client may send it as slowly as it
//! likes. So there is room for a fixed number of requests with bodies and for a fixed number of bytes
//! of them; whoever finds none is told to come back. Nobody takes all of it: of the requests, one identity has
//! no more than are left for others, and of the bytes half. Those who have not said who they are have a small room of
//! their own, where they cannot take anybody else's.
//!
//! Deliberately absent: who is worked for first, which is [`crate::fairness`]'s. Reads need no room: they have no body, and
//! their answers are written from what is in memory anyway.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::{
    body::{self, MAX_BODY},
    fairness::busy,
    status::ApiError,
};

/// Requests with a body that are under way at once, as the original has it for all it serves at a time.
const REQUESTS: usize = 400;
/// Kibibytes of large bodies held at once.
const LARGE_KIB: usize = 64 * 1024;
/// Of these, what one identity may hold.
const LARGE_KIB_OF_ONE: usize = LARGE_KIB / 2;
/// Smaller bodies are bounded by their number alone.
const SMALL: usize = 16 * 1024;
/// Logins that are being read at once.
const LOGINS: usize = 32;
/// A name, a password and a description.
const MAX_LOGIN: usize = 16 * 1024;
/// How long a body may take to arrive, and how long it may wait for room.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Intake {
    requests: Mutex<Requests>,
    large_kib: Semaphore,
    logins: Semaphore,
}

#[derive(Debug, Default)]
struct Requests {
    held: usize,
    shares: BTreeMap<String, Share>,
}

/// What one identity holds.
#[derive(Debug)]
struct Share {
    held: usize,
    large_kib: Arc<Semaphore>,
}

/// A body, and the room it takes until it is dropped.
pub struct Taken<'a> {
    pub body: Bytes,
    _room: Room<'a>,
}

enum Room<'a> {
    Login { _place: SemaphorePermit<'a> },
    Known { _place: Place<'a>, _large: Option<(OwnedSemaphorePermit, SemaphorePermit<'a>)> },
}

/// One request's place among [`REQUESTS`].
struct Place<'a> {
    intake: &'a Intake,
    who: &'a str,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut requests = self.intake.requests.lock();
        requests.held -= 1;
        if let Some(share) = requests.shares.get_mut(self.who) {
            share.held -= 1;
            if share.held == 0 {
                requests.shares.remove(self.who);
            }
        }
    }
}

impl Default for Intake {
    fn default() -> Self {
        Intake {
            requests: Mutex::default(),
            large_kib: Semaphore::new(LARGE_KIB),
            logins: Semaphore::new(LOGINS),
        }
    }
}

impl Intake {
    /// Reads the body of somebody we know by the name `who`.
    pub async fn take<'a, B>(&'a self, who: &'a str, body: B) -> Result<Taken<'a>, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let (place, of_one) = self.place(who)?;
        // A body of unknown length may become as large as any.
        let length = body.size_hint().upper().map_or(MAX_BODY, |most| (most as usize).min(MAX_BODY));
        let large = match length > SMALL {
            true => {
                let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
                // One's own share first: who waits for that must not stand in the way of others.
                let room = async {
                    Ok((of_one.acquire_many_owned(kib).await?, self.large_kib.acquire_many(kib).await?))
                };
                let room = tokio::time::timeout(PATIENCE, room).await;
                Some(room.map_err(|_| busy())?.map_err(|_: tokio::sync::AcquireError| busy())?)
            }
            false => None,
        };
        let body = in_time(body::read(body, MAX_BODY)).await?;
        Ok(Taken { body, _room: Room::Known { _place: place, _large: large } })
    }

    fn place<'a>(&'a self, who: &'a str) -> Result<(Place<'a>, Arc<Semaphore>), ApiError> {
        let mut requests = self.requests.lock();
        let left = REQUESTS - requests.held;
        if requests.shares.get(who).map_or(0, |share| share.held) >= left {
            return Err(busy());
        }
        requests.held += 1;
        let share = match requests.shares.get_mut(who) {
            Some(share) => share,
            None => requests
                .shares
                .entry(who.to_owned())
                .or_insert_with(|| Share { held: 0, large_kib: Arc::new(Semaphore::new(LARGE_KIB_OF_ONE)) }),
        };
        share.held += 1;
        let large_kib = share.large_kib.clone();
        drop(requests);
        Ok((Place { intake: self, who }, large_kib))
    }

    /// Reads the body of a login.
    pub async fn take_login<B>(&self, body: B) -> Result<Taken<'_>, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let place = self.logins.try_acquire().map_err(|_| busy())?;
        let body = in_time(body::read(body, MAX_LOGIN)).await?;
        Ok(Taken { body, _room: Room::Login { _place: place } })
    }
}

async fn in_time(read: impl Future<Output = Result<Bytes, ApiError>>) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(PATIENCE, read).await {
        Ok(read) => read,
        Err(_) => Err(ApiError::timeout(format!(
            "the body did not arrive within {} seconds; nothing was changed",
            PATIENCE.as_secs()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    /// Says nothing of its length and never ends.
    fn endless() -> impl Body<Data = Bytes, Error = std::io::Error> + Unpin {
        StreamBody::new(futures::stream::pending())
    }

    fn sized(length: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; length]))
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_never_come_do_not_keep_their_room() {
        let intake = std::sync::Arc::new(Intake::default());
        let waiting: Vec<_> = (0..REQUESTS)
            .map(|_| {
                let intake = intake.clone();
                tokio::spawn(async move { intake.take("a", endless()).await.map(drop) })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let refused = intake.take("a", sized(1)).await.map(drop).unwrap_err();
        assert_eq!(refused.reason(), "TooManyRequests");
        for one in waiting {
            assert!(one.await.unwrap().is_err());
        }
        assert!(intake.take("a", sized(MAX_BODY)).await.is_ok());
        assert!(intake.requests.lock().shares.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_the_room_of_others() {
        let intake = Intake::default();
        let mut held = Vec::new();
        for who in ["a", "b", "c"] {
            let before = held.len();
            while let Ok(taken) = intake.take(who, sized(1)).await {
                held.push(taken);
            }
            assert!(held.len() > before + 40, "{who} has {}", held.len() - before);
        }
        assert!(intake.take("newcomer", sized(1)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_none() {
        let intake = Intake::default();
        let mut held = Vec::new();
        while (held.len() + 1) * MAX_BODY <= LARGE_KIB_OF_ONE * 1024 {
            held.push(intake.take("a", sized(MAX_BODY)).await.unwrap());
        }
        assert_eq!(
            intake.take("a", sized(MAX_BODY)).await.map(drop).unwrap_err().reason(),
            "TooManyRequests"
        );
        assert!(intake.take("a", sized(SMALL)).await.is_ok());
        assert!(intake.take("b", sized(MAX_BODY)).await.is_ok(), "the other half is for others");
        held.pop();
        assert!(intake.take("a", sized(MAX_BODY)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_send_little_and_hold_up_nobody() {
        let intake = Intake::default();
        let large = intake.take_login(sized(MAX_LOGIN + 1)).await.map(drop).unwrap_err();
        assert_eq!(large.reason(), "RequestEntityTooLarge");
        let mut logins = Vec::new();
        for _ in 0..LOGINS {
            logins.push(intake.take_login(sized(10)).await.unwrap());
        }
        assert_eq!(intake.take_login(sized(10)).await.map(drop).unwrap_err().reason(), "TooManyRequests");
        assert!(intake.take("a", sized(10)).await.is_ok());
    }
}
