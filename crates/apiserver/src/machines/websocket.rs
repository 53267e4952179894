//! Carries bytes between a client's WebSocket and an agent's stream, as `plain.kubevirt.io` wants it: payload in
//! binary messages and nothing else.
//!
//! Either side's end ends both. A client that says nothing, not even that it is there, is given up after a while. No
//! more is held than one buffer each way: who reads slowly is written to slowly.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::{SinkExt, StreamExt, stream::SplitSink, stream::SplitStream};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// The largest message sent.
const PIECE: usize = 32 * 1024;
/// The largest taken: clients send far less.
const MAX_MESSAGE: usize = 1 << 20;
const PING_EVERY: Duration = Duration::from_secs(5);
/// A client that has not answered so many pings is gone.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a client may take to say goodbye.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// What the stream to the agent carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Bytes whose grouping means nothing.
    Bytes,
    /// Datagrams: one message each, and two bytes of length before each in the stream.
    Datagrams,
}

/// Which side ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The machine's side, in good order.
    Machine,
    /// The machine's side, otherwise.
    Broken,
    Client,
    /// This server stops.
    Stopping,
}

/// Until either side ends.
pub async fn bridge<C, A>(client: C, agent: A, framing: Framing, mut stopping: watch::Receiver<bool>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    A: AsyncRead + AsyncWrite,
{
    let config =
        WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    let socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_agent, mut to_agent) = tokio::io::split(agent);
    let end = tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => End::Stopping,
        end = downward(&mut from_agent, &mut to_client, framing) => end,
        end = upward(&mut from_client, &mut to_agent, framing) => end,
    };
    // The machine's side is let go before the client is waited for.
    let _ = timeout(CLOSE_PATIENCE, to_agent.shutdown()).await;
    drop((from_agent, to_agent));
    if let Some(frame) = closing(end) {
        let goodbye = async {
            let _ = to_client.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = from_client.next().await {}
        };
        let _ = timeout(CLOSE_PATIENCE, goodbye).await;
    }
    tracing::debug!(?end, "a stream ended");
}

/// What the client is told. What broke off, or was taken over by somebody else, ends without a word: by that clients
/// know to say so.
fn closing(end: End) -> Option<CloseFrame> {
    let (code, reason) = match end {
        End::Machine | End::Client => (CloseCode::Normal, ""),
        End::Stopping => (CloseCode::Away, "the server is stopping"),
        End::Broken => return None,
    };
    Some(CloseFrame { code, reason: reason.into() })
}

/// From the machine to the client, with a ping now and then.
async fn downward<C: AsyncRead + AsyncWrite + Unpin, A: AsyncRead>(
    from_agent: &mut ReadHalf<A>,
    to_client: &mut SplitSink<WebSocketStream<C>, Message>,
    framing: Framing,
) -> End {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut buffer = BytesMut::with_capacity(PIECE);
    loop {
        tokio::select! {
            biased;
            _ = pings.tick() => {
                if to_client.send(Message::Ping(Bytes::new())).await.is_err() {
                    return End::Client;
                }
            }
            // What was read stays in the buffer if the other branch is taken.
            read = from_agent.read_buf(&mut buffer) => match read {
                Ok(0) => return End::Machine,
                Ok(_) => {}
                Err(_) => return End::Broken,
            },
        }
        while let Some(message) = next_message(&mut buffer, framing) {
            if to_client.send(Message::Binary(message)).await.is_err() {
                return End::Client;
            }
        }
        buffer.reserve(PIECE);
    }
}

/// The next message that is whole, if there is one.
fn next_message(buffer: &mut BytesMut, framing: Framing) -> Option<Bytes> {
    match framing {
        Framing::Bytes if buffer.is_empty() => None,
        Framing::Bytes => Some(buffer.split_to(buffer.len().min(PIECE)).freeze()),
        Framing::Datagrams => {
            let length = usize::from(u16::from_be_bytes([*buffer.first()?, *buffer.get(1)?]));
            if buffer.len() < 2 + length {
                return None;
            }
            buffer.advance(2);
            Some(buffer.split_to(length).freeze())
        }
    }
}

/// From the client to the machine.
async fn upward<C: AsyncRead + AsyncWrite + Unpin, A: AsyncWrite>(
    from_client: &mut SplitStream<WebSocketStream<C>>,
    to_agent: &mut WriteHalf<A>,
    framing: Framing,
) -> End {
    loop {
        let payload = match timeout(SILENCE, from_client.next()).await {
            Ok(Some(Ok(Message::Binary(payload)))) => payload,
            Ok(Some(Ok(Message::Text(text)))) => Bytes::from(text),
            // Answering pings is the library's.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => return End::Client,
        };
        let written = match (framing, u16::try_from(payload.len())) {
            (Framing::Bytes, _) => to_agent.write_all(&payload).await,
            (Framing::Datagrams, Ok(length)) => {
                let mut framed = BytesMut::with_capacity(2 + payload.len());
                framed.extend_from_slice(&length.to_be_bytes());
                framed.extend_from_slice(&payload);
                to_agent.write_all(&framed).await
            }
            // No datagram is that long: it is lost, as any may be.
            (Framing::Datagrams, Err(_)) => Ok(()),
        };
        let written = match written {
            Ok(()) => to_agent.flush().await,
            failed => failed,
        };
        if written.is_err() {
            return End::Broken;
        }
    }
}

#[cfg(test)]
#[path = "websocket_tests.rs"]
mod tests;
