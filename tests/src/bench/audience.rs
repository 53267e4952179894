//! Many watchers, each on a TLS connection of its own, read by one thread.
//!
//! One thread and not one each: to wake a thread that sleeps on a socket is the work of whoever writes to it, and a
//! thousand of them on the server's own machine would count as the server's.

use std::{sync::mpsc::channel, thread::JoinHandle};

use futures::future::join_all;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{http::Credentials, server::Server};

/// Watchers at work.
pub struct Audience {
    thread: JoinHandle<Vec<Vec<Instant>>>,
}

impl Audience {
    /// Has so many watch `path`, each until it has seen so many events. All of them watch when this returns.
    pub fn gather(server: &impl Server, path: String, watchers: usize, events: usize) -> Audience {
        let (admin, address) = (server.admin(), server.address().to_owned());
        let (ready, all_are_ready) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut watching = Vec::new();
                for _ in 0..watchers {
                    watching.push(Watcher::begin(&admin, &address, &path).await);
                }
                ready.send(()).unwrap();
                join_all(watching.into_iter().map(|watcher| watcher.see(events))).await
            })
        });
        all_are_ready.recv().expect("all watch");
        Audience { thread }
    }

    /// When each of them saw each event, once they all have.
    pub fn seen(self) -> Vec<Vec<Instant>> {
        self.thread.join().unwrap()
    }
}

struct Watcher {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

impl Watcher {
    async fn begin(admin: &Credentials, address: &str, path: &str) -> Watcher {
        let host = ServerName::try_from(address.rsplit_once(':').unwrap().0.to_owned()).unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        let mut stream = TlsConnector::from(admin.tls()).connect(host, socket).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: sheaf\r\n\r\n").as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut watcher = Watcher { stream, unread: Vec::new() };
        let end = loop {
            watcher.read().await;
            if let Some(end) = watcher.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
        };
        let head: Vec<u8> = watcher.unread.drain(..end + 4).collect();
        assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
        watcher
    }

    async fn see(mut self, events: usize) -> Vec<Instant> {
        let (mut seen, mut last) = (Vec::with_capacity(events), 0);
        loop {
            let now = Instant::now();
            // An event is a line of JSON; the lines between which HTTP puts them end in another way.
            for byte in self.unread.drain(..) {
                if byte == b'\n' && last != b'\r' {
                    seen.push(now);
                }
                last = byte;
            }
            if seen.len() >= events {
                return seen;
            }
            self.read().await;
        }
    }

    async fn read(&mut self) {
        self.unread.reserve(8 * 1024);
        assert_ne!(self.stream.read_buf(&mut self.unread).await.unwrap(), 0, "the server ended a watch");
    }
}
