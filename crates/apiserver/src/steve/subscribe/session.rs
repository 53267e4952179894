//! One WebSocket and the subscriptions of its client.
//!
//! One task reads and writes, so what is read from watches waits until what was read before is sent. A client that takes
//! nothing for a while is given up, and so is one that says nothing at all, not even that it is there.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::{
    SinkExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        Message,
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

use super::{
    counts::CountsSubscription,
    event::{Wish, ping},
    subscription::{RIGHTS_EVERY, Said, Subscription},
};
use crate::{
    ApiServer, KUBERNETES_VERSION,
    status::ApiError,
    steve::{errand::Errands, object::Base, rights::Rights},
};

/// A wish is a few words.
const MAX_MESSAGE: usize = 64 * 1024;
/// Subscriptions of one client at a time.
const MOST: usize = 200;
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long a client may take to take a message.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// A client of whom nothing was heard for so long is gone: it answers pings.
const SILENCE: Duration = Duration::from_secs(100);
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// A subscription of either sort.
enum Subscribed {
    Objects(Box<Subscription>),
    Counts(Box<CountsSubscription>),
}

impl Subscribed {
    async fn open(
        server: &ApiServer,
        errands: &Errands,
        base: &Base,
        rights: &Rights,
        wish: Wish,
    ) -> Result<Self, ApiError> {
        if CountsSubscription::is_wished(&wish) {
            return Ok(Subscribed::Counts(Box::new(CountsSubscription::open(server, base, rights, wish))));
        }
        let objects = Subscription::open(server, errands, base, rights, wish).await?;
        Ok(Subscribed::Objects(Box::new(objects)))
    }

    fn wish(&self) -> &Wish {
        match self {
            Subscribed::Objects(objects) => &objects.wish,
            Subscribed::Counts(counts) => &counts.wish,
        }
    }

    fn is_still_allowed(&mut self) -> bool {
        match self {
            Subscribed::Objects(objects) => objects.is_still_allowed(),
            Subscribed::Counts(counts) => counts.is_still_allowed(),
        }
    }

    async fn next(&mut self) -> Said {
        match self {
            Subscribed::Objects(objects) => objects.next().await,
            Subscribed::Counts(counts) => counts.next().await,
        }
    }
}

/// A subscription and what it said, given back together so that it can be asked again.
type Turn = BoxFuture<'static, (String, u64, Subscribed, Said)>;

pub struct Session {
    server: ApiServer,
    errands: Errands,
    base: Base,
    rights: Rights,
    /// The number of each subscription that is under way, by its key, and what lets go of its watches when it is stopped.
    open: BTreeMap<String, (u64, AbortHandle)>,
    turns: FuturesUnordered<Abortable<Turn>>,
    next_number: u64,
}

/// The client is gone, or was given up.
struct Gone;

impl Session {
    pub fn new(server: &ApiServer, errands: Errands, base: &Base, rights: &Rights) -> Self {
        Session {
            server: server.clone(),
            errands,
            base: base.clone(),
            rights: rights.clone(),
            open: BTreeMap::new(),
            turns: FuturesUnordered::new(),
            next_number: 0,
        }
    }

    /// Until the client leaves or the server stops.
    pub async fn run<C: AsyncRead + AsyncWrite + Unpin>(mut self, client: C) {
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
        let mut socket = WebSocketStream::from_raw_socket(client, Role::Server, Some(config)).await;
        let mut stopping = self.server.stopping.subscribe();
        let is_stopping = tokio::select! {
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => true,
            _ = self.serve(&mut socket) => false,
        };
        let (code, reason) = match is_stopping {
            true => (CloseCode::Away, "the server is stopping"),
            false => (CloseCode::Normal, ""),
        };
        let goodbye = async {
            let _ = socket.close(Some(CloseFrame { code, reason: reason.into() })).await;
            while let Some(Ok(_)) = socket.next().await {}
        };
        let _ = timeout(CLOSE_PATIENCE, goodbye).await;
    }

    async fn serve<C: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<C>,
    ) -> Result<(), Gone> {
        let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        loop {
            tokio::select! {
                biased;
                _ = pings.tick() => {
                    if heard.elapsed() > SILENCE {
                        return Err(Gone);
                    }
                    if !self.rights.are_still_somebodys() {
                        return Err(Gone);
                    }
                    send(socket, Message::Ping(Bytes::new())).await?;
                    say(socket, &ping(KUBERNETES_VERSION)).await?;
                }
                message = socket.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.hear(socket, text.as_bytes()).await?,
                        Some(Ok(Message::Binary(bytes))) => self.hear(socket, &bytes).await?,
                        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                        Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(Gone),
                    }
                }
                Some(turn) = self.turns.next(), if !self.turns.is_empty() => {
                    // Nothing comes of one that was stopped.
                    if let Ok((key, number, subscription, said)) = turn {
                        self.pass_on(socket, key, number, subscription, said).await?;
                    }
                }
            }
        }
    }

    /// What the client asks for.
    async fn hear<C: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<C>,
        message: &[u8],
    ) -> Result<(), Gone> {
        let wish: Wish = match serde_json::from_slice(message) {
            Ok(wish) => wish,
            Err(why) => return say(socket, &Wish::default().error(&why.to_string())).await,
        };
        let key = wish.key();
        if wish.stop {
            let Some((_, letting_go)) = self.open.remove(&key) else { return Ok(()) };
            letting_go.abort();
            return say(socket, &wish.event("resource.stop")).await;
        }
        // A session that ended, a token that was taken back: nothing more is begun with it.
        if !self.rights.are_still_somebodys() {
            return Err(Gone);
        }
        if self.open.contains_key(&key) {
            return Ok(());
        }
        if self.open.len() >= MOST {
            let why = format!("there are {MOST} subscriptions on this connection already");
            return say(socket, &wish.error(&why)).await;
        }
        let (server, errands, base, rights) = (&self.server, &self.errands, &self.base, &self.rights);
        match Subscribed::open(server, errands, base, rights, wish.clone()).await {
            Ok(subscription) => {
                say(socket, &wish.event("resource.start")).await?;
                self.next_number += 1;
                self.listen(key, self.next_number, subscription);
                Ok(())
            }
            Err(why) => {
                say(socket, &wish.error(why.message())).await?;
                say(socket, &wish.event("resource.stop")).await
            }
        }
    }

    /// What a subscription said.
    async fn pass_on<C: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut WebSocketStream<C>,
        key: String,
        number: u64,
        subscription: Subscribed,
        said: Said,
    ) -> Result<(), Gone> {
        // Stopped meanwhile.
        if self.open.get(&key).map(|(open, _)| *open) != Some(number) {
            return Ok(());
        }
        match said {
            Said::Event(event) => {
                say(socket, &event).await?;
                self.listen(key, number, subscription);
            }
            Said::Over(why) => {
                self.open.remove(&key);
                if let Some(why) = why {
                    say(socket, &subscription.wish().error(&why)).await?;
                }
                say(socket, &subscription.wish().event("resource.stop")).await?;
            }
        }
        Ok(())
    }

    fn listen(&mut self, key: String, number: u64, mut subscription: Subscribed) {
        let (letting_go, registration) = AbortHandle::new_pair();
        self.open.insert(key.clone(), (number, letting_go));
        let turn: Turn = Box::pin(async move {
            let said = loop {
                if !subscription.is_still_allowed() {
                    break Said::Over(Some("it may no longer be watched".into()));
                }
                if let Ok(said) = timeout(RIGHTS_EVERY, subscription.next()).await {
                    break said;
                }
            };
            (key, number, subscription, said)
        });
        self.turns.push(Abortable::new(turn, registration));
    }
}

async fn say<C: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<C>,
    event: &Value,
) -> Result<(), Gone> {
    send(socket, Message::text(event.to_string())).await
}

async fn send<C: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<C>,
    message: Message,
) -> Result<(), Gone> {
    match timeout(SEND_PATIENCE, socket.send(message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Gone),
    }
}
