//! `sheaf vm port-forward`: ports of a guest on this computer, through the API.
//!
//! ```text
//!   a program here --TCP--> 127.0.0.1:LOCAL --WebSocket--> API --> the machine's host --> the guest's port
//! ```
//!
//! So it works from wherever the API can be reached. Only this computer is listened for unless another address is named.

use std::{io::Write, net::IpAddr};

use bytes::Bytes;
use clap::Args as ClapArgs;
use futures::{SinkExt, StreamExt};
use sheaf_client::streams::WebSocket;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;

use super::{NameArgs, console::PLAIN};
use crate::{
    asking::{
        Refusal, Session,
        out::note,
        resource::{MACHINES, machine_subresource},
    },
    terminal,
};

#[derive(Debug, ClapArgs)]
pub struct ForwardArgs {
    #[command(flatten)]
    pub machine: NameArgs,
    /// PORT, or LOCAL:PORT where it is another one here; 0 for one that is free
    #[arg(required = true, value_name = "PORT", value_parser = Ports::parse)]
    pub ports: Vec<Ports>,
    /// Address of this computer to listen on
    #[arg(long, default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// One connection, on standard input and output; for SSH's ProxyCommand
    #[arg(long, conflicts_with = "address")]
    pub stdio: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub here: u16,
    pub there: u16,
}

impl Ports {
    pub fn parse(text: &str) -> Result<Ports, String> {
        let wrong = || "what fits: PORT or LOCAL:PORT, such as 80 or 8080:80".to_owned();
        let (here, there) = text.split_once(':').unwrap_or((text, text));
        let there: u16 = there.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let here = if here.is_empty() { 0 } else { here.parse().map_err(|_| wrong())? };
        Ok(Ports { here, there })
    }
}

pub async fn run(session: &Session, args: &ForwardArgs) -> Result<(), Refusal> {
    let name = &args.machine.name;
    super::must_run(session, name, "reach").await?;
    if args.stdio {
        let socket = open(session, name, args.ports[0].there).await?;
        let ended = on_standard_streams(socket).await;
        return ended.map_err(|why| Refusal::cannot("pass on what was sent", why));
    }
    let mut listeners = Vec::new();
    for ports in &args.ports {
        let address = (args.address, ports.here);
        let doing = format!("listen on {}:{}", args.address, ports.here);
        let listener = TcpListener::bind(address).await.map_err(|why| Refusal::cannot(&doing, why))?;
        let here = listener.local_addr().map_err(|why| Refusal::cannot(&doing, why))?;
        session.out.print(&format!("{here} leads to port {} of {name}; Ctrl-C ends it\n", ports.there))?;
        listeners.push((listener, ports.there));
    }
    let serving = listeners.iter().map(|(listener, port)| serve(session, name, listener, *port));
    futures::future::join_all(serving).await;
    Ok(())
}

async fn serve(session: &Session, name: &str, listener: &TcpListener, port: u16) {
    let mut connections = futures::stream::FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = connections.next(), if !connections.is_empty() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.push(async move {
                    if let Err(why) = one(session, name, port, stream).await {
                        note(&format!("sheaf: {why}"));
                    }
                });
            }
        }
    }
}

async fn one(session: &Session, name: &str, port: u16, stream: TcpStream) -> Result<(), Refusal> {
    let socket = open(session, name, port).await?;
    // How a connection ends is between its two ends.
    _ = pass_on(socket, stream).await;
    Ok(())
}

async fn open(session: &Session, name: &str, port: u16) -> Result<WebSocket, Refusal> {
    let namespace = &session.namespace;
    let path =
        machine_subresource("virtualmachineinstances", (namespace, name), &format!("portforward/{port}/tcp"));
    let doing = format!("reach port {port} of the {}", MACHINES.about(namespace, name));
    let opened = session.cluster.streams.open(&path, PLAIN, &session.world.chance).await;
    opened.map_err(|why| Refusal::cannot(&doing, why))
}

/// The same with the streams of this process. Standard input is read on a thread of its own, which nobody waits for.
async fn on_standard_streams(socket: WebSocket) -> std::io::Result<()> {
    let (mut to_guest, mut from_guest) = socket.split();
    let mut typed = terminal::typed();
    let mut stdout = std::io::stdout();
    loop {
        tokio::select! {
            biased;
            message = from_guest.next() => match message {
                Some(Ok(Message::Binary(bytes))) => stdout.write_all(&bytes).and_then(|()| stdout.flush())?,
                Some(Ok(Message::Text(text))) => stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())?,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    if to_guest.flush().await.is_err() {
                        return Ok(());
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Ok(()),
            },
            sent = typed.recv() => {
                let Some(bytes) = sent else {
                    _ = to_guest.send(Message::Close(None)).await;
                    return Ok(());
                };
                if to_guest.send(Message::Binary(Bytes::from(bytes))).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

/// Bytes both ways, until one end is done.
pub async fn pass_on(socket: WebSocket, stream: impl AsyncRead + AsyncWrite + Unpin) -> std::io::Result<()> {
    let (mut to_guest, mut from_guest) = socket.split();
    let (mut read, mut write) = tokio::io::split(stream);
    let mut buffer = vec![0; 32 * 1024];
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            message = from_guest.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    write.write_all(&bytes).await?;
                    write.flush().await?;
                }
                Some(Ok(Message::Text(text))) => {
                    write.write_all(text.as_bytes()).await?;
                    write.flush().await?;
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                    // The answer to a ping is queued by the library, and goes out now.
                    if to_guest.flush().await.is_err() {
                        break;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
            },
            count = read.read(&mut buffer), if is_open => match count? {
                0 => {
                    is_open = false;
                    // A WebSocket has no half that could be closed.
                    if to_guest.send(Message::Close(None)).await.is_err() {
                        break;
                    }
                }
                count => {
                    if to_guest.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                        break;
                    }
                }
            }
        }
    }
    write.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_type_them() {
        let ports = |here, there| Ports { here, there };
        for (text, meant) in [
            ("80", ports(80, 80)),
            ("8080:80", ports(8080, 80)),
            (":80", ports(0, 80)),
            ("0:80", ports(0, 80)),
        ] {
            assert_eq!(Ports::parse(text).unwrap(), meant, "{text}");
        }
        for odd in ["", "0", "80:0", "80:", "a", "70000", "1:2:3"] {
            assert!(Ports::parse(odd).unwrap_err().contains("what fits"), "{odd}");
        }
    }
}
