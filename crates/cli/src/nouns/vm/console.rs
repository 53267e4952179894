//! `sheaf vm console`: the serial console of a virtual machine in this terminal.
//!
//! ```text
//!   keys --raw--> [Ctrl-] leaves] --WebSocket--> the machine's serial port --> this terminal
//! ```
//!
//! Bytes are passed on as they are. It is not opened again by itself when it ends: a machine that was restarted has
//! another console.

use std::io::{self, Write};

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use sheaf_client::streams::{StreamError, WebSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_tungstenite::tungstenite::{Message, protocol::CloseFrame, protocol::frame::coding::CloseCode};

use crate::{
    asking::{Session, resource::machine_subresource},
    terminal::{self, RawMode},
};

/// What KubeVirt's streams are: payload and nothing else.
pub(crate) const PLAIN: &str = "plain.kubevirt.io";
/// Ctrl-], which nothing else wants, as in telnet and virsh.
const ESCAPE: u8 = 0x1d;

#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error("cannot enter the console of {namespace}/{name}")]
    Open {
        namespace: String,
        name: String,
        #[source]
        source: StreamError,
    },
    #[error("the terminal cannot be used")]
    Terminal(#[from] io::Error),
    #[error(
        "the console of {namespace}/{name} broke off: somebody else entered it, or the machine or its node ended"
    )]
    Broken { namespace: String, name: String },
}

/// How it ended, where it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// By the key, or the end of the input.
    ByChoice,
    /// The machine is off.
    MachineEnded,
    /// Somebody asked this process to end.
    Signalled,
}

/// Until it is left or ends.
pub async fn enter(session: &Session, name: &str) -> Result<Left, ConsoleError> {
    let namespace = &session.namespace;
    let path = machine_subresource("virtualmachineinstances", (namespace, name), "console");
    let opened = session.cluster.streams.open(&path, PLAIN, &session.world.chance).await;
    let socket = opened.map_err(|source| ConsoleError::Open {
        namespace: namespace.clone(),
        name: name.to_owned(),
        source,
    })?;
    eprintln!("This is the console of {namespace}/{name}. Enter wakes it, Ctrl-] leaves it.");
    let left = {
        // Heard before the terminal is set: a signal in between would end the process and leave it raw.
        let asked = AskedToEnd::hear()?;
        let _raw = RawMode::enter()?;
        pass_on(socket, asked).await?
    };
    match left {
        Some(Left::MachineEnded) => {
            eprintln!("\nThe console of {namespace}/{name} has ended: the machine is off.")
        }
        Some(Left::ByChoice | Left::Signalled) => eprintln!(),
        None => {
            return Err(ConsoleError::Broken { namespace: namespace.clone(), name: name.to_owned() });
        }
    }
    Ok(left.unwrap_or(Left::ByChoice))
}

/// The signals that ask this process to end, none of which comes from the keyboard: in raw mode Ctrl-C is the guest's.
struct AskedToEnd {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl AskedToEnd {
    fn hear() -> io::Result<AskedToEnd> {
        Ok(AskedToEnd {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn asked(&mut self) {
        tokio::select! {
            biased;
            _ = self.hangup.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// None if it ended without a word.
async fn pass_on(socket: WebSocket, mut to_end: AskedToEnd) -> io::Result<Option<Left>> {
    let (mut to_machine, mut from_machine) = socket.split();
    let mut typed = terminal::typed();
    let goodbye = || Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }));
    loop {
        tokio::select! {
            biased;
            () = to_end.asked() => return Ok(Some(Left::Signalled)),
            message = from_machine.next() => match message {
                Some(Ok(Message::Binary(bytes))) => show(&bytes)?,
                Some(Ok(Message::Text(text))) => show(text.as_bytes())?,
                Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Normal => {
                    return Ok(Some(Left::MachineEnded));
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(None),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    // The answer to a ping is queued by the library, and goes out now.
                    if to_machine.flush().await.is_err() {
                        return Ok(None);
                    }
                }
            },
            keys = typed.recv() => {
                let (keys, leaves) = up_to_the_escape(keys);
                if !keys.is_empty() && to_machine.send(Message::Binary(Bytes::from(keys))).await.is_err() {
                    return Ok(None);
                }
                if leaves {
                    _ = to_machine.send(goodbye()).await;
                    return Ok(Some(Left::ByChoice));
                }
            }
        }
    }
}

/// What is to be sent of what was typed, and whether that was all.
fn up_to_the_escape(typed: Option<Vec<u8>>) -> (Vec<u8>, bool) {
    let Some(mut keys) = typed else { return (Vec::new(), true) };
    match keys.iter().position(|key| *key == ESCAPE) {
        Some(at) => {
            keys.truncate(at);
            (keys, true)
        }
        None => (keys, false),
    }
}

fn show(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_escape_is_still_sent() {
        assert_eq!(up_to_the_escape(Some(b"ls\r".to_vec())), (b"ls\r".to_vec(), false));
        assert_eq!(up_to_the_escape(Some(b"ls\x1drm".to_vec())), (b"ls".to_vec(), true));
        assert_eq!(up_to_the_escape(Some(b"\x1d".to_vec())), (Vec::new(), true));
        assert_eq!(up_to_the_escape(None), (Vec::new(), true));
    }
}
