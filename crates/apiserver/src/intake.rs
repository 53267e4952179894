//! How much may come in at once.
//!
//! A body is held in memory until its request is answered, and a client may send it as slowly as it
//! likes. So there is room for a fixed number of requests with bodies and for a fixed number of bytes
//! of them; whoever finds none is told to come back. Those who have not said who they are have a small room of their
//! own, where they cannot take anybody else's.
//!
//! Deliberately absent: fairness between those who have. Reads need no room: they have no body, and their
//! answers are written from what is in memory anyway.

use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    body::{self, MAX_BODY},
    status::ApiError,
};

/// Requests with a body that are under way at once, as the original has it for all it serves at a time.
const REQUESTS: usize = 400;
/// Kibibytes of large bodies held at once.
const LARGE_KIB: usize = 64 * 1024;
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
    requests: Semaphore,
    large_kib: Semaphore,
    logins: Semaphore,
}

/// A body, and the room it takes until it is dropped.
pub struct Taken<'a> {
    pub body: Bytes,
    _room: (SemaphorePermit<'a>, Option<SemaphorePermit<'a>>),
}

impl Default for Intake {
    fn default() -> Self {
        Intake {
            requests: Semaphore::new(REQUESTS),
            large_kib: Semaphore::new(LARGE_KIB),
            logins: Semaphore::new(LOGINS),
        }
    }
}

impl Intake {
    /// Reads the body of somebody we know.
    pub async fn take<B>(&self, body: B) -> Result<Taken<'_>, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let request = self.requests.try_acquire().map_err(|_| busy())?;
        // A body of unknown length may become as large as any.
        let length = body.size_hint().upper().map_or(MAX_BODY, |most| (most as usize).min(MAX_BODY));
        let large = match length > SMALL {
            true => {
                let kib = u32::try_from(length.div_ceil(1024)).unwrap_or(u32::MAX);
                let room = tokio::time::timeout(PATIENCE, self.large_kib.acquire_many(kib)).await;
                Some(room.map_err(|_| busy())?.map_err(|_| busy())?)
            }
            false => None,
        };
        let body = in_time(body::read(body, MAX_BODY)).await?;
        Ok(Taken { body, _room: (request, large) })
    }

    /// Reads the body of a login.
    pub async fn take_login<B>(&self, body: B) -> Result<Taken<'_>, ApiError>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let login = self.logins.try_acquire().map_err(|_| busy())?;
        let body = in_time(body::read(body, MAX_LOGIN)).await?;
        Ok(Taken { body, _room: (login, None) })
    }
}

fn busy() -> ApiError {
    ApiError::too_many_requests("Too many requests, please try again later.", Duration::from_secs(1))
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
                tokio::spawn(async move { intake.take(endless()).await.map(drop) })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let refused = intake.take(sized(1)).await.map(drop).unwrap_err();
        assert_eq!(refused.reason(), "TooManyRequests");
        for one in waiting {
            assert!(one.await.unwrap().is_err());
        }
        assert!(intake.take(sized(MAX_BODY)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_wait_for_each_other_and_small_ones_for_none() {
        let intake = Intake::default();
        let mut held = Vec::new();
        while (held.len() + 1) * MAX_BODY <= LARGE_KIB * 1024 {
            held.push(intake.take(sized(MAX_BODY)).await.unwrap());
        }
        assert_eq!(intake.take(sized(MAX_BODY)).await.map(drop).unwrap_err().reason(), "TooManyRequests");
        assert!(intake.take(sized(SMALL)).await.is_ok());
        held.pop();
        assert!(intake.take(sized(MAX_BODY)).await.is_ok());
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
        assert!(intake.take(sized(10)).await.is_ok());
    }
}
