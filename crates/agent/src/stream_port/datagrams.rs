//! Carries datagrams over a stream: each with its length, two bytes, before it.
//!
//! A datagram that gets lost is lost, as everywhere; the stream ends when the caller ends it.

use std::io;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UdpSocket,
};

/// `socket` is connected to the guest.
pub async fn relay<A: AsyncRead + AsyncWrite>(caller: A, socket: UdpSocket) -> io::Result<()> {
    let (mut from_caller, mut to_caller) = tokio::io::split(caller);
    let up = async {
        let mut datagram = vec![0; usize::from(u16::MAX)];
        loop {
            let length = match from_caller.read_u16().await {
                Ok(length) => usize::from(length),
                Err(why) if why.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(why) => return Err(why),
            };
            from_caller.read_exact(&mut datagram[..length]).await?;
            match socket.send(&datagram[..length]).await {
                Err(why) if !is_loss(&why) => return Err(why),
                Ok(_) | Err(_) => {}
            }
        }
    };
    let down = async {
        let mut framed = vec![0; 2 + usize::from(u16::MAX)];
        loop {
            let length = match socket.recv(&mut framed[2..]).await {
                Ok(length) => length,
                Err(why) if is_loss(&why) => continue,
                Err(why) => return Err(why),
            };
            framed[..2].copy_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
            to_caller.write_all(&framed[..2 + length]).await?;
            to_caller.flush().await?;
        }
    };
    tokio::select! {
        biased;
        ended = up => ended,
        ended = down => ended,
    }
}

/// Nobody listens there yet, or it was too long for the way: this one is lost, the next may not be.
fn is_loss(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::ConnectionRefused)
        || why.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error())
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn datagrams_keep_their_bounds_in_both_directions_and_losses_end_nothing() {
        let guest = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.connect(guest.local_addr().unwrap()).await.unwrap();
        guest.connect(socket.local_addr().unwrap()).await.unwrap();
        let (mut caller, ours) = duplex(1024);
        let relaying = tokio::spawn(relay(ours, socket));

        caller.write_all(b"\0\x03one\0\0\0\x03two").await.unwrap();
        let mut seen = [0; 16];
        for wanted in [&b"one"[..], b"", b"two"] {
            let length = guest.recv(&mut seen).await.unwrap();
            assert_eq!(&seen[..length], wanted);
        }
        guest.send(b"back").await.unwrap();
        let mut framed = [0; 6];
        caller.read_exact(&mut framed).await.unwrap();
        assert_eq!(&framed, b"\0\x04back");

        // Nobody listens any more: the host says so, and the stream lives on.
        drop(guest);
        for _ in 0..3 {
            caller.write_all(b"\0\x01x").await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(!relaying.is_finished());
        drop(caller);
        relaying.await.unwrap().unwrap();
    }
}
