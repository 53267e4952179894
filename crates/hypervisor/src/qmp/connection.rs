//! One conversation with one monitor: commands go out, answers find who asked, events go
//! to whoever listens.
//!
//! A task reads for as long as the connection or its owner lives. When it ends, for
//! whatever reason, everyone who still waits is told, and [`Connection::closed`] returns:
//! for a QEMU that was running this is how its death is noticed at once.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use serde_json::Value;
use tokio::{
    io::Interest,
    net::UnixStream,
    sync::{broadcast, oneshot, watch},
    task::AbortHandle,
    time::timeout,
};

use super::{
    QmpError,
    wire::{self, Decoder, Event, Message, Refusal},
};

/// How many events a listener may be behind before it misses some.
const EVENTS_KEPT: usize = 256;

type Waiting = BTreeMap<u64, oneshot::Sender<Result<Value, Refusal>>>;

pub struct Connection {
    stream: Arc<UnixStream>,
    /// One command at a time onto the wire, whole.
    writing: tokio::sync::Mutex<()>,
    next_id: AtomicU64,
    waiting: Arc<Mutex<Waiting>>,
    events: broadcast::Sender<Event>,
    ended: watch::Receiver<bool>,
    reader: AbortHandle,
}

impl Connection {
    /// Takes over a fresh connection: waits for the greeting and agrees on capabilities.
    pub async fn open(stream: UnixStream, patience: Duration) -> Result<Connection, QmpError> {
        let stream = Arc::new(stream);
        let waiting = Arc::new(Mutex::new(Waiting::new()));
        let (events, _) = broadcast::channel(EVENTS_KEPT);
        let (greeted, greeting) = oneshot::channel();
        let (end, ended) = watch::channel(false);
        let reader = tokio::spawn(read(stream.clone(), waiting.clone(), events.clone(), greeted, end));
        let connection = Connection {
            stream,
            writing: tokio::sync::Mutex::new(()),
            next_id: AtomicU64::new(1),
            waiting,
            events,
            ended,
            reader: reader.abort_handle(),
        };
        match timeout(patience, greeting).await {
            Err(_) => return Err(QmpError::Silent { command: "its greeting".into(), patience }),
            Ok(Err(_)) => return Err(QmpError::Closed),
            Ok(Ok(())) => {}
        }
        connection.execute("qmp_capabilities", Value::Null, &[], patience).await?;
        Ok(connection)
    }

    /// Sends a command, with descriptors if it takes some, and waits for the answer.
    pub async fn execute(
        &self,
        command: &str,
        arguments: Value,
        descriptors: &[BorrowedFd<'_>],
        patience: Duration,
    ) -> Result<Value, QmpError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(id, answer);
        let forget = Forget { waiting: &self.waiting, id };
        // Checked after being entered: either the reader saw us there when it ended, or
        // we see that it has ended.
        if *self.ended.borrow() {
            return Err(QmpError::Closed);
        }
        let line = wire::encode(id, command, &arguments);
        let exchange = async {
            self.send(&line, descriptors).await?;
            answered.await.map_err(|_| QmpError::Closed)
        };
        let outcome = timeout(patience, exchange).await;
        drop(forget);
        match outcome {
            Err(_) => Err(QmpError::Silent { command: command.to_owned(), patience }),
            Ok(Err(why)) => Err(why),
            Ok(Ok(Err(Refusal { class, desc }))) => {
                Err(QmpError::Refused { command: command.to_owned(), class, desc })
            }
            Ok(Ok(Ok(value))) => Ok(value),
        }
    }

    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Returns when the other side is gone.
    pub async fn closed(&self) {
        let mut ended = self.ended.clone();
        // An error means that the reader is gone, which is the same thing.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    async fn send(&self, line: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), QmpError> {
        let _whole = self.writing.lock().await;
        let mut sent = 0;
        while sent < line.len() {
            // Descriptors travel with the first byte.
            let along = if sent == 0 { descriptors } else { &[] };
            self.stream.writable().await.map_err(QmpError::Io)?;
            match self.stream.try_io(Interest::WRITABLE, || send_some(&self.stream, &line[sent..], along)) {
                Ok(number) => sent += number,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
                Err(why) => return Err(QmpError::Io(why)),
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// Nobody waits for an answer any more, whether it came, was given up or was dropped.
struct Forget<'a> {
    waiting: &'a Mutex<Waiting>,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.id);
    }
}

fn send_some(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !along.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one command"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(bytes)], &mut along, flags)?)
}

async fn read(
    stream: Arc<UnixStream>,
    waiting: Arc<Mutex<Waiting>>,
    events: broadcast::Sender<Event>,
    greeted: oneshot::Sender<()>,
    end: watch::Sender<bool>,
) {
    let mut greeted = Some(greeted);
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 16 << 10];
    let why = loop {
        match decoder.next_message() {
            Ok(Some(Message::Greeting)) => {
                if let Some(greeted) = greeted.take() {
                    let _ = greeted.send(());
                }
                continue;
            }
            Ok(Some(Message::Answer { id, outcome })) => {
                if let Some(answer) = waiting.lock().remove(&id) {
                    let _ = answer.send(outcome);
                }
                continue;
            }
            Ok(Some(Message::Event(event))) => {
                let _ = events.send(event);
                continue;
            }
            Ok(Some(Message::Unknown)) => continue,
            Ok(None) => {}
            Err(why) => break Some(why),
        }
        if let Err(why) = stream.readable().await {
            break Some(QmpError::Io(why));
        }
        match stream.try_read(&mut buffer) {
            Ok(0) => break None,
            Ok(number) => decoder.push(&buffer[..number]),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {}
            Err(why) if why.kind() == io::ErrorKind::ConnectionReset => break None,
            Err(why) => break Some(QmpError::Io(why)),
        }
    };
    if let Some(why) = why {
        tracing::warn!(%why, "a monitor connection ended badly");
    }
    let _ = end.send(true);
    waiting.lock().clear();
}
