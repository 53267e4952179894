//! Asks the host's resolvers, one after the other, and takes the first answer that fits.
//!
//! A question goes on as its bytes, id included. That the guest chose the id is harmless:
//! an answer is never kept, so whoever forges one, from a port they must guess, deceives
//! the guest that asked and nobody else.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use hickory_proto::op::{Message, MessageType};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

/// For one resolver. Clients ask again after five seconds; by then the next was asked.
const PATIENCE: Duration = Duration::from_secs(2);
/// What a resolver may put in one datagram.
const LARGEST_DATAGRAM: usize = 4096;
/// How many datagrams that are no answer to the question are put up with.
const MOST_STRANGERS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Udp,
    Tcp,
}

/// The bytes of the answer; none if nobody answered.
pub(super) async fn ask(
    resolvers: &[SocketAddr],
    over: Over,
    bytes: &[u8],
    question: &Message,
) -> Option<Vec<u8>> {
    for resolver in resolvers {
        let asked = async {
            match over {
                Over::Udp => ask_over_udp(*resolver, bytes, question).await,
                Over::Tcp => ask_over_tcp(*resolver, bytes, question).await,
            }
        };
        match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(why)) => tracing::debug!(%resolver, error = %why, "a resolver did not answer"),
            Err(_) => tracing::debug!(%resolver, "a resolver took too long"),
        }
    }
    None
}

async fn ask_over_udp(resolver: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Vec<u8>> {
    let any: IpAddr = match resolver {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // A port of its own for each question, and connected: only the resolver is heard.
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(resolver).await?;
    socket.send(bytes).await?;
    let mut answer = vec![0; LARGEST_DATAGRAM];
    for _ in 0..MOST_STRANGERS {
        let length = socket.recv(&mut answer).await?;
        if is_answer(&answer[..length], question) {
            answer.truncate(length);
            return Ok(answer);
        }
    }
    Err(io::Error::other("only answers to other questions came"))
}

async fn ask_over_tcp(resolver: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(resolver).await?;
    write_message(&mut stream, bytes).await?;
    let answer = read_message(&mut stream).await?;
    if is_answer(&answer, question) {
        Ok(answer)
    } else {
        Err(io::Error::other("an answer to another question came"))
    }
}

fn is_answer(bytes: &[u8], question: &Message) -> bool {
    Message::from_vec(bytes).is_ok_and(|answer| {
        answer.metadata.message_type == MessageType::Response
            && answer.metadata.id == question.metadata.id
            // A refusal may come without the question.
            && (answer.queries == question.queries || answer.queries.is_empty())
    })
}

/// One message as TCP carries it: its length, then itself.
pub(super) async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(super) async fn write_message(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    let mut framed = Vec::with_capacity(2 + message.len());
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    stream.write_all(&framed).await
}
