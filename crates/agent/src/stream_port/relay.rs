//! Carries bytes both ways until either side has ended.
//!
//! An end of one direction is passed on, and the other direction goes on as long as something moves in it: a
//! side that only closed its writing half is still answered, one that is gone is not waited for without end.

use std::{io, time::Duration};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, sleep_until},
};

const BUFFER: usize = 32 * 1024;
/// How long the second direction may be silent once the first has ended.
const LINGER: Duration = Duration::from_secs(30);

/// Until both directions have ended, one of them failed, or the second fell silent.
pub async fn relay<A, B>(caller: A, machine: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_caller, to_caller) = tokio::io::split(caller);
    let (from_machine, to_machine) = tokio::io::split(machine);
    let moved = Mutex::new(Instant::now());
    let mut up = std::pin::pin!(pump(from_caller, to_machine, &moved));
    let mut down = std::pin::pin!(pump(from_machine, to_caller, &moved));
    let up_is_first = tokio::select! {
        biased;
        ended = &mut up => { ended?; true }
        ended = &mut down => { ended?; false }
    };
    *moved.lock() = Instant::now();
    loop {
        let silent_at = *moved.lock() + LINGER;
        let second = async { if up_is_first { down.as_mut().await } else { up.as_mut().await } };
        tokio::select! {
            biased;
            ended = second => return ended,
            () = sleep_until(silent_at) => if moved.lock().elapsed() >= LINGER {
                return Ok(());
            },
        }
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let number = from.read(&mut buffer).await?;
        if number == 0 {
            // The other side may have gone already, which is as good.
            let _ = to.shutdown().await;
            return Ok(());
        }
        to.write_all(&buffer[..number]).await?;
        to.flush().await?;
        *moved.lock() = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_go_both_ways_and_a_half_close_is_passed_on() {
        let ((mut caller, ours), (theirs, mut machine)) = (duplex(64), duplex(64));
        let relaying = relay(ours, theirs);
        let talking = async {
            caller.write_all(b"question").await.unwrap();
            caller.shutdown().await.unwrap();
            let mut asked = String::new();
            machine.read_to_string(&mut asked).await.unwrap();
            assert_eq!(asked, "question");
            machine.write_all(b"answer").await.unwrap();
            drop(machine);
            let mut answered = String::new();
            caller.read_to_string(&mut answered).await.unwrap();
            assert_eq!(answered, "answer");
        };
        let (ended, ()) = tokio::join!(relaying, talking);
        ended.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_went_away_is_not_waited_for_without_end() {
        let ((caller, ours), (theirs, machine)) = (duplex(64), duplex(64));
        drop(caller);
        let began = Instant::now();
        relay(ours, theirs).await.unwrap();
        assert!(began.elapsed() >= LINGER && began.elapsed() < LINGER * 2);
        drop(machine);
    }

    #[tokio::test(start_paused = true)]
    async fn a_direction_that_still_moves_is_let_finish() {
        let ((mut caller, ours), (theirs, mut machine)) = (duplex(64), duplex(64));
        let talking = async {
            caller.shutdown().await.unwrap();
            for _ in 0..4 {
                tokio::time::sleep(LINGER * 2 / 3).await;
                machine.write_all(b"x").await.unwrap();
            }
            drop(machine);
            let mut all = String::new();
            caller.read_to_string(&mut all).await.unwrap();
            assert_eq!(all, "xxxx");
        };
        let (ended, ()) = tokio::join!(relay(ours, theirs), talking);
        ended.unwrap();
    }
}
